"""Makes the synced offset durable itself, a second behind the log.

Its file is written after each fsync of the log. An fsync of its own every time would double what a
commit costs, so the first move starts a clock instead: a second later the file is synced, beside
the log's own syncs and waited for by nobody. That is once a second while the log moves, once more
after its last move, and never while it stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raft.metadata_log import MetadataLog
from world.env import DiskError

DELAY_S = 1.0


class Hardening:
    """Of one open log. `on_error` is told if the disk refuses: it has lost what it was given."""

    def __init__(self, log: MetadataLog, on_error: Callable[[DiskError], None]) -> None:
        self._log = log
        self._on_error = on_error
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def moved(self) -> None:
        """The synced offset was written: have it durable a second from now, if it isn't to be."""
        if self._timer is None and self._task is None:
            self._timer = asyncio.get_running_loop().call_later(DELAY_S, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._harden(), name="raft-harden")
        self._task.add_done_callback(self._ended)

    async def _harden(self) -> None:
        try:
            await self._log.harden()
        except DiskError as error:
            self._on_error(error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not self._log.hardened:
            self.moved()  # written to meanwhile

    async def close(self) -> None:
        """Plan nothing more; a sync that has begun is waited for."""
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
