"""`pykraft storage`: prepares log directories as Kafka's storage tool does, and shows them."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from pathlib import Path
from typing import Any

from metadata.features import (
    DEFAULT_METADATA_VERSION,
    default_levels,
    describe_level,
    level_name,
)
from metadata.image import METADATA_VERSION
from pykraft import storage_format
from pykraft.cli import CommandError, values
from pykraft.cli.levels import feature_levels, metadata_level
from pykraft.cli.server import read_config
from pykraft.initial_voters import (
    check_own_entry,
    others_than,
    parse_initial_controllers,
    standalone,
)
from pykraft.node_config import NodeConfig
from pykraft.node_files import new_cluster_id
from raft.peers import KRAFT_VERSION
from raft.voters import VoterSet
from wire import meta_properties, uuids
from wire.errors import DamagedFile
from world.env import DiskError
from world.real import real_env


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of the noun."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    formatting = verbs.add_parser("format", help="prepare the log directories of a node")
    formatting.add_argument(
        "--config", type=values.path, required=True, help="its server.properties"
    )
    formatting.add_argument(
        "--cluster-id",
        type=values.filled,
        help="the same for every node (default: a random one)",
    )
    formatting.add_argument(
        "--release-version",
        metavar="VERSION",
        help="metadata.version to finalise, as a release (4.0) or level (4.0-IV3); default: "
        f"{level_name(DEFAULT_METADATA_VERSION)}",
    )
    formatting.add_argument(
        "--feature",
        metavar="NAME=LEVEL",
        action="append",
        default=[],
        help="another feature to finalise",
    )
    quorum = formatting.add_mutually_exclusive_group()
    quorum.add_argument(
        "--standalone", action="store_true", help="begin a quorum of this controller alone"
    )
    quorum.add_argument(
        "--initial-controllers",
        metavar="ID@HOST:PORT:DIRECTORY,…",
        help="begin a quorum of these controllers; the same on each of them",
    )
    quorum.add_argument(
        "--no-initial-controllers",
        action="store_true",
        help="this node finds a quorum that is there, to be added to it or to observe",
    )
    formatting.set_defaults(run=_format)
    random = verbs.add_parser(
        "random-uuid", help="a new id for --cluster-id, or a directory of --initial-controllers"
    )
    random.set_defaults(run=_random_uuid)
    info = verbs.add_parser("info", help="what the log directories of a node say of themselves")
    info.add_argument("--config", type=values.path, required=True, help="its server.properties")
    info.add_argument("--json", action="store_true")
    info.set_defaults(run=_info)


def _format(options: argparse.Namespace) -> int:
    config = read_config(options.config)
    voters = _initial_voters(options, config)
    note = check_own_entry(voters, config) if voters is not None else None
    others = others_than(config) if options.standalone else ()
    levels = _levels(options, dynamic=voters is not None)
    cluster_id = options.cluster_id or new_cluster_id()
    if not re.fullmatch(r"[A-Za-z0-9_-]+", cluster_id):
        raise CommandError(
            f"--cluster-id {cluster_id!r}: only letters, digits, '_' and '-' are allowed"
        )
    directories = list(dict.fromkeys((*config.log_dirs, config.metadata_log_dir)))
    try:
        asyncio.run(
            storage_format.format_directories(
                real_env(),
                directories,
                node_id=config.node_id,
                cluster_id=cluster_id,
                levels=levels,
                metadata_directory=config.metadata_log_dir,
                voters=voters,
            )
        )
    except (DiskError, OSError) as error:
        # The disk says only which path.
        named = "log.dirs and metadata.log.dir" if config.static["metadata.log.dir"] else "log.dirs"
        reason = "; ".join((str(error), *getattr(error, "__notes__", ())))
        raise CommandError(f"can't format the directories of {named}: {reason}") from None
    for directory in directories:
        print(
            f"formatted {directory}: cluster.id {cluster_id}, "
            + ", ".join(f"{name} {describe_level(name, levels[name])}" for name in levels)
        )
    if options.cluster_id is None:
        _note_new_id(
            cluster_id,
            directories,
            joins=not config.is_controller or options.no_initial_controllers,
            voters=len(config.voters) if voters is None else len(voters),
        )
    if voters is not None:
        print(f"kraft.version 1, voters {', '.join(map(str, voters.ids))}")
        if note is not None:
            print(f"note: {note}")
        if others:
            print(
                f"note: --standalone begins a quorum of this controller alone, so it is for the "
                f"first one only, but controller.quorum.bootstrap.servers names "
                f"{', '.join(map(str, others))}, too: format others with --cluster-id {cluster_id} "
                "--no-initial-controllers, and then add them with `pykraft quorum add-voter`"
            )
    elif len(config.voters) > 1:
        print(
            "note: with static voters (kraft.version 0) a controller that lost its disk can't be "
            "told from its former self: restore it only where the other voters are whole"
        )
    elif config.voters and config.is_controller and options.cluster_id:
        print(
            f"note: controller.quorum.voters names this controller alone, so it begins a quorum of "
            f"its own, even where cluster {cluster_id} has one: to join that, set "
            "controller.quorum.bootstrap.servers in its place and format with "
            "--no-initial-controllers"
        )
    return 0


def _note_new_id(cluster_id: str, directories: list[str], *, joins: bool, voters: int) -> None:
    """Tells a node that has to agree with others on its cluster's id that it got a new one."""
    if joins:
        print(
            f"note: {cluster_id} is a new random id, and this node must have that of its "
            f"controllers: where they have one, remove {', '.join(directories)} and format with "
            "--cluster-id"
        )
    elif voters > 1:
        print(
            f"note: {cluster_id} is a new random id: format the other nodes with "
            f"--cluster-id {cluster_id}"
        )


