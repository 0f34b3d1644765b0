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
from controller.context import Context, Operation, Result, Steps
from controller.elections import Wanted
from controller.events import ApiRequest
from controller.partition_changes import TopicTerms, decide
from metadata.image import PartitionRegistration
from metadata.records import (
    NO_LEADER_CHANGE,
    RECOVERY_RECOVERED,
    RECOVERY_RECOVERING,
    PartitionChangeRecord,
    Record,
)
from metadata.topics import merge
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.uuids import ZERO

# When a broker is lost, a JVM leader tells at once of all partitions that it shared with it, each
# with the brokers that are left in its ISR: enough for 50,000 of them.
_MAX_ELEMENTS = 200_000
# As many as our own brokers name at once. More are decided in slices, in line with whatever else
# concerns many partitions.
_AT_ONCE = 500


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


def _handle(context: Context, request: ApiRequest) -> Result | Operation:
    entity = request.entity
    check_broker_epoch(context.image, int(entity.broker_id), entity.broker_epoch)
    if sum(len(topic.partitions) for topic in entity.topics) <= _AT_ONCE:
        draft = context.draft()
        asked = _Asked(draft, request)
        records: list[Record] = []
        for record in asked.steps():
            if record is not None:
                records.append(record)
                draft.image = draft.image.apply(record)
        return Result(records, asked.reply())
    asked = _Asked(context, request)
    # The end is of no interest: each partition's answer tells its own epochs.
    return Operation(asked.steps(), lambda _: asked.reply())


class _Asked:
    """A request's partitions one after the other, and what is answered for each. They have nothing
    to do with each other: each is decided on the image of its moment."""

    def __init__(self, context: Context, request: ApiRequest) -> None:
        self._context = context
        self._request = request
        self._answers: list[tuple[UUID | None, list[Any]]] = []

    def steps(self) -> Steps:
        """The record of each partition that changes; None for one that doesn't."""
        terms = TopicTerms(self._context)
        sender = int(self._request.entity.broker_id)
        for topic in self._request.entity.topics:
            parts: list[Any] = []
            self._answers.append((topic.topic_id, parts))
            for data in topic.partitions:
                change = _change_of(data)
                record, told = self._alter(sender, topic.topic_id or ZERO, change, terms)
                parts.append(told)
                yield record

    def _alter(
        self, sender: int, topic_id: UUID, change: _Change, terms: TopicTerms
    ) -> tuple[PartitionChangeRecord | None, Any]:
        """One partition's record and answer."""
        context, request = self._context, self._request
        topic = context.image.topics_by_id.get(topic_id)
        if topic is None:
            return None, _failed(request, change.index, ErrorCode.unknown_topic_id)
        partition = topic.partitions.get(change.index)
        if partition is None:
            return None, _failed(request, change.index, ErrorCode.unknown_topic_or_partition)
        error = _broken_rule(context, sender, partition, change)
        if error is not None:
            return None, _failed(request, change.index, error)
        wanted = Wanted(isr=change.isr, recovery_state=change.recovery_state)
        record = decide(context, topic, change.index, wanted, terms.of(topic.name))
        if record is not None:
            if record.leader not in (NO_LEADER_CHANGE, partition.leader):
                return record, _failed(request, change.index, ErrorCode.new_leader_elected)
            partition = merge(partition, record)
        return record, part(
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

    def reply(self) -> Any:
        """The answer to the whole request, once all steps are taken."""
        request = self._request
        topics = tuple(
            part(request, "TopicData", topic_id=topic_id, partitions=tuple(parts))
            for topic_id, parts in self._answers
        )
        return answer(request, error_code=ErrorCode.none, topics=topics)


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
