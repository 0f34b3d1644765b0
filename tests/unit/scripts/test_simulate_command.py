"""scripts/simulate: its command line, its document, its story, its exit codes."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.plan import Fault
from simulation.trial import Verdict

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def simulate():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("simulate", ROOT / "scripts" / "simulate.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["simulate"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["simulate"]


def run(*words, hash_seed="0"):
    return subprocess.run(
        [sys.executable, "-P", str(ROOT / "scripts" / "simulate.py"), *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seeds", "3"], "A:B with A < B"),
        (["--seeds", "3:3"], "A:B with A < B"),
        (["--seed", "x"], "whole number"),
        (["--steps", "0"], "whole number from 1"),
        (["--nodes", "3"], "C+B"),
        (["--nodes", "3+0"], "B from 1 on"),
        (["--trace"], "goes with --seed"),
        (["--seed", "1", "--trace", "--json"], "--json is for the document"),
        (["--seed", "1", "--shrink", "--json"], "--json is for the document"),
        (["--seed", "1", "--plan", "/nowhere"], "/nowhere"),
        (["--seed", "1", "--seeds", "1:2"], "not allowed with"),
    ],
)
def test_a_bad_command_line_is_refused_with_what_is_allowed(simulate, capsys, words, said):
    with pytest.raises(SystemExit) as ended:
        simulate.main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_the_document_of_a_sweep():
    done = run("--seeds", "0:2", "--steps", "3000", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["seeds"] == [0, 2]
    assert document["failures"] == []
    assert document["virtual_s"] > 10
    assert document["cpu_s"] > 0
    assert document["coverage"]["elections"] > 0
    assert "virtual s per CPU s" in done.stderr


@pytest.mark.ci
def test_a_story_depends_on_the_seed_alone():
    words = ("--seed", "4", "--steps", "3000", "--nodes", "1+2", "--trace")
    one, two = run(*words, hash_seed="1"), run(*words, hash_seed="2")
    assert one.returncode == two.returncode == 0, one.stderr
    assert one.stdout == two.stdout
    assert "became active" in one.stdout
    assert "every rule holds" in one.stdout


def test_a_broken_rule_is_an_exit_code_and_names_the_seed(simulate, capsys, monkeypatch):
    plan = [Fault(5_000 + n, "kill", n, {"down_ms": 10}) for n in (101, 102, 103)]

    def run_trial(seed, given, *, telling=False, **_):
        failed = seed == 8 and (given is None or any(fault.target == 102 for fault in given))
        story = ["    1    0.000000 s  node-1: starts"] if telling else []
        return Verdict(
            seed,
            plan if given is None else given,
            rule="two and two are four" if failed else None,
            detail="five",
            at_ms=7_000,
            step=42,
            story=story,
        )

    monkeypatch.setattr(simulate, "run_trial", run_trial)
    assert simulate.main(["--seeds", "7:10", "--json", "--workers", "1"]) == 1
    said = capsys.readouterr()
    (failure,) = json.loads(said.out)["failures"]
    assert (failure["seed"], failure["invariant"], failure["step"]) == (
        8,
        "two and two are four",
        42,
    )
    assert "simulate: 1 of 3 seeds failed: 8 (two and two are four)" in said.err.splitlines()[-1]
    assert "--seed 8" in said.err
    assert simulate.main(["--seed", "8", "--trace", "--shrink"]) == 1
    told = capsys.readouterr().out
    assert "node-1: starts" in told
    assert told.count('"kill"') == 1
    assert "102" in told


def test_an_error_of_the_simulation_itself_is_a_failure_of_its_seed(simulate, capsys, monkeypatch):
    def run_trial(seed, plan, **_):
        raise KeyError("lost")

    monkeypatch.setattr(simulate, "run_trial", run_trial)
    assert simulate.main(["--seed", "3", "--json"]) == 1
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert failure["seed"] == 3
    assert "KeyError: 'lost'" in failure["detail"]


@pytest.mark.parametrize(
    "shape",
    ["0+1", "1+1", *(pytest.param(shape, marks=pytest.mark.ci) for shape in ("0+2", "2+2", "1+3"))],
)
def test_small_clusters_have_faults_that_they_can_bear(simulate, capsys, shape):
    words = ["--seeds", "0:2", "--steps", "5000", "--workers", "1", "--json"]
    assert simulate.main([*words, "--nodes", shape]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["failures"] == []
    assert document["coverage"]["faults"] > 0
