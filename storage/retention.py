"""Which old segments a log gives up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.names import LOG
from storage.segment import IndexIsWrong
from wire.errors import DamagedFile

if TYPE_CHECKING:
    from storage.log import Log
    from storage.segment import Segment


def delete_retired_segments(log: Log, wall_ms: int, upto: int) -> int:
    """Take out the oldest segments as long as a rule wants it; how many.

    They go if they lie wholly below the log's start, or, where the cleanup policy deletes, if
    the log without them still has retention.bytes, or if their newest record is older than
    retention.ms. Only such as end at or below `upto`. The active segment is rolled first.
    """
    count = 0
    size = log.size
    while True:
        base, segment = log.segments.peekitem(0)
        end = _end_of(log, segment)
        is_empty_log = segment is log.active and not segment.size
        if end > upto or is_empty_log or not _is_retired(log, segment, end, size, wall_ms):
            return count
        if segment is log.active:
            log.roll()
        size -= segment.size
        log.drop_first_segment()
        assert log.log_start_offset >= base, (log.log_start_offset, base)
        count += 1


def _end_of(log: Log, segment: Segment) -> int:
    number = log.segments.bisect_right(segment.base_offset)
    if number == len(log.segments):
        return log.end_offset
    base: int = log.segments.peekitem(number)[0]
    return base


def _is_retired(log: Log, segment: Segment, end: int, size: int, wall_ms: int) -> bool:
    config = log.config
    if end <= log.log_start_offset and segment is not log.active:
        return True
    if not config.cleanup_delete:
        return False
    # The cleaner left nothing of it. Of one that was emptied otherwise others have the records.
    if not segment.size and not log.damage and end <= log.cleaned_to:
        return True
    if 0 <= config.retention_bytes <= size - segment.size:
        return True
    if config.retention_ms < 0:
        return False
    oldest_kept = wall_ms - config.retention_ms
    # What it takes for the newest may be less than that, so a look at the batches is worth it.
    return _stated_newest(log, segment) < oldest_kept and _newest(log, segment) < oldest_kept


def _stated_newest(log: Log, segment: Segment) -> int:
    """The time of the newest record, as the time index has it, or else the file."""
    newest = segment.largest_timestamp
    return newest if newest >= 0 else log.env.disk.mtime_ms(segment.path(LOG))


def _newest(log: Log, segment: Segment) -> int:
    """The same, but a time index that the batches contradict is rebuilt and not believed: what is
    deleted here for its sake, the followers delete as well."""
    try:
        if not _is_right(segment):
            log.rebuild_index(segment)
        return _stated_newest(log, segment)
    except DamagedFile:
        # Nobody knows what the damage hides: the file is no older than that.
        return max(segment.largest_timestamp, log.env.disk.mtime_ms(segment.path(LOG)))


def _is_right(segment: Segment) -> bool:
    """Whether the time index's last entry is of a batch that has this time, and the last batch
    isn't newer. Raises DamagedFile."""
    entry = segment.index.last_time()
    try:
        last = segment.last_header()
        if last is None or entry is None:
            return last is None or last.max_timestamp < 0
        step = segment.locate(segment.base_offset + entry[1])
    except IndexIsWrong:
        return False
    if step is None:
        return False
    return last.max_timestamp <= entry[0] == segment.header_at(step.position).max_timestamp
