"""The sparse indexes of a segment, in Kafka's format.

`.index` maps a batch's last offset to its file position, `.timeindex` a timestamp to an
offset such that no record up to it is newer. Offsets in both are relative to the segment's
base. The active segment's live in arrays and are written on roll and close; those of older
segments are searched in their files, so that a node with many segments holds none in memory.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from wire.index_files import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from world.env import Absent, Disk, File

_OFFSET = struct.Struct(">ii")
_TIME = struct.Struct(">qi")


class Index(Protocol):
    """What both forms can answer. Offsets are relative to the segment's base."""

    def floor_offset(self, relative: int) -> tuple[int, int] | None:
        """The last entry (offset, position) whose offset is at most `relative`."""
        ...

    def floor_position(self, position: int) -> tuple[int, int] | None:
        """The last entry (offset, position) whose position is at most `position`."""
        ...

    def floor_time(self, timestamp: int) -> tuple[int, int] | None:
        """The last entry (timestamp, offset) whose timestamp is below `timestamp`."""
        ...

    def last_time(self) -> tuple[int, int] | None:
        """The last entry (timestamp, offset) of the time index."""
        ...


class ActiveIndex:
    """Both indexes of a segment that grows, and its largest timestamp."""

    __slots__ = (
        "_since_entry",
        "interval",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "positions",
        "time_offsets",
        "times",
    )

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.offsets = array("i")
        self.positions = array("i")
        self.times = array("q")
        self.time_offsets = array("i")
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        self._since_entry = 0

    def add(self, relative: int, position: int, length: int, max_timestamp: int) -> None:
        """Take note of a batch of `length` bytes appended at `position`; `relative` is its
        last offset."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = relative
        if self._since_entry > self.interval:
            self.offsets.append(relative)
            self.positions.append(position)
            self._add_time()
            self._since_entry = 0
        self._since_entry += length

    def restart(self) -> None:
        """Count bytes towards the next entry from here."""
        self._since_entry = 0

    def _add_time(self) -> None:
        if self.max_timestamp >= 0 and (not self.times or self.max_timestamp > self.times[-1]):
            self.times.append(self.max_timestamp)
            self.time_offsets.append(self.max_timestamp_offset)

    def is_full(self, index_bytes: int) -> bool:
        """Whether a file of `index_bytes` has no slot left (one time slot is kept for roll)."""
        return (
            len(self.offsets) >= index_bytes // OFFSET_ENTRY_SIZE
            or len(self.times) >= index_bytes // TIME_ENTRY_SIZE - 1
        )

    def truncate(self, relative: int, position: int) -> None:
        """Forget entries of batches at or after this offset and file position."""
        keep = min(bisect_left(self.offsets, relative), bisect_left(self.positions, position))
        del self.offsets[keep:]
        del self.positions[keep:]
        keep = bisect_left(self.time_offsets, relative)
        del self.times[keep:]
        del self.time_offsets[keep:]

    def offset_bytes(self) -> bytes:
        """The content of the `.index` file."""
        words = array("i", bytes(OFFSET_ENTRY_SIZE * len(self.offsets)))
        words[0::2] = _big_endian_words(self.offsets)
        words[1::2] = _big_endian_words(self.positions)
        return words.tobytes()

    def time_bytes(self) -> bytes:
        """The content of the `.timeindex` file, with the segment's largest timestamp last."""
        self._add_time()
        words = array("i", bytes(TIME_ENTRY_SIZE * len(self.times)))
        halves = _big_endian_words(self.times)
        words[0::3] = halves[0::2]
        words[1::3] = halves[1::2]
        words[2::3] = _big_endian_words(self.time_offsets)
        return words.tobytes()

    def load(self, offset_data: bytes, time_data: bytes) -> bool:
        """Take over the content of both files; False if it can't be right."""
        for relative, position in _OFFSET.iter_unpack(offset_data):
            self.offsets.append(relative)
            self.positions.append(position)
        for timestamp, relative in _TIME.iter_unpack(time_data):
            self.times.append(timestamp)
            self.time_offsets.append(relative)
        if self.times:
            self.max_timestamp = self.times[-1]
            self.max_timestamp_offset = self.time_offsets[-1]
        return (
            _rises(self.offsets)
            and _rises(self.positions)
            and _rises(self.times)
            and all(low <= high for low, high in pairwise(self.time_offsets))
        )

    def floor_offset(self, relative: int) -> tuple[int, int] | None:
        found = bisect_right(self.offsets, relative) - 1
        return (self.offsets[found], self.positions[found]) if found >= 0 else None

    def floor_position(self, position: int) -> tuple[int, int] | None:
        found = bisect_right(self.positions, position) - 1
        return (self.offsets[found], self.positions[found]) if found >= 0 else None

    def floor_time(self, timestamp: int) -> tuple[int, int] | None:
        found = bisect_left(self.times, timestamp) - 1
        return (self.times[found], self.time_offsets[found]) if found >= 0 else None

    def last_time(self) -> tuple[int, int] | None:
        if self.max_timestamp < 0:
            return None
        return self.max_timestamp, self.max_timestamp_offset


