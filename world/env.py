"""The ports through which a node reaches the world.

Nothing in the product reads a clock, draws a random number or touches a file in any other
way, so that a test or a simulation can put its own world underneath an unchanged node.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

Buffer = bytes | bytearray | memoryview


class DiskError(Exception):
    """The disk refused an operation; what was there before is unchanged unless said otherwise.

    `path` is the file, `operation` a verb for the message, `reason` the system's text.
    """

    def __init__(self, path: str, operation: str, reason: str) -> None:
        super().__init__(f"{operation} {path}: {reason}")
        self.path = path
        self.operation = operation
        self.reason = reason


class Absent(DiskError):
    """Nothing is there under that path. Where a node relies on it, its disk lost it or was taken
    away: a failure as any other, unless it looks for this first."""


class DiskFull(DiskError):
    """No space, quota or file handle is left; the file is as it was before the call."""


class SyncFailed(DiskError):
    """fdatasync failed. Earlier writes may be lost although they can still be read.

    A later sync that succeeds says nothing about them, so the only safe answer is to stop
    using what this process believes to be on the disk.
    """


class AlreadyLocked(DiskError):
    """Another process holds the lock."""


class Clock(Protocol):
    """Two clocks: one that only counts, one that tells the date."""

    def now_ms(self) -> int:
        """Milliseconds on a monotonic clock with an arbitrary start."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump."""
        ...


class Ids(Protocol):
    """Source of fresh identities."""

    def uuid(self) -> UUID:
        """A random UUID that is not one of Kafka's reserved ones and whose 22 character
        base64 form does not begin with '-' (it must be usable as a command line value)."""
        ...


class Lock(Protocol):
    """An exclusive hold on a path, until released or the process ends."""

    def release(self) -> None: ...


class File(Protocol):
    """An open file: positioned reads, appends, and an awaited sync.

    `size()` is the place where the next `append` goes. A file made longer by `allocate` has
    zeros beyond it, until `truncate(size())` trims them; reopened, it has its full length.
    Methods that are not coroutines may be called from a worker thread for reading only, or if
    nobody else knows the file.
    """

    @property
    def path(self) -> str:
        """Where the file was opened (or last told to have moved, see `renamed`)."""
        ...

    def renamed(self, path: str) -> None:
        """Tell the handle that its file has a new name (only messages depend on it)."""
        ...

    def size(self) -> int: ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes at `position`; shorter only at the end of the file."""
        ...

    def pread_nowait(self, length: int, position: int) -> bytes | None:
        """As `pread`, but None if that would have to wait for the disk for any of it."""
        ...

    def readinto_nowait(self, buffer: bytearray | memoryview, position: int) -> int | None:
        """Fill `buffer` from `position`, but for what is behind the file's end; the count of bytes,
        or None if it would wait for any of them."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers, one after the other, at the end; the position of the first byte.

        All or nothing: if it fails the file is cut back to what it was.
        Raises DiskFull or DiskError.
        """
        ...

    def pwrite(self, data: Buffer, position: int) -> None:
        """Overwrite (or extend) at `position`. Raises DiskFull or DiskError."""
        ...

    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long with zeros beyond its present end; `size()` stays."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, reserved zeros included."""
        ...

    async def sync(self) -> None:
        """Return when everything written before the call is durable. Raises SyncFailed."""
        ...

    def fileno(self) -> int | None:
        """The descriptor, for sendfile; None where there is none."""
        ...

    def close(self) -> None:
        """Give the file up; reads running in other threads still end well. Repeatable."""
        ...


class Disk(Protocol):
    """Names and files. Errors are DiskError, and Absent of them for what is not there."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. With `create` an absent file is made, empty."""
        ...

    def read_bytes(self, path: str) -> bytes: ...
    def exists(self, path: str) -> bool: ...
    def is_dir(self, path: str) -> bool: ...
    def size(self, path: str) -> int: ...
    def mtime_ms(self, path: str) -> int: ...

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def make_dirs(self, path: str) -> None:
        """Make a directory and those above it; fine if it exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename within one directory; replaces a file of the target name."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all it holds; fine if it is absent."""
        ...

    async def sync_dir(self, path: str) -> None:
        """Return when the directory's entries (files made, renamed, removed) are durable."""
        ...

    async def replace(self, path: str, data: bytes) -> None:
        """Give `path` the content `data`, atomically and durably.

        Writes `<path>.tmp`, syncs it, renames it and syncs the directory.
        """
        ...

    def lock(self, path: str) -> Lock:
        """Take the exclusive lock file at `path`, made if absent. Raises AlreadyLocked."""
        ...


@dataclass(frozen=True, slots=True)
class Env:
    """All that a node may touch.

    `run_blocking(fn, *args)` runs a function on a small pool of threads and returns its
    result; the function must touch nothing that the event loop also changes. `settle_memory()`
    says that much was built that stands for long: the collector need not look at it again.
    """

    clock: Clock
    chance: random.Random
    ids: Ids
    disk: Disk
    run_blocking: Callable[..., Awaitable[Any]]
    settle_memory: Callable[[], None] = lambda: None


class ChanceIds:
    """Ids drawn from a random source."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def uuid(self) -> UUID:
        while True:
            drawn = UUID(int=self._chance.getrandbits(128), version=4)
            # The first six bits are the first base64 letter: 62 is '-'. Kafka's reserved ids
            # are small numbers, which a version 4 id never is.
            if drawn.int >> 122 != 62:
                return drawn
