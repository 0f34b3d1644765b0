"""`pykraft groups`: consumer groups, how far they have read, and setting that anew."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from net.errors import NetworkError
from pykraft.broker_client import EARLIEST, LATEST, BrokerClient, NobodyAnswers
from pykraft.cli import CommandError, door, listeners
from pykraft.group_client import Aim, Described, GroupClient
from wire.addresses import split_target
from wire.errors import KafkaError
from wire.numbers import INT32_MAX, whole_number
from world.real import real_env

_NAMED = {"earliest": EARLIEST, "latest": LATEST}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of the noun."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verb = partial(door.verb, verbs, of=listeners.BOOTSTRAP)
    verb("list", "groups, their states and who coordinates them", _list)
    describing = verb("describe", "members, offsets and what is yet to be read", _describe)
    describing.add_argument("groups", metavar="GROUP", nargs="+")
    describing.add_argument("--members", action="store_true", help="a line for each member")
    resetting = verb("reset", "where a group without members begins to read", _reset)
    resetting.add_argument("group", metavar="GROUP")
    resetting.add_argument(
        "--topic",
        metavar="TOPIC[:P,…]",
        action="append",
        default=[],
        help="a topic, or some of its partitions (default: all that the group has read)",
    )
    resetting.add_argument(
        "--to",
        required=True,
        metavar="WHERE",
        help="earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z",
    )
    resetting.add_argument("--dry-run", action="store_true", help="change nothing, only show it")
    deleting = verb("delete", "forget groups without members, and their offsets", _delete)
    deleting.add_argument("groups", metavar="GROUP", nargs="+")


def _address(text: str) -> tuple[str, int]:
    found = split_target(text)
    if found is None:
        raise CommandError(f"broker {text!r}: must be HOST:PORT, the port from 1 to 65535")
    return found


def _asked(options: argparse.Namespace, ask: Callable[[GroupClient], Awaitable[Any]]) -> Any:
    """What `ask` finds out. CommandError where nobody answers."""
    timeout_ms = listeners.timeout_ms(options)
    addresses, _ = listeners.addresses(options, listeners.BOOTSTRAP)
    bootstrap = [_address(one) for one in addresses.split(",")]

    async def run() -> Any:
        async with BrokerClient(real_env(), bootstrap, timeout_ms) as brokers:
            return await ask(GroupClient(brokers))

    try:
        return asyncio.run(run())
    except NetworkError as error:
        raise CommandError(_why(error)) from None


def _why(error: Exception) -> str:
    return f"no Kafka broker answers at {error}" if isinstance(error, NobodyAnswers) else str(error)


def _of_each(
    options: argparse.Namespace, ask: Callable[[GroupClient, str], Awaitable[Any]]
) -> tuple[dict[str, Any], list[str]]:
    """What `ask` gives by group, and why it gives nothing of others.

    Of a lone group that is raised; of several each one is tried, as long as brokers answer.
    """

    async def run(client: GroupClient) -> tuple[dict[str, Any], list[str]]:
        found, refused = {}, []
        for group in dict.fromkeys(options.groups):
            try:
                found[group] = await ask(client, group)
            except KafkaError as error:
                if len(options.groups) == 1:
                    raise
                refused.append(str(error))
            except NetworkError as error:
                if not found:
                    raise
                refused.append(_why(error))
                break
        return found, refused

    answer: tuple[dict[str, Any], list[str]] = _asked(options, run)
    return answer


def _end(options: argparse.Namespace, documents: list[Any] | None, refused: list[str]) -> int:
    """Shows JSON documents, of a lone group its own, and refusals; the exit code."""
    if documents is not None:
        door.show(documents if len(options.groups) > 1 else documents[0])
    sys.stdout.flush()
    for reason in refused:
        print(f"pykraft: {reason}", file=sys.stderr)
    return 1 if refused else 0


def _list(options: argparse.Namespace) -> int:
    groups = [one._asdict() for one in _asked(options, lambda client: client.all())]
    if options.json:
        door.show(groups)
    else:
        rows = [{key: value or None for key, value in group.items()} for group in groups]
        door.table(rows, ("group", "type", "protocol", "state", "coordinator"))
    return 0


def _describe(options: argparse.Namespace) -> int:
    found, refused = _of_each(options, lambda client, group: client.describe(group))
    if options.json:
        return _end(options, [_document(one) for one in found.values()], refused)
    for number, one in enumerate(found.values()):
        if number:
            print()
        _print(one, members=options.members)
    return _end(options, None, refused)


def _print(found: Described, *, members: bool) -> None:
    """A line about the group, and a table: of its members, or of its partitions."""
    assignor = f", assignor {found.assignor}" if found.assignor else ""
    print(
        f"{found.group}: {found.type or 'offsets only'}, {found.state}{assignor}, "
        f"coordinator {found.coordinator.id} ({found.coordinator}), members: {len(found.members)}"
    )
    if members:
        rows = [
            {**one._asdict(), "member": one.id, "partitions": _partitions(one.assigned)}
            for one in found.members
        ]
        door.table(rows, ("member", "instance", "client", "host", "partitions"))
        return
    by_id = {one.id: one for one in found.members}
    rows = []
    for position in found.positions:
        member = by_id.get(position.member or "")
        about = {"client": member.client, "host": member.host} if member else {}
        rows.append({**position._asdict(), "lag": position.lag, **about})
    door.table(rows, ("topic", "partition", "offset", "end", "lag", "member", "client", "host"))


def _document(found: Described) -> dict[str, Any]:
    return {
        "group": found.group,
        "type": found.type,
        "state": found.state,
        "assignor": found.assignor,
        "coordinator": found.coordinator.id,
        "members": [one._asdict() for one in found.members],
        "partitions": [{**one._asdict(), "lag": one.lag} for one in found.positions],
    }


def _partitions(assigned: dict[str, tuple[int, ...]] | None) -> str | None:
    if assigned is None:
        return None
    return " ".join(f"{topic}:{','.join(map(str, own))}" for topic, own in assigned.items()) or "-"


def _reset(options: argparse.Namespace) -> int:
    topics = dict(_topic(text) for text in options.topic)
    to, exact = _where(options.to)

    async def ask(client: GroupClient) -> list[Aim]:
        aims = await client.aim(options.group, topics, to, exact=exact)
        if not options.dry_run:
            await client.commit(options.group, aims)
        return aims

    rows = [one._asdict() for one in _asked(options, ask)]
    if options.json:
        door.show([{**row, "dry_run": options.dry_run} for row in rows])
    else:
        door.table(rows, ("topic", "partition", "before", "offset"))
        if options.dry_run:
            print("nothing was changed (--dry-run)")
    return 0


def _topic(text: str) -> tuple[str, list[int] | None]:
    name, colon, listed = text.partition(":")
    numbers = [whole_number(part, INT32_MAX) for part in (listed.split(",") if colon else [])]
    partitions = {number for number in numbers if number is not None}
    if not name or None in numbers:
        raise CommandError(f"--topic {text!r}: must be TOPIC or TOPIC:P,P,… with partition numbers")
    return name, sorted(partitions) if colon else None


def _where(text: str) -> tuple[int, bool]:
    """A timestamp or, with True, an offset."""
    if text in _NAMED:
        return _NAMED[text], False
    offset = whole_number(text)
    if offset is not None:
        return offset, True
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"--to {text!r}: must be earliest, latest, an offset, or a time such as "
            "2026-01-31T12:00:00Z"
        ) from None
    at_ms = round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    if at_ms < 0:
        raise CommandError(f"--to {text!r}: must be a time since 1970")
    return at_ms, False


def _delete(options: argparse.Namespace) -> int:
    found, refused = _of_each(options, lambda client, group: client.delete(group))
    if options.json:
        return _end(options, [{"group": group, "deleted": True} for group in found], refused)
    for group in found:
        print(f"group {group} is deleted")
    return _end(options, None, refused)
