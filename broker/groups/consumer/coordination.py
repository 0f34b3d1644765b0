"""The steps that every request of a member goes through, whichever protocol it speaks."""

from __future__ import annotations

from collections.abc import Iterable

from broker.groups.classic import Rebalances
from broker.groups.consumer.expressions import CompileRegex, Expressions
from broker.groups.consumer.group import NEVER, ConsumerGroup
from broker.groups.consumer.member import Member
from broker.groups.consumer.migration import Migration
from broker.groups.consumer.reconciliation import (
    OwnedByClient,
    Target,
    UnknownState,
    reconcile,
)
from broker.groups.consumer.records import (
    drop_unused_regex,
    remove_member,
    write_current,
    write_subscription,
    write_target_epoch,
)
from broker.groups.consumer.refusal import REJOIN, Refused
from broker.groups.consumer.replay import Draft
from broker.groups.consumer.sessions import Sessions
from broker.groups.consumer.targets import ASSIGNORS, advance_epoch, compute, may_compute
from broker.groups.consumer.topics import Topics
from broker.groups.context import Context, stored
from wire.errors import ErrorCode


class Coordination:
    """The consumer groups of one coordinator. Everything works on a `Draft`, which `store` puts in
    force."""

    def __init__(
        self, context: Context, rebalances: Rebalances, compile_regex: CompileRegex
    ) -> None:
        self.context = context
        self.topics = Topics()
        self.migration = Migration(context, self.topics, rebalances)
        self.sessions = Sessions(context, self._put_out)
        self._expressions = Expressions(context, self.topics, compile_regex, self._resolved)
        # By group id, the epoch at which the group's topics were last looked at. No entry: they may
        # have changed since.
        self._looked: dict[str, int] = {}
        offered = [name for name in context.settings.group_consumer_assignors if name in ASSIGNORS]
        self.assignors = tuple(offered) or tuple(ASSIGNORS)

    def assignor_of(self, group: ConsumerGroup) -> str:
        """The name of the assignor that a group uses."""
        preferred = group.preferred_assignor()
        # A member may prefer what another broker offered, and this one doesn't.
        return preferred if preferred in self.assignors else self.assignors[0]

    def store(self, draft: Draft) -> None:
        """Put what the draft has changed in force, and have it appended."""
        if not draft.records:
            return
        self.context.groups.set(draft.group_id, draft.successor or draft.group)
        self.context.append([stored(key, value) for key, value in draft.records])
        if draft.predecessor is not None:
            self.migration.leave_behind(draft.predecessor)
            timeout_ms = self.context.session_timeout_ms(draft.group_id)
            self.sessions.resume(draft.group, timeout_ms)
        if draft.successor is not None:
            self.migration.begin(draft.successor, rebalance=draft.rebalances)

    def topics_changed(self, names: tuple[str, ...] | None) -> None:
        """These topics are new, gone or others now; None: any may be."""
        for group_id in list(self._looked):
            group = self.context.groups.get(group_id)
            if (
                names is None
                or not isinstance(group, ConsumerGroup)
                or any(map(group.is_subscribed, names))
            ):
                del self._looked[group_id]

    # -- a member's way through a request ----------------------------------------------------------

    def refuse_if_full(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
        """Refuses a member for whom there is no place."""
        limit = self.context.settings.group_consumer_max_size
        if len(group.members) < limit or member_id in group.members:
            return
        if group.static_member(instance_id) is None:
            raise Refused(
                ErrorCode.group_max_size_reached,
                f"the group has {limit} members, as many as allowed",
            )

    def subscribe(self, draft: Draft, before: Member, member: Member) -> bool:
        """What a member says of itself becomes known (`member` is `before` if it is nothing new),
        and the group's epoch rises if it has to. Whether the member's own subscription has changed.
        """
        changed = subscription_changed = False
        if member is not before:
            changed, subscription_changed = self._tell(draft, before, member)
        self._look_around(draft, changed=changed)
        return subscription_changed

    def keep_up(self, draft: Draft) -> None:
        """Bring the group's epoch and target up to date, whatever no member has changed."""
        self._look_around(draft, changed=False)
        self.assign(draft)

    def _look_around(self, draft: Draft, *, changed: bool) -> None:
        self._expressions.refresh(draft.group)
        if changed or self._topics_may_have_changed(draft.group):
            self.advance(draft, changed=changed)

    def _tell(self, draft: Draft, before: Member, member: Member) -> tuple[bool, bool]:
        """Whether the group is another with what the member says, and whether its own subscription
        is."""
        group = draft.group
        write_subscription(draft, member)
        names_changed = member.topics != before.topics
        regex_changed = member.regex != before.regex
        changed = names_changed or self.assignor_of(group) != self.assignor_of(draft.group)
        if regex_changed:
            drop_unused_regex(draft, before.regex)
            if member.regex and member.regex not in group.regexes:
                self._expressions.check(member.regex)
            elif member.regex:
                changed = changed or member.regex in group.resolved
            else:
                changed = changed or bool(before.regex)
        return changed, names_changed or regex_changed

    def advance(self, draft: Draft, *, changed: bool) -> None:
        """Let the group's epoch rise if `changed`, or if its topics have changed."""
        advance_epoch(draft, self.topics, changed=changed)
        self._looked[draft.group_id] = draft.group.epoch

    def _topics_may_have_changed(self, group: ConsumerGroup) -> bool:
        # An append that failed took the group back to a time before it was looked at.
        return group.epoch < self._looked.get(group.group_id, group.epoch + 1)

    def assign(self, draft: Draft) -> None:
        """Compute a new target if there has to be one, and it is time."""
        group, wall_ms = draft.group, self.context.wall_ms
        interval_ms = self.context.assignment_interval_ms(draft.group_id)
        if group.epoch > group.target_epoch and may_compute(group, interval_ms, wall_ms):
            compute(draft, self.topics, ASSIGNORS[self.assignor_of(group)], wall_ms)

    def reconcile(
        self, draft: Draft, member_id: str, said: OwnedByClient, *, subscription_changed: bool
    ) -> Member:
        """Take a member towards its target; how it is then."""
        group = draft.group
        member = group.members[member_id]
        if not subscription_changed and member.is_at(group.target_epoch):
            return member
        target = Target(
            group.target_epoch,
            group.target_of(member_id),
            frozenset(self.topics.ids(group.subscription(member))),
        )
        try:
            after = reconcile(member, target, group.owner, said, subscription_changed)
        except UnknownState:
            raise Refused(
                ErrorCode.fenced_member_epoch, f"the member is in a state unknown here; {REJOIN}"
            ) from None
        if after is not member:
            write_current(draft, after)
            if after.classic is None:
                self.sessions.reconciled(draft.group_id, after)
        return after

    # -- leaving -----------------------------------------------------------------------------------

    def remove(self, draft: Draft, members: Iterable[Member]) -> None:
        """Members leave, or are put out; the group's epoch rises, or those who are left are a
        classic group."""
        leaving = list(members)
        if self.migration.downgrades(draft.group, leaving):
            self.migration.downgrade(draft, leaving, rebalance=True)
            return
        for member in leaving:
            remove_member(draft, member.member_id)
        for regex in sorted({member.regex for member in leaving if member.regex}):
            drop_unused_regex(draft, regex)
        self.advance(draft, changed=True)
        if draft.group.is_empty:
            # The next to come need not wait for the interval to pass.
            write_target_epoch(draft, draft.group.epoch, NEVER)

    def _put_out(self, group_id: str, member_id: str, reason: str) -> None:
        """The time of a member is over."""
        group = self.context.groups.get(group_id)
        assert isinstance(group, ConsumerGroup)
        self.context.log("group_member_fenced", group=group_id, member=member_id, reason=reason)
        draft = Draft(group_id, group)
        self.remove(draft, [group.members[member_id]])
        self.store(draft)

    def _resolved(self, draft: Draft, changed: bool) -> None:
        self.advance(draft, changed=changed)
        self.store(draft)
