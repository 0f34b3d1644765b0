"""`pykraft quorum`: the controllers' Raft quorum."""

from __future__ import annotations

import argparse
from typing import Any

from pykraft.cli import door
from wire import uuids


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of the noun."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    door.verb(verbs, "describe", "leader, epoch, high watermark, who has what", _describe)


def _describe(options: argparse.Namespace) -> int:
    with door.client(options) as admin:
        quorum = admin.describe_quorum()
    if options.json:
        door.show(quorum)
        return 0
    print(
        f"leader {quorum['leader']}, epoch {quorum['epoch']}, "
        f"high watermark {quorum['high_watermark']}"
    )
    rows = [{"role": "voter", **_known(one)} for one in quorum["voters"]]
    rows += [{"role": "observer", **_known(one)} for one in quorum["observers"]]
    door.table(rows, ("role", "id", "end_offset", "lag_ms", "directory"))
    return 0


def _known(replica: dict[str, Any]) -> dict[str, Any]:
    """A replica's row, without what its leader doesn't know (it has not fetched yet)."""
    unknown = (-1, uuids.to_text(uuids.ZERO))
    return {key: None if value in unknown else value for key, value in replica.items()}
