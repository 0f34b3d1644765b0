"""Whole nodes in virtual time: a cluster under faults, clients at work, every rule checked.

A run is a function of its seed: the cluster comes up, faults drawn from the seed hit it, then all
is healed, it must converge, and what the clients were told is judged (docs/testing.md). Exits 1
and names the failing seeds if a rule is broken. `--seed S` replays one; with `--trace` it tells
the story: a line an event, with the number of the line that it follows from. `--shrink` prints the
few faults that it takes, as a plan for `--plan`: `--seed S --shrink > FILE`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import re
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from simulation.plan import Plan, from_json, to_json
from simulation.run import EVENTS
from simulation.shrink import ddmin
from simulation.trial import Verdict, run_trial

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_SEEDS = range(20)
DEFAULT_NODES = (3, 3)
NODES_MAX = 20
LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
# How the names of other counts begin, and the headings under which they are told.
GROUPS = {"fault ": "faults", "left out ": "outside the budget, left out", "call ": "calls"}
console = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Setting:
    """What all runs of a sweep have in common."""

    controllers: int
    brokers: int
    steps: int | None
    plan: Plan | None


@dataclass(slots=True)
class Sweep:
    """What came of many seeds."""

    seeds: range
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    runs: int = 0
    coverage: Counter[str] = field(default_factory=Counter)
    # The least that a run without a failure had.
    least: dict[str, float] = field(default_factory=dict)
    failures: list[Verdict] = field(default_factory=list)

    def add(self, verdict: Verdict, cpu_s: float) -> None:
        self.runs += 1
        self.virtual_s += verdict.at_ms / 1000
        self.cpu_s += cpu_s
        self.coverage.update(verdict.coverage)
        if verdict.rule is not None:
            self.failures.append(verdict)
            self.failures.sort(key=lambda failure: failure.seed)
            return
        had = {
            "virtual_s": verdict.at_ms / 1000,
            "calls": verdict.coverage.get("calls", 0),
            "faults": verdict.coverage.get("faults", 0),
        }
        self.least = {name: min(had[name], self.least.get(name, had[name])) for name in had}

    def document(self) -> dict[str, object]:
        """The form of `--json`."""
        return {
            "seeds": [self.seeds.start, self.seeds.stop],
            "virtual_s": round(self.virtual_s, 3),
            "cpu_s": round(self.cpu_s, 3),
            "least": self.least,
            "coverage": dict(sorted(self.coverage.items())),
            "failures": [
                {
                    "seed": failure.seed,
                    "invariant": failure.rule,
                    "step": failure.step,
                    "at_ms": failure.at_ms,
                    "detail": failure.detail,
                    "trace": failure.trace,
                    "plan": json.loads(to_json(failure.plan)),
                }
                for failure in self.failures
            ],
        }


# -- the command line -----------------------------------------------------------------------------


def _seeds(text: str) -> range:
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise argparse.ArgumentTypeError(f"{text}: must be A:B with A < B")
    return range(int(match[1]), int(match[2]))


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: must be a whole number from 0 on")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be a whole number from 1 on")
    return int(text)


def _nodes(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)\+(\d+)", text)
    if match is None or int(match[2]) < 1 or int(match[1]) + int(match[2]) > NODES_MAX:
        raise argparse.ArgumentTypeError(
            f"{text}: must be C+B, controllers and brokers, with B from 1 on and at most "
            f"{NODES_MAX} together; 0+B is brokers with both roles"
        )
    return int(match[1]), int(match[2])


def _plan(text: str) -> Plan:
    try:
        return from_json(Path(text).read_text())
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from error


def parse(words: list[str]) -> argparse.Namespace:
    """The command line; exits 2 where it can't be read."""
    parser = argparse.ArgumentParser(
        prog="scripts/simulate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seeds", type=_seeds, metavar="A:B", help="these, A <= seed < B (0:20)")
    which.add_argument("--seed", type=_seed, metavar="S", help="this one alone")
    parser.add_argument("--nodes", type=_nodes, default=DEFAULT_NODES, metavar="C+B", help="(3+3)")
    parser.add_argument(
        "--steps",
        type=_count,
        metavar="N",
        help="faults end after so many callbacks of nodes and clients at the latest",
    )
    parser.add_argument("--plan", type=_plan, metavar="FILE", help="these faults, as printed")
    parser.add_argument("--trace", action="store_true", help="tell the story of --seed on stdout")
    parser.add_argument("--shrink", action="store_true", help="find the few faults of --seed")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument(
        "--workers", type=_count, default=os.cpu_count() or 1, metavar="N", help="processes"
    )
    options = parser.parse_args(words)
    for name in ("trace", "shrink", "plan"):
        if getattr(options, name) and options.seed is None:
            parser.error(f"--{name} goes with --seed S")
    if options.json and (options.trace or options.shrink):
        parser.error("--json is for the document of a sweep, without --trace and --shrink")
    return options