def _big_endian_words(values: array[int]) -> array[int]:
    """The numbers' big-endian bytes as 32-bit words; a loop over entries would hold up a roll
    of a large segment for a tenth of a second."""
    copy = values[:]
    if sys.byteorder == "little":
        copy.byteswap()
    words = array("i")
    words.frombytes(copy.tobytes())
    return words


def _rises(values: Sequence[int]) -> bool:
    return all(low < high for low, high in pairwise(values)) and (not values or values[0] >= 0)


class _Column(Sequence[int]):
    """One field of all entries of an index file, as a sequence that reads the file."""

    def __init__(self, file: File, entry: int, form: str, at: int) -> None:
        self._file = file
        self._entry = entry
        self._form = struct.Struct(form)
        self._at = at
        self._count = file.size() // entry

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> int:  # type: ignore[override]
        data = self._file.pread(self._form.size, number * self._entry + self._at)
        value: int = self._form.unpack(data)[0]
        return value


class StoredIndex:
    """The indexes of a segment that no longer grows, searched in their files.

    The files are opened for each search: searches are rare (a reader that goes on where it
    stopped needs none), open files are not to be wasted on them.
    """

    __slots__ = ("_disk", "_last_time", "_offset_path", "_time_path")

    def __init__(self, disk: Disk, offset_path: str, time_path: str) -> None:
        self._disk = disk
        self._offset_path = offset_path
        self._time_path = time_path
        self._last_time: tuple[int, int] | None = None

    def floor_offset(self, relative: int) -> tuple[int, int] | None:
        return self._floor(self._offset_path, ">i", 0, relative)

    def floor_position(self, position: int) -> tuple[int, int] | None:
        return self._floor(self._offset_path, ">i", 4, position)

    def floor_time(self, timestamp: int) -> tuple[int, int] | None:
        return self._floor(self._time_path, ">q", 0, timestamp - 1)

    def last_time(self) -> tuple[int, int] | None:
        if self._last_time is None:
            self._last_time = self._floor(self._time_path, ">q", 0, 2**63 - 1)
        return self._last_time

    def _floor(self, path: str, form: str, at: int, value: int) -> tuple[int, int] | None:
        entry = _OFFSET if path == self._offset_path else _TIME
        file = self._disk.open(path)
        try:
            found = bisect_right(_Column(file, entry.size, form, at), value) - 1
            if found < 0:
                return None
            data = file.pread(entry.size, found * entry.size)
        finally:
            file.close()
        first, second = entry.unpack(data)
        return first, second


def plausible(disk: Disk, offset_path: str, time_path: str, log_bytes: int) -> bool:
    """Whether the index files of a segment of `log_bytes` bytes may be trusted at first sight.

    Looks at sizes and last entries only; a lookup that lands in the wrong place finds the rest.
    """
    try:
        offset_bytes, time_bytes = disk.size(offset_path), disk.size(time_path)
        if offset_bytes % OFFSET_ENTRY_SIZE or time_bytes % TIME_ENTRY_SIZE:
            return False
        if log_bytes and not time_bytes:
            return False
        if offset_bytes:
            relative, position = _OFFSET.unpack(_tail(disk, offset_path, OFFSET_ENTRY_SIZE))
            if relative <= 0 or not 0 < position < log_bytes:
                return False
        if time_bytes:
            entries = list(_TIME.iter_unpack(_tail(disk, time_path, 2 * TIME_ENTRY_SIZE)))
            timestamp, relative = entries[-1]
            # All zero is what a JVM that crashed leaves beyond its entries.
            if timestamp < 0 or relative < 0:
                return False
            if len(entries) > 1 and (timestamp <= entries[0][0] or relative < entries[0][1]):
                return False
    except Absent:
        return False
    return True


def _tail(disk: Disk, path: str, length: int) -> bytes:
    """The last `length` bytes, or all if there are less."""
    file = disk.open(path)
    try:
        return file.pread(length, max(0, file.size() - length))
    finally:
        file.close()
