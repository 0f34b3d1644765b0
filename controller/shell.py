"""The asyncio side of the controller: requests in, records to the quorum, answers out.

Everything runs on the one loop and nothing here decides. The shell keeps the committed image
(handed in by whoever loads the metadata log) for the moment this node becomes the leader, turns
Kafka requests into events, performs effects in their order, and keeps one timer, for the core's
next deadline.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import structlog

from controller import envelope
from controller.apis import APIS
from controller.config import ControllerConfig
from controller.core import Controller
from controller.describe_cluster import describe_cluster
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
    Principal,
    Reply,
    Tick,
    UpgradeKraftVersion,
)
from controller.metrics import ControllerMetrics, measure
from metadata.configs.describe import MAX_VERSION as CONFIGS_MAX_VERSION
from metadata.configs.describe import MIN_VERSION as CONFIGS_MIN_VERSION
from metadata.configs.describe import describe_configs
from metadata.image import EMPTY, MetadataImage
from metadata.records import Record
from net.handlers import Api, CloseConnection, Frame, HandlerTable, Later, Request
from wire.apis import ApiKey
from wire.errors import DecodeError, ErrorCode, FatalError, KafkaError
from wire.hot import decode_incremental_alter_configs
from wire.messages import RequestHeader
from world.env import DiskError, Env

# By far, where changes are frequent: its requests have a decoder of their own.
_MOST_FREQUENT = int(ApiKey.INCREMENTAL_ALTER_CONFIGS)
# What the quorum itself tells: it knows where its log ends.
_OF_THE_QUORUM = (BecameLeader, LostLeadership, LogEndMoved)


class Quorum(Protocol):
    """What the controller needs of the Raft node."""

    @property
    def end_offset(self) -> int: ...

    def append(self, values: Sequence[bytes], epoch: int) -> tuple[int, int]:
        """(first, last) offset of one atomic batch; raises if not leader of `epoch`."""
        ...

    def resign(self) -> None: ...

    @property
    def kraft_version(self) -> int:
        """The level in force, committed or not."""
        ...

    async def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> None:
        """Raise it; returns when that is committed. KafkaError where it can't be."""
        ...


@dataclass(slots=True)
class _Asked:
    """Where an answer goes; `wrapped` is the client's header if the request was forwarded."""

    later: Later
    wrapped: RequestHeader | None = None