# -- running --------------------------------------------------------------------------------------


def run_one(
    seed: int, setting: Setting, *, telling: bool = False, limit_ms: int | None = None
) -> tuple[Verdict, float]:
    """One seed, to `limit_ms` of virtual time if that is given, and the CPU seconds it took."""
    # The last world goes; what stays needs no looking at when the next one does.
    gc.collect()
    gc.freeze()
    began = time.process_time()
    try:
        verdict = run_trial(
            seed,
            setting.plan,
            controllers=setting.controllers,
            brokers=setting.brokers,
            telling=telling,
            limit_ms=limit_ms,
            chaos_steps=setting.steps,
        )
    except Exception:  # noqa: BLE001 - the seed has to be known, whatever it is
        rule = "the simulation itself doesn't fail"
        verdict = Verdict(seed, setting.plan or [], rule, traceback.format_exc())
    return verdict, time.process_time() - began


def run_all(seeds: range, setting: Setting, workers: int) -> Iterator[tuple[Verdict, float]]:
    """Every seed, one process a core."""
    if len(seeds) == 1 or workers == 1:
        for seed in seeds:
            yield run_one(seed, setting)
        return
    with ProcessPoolExecutor(min(workers, len(seeds))) as pool:
        tasks = [pool.submit(run_one, seed, setting) for seed in seeds]
        for task in as_completed(tasks):
            yield task.result()


def sweep(seeds: range, setting: Setting, workers: int) -> Sweep:
    """All of it, with progress on stderr."""
    made = Sweep(seeds)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("seeds", total=len(seeds))
        for verdict, cpu_s in run_all(seeds, setting, workers):
            made.add(verdict, cpu_s)
            if verdict.rule is not None:
                progress.console.print(_in_words(verdict), markup=False, soft_wrap=True)
            text = f"seeds, {_speed(made)}"
            if made.failures:
                text += f", {len(made.failures)} failed"
            progress.update(bar, advance=1, description=text)
    return made


def shrink(verdict: Verdict, setting: Setting) -> Plan:
    """The part of a failing plan without any entry of which the rule holds."""
    limit_ms = verdict.at_ms * 3 // 2
    runs = 0

    def fails(plan: Plan) -> bool:
        nonlocal runs
        runs += 1
        again, _ = run_one(verdict.seed, replace(setting, plan=plan), limit_ms=limit_ms)
        status.update(f"run {runs}, {len(plan)} faults: {again.rule or 'no rule broken'}")
        return again.rule == verdict.rule

    with console.status(f"{len(verdict.plan)} faults") as status:
        small = ddmin(verdict.plan, fails)
    _say(f"{len(small)} of {len(verdict.plan)} faults are enough ({runs} runs)")
    return small


# -- telling --------------------------------------------------------------------------------------


def _speed(made: Sweep) -> str:
    return f"{made.virtual_s / max(made.cpu_s, 1e-9):.0f} virtual s per CPU s"


