"""The files of a local cluster's node: its properties and its formatted log directory."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from metadata.features import new_cluster_levels
from pykraft.storage_format import format_directories
from wire import properties, uuids
from world.real import real_env

# Shorter than Kafka's 9 s and 2 s: on one machine a silent broker is a dead one.
SESSION_TIMEOUT_MS = 3_000
HEARTBEAT_INTERVAL_MS = 500


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node: its id, roles, and where it listens (`host:port`, or None where it doesn't)."""

    id: int
    roles: tuple[str, ...]
    broker: str | None
    controller: str | None
    admin: str | None
    metrics: str

    @property
    def kafka(self) -> str | None:
        """The listener for clients, or a dedicated controller's own."""
        return self.broker or self.controller


def new_cluster_id() -> str:
    """A random cluster id in Kafka's text form, which may also be a directory's; none that a
    command line takes for an option. A reserved one isn't of this kind of UUID."""
    while True:
        text = uuids.to_text(uuid.uuid4())
        if not text.startswith("-"):
            return text


def node_properties(node: NodeSpec, nodes: Sequence[NodeSpec], data: Path) -> dict[str, str]:
    """The node's `server.properties`."""
    voters = [f"{other.id}@{other.controller}" for other in nodes if other.controller]
    replicas = str(min(3, sum(bool(other.broker) for other in nodes)))
    values = {
        "process.roles": ",".join(node.roles),
        "node.id": str(node.id),
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        "broker.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "broker.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "pykraft.metrics.listener": node.metrics,
    }
    listeners = []
    if node.broker:
        listeners.append(f"PLAINTEXT://{node.broker}")
        values["inter.broker.listener.name"] = "PLAINTEXT"
    if node.controller:
        listeners.append(f"CONTROLLER://{node.controller}")
    if node.admin:
        values["pykraft.admin.listener"] = node.admin
    values["listeners"] = ",".join(listeners)
    return values


def write_node(
    directory: Path,
    node: NodeSpec,
    nodes: Sequence[NodeSpec],
    cluster_id: str,
    settings: Mapping[str, str],
) -> None:
    """Writes the node's properties, of which `settings` win; formats its log directory."""
    directory.mkdir(parents=True)
    data = directory / "data"
    text = properties.dump({**node_properties(node, nodes, data), **settings})
    (directory / "server.properties").write_text(text)
    asyncio.run(
        format_directories(
            real_env(),
            [str(data)],
            node_id=node.id,
            cluster_id=cluster_id,
            levels=new_cluster_levels(),
            metadata_directory=str(data),
        )
    )
