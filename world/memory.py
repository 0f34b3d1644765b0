"""An in-memory world: a clock that is set by hand and a disk that can lose power.

The disk keeps, per file, the bytes that are durable and the ordered operations that are not
yet; per directory, the entries that are durable and the ordered changes that are not. A
power loss keeps, as the seed decides, all, none or a mixture of a file's pending writes (a
write may be torn between sectors of 512 bytes), and some first part of each directory's
pending changes. A killed process loses nothing of what it wrote, but that is still not
durable.

`Media` is the hardware: it survives. `MemoryDisk` is one process's view of it: after a kill
or a power loss the old views raise `Fenced`, and `Media.mount()` gives the next.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from world.env import (
    Absent,
    AlreadyLocked,
    Buffer,
    ChanceIds,
    Clock,
    DiskError,
    DiskFull,
    Env,
    File,
    Lock,
    SyncFailed,
)

SECTOR = 512
_PAGE = 4_096


class Fenced(BaseException):
    """Code of a dead process touched its disk; nothing of it may go on running."""


class ManualClock:
    """A clock that stands still until told otherwise; times in milliseconds."""

    def __init__(self, now_ms: int = 0, wall_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._wall_ms = wall_ms

    def now_ms(self) -> int:
        return self._now_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms
        self._wall_ms += ms


class Faults:
    """What goes wrong next. All fields may be changed at any time.

    - `space_left`: bytes that may still be written, then DiskFull; None is no limit.
    - `failing_syncs`: so many syncs of files fail, and what they covered is never durable.
    - `failing_reads`: so many reads fail with DiskError.
    - `cold`: `pread_nowait` finds nothing in the page cache.
    - `patchy`: it finds every other page there.
    """

    def __init__(self) -> None:
        self.space_left: int | None = None
        self.failing_syncs = 0
        self.failing_reads = 0
        self.cold = False
        self.patchy = False


class _Inode:
    """A file's bytes: as seen (`content`), as durable, and the operations in between.

    An operation is (position, bytes) for a write, (size, None) for a change of length.
    """

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []
        self.settled = 0  # operations that are no longer pending, ever
        self.mtime_ms = 0

    def do(self, position: int, data: bytes | None) -> None:
        _apply(self.content, position, data)
        self.pending.append((position, data))

    def harden(self, count: int) -> None:
        for position, data in self.pending[:count]:
            _apply(self.durable, position, data)
        self.drop(count)

    def drop(self, count: int) -> None:
        self.settled += len(self.pending[:count])
        del self.pending[:count]

    def lose_power(self, chance: random.Random) -> None:
        fate = chance.randrange(3)
        if fate == 1:
            self.harden(len(self.pending))
        elif fate == 2:
            for position, data in self.pending:
                if chance.random() < 0.5:
                    _apply_torn(self.durable, position, data, chance)
        self.pending.clear()
        self.content = bytearray(self.durable)


def _apply(target: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        if position <= len(target):
            del target[position:]
        else:
            target.extend(bytes(position - len(target)))
        return
    if position > len(target):
        target.extend(bytes(position - len(target)))
    target[position : position + len(data)] = data


def _apply_torn(
    target: bytearray, position: int, data: bytes | None, chance: random.Random
) -> None:
    if data is None or chance.random() < 0.3:
        _apply(target, position, data)
        return
    if chance.random() < 0.5:  # only a first part got there, whole sectors of it
        kept = chance.randrange(len(data) // SECTOR + 1) * SECTOR
        _apply(target, position, data[:kept])
        return
    # The length got there; each sector on its own.
    _apply(target, max(len(target), position + len(data)), None)
    start = position
    end = position + len(data)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        if chance.random() < 0.5:
            _apply(target, start, data[start - position : stop - position])
        start = stop


class _Directory:
    """Entries as seen, as durable, and the ordered changes in between.

    A change is a tuple of (name, node or None for removed): a rename is one change of two
    names, so it is never seen half.
    """

    def __init__(self) -> None:
        self.entries: dict[str, _Inode | _Directory] = {}
        self.durable: dict[str, _Inode | _Directory] = {}
        self.journal: list[tuple[tuple[str, _Inode | _Directory | None], ...]] = []
        self.settled = 0

    def change(self, *changes: tuple[str, _Inode | _Directory | None]) -> None:
        _change_entries(self.entries, changes)
        self.journal.append(changes)

    def harden(self, count: int) -> None:
        for changes in self.journal[:count]:
            _change_entries(self.durable, changes)
        self.settled += len(self.journal[:count])
        del self.journal[:count]

    def lose_power(self, chance: random.Random) -> None:
        self.harden(chance.randrange(len(self.journal) + 1))
        self.journal.clear()
        self.entries = dict(self.durable)
        for name in sorted(self.entries):
            self.entries[name].lose_power(chance)


def _change_entries(
    entries: dict[str, _Inode | _Directory],
    changes: tuple[tuple[str, _Inode | _Directory | None], ...],
) -> None:
    for name, node in changes:
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class Media:
    """The hardware behind any number of mounts, one after the other.

    `clock` stamps files. `wait_for_sync`, if given, is awaited inside every sync, so that
    a test can hold one back; `faults` is what goes wrong. `before_change` is called with each
    operation that leaves something behind, before it does: its name, the path, and the position
    and bytes of a write; what it raises is raised to the operation's caller.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        wait_for_sync: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self.clock: Clock = clock or ManualClock()
        self.wait_for_sync = wait_for_sync
        self.before_change: Callable[[str, str, int, bytes], None] = _nobody_watches
        self.faults = Faults()
        self.root = _Directory()
        self.incarnation = 0
        self.locked: dict[str, int] = {}
        self.sync_count = 0
        self._names_of: dict[str, list[str]] = {}

    def mount(self) -> MemoryDisk:
        """A view for a new process; older views are fenced."""
        self.incarnation += 1
        return MemoryDisk(self)

    def kill(self) -> None:
        """End the process that uses the disk; what it wrote stays."""
        self.incarnation += 1
        self.locked.clear()

    def lose_power(self, chance: random.Random) -> None:
        """End the process and lose what is not durable, as `chance` decides."""
        self.kill()
        self.root.lose_power(chance)

    def flip(self, path: str, position: int, mask: int = 1) -> None:
        """Damage one byte, durably and without leaving a trace."""
        node = self.find(path)
        assert isinstance(node, _Inode), path
        node.drop(len(node.pending))
        node.content[position] ^= mask
        node.durable = bytearray(node.content)

    def wipe(self) -> None:
        """Another disk, empty, in its place; nobody waits or watches any more."""
        self.kill()
        self.root = _Directory()
        self.faults = Faults()
        self.wait_for_sync = None
        self.before_change = _nobody_watches

    def write_part(self, path: str, position: int, data: bytes) -> None:
        """A write that its process did not live to finish: so much of it got there."""
        node = self.find(path)
        if isinstance(node, _Inode):
            node.do(position, data)

    def files(self) -> list[str]:
        """The paths of all files there are, sorted."""
        return sorted(_files_below(self.root, ""))

    def names(self, path: str) -> list[str]:
        """The names that a path is made of, not to be changed; the same paths come again and
        again."""
        names = self._names_of.get(path)
        if names is None:
            names = self._names_of[path] = _names(path)
        return names

    def find(self, path: str) -> _Inode | _Directory | None:
        """What is at a path, None where nothing is."""
        node: _Inode | _Directory | None = self.root
        for name in self.names(path):
            if not isinstance(node, _Directory):
                return None
            node = node.entries.get(name)
        return node


