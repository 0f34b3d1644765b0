"""Entries of a segment's index files. Preallocated files end in zeros, which are no entries."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from wire.errors import DamagedFile

OFFSET_ENTRY_SIZE = 8
TIME_ENTRY_SIZE = 12
TXN_ENTRY_SIZE = 34
_OFFSET = struct.Struct(">ii")
_TIME = struct.Struct(">qi")
_TXN = struct.Struct(">hqqqq")


class AbortedTxn(NamedTuple):
    """An aborted transaction: its first record's offset, its marker's, and the last stable offset
    when the marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_offset_entry(relative_offset: int, position: int) -> bytes:
    """8 bytes: offset minus the segment's base offset, and the batch's file position."""
    return _OFFSET.pack(relative_offset, position)


def encode_time_entry(timestamp: int, relative_offset: int) -> bytes:
    """12 bytes: no record up to this offset is younger than the timestamp."""
    return _TIME.pack(timestamp, relative_offset)


def encode_txn_entry(aborted: AbortedTxn) -> bytes:
    """34 bytes of a `.txnindex` file, version 0."""
    return _TXN.pack(0, *aborted)


def read_txn_entry(data: bytes | bytearray, number: int) -> AbortedTxn:
    """Entry `number`, from 0 on, of a file's content."""
    return AbortedTxn._make(_TXN.unpack_from(data, number * TXN_ENTRY_SIZE)[1:])


def _check_size(data: bytes | bytearray, path: str, size: int) -> None:
    if len(data) % size:
        raise DamagedFile(
            path, len(data) // size * size, f"{len(data)} bytes are no multiple of {size}"
        )


def _before_tail(entries: Iterable[tuple[int, int]]) -> tuple[list[tuple[int, int]], bool]:
    """The entries before the zero tail, and whether what follows the first zero is zero too."""
    kept: list[tuple[int, int]] = []
    tail = False
    for number, entry in enumerate(entries):
        if entry == (0, 0):
            tail = True
            if number == 0:
                # May be a true first entry; it says nothing that isn't known without it.
                continue
        elif tail and (kept or number > 1):
            return kept, False
        else:
            tail = False
            kept.append(entry)
    return kept, True


def decode_offset_entries(data: bytes, path: str) -> list[tuple[int, int]]:
    """(relative offset, position), both strictly rising; DamagedFile where they don't."""
    _check_size(data, path, OFFSET_ENTRY_SIZE)
    entries, clean = _before_tail(_OFFSET.iter_unpack(data))
    if not clean:
        raise DamagedFile(path, len(entries) * OFFSET_ENTRY_SIZE, "entries after a zero entry")
    previous = (-1, -1)
    for number, entry in enumerate(entries):
        if entry[0] <= previous[0] or entry[1] <= previous[1]:
            raise DamagedFile(path, number * OFFSET_ENTRY_SIZE, f"entry {entry} after {previous}")
        previous = entry
    return entries


def decode_time_entries(data: bytes, path: str) -> list[tuple[int, int]]:
    """(timestamp, relative offset): times strictly rising, offsets never falling."""
    _check_size(data, path, TIME_ENTRY_SIZE)
    entries, clean = _before_tail(_TIME.iter_unpack(data))
    if not clean:
        raise DamagedFile(path, len(entries) * TIME_ENTRY_SIZE, "entries after a zero entry")
    for number in range(len(entries)):
        timestamp, offset = entries[number]
        if offset < 0 or (
            number and (timestamp <= entries[number - 1][0] or offset < entries[number - 1][1])
        ):
            raise DamagedFile(
                path, number * TIME_ENTRY_SIZE, f"entry {entries[number]} out of order"
            )
    return entries


def decode_txn_entries(data: bytes | bytearray, path: str) -> list[AbortedTxn]:
    """Aborted transactions by rising marker offset; DamagedFile on nonsense."""
    _check_size(data, path, TXN_ENTRY_SIZE)
    entries: list[AbortedTxn] = []
    for number, (version, *fields) in enumerate(_TXN.iter_unpack(data)):
        entry = AbortedTxn._make(fields)
        last = entries[-1].last_offset if entries else -1
        if version != 0 or entry.last_offset <= last or entry.first_offset > entry.last_offset:
            raise DamagedFile(path, number * TXN_ENTRY_SIZE, f"impossible entry {entry}")
        entries.append(entry)
    return entries
