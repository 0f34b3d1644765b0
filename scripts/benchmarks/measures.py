"""The benchmarks: which figures there are, and how each is taken on both sides."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.loads import HERE, Side
from benchmarks.processes import idle_cpu_share, pss_mb
from benchmarks.servers import (
    LAST_PORT,
    ONE,
    PORTS_PER_CLUSTER,
    SIX,
    BenchFailed,
    Pykraft,
    Servers,
    Shape,
    free_block,
)
from benchmarks.stats import HIGHER, LOWER, Result, spread

SHAPES = {"one": ONE, "3+3": SIX}
BATCHES = {"16K": 16 * 1024, "128K": 128 * 1024}
ACKS = ("1", "all")
# Limits that hold whatever the peer takes.
GOALS = {
    "start/one": 1.5,
    "start/3+3": 6.0,
    "memory/3+3/idle": 400.0,
    "failover/kill/p50": 300.0,
    "failover/kill/p99": 1000.0,
    # The fetch timeout (2 s) and one election within its own (1 s).
    "failover/pause/p99": 3000.0,
    "failover/cut/p99": 3000.0,
    "metadata-1M/load-log": 20.0,
    "metadata-1M/load-snapshot": 20.0,
    "metadata-1M/load-broker": 20.0,
    "metadata-1M/memory-controller": 1500.0,
    "metadata-1M/memory-broker": 1500.0,
    "metadata-1M/create-topic": 20.0,
    "metadata-1M/create-topic-p99": 20.0,
    "metadata-1M/snapshot-wait": 50.0,
    "groups/load": 10.0,
    "groups/memory": 300.0,
    "groups/heartbeats": 10.0,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything."""

    runs: int
    records: dict[str, int]
    latency_records: int
    idle_s: float
    warm_ups: int
    write_warm_s: float
    write_s: float
    faults: int
    partitions: int


FULL = Plan(
    5,
    {"one": 600_000, "3+3": 300_000},
    latency_records=5000,
    idle_s=10.0,
    warm_ups=2,
    write_warm_s=2.0,
    write_s=8.0,
    faults=20,
    partitions=1_000_000,
)
QUICK = Plan(
    2,
    {"one": 100_000, "3+3": 60_000},
    latency_records=500,
    idle_s=3.0,
    warm_ups=0,
    write_warm_s=0.5,
    write_s=1.5,
    faults=3,
    partitions=20_000,
)


@dataclass(slots=True)
class Bench:
    """What was asked for, and the sides it is taken on."""

    plan: Plan
    wanted: Callable[[str], bool]
    scratch: Path
    say: Callable[[str], None]
    peer: Callable[[Shape, Path, int], Servers] | None = None
    peers: tuple[str, ...] = ()
    _made: int = field(default=0)
    _next_port: int = field(default=0)

    def place(self) -> tuple[Path, int]:
        """A folder and the first of PORTS_PER_CLUSTER ports that no other cluster has had."""
        self._made += 1
        port = free_block(self._next_port)
        # The next cluster takes others: these may still be closing then.
        self._next_port = (port + PORTS_PER_CLUSTER) % LAST_PORT
        return self.scratch / f"{self._made}", port

    def sides(self, shape: Shape) -> list[tuple[str, Servers]]:
        """Fresh, not started; ours first."""
        made: list[tuple[str, Servers]] = [("ours", Pykraft(shape, *self.place()))]
        if self.peer is not None:
            made.append(("theirs", self.peer(shape, *self.place())))
        return made


class Taken:
    """Values by side and figure, in the order of the runs. The sides: ours, and the peers."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], list[float]] = {}
        self._labels: dict[str, str] = {}

    def add(self, side: str, label: str, **figures: float) -> None:
        for key, value in figures.items():
            self._values.setdefault((side, key), []).append(value)
        self._labels[side] = label

    def values(self, side: str, key: str) -> list[float]:
        """The values of one figure of one side, none where it wasn't taken."""
        return self._values.get((side, key), [])

    def result(
        self,
        name: str,
        key: str,
        unit: str,
        better: str,
        cpu: str = "",
        *,
        against: str = "theirs",
    ) -> Result:
        """The figure `key` of ours and of one peer; `cpu` is the figure that is its CPU seconds."""
        ours, theirs = self._values[("ours", key)], self._values.get((against, key))
        cpu_ours, cpu_theirs = self._values.get(("ours", cpu)), self._values.get((against, cpu))
        goal = GOALS.get(name)
        limit = goal is not None and theirs is None
        peer_values = [goal] if limit and goal is not None else theirs
        return Result(
            name,
            unit,
            better,
            spread(ours),
            peer="goal" if limit else self._labels.get(against),
            theirs=spread(peer_values) if peer_values else None,
            cpu_s=spread(cpu_ours) if cpu_ours else None,
            peer_cpu_s=spread(cpu_theirs) if cpu_theirs else None,
            note=_goal_note(goal, unit, spread(ours).median),
        )


