"""What brokers tell the controller of partitions: gathered while one request is in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from uuid import UUID

import structlog

from broker.tasks import OnFatal, spawn
from net.controller_channel import ControllerChannel, ControllerUnreachable
from net.errors import UnsupportedVersion
from wire.apis import ApiKey, ErrorCode

Key = tuple[UUID, int]
"""Topic id and partition."""

_T = TypeVar("_T")

_TIMEOUT_MS = 30_000


class ControllerQueue(Generic[_T]):
    """One API's requests to the active controller, at most one in flight, of at most `most` items.

    `build(version, module, items)` makes the request of {key: item}, `answered(items, response)` is
    told of an answer without an error of the whole. Where there is none, the items are sent again
    after `retry_ms`. A later item of a partition replaces one that has no answer yet, which is
    therefore never heard of. `sent` and `failed` count requests.
    """

    def __init__(
        self,
        channel: ControllerChannel,
        api_key: ApiKey,
        build: Callable[[int, Any, dict[Key, _T]], Any],
        answered: Callable[[dict[Key, _T], Any], None],
        on_fatal: OnFatal,
        *,
        most: int,
        retry_ms: int,
    ) -> None:
        self._channel = channel
        self._api_key = api_key
        self._build = build
        self._answered = answered
        self._on_fatal = on_fatal
        self._most = most
        self._retry_ms = retry_ms
        self._waiting: dict[Key, _T] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._log = structlog.get_logger("broker.controller_queue").bind(api=api_key.name)
        self.sent = 0
        self.failed = 0

    def submit(self, topic_id: UUID, partition: int, item: _T) -> None:
        """Takes an item; it leaves in this turn of the loop or after the request in flight."""
        self._waiting[topic_id, partition] = item
        if self._task is None and not self._closed:
            self._task = spawn(self._api_key.name, self._run, self._on_fatal)

    async def close(self) -> None:
        """Forgets what was not answered."""
        self._closed = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                keys = list(self._waiting)[: self._most]
                items = {key: self._waiting.pop(key) for key in keys}
                response = await self._send(items)
                if response is not None:
                    self._answered(items, response)
                    continue
                # Newer items win over those that come back.
                self._waiting = {**items, **self._waiting}
                self.failed += 1
                await asyncio.sleep(self._retry_ms / 1000)
        finally:
            self._task = None

    async def _send(self, items: dict[Key, _T]) -> Any:
        """The response, None if the whole request came to nothing."""
        self.sent += 1
        try:
            response = await self._channel.request(
                self._api_key, lambda v, m: self._build(v, m, items), _TIMEOUT_MS
            )
        except (ControllerUnreachable, UnsupportedVersion) as error:
            self._log.warning("controller_request_failed", reason=str(error))
            return None
        if response.error_code is not ErrorCode.none:
            self._log.warning("controller_request_refused", error=response.error_code.name)
            return None
        return response


def by_topic(items: dict[Key, _T]) -> dict[UUID, list[tuple[int, _T]]]:
    """The items grouped as requests name them: per topic, with their partitions."""
    grouped: dict[UUID, list[tuple[int, _T]]] = {}
    for (topic_id, partition), item in items.items():
        grouped.setdefault(topic_id, []).append((partition, item))
    return grouped
