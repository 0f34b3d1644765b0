"""What groups cost their coordinator, within one process (`grouping.py`)."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.loads import run_child
from benchmarks.measures import Bench, Taken
from benchmarks.stats import LOWER, Result

FIGURES = {
    "load": "s",
    "memory": "MB",
    "heartbeats": "%",
    "commit": "µs",
    "rebalance": "ms",
}
# Groups whose offsets are loaded, offsets of each, members of one group.
FULL = {"groups": 100_000, "offsets": 10, "members": 5_000}
QUICK = {"groups": 5_000, "offsets": 10, "members": 500}


def all_names() -> list[str]:
    """Every figure."""
    return [f"groups/{figure}" for figure in FIGURES]


def costs(bench: Bench, *, quick: bool) -> Iterator[Result]:
    """A process of its own for each run."""
    if not any(bench.wanted(name) for name in all_names()):
        return
    taken = Taken()
    for run in range(bench.plan.runs):
        bench.say(f"groups, run {run + 1}")
        taken.add("ours", "pykraft", **run_child("grouping.py", QUICK if quick else FULL))
    for figure, unit in FIGURES.items():
        yield taken.result(f"groups/{figure}", figure, unit, LOWER)