def _initial_voters(options: argparse.Namespace, config: NodeConfig) -> VoterSet | None:
    """The voters of a new quorum with kraft.version 1; None where none begins here."""
    begins = options.standalone or options.initial_controllers is not None
    if begins and config.voters:
        raise CommandError(
            "--standalone and --initial-controllers are for a quorum without "
            "controller.quorum.voters: set controller.quorum.bootstrap.servers in its place"
        )
    if options.no_initial_controllers and config.voters and config.is_controller:
        # Kafka takes it, and a controller that is named alone then elects itself.
        raise CommandError(
            "--no-initial-controllers is for a controller that finds its quorum, but on its empty "
            "log controller.quorum.voters would be in force: set "
            "controller.quorum.bootstrap.servers in its place"
        )
    if options.standalone:
        return standalone(config, real_env().ids.uuid())
    if begins:
        return parse_initial_controllers(
            options.initial_controllers, config.controller_listener_name
        )
    if config.is_controller and not config.voters and not options.no_initial_controllers:
        raise CommandError(
            "controller.quorum.voters is not set, so say how this controller finds its quorum: "
            "--standalone, --initial-controllers or --no-initial-controllers"
        )
    return None


def _levels(options: argparse.Namespace, *, dynamic: bool) -> dict[str, int]:
    """What to finalise, metadata.version first. kraft.version follows from how the quorum begins,
    and isn't among the metadata's records."""
    others = feature_levels(options.feature)
    if others.pop(KRAFT_VERSION, int(dynamic)) != int(dynamic):
        raise CommandError(
            f"--feature {KRAFT_VERSION}: it is 1 with --standalone or --initial-controllers, else 0"
        )
    if options.release_version is not None and METADATA_VERSION in others:
        raise CommandError(f"--release-version and --feature {METADATA_VERSION}: give one of them")
    level = others.pop(METADATA_VERSION, DEFAULT_METADATA_VERSION)
    if options.release_version is not None:
        level = metadata_level("--release-version", options.release_version)
    return {METADATA_VERSION: level, **default_levels(level), **others}


def _random_uuid(options: argparse.Namespace) -> int:
    print(new_cluster_id())
    return 0


def _info(options: argparse.Namespace) -> int:
    config = read_config(options.config)
    rows = [_directory(path) for path in dict.fromkeys((*config.log_dirs, config.metadata_log_dir))]
    if options.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            said = row["problem"] or (
                f"cluster.id {row['cluster_id']}, node.id {row['node_id']}, "
                f"directory.id {row['directory_id']}"
            )
            print(f"{row['directory']}: {said}")
    return 1 if any(row["problem"] for row in rows) else 0


def _directory(path: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "directory": path,
        "cluster_id": None,
        "node_id": None,
        "directory_id": None,
        "problem": None,
    }
    file = Path(path) / storage_format.META_PROPERTIES
    try:
        meta = meta_properties.decode(file.read_bytes(), str(file))
    except FileNotFoundError:
        row["problem"] = f"not formatted ({file.name} is missing)"
    except DamagedFile as damage:
        row["problem"] = str(damage)
    except OSError as error:
        row["problem"] = f"can't be read: {error}"
    else:
        row.update(cluster_id=meta.cluster_id, node_id=meta.node_id)
        if meta.directory_id is not None:
            row["directory_id"] = uuids.to_text(meta.directory_id)
    return row
