"""ConsumerGroupHeartbeat: members join, subscribe, say what they own and leave by it (KIP-848)."""

from __future__ import annotations

from broker.groups.classic_group import ClassicGroup
from broker.groups.consumer import requests
from broker.groups.consumer.coordination import Coordination
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    NOTHING,
    SAME_TIMEOUT_MS,
    Member,
    Owned,
    told,
)
from broker.groups.consumer.membership import known_static, replace_static, unknown_member
from broker.groups.consumer.reconciliation import OwnedByClient
from broker.groups.consumer.records import write_current
from broker.groups.consumer.refusal import REJOIN, Refused
from broker.groups.consumer.replay import Draft
from broker.groups.events import ConsumerBeaten, ConsumerGroupHeartbeat
from wire.errors import ErrorCode
from wire.uuids import to_text

# As long as partitions are about to move.
SOON_MS = 1_000


class Heartbeats:
    """The heartbeats of one coordinator's consumer groups."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._context = coordination.context

    def handle(self, request: ConsumerGroupHeartbeat) -> None:
        """Answers with ConsumerBeaten."""
        try:
            requests.check(request, self._coordination.assignors)
            if request.member_epoch in (LEAVING_EPOCH, LEAVING_STATIC_EPOCH):
                draft, answer = self._leave(request)
            else:
                draft, answer = self._beat(request)
        except Refused as refused:
            answer = ConsumerBeaten(refused.error, refused.message)
            self._context.answer_now(request.caller, answer)
            return
        self._coordination.store(draft)
        self._context.answer(request, answer)

    # -- staying -----------------------------------------------------------------------------------

    def _beat(self, request: ConsumerGroupHeartbeat) -> tuple[Draft, ConsumerBeaten]:
        steps, context = self._coordination, self._context
        draft = self._draft(request)
        steps.refuse_if_full(draft.group, request.member_id, request.instance_id)
        member_id = request.member_id or to_text(self._context.new_uuid())
        before = self._member(draft, request, member_id)
        changed = steps.subscribe(draft, before, _as_told(before, request))
        steps.assign(draft)
        after = steps.reconcile(draft, member_id, request.owned, subscription_changed=changed)
        steps.sessions.heard(
            request.group_id, member_id, context.session_timeout_ms(request.group_id)
        )
        tell = (
            request.member_epoch == JOINING_EPOCH
            or _tells_all(request)
            or after.assigned != before.assigned
        )
        return draft, ConsumerBeaten(
            ErrorCode.none,
            None,
            member_id,
            after.epoch,
            self._interval_ms(draft, after),
            told(after.assigned) if tell else None,
        )

    def _interval_ms(self, draft: Draft, member: Member) -> int:
        """When the member is to be back: sooner than usual if it waits for partitions, or if the
        group has just been assigned anew, since those who came with this one will want a share.
        Kafka always says the usual, with which members that come together take two of them."""
        group, context = draft.group, self._context
        usual_ms = context.heartbeat_interval_ms(draft.group_id)
        assigned_just_now = 0 <= context.wall_ms - group.target_timestamp < SOON_MS
        if member.is_at(group.epoch) and not assigned_just_now:
            return usual_ms
        return min(usual_ms, SOON_MS)

    def _draft(self, request: ConsumerGroupHeartbeat) -> Draft:
        """The group that the request is for, made if it isn't there and a member joins."""
        group_id = request.group_id
        group = self._context.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return Draft(group_id, group)
        if request.member_epoch != JOINING_EPOCH:
            raise _no_group(group_id)
        if isinstance(group, ClassicGroup) and not group.is_empty:
            return self._coordination.migration.upgrade(group)
        draft = Draft(group_id, None)
        if group is not None:
            draft.take_over(group.keys())
        return draft

    def _member(self, draft: Draft, request: ConsumerGroupHeartbeat, member_id: str) -> Member:
        """The member that the request is of, as it was until now."""
        group, joins = draft.group, request.member_epoch == JOINING_EPOCH
        if request.instance_id is None:
            member = group.members.get(member_id)
            if member is None and not joins:
                raise unknown_member(member_id)
        else:
            member = group.static_member(request.instance_id)
            if joins and member is not None:
                return self._replace(draft, member, member_id)
            if not joins:
                member = known_static(member, request.instance_id, member_id)
        if member is None:
            return Member(member_id)
        _check_epoch(member, request)
        return member

    @staticmethod
    def _replace(draft: Draft, old: Member, member_id: str) -> Member:
        """A static member is back, usually with a new id: what the old one had is its own."""
        if old.epoch != LEAVING_STATIC_EPOCH and old.classic is None:
            raise Refused(
                ErrorCode.unreleased_instance_id,
                f"instance id {old.instance_id} is that of member {old.member_id}",
            )
        return replace_static(draft, old, member_id)

    # -- leaving -----------------------------------------------------------------------------------

    def _leave(self, request: ConsumerGroupHeartbeat) -> tuple[Draft, ConsumerBeaten]:
        group = self._context.groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            raise _no_group(request.group_id)
        draft = Draft(request.group_id, group)
        if request.instance_id is None:
            member = group.members.get(request.member_id)
            if member is None:
                raise unknown_member(request.member_id)
        else:
            member = known_static(
                group.static_member(request.instance_id), request.instance_id, request.member_id
            )
        if request.instance_id is not None and request.member_epoch == LEAVING_STATIC_EPOCH:
            # It will be back before its session ends, or is put out then.
            away = member.but(epoch=LEAVING_STATIC_EPOCH, revoking=NOTHING)
            write_current(draft, away.but(assigned=_as_of_old(away.assigned)))
        else:
            self._coordination.remove(draft, [member])
        return draft, ConsumerBeaten(ErrorCode.none, None, request.member_id, request.member_epoch)


