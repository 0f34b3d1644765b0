"""OffsetForLeaderEpoch 2-4: where an epoch ends in the leader's log (KIP-101, KIP-320)."""

from __future__ import annotations

from typing import Any

from broker.context import BrokerContext
from broker.replica import Replica
from net.handlers import Api, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis, response_module


def apis(context: BrokerContext) -> list[Api]:
    return [Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, lambda r: _handle(context, r))]


def _handle(context: BrokerContext, request: Request) -> Any:
    asked = request.entity()
    m: Any = response_module(ApiKey.OFFSET_FOR_LEADER_EPOCH, request.api_version)
    topics = tuple(
        m.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=tuple(_partition(context, m, topic.topic, p) for p in topic.partitions),
        )
        for topic in asked.topics
    )
    return fill(m.OffsetForLeaderEpochResponse, throttle_time=millis(0), topics=topics)


def _partition(context: BrokerContext, m: Any, topic: str, asked: Any) -> Any:
    error, epoch, end_offset = ErrorCode.none, -1, -1
    replica = context.replicas.find(topic, None, asked.partition)
    if not isinstance(replica, Replica):
        error = replica
    elif replica.failed:
        error = ErrorCode.kafka_storage_error
    else:
        error = replica.core.check_epoch(asked.current_leader_epoch, leader_only=True)
        if error is ErrorCode.none:
            epoch, end_offset = replica.log.end_offset_for_epoch(asked.leader_epoch)
    return m.EpochEndOffset(
        error_code=error, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset
    )
