"""Which neighbouring segments become one when they are cleaned. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_MAX_RELATIVE = 2**31 - 1
# What replacing a group does in one go takes 0.1 ms a segment and more.
_MOST_SEGMENTS = 32


class Measure(NamedTuple):
    """A segment as far as grouping needs it: where it and the next one begin, and its bytes."""

    base_offset: int
    next_base: int
    size: int


def group_segments(segments: Sequence[Measure], most_bytes: int) -> list[int]:
    """How many of the segments, in order, go together each time: as many as fit in one.

    Together they have at most `most_bytes`, unless a single one has more, and offsets that can be
    told relative to the first.
    """
    counts: list[int] = []
    base = size = 0
    for segment in segments:
        fits = (
            counts
            and counts[-1] < _MOST_SEGMENTS
            and size + segment.size <= most_bytes
            and (not segment.size or segment.next_base - 1 - base <= _MAX_RELATIVE)
        )
        if fits:
            counts[-1] += 1
            size += segment.size
        else:
            counts.append(1)
            base, size = segment.base_offset, segment.size
    return counts
