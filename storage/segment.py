"""One segment: a file of batches back to back, its indexes, and walks along its headers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from storage.index import ActiveIndex, Index, StoredIndex
from storage.names import INDEX, LOG, TIME_INDEX, segment_file
from wire.batch import HEADER_SIZE, BatchHeader, read_header
from wire.errors import BadHeader, DamagedFile
from world.env import Disk, File

# Base offset, length after the first 12 bytes, leader epoch, magic, CRC, attributes, last
# offset delta: what a walk needs.
_WALK = struct.Struct(">qiibIhi")
_CHUNK = 8192


class Step(NamedTuple):
    """One batch met on a walk; `length` is its whole length, offsets are inclusive."""

    position: int
    length: int
    base_offset: int
    last_offset: int

    @property
    def end(self) -> int:
        return self.position + self.length


class Segment:
    """A segment of the log in `directory`.

    `index` is an ActiveIndex as long as the segment grows, else a StoredIndex.
    `first_timestamp` is the largest timestamp of its first batch (-1: not known), `created_ms`
    the wall clock when it was made or opened; both decide about rolling by time. `limit` hides
    what follows it in the file: damage that nobody decided about yet. `changes` counts writes
    to the file, `synced_changes` how many of them are durable.
    """

    __slots__ = (
        "base_offset",
        "changes",
        "created_ms",
        "directory",
        "file",
        "first_timestamp",
        "index",
        "limit",
        "synced_changes",
    )

    def __init__(
        self, directory: str, base_offset: int, file: File, index: Index, created_ms: int
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.file = file
        self.index = index
        self.created_ms = created_ms
        self.first_timestamp = -1
        self.changes = 1
        self.synced_changes = 0
        self.limit = 2**63 - 1

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{segment_file(self.base_offset, suffix)}"

    @property
    def size(self) -> int:
        return min(self.file.size(), self.limit)

    @property
    def active_index(self) -> ActiveIndex:
        assert isinstance(self.index, ActiveIndex), self.file.path
        return self.index

    def damaged(self, position: int, reason: str) -> DamagedFile:
        return DamagedFile(self.file.path, position, reason)

    def header_at(self, position: int) -> BatchHeader:
        """The header of the batch at `position`. Raises DamagedFile."""
        data = self.file.pread(HEADER_SIZE, position)
        try:
            header = read_header(data)
        except BadHeader as error:
            raise self.damaged(position, error.reason) from error
        if position + header.length > self.size:
            raise self.damaged(position, f"a batch of {header.length} bytes ends past the file")
        return header

    def batch_at(self, position: int, header: BatchHeader) -> bytes:
        return self.file.pread(header.length, position)

    def headers_from(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Positions and headers of the batches from `position` on. Raises DamagedFile."""
        while position < self.size:
            header = self.header_at(position)
            yield position, header
            position += header.length

    def last_header(self) -> BatchHeader | None:
        """The header of the last batch; None if the segment is empty. Raises DamagedFile."""
        last = None
        if not self.size:  # whatever its index says
            return None
        start = self._checked_entry(self.index.floor_offset(2**31 - 1))
        for _, header in self.headers_from(start):
            last = header
        return last

    def walk(self, position: int, end: int | None = None) -> Iterator[Step]:
        """The batches from `position` (where one begins) up to `end`. Raises DamagedFile."""
        size = self.size
        end = size if end is None else end
        chunk = b""
        chunk_at = position
        while position < end:
            at = position - chunk_at
            if at + _WALK.size > len(chunk):
                chunk = self.file.pread(_CHUNK, position)
                chunk_at, at = position, 0
            try:
                base, rest, _, magic, _, _, delta = _WALK.unpack_from(chunk, at)
            except struct.error:
                raise self.damaged(position, "batch header cut short") from None
            length = rest + 12
            if (
                magic != 2
                or length < HEADER_SIZE
                or delta < 0
                or base < self.base_offset
                or position + length > size
            ):
                raise self.damaged(position, "no batch begins here")
            yield Step(position, length, base, base + delta)
            position += length

    def locate(self, offset: int) -> Step | None:
        """The first batch whose last offset is at least `offset`; None if all are below it.

        Raises DamagedFile, also if the index led to a wrong place.
        """
        if not self.size:
            return None
        entry = self.index.floor_offset(offset - self.base_offset)
        start = self._checked_entry(entry)
        for step in self.walk(start):
            if step.last_offset >= offset:
                return step
        return None

    def _checked_entry(self, entry: tuple[int, int] | None) -> int:
        """The position of an offset index entry, after a look at what is there."""
        if entry is None:
            return 0
        relative, position = entry
        if position >= self.size:
            raise IndexIsWrong(self.file.path, position, "index entry past the end")
        try:
            header = self.header_at(position)
        except DamagedFile as damage:
            raise IndexIsWrong(damage.path, damage.position, damage.reason) from damage
        # A follower of Kafka before 4 indexes a chunk of batches by its last offset.
        if not self.base_offset <= header.base_offset <= self.base_offset + relative:
            raise IndexIsWrong(self.file.path, position, "index entry of another batch")
        return position

    def cut_before(self, start: Step, limit: int) -> tuple[int, int] | None:
        """The last batch boundary at most `limit`, at or after the end of batch `start`.

        Returns (position, next offset); None if `start` itself ends beyond `limit`. What is
        sound before a damaged place can be read: the damage is met by who asks for what it hides.
        """
        if start.end > limit:
            return None
        position, next_offset = start.end, start.last_offset + 1
        entry = self.index.floor_position(limit)
        if entry is not None and entry[1] > position:
            position = self._checked_entry(entry)
            if position < self.size:
                next_offset = self.header_at(position).base_offset
        try:
            for step in self.walk(position):
                if step.end > limit:
                    break
                position, next_offset = step.end, step.last_offset + 1
        except DamagedFile:
            return position, next_offset
        return position, next_offset

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of the segment's batches; -1 if it has none."""
        last = self.index.last_time()
        return last[0] if last is not None else -1

    def freeze(self, disk: Disk) -> list[str]:
        """Trim the file and write both index files: the segment won't grow any more.

        Returns the paths written, still to be synced. If the disk refuses, the partly
        written index files are removed again and the segment can still be appended to.
        """
        index = self.active_index
        self.file.truncate(self.file.size())
        self.changes += 1
        paths = [self.path(INDEX), self.path(TIME_INDEX)]
        written: list[str] = []
        try:
            for path, data in zip(paths, (index.offset_bytes(), index.time_bytes()), strict=True):
                written.append(path)
                write_plain(disk, path, data)
        except Exception:
            for path in written:
                if disk.exists(path):
                    disk.remove(path)
            raise
        return paths

    def close(self) -> None:
        self.file.close()