def _in_words(verdict: Verdict) -> str:
    return (
        f"seed {verdict.seed}: broken: {verdict.rule}, at {verdict.at_ms / 1000:.3f} s, step "
        f"{verdict.step}: {verdict.detail}"
    )


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def tell(made: Sweep, setting: Setting) -> None:
    """What a person wants to know, on stderr; failures and how to replay them last."""
    rest = dict(sorted(made.coverage.items()))
    _say(f"happened: {_counts({name: rest.pop(name, 0) for name in EVENTS})}")
    for prefix, heading in GROUPS.items():
        group = {
            name.removeprefix(prefix): n for name, n in rest.items() if name.startswith(prefix)
        }
        rest = {name: n for name, n in rest.items() if not name.startswith(prefix)}
        if group:
            _say(f"{heading}: {_counts(group)}")
    _say(f"and: {_counts(rest)}")
    _say(
        f"{made.runs} seeds, {made.virtual_s:.0f} virtual s in {made.cpu_s:.1f} CPU s: "
        f"{_speed(made)}"
    )
    if made.least:
        least = (f"{n:,.5g} {name.replace('_', ' ')}" for name, n in made.least.items())
        _say(f"each at least {', '.join(least)}")
    for failure in made.failures[:5]:
        plan = "FILE" if setting.plan else ""
        _say(f"replay: {_command(failure.seed, setting, plan)} --trace")


def _command(seed: int, setting: Setting, plan: str = "") -> str:
    """How to run a seed again; `plan` is the file that its faults are in."""
    nodes = (setting.controllers, setting.brokers)
    words = [
        f"scripts/simulate --seed {seed}",
        f"--plan {plan}" if plan else "",
        f"--nodes {nodes[0]}+{nodes[1]}" if nodes != DEFAULT_NODES else "",
        f"--steps {setting.steps}" if setting.steps else "",
    ]
    return " ".join(word for word in words if word)


def replay(seed: int, setting: Setting) -> int:
    """Tells a seed's story on stdout: it depends on the seed, and the plan given, alone."""
    verdict, _ = run_one(seed, setting, telling=True)
    for line in verdict.story:
        print(line)
    print(f"trace {verdict.trace}, {verdict.step} steps, {verdict.at_ms / 1000:.3f} s")
    if verdict.rule is None:
        print(f"seed {seed}: every rule holds")
        return 0
    print(_in_words(verdict))
    print(f"faults:\n{to_json(verdict.plan)}")
    return 1


def make_small(seed: int, setting: Setting, *, telling: bool) -> int:
    """Prints the few faults that break the same rule, as a plan, or with `telling` their story."""
    verdict, _ = run_one(seed, setting)
    if verdict.rule is None:
        _say(f"seed {seed}: every rule holds, there is nothing to make small")
        return 0
    _say(_in_words(verdict))
    small = replace(setting, plan=shrink(verdict, setting))
    if telling:
        return replay(seed, small)
    print(to_json(small.plan or []))
    _say(f"their story, once kept in FILE: {_command(seed, setting, 'FILE')} --trace")
    return 1


def use_large_pages() -> None:
    """Starts this program anew with its memory in pages of 2 MiB, where the system has them.

    A world is a hundred megabytes of small objects all over: to find out where their pages of
    4 KiB lie takes the processor an eighth of its time. Python's own allocator can't ask for
    large ones, glibc's can.
    """
    if "PYTHONMALLOC" in os.environ or "GLIBC_TUNABLES" in os.environ:
        return  # somebody has chosen, or this is the program started anew
    try:
        offered = "[never]" not in LARGE_PAGES.read_text()
    except OSError:
        return
    library, version = platform.libc_ver()
    if offered and library == "glibc" and tuple(map(int, version.split("."))) >= (2, 35):
        chosen = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **chosen})


def main(words: list[str]) -> int:
    """Returns the exit code."""
    options = parse(words)
    setting = Setting(*options.nodes, options.steps, options.plan)
    if options.shrink:
        return make_small(options.seed, setting, telling=options.trace)
    if options.trace:
        return replay(options.seed, setting)
    seeds = range(options.seed, options.seed + 1) if options.seed is not None else options.seeds
    made = sweep(seeds or DEFAULT_SEEDS, setting, options.workers)
    if options.json:
        print(json.dumps(made.document()))
    tell(made, setting)
    if made.failures:
        failed = ", ".join(f"{failure.seed} ({failure.rule})" for failure in made.failures)
        print(
            f"simulate: {len(made.failures)} of {made.runs} seeds failed: {failed} "
            f"(commit {_commit()}, Python {platform.python_version()})",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    use_large_pages()
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the story has read enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)
