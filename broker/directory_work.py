"""Work on the directories of partitions: one at a time for each, so that a topic made again waits
for the old one's end; and few at a time over all, so that thousands of new partitions don't hold up
everything else. What waits costs an entry in a queue, not a task."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

import structlog

from broker.log_store import DirectoryOffline
from broker.tasks import OnFatal, Work, spawn

_AT_ONCE = 8


class DirectoryWork:
    """A queue by directory name; what goes wrong with the work is told to `on_fatal`, but that a
    directory is offline is only logged."""

    def __init__(self, broker_id: int, on_fatal: OnFatal) -> None:
        self._on_fatal = on_fatal
        self._log = structlog.get_logger("broker.replicas").bind(node_id=broker_id)
        self._turns: dict[str, Work] = {}  # the first of a name, in the order of turns
        self._behind: dict[str, deque[Work]] = {}  # what waits for another of its name
        self._running: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    def add(self, name: str, work: Work) -> None:
        """Runs `work` after whatever is to be done with that directory before; not once closed."""
        if self._closed:
            return
        if name in self._turns or name in self._running:
            self._behind.setdefault(name, deque()).append(work)
            return
        self._turns[name] = work
        self._begin()

    async def settled(self) -> None:
        """Until there is nothing left to do."""
        while self._running:
            await asyncio.wait(list(self._running.values()))

    async def close(self) -> None:
        """Until there is nothing left to do; what is added from then on is never done."""
        await self.settled()
        self._closed = True

    def _begin(self) -> None:
        while self._turns and len(self._running) < _AT_ONCE:
            name = next(iter(self._turns))
            work = partial(self._run, name, self._turns.pop(name))
            self._running[name] = spawn(f"replica-{name}", work, self._on_fatal)

    async def _run(self, name: str, work: Work) -> None:
        try:
            # Opening a clean log never waits by itself: here others get their turn.
            await asyncio.sleep(0)
            await work()
        except DirectoryOffline as error:
            self._log.error("replica_offline", directory=name, reason=str(error))
        finally:
            del self._running[name]
            behind = self._behind.get(name)
            if behind:
                self._turns[name] = behind.popleft()
            if not behind:
                self._behind.pop(name, None)
            self._begin()
