"""What members of the classic protocol ask for beside joining: sync, heartbeat, leave."""

from __future__ import annotations

from broker.groups import events as e
from broker.groups.classic import Rebalances
from broker.groups.classic_group import NO_ASSIGNMENT, ClassicGroup, Member, State
from broker.groups.context import Context, stored
from broker.groups.refusals import append_error, refusal
from wire.errors import ErrorCode
from wire.group_records import GroupMetadataKey


class Members:
    """Requests of members of groups that exist; `group` is None where that isn't so."""

    def __init__(self, context: Context, rebalances: Rebalances) -> None:
        self._context = context
        self._rebalances = rebalances

    # -- SyncGroup -----------------------------------------------------------------------------

    def sync(self, request: e.SyncGroup, group: ClassicGroup | None) -> None:
        """The leader brings the assignment, the others wait for it."""
        error = self._check_sync(request, group)
        if error is not ErrorCode.none or group is None:
            self._context.answer_now(request.caller, e.Synced(error))
            return
        member = group.members[request.member_id]
        group.unsynced.pop(member.member_id, None)
        if not group.unsynced and group.sync_limit is not None:
            group.sync_limit.cancel()
        if group.stage is State.STABLE:
            self._context.answer(request, self._synced(group, member))
            return
        if member.syncing is not None:
            # The client asks again, on another connection: the first one is nobody's any more.
            error = ErrorCode.rebalance_in_progress
            self._context.answer_now(member.syncing.caller, e.Synced(error))
        member.syncing = request
        if group.leader == member.member_id:
            self._store(group, dict(request.assignments))

    def _check_sync(self, request: e.SyncGroup, group: ClassicGroup | None) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.invalid_group_id
        if group is None or group.is_empty:
            return ErrorCode.unknown_member_id
        error = group.check_member(request.member_id, request.instance_id)
        if error is not ErrorCode.none:
            return error
        if request.generation != group.generation:
            return ErrorCode.illegal_generation
        told = (request.protocol_type, request.protocol_name)
        ours = (group.protocol_type, group.protocol_name)
        if any(a is not None and b is not None and a != b for a, b in zip(told, ours, strict=True)):
            return ErrorCode.inconsistent_group_protocol
        if group.stage is State.PREPARING:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def _store(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        """The generation begins when its assignment is committed, unless it is over by then."""
        generation = group.generation

        def done() -> None:
            if group.stage is not State.COMPLETING or group.generation != generation:
                return
            group.enter(State.STABLE, self._context.wall_ms)
            self._context.log(
                "group_stable",
                group=group.group_id,
                generation=generation,
                members=len(group.members),
            )
            for member in group.members.values():
                member.assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
                self._rebalances.answer_sync(member, self._synced(group, member))

        def failed(error: ErrorCode) -> None:
            if group.stage is not State.COMPLETING or group.generation != generation:
                return
            for member in group.members.values():
                self._rebalances.answer_sync(member, e.Synced(append_error(error)))
            self._rebalances.prepare(group, f"its assignment could not be stored: {error.name}")

        key = GroupMetadataKey(group.group_id)
        self._context.append([stored(key, group.to_record(assignments))])
        self._context.when_settled(done, failed)

    def _synced(self, group: ClassicGroup, member: Member) -> e.Synced:
        return e.Synced(ErrorCode.none, group.protocol_type, group.protocol_name, member.assignment)

    # -- Heartbeat -----------------------------------------------------------------------------

    def heartbeat(self, request: e.Heartbeat, group: ClassicGroup | None) -> None:
        """A sign of life; the answer says whether the generation still holds."""
        self._context.answer(request, e.Beaten(self._beat(request, group)))

    def _beat(self, request: e.Heartbeat, group: ClassicGroup | None) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.invalid_group_id
        if group is None:
            return ErrorCode.unknown_member_id
        error = group.check_member(request.member_id, request.instance_id)
        if error is not ErrorCode.none:
            return error
        if request.generation != group.generation:
            return ErrorCode.illegal_generation
        self._rebalances.expect_heartbeat(group.members[request.member_id])
        if group.stage is State.PREPARING:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    # -- LeaveGroup ----------------------------------------------------------------------------

    def leave(self, request: e.LeaveGroup, group: ClassicGroup | None) -> None:
        """Members that go of themselves, or that an administrator sends away by instance id."""
        if not request.group_id:
            self._context.answer(request, refusal(request, ErrorCode.invalid_group_id))
            return
        if group is None:
            left = tuple((one, ErrorCode.unknown_member_id) for one in request.members)
            self._context.answer(request, e.Left(ErrorCode.none, left))
            return
        left = tuple((one, self._leave_one(one, group)) for one in request.members)
        gone = [one for one, error in left if error is ErrorCode.none]
        if gone and not group.is_empty:
            self._rebalances.rebalance_or_complete(group, _left(gone))
        self._context.answer(request, e.Left(ErrorCode.none, left))

    def _leave_one(self, leaving: e.Leaving, group: ClassicGroup) -> ErrorCode:
        member_id = leaving.member_id
        if member_id in group.pending:
            group.remove(member_id)
            return ErrorCode.none
        if not member_id and leaving.instance_id is not None:
            member_id = group.static_ids.get(leaving.instance_id, e.NO_MEMBER)
        error = group.check_member(member_id, leaving.instance_id)
        if error is ErrorCode.none:
            self._rebalances.put_out(group, group.members[member_id])
        return error


def _left(gone: list[e.Leaving]) -> str:
    """Why members' leaving leads to a rebalance, with the clients' own reasons (KIP-800)."""
    names = (f"{one.member_id or one.instance_id}" for one in gone)
    reasons = dict.fromkeys(one.reason for one in gone if one.reason)
    why = f": {', '.join(reasons)}" if reasons else ""
    return f"{', '.join(names)} left{why}"
