"""The quorum core under a seeded simulation: see simulation/raft_core.py."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.raft_core import EVENTS_MIN, RaftWorld, run_seed, run_seeds

ROOT = Path(__file__).resolve().parents[2]
CANARIES = sorted((Path(__file__).parent / "canaries").glob("*.py"))
SLOW = "read_confirmed_by_a_fetch"  # takes hundreds of seeds
CI_SEEDS = 500


def _report(total):
    print("\n" + ", ".join(f"{count} {name}" for name, count in total.items()))


def test_rules_hold_in_a_few_seeds():
    total = run_seeds(range(100))
    _report(total)
    assert total["events"] >= 100 * EVENTS_MIN
    assert total["runs with election and crash"] >= 0.95 * total["runs"]
    for name in (
        "truncations", "snapshots fetched", "reads confirmed", "damages", "voters added",
        "voters removed", "voters moved", "disks replaced", "kraft upgrades", "voter sets undone",
    ):  # fmt: skip
        assert total[name] > 0, name


@pytest.mark.ci
@pytest.mark.skipif(os.environ.get("CI") != "true", reason="CI=true runs all seeds")
@pytest.mark.timeout(1_800)
def test_rules_hold_in_many_seeds():
    total = run_seeds(range(10_000, 10_000 + CI_SEEDS))
    _report(total)
    assert total["runs"] == CI_SEEDS
    assert total["events"] >= CI_SEEDS * EVENTS_MIN
    assert total["runs with election and crash"] >= 0.95 * CI_SEEDS


def test_a_seed_gives_the_same_trace_in_any_process():
    seeds = (3, 17, 58)
    here = [run_seed(seed).trace for seed in seeds]
    script = (
        "from simulation.raft_core import run_seed\n"
        f"print(' '.join(run_seed(seed).trace for seed in {seeds}))"
    )
    for hash_seed in ("1", "77"):
        there = subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.split() == here, f"PYTHONHASHSEED={hash_seed}"


def test_seeds_differ():
    assert len({run_seed(seed).trace for seed in range(5)}) == 5


def test_a_failing_seed_tells_its_story():
    world = RaftWorld(4, tell=True)
    outcome = world.run()
    assert any("kill" in line or "power cut" in line for line in outcome.story)
    assert len(outcome.story) >= EVENTS_MIN


def _load(path):
    spec = importlib.util.spec_from_file_location(f"canary_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.ci] if path.stem == SLOW else [])
        for path in CANARIES
    ],
)
def test_canary_is_caught(path, monkeypatch):
    canary = _load(path)
    canary.install(monkeypatch.setattr)
    for seed in range(getattr(canary, "SEEDS_FROM", 0), canary.SEEDS_MAX):
        try:
            run_seed(seed)
        except (AssertionError, IndexError) as error:
            print(f"\n{canary.RULE}: caught by seed {seed}: {str(error)[:120]}")
            return
    pytest.fail(f"{canary.RULE}: not caught in {canary.SEEDS_MAX} seeds")
