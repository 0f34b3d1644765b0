"""The controller's decisions: one object, one door, no world (ARCHITECTURE.md).

`handle(event, now_ms) -> effects`. While it leads, the core holds one image with every record
that it asked to append, committed or not; each operation is checked against that image, its
records are applied to it at once, and its answer waits until they are committed. What may concern
every partition of a broker is decided in slices of milliseconds, with other requests in between; so
is what makes new partitions, though its records come in one batch at the end. On losing leadership
the image is dropped and whoever waits is told NOT_CONTROLLER. Heartbeats are soft state; everything
else is in the image.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from controller import fencing, invariants
from controller.apis import APIS, ControllerApi
from controller.atomic import AtomicUnderWay
from controller.bootstrap import activation_records, bootstrap_level, is_empty
from controller.config import ControllerConfig
from controller.context import AtomicOperation, Context, Operation, Result, Steps
from controller.events import (
    ApiRequest,
    AppendRecords,
    BecameLeader,
    Committed,
    Effect,
    Event,
    KraftVersionUpgraded,
    Log,
    LogEndMoved,
    LostLeadership,
    Reply,
    Tick,
)
from controller.heartbeats import Heartbeats
from controller.record_versions import encode_record
from metadata.image import EMPTY, MetadataImage
from metadata.records import NoOpRecord, Record, RegisterBrokerRecord
from wire.errors import ErrorCode, KafkaError

# A tick that comes this much later than asked for means that we were held up ourselves, and
# heartbeats may be waiting unread.
_LATE_TICK_MS = 250
# Bytes that a record takes in a batch beside its value, at most.
_RECORD_OVERHEAD = 20
# So many steps of an operation at a time, then others' turn: some 5 ms.
_SLICE = 200
# The same for atomic ones: a new topic's answer tells all its configs and takes far longer.
_ATOMIC_SLICE = 100
# The search for partitions off their preferred leader: so many seen at a time, then others' turn.
_REBALANCE_SLICE = 2_000
_REBALANCE_PAUSE_MS = 20


class _Waiting(NamedTuple):
    """An answer that is given once the high watermark is at least `offset`."""

    offset: int
    request: ApiRequest
    reply: object
    deadline_ms: int
    admin: bool


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """An operation, and who asked for it; None where time did."""

    operation: Operation
    request: ApiRequest | None = None
    admin: bool = False


class Controller:
    """See the module. `chance` and `new_uuid` are the only sources of chance."""

    def __init__(
        self,
        config: ControllerConfig,
        chance: random.Random,
        new_uuid: Callable[[], UUID],
        apis: Mapping[int, ControllerApi] | None = None,
    ) -> None:
        self._config = config
        self._apis = APIS if apis is None else apis
        self._context = Context(
            config, chance, new_uuid, Heartbeats(config.session_timeout_ms), EMPTY
        )
        self._epoch: int | None = None
        self._high_watermark = 0
        self._waiting: deque[_Waiting] = deque()
        # Those that have steps left, the first of them taken.
        self._under_way: deque[_UnderWay] = deque()
        self._atomic: deque[AtomicUnderWay] = deque()
        # Those whose first part is the quorum's, by token.
        self._upgrading: dict[int, tuple[ApiRequest, Result]] = {}
        # Admin requests that wait or are under way.
        self._waiting_admin = 0
        self._effects: list[Effect] = []
        self._no_op_at_ms: int | None = None
        self._rebalance_at_ms: int | None = None
        self._preferred_search: fencing.PreferredSearch | None = None
        self._imbalance_seen = 0
        # Partitions off their preferred leader as the last whole search found them.
        self.preferred_imbalance = 0
        self._unclean_at_ms: int | None = None
        self._no_expiry_before_ms = 0
        self._no_grace_before_ms = 0
        # Not later than the first deadline of those who wait.
        self._give_up_at_ms: int | None = None

    # What others may look at.

    @property
    def active(self) -> bool:
        return self._epoch is not None

    @property
    def epoch(self) -> int | None:
        """The leader epoch in which this controller is active."""
        return self._epoch

    @property
    def image(self) -> MetadataImage:
        """With uncommitted records while active, EMPTY otherwise."""
        return self._context.image

    @property
    def next_offset(self) -> int:
        """Where the next record goes, while active."""
        return self._context.next_offset

    @property
    def waiting(self) -> int:
        """Requests that wait for their records to be made or committed."""
        return len(self._waiting) + self.under_way + len(self._upgrading)

    @property
    def under_way(self) -> int:
        """Operations that have steps left."""
        return len(self._under_way) + len(self._atomic)

    def next_deadline_ms(self) -> int | None:
        """When the next Tick is due, in `now_ms` terms; None while there is nothing to wait for."""
        if self._epoch is None:
            return None
        if self._under_way or self._atomic:
            return self._context.now_ms
        expiry_ms = self._context.heartbeats.next_expiry_ms()
        if expiry_ms is not None and expiry_ms < self._no_expiry_before_ms:
            expiry_ms = self._no_expiry_before_ms
        first_ms = self._give_up_at_ms if self._waiting else None
        # This is asked after each request: a loop takes half as long as `min` does.
        for at_ms in (expiry_ms, self._no_op_at_ms, self._rebalance_at_ms, self._unclean_at_ms):
            if at_ms is not None and (first_ms is None or at_ms < first_ms):
                first_ms = at_ms
        return first_ms

    def check_invariants(self) -> None:
        """Raises AssertionError on a state that must not be; for tests and simulation."""
        assert self.active or not self.waiting, "a standby has no one waiting"
        offsets = [w.offset for w in self._waiting]
        assert offsets == sorted(offsets), "answers wait in the order of their offsets"
        assert all(o > self._high_watermark for o in offsets), "a committed answer is held back"
        admin = sum(w.admin for w in self._waiting) + sum(u.admin for u in self._under_way)
        assert self._waiting_admin == admin + sum(a.admin for a in self._atomic)
        assert self._under_way or not self._context.transitions, "a transition never ends"
        if self.active:
            invariants.check_image(self._context.image)

    # The door.

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Takes one event at a monotonic time and answers with what is to be done, in order."""
        context = self._context
        late_ms = 0
        if isinstance(event, Tick):
            due = self.next_deadline_ms()
            late_ms = 0 if due is None else now_ms - due
        context.now_ms = now_ms
        # Empty unless an earlier call failed, whose effects are not to be had any more.
        self._effects = []
        match event:
            case ApiRequest():
                self._request(event)
            case Committed():
                self._committed(event.high_watermark)
            case Tick():
                self._tick(late_ms)
            case BecameLeader():
                self._became_leader(event)
            case LostLeadership():
                self._lost_leadership()
            case LogEndMoved():
                self._log_end_moved(event)
            case KraftVersionUpgraded():
                self._kraft_version_upgraded(event)
        effects, self._effects = self._effects, []
        return effects

    # Leadership.

    def _became_leader(self, event: BecameLeader) -> None:
        if self.active:
            self._lost_leadership()
        context = self._context
        now_ms = context.now_ms
        self._epoch = event.epoch
        self._high_watermark = event.next_offset
        context.image = event.image
        context.next_offset = event.next_offset
        context.registration_offsets.clear()
        self._no_expiry_before_ms = self._no_grace_before_ms = 0
        heartbeats = context.heartbeats = Heartbeats(self._config.session_timeout_ms)
        for broker_id, broker in sorted(event.image.brokers.items()):
            heartbeats.register(broker_id, broker.epoch, fenced=broker.fenced, now_ms=now_ms)
            if broker.fenced:
                heartbeats.end_session(broker_id)
        first = activation_records(
            event.image,
            event.bootstrap,
            self._config.static,
            open_transaction=event.open_transaction,
        )
        level = bootstrap_level(event.bootstrap) if is_empty(event.image) else None
        self._append(first, metadata_version=level)
        self._no_op_at_ms = self._after(self._config.max_idle_interval_ms)
        self._rebalance_at_ms = (
            self._after(self._config.leader_imbalance_check_interval_ms)
            if self._config.auto_leader_rebalance
            else None
        )
        self._unclean_at_ms = self._after(self._config.unclean_election_check_interval_ms)

    def _lost_leadership(self) -> None:
        requests = [w.request for w in self._waiting]
        requests += [u.request for u in self._under_way if u.request is not None]
        requests += [a.request for a in self._atomic]
        requests += [request for request, _ in self._upgrading.values()]
        self._upgrading.clear()
        self._waiting.clear()
        self._under_way.clear()
        self._atomic.clear()
        self._waiting_admin = 0
        self._epoch = None
        self._no_op_at_ms = self._rebalance_at_ms = self._unclean_at_ms = None
        self._preferred_search = None
        context = self._context
        context.image = EMPTY
        context.heartbeats = Heartbeats(self._config.session_timeout_ms)
        context.registration_offsets.clear()
        context.transitions.clear()
        for request in requests:
            self._refuse(request, ErrorCode.not_controller, "this controller lost its office")

    def _log_end_moved(self, event: LogEndMoved) -> None:
        context = self._context
        assert event.next_offset >= context.next_offset, "the log of a leader never shrinks"
        context.next_offset = event.next_offset
        context.image = context.image._replace(kraft_version=event.kraft_version)

    def _after(self, interval_ms: int) -> int | None:
        return self._context.now_ms + interval_ms if interval_ms > 0 else None

    # Requests.

    def _request(self, request: ApiRequest) -> None:
        api = self._apis[request.api_key]
        if not self.active:
            self._refuse(request, ErrorCode.not_controller, "this controller is not the active one")
            return
        if api.admin and self._waiting_admin >= self._config.max_pending_admin:
            self._refuse(
                request,
                ErrorCode.request_timed_out,
                f"{self._waiting_admin} admin requests wait for their commit already, "
                f"at most {self._config.max_pending_admin} may: try again later",
            )
            return
        try:
            result = api.handle(self._context, request)
            if isinstance(result, Operation):
                self._begin(_UnderWay(result, request, api.admin))
                return
            if isinstance(result, AtomicOperation):
                self._begin_atomic(result, request, api)
                return
            if result.upgrade is not None:
                self._upgrading[request.token] = (request, result)
                self._effects.append(result.upgrade)
                return
            self._append(result.records, atomic=True)
        except KafkaError as error:
            self._refuse(request, error.code, error.message)
            return
        self._answer_when_committed(request, result.reply, api.admin)

    def _kraft_version_upgraded(self, event: KraftVersionUpgraded) -> None:
        waiting = self._upgrading.pop(event.token, None)
        if waiting is None:
            return  # answered when the leadership was lost
        request, result = waiting
        if event.error is not ErrorCode.none:
            self._refuse(request, event.error, event.message)
        elif result.upgrade is not None and result.upgrade.validate_only:
            self._answer_when_committed(request, result.reply, self._apis[request.api_key].admin)
        else:
            self._request(request)  # the rest of it, now that the image has that level

    def _answer_when_committed(self, request: ApiRequest, reply: object, admin: bool) -> None:
        # An answer without records of its own may still tell of records not yet committed.
        offset = self._context.next_offset
        if offset <= self._high_watermark:
            self._effects.append(Reply(request.token, reply))
            return
        timeout_ms = self._config.request_timeout_ms
        # Zero and below come from clients that don't want to wait for brokers to follow; the
        # commit is waited for all the same, since nothing is answered before it.
        if request.timeout_ms is not None and request.timeout_ms > 0:
            timeout_ms = min(timeout_ms, request.timeout_ms)
        deadline_ms = self._context.now_ms + timeout_ms
        if not self._waiting or self._give_up_at_ms is None or deadline_ms < self._give_up_at_ms:
            self._give_up_at_ms = deadline_ms
        self._waiting.append(_Waiting(offset, request, reply, deadline_ms, admin))
        self._waiting_admin += admin

    def _refuse(self, request: ApiRequest, code: ErrorCode, message: str) -> None:
        entity = self._apis[request.api_key].refuse(request, code, message)
        self._effects.append(Reply(request.token, entity, code))

    # Operations.

    def _begin(self, under_way: _UnderWay) -> None:
        """Takes the first slice at once, unless others come before."""
        self._line_up(under_way)
        if len(self._under_way) == 1:
            self._advance()

    def _line_up(self, under_way: _UnderWay) -> None:
        operation = under_way.operation
        if operation.broker is not None:
            self._context.transitions[operation.broker] = operation.out
            if self._atomic:
                self._atomic[0].give_up_attempt()
        self._waiting_admin += under_way.admin
        self._under_way.append(under_way)

    def _end_first(self) -> _UnderWay:
        ended = self._under_way.popleft()
        self._waiting_admin -= ended.admin
        if ended.operation.broker is not None:
            del self._context.transitions[ended.operation.broker]
        return ended

    def _advance(self) -> None:
        """One slice of the operations under way, in their order."""
        left = _SLICE
        while self._under_way and left > 0:
            try:
                taken, more = self._append_steps(self._under_way[0].operation.steps, left)
            except Exception:
                self._end_first()
                raise
            left -= taken
            if not more:
                ended = self._end_first()
                reply = ended.operation.finish(self._context.next_offset)
                if ended.request is not None:
                    self._answer_when_committed(ended.request, reply, ended.admin)

    def _append_steps(self, steps: Steps, limit: int) -> tuple[int, bool]:
        """Takes at most `limit` steps, or what fits in a batch, and asks for the append of their
        records; how many were taken, and whether there may be more."""
        context, config = self._context, self._config
        before = context.image
        values: list[bytes] = []
        taken = size = 0
        more = True
        try:
            while (
                taken < limit
                and len(values) < config.max_records_per_batch
                and size < config.max_batch_bytes
            ):
                try:
                    record = next(steps)
                except StopIteration:
                    more = False
                    break
                taken += 1
                if record is not None:
                    values.append(encode_record(record, context.metadata_version))
                    size += len(values[-1]) + _RECORD_OVERHEAD
                    self._apply(record, context.next_offset + len(values) - 1)
        except Exception:
            context.image = before  # nothing of this batch has left
            if self._atomic:
                self._atomic[0].give_up_attempt()
            raise
        self._emit(tuple(values))
        return taken, more

    def _begin_atomic(
        self, operation: AtomicOperation, request: ApiRequest, api: ControllerApi
    ) -> None:
        """Takes the first slice at once, mostly the only one, unless others come before."""
        self._atomic.append(AtomicUnderWay(self._context, operation, request, admin=api.admin))
        self._waiting_admin += api.admin
        if len(self._atomic) == 1:
            self._advance_atomic()

    def _advance_atomic(self) -> None:
        """One slice of the atomic operations under way, in their order."""
        left = _ATOMIC_SLICE
        while self._atomic and left > 0:
            first = self._atomic[0]
            refusal: KafkaError | None = None
            try:
                left -= first.take(left)
                if not first.ended:
                    return
                self._append_made(first)
            except KafkaError as error:
                refusal = error
            except Exception:
                self._end_first_atomic()
                raise
            self._end_first_atomic()
            if refusal is None:
                self._answer_when_committed(first.request, first.reply, first.admin)
            else:
                self._refuse(first.request, refusal.code, refusal.message)

    def _end_first_atomic(self) -> None:
        self._waiting_admin -= self._atomic.popleft().admin

    # The log.

    def _append(
        self,
        records: Sequence[Record],
        *,
        atomic: bool = False,
        metadata_version: int | None = None,
    ) -> None:
        """Applies the records and asks for their append.

        `atomic` ones go in one batch, or KafkaError POLICY_VIOLATION says that they are too many
        and nothing has happened; others in as many batches as they need.
        """
        if not records:
            return
        context = self._context
        level = context.metadata_version if metadata_version is None else metadata_version
        encoded = [encode_record(record, level) for record in records]
        start = 0
        for end in self._batch_ends(encoded, atomic):
            for offset, record in enumerate(records[start:end], context.next_offset):
                self._apply(record, offset)
            self._emit(tuple(encoded[start:end]))
            start = end

    def _append_made(self, made: AtomicUnderWay) -> None:
        """As an atomic `_append` of records that have been encoded and applied already."""
        if made.values:
            self._batch_ends(made.values, atomic=True)
            context = self._context
            context.image = made.image._replace(kraft_version=context.image.kraft_version)
            self._emit(tuple(made.values))

    def _batch_ends(self, encoded: Sequence[bytes], atomic: bool) -> list[int]:
        """Where batches end, so that each has a size that the log takes."""
        config = self._config
        ends: list[int] = []
        start = size = 0
        for index, value in enumerate(encoded):
            size += len(value) + _RECORD_OVERHEAD
            if index - start == config.max_records_per_batch or size > config.max_batch_bytes:
                ends.append(index)
                start, size = index, len(value) + _RECORD_OVERHEAD
        ends.append(len(encoded))
        if atomic and len(ends) > 1:
            raise KafkaError(
                ErrorCode.policy_violation,
                f"the request needs {len(encoded)} metadata records, which must be one batch of "
                f"at most {config.max_records_per_batch} records and {config.max_batch_bytes} "
                "bytes: split it",
            )
        return ends

    def _apply(self, record: Record, offset: int) -> None:
        context = self._context
        context.image = context.image.apply(record)
        if self._atomic:
            self._atomic[0].follow(record)
        if isinstance(record, RegisterBrokerRecord):
            context.registration_offsets[record.broker_id] = offset

    def _emit(self, values: tuple[bytes, ...]) -> None:
        """Asks for the append of one batch, whose records have been applied."""
        if not values:
            return
        context = self._context
        assert self._epoch is not None
        base = context.next_offset
        context.next_offset = base + len(values)
        context.image = context.image.at(context.next_offset - 1, self._epoch, -1)
        self._effects.append(AppendRecords(values, self._epoch, base))
        self._no_op_at_ms = self._after(self._config.max_idle_interval_ms)

    def _committed(self, high_watermark: int) -> None:
        if not self.active or high_watermark <= self._high_watermark:
            return
        self._high_watermark = high_watermark
        while self._waiting and self._waiting[0].offset <= high_watermark:
            entry = self._waiting.popleft()
            self._waiting_admin -= entry.admin
            self._effects.append(Reply(entry.request.token, entry.reply))

    # Time.

    def _tick(self, late_ms: int) -> None:
        if not self.active:
            return
        now_ms = self._context.now_ms
        if late_ms > _LATE_TICK_MS and now_ms >= self._no_grace_before_ms:
            session_ms = self._config.session_timeout_ms
            self._no_expiry_before_ms = now_ms + min(late_ms, session_ms)
            # Once in a while only: an overloaded controller must still find the dead.
            self._no_grace_before_ms = self._no_expiry_before_ms + session_ms
            self._effects.append(Log("held_up", (("late_ms", late_ms),)))
        if now_ms >= self._no_expiry_before_ms:
            self._expire_sessions()
        self._advance()
        self._advance_atomic()
        self._give_up_waiting()
        if self._rebalance_at_ms is not None and now_ms >= self._rebalance_at_ms:
            self._rebalance()
        if self._unclean_at_ms is not None and now_ms >= self._unclean_at_ms:
            self._unclean_at_ms = self._after(self._config.unclean_election_check_interval_ms)
            self._line_up(_UnderWay(Operation(fencing.elect_leaderless(self._context), _no_reply)))
        if self._no_op_at_ms is not None and now_ms >= self._no_op_at_ms:
            self._append([NoOpRecord()])

    def _expire_sessions(self) -> None:
        context = self._context
        for broker_id in context.heartbeats.expired(context.now_ms):
            if broker_id in context.transitions:
                continue  # looked at again once that is through
            broker = context.image.broker(broker_id)
            context.heartbeats.fence(broker_id)
            if broker is None or broker.fenced:
                continue
            fields = (("broker_id", broker_id), ("session_ms", self._config.session_timeout_ms))
            self._effects.append(Log("broker_session_expired", fields))
            steps = fencing.fence(context, broker)
            self._line_up(_UnderWay(Operation(steps, _no_reply, broker=broker_id, out=True)))

    def _give_up_waiting(self) -> None:
        now_ms = self._context.now_ms
        if not self._waiting or (self._give_up_at_ms is not None and now_ms < self._give_up_at_ms):
            return
        late = [w for w in self._waiting if w.deadline_ms <= now_ms]
        self._waiting = deque(w for w in self._waiting if w.deadline_ms > now_ms)
        for entry in late:
            self._waiting_admin -= entry.admin
            self._refuse(
                entry.request,
                ErrorCode.request_timed_out,
                "the change was not committed within the request's timeout; it may still be",
            )
        self._give_up_at_ms = min((w.deadline_ms for w in self._waiting), default=None)

    def _rebalance(self) -> None:
        """One slice of the search for partitions off their preferred leader."""
        config = self._config
        if self._preferred_search is None:
            self._preferred_search = fencing.PreferredSearch(self._context)
            self._imbalance_seen = 0
        found = self._preferred_search.slice(config.max_elections_per_round, _REBALANCE_SLICE)
        self._append(found.records)
        self._imbalance_seen += found.imbalanced
        if found.more:
            self._rebalance_at_ms = self._context.now_ms + _REBALANCE_PAUSE_MS
            return
        self._preferred_search = None
        self.preferred_imbalance = self._imbalance_seen
        self._rebalance_at_ms = self._after(config.leader_imbalance_check_interval_ms)


def _no_reply(end_offset: int) -> None:
    """For operations that nobody asked for."""
