"""The sending half of one connection: parts leave in order, files straight from the page cache."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from net.counters import Counters
from net.frames import BufferPool
from net.handlers import FileRange, Part
from world.env import DiskError, Env

SLICE = 1024 * 1024
"""Bytes read from a file and handed to the transport at a time."""

_SMALL_SLICE = 64 * 1024
_BLOCKED_MAX = 32
"""Each peer that stops reading keeps a slice in memory. With more such peers than this, slices are
small: those that came late hold what the transport takes before it says stop, and no more."""

_JOIN_BELOW = 64 * 1024
"""Pieces that are smaller together leave as one buffer: one copy is cheaper than an iovec."""


class Outbox:
    """What one connection still has to send.

    A file range stays a range until the peer takes it, so a slow reader costs no memory. A page
    that isn't in the cache is read off the loop, and the parts behind it wait for it.
    `on_broken` is called when a range can't be read as promised: the response is then cut in the
    middle and the connection has to end. `on_idle` is called when nothing is left to send.
    `waiting_bytes` counts what waits in memory; file ranges cost none.
    """

    __slots__ = (
        "_cold",
        "_counters",
        "_env",
        "_lent",
        "_on_broken",
        "_on_idle",
        "_paused",
        "_pool",
        "_queue",
        "_reclaim_asked",
        "_transport",
        "closed",
        "waiting_bytes",
    )

    def __init__(
        self,
        env: Env,
        transport: asyncio.WriteTransport,
        pool: BufferPool,
        counters: Counters,
        on_broken: Callable[[str], None],
        on_idle: Callable[[], None],
    ) -> None:
        self._env = env
        self._transport = transport
        self._pool = pool
        self._counters = counters
        self._on_broken = on_broken
        self._on_idle = on_idle
        self._queue: deque[Part] = deque()
        self._lent: list[bytearray] = []
        self._reclaim_asked = False
        self._paused = False
        self._cold: asyncio.Task[None] | None = None
        self.waiting_bytes = 0
        self.closed = False

    @property
    def blocked(self) -> bool:
        """True while the peer, or a cold page, holds up what was added."""
        return self._paused or bool(self._queue)

    def add(self, parts: Iterable[Part]) -> None:
        """Queues parts behind those that wait already; `flush` sends them."""
        for part in parts:
            if type(part) is not FileRange:
                self.waiting_bytes += len(part)
            self._queue.append(part)

    def pause(self) -> None:
        """The transport's buffer is full."""
        if not self._paused and not self.closed:
            self._counters.blocked += 1
            self._paused = True

    def resume(self) -> None:
        """The transport takes bytes again."""
        self._unblock()
        self.flush()
        if not self.blocked:
            self._on_idle()

    def close(self) -> None:
        """Drops what was not sent; nothing is written any more."""
        self.closed = True
        self._unblock()
        self._queue.clear()
        # Lent buffers are dropped, not reused: the transport may still be sending them.
        self._lent.clear()
        self.waiting_bytes = 0
        if self._cold is not None:
            self._cold.cancel()
            self._cold = None

    @property
    def _slice(self) -> int:
        return SLICE if self._counters.blocked < _BLOCKED_MAX else _SMALL_SLICE

    def _unblock(self) -> None:
        if self._paused:
            self._counters.blocked -= 1
            self._paused = False

    def flush(self) -> None:
        """Writes as much as the transport takes now."""
        queue = self._queue
        if self._lent:
            self._reclaim()
        batch: list[bytes | memoryview] = []
        size = 0
        while queue and not self._paused and self._cold is None and not self.closed:
            part = queue.popleft()
            if isinstance(part, FileRange):
                data = self._read_warm(part)
                if data is None:
                    break
            else:
                data = part
                self.waiting_bytes -= len(data)
            batch.append(data)
            size += len(data)
            if size >= _SMALL_SLICE and size >= self._slice:
                self._write(batch, size)
                batch = []
                size = 0
        if batch and not self.closed:
            self._write(batch, size)
        if self._lent and not self._reclaim_asked:
            self._reclaim_asked = True
            asyncio.get_running_loop().call_soon(self._reclaim_soon)

    def _write(self, batch: list[bytes | memoryview], size: int) -> None:
        self._counters.bytes_out += size
        if len(batch) == 1:
            self._transport.write(batch[0])
        elif size < _JOIN_BELOW:
            self._transport.write(b"".join(batch))
        else:
            self._transport.writelines(batch)
        if self._lent:
            self._reclaim()

    def _reclaim(self) -> None:
        """Takes buffers back that the transport has sent whole; until then it may look at them."""
        if self._transport.get_write_buffer_size() == 0:
            for buffer in self._lent:
                self._pool.give(buffer)
            self._lent.clear()

    def _reclaim_soon(self) -> None:
        self._reclaim_asked = False
        if not self.closed:
            self._reclaim()

    def _read_warm(self, part: FileRange) -> memoryview | bytes | None:
        """The next slice of a range without blocking; None when a cold read was started instead."""
        length = min(part.length, self._slice)
        if length == 0:
            return b""
        try:
            buffer = self._pool.take(length)
            view = memoryview(buffer)[:length]
            count = part.file.readinto_nowait(view, part.position)
        except (DiskError, OSError, ValueError) as error:
            self._break(part, str(error))
            return None
        if not count:
            self._pool.give(buffer)
            if count is None:
                self._cold = asyncio.get_running_loop().create_task(self._read_cold(part, length))
            else:
                self._break(part, "the file ends before")
            return None
        self._lent.append(buffer)
        self._advance(part, count)
        return view[:count]

    async def _read_cold(self, part: FileRange, length: int) -> None:
        try:
            data = await self._env.run_blocking(part.file.pread, length, part.position)
        except (DiskError, OSError, ValueError) as error:
            self._cold = None
            self._break(part, str(error))
            return
        self._cold = None
        if self.closed:
            return
        if not data:
            self._break(part, "the file ends before")
            return
        self._advance(part, len(data))
        self._write([data], len(data))
        self.flush()
        if not self.blocked:
            self._on_idle()

    def _advance(self, part: FileRange, done: int) -> None:
        """Puts what is left of a range back at the front."""
        if done < part.length:
            rest = FileRange(part.file, part.position + done, part.length - done)
            self._queue.appendleft(rest)

    def _break(self, part: FileRange, why: str) -> None:
        self._on_broken(
            f"{part.file.path}: {part.length} bytes at {part.position} were promised: {why}"
        )
