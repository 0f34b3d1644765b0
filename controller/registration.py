"""Each controller's own entry in the metadata: where it listens and what it supports (KIP-919)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol
from uuid import UUID

import structlog

from metadata.features import CONTROLLER_REGISTRATION
from metadata.image import MetadataImage
from net.errors import NetworkError
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from world.env import Env

_TIMEOUT_MS = 5_000
_FIRST_BACKOFF_MS = 50
_LAST_BACKOFF_MS = 2_000

Listener = tuple[str, str, int, int]
"""(name, host, port, security protocol)."""


class ControllerCall(Protocol):
    """A request to the active controller, wherever that is; KafkaError or NetworkError if none."""

    def __call__(
        self, api_key: int, build: Callable[[int, Any], Any], timeout_ms: int
    ) -> Awaitable[Any]: ...


class ControllerRegistrar:
    """Registers this incarnation once, and again whenever the image holds another one.

    `attempts` counts what was sent.
    """

    def __init__(
        self,
        env: Env,
        node_id: int,
        incarnation_id: UUID,
        listeners: tuple[Listener, ...],
        features: Mapping[str, tuple[int, int]],
        call: ControllerCall,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._listeners = listeners
        self._features = features
        self._call = call
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.attempts = 0
        self._log = structlog.get_logger("controller.registration").bind(node_id=node_id)

    def on_image(self, image: MetadataImage) -> None:
        """Looks whether the committed image knows this incarnation."""
        known = image.controllers.get(self._node_id)
        registered = known is not None and known.incarnation_id == self._incarnation_id
        if registered or image.metadata_version < CONTROLLER_REGISTRATION:
            self._wanted.clear()
        else:
            self._wanted.set()

    def start(self) -> None:
        """Begins to register, in the background."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="registration")

    async def close(self) -> None:
        """Stops trying."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        backoff_ms = _FIRST_BACKOFF_MS
        while True:
            await self._wanted.wait()
            if await self._register():
                # The committed record will come by `on_image`; don't ask again before.
                self._wanted.clear()
                backoff_ms = _FIRST_BACKOFF_MS
                continue
            await asyncio.sleep(backoff_ms * (0.5 + self._env.chance.random() / 2) / 1000)
            backoff_ms = min(2 * backoff_ms, _LAST_BACKOFF_MS)

    async def _register(self) -> bool:
        self.attempts += 1
        try:
            answer = await self._call(ApiKey.CONTROLLER_REGISTRATION, self._build, _TIMEOUT_MS)
        except (NetworkError, KafkaError) as error:
            self._log.info("not_registered_yet", reason=str(error))
            return False
        if answer.error_code is not ErrorCode.none:
            self._log.warning("registration_refused", error=answer.error_code.name)
            return False
        return True

    def _build(self, version: int, module: Any) -> Any:
        return module.ControllerRegistrationRequest(
            controller_id=self._node_id,
            incarnation_id=self._incarnation_id,
            zk_migration_ready=False,
            listeners=tuple(
                module.Listener(name=name, host=host, port=port, security_protocol=protocol)
                for name, host, port, protocol in self._listeners
            ),
            features=tuple(
                module.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(self._features.items())
            ),
        )