class ControllerShell:
    """One controller of the quorum, active or standby. See the module.

    `listener` is the name of the controller listener, for DescribeCluster; `on_fatal` is told of
    what only a stop can answer; `quorum_apis` are the quorum's own that brokers forward.
    """

    def __init__(
        self,
        env: Env,
        quorum: Quorum,
        config: ControllerConfig,
        *,
        bootstrap: Sequence[Record] = (),
        listener: str = "CONTROLLER",
        on_fatal: Callable[[FatalError], None] | None = None,
        quorum_apis: HandlerTable | None = None,
    ) -> None:
        self._env = env
        self._quorum = quorum
        self._config = config
        self._bootstrap = tuple(bootstrap)
        self._listener = listener
        self._on_fatal = on_fatal
        self._quorum_apis = quorum_apis or HandlerTable()
        self._core = Controller(config, env.chance, env.ids.uuid)
        self._committed = EMPTY
        self._in_transaction = False
        self._leader_id: int | None = None
        self._asked: dict[int, _Asked] = {}
        self._next_token = 0
        self._timer: asyncio.TimerHandle | None = None
        self._upgrades: dict[asyncio.Task[None], None] = {}
        self._timer_at_ms = 0
        self._stopped = False
        self._busy = False
        self._later: deque[Event] = deque()
        self._log = structlog.get_logger("controller").bind(node_id=config.node_id)
        self.metrics = ControllerMetrics()

    # What others may look at.

    @property
    def active(self) -> bool:
        """Whether this node is the active controller."""
        return self._core.active

    @property
    def image(self) -> MetadataImage:
        """The committed image."""
        return self._committed

    @property
    def core(self) -> Controller:
        """The core, for tests and simulation."""
        return self._core

    def apis(self) -> list[Api]:
        """The handlers of the controller listener."""
        table = [
            Api(
                api.key,
                api.min_version,
                api.max_version,
                self._handle,
                max_elements=api.max_elements,
            )
            for _, api in sorted(APIS.items())
        ]
        table.append(Api(ApiKey.ENVELOPE, 0, 0, self._handle_envelope))
        table.append(
            Api(
                ApiKey.DESCRIBE_CONFIGS,
                CONFIGS_MIN_VERSION,
                CONFIGS_MAX_VERSION,
                self._handle_describe_configs,
            )
        )
        table.append(Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, self._handle_describe_cluster))
        return table

    # What the log tells.

    def on_image(self, image: MetadataImage, *, in_transaction: bool = False) -> None:
        """The committed image moved on; `in_transaction` if a metadata transaction is open."""
        self._committed = image
        self._in_transaction = in_transaction

    def on_committed(self, high_watermark: int) -> None:
        """All offsets below are committed: waiting answers leave."""
        if self._core.active:
            self._feed(Committed(high_watermark))
        measure(self.metrics, self._core, self._committed)

    def on_leader_change(self, leader_id: int | None, epoch: int) -> None:
        """The quorum has another leader. If it is this node, the image handed in last holds
        everything before the epoch's own records."""
        self._leader_id = leader_id
        if leader_id == self._config.node_id and not self._stopped:
            self.metrics.activations += 1
            self._log.info("became_active", epoch=epoch)
            self._feed(
                BecameLeader(
                    epoch,
                    self._committed._replace(kraft_version=self._quorum.kraft_version),
                    self._quorum.end_offset,
                    self._bootstrap,
                    self._in_transaction,
                )
            )
        elif self._core.active:
            self._log.info("no_longer_active", epoch=epoch, leader_id=leader_id)
            self._feed(LostLeadership())
        measure(self.metrics, self._core, self._committed)

    def stop(self) -> None:
        """Answers everyone who waits with NOT_CONTROLLER and decides nothing any more."""
        self._stopped = True
        if self._core.active:
            self._feed(LostLeadership())
        for task in list(self._upgrades):
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Requests.

    def _handle(self, request: Request) -> Later:
        key, version = request.api_key, request.api_version
        timeout_ms: int | None = None
        if key == _MOST_FREQUENT:
            entity: Any = decode_incremental_alter_configs(
                version, request.body, request.max_elements
            )
        else:
            entity = request.entity()
            timeout_ms = _timeout_ms(entity)
        later = Later()
        principal = _principal(request.connection.peer)
        self._ask(key, version, entity, principal, timeout_ms, _Asked(later))
        return later

    def _handle_envelope(self, request: Request) -> Any:
        self.metrics.forwarded_requests += 1
        if not self._core.active:
            return envelope.failed(ErrorCode.not_controller)
        entity = request.entity()
        quorums = envelope.for_quorum(entity, request, self._quorum_apis)
        try:
            if quorums is not None:
                return _relay(*quorums)
            inner = envelope.unwrap(entity)
        except DecodeError as error:
            self._log.warning("forwarded_request_malformed", error=str(error))
            return envelope.failed(ErrorCode.invalid_request)
        except KafkaError as error:
            self._log.warning("forwarded_request_refused", error=str(error))
            return envelope.failed(error.code)
        later = Later()
        header = inner.header
        asked = _Asked(later, header)
        timeout_ms = _timeout_ms(inner.entity)
        self._ask(
            header.api_key, header.api_version, inner.entity, inner.principal, timeout_ms, asked
        )
        return later

    def _handle_describe_cluster(self, request: Request) -> Any:
        return describe_cluster(
            request.api_version,
            request.entity(),
            self._committed,
            cluster_id=self._config.cluster_id,
            leader_id=self._leader_id,
            listener=self._listener,
        )

    def _handle_describe_configs(self, request: Request) -> Any:
        return self._describe_configs(request.header, request.entity())

    async def _describe_configs(self, header: RequestHeader, asked: Any) -> Frame:
        config = self._config
        parts = await describe_configs(
            header, asked, self._committed, config.static, config.node_id
        )
        return Frame([*parts])

    def _ask(
        self,
        api_key: int,
        version: int,
        entity: Any,
        principal: Principal,
        timeout_ms: int | None,
        asked: _Asked,
    ) -> None:
        self.metrics.requests += 1
        token = self._next_token
        self._next_token += 1
        self._asked[token] = asked
        try:
            self._feed(ApiRequest(token, api_key, version, entity, principal, timeout_ms))
        except Exception:
            # Our bug. The core is as it was before; the connection that brought it is closed.
            self._asked.pop(token, None)
            raise

    def _reply(self, reply: Reply) -> None:
        asked = self._asked.pop(reply.token)
        if reply.refused is not None:
            self.metrics.refused_requests += 1
        if asked.wrapped is None:
            asked.later.set(reply.entity)
        elif reply.refused is ErrorCode.not_controller:
            asked.later.set(envelope.failed(ErrorCode.not_controller))
        else:
            asked.later.set(envelope.wrap(asked.wrapped, reply.entity))

    # Events in, effects out.

    def _feed(self, event: Event) -> None:
        """One event through the core, and its effects; one that comes while the effects of
        another are performed (a commit within an append, say) has its turn after them."""
        if self._busy:
            self._later.append(event)
            return
        self._busy = True
        try:
            self._step(event)
            while self._later:
                self._step(self._later.popleft())
        finally:
            self._busy = False

    def _step(self, event: Event) -> None:
        """An exception of the core that left it behind or ahead of the log costs the leadership,
        so that a controller with a sound image takes over; one that changed nothing is passed on.
        """
        core = self._core
        now_ms = self._env.clock.now_ms()
        if core.active and not isinstance(event, _OF_THE_QUORUM):
            end_offset = self._quorum.end_offset
            if end_offset < core.next_offset:
                # Another leader has cut our log already: what follows is answered as a standby.
                self._step_down(
                    f"the quorum's log ends at {end_offset}, ours at {core.next_offset}"
                )
            elif end_offset > core.next_offset:
                core.handle(LogEndMoved(end_offset, self._quorum.kraft_version), now_ms)
        before = core.next_offset
        try:
            effects = core.handle(event, now_ms)
        except FatalError as error:
            self._fatal(error)
            return
        except Exception as error:
            self.metrics.core_failures += 1
            if isinstance(event, ApiRequest) and core.next_offset == before:
                raise
            self._log.exception("core_failed", event_type=type(event).__name__)
            self._abdicate(f"the controller failed: {error!r}")
            return
        self._perform(effects)
        self._schedule()

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply():
                    self._reply(effect)
                case AppendRecords():
                    if not self._append(effect):
                        return
                case UpgradeKraftVersion():
                    self._upgrade(effect)
                case Log():
                    self._log.info(effect.event, **dict(effect.fields))

    def _upgrade(self, effect: UpgradeKraftVersion) -> None:
        task = asyncio.get_running_loop().create_task(self._run_upgrade(effect), name="upgrade")
        self._upgrades[task] = None
        task.add_done_callback(self._upgrade_ended)

    async def _run_upgrade(self, effect: UpgradeKraftVersion) -> None:
        error, message = ErrorCode.none, ""
        try:
            await self._quorum.upgrade_kraft_version(
                effect.level, validate_only=effect.validate_only
            )
        except KafkaError as refusal:
            error, message = refusal.code, refusal.message
            if error is ErrorCode.not_leader_or_follower:
                error = ErrorCode.not_controller  # as this request's callers know it
        self._feed(KraftVersionUpgraded(effect.token, error, message))

    def _upgrade_ended(self, task: asyncio.Task[None]) -> None:
        del self._upgrades[task]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log.error("upgrade_failed", exc_info=error)

    def _append(self, effect: AppendRecords) -> bool:
        """Whether the quorum took the records at the offset that the core gave them."""
        try:
            base_offset, _ = self._quorum.append(effect.values, effect.epoch)
        except FatalError as error:
            self._fatal(error)
            return False
        except Exception as error:
            # The core is ahead of the log now. Not being the leader any more or a full disk are
            # to be expected; anything else is our bug and must be heard.
            self._abdicate(f"records could not be appended: {error}")
            if isinstance(error, KafkaError | DiskError):
                return False
            raise
        self.metrics.records_appended += len(effect.values)
        if base_offset != effect.base_offset:
            self._abdicate(
                f"records meant for offset {effect.base_offset} went to offset {base_offset}"
            )
            return False
        return True

    def _abdicate(self, reason: str) -> None:
        """Gives up the leadership in the middle of an event's effects. Whoever waits hears
        NOT_CONTROLLER; whose answer was among the effects that are dropped loses the connection.
        """
        self._step_down(reason)
        for token in sorted(self._asked):
            self._asked.pop(token).later.fail(CloseConnection(reason))

    def _step_down(self, reason: str) -> None:
        self.metrics.resignations += 1
        self._log.warning("resigns", reason=reason)
        self._perform(self._core.handle(LostLeadership(), self._env.clock.now_ms()))
        self._schedule()
        self._quorum.resign()

    def _fatal(self, error: FatalError) -> None:
        self._log.critical("controller_cannot_go_on", reason=error.reason)
        if self._on_fatal is None:
            raise error
        self._on_fatal(error)

    # Time.

    def _schedule(self) -> None:
        """Has the next tick come when the core wants it (an early one does no harm)."""
        deadline_ms = self._core.next_deadline_ms()
        if deadline_ms is None or self._stopped:
            return
        if self._timer is not None:
            if self._timer_at_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self._env.clock.now_ms())
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._feed(Tick())
        measure(self.metrics, self._core, self._committed)


def _timeout_ms(entity: Any) -> int | None:
    """How long the caller waits, where its request says so."""
    timeout = getattr(entity, "timeout", None)
    return None if timeout is None else int(timeout.total_seconds() * 1000)


@lru_cache(maxsize=1_000)
def _principal(peer: Any) -> Principal:
    """Who asks, by the address of its connection."""
    return Principal(host=str(peer[0]) if isinstance(peer, tuple) and peer else "")


def _relay(api: Api, inner: Request) -> Later:
    """The answer of a handler that knows nothing of envelopes, in one."""
    wrapped = Later()

    def answered(reply: Any) -> None:
        if isinstance(reply, Exception):
            wrapped.fail(reply)
        else:
            wrapped.set(envelope.wrap(inner.header, reply))

    reply = api.handle(inner)
    if isinstance(reply, Later):
        reply.bind(answered)
    else:
        answered(reply)
    return wrapped
