"""Groups that change the protocol while members are in (KIP-848, online migration).

A classic group becomes a consumer group when a member of the new protocol joins; its members stay,
with what they had, and go on speaking the classic one (`classic_members`). When the last member of
the new protocol is gone, those who are left are a classic group again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from broker.groups.classic import Rebalances
from broker.groups.classic_group import CONSUMER_PROTOCOL, ClassicGroup, State
from broker.groups.classic_group import Member as ClassicMember
from broker.groups.consumer.assignors import Partitions
from broker.groups.consumer.group import NEVER, ConsumerGroup
from broker.groups.consumer.member import Member, since
from broker.groups.consumer.records import (
    write_current,
    write_epoch,
    write_subscription,
    write_target,
    write_target_epoch,
)
from broker.groups.consumer.refusal import Refused
from broker.groups.consumer.replay import Draft
from broker.groups.consumer.topics import Topics
from broker.groups.context import Context
from broker.groups.events import Protocol
from broker.groups.refusals import append_error
from wire.consumer_protocol import (
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from wire.errors import DecodeError, ErrorCode
from wire.group_records import ClassicMemberMetadata, ClassicProtocol, GroupKey, GroupMetadataKey

_UPGRADES: Final = ("upgrade", "bidirectional")
_DOWNGRADES: Final = ("downgrade", "bidirectional")


class Migration:
    """What may become what, and how."""

    def __init__(self, context: Context, topics: Topics, rebalances: Rebalances) -> None:
        self._context = context
        self._topics = topics
        self._rebalances = rebalances

    # -- from classic to consumer ------------------------------------------------------------------

    def upgrade(self, group: ClassicGroup) -> Draft:
        """The consumer group that a classic group with members becomes."""
        try:
            self._check_upgrade(group)
            members = [self._upgraded(group, member) for member in group.members.values()]
        except Refused as refused:
            # Not every client shows its user the message.
            self._context.log("group_stays_classic", group=group.group_id, reason=refused.message)
            raise
        draft = Draft(group.group_id, None)
        draft.take_over(group.keys())
        draft.predecessor = group
        for member, _ in members:
            write_subscription(draft, member)
        names = draft.group.subscribed_topics()
        # What its members have is no whole assignment while it rebalances: they need a new one,
        # even if nothing else changes. (A static member comes back with what it had.)
        epoch = group.generation + (group.stage is not State.STABLE)
        write_epoch(draft, epoch, self._topics.metadata_hash(names))
        for member, partitions in members:
            write_target(draft, member.member_id, partitions)
        write_target_epoch(draft, group.generation, NEVER)
        for member, _ in members:
            write_current(draft, member)
        return draft

    def _check_upgrade(self, group: ClassicGroup) -> None:
        settings = self._context.settings
        if settings.group_consumer_migration_policy not in _UPGRADES:
            raise _stays_classic(group, "that it becomes a consumer group is not allowed here")
        if group.protocol_type != CONSUMER_PROTOCOL:
            raise _stays_classic(group, f"its members are no consumers: {group.protocol_type}")
        if len(group.members) > settings.group_consumer_max_size:
            raise _stays_classic(group, "it has too many members for a consumer group")

    def _upgraded(self, group: ClassicGroup, member: ClassicMember) -> tuple[Member, Partitions]:
        """A member with its partitions, as it is in the consumer group."""
        name = group.protocol_name or member.protocols[0].name
        try:
            subscription = read_subscription(member.metadata(name))
            assigned = read_assignment(member.assignment)
        except DecodeError as error:
            raise _stays_classic(group, str(error)) from None
        if assigned.user_data:
            raise _stays_classic(group, "its assignor keeps data of its own, which would be lost")
        partitions = {
            self._topics.by_name[topic].topic_id: those
            for topic, those in assigned.partitions.items()
            if topic in self._topics.by_name and those
        }
        upgraded = Member(
            member.member_id,
            group.generation,
            group.generation,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topics=tuple(sorted(set(subscription.topics))),
            assigned=since(partitions, group.generation),
            classic=classic_metadata(member.session_timeout_ms, member.protocols),
        )
        return upgraded, partitions

    # -- from consumer to classic ------------------------------------------------------------------

    def downgrades(self, group: ConsumerGroup, leaving: Iterable[Member]) -> bool:
        """Whether those who are left without `leaving` are, and may be, a classic group."""
        settings = self._context.settings
        those = list(leaving)
        left = len(group.members) - len(those)
        classic = group.classic_members - sum(m.classic is not None for m in those)
        return (
            0 < left == classic
            and settings.group_consumer_migration_policy in _DOWNGRADES
            and left <= settings.group_max_size
        )

    def replaces_last(self, group: ConsumerGroup, member: Member) -> bool:
        """Whether a static member that now speaks the classic protocol was the last of the other,
        so that the group is, and may be, a classic one."""
        settings = self._context.settings
        return (
            member.classic is None
            and group.classic_members == len(group.members) - 1
            and settings.group_consumer_migration_policy in _DOWNGRADES
            and len(group.members) <= settings.group_max_size
        )

    def downgrade(self, draft: Draft, leaving: Iterable[Member], *, rebalance: bool) -> None:
        """Those who are left become a classic group, which rebalances if what they have is not what
        they are to have. What was drafted until now is dropped, but for what it says of them."""
        group = draft.group
        gone = {member.member_id for member in leaving}
        successor = ClassicGroup(group.group_id, self._context.wall_ms)
        for member in group.in_order():
            if member.member_id not in gone:
                successor.add(self._downgraded(successor, member), CONSUMER_PROTOCOL)
        successor.generation = group.epoch
        successor.stage = successor.previous = State.STABLE
        successor.protocol_name = successor.chosen_protocol()
        successor.update_subscribed()
        for old in successor.members.values():
            old.assignment = self.assignment(
                old.metadata(successor.protocol_name), group.target_of(old.member_id)
            )
        assignments = {m.member_id: m.assignment for m in successor.members.values()}
        keys: list[GroupKey] = group.keys()
        draft.records += [(key, None) for key in keys]
        record = successor.to_record(assignments)
        if rebalance:
            # A rebalance under way is in no record. Should another broker lead before it is over,
            # nobody may take for the assignment what is without the partitions of those who left:
            # that broker knows no members, and all join anew.
            record = replace(record, protocol=None, leader=None, members=())
            successor.protocol_name = None
        draft.records.append((GroupMetadataKey(group.group_id), record))
        draft.successor = successor
        draft.rebalances = rebalance

    def _downgraded(self, successor: ClassicGroup, member: Member) -> ClassicMember:
        assert member.classic is not None
        old = self._rebalances.new_member(successor, member.member_id, member.instance_id)
        old.client_id, old.client_host = member.client_id, member.client_host
        old.session_timeout_ms = member.classic.session_timeout_ms
        old.rebalance_timeout_ms = member.rebalance_timeout_ms
        old.protocols = tuple(
            Protocol(one.name, one.metadata) for one in member.classic.supported_protocols
        )
        return old

    def assignment(self, metadata: bytes, partitions: Partitions) -> bytes:
        """Partitions as a consumer of the classic protocol reads them that has this metadata."""
        try:
            version = read_subscription(metadata).version
        except DecodeError:
            version = 0  # any consumer reads that
        named = {one.topic: one.partitions for one in self._topics.described(partitions)}
        return write_assignment(version, named)

    # -- when it is stored -------------------------------------------------------------------------

    def leave_behind(self, group: ClassicGroup) -> None:
        """A classic group has become a consumer group, unless the append fails."""
        rebalances = group.stage is not State.STABLE
        self._context.log("group_migrated", group=group.group_id, to="consumer")
        self._rebalances.disband(group, ErrorCode.rebalance_in_progress)

        def failed(_: ErrorCode) -> None:
            # What it was like when it changed may be undone, too, or all of it.
            if self._context.groups.get(group.group_id) is group:
                self._rebalances.revive(group)
                if rebalances:
                    reason = "it rebalanced before it was to be another kind"
                    self._rebalances.prepare(group, reason)

        self._context.when_settled(lambda: None, failed)

    def begin(self, group: ClassicGroup, *, rebalance: bool) -> None:
        """A consumer group has become a classic one, unless the append fails."""
        self._context.log("group_migrated", group=group.group_id, to="classic")
        for member in group.members.values():
            self._rebalances.expect_heartbeat(member)
        self._context.when_settled(
            lambda: None, lambda error: self._rebalances.disband(group, append_error(error))
        )
        if rebalance:
            self._rebalances.prepare(group, "its last member of the consumer protocol has left")


def classic_metadata(
    session_timeout_ms: int, protocols: tuple[Protocol, ...]
) -> ClassicMemberMetadata:
    """What the log keeps of a member that speaks the classic protocol."""
    return ClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=tuple(
            ClassicProtocol(name=one.name, metadata=one.metadata) for one in protocols
        ),
    )


def first_subscription(protocols: tuple[Protocol, ...]) -> Subscription:
    """What a joining consumer subscribes to, by the protocol that it likes best."""
    try:
        return read_subscription(protocols[0].metadata)
    except DecodeError as error:
        raise Refused(ErrorCode.inconsistent_group_protocol, str(error)) from None


def _stays_classic(group: ClassicGroup, reason: str) -> Refused:
    message = f"group {group.group_id} speaks the classic protocol: {reason}"
    return Refused(ErrorCode.group_id_not_found, message)
