"""The newest batches of the active segment, where nearly every read begins and ends."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from storage.segment import Step

_MOST = 512


class RecentBatches:
    """A bounded run of the last batches appended, without a gap up to the segment's end."""

    __slots__ = ("_bases", "_floor", "_lasts", "_lengths", "_positions")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all; the run begins again with the next batch added."""
        self._bases = array("q")
        self._lasts = array("q")
        self._positions = array("q")
        self._lengths = array("q")
        self._floor: int | None = None

    def add(self, base_offset: int, last_offset: int, position: int, length: int) -> None:
        if self._floor is None:
            self._floor = base_offset - 1
        elif len(self._lasts) == _MOST:
            cut = _MOST // 2
            self._floor = self._lasts[cut - 1]
            del self._bases[:cut], self._lasts[:cut], self._positions[:cut], self._lengths[:cut]
        self._bases.append(base_offset)
        self._lasts.append(last_offset)
        self._positions.append(position)
        self._lengths.append(length)

    def locate(self, offset: int) -> Step | None:
        """The first batch whose last offset is at least `offset`, if the run tells."""
        if self._floor is None or offset <= self._floor:
            return None
        found = bisect_left(self._lasts, offset)
        return self._step(found) if found < len(self._lasts) else None

    def cut_before(self, start: Step, limit: int) -> tuple[int, int] | None:
        """(position, next offset) of the last boundary at most `limit`, if the run tells.

        `start` is a batch at or before the run that ends at or before `limit`.
        """
        found = bisect_right(self._positions, limit) - 1
        if found < 0:
            return None
        step = self._step(found)
        if step.end <= limit:
            return step.end, step.last_offset + 1
        if step.position >= start.end:
            return step.position, step.base_offset
        return None

    def _step(self, number: int) -> Step:
        return Step(
            self._positions[number],
            self._lengths[number],
            self._bases[number],
            self._lasts[number],
        )
