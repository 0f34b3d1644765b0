"""A simulated machine's disk and clocks: time for every sync, and all that may go wrong.

The bytes and the crash model are those of `world.memory`: the page cache survives a killed
process but is not durable; a power loss takes unsynced writes whole, in part, or by sectors.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn
from zlib import crc32

from simulation.loop import NodeDead, NodeLoop, Scheduler
from simulation.world import World
from world.memory import Media

WALL_MS = 1_790_000_000_000
"""The wall clock's date when a world begins."""

_CODES = {
    "append": 1,
    "write": 2,
    "allocate": 3,
    "truncate": 4,
    "sync": 5,
    "create": 6,
    "make directory": 7,
    "rename": 8,
    "remove": 9,
    "remove directory": 10,
    "sync directory": 11,
}


class MachineClock:
    """A machine's two clocks: one that counts since an arbitrary start, one that may be moved."""

    def __init__(self, scheduler: Scheduler, start_ms: int) -> None:
        self._scheduler = scheduler
        self._start_us = start_ms * 1000
        self.offset_ms = 0

    def now_ms(self) -> int:
        return (self._scheduler.now_us + self._start_us) // 1000

    def wall_ms(self) -> int:
        return WALL_MS + self._scheduler.now_us // 1000 + self.offset_ms


class MachineDisk:
    """The disk of one machine: `media`, and how long things take on it.

    `ends_here` is asked before each operation whether the process dies at it, `end` ends it.
    `changes` counts the operations that left something behind.
    """

    def __init__(self, world: World, name: str, number: int, clock: MachineClock) -> None:
        self.media = Media(clock)
        self._world = world
        self._number = number
        self._chance: random.Random = world.chance(f"disk {name}")
        self._busy_until_us = 0
        self._extra_us = 0
        self._extra_until_us = 0
        self._loop: NodeLoop | None = None
        self._ends_here: Callable[[], bool] = bool
        self._end: Callable[[], NoReturn]
        self._jobs: dict[int, Callable[[], object]] = {}
        self._job_numbers = 0
        self._left: int | None = None
        self.changes = 0

    def attach(
        self, loop: NodeLoop, ends_here: Callable[[], bool], end: Callable[[], NoReturn]
    ) -> None:
        """From now on the process of `loop` uses the disk."""
        self._loop, self._ends_here, self._end = loop, ends_here, end
        self._busy_until_us = 0
        self._left = None
        self.media.wait_for_sync = self._sync_time
        self.media.before_change = self._before_change

    def slow_syncs(self, extra_us: int, until_us: int) -> None:
        """Each sync takes up to so much longer, until then."""
        self._extra_us, self._extra_until_us = extra_us, until_us

    @property
    def backlog_ms(self) -> int:
        """How long a sync that begins now waits for those that are under way."""
        return max(0, self._busy_until_us - self._world.scheduler.now_us) // 1000

    async def run_blocking(self, function: Callable[..., Any], *args: Any) -> Any:
        """Does blocking work at the end of the time that it takes; see `break_off`."""
        loop = self._loop
        assert loop is not None
        loop.check_alive()
        self._job_numbers += 1
        number = self._job_numbers
        done = loop.create_future()

        def work() -> None:
            del self._jobs[number]
            try:
                result = function(*args)
            except Exception as error:  # noqa: BLE001 - it is the caller's
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)

        self._jobs[number] = partial(function, *args)
        took_us = self._chance.randrange(30, 2_000)
        # A cancelled caller doesn't stop the thread.
        loop.call_at_us(self._world.scheduler.now_us + took_us, work)
        return await done

    def break_off(self) -> None:
        """The process dies: blocking work that is under way gets so far as chance has it."""
        jobs = list(self._jobs.values())
        self._jobs.clear()
        for job in jobs:
            self._left = self._chance.randrange(4)
            with suppress(BaseException):  # whatever it is, its process is dead
                job()
        self._left = 0

    def lose_power(self) -> None:
        """What is not durable is lost, as chance decides; and nothing is cached any more."""
        self.media.lose_power(self._chance)
        self.media.faults.cold, self.media.faults.patchy = True, False

    def warms_up(self) -> bool:
        """A process starts: reads find nothing in the cache for a while, if power was lost, and
        for as long after that not all pages."""
        if self.media.faults.cold:
            warm_us = self._chance.choice((0, 1_000_000, 8_000_000))
            self._in(warm_us, partial(self._warm, warm_us))
        return self.media.faults.cold

    def _warm(self, warm_us: int) -> None:
        faults = self.media.faults
        faults.cold, faults.patchy = False, True
        self._in(warm_us, self._all_warm)

    def _all_warm(self) -> None:
        self.media.faults.patchy = False

    def _in(self, wait_us: int, then: Callable[[], None]) -> None:
        self._world.scheduler.at(self._world.scheduler.now_us + wait_us, then)

    async def _sync_time(self, path: str) -> None:
        loop = self._loop
        assert loop is not None
        now_us = self._world.scheduler.now_us
        took_us = self._chance.randrange(80, 600)
        if self._chance.random() < 0.01:
            took_us += self._chance.randrange(1_000, 20_000)
        if self._extra_until_us > now_us:
            took_us += self._chance.randrange(self._extra_us // 2, self._extra_us + 1)
        # One thread syncs: who comes later waits.
        self._busy_until_us = max(now_us, self._busy_until_us) + took_us
        await loop.wait_us(self._busy_until_us - now_us)

    def _before_change(self, operation: str, path: str, position: int, data: bytes) -> None:
        if self._left is not None:
            if not self._left:
                raise NodeDead(path)
            self._left -= 1
        elif self._ends_here():
            if operation in ("append", "write"):
                # A write that the end of its process cut short.
                kept = self._chance.randrange(len(data) + 1)
                self.media.write_part(path, position, data[:kept])
            self._end()
        self.changes += 1
        self._world.trace.add(
            self._number, _CODES[operation], crc32(path.encode()), position, crc32(data)
        )
