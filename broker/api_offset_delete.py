"""OffsetDelete 0: offsets of partitions that no member of the group is subscribed to (KIP-496)."""

from __future__ import annotations

from typing import Any

from broker.context import BrokerContext
from broker.group_coordinator import GroupCoordinators
from broker.group_requests import ask
from broker.groups.events import OffsetDelete, OffsetsDeleted
from net.handlers import Api, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import millis, response_module


def apis(context: BrokerContext, groups: GroupCoordinators) -> list[Api]:
    return [Api(ApiKey.OFFSET_DELETE, 0, 0, lambda request: _handle(context, groups, request))]


def _handle(context: BrokerContext, groups: GroupCoordinators, request: Request) -> Any:
    asked = request.entity()
    known: dict[str, list[int]] = {}
    for topic in asked.topics:
        found = context.image.topic(topic.name)
        for partition in topic.partitions:
            if found is not None and partition.partition_index in found.partitions:
                known.setdefault(topic.name, []).append(partition.partition_index)
    topics = tuple((name, tuple(indexes)) for name, indexes in known.items())
    return ask(
        groups,
        asked.group_id,
        lambda caller: OffsetDelete(caller, asked.group_id, topics),
        lambda outcome: _answer(asked, outcome),
    )


def _answer(asked: Any, outcome: OffsetsDeleted | ErrorCode) -> Any:
    deleted = outcome if isinstance(outcome, OffsetsDeleted) else OffsetsDeleted(outcome)
    m: Any = response_module(ApiKey.OFFSET_DELETE, 0)
    errors = {
        (name, index): error for name, partitions in deleted.topics for index, error in partitions
    }
    return m.OffsetDeleteResponse(
        error_code=deleted.error,
        throttle_time=millis(0),
        topics=tuple(
            m.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    m.OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=errors.get(
                            (topic.name, partition.partition_index),
                            ErrorCode.unknown_topic_or_partition,
                        ),
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in (asked.topics if deleted.error is ErrorCode.none else ())
        ),
    )
