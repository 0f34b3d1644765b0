"""The operating system behind the ports of world.env.

fdatasync and directory syncs run in threads of their own, so that a slow disk never holds back
the readers' threads; other blocking work has a small pool.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import gc
import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from world.env import (
    Absent,
    AlreadyLocked,
    Buffer,
    ChanceIds,
    DiskError,
    DiskFull,
    Env,
    File,
    Lock,
    SyncFailed,
)
from world.sync_threads import SyncThreads

# Too many open files is no damage either: it passes, and what is there stays as it is.
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE)
_IOV_MAX = 1024
_BLOCKING_THREADS = 4
# A log has one sync under way at a time; those of several logs don't wait for each other.
_SYNC_THREADS = 4
_RWF_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def _disk_error(path: str, operation: str, error: OSError) -> DiskError:
    reason = error.strerror or str(error)
    if error.errno in _NO_SPACE:
        return DiskFull(path, operation, reason)
    if error.errno == errno.ENOENT:
        return Absent(path, operation, reason)
    return DiskError(path, operation, reason)


class RealClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class _Handle:
    """Owns a descriptor and closes it when the last user, in whatever thread, is done.

    A read in a worker thread holds a reference while it runs, so the number can't be given
    to another file under its feet.
    """

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class RealFile:
    """A file of the operating system (see world.env.File)."""

    __slots__ = ("_allocated", "_disk", "_end", "_handle", "_path")

    def __init__(self, disk: RealDisk, path: str, fd: int) -> None:
        self._disk = disk
        self._path = path
        self._handle: _Handle | None = _Handle(fd)
        self._end = os.fstat(fd).st_size
        self._allocated = self._end

    @property
    def path(self) -> str:
        return self._path

    def renamed(self, path: str) -> None:
        self._path = path

    def _open_handle(self) -> _Handle:
        handle = self._handle
        if handle is None:
            raise DiskError(self._path, "use", "the file is closed")
        return handle

    def size(self) -> int:
        return self._end

    def pread(self, length: int, position: int) -> bytes:
        handle = self._open_handle()
        try:
            data = os.pread(handle.fd, length, position)
            if len(data) == length or not data:
                return data
            parts = [data]
            got = len(data)
            while got < length:  # a signal or the 2 GiB limit of one call
                data = os.pread(handle.fd, length - got, position + got)
                if not data:
                    break
                parts.append(data)
                got += len(data)
            return b"".join(parts)
        except OSError as error:
            raise _disk_error(self._path, "read", error) from error

    def pread_nowait(self, length: int, position: int) -> bytes | None:
        if not self._disk.nowait:
            return self.pread(length, position)
        length = max(0, min(length, self._end - position))
        scratch = bytearray(length)
        count = self.readinto_nowait(scratch, position)
        return None if count is None else bytes(scratch)

    def readinto_nowait(self, buffer: bytearray | memoryview, position: int) -> int | None:
        handle = self._open_handle()
        wanted = max(0, min(len(buffer), self._end - position))
        if not wanted:
            return 0
        flags = _RWF_NOWAIT if self._disk.nowait and _RWF_NOWAIT is not None else 0
        try:
            count = os.preadv(handle.fd, [buffer], position, flags)
        except BlockingIOError:
            return None
        except OSError as error:
            if flags and error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                self._disk.nowait = False  # this file system doesn't know the flag
                return self.readinto_nowait(buffer, position)
            raise _disk_error(self._path, "read", error) from error
        # Pages beyond the ones that were there: the rest would have to wait.
        return None if count < wanted else count

    def append(self, buffers: Sequence[Buffer]) -> int:
        handle = self._open_handle()
        start = self._end
        total = sum(len(buffer) for buffer in buffers)
        try:
            written = os.pwritev(handle.fd, buffers[:_IOV_MAX], start) if total else 0
            if written < total:
                self._write_rest(handle, buffers, written, start, total)
        except OSError as error:
            self._cut_back(handle, start)
            raise _disk_error(self._path, "append to", error) from error
        self._end = start + total
        self._allocated = max(self._allocated, self._end)
        return start

    @staticmethod
    def _write_rest(
        handle: _Handle, buffers: Sequence[Buffer], written: int, start: int, total: int
    ) -> None:
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        skipped = written
        while written < total:
            while skipped >= len(views[0]):
                skipped -= len(views.pop(0))
            views[0] = views[0][skipped:]
            skipped = os.pwritev(handle.fd, views[:_IOV_MAX], start + written)
            if skipped == 0:
                raise OSError(errno.EIO, "write made no progress")
            written += skipped

    def _cut_back(self, handle: _Handle, size: int) -> None:
        try:
            os.ftruncate(handle.fd, size)
            self._allocated = size
        except OSError:
            # The bytes past `size` stay, but are overwritten by the next append and cut by
            # recovery; nothing here ever reads beyond `_end`.
            self._allocated = max(self._allocated, os.fstat(handle.fd).st_size)

    def pwrite(self, data: Buffer, position: int) -> None:
        handle = self._open_handle()
        view = memoryview(data).cast("B")
        done = 0
        try:
            while done < len(view):
                done += os.pwrite(handle.fd, view[done:], position + done)
        except OSError as error:
            raise _disk_error(self._path, "write", error) from error
        self._end = max(self._end, position + len(view))
        self._allocated = max(self._allocated, self._end)

    def allocate(self, size: int) -> None:
        if size <= self._allocated:
            return
        handle = self._open_handle()
        reserve = getattr(os, "posix_fallocate", None)
        try:
            if reserve is not None:
                reserve(handle.fd, self._allocated, size - self._allocated)
            else:
                os.ftruncate(handle.fd, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                self._cut_back(handle, self._end)
                raise _disk_error(self._path, "allocate", error) from error
            os.ftruncate(handle.fd, size)
        self._allocated = size

    def truncate(self, size: int) -> None:
        handle = self._open_handle()
        try:
            os.ftruncate(handle.fd, size)
        except OSError as error:
            raise _disk_error(self._path, "truncate", error) from error
        self._end = self._allocated = size

    async def sync(self) -> None:
        await self._disk.sync_handle(self._open_handle(), self._path)

    def fileno(self) -> int | None:
        return self._open_handle().fd

    def close(self) -> None:
        self._handle = None


class RealLock:
    """A flock on a file."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class RealDisk:
    """The file system (see world.env.Disk). `nowait` says whether RWF_NOWAIT is used."""

    def __init__(self) -> None:
        self.nowait = _RWF_NOWAIT is not None and hasattr(os, "preadv")
        self._sync_threads = SyncThreads(_sync_descriptor, _SYNC_THREADS)

    async def sync_handle(self, handle: _Handle, path: str) -> None:
        """Sync one descriptor in a sync thread. Raises SyncFailed."""
        try:
            await self._sync_threads.run(handle)
        except OSError as error:
            raise SyncFailed(path, "sync", error.strerror or str(error)) from error

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return RealFile(self, path, os.open(path, flags, 0o644))
        except OSError as error:
            raise _disk_error(path, "open", error) from error

    def read_bytes(self, path: str) -> bytes:
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise _disk_error(path, "read", error) from error

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return self._stat(path).st_size

    def mtime_ms(self, path: str) -> int:
        return self._stat(path).st_mtime_ns // 1_000_000

    @staticmethod
    def _stat(path: str) -> os.stat_result:
        try:
            return os.stat(path)
        except OSError as error:
            raise _disk_error(path, "look at", error) from error

    def list_dir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            raise _disk_error(path, "list", error) from error

    def make_dirs(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise _disk_error(path, "create", error) from error

    def rename(self, source: str, target: str) -> None:
        try:
            os.replace(source, target)
        except OSError as error:
            raise _disk_error(source, f"rename to {target}", error) from error

    def remove(self, path: str) -> None:
        try:
            os.remove(path)
        except OSError as error:
            raise _disk_error(path, "remove", error) from error

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _disk_error(path, "remove", error) from error

    async def sync_dir(self, path: str) -> None:
        try:
            handle = _Handle(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise _disk_error(path, "open", error) from error
        await self.sync_handle(handle, path)

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
        await self.sync_dir(os.path.dirname(path) or ".")

    def lock(self, path: str) -> Lock:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _disk_error(path, "open", error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise AlreadyLocked(path, "lock", "another process holds it") from error
            raise _disk_error(path, "lock", error) from error
        return RealLock(fd)


def _sync_descriptor(handle: _Handle) -> None:
    try:
        _fdatasync(handle.fd)
    except OSError as error:
        # Some file systems (and fdatasync on a directory) refuse with EINVAL: full fsync then.
        if error.errno != errno.EINVAL:
            raise
        os.fsync(handle.fd)


def _settle_memory() -> None:
    # Collected first: what is garbage now would be kept for good.
    gc.collect()
    gc.freeze()


def real_env(seed: int | None = None) -> Env:
    """The machine as an Env. `seed` fixes the random source; None draws it from the system."""
    chance = random.Random(seed if seed is not None else int.from_bytes(os.urandom(16), "big"))
    pool = ThreadPoolExecutor(_BLOCKING_THREADS, thread_name_prefix="blocking")

    async def run_blocking(function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, function, *args)

    return Env(
        clock=RealClock(),
        chance=chance,
        ids=ChanceIds(chance),
        disk=RealDisk(),
        run_blocking=run_blocking,
        settle_memory=_settle_memory,
    )
