"""Segments taken out of a log: renamed at once, removed after file.delete.delay.ms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from storage.names import DELETED, SEGMENT_SUFFIXES
from storage.segment import Segment
from world.env import Absent, Disk, DiskError


class Trash:
    """Readers that still have the file open go on undisturbed."""

    def __init__(self, disk: Disk, delay_ms: int) -> None:
        self._disk = disk
        self._delay_ms = delay_ms
        self._due: list[tuple[int, Segment, list[str]]] = []

    def __len__(self) -> int:
        return len(self._due)

    def retire(
        self, segment: Segment, now_ms: int, suffixes: Sequence[str] = SEGMENT_SUFFIXES
    ) -> None:
        """Rename the segment's files (of these kinds) to `.deleted`, note when they are due. All
        keep their names where it raises DiskError: a segment without one of them can't be read."""
        named = [segment.path(suffix) for suffix in suffixes]
        renamed = []
        try:
            for path in named:
                if self._disk.exists(path):
                    self._disk.rename(path, path + DELETED)
                    renamed.append(path)
        except DiskError:
            for path in renamed:
                with suppress(DiskError):  # a disk that fails altogether is told by the first
                    self._disk.rename(path + DELETED, path)
            raise
        segment.file.renamed(segment.file.path + DELETED)
        # With those that an earlier try has left so.
        paths = [path + DELETED for path in named if self._disk.exists(path + DELETED)]
        self._due.append((now_ms + self._delay_ms, segment, paths))

    async def empty(self, now_ms: int, run_blocking: Callable[..., Awaitable[Any]]) -> int:
        """Remove what is due; how many segments. Removing a large file can take long."""
        due = [entry for entry in self._due if entry[0] <= now_ms]
        self._due = [entry for entry in self._due if entry[0] > now_ms]
        for _, segment, paths in due:
            segment.close()
            for path in paths:
                await run_blocking(self._remove, path)
        return len(due)

    def _remove(self, path: str) -> None:
        try:
            self._disk.remove(path)
        except Absent:
            return  # the directory itself was taken out meanwhile

    def close(self) -> None:
        """Close the files; what is left on the disk is removed at the next start."""
        for _, segment, _ in self._due:
            segment.close()
        self._due.clear()
