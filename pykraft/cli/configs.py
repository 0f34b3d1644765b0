"""`pykraft configs`: what is set for a topic, broker or consumer group, and changing it."""

from __future__ import annotations

import argparse

from metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from pykraft.cli import CommandError, door, values


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of the noun."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    describe = door.verb(verbs, "describe", "what is set", _describe)
    _resource(describe)
    alter = door.verb(verbs, "alter", "set, remove, append, subtract; all or nothing", _alter)
    _resource(alter)
    alter.add_argument("--set", metavar="K=V", action="append", default=[], dest="set_")
    alter.add_argument("--delete", metavar="K", action="append", default=[], help="back to default")
    alter.add_argument("--append", metavar="K=V", action="append", default=[], help="to a list")
    alter.add_argument("--subtract", metavar="K=V", action="append", default=[], help="from a list")
    alter.add_argument("--validate-only", action="store_true", help="check, but change nothing")


def _resource(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", metavar="NAME")
    which.add_argument("--broker", metavar="ID", type=values.node_id)
    which.add_argument("--all-brokers", action="store_true", help="the default of every broker")
    which.add_argument("--group", metavar="NAME", help="a consumer group (KIP-848)")


def _named(options: argparse.Namespace) -> tuple[int, str]:
    if options.topic is not None:
        return TOPIC_RESOURCE, options.topic
    if options.group is not None:
        return GROUP_RESOURCE, options.group
    return BROKER_RESOURCE, "" if options.all_brokers else str(options.broker)


def _describe(options: argparse.Namespace) -> int:
    with door.client(options) as admin:
        rows = admin.describe_config(*_named(options))
    if options.json:
        door.show(rows)
    else:
        door.table(rows, ("name", "value", "source"))
    return 0


def _alter(options: argparse.Namespace) -> int:
    if not (options.set_ or options.delete or options.append or options.subtract):
        raise CommandError("nothing to alter: give --set, --delete, --append or --subtract")
    set_ = door.key_values(options.set_, "--set")
    append = door.key_values(options.append, "--append")
    subtract = door.key_values(options.subtract, "--subtract")
    names = [*set_, *options.delete, *append, *subtract]
    for name in names:
        # In which order would it be changed?
        if names.count(name) > 1:
            raise CommandError(f"{name} is given twice: one change of it at a time")
    with door.client(options) as admin:
        admin.alter_config(
            *_named(options),
            set=set_,
            delete=options.delete,
            append=append,
            subtract=subtract,
            validate_only=options.validate_only,
        )
        rows = admin.describe_config(*_named(options))
    if options.json:
        door.show(rows)
    else:
        door.table(rows, ("name", "value", "source"))
    return 0
