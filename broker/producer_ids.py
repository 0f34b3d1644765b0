"""Producer ids: blocks from the controller, the next one fetched before this one is used up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from net.controller_channel import ControllerChannel, ControllerUnreachable
from net.errors import UnsupportedVersion
from wire.apis import ApiKey, ErrorCode
from wire.errors import KafkaError

_PREFETCH_AT = 0.9


class ProducerIds:
    """Hands out producer ids, each once in the cluster's life (KIP-730)."""

    def __init__(
        self, channel: ControllerChannel, broker_id: int, broker_epoch: Callable[[], int]
    ) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._next = 0
        self._end = 0
        self._prefetch_at = 0
        self._following: tuple[int, int] | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def next(self, timeout_ms: int) -> int:
        """A fresh id. Raises KafkaError: the controller can't be reached or refuses."""
        while self._next >= self._end:
            if self._following is not None:
                start, self._end = self._following
                self._next, self._following = start, None
                self._prefetch_at = start + int((self._end - start) * _PREFETCH_AT)
                break
            fetching = self._fetch(timeout_ms)
            await asyncio.wait([fetching])
            if fetching.cancelled():
                raise KafkaError(ErrorCode.coordinator_load_in_progress, "the broker is stopping")
            fetching.result()
        taken = self._next
        self._next += 1
        if self._next >= self._prefetch_at and self._following is None:
            self._fetch(timeout_ms)
        return taken

    async def close(self) -> None:
        """Ends a fetch in flight."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])

    def _fetch(self, timeout_ms: int) -> asyncio.Task[None]:
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.get_running_loop().create_task(self._allocate(timeout_ms))
            self._fetching.add_done_callback(_look_at_error)
        return self._fetching

    async def _allocate(self, timeout_ms: int) -> None:
        def build(version: int, module: Any) -> Any:
            return module.AllocateProducerIdsRequest(
                broker_id=self._broker_id, broker_epoch=self._broker_epoch()
            )

        try:
            answer = await self._channel.request(ApiKey.ALLOCATE_PRODUCER_IDS, build, timeout_ms)
        except (ControllerUnreachable, UnsupportedVersion) as error:
            # Retriable for every client that asks for an id.
            raise KafkaError(ErrorCode.coordinator_load_in_progress, str(error)) from error
        if answer.error_code is not ErrorCode.none:
            raise KafkaError(ErrorCode.coordinator_load_in_progress, answer.error_code.name)
        start = answer.producer_id_start
        self._following = (start, start + answer.producer_id_len)


def _look_at_error(task: asyncio.Task[None]) -> None:
    """A failed fetch that nobody waits for any more, or yet, is no failure: whoever needs the next
    block asks again."""
    if not task.cancelled():
        task.exception()
