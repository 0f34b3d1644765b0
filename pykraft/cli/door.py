"""How a command finds the gRPC door, and what the nouns share in printing."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from admin.client import AdminClient
from pykraft.cli import CommandError
from pykraft.local_cluster import LocalCluster, default_directory


def verb(
    verbs: Any, name: str, summary: str, run: Any, *, json_output: bool = True
) -> argparse.ArgumentParser:
    """A verb of a noun that speaks to the controllers."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=summary, description=summary)
    parser.add_argument(
        "--admin",
        metavar="HOST:PORT[,…]",
        help="gRPC listeners of controllers (default: $PYKRAFT_ADMIN, or the local cluster)",
    )
    parser.add_argument("--dir", type=Path, help="the local cluster's folder")
    parser.add_argument(
        "--timeout", type=float, default=30.0, metavar="SECONDS", help="for the whole command"
    )
    if json_output:
        parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.set_defaults(run=run)
    return parser


def client(options: argparse.Namespace) -> AdminClient:
    """The client for the addresses that the options, the environment or the local cluster name."""
    if not options.timeout > 0:
        raise CommandError(f"--timeout {options.timeout}: must be more than 0 seconds")
    addresses = options.admin or (None if options.dir else os.environ.get("PYKRAFT_ADMIN"))
    if not addresses:
        cluster = LocalCluster(options.dir or default_directory())
        if not cluster.exists():
            raise CommandError(
                "no controllers given: no --admin, no PYKRAFT_ADMIN, no cluster in "
                f"{cluster.directory} (a lone `pykraft server` has --admin localhost:9094)"
            )
        addresses = cluster.admin_addresses()
    return AdminClient(addresses, timeout_ms=int(options.timeout * 1000), on_wait=_tell_wait)


def _tell_wait(reason: str) -> None:
    if sys.stderr.isatty():
        print(f"pykraft: waiting: {reason}", file=sys.stderr)


def key_values(items: Sequence[str], option: str) -> dict[str, str]:
    """`K=V` options as a mapping."""
    pairs = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise CommandError(f"{option} {item}: must be NAME=VALUE")
        pairs[key] = value
    return pairs


def show(document: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(document))


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Rows under their column names, as wide as their content."""
    cells = [[str(column).upper() for column in columns]]
    cells += [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value) or "-"
    return str(value)
