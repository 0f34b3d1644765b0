"""Virtual time: one scheduler for the world, one asyncio event loop for each life of a node.

A node's code runs unchanged: tasks, futures, timeouts, events, `asyncio.wait`, task groups,
buffered protocols. What it schedules lies in the one `Scheduler`, ordered by (time, number), so
that equal times are told apart by who came first. Times are whole microseconds.

Tasks and futures hash to numbers that their loop counts up, not to addresses: where asyncio keeps
them in sets, their order is the same in every run.
"""

from __future__ import annotations

import asyncio
import heapq
import marshal
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from world.memory import Fenced

if TYPE_CHECKING:
    _EventLoop = Any  # of whose many methods the simulated ones have no need
else:
    _EventLoop = asyncio.AbstractEventLoop

_T = TypeVar("_T")

_STUCK_STEPS = 500_000
_BULK = 8192


class NodeDead(Fenced):
    """Code of a dead process touched the world; nothing of it may go on running."""


class Stuck(Exception):
    """Code ran on and on without waiting for anything: in the real world, a busy loop."""


class Trace:
    """A hash over all that happened, as whole numbers, and the lines of it where `lines` is set."""

    def __init__(self, lines: list[str] | None = None) -> None:
        self.lines = lines
        self._hash = blake2b(digest_size=16)
        self._held: list[int] = []

    def add(self, *numbers: int) -> None:
        """Takes what happened; equal runs add equal numbers in equal order."""
        self._held += numbers
        if len(self._held) >= _BULK:
            self._take()
        if self.lines is not None:
            self.lines.append(" ".join(map(str, numbers)))

    def digest(self) -> str:
        """The hash so far."""
        self._take()
        return self._hash.hexdigest()

    def _take(self) -> None:
        # Version 2 writes no references, which would tell equal numbers from identical ones.
        self._hash.update(marshal.dumps(self._held, 2))
        self._held.clear()


class Handle(asyncio.TimerHandle):
    """A callback that a node's loop, or the world where `loop` is None, has to make.

    `cause` is the number of the story's line that led to it.
    """

    __slots__ = ("cause", "when_us")

    def __init__(
        self,
        when_us: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: NodeLoop | None,
        context: Context | None,
        cause: int,
    ) -> None:
        # The base class's own start is left out: it costs more than all of this.
        self.when_us = when_us
        self.cause = cause
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = False

    def cancel(self) -> None:
        # As asyncio's: what it would have called is let go now. Whoever cancels a timer mostly is
        # what it would have called, and nothing here collects such cycles.
        self._cancelled = True
        self._callback = _nothing
        self._args = ()
        self._context = None

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self.when_us / 1_000_000

    def __repr__(self) -> str:
        return f"<{self.name()} at {self.when_us} us>"

    def name(self) -> str:
        """What is called, for people."""
        owner = getattr(self._callback, "__self__", None)
        if isinstance(owner, asyncio.Task):
            return owner.get_name()
        return getattr(self._callback, "__qualname__", type(self._callback).__name__)


