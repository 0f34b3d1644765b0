"""A segment that a pass writes: `.cleaned` files, complete and durable before anything else."""

from __future__ import annotations

from collections.abc import Sequence

from storage.index import ActiveIndex
from storage.names import CLEANED, INDEX, LOG, TIME_INDEX, TXN_INDEX, segment_file
from storage.segment import Segment, stored_index, write_plain
from wire.batch import BatchHeader
from wire.index_files import AbortedTxn, encode_txn_entry
from world.env import Buffer, Disk

_BUFFER = 1 << 20


class CleanedSegment:
    """What a group of segments becomes. `written` are the kinds of its files, the log last.

    Belongs to one worker at a time, from `open` on; only `sync` and `into_segment` are for the
    loop.
    """

    def __init__(self, disk: Disk, directory: str, base_offset: int, interval: int) -> None:
        self.base_offset = base_offset
        self.written: list[str] = []
        self._disk = disk
        self._directory = directory
        self._index = ActiveIndex(interval)
        self._buffers: list[Buffer] = []
        self._size = self._buffered = 0
        self._file = disk.open(self._path(LOG), create=True)
        self._file.truncate(0)

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{segment_file(self.base_offset, suffix)}{CLEANED}"

    @property
    def size(self) -> int:
        return self._size

    def add(self, header: BatchHeader, data: Buffer) -> None:
        """Append a batch. Raises DiskFull or DiskError."""
        relative = header.last_offset - self.base_offset
        self._index.add(relative, self._size, header.length, header.max_timestamp)
        self._buffers.append(data)
        self._size += header.length
        self._buffered += header.length
        if self._buffered >= _BUFFER:
            self._flush()

    def _flush(self) -> None:
        if self._buffers:
            self._file.append(self._buffers)
            self._buffers, self._buffered = [], 0

    def finish(self, aborted: Sequence[AbortedTxn], with_txn_index: bool) -> None:
        """Write what is left, and the side files; that of transactions if asked for."""
        self._flush()
        files = {INDEX: self._index.offset_bytes(), TIME_INDEX: self._index.time_bytes()}
        if with_txn_index:
            files[TXN_INDEX] = b"".join([encode_txn_entry(entry) for entry in aborted])
        for suffix, data in files.items():
            write_plain(self._disk, self._path(suffix), data)
        self.written = [*files, LOG]

    async def sync(self) -> None:
        """Make all of it durable. Raises SyncFailed."""
        await self._file.sync()
        for suffix in self.written:
            if suffix != LOG:
                file = self._disk.open(self._path(suffix))
                try:
                    await file.sync()
                finally:
                    file.close()

    def into_segment(self, wall_ms: int) -> Segment:
        """The finished segment, still under its `.cleaned` names."""
        index = stored_index(self._disk, self._directory, self.base_offset)
        segment = Segment(self._directory, self.base_offset, self._file, index, wall_ms)
        segment.synced_changes = segment.changes
        return segment

    def discard(self) -> None:
        """Remove the files: nothing came of it."""
        self._file.close()
        for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
            if self._disk.exists(self._path(suffix)):
                self._disk.remove(self._path(suffix))
