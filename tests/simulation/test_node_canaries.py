"""Deliberately broken nodes: each must be noticed by the whole-node simulation."""

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from simulation.trial import run_trial

CANARIES = sorted((Path(__file__).parent / "node_canaries").glob("*.py"))
# Found in the first seeds, in seconds.
QUICK = ("votes_not_synced", "metadata_log_not_synced", "high_watermark_is_own_end")
OTHERS = [path for path in CANARIES if path.stem not in QUICK]
FIRST_SEED = 1_000
# With each commit another share of them is hunted; `scripts/prove canaries` hunts all.
CI_SHARES = 5


def _hunted():
    if os.environ.get("PYKRAFT_CANARIES") == "all" or os.environ.get("CI") != "true":
        return OTHERS  # skipped, without CI: a user's machine need not have git
    command = ["git", "rev-parse", "HEAD"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    return OTHERS[int(done.stdout.strip()[:7] or "0", 16) % CI_SHARES :: CI_SHARES]


def _load(path):
    spec = importlib.util.spec_from_file_location(f"node_canary_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _hunt(path, monkeypatch):
    canary = _load(path)
    canary.install(monkeypatch.setattr)
    for seed in range(FIRST_SEED, FIRST_SEED + canary.SEEDS_MAX):
        verdict = run_trial(seed)
        if verdict.rule is not None:
            assert verdict.rule in canary.CAUGHT_BY, (seed, verdict.rule, verdict.detail)
            print(
                f"\n{canary.RULE}: caught by seed {seed} at {verdict.at_ms} ms: "
                f"{verdict.rule}: {verdict.detail[:200]}"
            )
            return
    pytest.fail(f"{canary.RULE}: not caught in {canary.SEEDS_MAX} seeds")


@pytest.mark.parametrize("path", [p for p in CANARIES if p.stem in QUICK], ids=lambda p: p.stem)
def test_canary_is_caught_at_once(path, monkeypatch):
    _hunt(path, monkeypatch)


@pytest.mark.ci
@pytest.mark.skipif(os.environ.get("CI") != "true", reason="CI=true hunts a share of them")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("path", _hunted(), ids=lambda p: p.stem)
def test_canary_is_caught(path, monkeypatch):
    _hunt(path, monkeypatch)
