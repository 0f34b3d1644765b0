"""Which listeners a command speaks to: an option's, the environment's, or the local cluster's."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import NamedTuple

from pykraft.cli import CommandError, values
from pykraft.local_cluster import LocalCluster, default_directory


class Listeners(NamedTuple):
    """A kind of listener: `help` says what it is, `lone` is where `pykraft server` has it.

    `local` tells where the nodes of a cluster have theirs, comma-separated; CommandError where none
    of them runs.
    """

    nodes: str
    option: str
    variable: str
    help: str
    lone: str
    local: Callable[[LocalCluster], str]


def add_options(parser: argparse.ArgumentParser, listeners: Listeners) -> None:
    """The options that name the listeners, or the cluster that has them."""
    parser.add_argument(
        listeners.option,
        dest="listeners",
        metavar="HOST:PORT[,…]",
        help=f"{listeners.help} (default: ${listeners.variable}, or the local cluster)",
    )
    parser.add_argument("--dir", type=values.path, help="the local cluster's folder")


def addresses(options: argparse.Namespace, listeners: Listeners) -> tuple[str, str]:
    """`HOST:PORT[,…]` as it was given, and who gave it. CommandError where nobody did."""
    if options.listeners is not None:
        if not options.listeners.strip():
            raise CommandError(f"{listeners.option} {options.listeners!r}: must be HOST:PORT[,…]")
        return options.listeners, listeners.option
    in_environment = os.environ.get(listeners.variable)
    if in_environment and not options.dir:
        return in_environment, listeners.variable
    cluster = LocalCluster(options.dir or default_directory())
    if not cluster.exists():
        raise CommandError(
            f"no {listeners.nodes} given: no {listeners.option}, no {listeners.variable}, no "
            f"cluster in {cluster.directory} (a lone `pykraft server` has {listeners.option} "
            f"{listeners.lone})"
        )
    return listeners.local(cluster), f"the cluster in {cluster.directory}"


def timeout_ms(options: argparse.Namespace) -> int:
    """The time for a command."""
    limit_s: float = options.timeout
    return max(1, round(limit_s * 1000))


def _of_controllers(cluster: LocalCluster) -> str:
    nodes = cluster.nodes()
    running = [node for node in nodes if cluster.process(node)]
    if not running:
        raise CommandError(f"no node of {cluster.directory} runs: `pykraft cluster up` starts them")
    if not any(node.admin for node in running):
        ids = " ".join(str(node.id) for node in nodes if node.admin)
        raise CommandError(
            f"no controller of {cluster.directory} runs: `pykraft cluster start {ids}`"
        )
    return cluster.admin_addresses()


def _of_brokers(cluster: LocalCluster) -> str:
    if not any(node.broker and cluster.process(node) for node in cluster.nodes()):
        raise CommandError(
            f"no broker of {cluster.directory} runs: `pykraft cluster up` starts them"
        )
    return cluster.bootstrap_addresses()


ADMIN = Listeners(
    nodes="controllers",
    option="--admin",
    variable="PYKRAFT_ADMIN",
    help="gRPC listeners of controllers",
    lone="localhost:9094",
    local=_of_controllers,
)
BOOTSTRAP = Listeners(
    nodes="brokers",
    option="--bootstrap",
    variable="PYKRAFT_BOOTSTRAP",
    help="brokers",
    lone="localhost:9092",
    local=_of_brokers,
)
