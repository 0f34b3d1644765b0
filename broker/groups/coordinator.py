"""One coordinator: the door to the groups of one partition of `__consumer_offsets`.

See the package's text for how a shell uses it. Requests go where the group's type says: those of
the classic protocol to `classic` and `classic_members`, unless a group of the consumer protocol has
the id, which then speaks the classic one for that member (KIP-848's migration); those for offsets
and whole groups to `offsets` and `overview`, which know no types.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any
from uuid import UUID

from broker.groups import events as e
from broker.groups.classic import Rebalances
from broker.groups.classic_group import ClassicGroup
from broker.groups.classic_members import Members
from broker.groups.consumer.consumer_groups import ConsumerGroups
from broker.groups.consumer.expressions import CompileRegex
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.context import Context
from broker.groups.effects import Effect
from broker.groups.group import Group
from broker.groups.offset_store import OffsetKey
from broker.groups.offsets import Offsets
from broker.groups.overview import Overview
from broker.groups.refusals import refusal
from broker.groups.settings import GroupSettings
from wire.errors import ErrorCode
from wire.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    UnknownKey,
    check_offset,
    decode,
    offset_names,
)


class _Stage(Enum):
    LOADING = "loading"
    SERVING = "serving"
    RESIGNED = "resigned"


class GroupCoordinator:
    """See the module. `new_uuid` is the only source of chance; `compile_regex` makes a function of
    an expression that tells which topics it stands for."""

    def __init__(
        self,
        settings: GroupSettings,
        new_uuid: Callable[[], UUID],
        compile_regex: CompileRegex,
    ) -> None:
        self._context = context = Context(settings, new_uuid)
        self._rebalances = Rebalances(context)
        self._consumer_groups = ConsumerGroups(context, self._rebalances, compile_regex)
        self._members = Members(context, self._rebalances)
        self._offsets = Offsets(context, self._rebalances)
        self._overview = Overview(context, self._offsets)
        self._stage = _Stage.LOADING
        self._requests: dict[type, Callable[[Any], None]] = {
            e.JoinGroup: self._join,
            e.SyncGroup: self._sync,
            e.Heartbeat: self._heartbeat,
            e.LeaveGroup: self._leave,
            e.OffsetCommit: lambda r: self._offsets.commit(r, self._group(r)),
            e.TxnOffsetCommit: lambda r: self._offsets.commit_in_transaction(r, self._group(r)),
            e.OffsetFetch: self._offsets.fetch,
            e.OffsetDelete: lambda r: self._offsets.delete(r, self._group(r)),
            e.ListGroups: self._overview.list,
            e.DescribeGroups: self._overview.describe,
            e.DeleteGroups: self._overview.delete,
            e.ConsumerGroupHeartbeat: self._consumer_groups.heartbeat,
            e.ConsumerGroupDescribe: self._consumer_groups.describe,
        }
        self._world: dict[type, Callable[[Any], None]] = {
            e.Loaded: self._loaded,
            e.Appended: lambda ev: context.speculation.appended(ev.token, ev.log_end),
            e.AppendFailed: lambda ev: context.speculation.failed(ev.token, ev.error),
            e.Committed: lambda ev: context.speculation.committed(ev.high_watermark),
            e.TransactionEnded: self._offsets.end_transaction,
            e.TopicsKnown: self._topics_known,
            e.GroupsConfigured: self._groups_configured,
            e.TopicsDeleted: lambda ev: self._offsets.topics_deleted(ev.topics),
            e.Tick: lambda ev: context.timers.run(context.now_ms),
            e.Resigned: self._resigned,
        }

    # -- the door --------------------------------------------------------------------------------

    def handle(self, event: e.Event, now_ms: int, wall_ms: int) -> list[Effect]:
        """Takes one event in; answers with what must now be done, in order."""
        context = self._context
        context.now_ms, context.wall_ms = now_ms, wall_ms
        effects: list[Effect] = []
        context.effects = effects
        kind = type(event)
        if kind not in self._requests:
            self._world[kind](event)
        elif self._stage is _Stage.SERVING:
            self._requests[kind](event)
        else:
            self._turn_away(event)  # type: ignore[arg-type]
        assert not context.speculation.touched, f"{event} changed state without a record"
        return effects

    def next_deadline_ms(self) -> int | None:
        """When a Tick must be handed in at the latest, by the monotonic clock; None for never."""
        return self._context.timers.next_ms() if self._stage is _Stage.SERVING else None

    def replay(self, offset: int, key: bytes, value: bytes | None, producer_id: int) -> None:
        """A record of the log while loading; DecodeError on bytes that are not a record."""
        names = offset_names(key)
        if names is not None:
            self._replay_offset(OffsetKey(*names), value, producer_id)
            return
        found, content = decode(key, value)
        if isinstance(found, OffsetCommitKey | LegacyOffsetCommitKey):
            names = (found.group_id, found.topic, found.partition)
            self._replay_offset(OffsetKey(*names), value, producer_id)
        elif isinstance(found, GroupMetadataKey):
            assert content is None or isinstance(content, GroupMetadataValue)
            self._rebalances.replay(found.group_id, content)
        elif not isinstance(found, UnknownKey):
            self._consumer_groups.replay(found, content)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """A transaction marker in the log while loading."""
        self._offsets.store.end_transaction(producer_id, committed, live=False)

    # -- loading and its end ---------------------------------------------------------------------

    def _replay_offset(self, key: OffsetKey, value: bytes | None, producer_id: int) -> None:
        store = self._offsets.store
        if value is None:
            store.remove(key, live=False)
            return
        check_offset(value)
        if self._context.groups.get(key.group_id) is None:
            # Nobody ever joined it.
            self._context.groups.load(key.group_id, ClassicGroup(key.group_id))
        producer = None if producer_id == e.NO_PRODUCER else producer_id
        store.put(key, value, producer, live=False)

    def _loaded(self, event: e.Loaded) -> None:
        self._stage = _Stage.SERVING
        for _, group in list(self._context.groups.items()):
            if isinstance(group, ClassicGroup):
                self._rebalances.loaded(group)
        self._consumer_groups.loaded()
        self._offsets.loaded()

    def _resigned(self, event: e.Resigned) -> None:
        self._stage = _Stage.RESIGNED
        for _, group in self._context.groups.items():
            if isinstance(group, ClassicGroup):
                self._rebalances.disband(group, ErrorCode.not_coordinator)
        self._context.speculation.abandon(ErrorCode.not_leader_or_follower)

    def _groups_configured(self, event: e.GroupsConfigured) -> None:
        """It counts from the next heartbeat on."""
        self._context.overrides = event.overrides

    def _topics_known(self, event: e.TopicsKnown) -> None:
        self._context.topics = event.topics
        self._consumer_groups.topics_known(event)

    def _turn_away(self, request: e.Request) -> None:
        if self._stage is _Stage.RESIGNED:
            answer = refusal(request, ErrorCode.not_coordinator)
        elif isinstance(request, e.Heartbeat):
            # Its session has not begun, whoever it is: nothing that it must know yet.
            answer = e.Beaten(ErrorCode.none)
        else:
            answer = refusal(request, ErrorCode.coordinator_load_in_progress)
        self._context.answer_now(request.caller, answer)

    # -- whose request it is ---------------------------------------------------------------------

    def _group(self, request: Any) -> Group | None:
        return self._context.groups.get(request.group_id)

    def _join(self, request: e.JoinGroup) -> None:
        group = self._group(request)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            self._consumer_groups.classic_members.join(request, group)
        else:
            self._rebalances.join(request, group)

    def _sync(self, request: e.SyncGroup) -> None:
        group = self._group(request)
        if isinstance(group, ConsumerGroup):
            self._consumer_groups.classic_members.sync(request, group)
        else:
            self._members.sync(request, _classic(group))

    def _heartbeat(self, request: e.Heartbeat) -> None:
        group = self._group(request)
        if isinstance(group, ConsumerGroup):
            self._consumer_groups.classic_members.heartbeat(request, group)
        else:
            self._members.heartbeat(request, _classic(group))

    def _leave(self, request: e.LeaveGroup) -> None:
        group = self._group(request)
        if isinstance(group, ConsumerGroup):
            self._consumer_groups.classic_members.leave(request, group)
        else:
            self._members.leave(request, _classic(group))


def _classic(group: Group | None) -> ClassicGroup | None:
    return group if isinstance(group, ClassicGroup) else None
