"""What of a log is durable, and making more of it so."""

from __future__ import annotations

import asyncio

from sortedcontainers import SortedDict

from storage.epochs import LeaderEpochs
from storage.errors import LogClosed
from storage.names import LEADER_EPOCHS
from storage.segment import Segment
from wire import checkpoints
from world.env import Disk, DiskError


class _Flush:
    """A flush on its way; truncation lowers what it may claim."""

    __slots__ = ("target",)

    def __init__(self, target: int) -> None:
        self.target = target


class Flusher:
    """Keeps the recovery point of one log: all below it is durable.

    `unsynced_paths`: side files written but not synced. `directory_changed`: files were made,
    renamed or removed. `fell`: truncation lowered the recovery point and nobody wrote it down
    yet. Segments and epochs stay their owner's, who says when it has `closed` the log: from then
    on its directory may be another log's.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: SortedDict[int, Segment],
        epochs: LeaderEpochs,
        recovery_point: int,
        unsynced_paths: list[str],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._epochs = epochs
        self.recovery_point = recovery_point
        self.unsynced_paths = unsynced_paths
        self.directory_changed = False
        self.fell = False
        self.closed = False
        self._flushes: list[_Flush] = []
        self._side_files_done: asyncio.Event | None = None

    def cut(self, end_offset: int) -> None:
        """The log was truncated: what is written from there on is not durable."""
        if end_offset < self.recovery_point:
            self.recovery_point = end_offset
            self.fell = True
        for flush in self._flushes:
            flush.target = min(flush.target, end_offset)
        self.directory_changed = True

    async def flush(self, end_offset: int) -> None:
        """Raise the recovery point to `end_offset`, the log's end now. Calls may overlap.

        Raises SyncFailed: nothing may be assumed durable then; another DiskError where the disk is
        gone; LogClosed where the log was closed meanwhile.
        """
        flush = _Flush(end_offset)
        self._flushes.append(flush)
        try:
            await self._sync_files()
            self.recovery_point = max(self.recovery_point, flush.target)
        except DiskError:
            self._check_open()
            raise
        finally:
            self._flushes.remove(flush)

    def is_done(self, end_offset: int) -> bool:
        """Whether a flush now would find nothing to do, nor anything to wait for."""
        if self._flushes or self.recovery_point < end_offset:
            return False
        if self.unsynced_paths or self._epochs.dirty or self.directory_changed:
            return False
        # Those before were synced when the point passed them, but for the trimming of the last.
        return all(
            segment.synced_changes >= segment.changes for segment in self._segments.values()[-2:]
        )

    def _check_open(self) -> None:
        if self.closed:
            raise LogClosed(self._directory)

    async def _sync_files(self) -> None:
        segments = list(self._segments.values())
        first = max(0, self._segments.bisect_right(self.recovery_point) - 1)
        # All of the one before may be durable but for its trimming, when it was preallocated: zeros
        # that come back look like its torn end to who reads it again.
        while first > 0 and segments[first - 1].synced_changes < segments[first - 1].changes:
            first -= 1
        for segment in segments[first:]:
            await self._sync_segment(segment)
        # One at a time, and nobody is done before what was begun for all is done.
        while self._side_files_done is not None:
            await self._side_files_done.wait()
        self._check_open()
        if self.unsynced_paths or self._epochs.dirty or self.directory_changed:
            self._side_files_done = asyncio.Event()
            try:
                await self._sync_side_files()
            finally:
                self._side_files_done.set()
                self._side_files_done = None

    async def _sync_segment(self, segment: Segment) -> None:
        covered = segment.changes
        if segment.synced_changes < covered:
            await segment.file.sync()
            segment.synced_changes = max(segment.synced_changes, covered)

    async def _sync_side_files(self) -> None:
        # What is written to while it is synced counts as unsynced still.
        paths, self.unsynced_paths = list(dict.fromkeys(self.unsynced_paths)), []
        try:
            while paths:
                if self._disk.exists(paths[-1]):
                    file = self._disk.open(paths[-1])
                    try:
                        await file.sync()
                    finally:
                        file.close()
                paths.pop()
        finally:
            self.unsynced_paths += paths
        self._check_open()
        if self._epochs.dirty:
            await self._write_epochs()
        if self.directory_changed:
            self.directory_changed = False
            try:
                await self._disk.sync_dir(self._directory)
            except BaseException:
                self.directory_changed = True
                raise

    async def _write_epochs(self) -> None:
        self._epochs.dirty = False
        data = checkpoints.encode_epochs(self._epochs.entries())
        try:
            await self._disk.replace(f"{self._directory}/{LEADER_EPOCHS}", data)
        except BaseException:
            self._epochs.dirty = True
            raise
