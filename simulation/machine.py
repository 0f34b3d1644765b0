"""Machines: what survives a process, and the ways in which a process ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NoReturn

from pykraft.node import Node
from simulation.disk import MachineClock, MachineDisk
from simulation.loop import NodeDead, NodeLoop
from simulation.network import Network
from simulation.world import World
from wire.errors import FatalError
from wire.exits import EXIT_LOG_DIRECTORY_FAILED, EXIT_METADATA_DISK_FAILED
from world.env import ChanceIds, DiskError, Env

Main = Callable[["Machine", Env], Coroutine[Any, Any, None]]
OnError = Callable[["Machine", str, BaseException | None], None]

_DISK_EXITS = (EXIT_LOG_DIRECTORY_FAILED, EXIT_METADATA_DISK_FAILED)


def _disk_failed(error: BaseException) -> bool:
    """Whether a process ended because its disk refused something: nothing else may end one."""
    if isinstance(error, FatalError):
        return error.exit_code in _DISK_EXITS
    return isinstance(error, DiskError)


class Machine:
    """One machine, its disk and its address; a process of `main` runs on it or doesn't.

    Its monotonic clock begins by chance, or at `clock_start_ms` when the world does.

    `node` is the process's node while there is one. `running` tells whether a process lives,
    `powered` whether the machine has power. `exit` is what the last process ended with by itself,
    None where it was ended from outside or stopped in order. `lives` counts processes. `main` may
    set `on_stop`, which is called in the process when it is told to stop.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        name: str,
        number: int,
        main: Main,
        on_error: OnError,
        *,
        clock_start_ms: int | None = None,
    ) -> None:
        self.name = name
        self.host = network.add(name)
        self.number = number
        if clock_start_ms is None:
            clock_start_ms = world.chance(f"machine {name}").randrange(1_000, 100_000_000)
        self.clock = MachineClock(world.scheduler, clock_start_ms)
        self.machine_disk = MachineDisk(world, name, number, self.clock)
        self.node: Node | None = None
        self.loop: NodeLoop | None = None
        self.env: Env | None = None
        self.exit: BaseException | None = None
        self.lives = 0
        self.on_stop: Callable[[], object] | None = None
        self._world = world
        self._main = main
        self._on_error = on_error
        self._process: asyncio.Task[None] | None = None
        # Operations left, with power.
        self._doom: tuple[int, bool | Callable[[], bool]] | None = None
        # Whether the disk refused something in this life, or may have.
        self._disk_harmed = False
        # Dead loops are kept: let go, their tasks would be closed, and run on, at any moment.
        self._graveyard: list[NodeLoop] = []
        self.host.before_operation = self._before_operation

    @property
    def disk(self) -> Any:
        """The memory media (world.memory.Media)."""
        return self.machine_disk.media

    @property
    def running(self) -> bool:
        return self.loop is not None

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Gives power if there is none, and starts a process if none runs."""
        self.host.up = True
        if self.loop is not None:
            return
        self.lives += 1
        self.exit = None
        self.on_stop = None
        faults = self.disk.faults
        self._disk_harmed = faults.space_left is not None or faults.failing_syncs > 0
        world = self._world
        loop = self.loop = NodeLoop(
            world.scheduler, self.number, self, network=self.host, on_error=self._loop_error
        )
        if self.machine_disk.warms_up():
            world.count("cold caches")
        disk = self.disk.mount()
        self.machine_disk.attach(loop, self._ends_here, self._end_here)
        chance = world.chance(f"{self.name} life {self.lives}")
        env = self.env = Env(
            clock=self.clock,
            chance=chance,
            ids=ChanceIds(chance),
            disk=disk,
            run_blocking=self.machine_disk.run_blocking,
        )
        if self.lives > 1:
            world.count("restarts")
        world.tell(self.name, f"starts, life {self.lives}")
        self._process = loop.create_task(self._main(self, env), name="main")
        self._process.add_done_callback(self._over)

    def kill(self, power: bool | Callable[[], bool] = False, ops: int | None = None) -> None:
        """Ends the process as SIGKILL does, or with `power` the machine; with `ops` at the n-th
        of its next operations on disk and network. A callable `power` is asked when it happens.
        """
        if ops is not None:
            if self.loop is not None:
                self._doom = max(0, ops), power
            return
        if callable(power):
            power = power()
        if self.loop is None:
            if power and self.host.up:
                self._lose_power()
            return
        self._world.count("power cuts" if power else "kills")
        self._world.tell(self.name, "loses power" if power else "is killed")
        self._end(power=power)

    def stop(self) -> None:
        """A controlled shutdown, as after SIGTERM; it takes its time."""
        if self.loop is not None and self.on_stop is not None:
            self._world.count("stops")
            self._world.tell(self.name, "is told to stop")
            self.loop.call_from_kernel(self.on_stop)

    def pause(self, ms: int) -> None:
        """The process stands still for so long, as between SIGSTOP and SIGCONT."""
        loop = self.loop
        if loop is None or loop.paused:
            return
        self._world.count("pauses")
        self._world.tell(self.name, f"stands still for {ms} ms")
        loop.pause()
        self._world.scheduler.at(self._world.scheduler.now_us + ms * 1000, self._go_on, loop)

    def _go_on(self, loop: NodeLoop) -> None:
        if not loop.dead and loop.paused:
            self._world.tell(self.name, "goes on")
            loop.go_on()

    # -- what goes wrong ---------------------------------------------------------------------

    def clock_jump(self, ms: int) -> None:
        """The wall clock is moved."""
        self._world.count("clock jumps")
        self._world.tell(self.name, f"wall clock jumps by {ms} ms")
        self.clock.offset_ms += ms

    def set_clock(self) -> None:
        """The wall clock is put right."""
        self.clock.offset_ms = 0

    def slow_fsync(self, ms: int, until_ms: int | None = None) -> None:
        """Each sync takes up to `ms` longer, until then or for good."""
        if ms:
            self._world.count("slow syncs")
        self._world.tell(self.name, f"syncs take up to {ms} ms longer")
        until_us = 2**62 if until_ms is None else until_ms * 1000
        self.machine_disk.slow_syncs(ms * 1000, until_us)

    def fill_disk(self, left: int = 0) -> None:
        """Only `left` more bytes find room."""
        self._world.count("disks full")
        self._world.tell(self.name, f"{left} bytes are left on the disk")
        self.disk.faults.space_left = left
        self._disk_harmed = True

    def free_disk(self) -> None:
        """There is room again."""
        self._world.tell(self.name, "the disk has room")
        self.disk.faults.space_left = None

    def fail_sync(self, count: int = 1) -> None:
        """The next syncs of files fail, and lose what they were to make durable."""
        self._world.count("failed syncs")
        self._world.tell(self.name, f"the next {count} syncs fail")
        self.disk.faults.failing_syncs = count
        self._disk_harmed = True

    def flip_bit(self, path: str, position: int, mask: int = 1) -> None:
        """Damages a byte of a file, durably."""
        self._world.count("flipped bits")
        self._world.tell(self.name, f"{path}: byte {position} is changed by {mask:#x}")
        self.disk.flip(path, position, mask)

    # -- inside ------------------------------------------------------------------------------

    def _before_operation(self, operation: str) -> None:
        if self._doom is not None and self._ends_here():
            self._end_here()

    def _ends_here(self) -> bool:
        """Whether the process dies at the operation that it is about to begin."""
        if self._doom is None:
            return False
        left, power = self._doom
        self._doom = left - 1, power
        return left <= 0

    def _end_here(self) -> NoReturn:
        assert self._doom is not None
        power = self._doom[1]
        if callable(power):
            power = power()
        self._world.count("power cuts" if power else "kills")
        self._world.count("deaths within a step")
        self._world.tell(self.name, "loses power half-way" if power else "is killed half-way")
        self._end(power=power)
        raise NodeDead(self.name)

    def _over(self, task: asyncio.Task[None]) -> None:
        """The process has come to its own end."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, NodeDead) or self.loop is None:
            return
        self.exit = error
        if error is None:
            self._world.tell(self.name, "has stopped")
        else:
            reason = getattr(error, "reason", str(error))
            self._world.count("exits")
            self._world.tell(self.name, f"exits: {reason}")
            if not _disk_failed(error):
                self._on_error(self, "the process crashed", error)
            elif not self._disk_harmed:
                self._on_error(self, "its disk is sound, and was said to have failed", error)
        self._end(power=False, in_order=error is None)

    def _loop_error(self, loop: NodeLoop, context: dict[str, Any]) -> None:
        self._on_error(self, str(context.get("message")), context.get("exception"))

    def _end(self, *, power: bool, in_order: bool = False) -> None:
        loop = self.loop
        assert loop is not None
        if not in_order:
            self._world.count("unclean shutdowns")
        self._doom = None
        self.machine_disk.break_off()
        loop.dead = True
        self._graveyard.append(loop)
        self.loop = self.node = self.env = None
        self.host.process_ended(power=power)
        if power:
            self._lose_power()
        else:
            self.disk.kill()

    def _lose_power(self) -> None:
        self.host.up = False
        self.machine_disk.lose_power()

    def let_go(self) -> None:
        """The world ends: all of every process is forgotten, and nothing of it runs on.

        What its tasks do when they are closed is stopped by the first thing that they touch.
        """
        loops, self._graveyard = self._graveyard, []
        if self.loop is not None:
            loops.append(self.loop)
        for loop in loops:
            loop.dead = True
            for task in asyncio.all_tasks(loop):
                with suppress(BaseException):
                    task.get_coro().close()
        self.loop = self.node = self.env = self.on_stop = self._process = None
