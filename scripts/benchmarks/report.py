"""What is shown of the results, and what is said of the machine they were taken on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measures import Plan
from benchmarks.rdkafka import load_library
from benchmarks.stats import Result, number, range_text

ROOT = Path(__file__).resolve().parent.parent.parent
COLOURS = {"won": "green", "lost": "red", "even": "yellow", "": ""}


def _first(path: str, start: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(start)), "")


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except FileNotFoundError:
        return ""
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0].strip() if lines else ""


def machine(plan: Plan, *, quick: bool, peers: Sequence[str]) -> dict[str, Any]:
    """Machine, versions and amounts, the same for every figure of a run."""
    memory_kb = int((_first("/proc/meminfo", "MemTotal") or "0 kB").split()[0])
    versions = {
        "pykraft": importlib.metadata.version("pykraft"),
        "commit": _output("git", "rev-parse", "--short", "HEAD"),
        # Which build it is counts: without profile-guided optimization it is an eighth slower.
        "python": f"{platform.python_version()} ({os.path.realpath(sys.executable)})",
        "uvloop": importlib.metadata.version("uvloop"),
        "librdkafka": load_library().rd_kafka_version_str().decode(),
    }
    if "kafka" in peers:
        from benchmarks.jvm import HEAP, VERSION

        versions |= {
            "kafka": VERSION,
            "kafka_heap": " ".join(HEAP),
            "java": _output("java", "-version"),
        }
    if "etcd" in peers:
        from benchmarks import etcd

        versions |= {"etcd": etcd.version(), "go": _output("go", "version")}
    return {
        "machine": {
            "cpu": _first("/proc/cpuinfo", "model name"),
            "cores": os.cpu_count(),
            "memory_gb": round(memory_kb / 1e6, 1),
            "kernel": platform.release(),
            "load_at_end": [round(load, 2) for load in os.getloadavg()],
        },
        "versions": versions,
        "plan": {**asdict(plan), "quick": quick},
    }


def line(result: Result) -> str:
    """One figure as it comes."""
    text = f"{result.name}  {range_text(result.ours)} {result.unit}"
    if result.theirs is not None:
        colour = COLOURS[result.verdict]
        text += f"  {result.peer}: {range_text(result.theirs)}"
        text += f"  [{colour}]{result.verdict}[/{colour}]"
    return text


def table(results: Sequence[Result]) -> Table:
    """Every figure with its spread, its servers' CPU seconds, and the ratio, won or lost."""
    shown = Table(title="median (min–max) of the runs; CPU: the servers' seconds of a run")
    shown.add_column("benchmark")
    shown.add_column("unit")
    for heading in ("pykraft", "CPU s", "peer", "CPU s"):
        shown.add_column(heading, justify="right")
    shown.add_column("ratio", justify="right")
    shown.add_column("")
    for result in results:
        colour = COLOURS[result.verdict]
        shown.add_row(
            result.name,
            f"{result.unit} ({'+' if result.better == 'higher' else '-'})",
            range_text(result.ours),
            range_text(result.cpu_s),
            range_text(result.theirs),
            range_text(result.peer_cpu_s),
            number(result.ratio) if result.ratio is not None else "–",
            f"[{colour}]{result.verdict}[/{colour}]" if colour else "",
        )
    return shown


def show(results: Sequence[Result], common: dict[str, Any]) -> None:
    """The table on stdout, machine and versions below it."""
    console = Console()
    width = max(console.width, 150) if not console.is_terminal else console.width
    Console(width=width).print(table(results))
    peers = sorted({result.peer for result in results if result.peer})
    print(f"(+) more is better, (-) less is better; peer: {', '.join(peers) or 'none'}")
    for result in results:
        if result.note:
            print(f"{result.name}: {result.note}")
    for part in ("machine", "versions"):
        print(f"{part}: " + ", ".join(f"{key} {value}" for key, value in common[part].items()))
