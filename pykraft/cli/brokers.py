"""`pykraft brokers`: who is registered; forgetting one."""

from __future__ import annotations

import argparse
from typing import Any

from pykraft.cli import door, values


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of the noun."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    door.verb(verbs, "list", "registered brokers, fenced ones too", _list)
    unregister = door.verb(
        verbs, "unregister", "forget a broker that is gone for good", _unregister
    )
    unregister.add_argument("id", metavar="ID", type=values.node_id)


def _list(options: argparse.Namespace) -> int:
    with door.client(options) as admin:
        brokers = admin.describe_cluster()["brokers"]
    if options.json:
        door.show(brokers)
    else:
        door.table(
            [_row(broker) for broker in brokers], ("id", "state", "rack", "epoch", "listeners")
        )
    return 0


def _row(broker: dict[str, Any]) -> dict[str, Any]:
    state = "shutting down" if broker["in_controlled_shutdown"] else "active"
    if broker["fenced"]:
        state = "fenced"
    listeners = [f"{one[0]}://{one[1]}:{one[2]}" for one in broker["endpoints"]]
    return {**broker, "state": state, "listeners": listeners}


def _unregister(options: argparse.Namespace) -> int:
    with door.client(options) as admin:
        brokers = admin.describe_cluster()["brokers"]
        admin.unregister_broker(options.id)
    # Allowed, as in Kafka; but such a broker goes on as if it were one, and is refused for ever.
    active = any(broker["id"] == options.id and not broker["fenced"] for broker in brokers)
    if options.json:
        door.show({"id": options.id, "unregistered": True, "was_active": active})
    elif active:
        print(
            f"broker {options.id} is forgotten; it was active, and takes no part any more until "
            "its process is started again"
        )
    else:
        print(f"broker {options.id} is forgotten")
    return 0
