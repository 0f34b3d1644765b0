"""Cuts a stream of bytes into Kafka frames: a four-byte big-endian size, then that many bytes.

Memory follows the bytes that arrived, never the size that a stranger announced.
"""

from __future__ import annotations

from struct import Struct
from typing import NoReturn

from wire.errors import DecodeError

_SIZE = Struct(">i")
PREFIX = 4
_SMALLEST = 16 * 1024
_LARGEST_POOLED = 4 * 1024 * 1024


class BufferPool:
    """Private receive buffers kept for reuse: touching fresh memory costs more than filling it."""

    __slots__ = ("_free", "_held", "_limit")

    def __init__(self, limit_bytes: int = 16 * 1024 * 1024) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self._held = 0
        self._limit = limit_bytes

    def take(self, length: int) -> bytearray:
        """A buffer of at least `length` bytes with any content."""
        if length > _LARGEST_POOLED:
            return bytearray(length)
        size = max(_SMALLEST, 1 << (length - 1).bit_length())
        free = self._free.get(size)
        if free:
            self._held -= size
            return free.pop()
        return bytearray(size)

    def give(self, buffer: bytearray) -> None:
        """Takes a buffer back; the giver holds no view of it any more."""
        size = len(buffer)
        if size <= _LARGEST_POOLED and self._held + size <= self._limit:
            self._free.setdefault(size, []).append(buffer)
            self._held += size


class FrameReader:
    """The receiving half of one connection.

    While no frame is incomplete, bytes land in `scratch`, which many connections share (a read
    and its handling are one uninterrupted step). An incomplete frame moves to a private buffer
    that at most doubles with the bytes that arrive, and never reaches beyond the frame's end.

    Per read: `get_buffer`, `received(n)`, `next_frame` until None, `keep_rest`.
    """

    __slots__ = ("_end", "_max", "_pool", "_private", "_scratch", "_start", "_view")

    def __init__(
        self, scratch: bytearray, max_frame_bytes: int, pool: BufferPool | None = None
    ) -> None:
        self._scratch = memoryview(scratch)
        self._max = max_frame_bytes
        self._pool = pool
        self._private: bytearray | None = None
        self._view = self._scratch
        self._start = 0
        self._end = 0

    @property
    def pending(self) -> int:
        """Bytes received and not yet handed out."""
        return self._end - self._start

    @property
    def has_frame(self) -> bool:
        """True when `next_frame` wouldn't return None (it may raise)."""
        left = self._end - self._start
        if left < PREFIX:
            return False
        size: int = _SIZE.unpack_from(self._view, self._start)[0]
        return left >= PREFIX + size or size > self._max

    def get_buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._private is None:
            return self._scratch
        total = self._announced()
        if self._end == len(self._view) and self._end < total:
            self._move(min(total, 2 * self._end))
        limit = min(total, len(self._view))
        assert self._end < limit, "whole frames are taken before more is read"
        return self._view[self._end : limit]

    def received(self, count: int) -> None:
        """`count` bytes were written at the start of the last `get_buffer`."""
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size prefix, None when there is none yet.

        The view is valid until `keep_rest`. Raises DecodeError for a size below 0 or above the
        limit; nothing can be read from the stream after that.
        """
        start = self._start
        if self._end - start < PREFIX:
            return None
        size: int = _SIZE.unpack_from(self._view, start)[0]
        if not 0 <= size <= self._max:
            self._refuse(size)
        stop = start + PREFIX + size
        if stop > self._end:
            return None
        self._start = stop
        return self._view[start + PREFIX : stop]

    def next_owned(self) -> memoryview | None:
        """Like `next_frame`, for a caller who keeps the frame: its own memory, read-only."""
        frame = self.next_frame()
        if frame is None:
            return None
        if self._private is not None and self._start == self._end:
            # The private buffer held this frame alone: it goes with it.
            self._private = None
            self._view = self._scratch
            self._start = self._end = 0
            return frame.toreadonly()
        return memoryview(bytes(frame))

    def keep_rest(self) -> None:
        """Ends a read: what is left over is kept, the shared scratch is free for others."""
        left = self._end - self._start
        if left == 0 and self._private is None:
            self._start = self._end = 0
        elif left == 0:
            self.release()
        elif self._private is None:
            self._move(max(left, min(self._announced(), 2 * left)))
        elif self._start > 0:
            self._view[:left] = self._view[self._start : self._end]
            self._start, self._end = 0, left

    def release(self) -> None:
        """Drops everything that was received."""
        if self._private is not None and self._pool is not None:
            self._pool.give(self._private)
        self._private = None
        self._view = self._scratch
        self._start = self._end = 0

    def _size_at(self, position: int) -> int:
        size: int = _SIZE.unpack_from(self._view, position)[0]
        if not 0 <= size <= self._max:
            self._refuse(size)
        return size

    def _refuse(self, size: int) -> NoReturn:
        if size < 0:
            raise DecodeError(f"a frame of {size} bytes was announced")
        raise DecodeError(f"a frame of {size} bytes was announced, at most {self._max} are allowed")

    def _announced(self) -> int:
        """Length of the frame at the start, prefix included, or of the prefix if that is cut."""
        if self._end - self._start < PREFIX:
            return PREFIX
        return PREFIX + self._size_at(self._start)

    def _move(self, length: int) -> None:
        """Moves what was received to the start of a private buffer of `length` bytes or more."""
        fresh = self._pool.take(length) if self._pool is not None else bytearray(length)
        left = self._end - self._start
        view = memoryview(fresh)
        view[:left] = self._view[self._start : self._end]
        old = self._private
        self._private, self._view, self._start, self._end = fresh, view, 0, left
        if old is not None and self._pool is not None:
            self._pool.give(old)