def _as_told(member: Member, request: ConsumerGroupHeartbeat) -> Member:
    """The member with what the request says of it; the same object if that is nothing new."""
    topics, timeout_ms = request.subscribed_topics, request.rebalance_timeout_ms
    if (
        topics is None
        and request.instance_id in (None, member.instance_id)
        and request.rack_id in (None, member.rack_id)
        and timeout_ms in (SAME_TIMEOUT_MS, member.rebalance_timeout_ms)
        and request.subscribed_regex in (None, member.regex)
        and request.server_assignor in (None, member.assignor)
        and request.client_id == member.client_id
        and request.client_host == member.client_host
        and member.classic is None
    ):
        return member
    told_by = member.but(
        instance_id=_or(request.instance_id, member.instance_id),
        rack_id=_or(request.rack_id, member.rack_id),
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if timeout_ms == SAME_TIMEOUT_MS else timeout_ms
        ),
        topics=member.topics if topics is None else tuple(sorted(set(topics))),
        regex=_or(request.subscribed_regex, member.regex),
        assignor=_or(request.server_assignor, member.assignor),
        classic=None,
    )
    return member if told_by == member else told_by


def _or(value: str | None, before: str | None) -> str | None:
    return before if value is None else value


def _tells_all(request: ConsumerGroupHeartbeat) -> bool:
    """Whether it is a whole heartbeat, as members send that have missed an answer."""
    subscribes = request.subscribed_topics is not None or request.subscribed_regex is not None
    tells_timeout = request.rebalance_timeout_ms != SAME_TIMEOUT_MS
    return subscribes and tells_timeout and request.owned is not None


def _check_epoch(member: Member, request: ConsumerGroupHeartbeat) -> None:
    """A member may be one epoch behind: it has not had the answer that told it of the newer one.
    Then it owns nothing but what it has been assigned since."""
    epoch = request.member_epoch
    if epoch in (JOINING_EPOCH, member.epoch):
        return
    behind = epoch == member.previous_epoch and epoch < member.epoch
    if not behind or not _owns_no_more(request.owned, member.assigned):
        raise Refused(
            ErrorCode.fenced_member_epoch,
            f"the member is at epoch {member.epoch}, not at {epoch}; {REJOIN}",
        )


def _owns_no_more(said: OwnedByClient, assigned: Owned) -> bool:
    if said is None:
        return False
    return all(assigned.get(t, {}).keys() >= set(those) for t, those in said)


def _as_of_old(owned: Owned) -> Owned:
    """With the lowest epochs, so that whoever comes back may commit at any."""
    return {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in owned.items()}


def _no_group(group_id: str) -> Refused:
    return Refused(ErrorCode.group_id_not_found, f"there is no consumer group {group_id}")
