"""Parts that are tests already, run at their full size."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from proving.part import Outcome, Task

ROOT = Path(__file__).resolve().parents[2]
WHOLE = {"CI": "true", "PYKRAFT_FOREIGN": "all", "PYKRAFT_CANARIES": "all"}
CLIENTS = ("tests/clients",)
FOREIGN = ("tests/foreign",)
CANARIES = ("tests/simulation/test_node_canaries.py",)
EXAMPLES = ("tests/unit",)
# Properties alone, each with so many times its usual examples, drawn anew.
MANY_EXAMPLES = ("-m", "hypothesis", "-n", "2", "--timeout", "2400")
TIMES = 25
CORPUS = (
    "tests/unit/spark_audit/test_spark_audit_corpus.py",
    "tests/unit/metadata/test_metadata_corpus.py",
    "tests/unit/storage/test_storage_corpus.py",
)


def prove(
    part: str, paths: tuple[str, ...], task: Task, *, words: tuple[str, ...] = (), examples: int = 1
) -> Outcome:
    """Runs the tests under CI=true, other projects' suites and the canaries whole; their own time
    limits hold, at least 40 minutes in all. `words` are more arguments for pytest, `examples` how
    many times its usual examples a property is tried with."""
    outcome = Outcome(part)
    there = [path for path in paths if (ROOT / path).exists()]
    task.say(f"{part}: {', '.join(there)}")
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, *there],
            cwd=ROOT,
            env={**os.environ, **WHOLE, "PYKRAFT_EXAMPLES": str(examples)},
            capture_output=True,
            text=True,
            timeout=max(2400.0, task.left_s),
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        outcome.fail(f"not done after {late.timeout:.0f} s")
        return outcome
    lines = done.stdout.splitlines()
    for count, what in re.findall(
        r"(\d+) (passed|failed|skipped|error)", lines[-1] if lines else ""
    ):
        outcome.figures[what] = int(count)
    for line in lines:
        if line.startswith(("FAILED", "ERROR")):
            outcome.fail(line[:400])
    if done.returncode not in (0, 5) and not outcome.failures:
        outcome.fail(f"pytest ended with {done.returncode}: {(done.stderr or done.stdout)[-400:]}")
    if not outcome.failures and not outcome.figures.get("passed"):
        outcome.verdict = "skipped"
    return outcome
