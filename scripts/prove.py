"""The long tier: what no test run has the time for. Prints a table; exits 1 if anything failed.

seeds     new seeds of the quorum core's simulation, on all processors
nodes     new seeds of whole nodes in virtual time, on all processors
canaries  nodes broken on purpose: the simulation has to notice each
faults    SIGKILL of random nodes of real clusters under acks=all load: no acknowledged record
          lost, offsets in order, metadata logs sound and of one history
network   real nodes on a network cut, late and lossy at random, killed and stopped; what clients
          saw is judged by the simulation's models (--seeds A:B begins at seed A)
clients   a million records through every client and codec (tests/clients under CI=true)
foreign   the clients' own test suites, whole (tests/foreign under CI=true)
corpus    the audits on recorded logs of real Kafka clusters (PYKRAFT_CORPUS)
examples  25 times the usual examples of every property in tests/unit
metadata  thousands of partitions, killed and started again, door and logs compared
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from proving import faults, metadata, network, nodes, pytests, seeds
from proving.part import Outcome, Task
from rich.console import Console
from rich.table import Table

console = Console(stderr=True)
# Part -> its share of the time and what runs it.
PARTS: dict[str, tuple[float, Callable[[Task], Outcome]]] = {
    "examples": (
        0.10,
        partial(
            pytests.prove,
            "examples",
            pytests.EXAMPLES,
            words=pytests.MANY_EXAMPLES,
            examples=pytests.TIMES,
        ),
    ),
    "corpus": (0.05, partial(pytests.prove, "corpus", pytests.CORPUS)),
    "seeds": (0.10, seeds.prove),
    "nodes": (0.15, nodes.prove),
    "canaries": (0.05, partial(pytests.prove, "canaries", pytests.CANARIES)),
    "metadata": (0.10, metadata.prove),
    "faults": (0.15, faults.prove),
    "network": (0.15, network.prove),
    "clients": (0.05, partial(pytests.prove, "clients", pytests.CLIENTS)),
    "foreign": (0.10, partial(pytests.prove, "foreign", pytests.FOREIGN)),
}
_SECTION = re.compile(r"(<!-- results -->\n).*?(<!-- end results -->)", re.DOTALL)


def _seeds(text: str) -> range:
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise argparse.ArgumentTypeError(f"{text}: must be A:B with A < B")
    return range(int(match[1]), int(match[2]))


def parse(words: list[str]) -> argparse.Namespace:
    """The command line; exits 2 where it can't be read."""
    parser = argparse.ArgumentParser(
        prog="scripts/prove",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", metavar="PART", nargs="*", help="default: all")
    parser.add_argument("--minutes", type=float, default=60.0, metavar="N", help="about (60)")
    parser.add_argument("--seeds", type=_seeds, metavar="A:B", help="these seeds, A <= seed < B")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--results", type=Path, metavar="PAGE", help="and into this Markdown page")
    parser.add_argument("--keep", action="store_true", help="keep the clusters' folders")
    options = parser.parse_args(words)
    for name in options.parts:
        if name not in PARTS:
            parser.error(f"no part is called {name}: there are {', '.join(PARTS)}")
    if not options.minutes > 0:
        parser.error(f"--minutes {options.minutes}: must be more than 0")
    if options.results is not None and not (
        options.results.is_file() and _SECTION.search(options.results.read_text())
    ):
        parser.error(f"--results {options.results}: no page with a results section")
    return options


def run(options: argparse.Namespace, scratch: Path) -> list[Outcome]:
    """The parts one after the other, each in its share of the time."""
    wanted = options.parts or list(PARTS)
    shares = sum(PARTS[name][0] for name in wanted)
    outcomes = []
    for name in wanted:
        share, prove = PARTS[name]
        began = time.monotonic()
        deadline = began + 60 * options.minutes * share / shares
        with console.status(name) as status:
            say = partial(_show, status, name)
            outcome = prove(Task(deadline, scratch, say, options.seeds))
        outcome.seconds = round(time.monotonic() - began, 1)
        outcomes.append(outcome)
        console.print(f"{name}: {outcome.verdict} in {outcome.seconds:.0f} s")
        for failure in outcome.failures:
            console.print(f"  {failure}", markup=False)
    return outcomes


def _show(status: object, name: str, text: str) -> None:
    status.update(f"{name}: {text}")  # type: ignore[attr-defined]


def _figures(outcome: Outcome) -> str:
    return ", ".join(f"{count} {name}" for name, count in outcome.figures.items())


def table(outcomes: list[Outcome]) -> Table:
    """The summary for a terminal."""
    made = Table("part", "verdict", "seconds", "figures")
    for outcome in outcomes:
        made.add_row(outcome.part, outcome.verdict, f"{outcome.seconds:.0f}", _figures(outcome))
    return made


def markdown(outcomes: list[Outcome], when: str) -> str:
    """The summary for a page."""
    lines = [
        f"{when}, {platform.machine()}, Python {platform.python_version()}:",
        "",
        "| part | verdict | seconds | figures |",
        "|---|---|---|---|",
    ]
    for outcome in outcomes:
        lines.append(
            f"| {outcome.part} | {outcome.verdict} | {outcome.seconds:.0f} | {_figures(outcome)} |"
        )
    return "\n".join(lines) + "\n"


def main(words: list[str]) -> int:
    """Returns the exit code."""
    options = parse(words)
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    scratch = Path(tempfile.mkdtemp(prefix="pykraft-prove-"))
    outcomes: list[Outcome] = []
    try:
        outcomes = run(options, scratch)
    finally:
        failed = any(outcome.verdict == "failed" for outcome in outcomes) or not outcomes
        if options.keep or failed:
            console.print(f"kept: {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    Console().print(table(outcomes))
    if options.json is not None:
        document = {"when": when, "parts": [vars(outcome) for outcome in outcomes]}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.results is not None:
        text = options.results.read_text()
        summary = markdown(outcomes, when)
        options.results.write_text(_SECTION.sub(lambda m: f"{m[1]}{summary}{m[2]}", text))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
