"""Finding the bytes that answer a fetch. No batch content is read here, headers at most."""

from __future__ import annotations

from typing import NamedTuple

from sortedcontainers import SortedDict

from storage.epochs import LeaderEpochs
from storage.index import ActiveIndex, StoredIndex
from storage.producers import ProducerState
from storage.recent import RecentBatches
from storage.scan import Scan, ScanRules, scan_segment
from storage.segment import IndexIsWrong, Segment, Step, stored_index
from wire.batch import BatchHeader
from world.env import Disk, File
from world.slices import run_at_once

_MOST_HINTS = 64


class Slice(NamedTuple):
    """Whole batches: `length` bytes at `position` of `file`.

    `first_offset` is where the first batch begins (at most the offset asked for), a reader
    goes on at `next_offset`.
    """

    file: File
    position: int
    length: int
    first_offset: int
    next_offset: int


class LogReader:
    """Reads the segments of one log, which stay its owner's.

    Remembers where readers stopped, so that going on needs no index.
    """

    def __init__(self, disk: Disk, segments: SortedDict[int, Segment]) -> None:
        self._disk = disk
        self._segments = segments
        self.recent = RecentBatches()
        self._hints: dict[int, tuple[Segment, int]] = {}

    def forget(self) -> None:
        """Segments changed other than by appending."""
        self.recent.clear()
        self._hints.clear()

    def read(
        self, offset: int, max_bytes: int, limit: int, limit_is_end: bool, min_one: bool
    ) -> Slice | None:
        """See Log.read; `limit` is an offset in the log, `limit_is_end` that it is its end."""
        if offset >= limit:
            return None
        found = self._find(offset)
        if found is None:
            return None
        segment, start = found
        stop = self._limit_position(segment, limit, limit_is_end)
        if start.end > stop:
            return None
        end = min(stop, start.position + max_bytes)
        cut = self._cut(segment, start, end)
        if cut is None:
            if not min_one:
                return None
            cut = start.end, start.last_offset + 1
        position, next_offset = cut
        self._remember(next_offset, segment, position)
        return Slice(
            segment.file, start.position, position - start.position, start.base_offset, next_offset
        )

    def header(self, offset: int) -> BatchHeader | None:
        found = self._find(offset)
        if found is None:
            return None
        segment, step = found
        return segment.header_at(step.position)

    def _find(self, offset: int) -> tuple[Segment, Step] | None:
        """The first batch that ends at or after `offset`, in whatever segment."""
        # Most readers are at the end, where this tells without a search.
        step = self.recent.locate(offset)
        if step is not None:
            return self._segments.peekitem(-1)[1], step
        number = self._segments.bisect_right(offset) - 1
        for base in self._segments.islice(max(0, number)):
            segment = self._segments[base]
            step = self.locate_in(segment, offset)
            if step is not None:
                return segment, step
        return None

    def locate_in(self, segment: Segment, offset: int) -> Step | None:
        """As Segment.locate; an index that turns out wrong is rebuilt first."""
        if isinstance(segment.index, ActiveIndex):
            step = self.recent.locate(offset)
            if step is not None:
                return step
        hint = self._hints.get(offset)
        if hint is not None and hint[0] is segment and hint[1] < segment.size:
            step = next(segment.walk(hint[1]))
            if step.last_offset >= offset:
                return step
        try:
            return segment.locate(offset)
        except IndexIsWrong:
            self.rebuild_index(segment)
            return segment.locate(offset)

    def _limit_position(self, segment: Segment, limit: int, limit_is_end: bool) -> int:
        """The position of the first batch of the segment that reaches `limit`."""
        if (
            limit_is_end
            or segment.base_offset
            != self._segments.peekitem(self._segments.bisect_left(limit) - 1)[0]
        ):
            return segment.size
        step = self.locate_in(segment, limit)
        return segment.size if step is None else step.position

    def _cut(self, segment: Segment, start: Step, end: int) -> tuple[int, int] | None:
        if start.end > end:
            return None
        if isinstance(segment.index, ActiveIndex):
            cut = self.recent.cut_before(start, end)
            if cut is not None:
                return cut
        try:
            return segment.cut_before(start, end)
        except IndexIsWrong:
            self.rebuild_index(segment)
            return segment.cut_before(start, end)

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        self._hints.pop(offset, None)
        self._hints[offset] = segment, position
        if len(self._hints) > _MOST_HINTS:
            del self._hints[next(iter(self._hints))]

    def rebuild_index(self, segment: Segment) -> None:
        """An index was damaged after start, or isn't right."""
        was_stored = isinstance(segment.index, StoredIndex)
        segment.index = self.scan(segment).index
        if was_stored:
            segment.freeze(self._disk)
            segment.index = stored_index(self._disk, segment.directory, segment.base_offset)

    def scan(self, segment: Segment) -> Scan:
        """What is sound in a segment, from its first byte on; no CRC is checked."""
        rules = ScanRules(interval=4096, check_crc=False)
        base = segment.base_offset
        return run_at_once(
            scan_segment(segment.file, base, base, rules, LeaderEpochs(), ProducerState())
        )
