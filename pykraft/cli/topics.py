"""`pykraft topics`: create, list, describe, delete, add partitions."""

from __future__ import annotations

import argparse

from pykraft.cli import CommandError, door, values
from wire.numbers import INT32_MAX, whole_number

_DEFAULT = 0  # the cluster's number, which is why 0 can't be asked for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of the noun."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    create = door.verb(verbs, "create", "make a topic", _create)
    create.add_argument("name", metavar="NAME")
    create.add_argument(
        "--partitions", type=values.count, metavar="N", help="default: the cluster's"
    )
    create.add_argument(
        "--replication-factor", type=values.count, metavar="R", help="default: the cluster's"
    )
    create.add_argument(
        "--assignment",
        metavar="1:2,2:3",
        help="brokers of each partition instead, the preferred leader first",
    )
    create.add_argument("--config", metavar="K=V", action="append", default=[])
    create.add_argument("--validate-only", action="store_true", help="check, but make nothing")

    door.verb(verbs, "list", "names of all topics", _list)

    describe = door.verb(verbs, "describe", "partitions, replicas, leaders", _describe)
    describe.add_argument("names", metavar="NAME", nargs="*", help="default: all")
    describe.add_argument(
        "--linearizable", action="store_true", help="as new as anything acknowledged before"
    )

    delete = door.verb(verbs, "delete", "delete a topic and its records", _delete)
    delete.add_argument("name", metavar="NAME")

    add = door.verb(verbs, "add-partitions", "give a topic more partitions", _add_partitions)
    add.add_argument("name", metavar="NAME")
    add.add_argument(
        "--partitions", type=values.count, required=True, metavar="N", help="the new total"
    )
    add.add_argument("--validate-only", action="store_true", help="check, but change nothing")


def _assignment(text: str | None) -> dict[int, list[int]]:
    if text is None:
        return {}
    assignment: dict[int, list[int]] = {}
    for partition, replicas in enumerate(text.split(",")):
        for item in replicas.split(":"):
            broker = whole_number(item, INT32_MAX)
            if broker is None:
                raise CommandError(
                    f"--assignment {text}: must be broker ids, `:` between replicas and `,` "
                    "between partitions"
                )
            assignment.setdefault(partition, []).append(broker)
    return assignment


def _create(options: argparse.Namespace) -> int:
    partitions = options.partitions or _DEFAULT
    replicas = options.replication_factor or _DEFAULT
    assignments = _assignment(options.assignment)
    if assignments and (partitions or replicas):
        raise CommandError(
            "--assignment says how many partitions and replicas there are: leave out "
            "--partitions and --replication-factor"
        )
    with door.client(options) as admin:
        topic_id = admin.create_topic(
            options.name,
            partitions,
            replicas,
            configs=door.key_values(options.config, "--config"),
            assignments=assignments,
            validate_only=options.validate_only,
        )
    if options.json:
        door.show(
            {"name": options.name, "id": topic_id or None, "validate_only": options.validate_only}
        )
    elif options.validate_only:
        print(f"{options.name} can be created")
    else:
        print(f"created {options.name} (id {topic_id})")
    return 0


def _list(options: argparse.Namespace) -> int:
    with door.client(options) as admin:
        names = admin.list_topics()
    if options.json:
        door.show(names)
    else:
        for name in names:
            print(name)
    return 0


def _describe(options: argparse.Namespace) -> int:
    with door.client(options) as admin:
        topics = admin.describe_topics(options.names, linearizable=options.linearizable)
    if options.json:
        door.show({"topics": topics})
        return 0
    for name, topic in topics.items():
        print(f"{name}  id {topic['id']}")
        rows = [
            {"partition": number, **partition} for number, partition in topic["partitions"].items()
        ]
        columns = ("partition", "leader", "leaderEpoch", "replicas", "isr", "elr", "lastKnownElr")
        door.table(rows, columns)
    return 0


def _delete(options: argparse.Namespace) -> int:
    with door.client(options) as admin:
        admin.delete_topic(options.name)
    if options.json:
        door.show({"name": options.name, "deleted": True})
    else:
        print(f"deleted {options.name}")
    return 0


def _add_partitions(options: argparse.Namespace) -> int:
    count: int = options.partitions
    with door.client(options) as admin:
        admin.create_partitions(options.name, count, validate_only=options.validate_only)
    if options.json:
        door.show(
            {"name": options.name, "partitions": count, "validate_only": options.validate_only}
        )
    elif options.validate_only:
        print(f"{options.name} can have {count} partitions")
    else:
        print(f"{options.name} has {count} partitions now")
    return 0