class Scheduler:
    """The world's time and all that is to happen in it.

    `now_us` since the world began. `steps` counts callbacks made in nodes; after each, every
    callable of `on_step` is called with the loop's owner. `failure`, once set, ends the run.
    `cause` is the number of the story's line that what happens now follows from.
    """

    def __init__(self, trace: Trace) -> None:
        self.now_us = 0
        self.steps = 0
        self.cause = 0
        self.failure: Exception | None = None
        self.trace = trace
        self.on_step: list[Callable[[Any], None]] = []
        self._numbers = 0
        self._timers: list[tuple[int, int, Handle]] = []
        self._ready: deque[Handle] = deque()
        # Whose turn it is, as asyncio was told last: telling it costs a system call.
        self._running: NodeLoop | None = None

    @property
    def now_ms(self) -> int:
        """Whole milliseconds since the world began."""
        return self.now_us // 1000

    def at(self, when_us: int, callback: Callable[..., object], *args: Any) -> Handle:
        """Has the world make a call at a time, which is now where it is past."""
        handle = Handle(when_us, callback, args, None, None, self.cause)
        self.plan(handle)
        return handle

    def plan(self, handle: Handle) -> None:
        """Takes a handle for the time that it says."""
        self._numbers += 1
        heapq.heappush(self._timers, (handle.when_us, self._numbers, handle))

    def clear(self) -> None:
        """Nothing is to happen any more."""
        self._timers.clear()
        self._ready.clear()
        self.on_step.clear()

    def soon(self, handle: Handle) -> None:
        """Takes a handle for this instant, behind those that are there."""
        self._ready.append(handle)

    def run_until(self, until_us: int, *, max_steps: int | None = None) -> bool:
        """Makes what is due by `until_us`, that included; False where `max_steps` came first."""
        timers, ready = self._timers, self._ready
        first = self.steps
        try:
            while True:
                if ready:
                    handle = ready.popleft()
                elif timers and timers[0][0] <= until_us:
                    when_us, _, handle = heapq.heappop(timers)
                    if handle._cancelled:
                        continue
                    if when_us > self.now_us:
                        self.now_us = when_us
                        first = self.steps
                else:
                    break
                if not handle._cancelled:
                    self._make(handle)
                    if self.failure is not None:
                        raise self.failure
                    if max_steps is not None and self.steps >= max_steps:
                        return False
                    if self.steps - first > _STUCK_STEPS:
                        raise Stuck(f"{_STUCK_STEPS} callbacks in one instant, the last: {handle}")
        finally:
            self._give_turn(None)
        self.now_us = max(self.now_us, until_us)
        return True

    def _give_turn(self, loop: NodeLoop | None) -> None:
        if loop is not self._running:
            self._running = loop
            events._set_running_loop(loop)

    def _make(self, handle: Handle) -> None:
        loop = handle._loop
        self.cause = handle.cause
        if loop is None:
            self._give_turn(None)
            handle._callback(*handle._args)
            return
        if not loop.may_run(handle):
            return
        self.steps += 1
        self.trace.add(self.now_us, loop.number)
        if self.trace.lines is not None:
            self.trace.lines.append(f"{loop.name} {handle.name()}")
        self._give_turn(loop)
        try:
            handle._context.run(handle._callback, *handle._args)  # type: ignore[union-attr]
        except NodeDead:
            assert loop.dead, f"{loop.name} is alive"
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as any event loop: reported, and on it goes
            loop.call_exception_handler(
                {"message": f"a callback failed: {handle.name()}", "exception": error}
            )
        for call in self.on_step:
            call(loop.owner)


class _NodeFuture(asyncio.Future[_T]):
    """A future whose hash is its number, counted up by its loop when first asked for."""

    _number: int

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            self._number = self.get_loop().next_number()  # type: ignore[attr-defined]
            return self._number


class _NodeTask(asyncio.Task[_T]):
    """A task whose hash is its number, counted up by its loop."""

    _number: int

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            self._number = self.get_loop().next_number()  # type: ignore[attr-defined]
            return self._number


