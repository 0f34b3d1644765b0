"""Requests about whole groups, mostly an operator's: list, describe, delete."""

from __future__ import annotations

from broker.groups import events as e
from broker.groups.classic_group import ClassicGroup, Member, State
from broker.groups.context import Context, tombstones
from broker.groups.effects import StoredRecord
from broker.groups.group import DEAD
from broker.groups.offsets import Offsets
from wire.errors import ErrorCode


class Overview:
    """See the module. Lists and descriptions tell what is committed."""

    def __init__(self, context: Context, offsets: Offsets) -> None:
        self._context = context
        self._offsets = offsets

    def list(self, request: e.ListGroups) -> None:
        """Groups of any type, by state (KIP-518) and type (KIP-848)."""
        states = {state.lower() for state in request.states}
        types = {kind.lower() for kind in request.types}
        groups = tuple(
            e.ListedGroup(group_id, group.protocol_type or "", group.state, group.type)
            for group_id, group in self._context.groups.committed_items()
            if (not states or group.state.lower() in states)
            and (not types or group.type.lower() in types)
        )
        self._context.answer_now(request.caller, e.GroupsListed(ErrorCode.none, groups))

    def describe(self, request: e.DescribeGroups) -> None:
        """Groups of the classic protocol."""
        groups = tuple(self._described(group_id) for group_id in request.group_ids)
        self._context.answer_now(request.caller, e.GroupsDescribed(groups))

    def _described(self, group_id: str) -> e.DescribedGroup:
        group = self._context.groups.committed(group_id)
        if not isinstance(group, ClassicGroup):
            text = "not found" if group is None else "not a classic group"
            joint = " is " if group is not None else " "
            error = ErrorCode.group_id_not_found
            return e.DescribedGroup(
                error, group_id, DEAD, message=f"Group {group_id}{joint}{text}."
            )
        # Before a generation is complete, nobody can say what its members' metadata means.
        protocol = group.protocol_name if group.stage is State.STABLE else None
        return e.DescribedGroup(
            ErrorCode.none,
            group_id,
            group.state,
            group.protocol_type or "",
            protocol or "",
            tuple(_described_member(member, protocol) for member in group.members.values()),
        )

    def delete(self, request: e.DeleteGroups) -> None:
        """Groups without members, with their offsets; all that can be go in one batch."""
        context = self._context
        outcomes: list[tuple[str, ErrorCode]] = []
        records: list[StoredRecord] = []
        for group_id in request.group_ids:
            group = context.groups.get(group_id)
            if group is None:
                outcomes.append((group_id, ErrorCode.group_id_not_found))
            elif not group.is_empty:
                outcomes.append((group_id, ErrorCode.non_empty_group))
            else:
                outcomes.append((group_id, ErrorCode.none))
                records += self._offsets.remove_all(group_id)
                records += tombstones(group)
                context.groups.set(group_id, None)
        if records:
            context.append(records)
        context.answer(request, e.GroupsDeleted(tuple(outcomes)))


def _described_member(member: Member, protocol: str | None) -> e.DescribedMember:
    return e.DescribedMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        b"" if protocol is None else member.metadata(protocol),
        member.assignment,
    )