def _goal_note(goal: float | None, unit: str, value: float) -> str:
    """Every goal is a limit from above."""
    if goal is None:
        return ""
    return f"goal {goal:g} {unit}, {'met' if value <= goal else 'missed'}"


# -- start and memory -----------------------------------------------------------------------


def start_once(servers: Servers, shape: Shape) -> tuple[str, float]:
    """Starts a prepared cluster; seconds from the command to the first acknowledged record."""
    bootstrap = servers.prepare()
    job = json.dumps({"bootstrap": bootstrap, "replicas": shape.replicas})
    probe = subprocess.Popen(
        [sys.executable, "-I", str(HERE / "probe.py"), job], stdout=subprocess.PIPE, text=True
    )
    with probe:
        assert probe.stdout is not None
        if probe.stdout.readline().strip() != "waiting":
            raise BenchFailed("the probe did not start")
        begun = time.monotonic()
        servers.start()
        answer = probe.stdout.readline().strip()
    if not answer:
        raise BenchFailed(f"{servers.label}: no record was acknowledged after the start")
    return bootstrap, float(answer) - begun


@contextmanager
def running_sides(bench: Bench, shape: Shape) -> Iterator[list[tuple[str, Side]]]:
    """A cluster of each side, ours first, started one after the other and stopped on leaving."""
    with ExitStack() as stack:
        sides = []
        for name, servers in bench.sides(shape):
            bench.say(f"starting {servers.label}, {shape.label}")
            stack.callback(servers.stop)
            bootstrap, _ = start_once(servers, shape)
            sides.append((name, Side(servers, shape, bootstrap, bench.scratch)))
        yield sides


def lifecycle(bench: Bench, label: str) -> Iterator[Result]:
    """Start, memory and idle CPU of fresh clusters, each run a new one; sides alternate."""
    shape, taken = SHAPES[label], Taken()
    names = [f"start/{label}", f"memory/{label}/idle", f"memory/{label}/loaded", f"idle/{label}"]
    if not any(bench.wanted(name) for name in names):
        return
    with_memory = any(bench.wanted(name) for name in names[1:])
    for run in range(bench.plan.runs):
        for side, servers in bench.sides(shape):
            bench.say(f"start and memory, {shape.label}, {servers.label}, run {run + 1}")
            try:
                bootstrap, seconds = start_once(servers, shape)
                taken.add(side, servers.label, start=seconds)
                if with_memory:
                    _memory(bench, taken, side, Side(servers, shape, bootstrap, bench.scratch))
            finally:
                servers.stop()
    figures = [("start", "s"), ("idle_mb", "MB"), ("loaded_mb", "MB"), ("idle_cpu", "CPU s/s")]
    for name, (key, unit) in zip(names, figures, strict=True):
        if bench.wanted(name):
            yield taken.result(name, key, unit, LOWER)


def _memory(bench: Bench, taken: Taken, name: str, side: Side) -> None:
    pids = side.servers.pids()
    time.sleep(2.0)
    idle_cpu = idle_cpu_share(pids, bench.plan.idle_s)
    idle_mb = pss_mb(pids)
    partitions = side.shape.partitions
    records = bench.plan.records["3+3"] // 2
    with side.topic("memory", partitions) as topic:
        side.produce(topic, partitions, records, {"acks": "all", "batch.size": BATCHES["16K"]})
        side.run("fetch", topic, partitions)
        loaded_mb = pss_mb(pids)
    taken.add(name, side.servers.label, idle_mb=idle_mb, loaded_mb=loaded_mb, idle_cpu=idle_cpu)


# -- throughput -----------------------------------------------------------------------------


