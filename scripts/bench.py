"""Benchmarks of pykraft: start, memory, produce, fetch, latency, audit; of its quorum: failover,
committed changes, a million partitions; of its log cleaner and groups. With `--vs kafka` the same
of JVM Kafka, with `--vs etcd` of etcd where it is comparable, by the same client, in alternating
runs; both may be given.
docs/benchmarks.md says how to read them."""

from __future__ import annotations

import argparse
import fnmatch
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from benchmarks import (
    audit,
    cleaner,
    failover,
    groups,
    measures,
    metadata_write,
    million,
    report,
    served,
)
from benchmarks.rdkafka import LoadFailed
from benchmarks.servers import BenchFailed
from benchmarks.stats import Result
from rich.console import Console

from pykraft.cli import CommandError
from pykraft.local_cluster import default_directory

console = Console(stderr=True)


def parse(words: list[str]) -> argparse.Namespace:
    """The command line; exits 2 where it can't be read."""
    names = all_names()
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="names (a beginning such as `produce/one`, or a pattern such as `*/cpu`, takes all "
        "that match):\n  " + "\n  ".join(names),
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="default: all")
    parser.add_argument(
        "--vs", choices=["kafka", "etcd"], action="append", default=[], help="a peer, same run"
    )
    parser.add_argument("--runs", type=int, help="timed runs of each (default 5; quick: 2)")
    parser.add_argument("--faults", type=int, metavar="N", help="of failover (20; quick: 3)")
    parser.add_argument("--quick", action="store_true", help="small loads: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--keep", action="store_true", help="keep the clusters' folders")
    arguments = parser.parse_args(words)
    if arguments.runs is not None and arguments.runs < 1:
        parser.error(f"--runs {arguments.runs}: at least 1")
    if arguments.faults is not None and arguments.faults < 1:
        parser.error(f"--faults {arguments.faults}: at least 1")
    for name in arguments.names:
        if not any(matches(name, known) for known in names):
            parser.error(f"no benchmark is called {name}; --help lists them")
    return arguments


def all_names() -> list[str]:
    """Every figure there is, in the order of the table."""
    return [
        *measures.all_names(),
        *failover.all_names(),
        *metadata_write.all_names(),
        *metadata_write.APPENDS,
        *million.all_names(),
        *cleaner.all_names(),
        *groups.all_names(),
        *served.all_names(),
        *audit.NAMES,
    ]


def matches(asked: str, name: str) -> bool:
    """Is `name` the benchmark asked for, below it, or fitting its pattern?"""
    return name == asked or name.startswith(f"{asked}/") or fnmatch.fnmatchcase(name, asked)


def take(bench: measures.Bench, failures: list[str], *, quick: bool) -> Iterator[Result]:
    """Everything that is wanted, figure by figure; a part that fails doesn't cost the others."""
    parts: list[Callable[[], Iterator[Result]]] = []
    for label in measures.SHAPES:
        parts.append(partial(measures.lifecycle, bench, label))
        parts.append(partial(measures.loaded, bench, label))
    parts += [partial(failover.failover, bench, kind) for kind in failover.KINDS]
    parts.append(partial(metadata_write.rates, bench))
    parts.append(partial(metadata_write.appends, bench, quick=quick))
    parts.append(partial(million.million, bench))
    parts.append(partial(cleaner.passes, bench, quick=quick))
    parts.append(partial(groups.costs, bench, quick=quick))
    parts.append(partial(groups.settling, bench))
    parts.append(partial(served.kept_offsets, bench, quick=quick))
    parts.append(partial(served.heartbeats, bench, quick=quick))
    parts.append(partial(audit.rates, bench, quick=quick))
    for part in parts:
        try:
            yield from part()
        except (BenchFailed, LoadFailed) as reason:
            failures.append(str(reason))


def wanted(names: list[str]) -> Callable[[str], bool]:
    """Tells the names asked for; no names ask for all."""
    return lambda name: not names or any(matches(asked, name) for asked in names)


def main(words: list[str]) -> int:
    """Takes the benchmarks, prints the table, writes the JSON; exit code 1 where one failed."""
    arguments = parse(words)
    plan = measures.QUICK if arguments.quick else measures.FULL
    if arguments.runs:
        plan = replace(plan, runs=arguments.runs)
    if arguments.faults:
        plan = replace(plan, faults=arguments.faults)
    home = default_directory().resolve()
    home.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="bench-", dir=home))
    results: list[Result] = []
    failures: list[str] = []
    with console.status("") as status:
        bench = measures.Bench(plan, wanted(arguments.names), scratch, status.update)
        bench.peers = tuple(dict.fromkeys(arguments.vs))
        try:
            if "kafka" in bench.peers:
                from benchmarks.jvm import JvmKafka

                bench.peer = JvmKafka
            for result in take(bench, failures, quick=arguments.quick):
                results.append(result)
                console.print(report.line(result))
        except CommandError as reason:
            failures.append(str(reason))
        finally:
            if not arguments.keep:
                shutil.rmtree(scratch, ignore_errors=True)
    common = report.machine(plan, quick=arguments.quick, peers=bench.peers)
    if arguments.json:
        documents = [result.document(common) for result in results]
        arguments.json.write_text(json.dumps(documents, indent=1) + "\n")
    if results:
        report.show(results, common)
    for failure in failures:
        print(f"bench: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