class IndexIsWrong(DamagedFile):
    """The index led to a place where its batch is not. The log itself may be sound."""


def write_plain(disk: Disk, path: str, data: bytes) -> None:
    """Give a file this content, without sync. Raises DiskFull or DiskError."""
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.append([data])
    finally:
        file.close()


def create_segment(
    disk: Disk, directory: str, base_offset: int, interval: int, wall_ms: int
) -> Segment:
    """A new, empty segment that may be appended to."""
    path = f"{directory}/{segment_file(base_offset, LOG)}"
    file = disk.open(path, create=True)
    if file.size():
        file.truncate(0)
    return Segment(directory, base_offset, file, ActiveIndex(interval), wall_ms)


def stored_index(disk: Disk, directory: str, base_offset: int) -> StoredIndex:
    return StoredIndex(
        disk,
        f"{directory}/{segment_file(base_offset, INDEX)}",
        f"{directory}/{segment_file(base_offset, TIME_INDEX)}",
    )


def rebuild_tail(segment: Segment) -> int:
    """Bring an active index up to date with the batches after its last entry.

    Returns the next offset after the last batch (the base offset if there is none). Raises
    DamagedFile.
    """
    index = segment.active_index
    entry = index.floor_offset(2**31 - 1)
    position = segment._checked_entry(entry)
    next_offset = segment.base_offset
    index.max_timestamp, index.max_timestamp_offset = -1, -1
    if index.times:
        index.max_timestamp = index.times[-1]
        index.max_timestamp_offset = index.time_offsets[-1]
    index.restart()  # so the entry's own batch doesn't get a second one
    for at, header in segment.headers_from(position):
        relative = header.last_offset - segment.base_offset
        index.add(relative, at, header.length, header.max_timestamp)
        next_offset = header.next_offset
    return next_offset
