"""The consumer groups of one coordinator: what it hands to them, and what it may ask."""

from __future__ import annotations

from broker.groups.classic import Rebalances
from broker.groups.consumer.classic_members import ClassicMembers
from broker.groups.consumer.coordination import Coordination
from broker.groups.consumer.expressions import CompileRegex
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.heartbeats import Heartbeats
from broker.groups.consumer.member import Member, Owned, without_epochs
from broker.groups.consumer.replay import apply
from broker.groups.context import Context
from broker.groups.events import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    ConsumerGroupsDescribed,
    DescribedConsumer,
    DescribedConsumerGroup,
    TopicsKnown,
)
from wire.errors import ErrorCode
from wire.group_records import GroupKey, GroupValue

_CLASSIC, _CONSUMER = 0, 1


class ConsumerGroups:
    """See the module."""

    def __init__(
        self, context: Context, rebalances: Rebalances, compile_regex: CompileRegex
    ) -> None:
        self._context = context
        self._coordination = Coordination(context, rebalances, compile_regex)
        self._heartbeats = Heartbeats(self._coordination)
        self.classic_members = ClassicMembers(self._coordination)

    def replay(self, key: GroupKey, value: GroupValue | None) -> None:
        """A record of a consumer group in the log while loading."""
        group_id: str = key.group_id  # type: ignore[attr-defined]
        group = self._context.groups.get(group_id)
        if isinstance(group, ConsumerGroup) or value is not None:
            # A group of the other type was only there for its offsets.
            before = group if isinstance(group, ConsumerGroup) else None
            self._context.groups.load(group_id, apply(before, key, value))

    def loaded(self) -> None:
        """The log is replayed: all members are waited for."""
        for group_id, group in self._context.groups.items():
            if isinstance(group, ConsumerGroup):
                timeout_ms = self._context.session_timeout_ms(group_id)
                self._coordination.sessions.resume(group, timeout_ms)

    def topics_known(self, known: TopicsKnown) -> None:
        """The topics of the newest metadata image."""
        self._coordination.topics.learn(known)
        self._coordination.topics_changed(known.changed)

    def heartbeat(self, request: ConsumerGroupHeartbeat) -> None:
        """Answers with ConsumerBeaten."""
        self._heartbeats.handle(request)

    def describe(self, request: ConsumerGroupDescribe) -> None:
        """Answers with ConsumerGroupsDescribed, from what is committed."""
        groups = tuple(self._described(group_id) for group_id in request.group_ids)
        self._context.answer_now(request.caller, ConsumerGroupsDescribed(groups))

    def _described(self, group_id: str) -> DescribedConsumerGroup:
        group = self._context.groups.committed(group_id)
        if not isinstance(group, ConsumerGroup):
            return DescribedConsumerGroup(
                ErrorCode.group_id_not_found, group_id, f"there is no consumer group {group_id}"
            )
        return DescribedConsumerGroup(
            ErrorCode.none,
            group_id,
            None,
            group.state,
            group.epoch,
            group.target_epoch,
            self._coordination.assignor_of(group),
            tuple(self._described_member(group, member) for member in group.in_order()),
        )

    def _described_member(self, group: ConsumerGroup, member: Member) -> DescribedConsumer:
        topics = self._coordination.topics
        return DescribedConsumer(
            member.member_id,
            member.instance_id,
            member.rack_id,
            member.epoch,
            member.client_id,
            member.client_host,
            member.topics,
            member.regex,
            tuple(topics.described(without_epochs(_all_owned(member)))),
            tuple(topics.described(group.target_of(member.member_id))),
            _CLASSIC if member.classic is not None else _CONSUMER,
        )


def _all_owned(member: Member) -> Owned:
    """What a member has, with what it is giving up."""
    if not member.revoking:
        return member.assigned
    owned = {**member.assigned}
    for topic_id, partitions in member.revoking.items():
        owned[topic_id] = {**owned.get(topic_id, {}), **partitions}
    return owned
