"""A broker's life in the eyes of the controller: registration, heartbeats, controlled shutdown.

    STARTING ──caught up──▶ RECOVERY ──logs ready, unfenced──▶ RUNNING
        └────────────────────────┴──────────┬─────────────────────┘
                                            ▼
                              CONTROLLED_SHUTDOWN ──may stop──▶ STOPPED

Heartbeats have a connection of their own, so that nothing else can hold them up (KIP-631).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from broker.config import BrokerConfig
from broker.tasks import OnFatal, spawn
from metadata.features import DIRECTORY_ASSIGNMENT
from metadata.image import MetadataImage
from net.controller_channel import ControllerChannel, ControllerUnreachable
from net.errors import UnsupportedVersion
from wire.apis import ApiKey, ErrorCode
from wire.errors import FatalError
from wire.exits import EXIT_LOG_DIRECTORY_FAILED, EXIT_NOT_REGISTERED
from world.env import Env

_UNKNOWN_TO_CONTROLLER = (ErrorCode.stale_broker_epoch, ErrorCode.broker_id_not_registered)
_IMPATIENT_MS = 10
_SHUTDOWN_POLL_MS = 50
_RETRY_MS = 200


class State(Enum):
    STARTING = "starting"
    RECOVERY = "recovery"
    RUNNING = "running"
    CONTROLLED_SHUTDOWN = "controlled-shutdown"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Identity:
    """What the broker registers. `listeners` are (name, host, port, security protocol)."""

    cluster_id: str
    incarnation_id: UUID
    listeners: tuple[tuple[str, str, int, int], ...]
    directories: tuple[UUID, ...]
    previous_epoch: int = -1
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class BrokerLifecycle:
    """Registers, beats, and ends in a controlled shutdown.

    `metadata_offset` is the last metadata offset applied here. `epoch` is the broker epoch, -1
    before registration. `fenced` is what the controller said last. `on_fatal` gets the error
    that ends the broker. Counters: `heartbeats`, `heartbeat_errors`.
    """

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        channel: ControllerChannel,
        metadata_offset: Callable[[], int],
        on_fatal: OnFatal,
    ) -> None:
        self._env = env
        self._config = config
        self._channel = channel
        self._metadata_offset = metadata_offset
        self._on_fatal = on_fatal
        self._ready = False
        self._offline: dict[UUID, None] = {}  # failed log directories, in order
        self._tell_by_ms: int | None = None  # until then the controller must have heard of them
        self._stale = False
        self._kick = asyncio.Event()
        self._unfenced = asyncio.Event()
        self._may_stop = asyncio.Event()
        self._hurried = False
        self._caught_up = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._log = structlog.get_logger("broker.lifecycle").bind(node_id=config.node_id)
        self.state = State.STARTING
        self.epoch = -1
        self.fenced = True
        self.heartbeats = 0
        self.heartbeat_errors = 0

    def start(self, identity: Identity) -> None:
        """Begins to register and beat, in the background."""
        self._task = spawn("lifecycle", partial(self._run, identity), self._on_fatal)

    def ready(self) -> None:
        """The logs are recovered: the broker may be unfenced from now on."""
        self._ready = True
        self._kick.set()

    async def wait_caught_up(self) -> None:
        """Until the controller says that our metadata holds our registration."""
        await self._caught_up.wait()

    async def wait_unfenced(self) -> None:
        """Until the controller counts this broker in."""
        await self._unfenced.wait()

    def directory_failed(self, directory_id: UUID) -> None:
        """A log directory is offline: the controller hears of it at once, so that others lead what
        was led from there (KIP-858). If it can't be told in log.dir.failure.timeout.ms, the broker
        ends: nobody could reach those partitions."""
        self._offline[directory_id] = None
        self._tell_by_ms = self._env.clock.now_ms() + self._config.log_dir_failure_timeout_ms
        self._kick.set()

    async def controlled_shutdown(self, timeout_ms: int) -> bool:
        """Asks to have our leaderships moved; False if the controller did not let us go in time."""
        if self.epoch < 0 or self._task is None or self._task.done():
            return False
        self.state = State.CONTROLLED_SHUTDOWN
        self._kick.set()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._may_stop.wait()
        except TimeoutError:
            return False
        return not self._hurried

    def hurry(self) -> None:
        """A stop, now under way or later, waits for nobody: our session will tell the others."""
        self._hurried = True
        self._may_stop.set()

    async def close(self) -> None:
        """Stops beating."""
        self.state = State.STOPPED
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def on_image(self, image: MetadataImage) -> None:
        """Looks whether the committed registration lacks our log directories: it was made at a
        metadata.version that has none, and the cluster's has risen since (KIP-858)."""
        known = image.broker(self._config.node_id)
        self._stale = (
            known is not None
            and known.epoch == self.epoch
            and not known.log_dirs
            and image.metadata_version >= DIRECTORY_ASSIGNMENT
        )

    async def _run(self, identity: Identity) -> None:
        await self._register(identity)
        while self.state is not State.STOPPED:
            if self._stale:
                await self._register_again(identity)
            pause_ms = await self._beat()
            self._check_told()
            await self._pause(pause_ms)

    async def _register_again(self, identity: Identity) -> None:
        """One attempt: this incarnation keeps its epoch and state. If it fails, the next heartbeat
        is followed by another, since the image goes on to say so."""
        try:
            answer = await self._ask_registration(
                identity, self._config.broker_session_timeout_ms // 2
            )
        except (ControllerUnreachable, UnsupportedVersion) as error:
            self._log.warning("not_registered_again_yet", reason=str(error))
            return
        if answer.error_code is not ErrorCode.none:
            self._log.warning("registration_refused", error=answer.error_code.name)
            return
        self._stale = False
        self._log.info("registered_again", broker_epoch=answer.broker_epoch)

    async def _ask_registration(self, identity: Identity, timeout_ms: int) -> Any:
        return await self._channel.request(
            ApiKey.BROKER_REGISTRATION,
            lambda v, m: self._build(identity, v, m),
            timeout_ms,
            max_version=4,
        )

    async def _register(self, identity: Identity) -> None:
        clock = self._env.clock
        limit_ms = self._config.initial_broker_registration_timeout_ms
        deadline_ms = clock.now_ms() + limit_ms
        reason = ""
        while (left_ms := deadline_ms - clock.now_ms()) > 0:
            try:
                # Each attempt for itself: a controller that died without a word answers none.
                attempt_ms = min(left_ms, self._config.broker_session_timeout_ms // 2)
                answer = await self._ask_registration(identity, attempt_ms)
            except (ControllerUnreachable, UnsupportedVersion) as error:
                reason = str(error)
            else:
                if answer.error_code is ErrorCode.none:
                    self.epoch = answer.broker_epoch
                    self._log.info("registered", broker_epoch=self.epoch)
                    return
                if reason != answer.error_code.name:
                    self._log.warning("registration_refused", error=answer.error_code.name)
                reason = answer.error_code.name
            await asyncio.sleep(_RETRY_MS / 1000)
        raise FatalError(
            EXIT_NOT_REGISTERED, f"not registered with a controller within {limit_ms} ms: {reason}"
        )

    def _build(self, identity: Identity, version: int, module: Any) -> Any:
        newer: dict[str, Any] = {}
        if version >= 2:
            newer["log_dirs"] = identity.directories
        if version >= 3:
            newer["previous_broker_epoch"] = identity.previous_epoch
        return module.BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=tuple(
                module.Listener(name=name, host=host, port=port, security_protocol=protocol)
                for name, host, port, protocol in identity.listeners
            ),
            features=tuple(
                module.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(identity.features.items())
            ),
            rack=self._config.broker_rack,
            **newer,
        )

    async def _beat(self) -> int:
        """One heartbeat; the milliseconds until the next."""
        stopping = self.state is State.CONTROLLED_SHUTDOWN
        offline = tuple(self._offline)

        def build(version: int, module: Any) -> Any:
            newer: dict[str, Any] = {"offline_log_dirs": offline} if version >= 1 else {}
            return module.BrokerHeartbeatRequest(
                broker_id=self._config.node_id,
                broker_epoch=self.epoch,
                current_metadata_offset=self._metadata_offset(),
                want_fence=not self._ready,
                want_shut_down=stopping,
                **newer,
            )

        self._kick.clear()
        self.heartbeats += 1
        interval_ms = self._config.broker_heartbeat_interval_ms
        try:
            answer = await self._channel.request(
                ApiKey.BROKER_HEARTBEAT,
                build,
                self._config.broker_session_timeout_ms // 2,
                max_version=1,
            )
        except (ControllerUnreachable, UnsupportedVersion) as error:
            self.heartbeat_errors += 1
            self._log.warning("heartbeat_unanswered", reason=str(error))
            return 0
        if answer.error_code is not ErrorCode.none:
            self.heartbeat_errors += 1
            self._log.warning("heartbeat_refused", error=answer.error_code.name)
            if answer.error_code in _UNKNOWN_TO_CONTROLLER:
                # Unregistered under our feet: nobody counts us in until we are started again.
                self.fenced = True
                self._unfenced.clear()
                return interval_ms
            return min(interval_ms, _RETRY_MS)
        if len(offline) == len(self._offline):
            self._tell_by_ms = None
        return self._heard(answer, stopping, interval_ms)

    def _heard(self, answer: Any, stopping: bool, interval_ms: int) -> int:
        self.fenced = answer.is_fenced
        if self.fenced:
            self._unfenced.clear()
        else:
            self._unfenced.set()
        if self.state is State.STARTING and answer.is_caught_up:
            self.state = State.RECOVERY
            self._caught_up.set()
        if self.state is State.RECOVERY and not answer.is_fenced:
            self.state = State.RUNNING
            self._log.info("unfenced", broker_epoch=self.epoch)
        if stopping:
            if answer.should_shut_down:
                self._may_stop.set()
                return interval_ms
            return _SHUTDOWN_POLL_MS
        if self.state is State.STARTING or (self.state is State.RECOVERY and self._ready):
            return _IMPATIENT_MS
        return interval_ms

    def _check_told(self) -> None:
        if self._tell_by_ms is not None and self._env.clock.now_ms() >= self._tell_by_ms:
            raise FatalError(
                EXIT_LOG_DIRECTORY_FAILED,
                "a log directory failed, and no controller could be told so in "
                f"{self._config.log_dir_failure_timeout_ms} ms",
            )

    async def _pause(self, pause_ms: int) -> None:
        """Until the next heartbeat is due, or something makes it due at once."""
        if pause_ms <= 0:
            return
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._kick.wait()
        except TimeoutError:
            return
