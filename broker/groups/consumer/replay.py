"""What each record makes of a consumer group: the one way in which groups change.

Decisions write their records through here as they are made (`Draft`), so that what is in force is
what a later load of the log will find.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker.groups.classic_group import ClassicGroup
from broker.groups.consumer.group import NEVER, NO_TARGET_EPOCH, ConsumerGroup, Resolved
from broker.groups.consumer.member import (
    NO_EPOCH,
    NOTHING,
    Member,
    MemberState,
    restored,
)
from wire.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupKey,
    GroupValue,
)


def apply(
    group: ConsumerGroup | None, key: GroupKey, value: GroupValue | None
) -> ConsumerGroup | None:
    """The group after a record of it; None for a group that isn't there. KeyError for records that
    are none of a consumer group: see KEYS."""
    if group is None:
        if value is None:
            return None
        group = ConsumerGroup(key.group_id)  # type: ignore[attr-defined]
    return KEYS[type(key)](group, key, value)


class Draft:
    """A group as a decision changes it, and the records that say so, in order.

    `predecessor` is the classic group with members that this one was made of, `successor` the one
    that its members are now; that one `rebalances` at once or not.
    """

    __slots__ = ("group", "group_id", "predecessor", "rebalances", "records", "successor")

    def __init__(self, group_id: str, group: ConsumerGroup | None) -> None:
        self.group_id = group_id
        self.predecessor: ClassicGroup | None = None
        self.successor: ClassicGroup | None = None
        self.rebalances = False
        self.group = group or ConsumerGroup(group_id)
        self.records: list[tuple[GroupKey, GroupValue | None]] = []

    def take_over(self, keys: list[GroupKey]) -> None:
        """Delete these first: the records of a group of the other type, whose id this one gets."""
        self.records = [(key, None) for key in keys] + self.records

    def write(self, key: GroupKey, value: GroupValue | None) -> None:
        """Record a change, which is in force at once. Not for the end of a group."""
        self.records.append((key, value))
        self.group = apply(self.group, key, value) or ConsumerGroup(self.group_id)


def _metadata(group: ConsumerGroup, _: Any, value: Any) -> ConsumerGroup | None:
    if value is None:
        return None
    return group.but(epoch=value.epoch, metadata_hash=value.metadata_hash)


def _partition_metadata(group: ConsumerGroup, _: Any, value: Any) -> ConsumerGroup:
    return group.but(has_partition_metadata=value is not None)


def _member(group: ConsumerGroup, key: Any, value: Any) -> ConsumerGroup:
    if value is None:
        return group.without_member(key.member_id)
    return group.with_member(
        _known(group, key.member_id).but(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topics=tuple(sorted(set(value.subscribed_topic_names))),
            regex=value.subscribed_topic_regex,
            assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )
    )


def _target_metadata(group: ConsumerGroup, _: Any, value: Any) -> ConsumerGroup:
    if value is None:
        return group.but(target_epoch=NO_TARGET_EPOCH, target_timestamp=NEVER)
    return group.but(
        target_epoch=value.assignment_epoch, target_timestamp=value.assignment_timestamp
    )


def _target(group: ConsumerGroup, key: Any, value: Any) -> ConsumerGroup:
    if value is None:
        return group.with_target(key.member_id, None)
    partitions = {
        one.topic_id: tuple(sorted(one.partitions))
        for one in value.topic_partitions
        if one.partitions
    }
    return group.with_target(key.member_id, partitions)


def _current(group: ConsumerGroup, key: Any, value: Any) -> ConsumerGroup:
    member = group.members.get(key.member_id)
    if value is not None:
        epoch = value.member_epoch
        new = _known(group, key.member_id).but(
            epoch=epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=restored(value.assigned_partitions, epoch),
            revoking=restored(value.partitions_pending_revocation, epoch),
        )
    elif member is not None:
        new = member.but(
            epoch=NO_EPOCH, previous_epoch=NO_EPOCH, assigned=NOTHING, revoking=NOTHING
        )
    else:
        return group
    return group.with_member(new)


def _regex(group: ConsumerGroup, key: Any, value: Any) -> ConsumerGroup:
    if value is None:
        return group.with_resolved(key.regular_expression, None)
    resolved = Resolved(tuple(sorted(set(value.topics))), value.version, value.timestamp)
    return group.with_resolved(key.regular_expression, resolved)


def _known(group: ConsumerGroup, member_id: str) -> Member:
    return group.members.get(member_id) or Member(member_id)


KEYS: Final[dict[type, Callable[[ConsumerGroup, Any, Any], ConsumerGroup | None]]] = {
    ConsumerGroupMetadataKey: _metadata,
    ConsumerGroupPartitionMetadataKey: _partition_metadata,
    ConsumerGroupMemberMetadataKey: _member,
    ConsumerGroupTargetAssignmentMetadataKey: _target_metadata,
    ConsumerGroupTargetAssignmentMemberKey: _target,
    ConsumerGroupCurrentMemberAssignmentKey: _current,
    ConsumerGroupRegularExpressionKey: _regex,
}
"""The kinds of records that a consumer group has."""
