"""Many seeds of the quorum core's simulation, on all processors."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from proving.part import Outcome, Task
from simulation.raft_core import EVENTS_MIN, run_seed

BATCH = 50
FAILURES_MAX = 5
ENOUGH = 1_000  # runs from which on shares mean something

Batch = tuple[int, dict[str, int], list[str]]


def run_batch(seeds: range) -> Batch:
    """(runs, summed counts, failures) of some seeds."""
    total: dict[str, int] = {}
    failures = []
    for seed in seeds:
        try:
            outcome = run_seed(seed)
            assert outcome.events >= EVENTS_MIN, f"only {outcome.events} events"
        except Exception as error:  # noqa: BLE001 - any error is a failure of that seed
            notes = "; ".join(getattr(error, "__notes__", ()))
            failures.append(f"seed {seed}: {type(error).__name__}: {error!s:.300} ({notes:.100})")
            continue
        counts = outcome.counts
        both = counts["elections"] > 0 and counts["crashes"] > 0
        counts |= {"events": outcome.events, "runs with election and crash": int(both)}
        for name, count in counts.items():
            total[name] = total.get(name, 0) + count
    return len(seeds), total, failures


def sweep(
    task: Task, outcome: Outcome, run: Callable[[range], Batch], size: int
) -> tuple[int, dict[str, int]]:
    """(runs, summed counts) of new seeds until the time is over, or of those given; failures go
    to `outcome`. The base of new seeds moves with the clock; `size` seeds are one `run`.
    """
    first = int(time.time()) * 1000 if task.seeds is None else task.seeds.start
    outcome.figures = {"first seed": first}
    batches: Iterator[range]
    if task.seeds is None:
        batches = (range(start, start + size) for start in itertools.count(first, size))
    else:
        end = task.seeds.stop
        batches = (range(s, min(s + size, end)) for s in range(first, end, size))
    runs = 0
    total: dict[str, int] = {}
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers) as pool:
        pending: dict[Future[Batch], None] = {}
        while True:
            while len(pending) < 2 * workers and (task.seeds is not None or task.left_s > 0):
                batch = next(batches, None)
                if batch is None or len(outcome.failures) >= FAILURES_MAX:
                    break
                pending[pool.submit(run, batch)] = None
            if not pending:
                break
            for done in wait(pending, return_when=FIRST_COMPLETED).done:
                del pending[done]
                count, counts, failures = done.result()
                runs += count
                for failure in failures:
                    outcome.fail(failure)
                for name, number in counts.items():
                    total[name] = total.get(name, 0) + number
            task.say(f"{runs} seeds from {first}, {len(outcome.failures)} failed")
    return runs, total


def prove(task: Task) -> Outcome:
    """Seeds of the quorum core's simulation."""
    outcome = Outcome("seeds")
    runs, total = sweep(task, outcome, run_batch, BATCH)
    outcome.figures |= {"runs": runs, **total}
    if runs >= ENOUGH and total["runs with election and crash"] < 0.95 * runs:
        outcome.fail("fewer than 95 % of the runs had an election and a crash")
    return outcome
