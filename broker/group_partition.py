"""One led partition of `__consumer_offsets`: its coordinator's core, and all that acts for it.

The core (`broker.groups`) decides; this loads it from the log, performs its appends, tells it what
is committed and what time it is, and brings its answers to those who asked. A core that raises is
this partition's trouble alone: it is reported, and another one is loaded in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import structlog

from broker.config import BrokerConfig
from broker.group_loading import Item, LoadReport, Stored, read_part
from broker.groups.effects import Answer, Append, Effect, Log
from broker.groups.events import (
    Appended,
    AppendFailed,
    Committed,
    Event,
    GroupsConfigured,
    Loaded,
    Resigned,
    Tick,
    TopicsDeleted,
    TopicsKnown,
)
from broker.replica import Replica
from broker.replica_manager import ReplicaManager
from wire.apis import ErrorCode
from wire.batch import build_batch, read_header
from wire.errors import KafkaError
from world.env import DiskError, Env

OFFSETS_TOPIC = "__consumer_offsets"

_REPLAYED_AT_ONCE = 200
# However much offsets.load.buffer.size allows: the records of a part are all in memory at once.
_PART_BYTES = 256 << 10
# After so many records what they add to the groups is taken out of the collector's sight: some 10
# ms of work. If it went over all of them again and again, everything would stand still meanwhile.
_SETTLE_RECORDS = 5_000
_FIRST_BACKOFF_MS = 100
_MAX_BACKOFF_MS = 10_000
# A record's texts have a length of 16 bits, and a member's id is made of its client's and 37 more.
LONGEST_TEXT = 32_000
# A batch's header, and what a record takes beside its key and value, at most.
_BATCH_OVERHEAD = 61
_RECORD_OVERHEAD = 30

Done = Callable[[object], None]
"""Takes a request's outcome: the core's value, or the ErrorCode that stands in its place."""


class Core(Protocol):
    """What is asked of `broker.groups.coordinator.GroupCoordinator`."""

    def handle(self, event: Event, now_ms: int, wall_ms: int) -> list[Effect]: ...
    def next_deadline_ms(self) -> int | None: ...
    def replay(self, offset: int, key: bytes, value: bytes | None, producer_id: int) -> None: ...
    def end_transaction(self, producer_id: int, committed: bool) -> None: ...


@dataclass(slots=True)
class GroupCounters:
    """What happened in all partitions that this broker has led."""

    loads: int = 0
    load_failures: int = 0
    appends: int = 0
    append_failures: int = 0
    crashes: int = 0


class _Caller(NamedTuple):
    done: Done
    timer: asyncio.TimerHandle | None


class GroupPartition:
    """See the module's text. `start` begins to load, `resign` ends it; then it is of no use.

    `leader_epoch` is the one under which this broker leads; `loaded` is whether requests are
    served.
    """

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        replicas: ReplicaManager,
        make_core: Callable[[], Core],
        counters: GroupCounters,
        report: LoadReport,
        index: int,
        leader_epoch: int,
    ) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.loaded = False
        self._counters = counters
        self._report = report
        self._env = env
        self._config = config
        self._replicas = replicas
        self._make_core = make_core
        self._core: Core | None = None
        self._replica: Replica | None = None
        self._mark = -1
        self._callers: dict[int, _Caller] = {}
        self._last_caller = 0
        self._appends: list[Append] = []
        self._deleted: list[str] = []
        self._known: TopicsKnown | None = None
        self._configured = GroupsConfigured({})
        self._loading: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._backoff_ms = _FIRST_BACKOFF_MS
        self._log = structlog.get_logger("broker.groups").bind(
            node_id=config.node_id, partition=index
        )

    # -- what the manager says -----------------------------------------------------------------

    def start(self, known: TopicsKnown, configured: GroupsConfigured) -> None:
        """Begins to load; until that is done, requests are answered that it is going on."""
        self._known = known
        self._configured = configured
        self._begin(0)

    def resign(self) -> None:
        """This broker doesn't lead the partition any more: turns everybody off."""
        core, self._core = self._core, None
        self._let_go()
        if core is not None:
            try:
                self._perform(core.handle(Resigned(), *self._now()))
            except Exception:  # noqa: BLE001 - reported; the callers are turned off below
                self._log.exception("group_coordinator_crashed", on="Resigned")
        self._turn_off(ErrorCode.not_coordinator)

    def topics_known(self, known: TopicsKnown) -> None:
        """The metadata has other topics now."""
        self._known = known
        self._tell(known)

    def groups_configured(self, configured: GroupsConfigured) -> None:
        """Other things are set for single groups now."""
        self._configured = configured
        self._tell(configured)

    def topics_deleted(self, names: tuple[str, ...]) -> None:
        """These topics are gone."""
        if self.loaded:
            self._tell(TopicsDeleted(names))
        else:
            self._deleted += names

    def ask(self, make: Callable[[int], Event], done: Done, limit_ms: int | None) -> None:
        """Has the core answer a request, made for the caller's number that it is given.

        After `limit_ms` without an answer it is COORDINATOR_NOT_AVAILABLE; None waits for ever.
        Texts that don't fit into a record are INVALID_REQUEST: no core gets to see them.
        """
        if self._core is None:
            done(ErrorCode.not_coordinator)
            return
        self._last_caller += 1
        caller = self._last_caller
        event = make(caller)
        if _has_long_text(event):
            done(ErrorCode.invalid_request)
            return
        self._callers[caller] = _Caller(done, None)
        self._tell(event)
        if limit_ms is not None and caller in self._callers:
            timer = asyncio.get_running_loop().call_later(
                limit_ms / 1000, self._answer, caller, ErrorCode.coordinator_not_available
            )
            self._callers[caller] = _Caller(done, timer)

    # -- the core ------------------------------------------------------------------------------

    def _now(self) -> tuple[int, int]:
        return self._env.clock.now_ms(), self._env.clock.wall_ms()

    def _tell(self, event: Event) -> None:
        core = self._core
        if core is None:
            return
        clock = self._env.clock
        try:
            effects = core.handle(event, clock.now_ms(), clock.wall_ms())
            deadline = core.next_deadline_ms()
        except Exception:  # noqa: BLE001 - reported, and the partition is loaded anew
            self._crashed(event)
            return
        self._perform(effects)
        if deadline is not None and (self._timer is None or deadline < self._timer_ms):
            self._wake_at(deadline)

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                self._answer(effect.caller, effect.value)
            elif isinstance(effect, Append):
                if not self._appends:
                    asyncio.get_running_loop().call_soon(self._flush)
                self._appends.append(effect)
            else:
                assert isinstance(effect, Log), effect
                self._log.info(effect.event, **dict(effect.fields))

    def _answer(self, caller: int, value: object) -> None:
        waiting = self._callers.pop(caller, None)
        if waiting is None:
            return  # its time was over
        if waiting.timer is not None:
            waiting.timer.cancel()
        waiting.done(value)

    def _turn_off(self, error: ErrorCode) -> None:
        for caller in list(self._callers):
            self._answer(caller, error)

    def _crashed(self, event: Event) -> None:
        """The core raised: what it holds is worth nothing any more, what is in the log counts."""
        self._counters.crashes += 1
        self._log.exception("group_coordinator_crashed", on=type(event).__name__)
        self._core = None
        self._let_go()
        caller = getattr(event, "caller", None)
        if caller is not None:
            # Not one that clients try again: it might be the request that the core can't bear.
            self._answer(caller, ErrorCode.unknown_server_error)
        self._turn_off(ErrorCode.not_coordinator)
        self._begin(self._next_backoff_ms())

    def _let_go(self) -> None:
        self.loaded = False
        self._appends.clear()
        if self._replica is not None:
            self._replica.watchers.pop(self._look_soon, None)
            self._replica = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
            self._report.ends(self.index)

    # -- time ----------------------------------------------------------------------------------

    def _wake_at(self, deadline_ms: int) -> None:
        """A timer that is too early costs a look; one is not set anew for each heartbeat."""
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        wait_ms = max(0, deadline_ms - self._env.clock.now_ms())
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(wait_ms / 1000, self._woken)

    def _woken(self) -> None:
        self._timer = None
        core = self._core
        if core is None:
            return
        deadline = core.next_deadline_ms()
        if deadline is None:
            return
        if deadline > self._env.clock.now_ms():
            self._wake_at(deadline)
        else:
            self._tell(Tick())

    # -- appends -------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Appends what the core asked for in this turn of the loop, in as few batches as may be."""
        waiting, self._appends = self._appends, []
        replica = self._replica
        if replica is None:
            return
        for appends in _joined(waiting, replica.settings.log.max_message_bytes):
            try:
                base = self._append(replica, appends)
            except KafkaError as error:
                self._counters.append_failures += 1
                self._log.warning("group_append_failed", reason=str(error))
                # The core undoes these and all later ones.
                self._appends.clear()
                self._tell(AppendFailed(appends[0].token, error.code))
                return
            self._counters.appends += 1
            for append in appends:
                base += len(append.records)
                self._tell(Appended(append.token, base))
        self._look()

    def _append(self, replica: Replica, appends: list[Append]) -> int:
        """The offset of the first record. KafkaError; then nothing was appended."""
        core = replica.core
        if replica.failed:
            raise KafkaError(ErrorCode.kafka_storage_error)
        if not core.is_leader or core.leader_epoch != self.leader_epoch:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        if core.under_min_isr:
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"{len(core.isr)} replicas are in sync, {core.effective_min_isr} are required",
            )
        batch = bytearray(self._build(appends))
        limit = replica.settings.log.max_message_bytes
        if len(batch) > limit:
            raise KafkaError(
                ErrorCode.message_too_large, f"a batch of {len(batch)} bytes, {limit} are allowed"
            )
        try:
            info = replica.append_as_leader([batch], len(batch), [read_header(batch)])
        except DiskError as error:
            self._replicas.disk_failed(replica, error)
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
        [outcome] = info.outcomes
        if isinstance(outcome, KafkaError):
            raise outcome
        return info.base_offset

    def _build(self, appends: list[Append]) -> bytes:
        wall_ms = self._env.clock.wall_ms()
        producer = appends[0].producer
        written: dict[str, Any] = {}
        if producer is not None:
            written = {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "transactional": True,
            }
        return build_batch(
            [(wall_ms, one.key, one.value, ()) for append in appends for one in append.records],
            codec=self._config.offsets_topic_compression_codec,
            **written,
        )

    def _look_soon(self) -> None:
        """Called by the replica in the middle of what it does."""
        self._replicas.wakes.add(self._look)

    def _look(self) -> None:
        """The high watermark may have moved, or the log be gone."""
        replica = self._replica
        if replica is None or not self.loaded:
            return
        mark = replica.core.high_watermark
        if mark > self._mark:
            self._mark = mark
            self._tell(Committed(mark))

    # -- loading -------------------------------------------------------------------------------

    def _begin(self, delay_ms: int) -> None:
        self._report.begins(self.index)
        self._loading = asyncio.get_running_loop().create_task(
            self._load(delay_ms), name=f"load-groups-{self.index}"
        )
        self._new_core()

    def _new_core(self) -> None:
        self._core = self._make_core()
        self._mark = -1
        if self._known is not None:
            self._tell(self._known._replace(changed=None))
        if self._configured.overrides:
            self._tell(self._configured)

    def _next_backoff_ms(self) -> int:
        wait_ms, self._backoff_ms = self._backoff_ms, min(self._backoff_ms * 2, _MAX_BACKOFF_MS)
        return round(wait_ms * self._env.chance.uniform(0.8, 1.2))

    async def _load(self, delay_ms: int) -> None:
        while True:
            if delay_ms:
                await asyncio.sleep(delay_ms / 1000)
            self._report.begins(self.index)
            try:
                await self._load_once()
                return
            except KafkaError as error:
                self._log.warning("groups_not_loaded", reason=str(error))
            except Exception:  # noqa: BLE001 - reported; this partition's groups have to wait
                self._log.exception("groups_not_loaded")
            self._counters.load_failures += 1
            self._report.ends(self.index)
            delay_ms = self._next_backoff_ms()
            self._new_core()

    async def _load_once(self) -> None:
        replica = await self._open_replica()
        core, log = self._core, replica.log
        assert core is not None
        # Under this leadership nobody else appends, and we don't before we have loaded.
        offset, end = log.log_start_offset, log.end_offset
        count = size = unsettled = 0
        while offset < end:
            limit = min(self._config.offsets_load_buffer_size, _PART_BYTES)
            part = await read_part(self._env, log, offset, end, limit)
            await _replay(core, part.items)
            offset = part.next_offset
            count += len(part.items)
            size += part.size
            unsettled += len(part.items)
            if unsettled >= _SETTLE_RECORDS:
                unsettled = 0
                self._env.settle_memory()
        await self._until_committed(replica, end)
        self._replica = replica
        replica.watchers[self._look_soon] = None
        self._loaded()
        self._report.loaded(self.index, count, size)

    async def _until_committed(self, replica: Replica, end: int) -> None:
        """What was loaded is told to clients, and another leader might lack what isn't committed.
        As long as replicas are missing, no more than a request's time is waited for them: offsets
        can be fetched then, as from Kafka, and new ones couldn't be committed in any case."""
        moved = asyncio.Event()
        replica.watchers[moved.set] = None
        try:
            async with asyncio.timeout(self._config.offsets_commit_timeout_ms / 1000):
                while replica.core.high_watermark < end:
                    moved.clear()
                    await moved.wait()
        except TimeoutError:
            mark = replica.core.high_watermark
            self._log.warning("groups_not_all_committed", offset=end, high_watermark=mark)
        finally:
            replica.watchers.pop(moved.set, None)

    def _loaded(self) -> None:
        self.loaded = True
        self._counters.loads += 1
        self._tell(Loaded())
        deleted, self._deleted = tuple(self._deleted), []
        if deleted:
            self._tell(TopicsDeleted(deleted))
        self._look()

    async def _open_replica(self) -> Replica:
        """The log that we lead. KafkaError where it can't be had."""
        opening = self._replicas.opening(OFFSETS_TOPIC, None, self.index)
        if opening is not None:
            await opening.wait()
        replica = self._replicas.find(OFFSETS_TOPIC, None, self.index)
        if not isinstance(replica, Replica):
            raise KafkaError(replica, "the log isn't open here")
        if replica.failed:
            raise KafkaError(ErrorCode.kafka_storage_error)
        if not replica.core.is_leader or replica.core.leader_epoch != self.leader_epoch:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        return replica


