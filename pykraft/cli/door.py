"""What the nouns share: their verbs, the client of the gRPC door, printing."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from admin.client import AdminClient
from pykraft.cli import CommandError, listeners, values
from pykraft.cli.probe import is_other_listener


def verb(
    verbs: Any,
    name: str,
    summary: str,
    run: Any,
    *,
    of: listeners.Listeners = listeners.ADMIN,
) -> argparse.ArgumentParser:
    """A verb of a noun that speaks to the cluster, to its controllers if not told otherwise."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=summary, description=summary)
    listeners.add_options(parser, of)
    parser.add_argument(
        "--timeout",
        type=values.seconds,
        default=30.0,
        metavar="SECONDS",
        help="for the whole command",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.set_defaults(run=run)
    return parser


def client(options: argparse.Namespace, *, stays: bool = False) -> AdminClient:
    """The client for the addresses that the options, the environment or the local cluster name.
    All of its calls together have the command's time, each of them where it `stays`."""
    timeout_ms = listeners.timeout_ms(options)
    addresses, source = listeners.addresses(options, listeners.ADMIN)
    listed = [address.strip() for address in addresses.split(",") if address.strip()]
    return AdminClient(
        listed,
        timeout_ms=timeout_ms,
        on_wait=partial(_on_wait, listed, source),
        source=source,
        life_ms=None if stays else timeout_ms,
    )


def _on_wait(addresses: Sequence[str], source: str, reason: str) -> None:
    """Ends a command that would wait for what can't come; tells a person why it waits else."""
    # All of them: one that is wrong among others is no reason not to wait for these.
    if all(is_other_listener(address) for address in addresses):
        raise CommandError(
            f"{', '.join(addresses)} ({source}) answers, but not in gRPC: a controller's "
            "pykraft.admin.listener is meant, not a listener for Kafka clients or metrics"
        )
    tell_waiting(reason)


def tell_waiting(reason: str) -> None:
    """Tells a person, not a script, why a command waits."""
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
