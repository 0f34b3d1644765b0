"""`pykraft storage`: prepares log directories as Kafka's storage tool does, and shows them."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from pathlib import Path
from typing import Any

from metadata.features import DEFAULT_METADATA_VERSION, describe_level, level_name
from metadata.image import METADATA_VERSION
from pykraft import storage_format
from pykraft.cli import CommandError
from pykraft.cli.levels import feature_levels, metadata_level
from pykraft.cli.server import read_config
from pykraft.node_files import new_cluster_id
from wire import meta_properties, uuids
from wire.errors import DamagedFile
from world.env import DiskError
from world.real import real_env


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of the noun."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    formatting = verbs.add_parser("format", help="prepare the log directories of a node")
    formatting.add_argument("--config", type=Path, required=True, help="its server.properties")
    formatting.add_argument("--cluster-id", help="the same for every node (default: a random one)")
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
    formatting.set_defaults(run=_format)
    info = verbs.add_parser("info", help="what the log directories of a node say of themselves")
    info.add_argument("--config", type=Path, required=True, help="its server.properties")
    info.add_argument("--json", action="store_true")
    info.set_defaults(run=_info)


def _format(options: argparse.Namespace) -> int:
    config = read_config(options.config)
    levels = _levels(options)
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
            )
        )
    except (DiskError, OSError) as error:
        raise CommandError(f"can't format: {error}") from None
    for directory in directories:
        print(
            f"formatted {directory}: cluster.id {cluster_id}, "
            + ", ".join(f"{name} {describe_level(name, levels[name])}" for name in levels)
        )
    if len(config.voters) > 1:
        print(
            "note: with static voters (kraft.version 0) a controller that lost its disk can't be "
            "told from its former self: restore it only where the other voters are whole"
        )
    return 0


def _levels(options: argparse.Namespace) -> dict[str, int]:
    """What to finalise, metadata.version first."""
    others = feature_levels(options.feature)
    if options.release_version is not None and METADATA_VERSION in others:
        raise CommandError(f"--release-version and --feature {METADATA_VERSION}: give one of them")
    level = DEFAULT_METADATA_VERSION
    if options.release_version is not None:
        level = metadata_level("--release-version", options.release_version)
    return {METADATA_VERSION: level, **others}


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