def _nobody_watches(operation: str, path: str, position: int, data: bytes) -> None:
    """What `before_change` is unless somebody sets it."""


def _files_below(directory: _Directory, path: str) -> Iterator[str]:
    for name, node in directory.entries.items():
        if isinstance(node, _Directory):
            yield from _files_below(node, f"{path}/{name}")
        else:
            yield f"{path}/{name}"


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


class MemoryFile:
    """An open file of a `Media` (see world.env.File)."""

    def __init__(self, media: Media, path: str, inode: _Inode) -> None:
        self._media = media
        self._incarnation = media.incarnation
        self._path = path
        self._inode = inode
        self._end = len(inode.content)
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    def renamed(self, path: str) -> None:
        self._path = path

    def _check(self) -> None:
        if self._incarnation != self._media.incarnation:
            raise Fenced(self._path)
        if self._closed:
            raise DiskError(self._path, "use", "the file is closed")

    def size(self) -> int:
        return self._end

    def pread(self, length: int, position: int) -> bytes:
        self._check()
        faults = self._media.faults
        if faults.failing_reads:
            faults.failing_reads -= 1
            raise DiskError(self._path, "read", "Input/output error")
        return bytes(memoryview(self._inode.content)[position : position + length])

    def pread_nowait(self, length: int, position: int) -> bytes | None:
        length = max(0, min(length, self._end - position))
        faults = self._media.faults
        first, last = position // _PAGE, (position + length - 1) // _PAGE
        if faults.cold or (faults.patchy and length and (first % 2 or last > first)):
            return None
        return self.pread(length, position)

    def readinto_nowait(self, buffer: bytearray | memoryview, position: int) -> int | None:
        data = self.pread_nowait(len(buffer), position)
        if data is None:
            return None
        buffer[: len(data)] = data
        return len(data)

    def _reserve(self, count: int, operation: str) -> None:
        faults = self._media.faults
        if faults.space_left is None:
            return
        if count > faults.space_left:
            raise DiskFull(self._path, operation, "No space left on device")
        faults.space_left -= count

    def append(self, buffers: Sequence[Buffer]) -> int:
        self._check()
        start = self._end
        data = b"".join(buffers)
        self._media.before_change("append", self._path, start, data)
        try:
            self._reserve(len(data), "append to")
        except DiskFull:
            # As a real short write: some of it lands, then is cut off again.
            self._inode.do(start, data[: len(data) // 2])
            self._inode.do(start, None)
            raise
        self._inode.do(start, data)
        self._inode.mtime_ms = self._media.clock.wall_ms()
        self._end = start + len(data)
        return start

    def pwrite(self, data: Buffer, position: int) -> None:
        self._check()
        copy = bytes(data)
        self._media.before_change("write", self._path, position, copy)
        self._reserve(max(0, position + len(copy) - self._end), "write")
        self._inode.do(position, copy)
        self._inode.mtime_ms = self._media.clock.wall_ms()
        self._end = max(self._end, position + len(copy))

    def allocate(self, size: int) -> None:
        self._check()
        self._media.before_change("allocate", self._path, size, b"")
        if size > len(self._inode.content):
            self._reserve(size - len(self._inode.content), "allocate")
            self._inode.do(size, None)

    def truncate(self, size: int) -> None:
        self._check()
        self._media.before_change("truncate", self._path, size, b"")
        self._inode.do(size, None)
        self._inode.mtime_ms = self._media.clock.wall_ms()
        self._end = size

    async def sync(self) -> None:
        self._check()
        inode, media = self._inode, self._media
        media.before_change("sync", self._path, 0, b"")
        last = inode.settled + len(inode.pending)
        if media.wait_for_sync is not None:
            await media.wait_for_sync(self._path)
            if self._incarnation != media.incarnation:
                raise Fenced(self._path)
        # What was written while the sync was on its way isn't covered.
        covered = max(0, last - inode.settled)
        if media.faults.failing_syncs:
            media.faults.failing_syncs -= 1
            inode.drop(covered)  # Linux drops dirty pages whose write-back failed
            raise SyncFailed(self._path, "sync", "Input/output error")
        inode.harden(covered)
        media.sync_count += 1

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        self._closed = True


class MemoryLock:
    """A lock of a `Media`."""

    def __init__(self, media: Media, path: str) -> None:
        self._media = media
        self._path = path

    def release(self) -> None:
        self._media.locked.pop(self._path, None)


class MemoryDisk:
    """One process's view of a `Media` (see world.env.Disk); a new Media if none is given."""

    def __init__(self, media: Media | None = None) -> None:
        self.media = media or Media()
        self._incarnation = self.media.incarnation

    def crash(self, chance: random.Random) -> MemoryDisk:
        """Lose power; the view of the process that is started next."""
        self.media.lose_power(chance)
        return self.media.mount()

    def _check(self) -> None:
        if self._incarnation != self.media.incarnation:
            raise Fenced("the disk")

    def _find(self, path: str) -> _Inode | _Directory:
        self._check()
        node = self.media.find(path)
        if node is None:
            raise Absent(path, "find", "No such file or directory")
        return node

    def _inode(self, path: str) -> _Inode:
        node = self._find(path)
        if not isinstance(node, _Inode):
            raise DiskError(path, "open", "Is a directory")
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise DiskError(path, "list", "Not a directory")
        return node

    def _split(self, path: str) -> tuple[_Directory, str]:
        above, _, name = path.rstrip("/").rpartition("/")
        return self._directory(above), name

    def open(self, path: str, *, create: bool = False) -> File:
        self._check()
        if create and self.media.find(path) is None:
            self.media.before_change("create", path, 0, b"")
            directory, name = self._split(path)
            inode = _Inode()
            inode.mtime_ms = self.media.clock.wall_ms()
            directory.change((name, inode))
        return MemoryFile(self.media, path, self._inode(path))

    def read_bytes(self, path: str) -> bytes:
        return bytes(self._inode(path).content)

    def exists(self, path: str) -> bool:
        self._check()
        return self.media.find(path) is not None

    def is_dir(self, path: str) -> bool:
        self._check()
        return isinstance(self.media.find(path), _Directory)

    def size(self, path: str) -> int:
        return len(self._inode(path).content)

    def mtime_ms(self, path: str) -> int:
        return self._inode(path).mtime_ms

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._directory(path).entries)

    def make_dirs(self, path: str) -> None:
        self._check()
        node = self.media.root
        for name in _names(path):
            child = node.entries.get(name)
            if child is None:
                self.media.before_change("make directory", path, 0, b"")
                child = _Directory()
                node.change((name, child))
            if not isinstance(child, _Directory):
                raise DiskError(path, "create", "Not a directory")
            node = child

    def rename(self, source: str, target: str) -> None:
        node = self._find(source)
        directory, old_name = self._split(source)
        other, new_name = self._split(target)
        if directory is not other:
            raise DiskError(source, f"rename to {target}", "Not within one directory")
        if isinstance(other.entries.get(new_name), _Directory) and node is not other:
            raise DiskError(source, f"rename to {target}", "Directory exists")
        self.media.before_change("rename", source, 0, target.encode())
        directory.change((old_name, None), (new_name, node))

    def remove(self, path: str) -> None:
        self._inode(path)
        self.media.before_change("remove", path, 0, b"")
        directory, name = self._split(path)
        directory.change((name, None))

    def remove_tree(self, path: str) -> None:
        self._check()
        if self.media.find(path) is None:
            return
        inner = self._directory(path)
        for name in sorted(inner.entries):
            if isinstance(inner.entries[name], _Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self.media.before_change("remove", f"{path}/{name}", 0, b"")
                inner.change((name, None))
        self.media.before_change("remove directory", path, 0, b"")
        directory, name = self._split(path)
        directory.change((name, None))

    async def sync_dir(self, path: str) -> None:
        directory = self._directory(path)
        self.media.before_change("sync directory", path, 0, b"")
        last = directory.settled + len(directory.journal)
        if self.media.wait_for_sync is not None:
            await self.media.wait_for_sync(path)
            self._check()
        directory.harden(max(0, last - directory.settled))

    async def replace(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.append([data])
            await file.sync()
        finally:
            file.close()
        self.rename(temporary, path)
        await self.sync_dir("/".join(path.split("/")[:-1]) or "/")

    def lock(self, path: str) -> Lock:
        self._check()
        if path in self.media.locked:
            raise AlreadyLocked(path, "lock", "another process holds it")
        self.open(path, create=True).close()
        self.media.locked[path] = self.media.incarnation
        return MemoryLock(self.media, path)


def memory_env(
    seed: int = 0, disk: MemoryDisk | None = None, clock: ManualClock | None = None
) -> Env:
    """An Env in memory: a manual clock, a seeded random source, blocking work done at once."""
    chance = random.Random(seed)
    disk = disk or MemoryDisk(Media(clock))

    async def run_blocking(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    return Env(
        clock=clock or disk.media.clock,
        chance=chance,
        ids=ChanceIds(chance),
        disk=disk,
        run_blocking=run_blocking,
    )
