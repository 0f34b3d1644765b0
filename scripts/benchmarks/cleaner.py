"""The log cleaner's rate, within one process (`cleaning.py`)."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.loads import run_child
from benchmarks.measures import Bench, Taken
from benchmarks.stats import HIGHER, LOWER, Result

# Records, their bytes, and the codec's number.
LOADS = {
    "clean/1KB": (200_000, 1024, 0),
    "clean/100B": (400_000, 100, 0),
    "clean/100B/lz4": (400_000, 100, 3),
}
QUICK = 20


def all_names() -> list[str]:
    """Every figure."""
    return [name for load in LOADS for name in (load, f"{load}/late")]


def passes(bench: Bench, *, quick: bool) -> Iterator[Result]:
    """MB a second of one pass over a log that was never cleaned."""
    for name, (records, size, codec) in LOADS.items():
        if not (bench.wanted(name) or bench.wanted(f"{name}/late")):
            continue
        taken = Taken()
        for run in range(bench.plan.runs):
            bench.say(f"{name}, run {run + 1}")
            directory, _ = bench.place()
            count = records // QUICK if quick else records
            job = {"directory": str(directory), "records": count, "size": size, "codec": codec}
            taken.add("ours", "pykraft", **run_child("cleaning.py", job))
        yield taken.result(name, "rate", "MB/s", HIGHER, "cpu_s")
        yield taken.result(f"{name}/late", "late_p99", "ms", LOWER)
