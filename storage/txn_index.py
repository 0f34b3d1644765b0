"""The aborted transactions of a segment, as a JVM broker keeps them in `.txnindex`."""

from __future__ import annotations

from storage.names import TXN_INDEX
from storage.segment import Segment
from wire.errors import DamagedFile
from wire.index_files import TXN_ENTRY_SIZE, AbortedTxn, decode_txn_entries
from world.env import Disk


def aborted_in(disk: Disk, segment: Segment) -> list[AbortedTxn]:
    """Those whose markers are in the segment. Raises DamagedFile."""
    path = segment.path(TXN_INDEX)
    try:
        return decode_txn_entries(disk.read_bytes(path), path)
    except FileNotFoundError:
        return []


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