class NodeLoop(_EventLoop):  # type: ignore[misc]
    """The event loop of one life of a process.

    `number` is its machine's, `owner` the machine. `dead` ends it: nothing that was scheduled
    happens any more, and whoever schedules more gets NodeDead. `network` makes connections and
    listeners (see simulation.network.Host). `on_error` takes what asyncio tells a loop's
    exception handler.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        number: int,
        owner: Any,
        *,
        network: Any,
        on_error: Callable[[NodeLoop, dict[str, Any]], None],
    ) -> None:
        self.scheduler = scheduler
        self.number = number
        self.owner = owner
        self.name: str = owner.name
        self.network = network
        self.dead = False
        self._on_error = on_error
        self._context = Context()
        self._paused: list[Handle] | None = None
        self._never_run: list[Handle] = []
        self._numbers = 0
        self._tasks = 0

    # What the world does with it.

    def may_run(self, handle: Handle) -> bool:
        """Whether a handle's time has come; a stopped process makes up for it later."""
        if self.dead:
            # Kept: a task let go would be closed, and its `finally` blocks run, here and now.
            self._never_run.append(handle)
            return False
        if self._paused is not None:
            self._paused.append(handle)
            return False
        return True

    @property
    def paused(self) -> bool:
        """Whether the process stands still."""
        return self._paused is not None

    def pause(self) -> None:
        """Stands still, as after SIGSTOP."""
        if self._paused is None:
            self._paused = []

    def go_on(self) -> None:
        """Goes on, with all that was due meanwhile first."""
        held, self._paused = self._paused or [], None
        for handle in held:
            self.scheduler.soon(handle)

    def call_from_kernel(self, callback: Callable[..., object], *args: Any) -> None:
        """Has the process make a call that its system wakes it for; nothing where it is dead."""
        if not self.dead:
            scheduler = self.scheduler
            scheduler.soon(
                Handle(scheduler.now_us, callback, args, self, self._context, scheduler.cause)
            )

    def next_number(self) -> int:
        """The next hash of a task or future."""
        self._numbers += 1
        return self._numbers

    def check_alive(self) -> None:
        """NodeDead where the process has ended."""
        if self.dead:
            raise NodeDead(self.name)

    # Scheduling.

    def time(self) -> float:
        return self.scheduler.now_us / 1_000_000

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        if self.dead:
            raise NodeDead(self.name)
        scheduler = self.scheduler
        handle = Handle(
            scheduler.now_us, callback, args, self, context or copy_context(), scheduler.cause
        )
        scheduler._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # there are no threads

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        if self.dead:
            raise NodeDead(self.name)
        scheduler = self.scheduler
        when_us = scheduler.now_us + max(0, round(delay * 1_000_000))
        handle = Handle(when_us, callback, args, self, context or copy_context(), scheduler.cause)
        scheduler.plan(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        return self.call_at_us(round(when * 1_000_000), callback, *args, context=context)

    def call_at_us(
        self,
        when_us: int,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        """As call_at, in whole microseconds."""
        if self.dead:
            raise NodeDead(self.name)
        scheduler = self.scheduler
        handle = Handle(when_us, callback, args, self, context or copy_context(), scheduler.cause)
        scheduler.plan(handle)
        return handle

    async def wait_us(self, delay_us: int) -> None:
        """Returns after so many microseconds."""
        future = self.create_future()
        self.call_at_us(self.scheduler.now_us + delay_us, _finish, future)
        await future

    def create_future(self) -> asyncio.Future[Any]:
        return _NodeFuture(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, _T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[_T]:
        if self.dead:
            coro.close()  # it was made just to be run here
            raise NodeDead(self.name)
        if name is None:
            self._tasks += 1
            name = f"task-{self._tasks}"
        return _NodeTask(coro, loop=self, name=name, context=context)

    # Connections.

    async def create_server(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        backlog: int = 100,
    ) -> asyncio.AbstractServer:
        self.check_alive()
        server: asyncio.AbstractServer = self.network.listen(self, protocol_factory, host, port)
        return server

    async def create_connection(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        self.check_alive()
        transport: asyncio.Transport = await self.network.connect(
            self, protocol_factory, host, port
        )
        return transport, transport.get_protocol()

    # What has no place here.

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:
        raise RuntimeError(f"{func!r}: there are no threads in a simulated node, use env")

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> NoReturn:
        raise RuntimeError(f"{host}: names are not resolved in a simulated node")

    # What asyncio asks of a loop.

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self.dead

    def get_debug(self) -> bool:
        return False

    def get_task_factory(self) -> None:
        return None

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.dead:
            self._on_error(self, context)

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: who drops a generator half-way has it closed there and then."""


def _nothing() -> None:
    """In place of a call that is not to be made any more."""


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
