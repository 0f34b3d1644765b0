"""How dirty a log is: what of it the cleaner may take, and whether it should."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from storage.config import MAX_INT64, LogConfig

if TYPE_CHECKING:
    from storage.log import Log
    from storage.segment import Segment


@dataclass(frozen=True, slots=True)
class Dirt:
    """What a pass over a log would be about.

    Offsets from `start` on have not been cleaned yet, those before `end` may be; the bytes are
    those of whole segments before `start` and from there to `end`. `overdue`: something has been
    dirty for longer than max.compaction.lag.ms.
    """

    start: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def ratio(self) -> float:
        """The share of dirty bytes."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether a pass should be made."""
        if not self.dirty_bytes:
            return False
        return self.overdue or self.ratio > config.min_cleanable_dirty_ratio


def measure(log: Log, stable_offset: int, wall_ms: int) -> Dirt:
    """How dirty a log is. Nothing at or above `stable_offset` (the last stable offset: the high
    watermark, or where the oldest open transaction begins), in the active segment, or too young by
    min.compaction.lag.ms may be cleaned, nor the rest of a segment that has such."""
    start = log.log_start_offset
    if start < log.cleaned_to <= log.end_offset:
        start = log.cleaned_to
    closed = [
        (segment, following)
        for segment, following in pairwise(log.segments.values())
        if following.base_offset <= stable_offset
    ]
    dirty = [segment for segment, following in closed if following.base_offset > start]
    clean_bytes = sum(segment.size for segment, _ in closed) - sum(s.size for s in dirty)
    overdue = _is_overdue(log, start, wall_ms)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for number, segment in enumerate(dirty):
            if segment.largest_timestamp > wall_ms - lag_ms:
                del dirty[number:]
                break
    end = _end_of(log, dirty[-1]) if dirty else start
    return Dirt(start, end, clean_bytes, sum(segment.size for segment in dirty), overdue)


def _end_of(log: Log, segment: Segment) -> int:
    end: int = log.segments.peekitem(log.segments.bisect_right(segment.base_offset))[0]
    return end


def _is_overdue(log: Log, start: int, wall_ms: int) -> bool:
    """By the time of each segment's first batch, as far as it has one."""
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= MAX_INT64:
        return False
    return any(
        0 < _first_timestamp(segment) < wall_ms - lag_ms
        for segment, following in pairwise(log.segments.values())
        if following.base_offset > start
    )


def _first_timestamp(segment: Segment) -> int:
    if segment.first_timestamp < 0 and segment.size:
        segment.first_timestamp = segment.header_at(0).max_timestamp
    return segment.first_timestamp
