"""Committed changes of metadata: rate and latency at 1, 100 and 1,000 writers, fsync on.

A change is one IncrementalAlterConfigs of one topic's config (etcd: one put) in a request of its
own, sent to the leader; a writer makes its next change when the last is committed. The load is one
program for all servers (`writers/`, in Go).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import calls
from benchmarks.etcd import EtcdQuorum
from benchmarks.loads import run_child
from benchmarks.measures import Bench, Taken
from benchmarks.quorums import JvmQuorum, PykraftQuorum, Quorum
from benchmarks.servers import BenchFailed
from benchmarks.stats import HIGHER, LOWER, Result
from pykraft.local_cluster import default_directory

WRITERS = (1, 100, 1000)
# etcd's own benchmark drives 1,000 clients over 100 connections.
CONNECTIONS_MAX = 100
FIGURES = {"rate": ("changes/s", HIGHER), "p50": ("µs", LOWER), "p99": ("µs", LOWER)}
PEERS = ("etcd", "kafka")
# What a JVM compiles in this time it would compile during its first runs.
JVM_WARM_UP_S = 20.0
SOURCES = Path(__file__).resolve().parent / "writers"


def name_of(writers: int, figure: str, peer: str) -> str:
    """`metadata-write/100/rate`, against etcd; with `/kafka` against JVM Kafka."""
    return f"metadata-write/{writers}/{figure}" + ("" if peer == "etcd" else f"/{peer}")


def all_names() -> list[str]:
    """Every figure."""
    return [
        name_of(writers, figure, peer)
        for writers in WRITERS
        for figure in FIGURES
        for peer in PEERS
    ]


APPENDS = {"raft-append/1": 1, "raft-append/100": 100}
APPENDED, APPENDED_QUICK = 100_000, 5_000


def appends(bench: Bench, *, quick: bool) -> Iterator[Result]:
    """Records a second within one process (`appends.py`), one or a hundred in a loop turn."""
    for name, per_turn in APPENDS.items():
        if not bench.wanted(name):
            continue
        taken = Taken()
        for run in range(bench.plan.runs):
            bench.say(f"{name}, run {run + 1}")
            directory, _ = bench.place()
            directory.mkdir()
            records = APPENDED_QUICK if quick else APPENDED
            job = {"directory": str(directory), "records": records, "per_turn": per_turn}
            taken.add("ours", "pykraft", **run_child("appends.py", job))
        yield taken.result(name, "rate", "records/s", HIGHER, "cpu_s")


def build() -> str:
    """The load program, built where it isn't; BenchFailed where Go or its modules are missing."""
    if shutil.which("go") is None:
        raise BenchFailed("metadata-write: its load is a Go program, and there is no go here")
    binary = (default_directory() / "bench-writers").resolve()
    command = ["go", "build", "-mod=mod", "-o", str(binary), "."]
    done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchFailed(f"metadata-write: go build: {done.stderr.strip()[-500:]}")
    return str(binary)


@dataclass(frozen=True, slots=True)
class Target:
    """A running quorum under load. `pipelined`: whether it works on several requests of one
    connection at a time; one that doesn't gets a connection for each writer."""

    servers: Quorum | EtcdQuorum
    kind: str
    addresses: list[str]
    pipelined: bool

    def run(self, program: str, writers: int, warm_s: float, seconds: float) -> dict[str, Any]:
        """One run; its figures."""
        job = {
            "kind": self.kind,
            "addresses": self.addresses,
            "writers": writers,
            "connections": min(writers, CONNECTIONS_MAX) if self.pipelined else writers,
            "warm_s": warm_s,
            "seconds": seconds,
            "pids": self.servers.pids(),
        }
        done = subprocess.run(
            [program, json.dumps(job)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise BenchFailed(f"{self.servers.label}: {done.stderr.strip()[-300:]}")
        figures: dict[str, Any] = json.loads(done.stdout)
        figures["cpu_ms"] = figures["server_cpu_s"] / figures["changes"] * 1e3
        return figures


def rates(bench: Bench) -> Iterator[Result]:
    """All sides stay up, runs alternate between them."""
    wanted = [name for name in all_names() if bench.wanted(name)]
    if not wanted:
        return
    program = build()
    with ExitStack() as stack:
        targets: dict[str, Target] = {}
        for side in ("ours", *(peer for peer in PEERS if peer in bench.peers)):
            bench.say(f"metadata-write: starting {side}")
            targets[side] = _started(bench, side, stack)
        if "kafka" in targets and bench.plan.warm_ups:
            bench.say("metadata-write: warming JVM Kafka up")
            targets["kafka"].run(program, CONNECTIONS_MAX, 0.0, JVM_WARM_UP_S)
        for writers in WRITERS:
            if any(name.startswith(f"metadata-write/{writers}/") for name in wanted):
                yield from _at(bench, program, targets, writers)


def _started(bench: Bench, side: str, stack: ExitStack) -> Target:
    directory, port = bench.place()
    if side == "etcd":
        etcd = EtcdQuorum(directory, port)
        stack.callback(etcd.stop)
        etcd.start()
        _wait_for_etcd(etcd)
        return Target(etcd, "etcd", etcd.addresses, pipelined=True)
    quorum = JvmQuorum(directory, port) if side == "kafka" else PykraftQuorum(directory, port)
    stack.callback(quorum.stop)
    quorum.prepare()
    quorum.start()
    leader = quorum.settle()
    with calls.Caller(quorum.addresses[leader], 60.0) as caller:
        calls.create_topics(caller, [f"config-{number:04d}" for number in range(max(WRITERS))])
    # A JVM reads the next request of a connection when the last one is answered.
    pipelined = side != "kafka"
    return Target(quorum, "kafka", [quorum.addresses[leader]], pipelined=pipelined)


def _client_note(taken: Taken, peer: str) -> str:
    """What the load itself took: it runs on the same processors."""
    sides = [side for side in ("ours", peer) if taken.values(side, "client_cpu_s")]
    parts = [f"{median(taken.values(side, 'client_cpu_s')):.2f} s ({side})" for side in sides]
    return "the writers' CPU time of a run: " + ", ".join(parts)


def _wait_for_etcd(etcd: EtcdQuorum) -> None:
    """Returns when its members have a leader, which its client waits for too."""
    program, deadline = build(), time.monotonic() + 30.0
    while True:
        try:
            Target(etcd, "etcd", etcd.addresses, pipelined=True).run(program, 1, 0.0, 0.5)
        except BenchFailed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def _at(bench: Bench, program: str, targets: dict[str, Target], writers: int) -> Iterator[Result]:
    taken = Taken()
    for run in range(bench.plan.runs):
        for side, target in targets.items():
            bench.say(f"metadata-write/{writers}, {target.servers.label}, run {run + 1}")
            figures = target.run(program, writers, bench.plan.write_warm_s, bench.plan.write_s)
            taken.add(side, target.servers.label, **figures)
    for figure, (unit, better) in FIGURES.items():
        for peer in PEERS:
            name = name_of(writers, figure, peer)
            if bench.wanted(name) and (peer in targets or peer == PEERS[0]):
                result = taken.result(name, figure, unit, better, "server_cpu_s", against=peer)
                yield replace(result, note=_client_note(taken, peer))
