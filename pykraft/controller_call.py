"""Requests of this process to the active controller: for the gRPC door and for registration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

from broker.controller_channel import ControllerChannel, ControllerUnreachable
from wire.errors import ErrorCode, KafkaError
from world.env import Env

_PAUSE_MS = 20


class ActiveController:
    """The way to whoever is the active controller; see `admin.ports.ControllerCall`."""

    def __init__(
        self, env: Env, endpoint: Callable[[], tuple[int, str, int] | None], client_id: str
    ) -> None:
        self._env = env
        self._channel = ControllerChannel(env, endpoint, client_id)

    def changed(self) -> None:
        """There may be another active controller."""
        self._channel.endpoint_changed()

    async def call(
        self, api_key: int, build: Callable[[int, ModuleType], Any], timeout_ms: int
    ) -> Any:
        """The answer of an active controller.

        A standby refuses each item on its own where the response has no error of the whole; such
        an answer is asked for again too. KafkaError NOT_CONTROLLER after `timeout_ms`.
        """
        deadline_ms = self._env.clock.now_ms() + timeout_ms
        while True:
            left_ms = max(1, deadline_ms - self._env.clock.now_ms())
            try:
                answer = await self._channel.request(api_key, build, left_ms)
            except ControllerUnreachable as error:
                raise KafkaError(ErrorCode.not_controller, str(error)) from error
            if not _is_refusal(answer):
                return answer
            if self._env.clock.now_ms() + _PAUSE_MS >= deadline_ms:
                raise KafkaError(
                    ErrorCode.not_controller,
                    f"no active controller answered within {timeout_ms} ms",
                )
            await asyncio.sleep(_PAUSE_MS / 1000)

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()


def _is_refusal(answer: Any) -> bool:
    """Whether the first item says NOT_CONTROLLER: a standby says so of every item."""
    if not is_dataclass(answer):
        return False
    for field in fields(answer):
        value = getattr(answer, field.name)
        if isinstance(value, tuple) and value:
            code = getattr(value[0], "error_code", None)
            return code is ErrorCode.not_controller
    return False
