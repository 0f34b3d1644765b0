"""OffsetCommit 2-10: offsets of consumers, kept until the group has had no member for so long.

Topics are named by name up to version 9, by id in version 10 (KIP-848). Before version 9 errors
are those that older clients know.
"""

from __future__ import annotations

from typing import Any

from broker.context import BrokerContext
from broker.group_coordinator import GroupCoordinators
from broker.group_requests import ask, milliseconds
from broker.groups.events import CommittedOffset, OffsetCommit, OffsetsCommitted
from metadata.image import MetadataImage, TopicImage
from net.handlers import Api, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis, response_module

_IDS_FROM = 10
_NEWER_ERRORS_FROM = 9
_OLDER_ERRORS = {
    ErrorCode.group_id_not_found: ErrorCode.illegal_generation,
    ErrorCode.stale_member_epoch: ErrorCode.unsupported_version,
}


def apis(context: BrokerContext, groups: GroupCoordinators) -> list[Api]:
    return [
        Api(ApiKey.OFFSET_COMMIT, 2, 10, lambda request: _handle(context, groups, request)),
    ]


def _handle(context: BrokerContext, groups: GroupCoordinators, request: Request) -> Any:
    asked = request.entity()
    version = request.api_version
    refused: dict[tuple[int, int], ErrorCode] = {}
    offsets: list[CommittedOffset] = []
    for number, topic in enumerate(asked.topics):
        found = _find(context.image, topic, version)
        for place, partition in enumerate(topic.partitions):
            if isinstance(found, ErrorCode):
                refused[number, place] = found
            elif partition.partition_index not in found.partitions:
                refused[number, place] = ErrorCode.unknown_topic_or_partition
            else:
                offsets.append(_offset(found, partition))
    if not offsets:
        return _answer(version, asked, refused, ())
    retention = getattr(asked, "retention_time", None)
    retention_ms = None if retention is None else milliseconds(retention)

    def make(caller: int) -> OffsetCommit:
        return OffsetCommit(
            caller,
            asked.group_id,
            asked.member_id,
            asked.generation_id_or_member_epoch,
            getattr(asked, "group_instance_id", None),
            tuple(offsets),
            None if retention_ms == -1 else retention_ms,
            version >= _NEWER_ERRORS_FROM,
        )

    def answer(outcome: OffsetsCommitted | ErrorCode) -> Any:
        if isinstance(outcome, OffsetsCommitted):
            return _answer(version, asked, refused, outcome.errors)
        return _answer(version, asked, refused, (outcome,) * len(offsets))

    return ask(groups, asked.group_id, make, answer)


def _find(image: MetadataImage, topic: Any, version: int) -> TopicImage | ErrorCode:
    if version < _IDS_FROM:
        return image.topic(topic.name) or ErrorCode.unknown_topic_or_partition
    found = None if topic.topic_id is None else image.topic_by_id(topic.topic_id)
    return found or ErrorCode.unknown_topic_id


def _offset(topic: TopicImage, partition: Any) -> CommittedOffset:
    return CommittedOffset(
        topic.name,
        partition.partition_index,
        partition.committed_offset,
        getattr(partition, "committed_leader_epoch", -1),
        partition.committed_metadata or "",
        topic.id,
    )


def _answer(
    version: int,
    asked: Any,
    refused: dict[tuple[int, int], ErrorCode],
    errors: tuple[ErrorCode, ...],
) -> Any:
    """`errors` has one entry for each partition that is not among the refused."""
    m: Any = response_module(ApiKey.OFFSET_COMMIT, version)
    told = iter(errors)
    topics = []
    for number, topic in enumerate(asked.topics):
        partitions = []
        for place, partition in enumerate(topic.partitions):
            error = refused.get((number, place))
            if error is None:
                error = next(told)
                if version < _NEWER_ERRORS_FROM:
                    error = _OLDER_ERRORS.get(error, error)
            partitions.append(
                m.OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=error
                )
            )
        topics.append(
            fill(
                m.OffsetCommitResponseTopic,
                name=getattr(topic, "name", None),
                topic_id=getattr(topic, "topic_id", None),
                partitions=tuple(partitions),
            )
        )
    return fill(m.OffsetCommitResponse, throttle_time=millis(0), topics=tuple(topics))
