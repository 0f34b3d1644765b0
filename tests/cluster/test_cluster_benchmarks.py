"""The quorum's benchmarks in their short form: they run, far within what is asked of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.ci]

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench.py"
# With 20,000 partitions and three kills; a loaded machine must not make them fail.
LIMITS = {
    "failover/kill/p50": 1_000,
    "failover/kill/p99": 3_000,
    "metadata-1M/load-log": 60,
    "metadata-1M/load-snapshot": 60,
    "metadata-1M/load-broker": 60,
    "metadata-1M/memory-controller": 300,
    "metadata-1M/memory-broker": 300,
    "metadata-1M/create-topic": 100,
    "metadata-1M/create-topic-p99": 500,
    "metadata-1M/snapshot-wait": 1_000,
}


def test_a_leader_is_replaced_and_many_partitions_are_carried(tmp_path):
    document = tmp_path / "bench.json"
    done = subprocess.run(
        [
            sys.executable, "-I", str(BENCH), "failover/kill", "metadata-1M", "raft-append",
            "--quick", "--runs", "1", "--keep", "--json", str(document),
        ],
        env={**os.environ, "PYKRAFT_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stderr[-2000:]}\n{_ends_of_logs(tmp_path)}"
    figures = {entry["name"]: entry["value"] for entry in json.loads(document.read_text())}
    assert figures.keys() == LIMITS.keys() | {"raft-append/1", "raft-append/100"}
    assert {name: figures[name] for name in LIMITS if figures[name] > LIMITS[name]} == {}
    assert min(figures.values()) > 0


def _ends_of_logs(path):
    """What the nodes of the last cluster said: of others everything went well."""
    logs = sorted(path.glob("home/bench-*/*/*/out.log"), key=lambda log: log.stat().st_mtime)
    return "\n".join(f"{log}:\n{log.read_text(errors='replace')[-4000:]}" for log in logs[-3:])
