"""AlterPartition 2-3 (KIP-497, 704, 841, 903): a leader reports its in-sync replicas.

Each partition is checked in Kafka's order; version 3 names the broker epoch of
every ISR member, so that a replica that restarted meanwhile is not taken for the old one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from controller.api import ControllerApi, answer, part
from controller.cluster import check_broker_epoch
from controller.context import Context, Result
from controller.elections import Wanted
from controller.events import ApiRequest
from controller.partition_changes import decide
from metadata.image import PartitionRegistration
from metadata.records import (
    NO_LEADER_CHANGE,
    RECOVERY_RECOVERED,
    RECOVERY_RECOVERING,
    Record,
)
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.uuids import ZERO

# When a broker is lost, a JVM leader tells at once of all partitions that it shared with it, each
# with the brokers that are left in its ISR: enough for 50,000 of them.
_MAX_ELEMENTS = 200_000


@dataclass(frozen=True, slots=True)
class _Change:
    """What the request wants of one partition, the same for all versions."""

    index: int
    leader_epoch: int
    partition_epoch: int
    recovery_state: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]


def _change_of(data: Any) -> _Change:
    members = getattr(data, "new_isr_with_epochs", None)
    if members is None:
        isr = tuple(int(b) for b in data.new_isr)
        epochs = (-1,) * len(isr)
    else:
        isr = tuple(int(m.broker_id) for m in members)
        epochs = tuple(int(m.broker_epoch) for m in members)
    return _Change(
        data.partition_index,
        data.leader_epoch,
        data.partition_epoch,
        int(data.leader_recovery_state),
        isr,
        epochs,
    )


def _handle(context: Context, request: ApiRequest) -> Result:
    entity = request.entity
    sender = int(entity.broker_id)
    check_broker_epoch(context.image, sender, entity.broker_epoch)
    draft = context.draft()
    records: list[Record] = []
    topics: list[Any] = []
    for topic in entity.topics:
        topic_id = topic.topic_id or ZERO
        parts = tuple(
            _alter(draft, request, sender, topic_id, _change_of(data), records)
            for data in topic.partitions
        )
        topics.append(part(request, "TopicData", topic_id=topic.topic_id, partitions=parts))
    return Result(records, answer(request, error_code=ErrorCode.none, topics=tuple(topics)))


def _alter(
    draft: Context,
    request: ApiRequest,
    sender: int,
    topic_id: UUID,
    change: _Change,
    records: list[Record],
) -> Any:
    """One partition's answer. A record is added to `records` and applied to the draft's image, so
    that a later change of the same partition builds on it."""
    topic = draft.image.topics_by_id.get(topic_id)
    if topic is None:
        return _failed(request, change.index, ErrorCode.unknown_topic_id)
    partition = topic.partitions.get(change.index)
    if partition is None:
        return _failed(request, change.index, ErrorCode.unknown_topic_or_partition)
    error = _broken_rule(draft, sender, partition, change)
    if error is not None:
        return _failed(request, change.index, error)
    wanted = Wanted(isr=change.isr, recovery_state=change.recovery_state)
    record = decide(draft, topic, change.index, wanted)
    if record is not None:
        records.append(record)
        draft.image = draft.image.apply(record)
        if record.leader not in (NO_LEADER_CHANGE, partition.leader):
            return _failed(request, change.index, ErrorCode.new_leader_elected)
        partition = draft.image.topics_by_id[topic_id].partitions[change.index]
    return part(
        request,
        "PartitionData",
        partition_index=change.index,
        error_code=ErrorCode.none,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=tuple(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _broken_rule(
    context: Context, sender: int, partition: PartitionRegistration, change: _Change
) -> ErrorCode | None:
    """The first of Kafka's rules that the change breaks."""
    ahead = (
        change.leader_epoch > partition.leader_epoch
        or change.partition_epoch > partition.partition_epoch
    )
    if ahead:
        # The broker has seen what we have not: some other controller is the active one.
        return ErrorCode.not_controller
    if change.leader_epoch < partition.leader_epoch:
        return ErrorCode.fenced_leader_epoch
    if sender != partition.leader:
        return ErrorCode.invalid_request
    if change.partition_epoch < partition.partition_epoch:
        return ErrorCode.invalid_update_version
    if not _isr_is_sound(partition, change):
        return ErrorCode.invalid_request
    for broker_id, epoch in zip(change.isr, change.broker_epochs, strict=True):
        broker = context.image.broker(broker_id)
        if broker is None or not context.is_active(broker_id):
            return ErrorCode.ineligible_replica
        if epoch not in (-1, broker.epoch):
            return ErrorCode.ineligible_replica
    return None


def _isr_is_sound(partition: PartitionRegistration, change: _Change) -> bool:
    if len(set(change.isr)) != len(change.isr):
        return False
    if any(broker not in partition.replicas for broker in change.isr):
        return False
    if partition.leader not in change.isr:
        return False
    if change.recovery_state not in (RECOVERY_RECOVERED, RECOVERY_RECOVERING):
        return False
    if change.recovery_state == RECOVERY_RECOVERING:
        return len(change.isr) == 1 and partition.leader_recovery_state == RECOVERY_RECOVERING
    return True


def _failed(request: ApiRequest, index: int, code: ErrorCode) -> Any:
    return part(
        request,
        "PartitionData",
        partition_index=index,
        error_code=code,
        leader_id=0,
        leader_epoch=0,
        isr=(),
        leader_recovery_state=0,
        partition_epoch=0,
    )


def _refuse(request: ApiRequest, code: ErrorCode, message: str) -> Any:
    return answer(request, error_code=code, topics=())


API = ControllerApi(
    ApiKey.ALTER_PARTITION,
    2,
    3,
    _handle,
    _refuse,
    admin=False,
    forwardable=False,
    max_elements=_MAX_ELEMENTS,
)
