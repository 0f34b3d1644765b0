"""Groups: what they cost their coordinator, within one process (`grouping.py`), and how soon many
members that come at once have their partitions, on a cluster (`gathering.py`)."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.loads import Side, run_child
from benchmarks.measures import Bench, Taken, running_sides
from benchmarks.processes import cpu_seconds
from benchmarks.servers import SIX
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
# Members and partitions of one group on the cluster.
GATHERING = {"members": 50, "partitions": 200}
PROTOCOLS = ("classic", "consumer")
_SETTLE_LIMIT_S = 120


def all_names() -> list[str]:
    """Every figure."""
    return [*(f"groups/{figure}" for figure in FIGURES), *_settling_names()]


def _settling_names() -> list[str]:
    return [f"groups/settle/{protocol}" for protocol in PROTOCOLS]


def costs(bench: Bench, *, quick: bool) -> Iterator[Result]:
    """A process of its own for each run."""
    if not any(bench.wanted(f"groups/{figure}") for figure in FIGURES):
        return
    taken = Taken()
    for run in range(bench.plan.runs):
        bench.say(f"groups, run {run + 1}")
        taken.add("ours", "pykraft", **run_child("grouping.py", QUICK if quick else FULL))
    for figure, unit in FIGURES.items():
        yield taken.result(f"groups/{figure}", figure, unit, LOWER)


def settling(bench: Bench) -> Iterator[Result]:
    """Clusters that stay up, a fresh group and topic for each run; runs alternate."""
    protocols = [name for name in PROTOCOLS if bench.wanted(f"groups/settle/{name}")]
    if not protocols:
        return
    with running_sides(bench, SIX) as sides:
        for protocol in protocols:
            taken = Taken()
            for run in range(bench.plan.runs + 1):
                for name, side in sides:
                    bench.say(f"groups/settle/{protocol}, run {run or 'to warm up'}")
                    figures = _settled(side, protocol, run)
                    if run > 0:
                        taken.add(name, side.servers.label, **figures)
            yield taken.result(f"groups/settle/{protocol}", "settle", "s", LOWER, "cpu_s")


def _settled(side: Side, protocol: str, run: int) -> dict[str, float]:
    pids = side.servers.pids()
    with side.topic(f"settle-{protocol}-{run}", GATHERING["partitions"]) as topic:
        job = {"bootstrap": side.bootstrap, "group": topic, "topic": topic, "protocol": protocol}
        before = cpu_seconds(pids)
        figures = run_child("gathering.py", {**GATHERING, **job, "timeout_s": _SETTLE_LIMIT_S})
        return {"settle": figures["settle"], "cpu_s": cpu_seconds(pids) - before}
