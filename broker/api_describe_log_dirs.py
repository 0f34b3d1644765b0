"""DescribeLogDirs 1-4: what is in the log directories (KIP-113, KIP-827).

Sizes of the volume are told as unknown (-1).
"""

from __future__ import annotations

from typing import Any

from broker.context import BrokerContext
from net.handlers import Api, Request
from storage.log_dir import LogDirectory
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis, response_module


def apis(context: BrokerContext) -> list[Api]:
    return [Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 4, lambda request: _handle(context, request))]


def _handle(context: BrokerContext, request: Request) -> Any:
    asked = request.entity()
    wanted = None
    if asked.topics is not None:
        wanted = {(t.topic, p): None for t in asked.topics for p in t.partitions}
    m: Any = response_module(ApiKey.DESCRIBE_LOG_DIRS, request.api_version)
    store = context.replicas.store
    results = [_directory(context, m, directory, wanted) for directory in store.online]
    offline = [d.path for d in store.directories if not store.is_online(d)]
    results += [_offline(m, path) for path in (*offline, *store.unopened)]
    return fill(
        m.DescribeLogDirsResponse,
        throttle_time=millis(0),
        error_code=ErrorCode.none,
        results=tuple(results),
    )


def _directory(
    context: BrokerContext,
    m: Any,
    directory: LogDirectory,
    wanted: dict[tuple[str, int], None] | None,
) -> Any:
    topics: dict[str, list[Any]] = {}
    for topic, index, size in context.replicas.store.sizes(directory):
        if wanted is None or (topic, index) in wanted:
            topics.setdefault(topic, []).append(
                m.DescribeLogDirsPartition(
                    partition_index=index, partition_size=size, offset_lag=0, is_future_key=False
                )
            )
    return fill(
        m.DescribeLogDirsResult,
        error_code=ErrorCode.none,
        log_dir=directory.path,
        topics=tuple(
            m.DescribeLogDirsTopic(name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
        total_bytes=-1,
        usable_bytes=-1,
    )


def _offline(m: Any, path: str) -> Any:
    return fill(
        m.DescribeLogDirsResult,
        error_code=ErrorCode.kafka_storage_error,
        log_dir=path,
        topics=(),
        total_bytes=-1,
        usable_bytes=-1,
    )
