"""The benchmark of a million partitions: what it keeps where a part of it fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

from benchmarks import million
from benchmarks.measures import QUICK, Bench
from benchmarks.servers import BenchFailed


class FakeQuorum:
    label = "fake"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def leader(self, timeout_s: float) -> int:
        return 1


def test_a_part_that_fails_does_not_cost_what_was_taken_before(tmp_path, monkeypatch):
    def no_snapshot(quorum: FakeQuorum) -> float:
        raise BenchFailed("no snapshot")

    bench = Bench(QUICK, lambda name: True, tmp_path, lambda what: None)
    bench_audit_log = million.bench_audit_log
    monkeypatch.setattr(bench_audit_log, "generate_opening", lambda directory, partitions: 0)
    monkeypatch.setattr(million, "_with_log", lambda bench, *rest: FakeQuorum(bench.place()[0]))
    monkeypatch.setattr(million, "_alone", lambda bench, quorum, what: {"load-log": 7.0})
    monkeypatch.setattr(million, "change_until_snapshots", no_snapshot)
    results = million.million(bench)
    assert next(results).name == "metadata-1M/load-log"
    with pytest.raises(BenchFailed, match="no snapshot"):
        next(results)
