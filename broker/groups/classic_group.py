"""A group of the classic protocol: its members and what can be said about them.

Nothing here is decided or scheduled: that is `classic`. Kafka's protocol is described in KIP-62
(sessions and rebalances), KIP-345 (static members) and KIP-394 (member ids known beforehand).
"""

from __future__ import annotations

from enum import Enum

from broker.groups import events as e
from broker.groups.group import CLASSIC
from broker.groups.subscriptions import subscribed_topics
from broker.groups.timers import Timer
from wire.errors import ErrorCode
from wire.group_records import (
    NO_TIMESTAMP,
    GroupKey,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)

CONSUMER_PROTOCOL = "consumer"
NO_ASSIGNMENT = b""


class State(Enum):
    """
           first member          all rejoined, or time is up     leader's assignment stored
    EMPTY ──────────────▶ PREPARING ──────────────────▶ COMPLETING ─────────────────▶ STABLE
      ▲                       │  ▲                           │                           │
      └───────────────────────┘  └───────────────────────────┴───────────────────────────┘
           nobody rejoined             a member joins, leaves or falls out

    A group is DEAD in no coordinator's eyes but its own: it was taken back, or is another's now.
    """

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Member:
    """A member, and the request of it that waits for an answer."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "joining",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(self, member_id: str, instance_id: str | None, session: Timer) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.session = session
        self.client_id = ""
        self.client_host = ""
        self.session_timeout_ms = 0
        self.rebalance_timeout_ms = 0
        self.protocols: tuple[e.Protocol, ...] = ()
        self.assignment = NO_ASSIGNMENT
        self.joining: e.JoinGroup | None = None
        self.syncing: e.SyncGroup | None = None
        # Whether it has not been through a whole join yet.
        self.is_new = False

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for a protocol, empty if it doesn't know that."""
        return next((p.metadata for p in self.protocols if p.name == protocol), b"")

    @property
    def lives(self) -> bool:
        """Whether it need not beat: it waits for an answer of ours. One that was never answered
        may be gone without our noticing, so that its wait has an end."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)


class ClassicGroup:
    """See the module. Dicts have their members in the order in which they came.

    `since_ms` is when the group got into its state, by the wall clock; NO_TIMESTAMP where an old
    record didn't say.
    """

    __slots__ = (
        "awaiting_join",
        "generation",
        "group_id",
        "leader",
        "members",
        "new_member_added",
        "pending",
        "previous",
        "protocol_name",
        "protocol_type",
        "rebalance",
        "since_ms",
        "stage",
        "static_ids",
        "subscribed",
        "supported",
        "sync_limit",
        "unsynced",
    )
    type = CLASSIC

    def __init__(self, group_id: str, since_ms: int = NO_TIMESTAMP) -> None:
        self.group_id = group_id
        self.stage = State.EMPTY
        self.previous = State.EMPTY
        self.since_ms = since_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        # Instance id -> member id.
        self.static_ids: dict[str, str] = {}
        # Ids that were given out and not come back with yet, and how long they are kept.
        self.pending: dict[str, Timer] = {}
        # Members of this generation that have not asked for their assignment.
        self.unsynced: dict[str, None] = {}
        # Protocol name -> how many members know it.
        self.supported: dict[str, int] = {}
        self.awaiting_join = 0
        self.new_member_added = False
        # Topics of all members, None where the members' metadata doesn't say.
        self.subscribed: frozenset[str] | None = None
        self.rebalance: Timer | None = None
        self.sync_limit: Timer | None = None

    # -- what any group can be asked -----------------------------------------------------------

    @property
    def state(self) -> str:
        return self.stage.value

    @property
    def is_empty(self) -> bool:
        return self.stage is State.EMPTY

    def keys(self) -> list[GroupKey]:
        return [GroupMetadataKey(self.group_id)]

    def check_commit(self, request: e.OffsetCommit | e.TxnOffsetCommit) -> ErrorCode:
        """A commit without generation is welcome while there are no members. A transactional one
        may come without member, and during a rebalance (KIP-447)."""
        transactional = isinstance(request, e.TxnOffsetCommit)
        if request.generation < 0 and self.is_empty:
            return ErrorCode.none
        if request.generation >= 0 or request.member_id or request.instance_id is not None:
            error = self.check_member(request.member_id, request.instance_id)
            if error is not ErrorCode.none:
                return error
            if request.generation != self.generation:
                return ErrorCode.illegal_generation
        elif not transactional:
            return ErrorCode.unknown_member_id
        if self.stage is State.COMPLETING and not transactional:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def check_fetch(self, request: e.OffsetFetch) -> ErrorCode:
        return ErrorCode.none

    def check_offset_delete(self) -> ErrorCode:
        """Only of a consumers' group is known what its members use."""
        if self.is_empty or self.protocol_type == CONSUMER_PROTOCOL:
            return ErrorCode.none
        return ErrorCode.non_empty_group

    def is_subscribed(self, topic: str) -> bool:
        if self.subscribed is None:
            return self.protocol_type == CONSUMER_PROTOCOL
        return topic in self.subscribed

    def retention_base_ms(self, commit_ms: int) -> int | None:
        """KIP-211: since the group became empty; since the commit where it never had members, or
        where its consumers don't use the topic any more."""
        if self.protocol_type is None:
            return commit_ms
        if self.is_empty:
            return commit_ms if self.since_ms == NO_TIMESTAMP else self.since_ms
        if (
            self.stage is State.STABLE
            and self.protocol_type == CONSUMER_PROTOCOL
            and self.subscribed is not None
        ):
            return commit_ms
        return None

    # -- members -------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether this is a member, and the one that has its instance id."""
        if instance_id is not None:
            holder = self.static_ids.get(instance_id)
            if holder is None:
                return ErrorCode.unknown_member_id
            if holder != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    def add(self, member: Member, protocol_type: str) -> None:
        """A new member; the first one says what the group speaks, and leads it."""
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        self.awaiting_join += member.joining is not None
        self.forget_pending(member.member_id)

    def remove(self, member_id: str) -> None:
        """A member or a pending id that is out; if it led, the oldest one of the rest leads."""
        member = self.members.pop(member_id, None)
        if member is not None:
            member.session.cancel()
            self._count(member.protocols, -1)
            self.awaiting_join -= member.joining is not None
            if member.instance_id is not None:
                del self.static_ids[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.forget_pending(member_id)
        self.unsynced.pop(member_id, None)

    def forget_pending(self, member_id: str) -> None:
        """Nobody is waited for any more who was given this id."""
        timer = self.pending.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def rename(self, member: Member, member_id: str) -> None:
        """A static member under another id."""
        old = member.member_id
        del self.members[old]
        self.members[member_id] = member
        member.member_id = member_id
        if old in self.unsynced:
            del self.unsynced[old]
            self.unsynced[member_id] = None
        if self.leader == old:
            self.leader = member_id
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member_id

    def set_protocols(self, member: Member, protocols: tuple[e.Protocol, ...]) -> None:
        """What a member knows has changed."""
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def _count(self, protocols: tuple[e.Protocol, ...], by: int) -> None:
        for name in dict.fromkeys(p.name for p in protocols):
            count = self.supported.get(name, 0) + by
            if count:
                self.supported[name] = count
            else:
                del self.supported[name]

    @property
    def all_joined(self) -> bool:
        return self.awaiting_join == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asks for."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    # -- the generation ------------------------------------------------------------------------

    def enter(self, stage: State, wall_ms: int) -> None:
        """Into another state."""
        self.previous, self.stage = self.stage, stage
        self.since_ms = wall_ms

    def supports(self, protocol_type: str, protocols: tuple[e.Protocol, ...]) -> bool:
        """Whether a member that speaks this can be in the group."""
        if self.is_empty:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and any(
            self.supported.get(p.name) == len(self.members) for p in protocols
        )

    def chosen_protocol(self) -> str | None:
        """The one that most members like best, of those that all know."""
        common = {name for name, count in self.supported.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = next(p.name for p in member.protocols if p.name in common)
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=votes.__getitem__, default=None)

    def next_generation(self) -> None:
        """What a new generation is about; members' assignments come later."""
        self.generation += 1
        self.protocol_name = self.chosen_protocol()
        self.update_subscribed()
        self.unsynced.clear()

    def update_subscribed(self) -> None:
        """Know the members' topics, from their metadata for the chosen protocol."""
        if self.protocol_type != CONSUMER_PROTOCOL:
            self.subscribed = None
            return
        if self.members and self.protocol_name is None:
            self.subscribed = None
            return
        self.subscribed = subscribed_topics(
            member.metadata(self.protocol_name) for member in self.members.values()
        )

    def described_members(self) -> tuple[e.JoinedMember, ...]:
        """All members as their leader is told."""
        return tuple(
            e.JoinedMember(m.member_id, m.instance_id, m.metadata(self.protocol_name))
            for m in self.members.values()
        )

    # -- as stored -----------------------------------------------------------------------------

    def to_record(self, assignments: dict[str, bytes]) -> GroupMetadataValue:
        """The generation with these assignments by member id."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader,
            current_state_timestamp=self.since_ms,
            members=tuple(
                MemberMetadata(
                    member_id=m.member_id,
                    group_instance_id=m.instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    rebalance_timeout=m.rebalance_timeout_ms,
                    session_timeout=m.session_timeout_ms,
                    subscription=m.metadata(self.protocol_name),
                    assignment=assignments.get(m.member_id, NO_ASSIGNMENT),
                )
                for m in self.members.values()
            ),
        )
