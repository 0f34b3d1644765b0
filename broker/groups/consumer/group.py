"""A consumer group as a value: what the log says of it, and what follows from that at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from broker.groups.consumer.assignors import NO_PARTITIONS, Partitions
from broker.groups.consumer.member import Member
from broker.groups.events import NO_MEMBER, OffsetCommit, OffsetFetch, TxnOffsetCommit
from broker.groups.group import CONSUMER
from metadata.maps import Map
from wire.errors import ErrorCode
from wire.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupKey,
)

FIRST_EPOCH: Final = 1
NO_TARGET_EPOCH: Final = -1
NEVER: Final = 0
"""When a target was computed that can be replaced at once."""


class Resolved(NamedTuple):
    """The topics that an expression stood for, in order, in the metadata of offset `version`; found
    at `timestamp`, ms of the wall clock."""

    topics: tuple[str, ...]
    version: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """See the module. Maps have no order: whoever decides by them sorts.

    `owners` has the member id of each partition that somebody owns, members that are giving it up
    among them. `names`, `regexes` and `assignors` count the members that subscribe to a name or an
    expression or prefer an assignor; `targets` is by member id, as are `members`.
    """

    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    target_epoch: int = FIRST_EPOCH
    target_timestamp: int = NEVER
    members: Map[str, Member] = Map()  # noqa: RUF009 it is immutable
    static_ids: Map[str, str] = Map()  # noqa: RUF009
    targets: Map[str, Partitions] = Map()  # noqa: RUF009
    owners: Map[UUID, Map[int, str]] = Map()  # noqa: RUF009
    names: Map[str, int] = Map()  # noqa: RUF009
    regexes: Map[str, int] = Map()  # noqa: RUF009
    assignors: Map[str, int] = Map()  # noqa: RUF009
    resolved: Map[str, Resolved] = Map()  # noqa: RUF009
    classic_members: int = 0
    has_partition_metadata: bool = False

    type = CONSUMER
    protocol_type = "consumer"

    def but(self, **changes: Any) -> ConsumerGroup:
        """The group with other values in some fields."""
        return replace(self, **changes)

    # -- what others ask -------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """Kafka's word for where the group stands."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.is_at(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    def in_order(self) -> Iterator[Member]:
        """The members by their ids."""
        return (self.members[member_id] for member_id in sorted(self.members))

    def static_member(self, instance_id: str | None) -> Member | None:
        """The member that has this instance id."""
        if instance_id is None:
            return None
        member_id = self.static_ids.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def owner(self, topic_id: UUID, partition: int) -> str | None:
        """The id of the member that has the partition, or is giving it up."""
        partitions = self.owners.get(topic_id)
        return None if partitions is None else partitions.get(partition)

    def subscription(self, member: Member) -> tuple[str, ...]:
        """All topics that a member subscribes to, existing or not, in order."""
        resolved = self.resolved.get(member.regex) if member.regex else None
        if resolved is None or not resolved.topics:
            return member.topics
        if not member.topics:
            return resolved.topics
        return tuple(sorted({*member.topics, *resolved.topics}))

    def subscribed_topics(self) -> list[str]:
        """All topics that anybody subscribes to, in order."""
        names = set(self.names)
        for resolved in self.resolved.values():
            names.update(resolved.topics)
        return sorted(names)

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.names or any(topic in r.topics for r in self.resolved.values())

    def preferred_assignor(self) -> str | None:
        """The assignor that most members prefer; of two equal ones the first by name."""
        if not self.assignors:
            return None
        return min(self.assignors, key=lambda name: (-self.assignors[name], name))

    def supports(self, protocols: Iterable[str]) -> bool:
        """Whether all members of the classic protocol know one of these assignors."""
        known = [
            {one.name for one in member.classic.supported_protocols}
            for member in self.members.values()
            if member.classic is not None
        ]
        return any(all(name in names for names in known) for name in protocols)

    def waits_for_others(self, member: Member) -> bool:
        """Whether others have what the member is to have and has not."""
        return any(
            self.owner(topic_id, partition) is not None
            for topic_id, partitions in self.target_of(member.member_id).items()
            for partition in partitions
            if partition not in member.assigned.get(topic_id, {})
        )

    # -- changes ---------------------------------------------------------------------------------

    def with_member(self, new: Member) -> ConsumerGroup:
        """The group with this member, in the place of the one with its id if there is one."""
        old = self.members.get(new.member_id)
        changes: dict[str, Any] = {"members": self.members.set(new.member_id, new)}
        self._count(changes, old, new)
        if old is None or old.instance_id != new.instance_id:
            changes["static_ids"] = self._static_ids(old, new)
        if old is None or old.assigned != new.assigned or old.revoking != new.revoking:
            changes["owners"] = self._owners(old, new)
        return replace(self, **changes)

    def without_member(self, member_id: str) -> ConsumerGroup:
        """The group without this member, and without its target."""
        old = self.members.get(member_id)
        if old is None:
            return self.with_target(member_id, None)
        changes: dict[str, Any] = {"members": self.members.delete(member_id)}
        self._count(changes, old, None)
        changes["static_ids"] = self._static_ids(old, None)
        changes["owners"] = self._owners(old, None)
        return replace(self, **changes).with_target(member_id, None)

    def with_target(self, member_id: str, target: Partitions | None) -> ConsumerGroup:
        """The group with this target for a member, None for none."""
        if target is not None:
            return replace(self, targets=self.targets.set(member_id, target))
        if member_id in self.targets:
            return replace(self, targets=self.targets.delete(member_id))
        return self

    def with_resolved(self, regex: str, resolved: Resolved | None) -> ConsumerGroup:
        """The group with this meaning of an expression, None for none."""
        if resolved is not None:
            return replace(self, resolved=self.resolved.set(regex, resolved))
        if regex in self.resolved:
            return replace(self, resolved=self.resolved.delete(regex))
        return self

    def _count(self, changes: dict[str, Any], old: Member | None, new: Member | None) -> None:
        before, after = old or _NOBODY, new or _NOBODY
        if before.topics != after.topics:
            changes["names"] = _counted(self.names, before.topics, after.topics)
        if before.regex != after.regex:
            changes["regexes"] = _counted(self.regexes, _one(before.regex), _one(after.regex))
        if before.assignor != after.assignor:
            old_name, new_name = _one(before.assignor), _one(after.assignor)
            changes["assignors"] = _counted(self.assignors, old_name, new_name)
        classic = (after.classic is not None) - (before.classic is not None)
        if classic:
            changes["classic_members"] = self.classic_members + classic

    def _static_ids(self, old: Member | None, new: Member | None) -> Map[str, str]:
        ids = self.static_ids
        # The id may be another member's by now: one that replaced it.
        if old is not None and old.instance_id and ids.get(old.instance_id) == old.member_id:
            ids = ids.delete(old.instance_id)
        if new is not None and new.instance_id is not None:
            ids = ids.set(new.instance_id, new.member_id)
        return ids

    def _owners(self, old: Member | None, new: Member | None) -> Map[UUID, Map[int, str]]:
        old, new = old or _NOBODY, new or _NOBODY
        owners = self.owners
        for topic_id, partitions in _owned(old):
            those = owners.get(topic_id, Map())
            for partition in partitions:
                # Another may have it by now: a log that was cleaned tells of the new owner before
                # it tells that the old one is somewhere else.
                if those.get(partition) == old.member_id:
                    those = those.delete(partition)
            if those:
                owners = owners.set(topic_id, those)
            elif topic_id in owners:
                owners = owners.delete(topic_id)
        for topic_id, partitions in _owned(new):
            mine = dict.fromkeys(partitions, new.member_id)
            owners = owners.set(topic_id, owners.get(topic_id, Map()).update(mine))
        return owners

    # -- offsets ---------------------------------------------------------------------------------

    def keys(self) -> list[GroupKey]:
        """The keys of all its records but the offsets', in the order in which they are deleted."""
        group_id, ids = self.group_id, sorted(self.members)
        keys: list[GroupKey] = []
        keys += [ConsumerGroupCurrentMemberAssignmentKey(group_id, m) for m in ids]
        keys += [ConsumerGroupTargetAssignmentMemberKey(group_id, m) for m in ids]
        keys.append(ConsumerGroupTargetAssignmentMetadataKey(group_id))
        keys += [ConsumerGroupMemberMetadataKey(group_id, m) for m in ids]
        keys += [ConsumerGroupRegularExpressionKey(group_id, r) for r in sorted(self.resolved)]
        keys.append(ConsumerGroupPartitionMetadataKey(group_id))
        keys.append(ConsumerGroupMetadataKey(group_id))
        return keys

    def check_commit(self, request: OffsetCommit | TxnOffsetCommit) -> ErrorCode:
        """A member commits at its epoch, or at an older one what it has had since then (KIP-1251).
        Nobody else does, but administrators while there are no members, and transactions of
        producers that tell no member."""
        member_id, epoch = request.member_id, request.generation
        if epoch < 0 and not self.members:
            return ErrorCode.none
        nobody = epoch < 0 and member_id == NO_MEMBER and request.instance_id is None
        if isinstance(request, TxnOffsetCommit) and nobody:
            return ErrorCode.none
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if (
            isinstance(request, OffsetCommit)
            and not request.knows_epochs
            and member.classic is None
        ):
            return ErrorCode.unsupported_version
        if epoch == member.epoch:
            return ErrorCode.none
        if epoch < member.epoch and all(
            self._had(member, epoch, offset.topic_id, offset.partition)
            for offset in request.offsets
        ):
            return ErrorCode.none
        return _stale(member)

    @staticmethod
    def _had(member: Member, epoch: int, topic_id: UUID | None, partition: int) -> bool:
        since = None if topic_id is None else member.owned_since(topic_id, partition)
        return since is not None and epoch >= since

    def check_fetch(self, request: OffsetFetch) -> ErrorCode:
        if request.member_id is None and request.member_epoch < 0:
            return ErrorCode.none
        member = self.members.get(request.member_id or NO_MEMBER)
        if member is None:
            return ErrorCode.unknown_member_id
        return ErrorCode.none if request.member_epoch == member.epoch else _stale(member)

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.none

    def retention_base_ms(self, commit_ms: int) -> int | None:
        """From the commit on, whatever the state: what members subscribe to doesn't expire."""
        return commit_ms


_NOBODY: Final = Member("")


def _one(value: str | None) -> tuple[str, ...]:
    return (value,) if value else ()


def _counted(counts: Map[str, int], old: tuple[str, ...], new: tuple[str, ...]) -> Map[str, int]:
    changed = counts.mutate()
    for name in old:
        left = changed[name] - 1
        if left:
            changed[name] = left
        else:
            del changed[name]
    for name in new:
        changed[name] = changed.get(name, 0) + 1
    return changed.finish()


def _owned(member: Member) -> Iterator[tuple[UUID, Mapping[int, int]]]:
    yield from member.assigned.items()
    yield from member.revoking.items()


def _stale(member: Member) -> ErrorCode:
    """A member of the classic protocol knows generations, not epochs."""
    if member.classic is not None:
        return ErrorCode.illegal_generation
    return ErrorCode.stale_member_epoch
