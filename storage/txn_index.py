"""The aborted transactions of a log, as a JVM broker keeps them in `.txnindex` (KIP-98).

An entry lies beside the segment of its marker, and there is no file where there is no entry. A
read_committed reader is told which transactions in its bytes were aborted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from sortedcontainers import SortedDict

from storage.names import TXN_INDEX, base_offset_of, segment_file
from storage.producers import CompletedTxn
from storage.segment import Segment, write_plain
from wire.errors import DamagedFile
from wire.index_files import (
    TXN_ENTRY_SIZE,
    AbortedTxn,
    decode_txn_entries,
    encode_txn_entry,
    read_txn_entry,
)
from world.env import Absent, Disk

_MOST_LOADED = 4


class AbortedTransactions:
    """The `.txnindex` files of one log, as they grow and are asked."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        bases = (base_offset_of(name, TXN_INDEX) for name in disk.list_dir(directory))
        # By segment; the content as far as it was asked for lately.
        self._files: SortedDict[int, bytearray | None] = SortedDict(
            (base, None) for base in bases if base is not None
        )
        self._loaded: dict[int, None] = {}

    def __len__(self) -> int:
        """How many segments have a file."""
        return len(self._files)

    def add(self, segment: Segment, completed: Iterable[CompletedTxn]) -> str | None:
        """Append those that were aborted, whose markers are in the segment; the file's path if it
        has grown, still to be synced. Raises DiskError; then nothing was added."""
        entries = aborted_entries(completed)
        if not entries:
            return None
        path, base = segment.path(TXN_INDEX), segment.base_offset
        data = b"".join(encode_txn_entry(entry) for entry in entries)
        file = self._disk.open(path, create=True)
        try:
            file.append([data])
        finally:
            file.close()
        loaded = self._files.setdefault(base, None)
        if loaded is not None:
            loaded += data
        return path

    def changed(self, base_offset: int) -> None:
        """The segment's file is new, another one, or gone."""
        self._files.pop(base_offset, None)
        self._loaded.pop(base_offset, None)
        if self._disk.exists(self._path(base_offset)):
            self._files[base_offset] = None

    def overlapping(self, first_base: int, offset: int, upto: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of those that lie, if only in part, from `offset` to `upto`
        (exclusive); `first_base` is the segment of `offset`. Raises DamagedFile, DiskError."""
        found: list[tuple[int, int]] = []
        for base in self._files.irange(first_base):
            data = self._load(base)
            count = len(data) // TXN_ENTRY_SIZE
            for number in range(_first_ending_at(data, count, offset), count):
                entry = read_txn_entry(data, number)
                if entry.first_offset < upto:
                    found.append((entry.producer_id, entry.first_offset))
                if entry.last_stable_offset >= upto:
                    return found
        return found

    def _load(self, base: int) -> bytearray:
        data: bytearray | None = self._files[base]
        if data is None:
            path = self._path(base)
            data = bytearray(self._disk.read_bytes(path))
            decode_txn_entries(data, path)
            self._files[base] = data
            if len(self._loaded) == _MOST_LOADED:
                oldest = next(iter(self._loaded))
                del self._loaded[oldest]
                self._files[oldest] = None
            self._loaded[base] = None
        return data

    def _path(self, base: int) -> str:
        return f"{self._directory}/{segment_file(base, TXN_INDEX)}"


def _first_ending_at(data: bytearray, count: int, offset: int) -> int:
    """The number of the first entry whose marker is at or after `offset`."""
    return bisect_left(range(count), offset, key=lambda n: read_txn_entry(data, n).last_offset)


def aborted_entries(completed: Iterable[CompletedTxn]) -> list[AbortedTxn]:
    """The entries of those that were aborted."""
    return [
        AbortedTxn(txn.producer_id, txn.first_offset, txn.marker_offset, txn.last_stable_offset)
        for txn in completed
        if txn.aborted
    ]


def aborted_in(disk: Disk, segment: Segment) -> list[AbortedTxn]:
    """Those whose markers are in the segment. Raises DamagedFile."""
    path = segment.path(TXN_INDEX)
    try:
        return decode_txn_entries(disk.read_bytes(path), path)
    except Absent:
        return []


def write_aborted(disk: Disk, segment: Segment, entries: Sequence[AbortedTxn]) -> str | None:
    """Let the file say this; its path if it had to be written, still to be synced."""
    path = segment.path(TXN_INDEX)
    data = b"".join(encode_txn_entry(entry) for entry in entries)
    if (disk.read_bytes(path) if disk.exists(path) else b"") == data:
        return None
    write_plain(disk, path, data)
    return path


def cut_aborted(disk: Disk, segment: Segment, end: int) -> str | None:
    """Forget those whose marker was cut off at offset `end`; the file's path if it changed, still
    to be synced. A damaged file is left to whoever needs it."""
    try:
        entries = aborted_in(disk, segment)
    except DamagedFile:
        return None
    kept = sum(entry.last_offset < end for entry in entries)
    if kept == len(entries):
        return None
    path = segment.path(TXN_INDEX)
    file = disk.open(path)
    file.truncate(kept * TXN_ENTRY_SIZE)
    file.close()
    return path