def throughput(bench: Bench, label: str, sides: list[tuple[str, Side]]) -> Iterator[Result]:
    """MB/s and servers' CPU seconds per GB, producing and fetching; a warm-up run per setting."""
    for acks in ACKS:
        for batch, size in BATCHES.items():
            produce, fetch = f"produce/{label}/acks={acks}/{batch}", f"fetch/{label}/{batch}"
            fetching = acks == ACKS[0] and (bench.wanted(fetch) or bench.wanted(f"{fetch}/cpu"))
            if not (bench.wanted(produce) or bench.wanted(f"{produce}/cpu") or fetching):
                continue
            settings = {"acks": acks, "batch.size": size}
            taken = Taken()
            for run in range(bench.plan.runs + 1):
                for name, side in sides:
                    bench.say(f"{produce}, {side.servers.label}, run {run or 'to warm up'}")
                    figures = _produce_and_fetch(bench, label, side, settings, fetching)
                    if run > 0:
                        taken.add(name, side.servers.label, **figures)
            for title, key in ((produce, "produce"), (fetch, "fetch") if fetching else ("", "")):
                if title and bench.wanted(title):
                    yield taken.result(title, key, "MB/s", HIGHER, f"{key}_cpu_s")
                if title and bench.wanted(f"{title}/cpu"):
                    yield taken.result(f"{title}/cpu", f"{key}_s_gb", "s/GB", LOWER)


def _produce_and_fetch(
    bench: Bench, label: str, side: Side, settings: dict[str, Any], fetching: bool
) -> dict[str, float]:
    partitions = side.shape.partitions
    with side.topic("load", partitions) as topic:
        made = side.produce(topic, partitions, bench.plan.records[label], settings)
        figures = {
            "produce": made["bytes"] / made["seconds"] / 1e6,
            "produce_cpu_s": made["server_cpu_s"],
            "produce_s_gb": made["server_cpu_s"] / made["bytes"] * 1e9,
        }
        if fetching:
            read = side.run("fetch", topic, partitions)
            figures |= {
                "fetch": read["bytes"] / read["seconds"] / 1e6,
                "fetch_cpu_s": read["server_cpu_s"],
                "fetch_s_gb": read["server_cpu_s"] / read["cpu_bytes"] * 1e9,
            }
    return figures


# -- latency --------------------------------------------------------------------------------


def latency(bench: Bench, label: str, sides: list[tuple[str, Side]]) -> Iterator[Result]:
    """p50 and p99 of one record at a time."""
    for acks in ACKS:
        base = f"latency/{label}/acks={acks}"
        if not (bench.wanted(f"{base}/p50") or bench.wanted(f"{base}/p99")):
            continue
        taken = Taken()
        for run in range(bench.plan.runs + 1):
            for name, side in sides:
                bench.say(f"{base}, {side.servers.label}, run {run or 'to warm up'}")
                with side.topic("latency", 1) as topic:
                    figures = side.run(
                        "latency",
                        topic,
                        1,
                        records=bench.plan.latency_records,
                        settings={"acks": acks},
                    )
                if run > 0:
                    cpu = figures["server_cpu_s"]
                    taken.add(
                        name, side.servers.label, p50=figures["p50"], p99=figures["p99"], cpu_s=cpu
                    )
        for key in ("p50", "p99"):
            if bench.wanted(f"{base}/{key}"):
                yield taken.result(f"{base}/{key}", key, "µs", LOWER, "cpu_s")


def _warm_up(bench: Bench, label: str, side: Side) -> None:
    """Lets a JVM compile what is hot before anything of it counts."""
    for _ in range(bench.plan.warm_ups):
        for size in BATCHES.values():
            bench.say(f"warming up {side.servers.label}, {side.shape.label}")
            _produce_and_fetch(bench, label, side, {"acks": "all", "batch.size": size}, True)


def loaded(bench: Bench, label: str) -> Iterator[Result]:
    """Throughput and latency on clusters that stay up; runs alternate between the sides."""
    names = [name for name in all_names() if name.split("/")[1] == label]
    if not any(bench.wanted(name) for name in names if name.split("/")[0] in LOADED):
        return
    shape = SHAPES[label]
    with running_sides(bench, shape) as sides:
        for name, side in sides:
            if name == "theirs" and bench.plan.warm_ups:
                _warm_up(bench, label, side)
        yield from throughput(bench, label, sides)
        yield from latency(bench, label, sides)


LOADED = ("produce", "fetch", "latency")


def all_names() -> list[str]:
    """Every figure, in the order of the table, the audit's apart."""
    names = []
    for label in SHAPES:
        names += [f"start/{label}", f"memory/{label}/idle", f"memory/{label}/loaded"]
        names += [f"idle/{label}"]
        for acks in ACKS:
            for batch in BATCHES:
                names += [f"produce/{label}/acks={acks}/{batch}{end}" for end in ("", "/cpu")]
        for batch in BATCHES:
            names += [f"fetch/{label}/{batch}{end}" for end in ("", "/cpu")]
        for acks in ACKS:
            names += [f"latency/{label}/acks={acks}/{key}" for key in ("p50", "p99")]
    return names
