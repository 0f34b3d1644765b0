"""`pykraft quorum`: the controllers' Raft quorum, and who votes in it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from typing import Any

from admin.client import AdminClient
from pykraft.cli import CommandError, door, listeners, values
from raft.voters import says_nothing_committed
from wire import uuids
from wire.addresses import split_target
from wire.errors import ErrorCode, KafkaError

_PAUSE_S = 0.1
_OBSERVED_WITHIN_S = 5.0  # of an election: two fetch timeouts, and a little
_NO_CONTROLLER = "has registered as a broker, not as a controller, and only controllers can vote"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of the noun."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    door.verb(verbs, "describe", "leader, epoch, high watermark, who has what", _describe)
    adding = door.verb(verbs, "add-voter", "make a running controller a voter", _add_voter)
    adding.add_argument("id", metavar="ID", type=values.node_id, help="its node id")
    adding.add_argument(
        "--directory",
        type=values.filled,
        help="its directory.id (default: that of the observer ID)",
    )
    adding.add_argument(
        "--endpoint",
        metavar="LISTENER=HOST:PORT",
        action="append",
        help="where it listens for controllers (default: as it has registered)",
    )
    removing = door.verb(
        verbs, "remove-voter", "take a controller out of the voters", _remove_voter
    )
    removing.add_argument("id", metavar="ID", type=values.node_id, help="its node id")
    removing.add_argument(
        "--directory", type=values.filled, help="its directory.id (default: that of the voter ID)"
    )


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


def _add_voter(options: argparse.Namespace) -> int:
    deadline_s = _deadline_s(options)
    with door.client(options) as admin:
        directory = options.directory or _observed(admin, options.id, deadline_s)
        endpoints = _endpoints(options.endpoint) or _registered(admin, options.id)
        _ask(
            deadline_s,
            lambda left_ms: admin.add_voter(options.id, directory, endpoints, timeout_ms=left_ms),
        )
    return _done(options, directory, "is a voter")


def _remove_voter(options: argparse.Namespace) -> int:
    deadline_s = _deadline_s(options)
    with door.client(options) as admin:
        directory = options.directory or _directory_of(admin, options.id, "voters")
        _ask(
            deadline_s,
            lambda left_ms: admin.remove_voter(options.id, directory, timeout_ms=left_ms),
        )
    return _done(options, directory, "is no voter any more")


def _deadline_s(options: argparse.Namespace) -> float:
    return time.monotonic() + listeners.timeout_ms(options) / 1000


def _ask(deadline_s: float, change: Callable[[int], None]) -> None:
    """Has the leader change the voters, in the milliseconds that are left.

    One that has just been elected refuses that before it begins anything: it alone is asked again,
    since any other refusal may be of a change that is committed in the end.
    """
    left_ms = max(1, round((deadline_s - time.monotonic()) * 1000))
    told = ""
    while True:
        try:
            change(left_ms)
            return
        except KafkaError as refused:
            left_ms = round((deadline_s - time.monotonic() - _PAUSE_S) * 1000)
            again = refused.code is ErrorCode.request_timed_out and says_nothing_committed(
                refused.message
            )
            if not again or left_ms <= 0:
                raise
            if refused.message != told:
                told = refused.message
                door.tell_waiting(told)
        time.sleep(_PAUSE_S)


def _done(options: argparse.Namespace, directory: str, what: str) -> int:
    if options.json:
        door.show({"id": options.id, "directory": directory})
    else:
        print(f"controller {options.id} with directory id {directory} {what}")
    return 0


class _NotKnown(CommandError):
    """The leader doesn't know a replica of the id."""


def _observed(admin: AdminClient, node_id: int, deadline_s: float) -> str:
    """As `_directory_of` the observers; a leader that has just been elected may not have heard of
    a controller that has registered."""
    until_s = min(time.monotonic() + _OBSERVED_WITHIN_S, deadline_s - _PAUSE_S)
    while True:
        try:
            return _directory_of(admin, node_id, "observers")
        except _NotKnown as refused:
            registered = [one["id"] for one in admin.describe_cluster()["controllers"]]
            if node_id not in registered or time.monotonic() > until_s:
                raise
            door.tell_waiting(str(refused))
        time.sleep(_PAUSE_S)


def _directory_of(admin: AdminClient, node_id: int, among: str) -> str:
    """The directory id under which the leader knows a replica of this id."""
    quorum = admin.describe_quorum()
    replicas = quorum[among]
    known = [one for one in replicas if one["id"] == node_id]
    if not known and among == "observers":
        for voter in quorum["voters"]:
            if voter["id"] == node_id:
                raise KafkaError(
                    ErrorCode.duplicate_voter,
                    f"{node_id} is a voter already, with directory id {voter['directory']}",
                )
    if not known:
        brokers = _brokers_alone(admin) if among == "observers" else []
        listed = _ids(one["id"] for one in replicas if one["id"] not in brokers)
        if also := [one["id"] for one in replicas if one["id"] in brokers]:
            listed += f"; brokers: {_ids(also)}"
        what = f", which {_NO_CONTROLLER}" if node_id in brokers else ""
        raise _NotKnown(f"none of the {among} ({listed}) has id {node_id}{what}")
    # Of two disks of one node the leader remembers both for a while: the one in use keeps up.
    freshest = min(known, key=lambda one: one["lag_ms"] if one["lag_ms"] >= 0 else 2**63)
    return str(freshest["directory"])


def _registered(admin: AdminClient, node_id: int) -> dict[str, tuple[str, int]]:
    """Where a controller says that it listens."""
    cluster = admin.describe_cluster()
    for controller in cluster["controllers"]:
        if controller["id"] == node_id:
            return {name: (host, port) for name, host, port, _ in controller["endpoints"]}
    if any(broker["id"] == node_id for broker in cluster["brokers"]):
        # Controllers register from metadata.version 3.7 on.
        raise CommandError(
            f"node {node_id} {_NO_CONTROLLER}: if it has both roles, name its --endpoint"
        )
    raise CommandError(f"controller {node_id} has not registered: name its --endpoint")


def _brokers_alone(admin: AdminClient) -> list[int]:
    """The brokers that have not registered as controllers, too."""
    cluster = admin.describe_cluster()
    controllers = [one["id"] for one in cluster["controllers"]]
    return [one["id"] for one in cluster["brokers"] if one["id"] not in controllers]


def _ids(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, dict.fromkeys(numbers))) or "none"


def _endpoints(items: list[str] | None) -> dict[str, tuple[str, int]]:
    endpoints = {}
    for item in items or ():
        name, equals, place = item.partition("=")
        address = split_target(place)
        if not (name and equals and address):
            raise CommandError(
                f"--endpoint {item}: must be LISTENER=HOST:PORT, the port from 1 to 65535"
            )
        if name in endpoints:
            raise CommandError(f"--endpoint {item}: {name} is given twice")
        endpoints[name] = address
    return endpoints
