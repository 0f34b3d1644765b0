"""Many seeds of whole nodes in virtual time, on all processors."""

from __future__ import annotations

import gc

from proving.part import Outcome, Task
from proving.seeds import Batch, sweep
from simulation.run import EVENTS
from simulation.trial import run_trial

# What is summed up here; scripts/simulate shows all that is counted.
_COUNTS = ("calls", "faults", "kills", "power cuts", *EVENTS)


def run_batch(seeds: range) -> Batch:
    """(runs, summed counts, failures) of some seeds."""
    total: dict[str, int] = {}
    failures = []
    for seed in seeds:
        gc.collect()
        gc.freeze()
        try:
            verdict = run_trial(seed)
        except Exception as error:  # noqa: BLE001 - any error is a failure of that seed
            failures.append(f"seed {seed}: {type(error).__name__}: {error!s:.300}")
            continue
        if verdict.rule is not None:
            failures.append(
                f"seed {seed} at {verdict.at_ms} ms: {verdict.rule}: {verdict.detail:.300} "
                f"(scripts/simulate --seed {seed} --trace)"
            )
        counts = {name: verdict.coverage.get(name, 0) for name in _COUNTS}
        for name, count in (counts | {"virtual s": verdict.at_ms // 1000}).items():
            total[name] = total.get(name, 0) + count
    return len(seeds), total, failures


def prove(task: Task) -> Outcome:
    """Seeds of whole clusters of three controllers and three brokers."""
    outcome = Outcome("nodes")
    runs, total = sweep(task, outcome, run_batch, 2)
    outcome.figures |= {"runs": runs, **total}
    return outcome
