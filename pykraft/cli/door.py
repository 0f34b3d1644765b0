"""How a command finds the gRPC door, and what the nouns share in printing."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from admin.client import AdminClient
from pykraft.cli import CommandError
from pykraft.cli.probe import is_other_listener
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
    if options.admin:
        addresses, source = options.admin, "--admin"
    elif os.environ.get("PYKRAFT_ADMIN") and not options.dir:
        addresses, source = os.environ["PYKRAFT_ADMIN"], "PYKRAFT_ADMIN"
    else:
        cluster = LocalCluster(options.dir or default_directory())
        addresses, source = _local_addresses(cluster), f"the cluster in {cluster.directory}"
    listed = [address.strip() for address in addresses.split(",") if address.strip()]
    return AdminClient(
        listed,
        timeout_ms=int(options.timeout * 1000),
        on_wait=partial(_on_wait, listed, source),
        source=source,
    )


def _local_addresses(cluster: LocalCluster) -> str:
    """Where the local cluster's controllers listen; CommandError where none of them runs."""
    if not cluster.exists():
        raise CommandError(
            "no controllers given: no --admin, no PYKRAFT_ADMIN, no cluster in "
            f"{cluster.directory} (a lone `pykraft server` has --admin localhost:9094)"
        )
    nodes = cluster.nodes()
    running = [node for node in nodes if cluster.process(node)]
    if not running:
        raise CommandError(f"no node of {cluster.directory} runs: `pykraft cluster up` starts them")
    if not any(node.admin for node in running):
        ids = " ".join(str(node.id) for node in nodes if node.admin)
        raise CommandError(
            f"no controller of {cluster.directory} runs: `pykraft cluster start {ids}`"
        )
    return cluster.admin_addresses()


def _on_wait(addresses: Sequence[str], source: str, reason: str) -> None:
    """Ends a command that would wait for what can't come; tells a person why it waits else."""
    # All of them: one that is wrong among others is no reason not to wait for these.
    if all(is_other_listener(address) for address in addresses):
        raise CommandError(
            f"{', '.join(addresses)} ({source}) answers, but not in gRPC: a controller's "
            "pykraft.admin.listener is meant, not a listener for Kafka clients or metrics"
        )
    if sys.stderr.isatty():
        print(f"pykraft: waiting: {reason}", file=sys.stderr)


def key_values(items: Sequence[str], option: str) -> dict[str, str]:
    """`K=V` options as a mapping; CommandError for what is none, or a name given twice."""
    pairs = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise CommandError(f"{option} {item}: must be NAME=VALUE")
        if key in pairs:
            raise CommandError(f"{option} {item}: {key} is given twice")
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
