"""How long the coordinator waits for members: what is not in the log.

Timers only find out that something may be over; whoever is called looks at the group as it then is.
So nothing is taken back when a member leaves or an append fails: a timer of a member that isn't
there any more ends without effect, and takes its entry with it once that is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import Member, MemberState
from broker.groups.context import Context
from broker.groups.timers import Timer

SESSION_OVER: Final = "its session expired"
REVOCATION_OVER: Final = "it did not give up its partitions in time"
JOIN_OVER: Final = "it did not join again in time"
SYNC_OVER: Final = "it did not ask for its assignment in time"

Fence = Callable[[str, str, str], None]
"""Called with group id, member id and a reason when a member's time is over."""


class _Waits:
    """What is waited for from one member; at `epoch` it is to give up partitions. `join` and `sync`
    are for members of the classic protocol."""

    __slots__ = ("epoch", "join", "revocation", "session", "sync", "timeout_ms")

    def __init__(self, session: Timer, revocation: Timer, join: Timer, sync: Timer) -> None:
        self.session = session
        self.revocation = revocation
        self.join = join
        self.sync = sync
        self.timeout_ms = 0
        self.epoch = 0


class Sessions:
    """The timers of all members of consumer groups."""

    def __init__(self, context: Context, fence: Fence) -> None:
        self._context = context
        self._fence = fence
        self._waits: dict[str, dict[str, _Waits]] = {}

    def heard(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """The member lives: its session begins anew."""
        waits = self._of(group_id, member_id)
        waits.timeout_ms = timeout_ms
        self._context.timers.set(waits.session, self._context.now_ms + timeout_ms)

    def reconciled(self, group_id: str, member: Member) -> None:
        """The member's state has changed: it may have to give up partitions from now on, or need
        not any more."""
        waits = self._of(group_id, member.member_id)
        if member.state is MemberState.UNREVOKED:
            waits.epoch = member.epoch
            deadline = self._context.now_ms + member.rebalance_timeout_ms
            self._context.timers.set(waits.revocation, deadline)
        else:
            waits.revocation.cancel()

    def joined(
        self, group_id: str, member_id: str, session_ms: int, rebalance_timeout_ms: int
    ) -> None:
        """A member of the classic protocol has joined and is to sync."""
        self.heard(group_id, member_id, session_ms)
        waits = self._of(group_id, member_id)
        waits.join.cancel()
        self._context.timers.set(waits.sync, self._context.now_ms + rebalance_timeout_ms)

    def synced(self, group_id: str, member: Member) -> None:
        """A member of the classic protocol has its assignment."""
        assert member.classic is not None
        self.heard(group_id, member.member_id, member.classic.session_timeout_ms)
        self._of(group_id, member.member_id).sync.cancel()

    def told_to_join(self, group_id: str, member: Member) -> None:
        """A member of the classic protocol has been told of a rebalance, if not again."""
        waits = self._of(group_id, member.member_id)
        if waits.join.deadline_ms is None:
            deadline = self._context.now_ms + member.rebalance_timeout_ms
            self._context.timers.set(waits.join, deadline)

    def resume(self, group: ConsumerGroup, timeout_ms: int) -> None:
        """Wait for all members of a group that has just come to be here, loaded or made of another
        one, for sessions of `timeout_ms`."""
        for member in group.in_order():
            classic = member.classic
            session_ms = timeout_ms if classic is None else classic.session_timeout_ms
            self.heard(group.group_id, member.member_id, session_ms)
            # The group may have been one like this before, with this member in it.
            waits = self._of(group.group_id, member.member_id)
            waits.join.cancel()
            waits.sync.cancel()
            if classic is None:
                self.reconciled(group.group_id, member)
            else:
                waits.revocation.cancel()

    def _of(self, group_id: str, member_id: str) -> _Waits:
        waits = self._waits.setdefault(group_id, {})
        found = waits.get(member_id)
        if found is None:
            found = waits[member_id] = _Waits(
                Timer(lambda: self._session_over(group_id, member_id)),
                Timer(lambda: self._revocation_over(group_id, member_id)),
                Timer(lambda: self._classic_over(group_id, member_id, JOIN_OVER)),
                Timer(lambda: self._classic_over(group_id, member_id, SYNC_OVER)),
            )
        return found

    def _member(self, group_id: str, member_id: str) -> Member | None:
        group = self._context.groups.get(group_id)
        return group.members.get(member_id) if isinstance(group, ConsumerGroup) else None

    def _session_over(self, group_id: str, member_id: str) -> None:
        is_member = self._member(group_id, member_id) is not None
        if not is_member and self._context.groups.is_committed(group_id):
            self._forget(group_id, member_id)
            return
        # Should the append fail that puts it out, or did, there will be another try.
        waits = self._waits[group_id][member_id]
        self._context.timers.set(waits.session, self._context.now_ms + waits.timeout_ms)
        if is_member:
            self._fence(group_id, member_id, SESSION_OVER)

    def _revocation_over(self, group_id: str, member_id: str) -> None:
        waits = self._waits.get(group_id, {}).get(member_id)
        member = self._member(group_id, member_id)
        if waits is None or member is None or member.epoch != waits.epoch:
            return
        if member.state is MemberState.UNREVOKED:
            self._fence(group_id, member_id, REVOCATION_OVER)

    def _classic_over(self, group_id: str, member_id: str, reason: str) -> None:
        member = self._member(group_id, member_id)
        if member is not None and member.classic is not None:
            self._fence(group_id, member_id, reason)

    def _forget(self, group_id: str, member_id: str) -> None:
        waits = self._waits[group_id]
        gone = waits.pop(member_id)
        for timer in (gone.revocation, gone.join, gone.sync):
            timer.cancel()
        if not waits:
            del self._waits[group_id]
