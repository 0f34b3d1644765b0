"""`pykraft server`: one node in the foreground."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from pykraft.cli import CommandError, values
from pykraft.imports import without
from pykraft.node_config import NodeConfig, parse_node_config, parse_properties, resembling
from wire.errors import KafkaError

# What `pykraft server` without a file runs: both roles, clients on Kafka's usual port.
DEFAULT_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
    "log.dirs": "pykraft-data",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "pykraft.admin.listener": "localhost:9094",
    "pykraft.metrics.listener": "localhost:9095",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The noun's arguments."""
    parser.add_argument(
        "config",
        metavar="CONFIG",
        type=values.path,
        nargs="?",
        help="a server.properties (default: one node on localhost:9092, data in ./pykraft-data)",
    )
    parser.add_argument("--ready-fd", type=values.count_or_none, help=argparse.SUPPRESS)
    parser.set_defaults(run=_run)


def read_config(path: Path) -> NodeConfig:
    """The node configuration in a file; CommandError where it can't be read, KafkaError, naming
    it, where it is bad."""
    try:
        text = path.read_text()
    except OSError as error:
        raise CommandError(f"can't read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CommandError(f"can't read {path}: {error}") from None
    values = parse_properties(text, str(path))
    try:
        return parse_node_config(values)
    except KafkaError as error:
        # What is missing may be there under a mistyped name.
        meant = [f"{name} (is {like} meant?)" for name in values if (like := resembling(name))]
        hint = f"; unknown names: {', '.join(meant)}" if meant else ""
        message = error.message.removesuffix(".")
        raise KafkaError(error.code, f"{path}: {message}{hint}") from None


def _run(options: argparse.Namespace) -> int:
    # Imported here: the other commands need none of what a node does. Its log lines are JSON.
    with without("rich"):
        from pykraft.server import run_node

    if options.config is None:
        config, format_if_new = parse_node_config(DEFAULT_PROPERTIES), True
    else:
        config, format_if_new = read_config(options.config), False
    if options.ready_fd is not None:
        os.set_inheritable(options.ready_fd, False)
    return run_node(config, ready_fd=options.ready_fd, format_if_new=format_if_new)
