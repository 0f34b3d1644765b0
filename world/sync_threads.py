"""Threads that do nothing but make descriptors durable.

A commit waits for the way to such a thread and back, on one node after the other. What
`loop.run_in_executor` does on that way, futures of two kinds with locks of their own among it,
takes longer than the way itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Generic, NamedTuple, TypeVar

H = TypeVar("H")


class _Job(NamedTuple, Generic[H]):
    handle: H
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


class SyncThreads(Generic[H]):
    """Calls `sync(handle)` in threads, of which there are as many as syncs were ever under way at
    the same time, `most` at most. They end with this object."""

    def __init__(self, sync: Callable[[H], None], most: int) -> None:
        self._sync = sync
        self._most = most
        self._jobs: SimpleQueue[_Job[H] | None] = SimpleQueue()
        self._under_way = 0
        self.threads = 0

    def __del__(self) -> None:
        for _ in range(self.threads):
            self._jobs.put(None)

    async def run(self, handle: H) -> None:
        """Returns when `sync(handle)` has; raises what that raises. A caller who gives up stops
        nothing."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._under_way += 1
        try:
            if self.threads < min(self._under_way, self._most):
                Thread(
                    target=_work, args=(self._jobs, self._sync), name="fdatasync", daemon=True
                ).start()
                self.threads += 1
            self._jobs.put(_Job(handle, loop, done))
            await done
        finally:
            self._under_way -= 1


def _work(jobs: SimpleQueue[_Job[H] | None], sync: Callable[[H], None]) -> None:
    while (job := jobs.get()) is not None:
        failure: Exception | None = None
        try:
            sync(job.handle)
        except Exception as error:  # noqa: BLE001 - it is the caller's
            failure = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            job.loop.call_soon_threadsafe(_settle, job.done, failure)
        del job, failure  # a thread at rest holds no descriptor open


def _settle(done: asyncio.Future[None], failure: Exception | None) -> None:
    if done.done():
        return  # the caller has given up
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)
