"""`pykraft elect`: leader elections on request."""

from __future__ import annotations

import argparse

from pykraft.cli import CommandError, door
from wire.numbers import INT32_MAX, whole_number

NOT_NEEDED = "ELECTION_NOT_NEEDED"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of the noun."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, summary in (
        ("preferred", "give leadership back to the first replica, where it is in sync"),
        ("unclean", "take any live replica where none in sync is left: may lose records"),
    ):
        verb = door.verb(verbs, name, summary, _elect)
        verb.add_argument(
            "partitions", metavar="TOPIC:PARTITION", nargs="*", help="default: all partitions"
        )


def _elect(options: argparse.Namespace) -> int:
    partitions: dict[str, list[int]] = {}
    for item in options.partitions:
        topic, colon, number = item.rpartition(":")
        partition = whole_number(number, INT32_MAX)
        if not colon or not topic or partition is None:
            raise CommandError(f"{item}: must be TOPIC:PARTITION")
        partitions.setdefault(topic, []).append(partition)
    with door.client(options) as admin:
        results = admin.elect_leaders(partitions or None, unclean=options.verb == "unclean")
    if options.json:
        door.show(results)
    elif results:
        door.table(results, ("topic", "partition", "error"))
    else:
        print("no election was needed")
    # Asking for what is so already is no failure.
    failed = [r for r in results if r["error"] and not r["error"].startswith(NOT_NEEDED)]
    return 1 if failed else 0