def _has_long_text(values: tuple[Any, ...]) -> bool:
    """Looks at tuples in tuples, too. A loop, since every request goes through it."""
    for value in values:
        if isinstance(value, str):
            # No character takes more than four bytes.
            if len(value) > LONGEST_TEXT // 4 and len(value.encode()) > LONGEST_TEXT:
                return True
        elif isinstance(value, tuple) and _has_long_text(value):
            return True
    return False


async def _replay(core: Core, items: list[Item]) -> None:
    """Brings records and markers to the core, a few milliseconds of them at a time."""
    for number, item in enumerate(items, 1):
        if isinstance(item, Stored):
            core.replay(*item)
        else:
            core.end_transaction(*item)
        if number % _REPLAYED_AT_ONCE == 0:
            await asyncio.sleep(0)


def _joined(appends: list[Append], limit: int) -> Iterator[list[Append]]:
    """Neighbours that fit in one batch. One append is never parted, nor are transactional ones,
    which name their producer in the batch, joined."""
    together: list[Append] = []
    size = _BATCH_OVERHEAD
    for append in appends:
        added = sum(
            len(one.key) + len(one.value or b"") + _RECORD_OVERHEAD for one in append.records
        )
        alone = append.producer is not None or (together and together[0].producer is not None)
        if together and (alone or size + added > limit):
            yield together
            together, size = [], _BATCH_OVERHEAD
        together.append(append)
        size += added
    if together:
        yield together
