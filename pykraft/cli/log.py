"""`pykraft log`: decoding log and snapshot files."""

from __future__ import annotations

import argparse
import sys

from pykraft import log_dump
from pykraft.cli import values


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of the noun."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    dump = verbs.add_parser("dump", help="decode segments and snapshots of any Kafka log directory")
    dump.add_argument(
        "paths", metavar="PATH", type=values.path, nargs="+", help="files or directories"
    )
    dump.add_argument("--json", action="store_true", help="one JSON object a line")
    dump.set_defaults(run=_dump)


def _dump(options: argparse.Namespace) -> int:
    return log_dump.dump(options.paths, json=options.json, out=sys.stdout)
