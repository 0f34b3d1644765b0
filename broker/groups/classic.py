"""The classic protocol's decisions about one coordinator's groups: who is in, when they rebalance.

Joining and rebalancing are here, what members do between rebalances is in `classic_members`.
"""

from __future__ import annotations

from broker.groups import events as e
from broker.groups.classic_group import NO_ASSIGNMENT, ClassicGroup, Member, State
from broker.groups.context import Context, stored, tombstones
from broker.groups.group import Group
from broker.groups.refusals import append_error
from broker.groups.timers import Timer
from wire.errors import ErrorCode
from wire.group_records import GroupMetadataKey, GroupMetadataValue

# A join that is a member's first is given up after this time: its client can't beat meanwhile, and
# may be gone (it comes again if it is not).
NEW_MEMBER_JOIN_MS = 300_000


class Rebalances:
    """What joins lead to, and what time does; every transition of a group but into STABLE."""

    def __init__(self, context: Context) -> None:
        self._context = context

    # -- JoinGroup -----------------------------------------------------------------------------

    def join(self, request: e.JoinGroup, found: Group | None) -> None:
        """`found` is what has the group id: nobody, a classic group, or an empty one of another
        type, in whose place a new classic group comes."""
        error = self._check(request)
        group = found if isinstance(found, ClassicGroup) else None
        if error is ErrorCode.none:
            if group is None:
                if request.member_id:
                    error = ErrorCode.unknown_member_id
                elif not request.protocol_type or not request.protocols:
                    error = ErrorCode.inconsistent_group_protocol
            elif not self._has_room(group, request.member_id):
                group.remove(request.member_id)
                self._refuse(request, ErrorCode.group_max_size_reached, e.NO_MEMBER)
                return
        if error is not ErrorCode.none:
            self._refuse(request, error, request.member_id)
        elif group is None:
            self._create(request, found)
        elif not group.supports(request.protocol_type, request.protocols):
            self._refuse(request, ErrorCode.inconsistent_group_protocol, request.member_id)
        elif not request.member_id:
            self._join_new(request, group)
        elif request.member_id in group.pending and request.instance_id is None:
            self._add(request, group, request.member_id)
        else:
            self._rejoin(request, group)

    def _check(self, request: e.JoinGroup) -> ErrorCode:
        settings = self._context.settings
        if not request.group_id:
            return ErrorCode.invalid_group_id
        shortest = settings.group_min_session_timeout_ms
        longest = settings.group_max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            return ErrorCode.invalid_session_timeout
        return ErrorCode.none

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """During a rebalance those count that have come already: if the limit was lowered, the last
        to come are put out."""
        limit = self._context.settings.group_max_size
        if group.stage is State.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.stage is State.PREPARING:
            return (member is not None and member.joining is not None) or (
                group.awaiting_join < limit
            )
        return member is not None or len(group.members) < limit

    def _create(self, request: e.JoinGroup, replaced: Group | None) -> None:
        """A new group is stored at once, so that it outlives this coordinator."""
        context = self._context
        group = ClassicGroup(request.group_id, context.wall_ms)
        records = [] if replaced is None else tombstones(replaced)
        records.append(stored(GroupMetadataKey(group.group_id), group.to_record({})))
        context.groups.set(group.group_id, group)
        context.append(records)
        context.when_settled(lambda: None, lambda error: self.disband(group, append_error(error)))
        self._join_new(request, group)

    def _join_new(self, request: e.JoinGroup, group: ClassicGroup) -> None:
        context = self._context
        base = request.client_id if request.instance_id is None else request.instance_id
        member_id = f"{base}-{context.new_uuid()}"
        if request.instance_id is not None:
            holder = group.static_ids.get(request.instance_id)
            if holder is not None:
                self._replace_static(request, group, group.members[holder], member_id)
                return
        elif request.require_known_member_id:
            timer = Timer(lambda: self._pending_ended(group, member_id))
            group.pending[member_id] = timer
            context.timers.set(timer, context.now_ms + request.session_timeout_ms)
            context.answer(request, e.Joined(ErrorCode.member_id_required, member_id))
            return
        self._add(request, group, member_id)

    def _rejoin(self, request: e.JoinGroup, group: ClassicGroup) -> None:
        error = group.check_member(request.member_id, request.instance_id)
        if error is ErrorCode.none and group.stage is State.EMPTY:
            error = ErrorCode.unknown_member_id
        if error is not ErrorCode.none:
            self._refuse(request, error, request.member_id)
            return
        member = group.members[request.member_id]
        changed = request.protocols != member.protocols
        # In a stable group the leader's join means that its assignment is out of date.
        leads = group.stage is State.STABLE and group.leader == member.member_id
        if group.stage is State.PREPARING or changed or leads:
            self._update(request, group, member)
            self.rebalance_or_complete(group, _said(request, "joins again"))
        else:
            # Its answer got lost: here it is again.
            self._context.answer(request, self._joined(group, member))

    def _add(self, request: e.JoinGroup, group: ClassicGroup, member_id: str) -> None:
        context = self._context
        member = self.new_member(group, member_id, request.instance_id)
        member.client_id, member.client_host = request.client_id, request.client_host
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.protocols = request.protocols
        member.joining = request
        member.is_new = True
        if group.stage is State.PREPARING and group.previous is State.EMPTY:
            group.new_member_added = True
        group.add(member, request.protocol_type)
        context.timers.set(member.session, context.now_ms + NEW_MEMBER_JOIN_MS)
        self.rebalance_or_complete(group, _said(request, "joins", member_id))

    def new_member(self, group: ClassicGroup, member_id: str, instance_id: str | None) -> Member:
        """A member with its session's timer, not in the group yet."""
        session = Timer(lambda: self._session_ended(group, member))
        member = Member(member_id, instance_id, session)
        return member

    def _update(self, request: e.JoinGroup, group: ClassicGroup, member: Member) -> None:
        group.set_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        if member.joining is None:
            group.awaiting_join += 1
        else:
            # The client asks again, on another connection: the first one is nobody's any more.
            self._refuse(member.joining, ErrorCode.rebalance_in_progress, member.member_id)
        member.joining = request

    def _refuse(self, request: e.JoinGroup, error: ErrorCode, member_id: str) -> None:
        self._context.answer_now(request.caller, e.Joined(error, member_id))

    # -- static members ------------------------------------------------------------------------

    def _replace_static(
        self, request: e.JoinGroup, group: ClassicGroup, member: Member, member_id: str
    ) -> None:
        """A client with a known instance id, but without member id: it has started anew and takes
        its predecessor's place. In a stable group, and if the protocol stays, nobody else notices.
        """
        old_id = member.member_id
        self.answer_join(group, member, e.Joined(ErrorCode.fenced_instance_id, old_id))
        self.answer_sync(member, e.Synced(ErrorCode.fenced_instance_id))
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.rename(member, member_id)
        self.expect_heartbeat(member)
        self._update(request, group, member)
        if group.stage is State.STABLE and group.chosen_protocol() == group.protocol_name:
            self._store_static(request, group, member, old_id, before)
        elif group.stage is State.STABLE or group.stage is State.COMPLETING:
            # The leader may be assigning to the old id.
            self.prepare(group, _said(request, f"takes the place of {old_id}", member_id))
        else:
            self.complete_if_all_joined(group)

    def _store_static(
        self,
        request: e.JoinGroup,
        group: ClassicGroup,
        member: Member,
        old_id: str,
        before: tuple[tuple[e.Protocol, ...], int, int],
    ) -> None:
        new_id, generation = member.member_id, group.generation

        def done() -> None:
            if member.joining is not request or group.stage is not State.STABLE:
                return  # somebody else began a rebalance, whose end answers it
            joined = self._joined(group, member)
            if group.leader == new_id:
                if request.may_skip_assignment:
                    # KIP-814: it is told whom it leads, but need not assign again.
                    members = group.described_members()
                    joined = joined._replace(skip_assignment=True, members=members)
                else:
                    # Before that, a leader was kept from assigning by its old id.
                    joined = joined._replace(leader=old_id)
            self.answer_join(group, member, joined)

        def failed(error: ErrorCode) -> None:
            if group.members.get(new_id) is not member:
                return
            if group.stage is not State.STABLE or group.generation != generation:
                return  # it is a member of what is to be stored next, or is told so already
            self.answer_join(group, member, e.Joined(append_error(error)))
            group.rename(member, old_id)
            group.set_protocols(member, before[0])
            member.rebalance_timeout_ms, member.session_timeout_ms = before[1:]

        assignments = {m.member_id: m.assignment for m in group.members.values()}
        key = GroupMetadataKey(group.group_id)
        self._context.append([stored(key, group.to_record(assignments))])
        self._context.when_settled(done, failed)

    # -- rebalances ----------------------------------------------------------------------------

    def rebalance_or_complete(self, group: ClassicGroup, reason: str) -> None:
        """Something about the members changed: begin a rebalance, or see whether that ends it."""
        if group.stage is State.PREPARING:
            self.complete_if_all_joined(group)
        else:
            self.prepare(group, reason)

    def prepare(self, group: ClassicGroup, reason: str) -> None:
        """Everybody has to join (again)."""
        context = self._context
        context.log(
            "group_rebalances",
            group=group.group_id,
            generation=group.generation,
            members=len(group.members),
            reason=reason,
        )
        if group.stage is State.COMPLETING:
            for member in group.members.values():
                member.assignment = NO_ASSIGNMENT
                self.answer_sync(member, e.Synced(ErrorCode.rebalance_in_progress))
        group.unsynced.clear()
        if group.sync_limit is not None:
            group.sync_limit.cancel()
        initial = group.stage is State.EMPTY
        group.enter(State.PREPARING, context.wall_ms)
        if initial:
            delay_ms = context.settings.group_initial_rebalance_delay_ms
            left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._wait_for_more(group, delay_ms, left_ms)
        elif group.all_joined:
            self.complete(group)
        else:
            self._set_rebalance(
                group, group.rebalance_timeout_ms, Timer(lambda: self.complete(group))
            )

    def _set_rebalance(self, group: ClassicGroup, in_ms: int, timer: Timer) -> None:
        if group.rebalance is not None:
            group.rebalance.cancel()
        group.rebalance = timer
        self._context.timers.set(timer, self._context.now_ms + in_ms)

    def _wait_for_more(self, group: ClassicGroup, delay_ms: int, left_ms: int) -> None:
        """An empty group's first members wait for others to come, and while others come, up to the
        rebalance timeout."""

        def over() -> None:
            if not group.new_member_added or left_ms == 0:
                self.complete(group)
                return
            group.new_member_added = False
            delay = self._context.settings.group_initial_rebalance_delay_ms
            self._wait_for_more(group, min(delay, left_ms), max(left_ms - delay_ms, 0))

        self._set_rebalance(group, delay_ms, Timer(over))

    def complete_if_all_joined(self, group: ClassicGroup) -> None:
        """The end of a rebalance that isn't a group's first; that one ends by time alone."""
        if (
            group.stage is State.PREPARING
            and group.previous is not State.EMPTY
            and group.all_joined
        ):
            self.complete(group)

    def complete(self, group: ClassicGroup) -> None:
        """Those who have joined are the next generation; static ones are, though they have not."""
        context = self._context
        if group.rebalance is not None:
            group.rebalance.cancel()
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                group.remove(member.member_id)
        joined = next((m for m in group.members.values() if m.joining is not None), None)
        if joined is None and group.members:
            # Static members alone, and none has come: their sessions will end, or they come yet.
            self._set_rebalance(
                group, group.rebalance_timeout_ms, Timer(lambda: self.complete(group))
            )
            return
        leader = group.members.get(group.leader or e.NO_MEMBER)
        if joined is not None and (leader is None or leader.joining is None):
            group.leader = joined.member_id
        group.next_generation()
        group.enter(State.COMPLETING if group.members else State.EMPTY, context.wall_ms)
        if not group.members:
            context.append([stored(GroupMetadataKey(group.group_id), group.to_record({}))])
            return
        for member in group.members.values():
            self.answer_join(group, member, self._joined(group, member))
            self.expect_heartbeat(member)
            member.is_new = False
            group.unsynced[member.member_id] = None
        group.sync_limit = Timer(lambda: self._sync_ended(group))
        context.timers.set(group.sync_limit, context.now_ms + group.rebalance_timeout_ms)

    def _joined(self, group: ClassicGroup, member: Member) -> e.Joined:
        """The current generation as a member is told of it."""
        leads = group.leader == member.member_id and group.stage is not State.STABLE
        return e.Joined(
            ErrorCode.none,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol_name,
            group.leader or e.NO_MEMBER,
            members=group.described_members() if leads else (),
        )

    # -- answers that were waited for ----------------------------------------------------------

    def answer_join(self, group: ClassicGroup, member: Member, joined: e.Joined) -> None:
        """Answer the member's join, if it waits for that."""
        if member.joining is not None:
            self._context.answer_now(member.joining.caller, joined)
            member.joining = None
            group.awaiting_join -= 1

    def answer_sync(self, member: Member, synced: e.Synced) -> None:
        """Answer the member's sync, if it waits for that. It had no need to beat until now."""
        if member.syncing is not None:
            self._context.answer_now(member.syncing.caller, synced)
            member.syncing = None
            self.expect_heartbeat(member)

    # -- what time does ------------------------------------------------------------------------

    def keep_alive(self, group: ClassicGroup, member_id: str) -> None:
        """A member committed offsets, which is as good as a heartbeat but while it syncs."""
        member = group.members.get(member_id)
        if member is not None and group.stage in (State.STABLE, State.PREPARING):
            self.expect_heartbeat(member)

    def expect_heartbeat(self, member: Member) -> None:
        """The member lives; its session begins anew."""
        context = self._context
        context.timers.set(member.session, context.now_ms + member.session_timeout_ms)

    def _session_ended(self, group: ClassicGroup, member: Member) -> None:
        if member.lives:
            return  # its session begins with our answer
        self.put_out(group, member)
        if group.stage in (State.STABLE, State.COMPLETING):
            self.prepare(group, f"the session of {member.member_id} has ended")
        elif group.stage is State.PREPARING and group.all_joined:
            self.complete(group)

    def put_out(self, group: ClassicGroup, member: Member) -> None:
        """The member is out; whoever waits in its name may come again as somebody new."""
        self.answer_join(group, member, e.Joined(ErrorCode.unknown_member_id))
        self.answer_sync(member, e.Synced(ErrorCode.unknown_member_id))
        group.remove(member.member_id)

    def _pending_ended(self, group: ClassicGroup, member_id: str) -> None:
        group.remove(member_id)
        if group.stage is State.PREPARING and group.all_joined:
            self.complete(group)

    def _sync_ended(self, group: ClassicGroup) -> None:
        """Members that joined, but did not ask what they got, are out."""
        late = [group.members[member_id] for member_id in group.unsynced]
        if late and group.stage in (State.COMPLETING, State.STABLE):
            for member in late:
                self.put_out(group, member)
            names = ", ".join(member.member_id for member in late)
            self.prepare(group, f"nobody asked what was assigned to {names}")

    def disband(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Forget a group and whoever waits in it: it is not in the log, or no more ours."""
        for timer in (group.rebalance, group.sync_limit, *group.pending.values()):
            if timer is not None:
                timer.cancel()
        for member in group.members.values():
            self.answer_join(group, member, e.Joined(error, member.member_id))
            self.answer_sync(member, e.Synced(error))
            member.session.cancel()
        group.pending.clear()
        group.unsynced.clear()
        group.stage = State.DEAD

    def revive(self, group: ClassicGroup) -> None:
        """A group that was disbanded is the group after all. Its members were told to come again,
        and find it as with a new coordinator."""
        group.stage = group.previous = State.STABLE if group.members else State.EMPTY
        self.loaded(group)

    # -- the log -------------------------------------------------------------------------------

    def replay(self, group_id: str, value: GroupMetadataValue | None) -> None:
        """A group as a record of the log has it; None deletes it."""
        if value is None:
            self._context.groups.load(group_id, None)
            return
        group = ClassicGroup(group_id, value.current_state_timestamp)
        group.stage = group.previous = State.STABLE if value.members else State.EMPTY
        group.generation = value.generation
        for stored_member in value.members:
            member = self.new_member(
                group, stored_member.member_id, stored_member.group_instance_id
            )
            member.client_id = stored_member.client_id
            member.client_host = stored_member.client_host
            member.session_timeout_ms = stored_member.session_timeout
            member.rebalance_timeout_ms = stored_member.rebalance_timeout
            if member.rebalance_timeout_ms < 0:
                member.rebalance_timeout_ms = member.session_timeout_ms
            member.protocols = (e.Protocol(value.protocol or "", stored_member.subscription),)
            member.assignment = stored_member.assignment
            group.add(member, value.protocol_type)
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.leader = value.leader
        group.update_subscribed()
        self._context.groups.load(group_id, group)

    def loaded(self, group: ClassicGroup) -> None:
        """The group is served from here on: its members have a session's time to show up."""
        for member in group.members.values():
            self.expect_heartbeat(member)
        if len(group.members) > self._context.settings.group_max_size:
            # The limit was lowered: all have to come again, and the last ones stay outside.
            self.prepare(group, "more members than group.max.size allows")


def _said(request: e.JoinGroup, what: str, member_id: str = "") -> str:
    """Why a join leads to a rebalance, with the client's own reason (KIP-800) if it gave one."""
    why = f": {request.reason}" if request.reason else ""
    return f"{member_id or request.member_id} {what}{why}"
