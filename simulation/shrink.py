"""Makes a failing fault plan small: delta debugging over its entries.

Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002): ddmin. The
result is 1-minimal unless the number of runs is used up: no single entry can be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

RUNS_MAX = 200


def ddmin(
    entries: Sequence[T], fails: Callable[[list[T]], bool], *, runs_max: int = RUNS_MAX
) -> list[T]:
    """A small part of `entries`, in order, for which `fails` is true as it is for all of them.

    `fails` is called at most `runs_max` times; each is a run of the simulation, which should
    give up at one and a half times the failing run's time.
    """
    kept = list(entries)
    parts = 2
    runs = 0
    while len(kept) >= 1 and runs < runs_max:
        size = -(-len(kept) // parts)
        chunks = [kept[i : i + size] for i in range(0, len(kept), size)]
        for index in range(len(chunks)):
            rest = [entry for i, chunk in enumerate(chunks) if i != index for entry in chunk]
            runs += 1
            if fails(rest):
                kept = rest
                parts = max(parts - 1, 2)
                break
            if runs >= runs_max:
                break
        else:
            if parts >= len(kept):
                break
            parts = min(2 * parts, len(kept))
    return kept
