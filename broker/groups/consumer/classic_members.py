"""Members of consumer groups that speak the classic protocol: join, sync, heartbeat, leave.

To such a member its epoch is the generation, and whenever it has to give up partitions or may have
new ones it is told that a rebalance goes on. It joins again then, with the partitions that it has
kept, and is assigned by the coordinator: nobody in a consumer group leads.
"""

from __future__ import annotations

from broker.groups import events as e
from broker.groups.consumer.coordination import Coordination
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import Member, MemberState, without_epochs
from broker.groups.consumer.membership import (
    known_static,
    replace_static,
    unknown_member,
)
from broker.groups.consumer.migration import classic_metadata, first_subscription
from broker.groups.consumer.refusal import Refused
from broker.groups.consumer.replay import Draft
from broker.groups.refusals import refusal
from wire.errors import ErrorCode
from wire.uuids import to_text

_CONSUMER = "consumer"


class ClassicMembers:
    """Requests of the classic protocol for consumer groups that are not empty."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._context = coordination.context

    # -- JoinGroup ---------------------------------------------------------------------------------

    def join(self, request: e.JoinGroup, group: ConsumerGroup) -> None:
        """Answers with Joined."""
        member_id = request.member_id or to_text(self._context.new_uuid())
        try:
            self._check_join(request, group, member_id)
            draft, member = self._joined(request, group, member_id)
        except Refused as refused:
            comes_again = refused.error is ErrorCode.member_id_required
            told = member_id if comes_again else e.NO_MEMBER
            self._context.answer_now(request.caller, e.Joined(refused.error, told))
            return
        self._coordination.store(draft)
        protocol = request.protocols[0].name
        if draft.successor is not None:
            # Of a classic group's members all are told the same one.
            protocol = draft.successor.protocol_name or protocol
        else:
            sessions = self._coordination.sessions
            sessions.joined(
                group.group_id, member_id, request.session_timeout_ms, request.rebalance_timeout_ms
            )
        self._context.answer(
            request,
            e.Joined(
                ErrorCode.none,
                member_id,
                member.epoch,
                _CONSUMER,
                protocol,
            ),
        )

    def _check_join(self, request: e.JoinGroup, group: ConsumerGroup, member_id: str) -> None:
        settings = self._context.settings
        shortest = settings.group_min_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= settings.group_max_session_timeout_ms:
            raise Refused(ErrorCode.invalid_session_timeout, "too short or too long a session")
        migrates = settings.group_consumer_migration_policy != "disabled"
        names = [one.name for one in request.protocols]
        if not migrates or request.protocol_type != _CONSUMER or not group.supports(names):
            raise Refused(ErrorCode.inconsistent_group_protocol, "not the protocols of the group")
        self._coordination.refuse_if_full(group, member_id, request.instance_id)
        comes_first = not request.member_id and request.instance_id is None
        if comes_first and request.require_known_member_id:
            raise Refused(ErrorCode.member_id_required, "come again with the id")

    def _joined(
        self, request: e.JoinGroup, group: ConsumerGroup, member_id: str
    ) -> tuple[Draft, Member]:
        steps = self._coordination
        subscription = first_subscription(request.protocols)
        draft = Draft(group.group_id, group)
        predecessor = group.static_member(request.instance_id)
        before = self._member(draft, request, member_id)
        after = before.but(
            instance_id=request.instance_id or before.instance_id,
            rack_id=subscription.rack_id or before.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=tuple(sorted(set(subscription.topics))),
            regex="",
            client_id=request.client_id,
            client_host=request.client_host,
            classic=classic_metadata(request.session_timeout_ms, request.protocols),
        )
        changed = steps.subscribe(draft, before, before if after == before else after)
        downgrade = predecessor is not None and steps.migration.replaces_last(group, predecessor)
        if not downgrade:
            steps.assign(draft)
        rebalance = downgrade and not self._all_have_theirs(draft.group, member_id)
        if not rebalance:
            said = steps.topics.by_id(subscription.owned)
            steps.reconcile(draft, member_id, said, subscription_changed=changed)
        if downgrade:
            steps.migration.downgrade(draft, (), rebalance=rebalance)
        return draft, draft.group.members[member_id]

    @staticmethod
    def _all_have_theirs(group: ConsumerGroup, joining: str) -> bool:
        """Whether the targets are up to date, and all others have been told of theirs."""
        return group.target_epoch == group.epoch and all(
            member.is_at(group.epoch)
            for member_id, member in group.members.items()
            if member_id != joining
        )

    def _member(self, draft: Draft, request: e.JoinGroup, member_id: str) -> Member:
        """The member that joins, as it was until now."""
        group = draft.group
        if request.instance_id is None:
            return group.members.get(member_id) or Member(member_id)
        holder = group.static_member(request.instance_id)
        if request.member_id:
            return known_static(holder, request.instance_id, member_id)
        return Member(member_id) if holder is None else replace_static(draft, holder, member_id)

    # -- SyncGroup and Heartbeat -------------------------------------------------------------------

    def sync(self, request: e.SyncGroup, group: ConsumerGroup) -> None:
        """Answers with Synced."""
        try:
            member = self._known(request, group)
            self._check_sync(request, group, member)
        except Refused as refused:
            self._context.answer_now(request.caller, e.Synced(refused.error))
            return
        assert member.classic is not None
        self._coordination.sessions.synced(group.group_id, member)
        first = member.classic.supported_protocols[0]
        assignment = self._coordination.migration.assignment(
            first.metadata, without_epochs(member.assigned)
        )
        synced = e.Synced(ErrorCode.none, request.protocol_type, request.protocol_name, assignment)
        self._context.answer(request, synced)

    def _check_sync(self, request: e.SyncGroup, group: ConsumerGroup, member: Member) -> None:
        assert member.classic is not None
        first = member.classic.supported_protocols[0].name
        if request.protocol_type not in (None, _CONSUMER) or request.protocol_name not in (
            None,
            first,
        ):
            raise Refused(ErrorCode.inconsistent_group_protocol, "not what it was told")
        if group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            raise self._must_rejoin(group, member)

    def heartbeat(self, request: e.Heartbeat, group: ConsumerGroup) -> None:
        """Answers with Beaten."""
        error = ErrorCode.none
        # Where all speak the classic protocol there may be no other request for a long time that
        # would bring about the next target.
        draft = Draft(group.group_id, group)
        self._coordination.keep_up(draft)
        self._coordination.store(draft)
        group = draft.group
        try:
            member = self._known(request, group)
            assert member.classic is not None
            self._coordination.sessions.heard(
                group.group_id, member.member_id, member.classic.session_timeout_ms
            )
            waits = member.state is MemberState.UNRELEASED and group.waits_for_others(member)
            if (
                member.epoch < group.target_epoch
                or member.state is MemberState.UNREVOKED
                or (member.state is MemberState.UNRELEASED and not waits)
            ):
                raise self._must_rejoin(group, member)
        except Refused as refused:
            error = refused.error
        self._context.answer(request, e.Beaten(error))

    def _known(self, request: e.SyncGroup | e.Heartbeat, group: ConsumerGroup) -> Member:
        """The member that asks, if it is one of the classic protocol, of this generation."""
        if request.instance_id is None:
            member = group.members.get(request.member_id)
        else:
            holder = group.static_member(request.instance_id)
            member = known_static(holder, request.instance_id, request.member_id)
        if member is None or member.classic is None:
            raise unknown_member(request.member_id)
        if request.generation != member.epoch:
            raise Refused(ErrorCode.illegal_generation, f"the member is at {member.epoch}")
        return member

    def _must_rejoin(self, group: ConsumerGroup, member: Member) -> Refused:
        self._coordination.sessions.told_to_join(group.group_id, member)
        return Refused(ErrorCode.rebalance_in_progress, "the member has to join again")

    # -- LeaveGroup --------------------------------------------------------------------------------

    def leave(self, request: e.LeaveGroup, group: ConsumerGroup) -> None:
        """Answers with Left. Members of either protocol may leave by this, or be sent away."""
        if not request.group_id:
            self._context.answer(request, refusal(request, ErrorCode.invalid_group_id))
            return
        leaving: dict[str, Member] = {}
        left = []
        for one in request.members:
            error = ErrorCode.none
            try:
                member = self._leaving(one, group)
                leaving[member.member_id] = member
            except Refused as refused:
                error = refused.error
            left.append((one, error))
        if leaving:
            draft = Draft(group.group_id, group)
            self._coordination.remove(draft, leaving.values())
            self._coordination.store(draft)
        self._context.answer(request, e.Left(ErrorCode.none, tuple(left)))

    @staticmethod
    def _leaving(one: e.Leaving, group: ConsumerGroup) -> Member:
        if one.instance_id is None:
            member = group.members.get(one.member_id)
            if member is None:
                raise unknown_member(one.member_id)
            return member
        holder = group.static_member(one.instance_id)
        member_id = one.member_id or (holder.member_id if holder is not None else e.NO_MEMBER)
        return known_static(holder, one.instance_id, member_id)
