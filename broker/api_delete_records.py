"""DeleteRecords 0-2: moves the log start; done when every living replica has moved (KIP-107).

Offset -1 is the high watermark. A topic that is only compacted refuses (POLICY_VIOLATION).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker.cluster_view import is_internal
from broker.context import BrokerContext
from broker.replica import Replica
from net.handlers import Api, Request
from wire.apis import ApiKey, ErrorCode
from wire.errors import KafkaError
from wire.messages import millis, response_module
from world.env import DiskError

_HIGH_WATERMARK = -1


def apis(context: BrokerContext) -> list[Api]:
    return [Api(ApiKey.DELETE_RECORDS, 0, 2, lambda request: _handle(context, request))]


def _handle(context: BrokerContext, request: Request) -> Any:
    return _delete(context, request.entity(), request.api_version)


async def _delete(context: BrokerContext, asked: Any, version: int) -> Any:
    waiting: dict[tuple[str, int], tuple[Replica, int]] = {}
    errors: dict[tuple[str, int], ErrorCode] = {}
    for topic in asked.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            try:
                waiting[key] = _start(context, *key, partition.offset)
            except KafkaError as refused:
                errors[key] = refused.code
            except DiskError:
                errors[key] = ErrorCode.kafka_storage_error
    if not await _reached(waiting, asked.timeout.total_seconds()):
        for key, (replica, offset) in waiting.items():
            if not replica.core.is_leader:
                errors[key] = ErrorCode.not_leader_or_follower
            elif replica.core.low_watermark() < offset:
                errors[key] = ErrorCode.request_timed_out
    m: Any = response_module(ApiKey.DELETE_RECORDS, version)

    def result(name: str, index: int) -> Any:
        error = errors.get((name, index), ErrorCode.none)
        low = -1
        if error is ErrorCode.none:
            low = waiting[name, index][0].core.low_watermark()
        return m.DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=low, error_code=error
        )

    return m.DeleteRecordsResponse(
        throttle_time=millis(0),
        topics=tuple(
            m.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(result(topic.name, p.partition_index) for p in topic.partitions),
            )
            for topic in asked.topics
        ),
    )


def _start(context: BrokerContext, topic: str, index: int, offset: int) -> tuple[Replica, int]:
    """Moves our own log start; the replica and the offset that the others must reach."""
    if is_internal(topic):
        raise KafkaError(ErrorCode.invalid_topic_exception, f"{topic} is an internal topic")
    replica = context.replicas.find(topic, None, index)
    if not isinstance(replica, Replica):
        raise KafkaError(replica)
    if replica.failed:
        raise KafkaError(ErrorCode.kafka_storage_error)
    if not replica.core.is_leader:
        raise KafkaError(ErrorCode.not_leader_or_follower)
    if not replica.settings.log.cleanup_delete:
        raise KafkaError(ErrorCode.policy_violation, f"{topic} is compacted, not deleted")
    if offset == _HIGH_WATERMARK:
        offset = replica.core.high_watermark
    if not 0 <= offset <= replica.core.high_watermark:
        raise KafkaError(
            ErrorCode.offset_out_of_range,
            f"offset {offset} is above the high watermark {replica.core.high_watermark}",
        )
    replica.advance_log_start(offset)
    return replica, offset


async def _reached(waiting: dict[tuple[str, int], tuple[Replica, int]], timeout_s: float) -> bool:
    """Whether all low watermarks reached their offsets in time, and we still lead."""
    changed = asyncio.Event()
    look: Callable[[], None] = changed.set
    for replica, _ in waiting.values():
        replica.low_watermark_waiters[look] = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                changed.clear()
                if any(not r.core.is_leader for r, _ in waiting.values()):
                    return False
                if all(r.core.low_watermark() >= offset for r, offset in waiting.values()):
                    return True
                await changed.wait()
    except TimeoutError:
        return False
    finally:
        for replica, _ in waiting.values():
            replica.low_watermark_waiters.pop(look, None)
