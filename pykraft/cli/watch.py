"""`pykraft watch`: committed metadata changes as they happen, one a line."""

from __future__ import annotations

import argparse
import json

from pykraft.cli import door, listeners, values


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The noun's arguments; it has no verbs."""
    parser.epilog = (
        "Shown are the controllers' records. The quorum's own (its leaders, voters, kraft.version)"
        " are not among them: `pykraft audit timeline` has these."
    )
    listeners.add_options(parser, listeners.ADMIN)
    parser.add_argument(
        "--from",
        type=values.offset,
        default=0,
        dest="from_offset",
        metavar="OFFSET",
        help="default: 0",
    )
    parser.add_argument(
        "--snapshot-first",
        action="store_true",
        help="the present state first, then what changes it",
    )
    parser.add_argument(
        "--timeout", type=values.seconds, default=30.0, help="to find a controller, seconds"
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object a line, no-op records too"
    )
    parser.set_defaults(run=_watch)


def _watch(options: argparse.Namespace) -> int:
    with door.client(options, stays=True) as admin:
        for record in admin.watch(options.from_offset, snapshot_first=options.snapshot_first):
            if options.json:
                print(json.dumps({"kind": "record", **record}), flush=True)
            elif record["type"] != "NoOpRecord":
                data = json.dumps(record["data"])
                print(f"{record['offset']:>8} {record['type']} {data}", flush=True)
    return 0
