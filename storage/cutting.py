"""Cutting a segment, so that it is the growing one of its log again."""

from __future__ import annotations

from contextlib import suppress

from storage import names
from storage.config import LogConfig
from storage.index import ActiveIndex
from storage.reading import LogReader
from storage.segment import Segment, rebuild_tail
from wire.errors import DamagedFile
from wire.index_files import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from world.env import Absent, Disk

_NO_LIMIT = 2**63 - 1


def cut_segment(
    disk: Disk, config: LogConfig, reader: LogReader, segment: Segment, offset: int, log_end: int
) -> tuple[int, int]:
    """Cut a segment of a log that ends at `log_end` at `offset`; the offset that it ends at, and
    where its last batch does: lower, if compaction has left a gap there.

    Damage that hides where to cut is no reason to leave the log half cut: it ends before that
    then, and what lay behind is fetched with the rest. Raises DiskError.
    """
    step = None
    if offset < log_end:
        try:
            step = reader.locate_in(segment, offset)
        except DamagedFile as damage:
            segment.limit = damage.position
    end = offset if step is None else min(offset, step.base_offset)
    position = segment.size if step is None else step.position
    is_hidden = step is None and segment.size < segment.file.size()
    index = _index_to_cut(disk, config, segment)
    index.truncate(end - segment.base_offset, position)
    segment.index, segment.limit = index, position
    try:
        next_offset = rebuild_tail(segment)
    except DamagedFile:  # of the index, or of what lies before
        scan = reader.scan(segment)
        is_hidden = is_hidden or scan.end < position
        segment.index, position, next_offset = scan.index, scan.end, scan.next_offset
    if is_hidden:  # what the limit hides is missing: the log ends before it
        end = min(end, next_offset)
    segment.file.truncate(position)
    segment.limit = _NO_LIMIT
    segment.changes += 1
    if not segment.size:
        segment.first_timestamp = -1
    return end, next_offset


def _index_to_cut(disk: Disk, config: LogConfig, segment: Segment) -> ActiveIndex:
    if isinstance(segment.index, ActiveIndex):
        return segment.index
    index = ActiveIndex(config.index_interval_bytes)
    with suppress(Absent):
        offsets = disk.read_bytes(segment.path(names.INDEX))
        times = disk.read_bytes(segment.path(names.TIME_INDEX))
        whole = not (len(offsets) % OFFSET_ENTRY_SIZE or len(times) % TIME_ENTRY_SIZE)
        if whole and index.load(offsets, times):
            return index
    return ActiveIndex(config.index_interval_bytes)
