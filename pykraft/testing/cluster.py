"""A cluster for tests, as the tests see it."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from pykraft.testing.link import HIDDEN, ClusterError, Link, end_what_is_left
from pykraft.testing.shape import Shape, Value

__tracebackhide__ = HIDDEN
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Node:
    """One node. Addresses are `host:port`, None where it doesn't listen; `address` is a broker's
    for clients, a dedicated controller's for the quorum. The files last as long as the cluster."""

    id: int
    roles: tuple[str, ...]
    address: str
    admin: str | None
    metrics: str
    data: Path
    log: Path

    @property
    def is_broker(self) -> bool:
        """Whether it hosts partitions and serves clients."""
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether it votes in the quorum of the metadata log."""
        return "controller" in self.roles


class Cluster:
    """A cluster of pykraft nodes on this machine, each a process; for a `with`.

        with Cluster(brokers=3, controllers=3) as cluster:
            topic = cluster.create_topic(partitions=6, replication_factor=3)
            ...  # any Kafka client, with cluster.bootstrap_servers
            cluster.kill(cluster.leader(topic))

    The shape is that of `Shape`. Kafka's defaults hold, automatic creation of topics among them,
    but for what `pykraft cluster up` has shorter on one machine (broker sessions of 3 s, heartbeats
    of 0.5 s, as many replicas of internal topics as there are brokers, at most 3), and new groups,
    which don't wait for more members.

    Everything is gone at the end, also when this process is killed: a keeper process owns the nodes
    and ends with this one. `directory`: a new or empty folder for the nodes' files, which are then
    kept; otherwise they are in a temporary one that is removed.

    All methods return when what they say is done, may be called from any thread, and raise
    ClusterError with the reason when they can't. They block: in a coroutine,
    `await asyncio.to_thread(cluster.kill, 1)`.
    """

    def __init__(
        self,
        brokers: int = 1,
        controllers: int = 0,
        *,
        properties: Mapping[str, Value] | None = None,
        node_properties: Mapping[int, Mapping[str, Value]] | None = None,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        """Checks the shape (ValueError) and starts nothing; see `Shape` for the arguments."""
        self.shape = Shape(brokers, controllers, properties or {}, node_properties or {})
        self._given = None if directory is None else str(Path(directory).absolute())
        self._link: Link | None = None
        self._status: dict[str, Any] = {}
        self._nodes: tuple[Node, ...] = ()

    def __repr__(self) -> str:
        where = self.bootstrap_servers if self._nodes else "not running"
        return f"<Cluster {self.shape}: {where}>"

    # -- the whole --------------------------------------------------------------------------

    def up(self) -> Cluster:
        """Starts the cluster; returns it when clients can use it."""
        if self._link is not None:
            raise ClusterError("the cluster is up already")
        self._link = Link(self._given)
        try:
            self._status = self._call(
                "up",
                brokers=self.shape.brokers,
                controllers=self.shape.controllers,
                settings=self.shape.settings(),
            )
        except BaseException as error:
            link, self._link = self._link, None
            _, complaint = link.end()
            if isinstance(error, ClusterError) and complaint:
                raise ClusterError(f"{error}: {complaint}", error.code) from None
            raise
        self._nodes = tuple(map(_node, self._status["nodes"]))
        return self

    def down(self) -> None:
        """Ends every node at once and removes what the cluster wrote; nothing if it isn't up."""
        link, self._link = self._link, None
        if link is None:
            return
        nodes, self._nodes = self._nodes, ()
        code, complaint = link.end()
        if code < 0:
            # Somebody killed the keeper, which could then not end the nodes.
            end_what_is_left(str(_directory(nodes)))
            if self._given is None:
                shutil.rmtree(_directory(nodes))
        elif code != 0:
            raise ClusterError(f"the cluster did not end well: {complaint}")

    def __enter__(self) -> Cluster:
        return self if self._nodes else self.up()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.down()

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses, comma-separated, as every Kafka client takes them."""
        return str(self._running()["bootstrap_servers"])

    @property
    def admin_addresses(self) -> str:
        """The controllers' gRPC listeners, comma-separated, for `pykraft … --admin`."""
        return str(self._running()["admin"])

    @property
    def cluster_id(self) -> str:
        """The cluster's id, in Kafka's text form."""
        return str(self._running()["cluster_id"])

    @property
    def directory(self) -> Path:
        """Where the nodes' files are."""
        self._running()
        return _directory(self._nodes)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node, brokers first."""
        return self._nodes

    @property
    def brokers(self) -> tuple[Node, ...]:
        """The nodes that serve clients."""
        return tuple(node for node in self._nodes if node.is_broker)

    @property
    def controllers(self) -> tuple[Node, ...]:
        """The nodes that vote in the quorum."""
        return tuple(node for node in self._nodes if node.is_controller)

    def node(self, id_: int) -> Node:
        """The node with an id."""
        for node in self._nodes:
            if node.id == id_:
                return node
        known = ", ".join(str(node.id) for node in self._nodes)
        raise ClusterError(f"no node {id_} in this cluster; its nodes are {known}")

    def status(self) -> dict[str, Any]:
        """How it is now, as `pykraft cluster status --json` prints it: of each node its `pid` and
        `state` (starting, ready, fenced, paused, stopped or dead), and `active_controller`."""
        told: dict[str, Any] = self._call("status")
        return told

    def active_controller(self, timeout_s: float = _TIMEOUT_S) -> int:
        """The id of the active controller, once a majority of the quorum confirms it."""
        return int(self._call("active_controller", timeout_s=timeout_s))

    # -- nodes ------------------------------------------------------------------------------

    def kill(self, *ids: int) -> None:
        """Ends nodes with SIGKILL, as a crash would; returns when the processes are gone."""
        self._call("kill", ids=ids)

    def stop(self, *ids: int) -> None:
        """A controlled shutdown: leaders move first; returns when the processes have ended."""
        self._call("stop", ids=ids)

    def start(self, *ids: int, timeout_s: float = _TIMEOUT_S) -> None:
        """Starts nodes that are down, with their data; returns when they serve."""
        self._call("start", ids=ids, timeout_s=timeout_s)

    def pause(self, *ids: int) -> None:
        """Lets nodes hang with SIGSTOP: connections stay open and nothing is answered."""
        self._call("pause", ids=ids)

    def resume(self, *ids: int, timeout_s: float = _TIMEOUT_S) -> None:
        """Lets paused nodes go on; returns when they serve again."""
        self._call("resume", ids=ids, timeout_s=timeout_s)

    def heal(self, timeout_s: float = _TIMEOUT_S) -> dict[int, str]:
        """Resumes and starts what is paused or down. What it found, by node id: "paused",
        "stopped", "killed", or "ended by itself" for a node that no method here took down."""
        found: dict[str, str] = self._call("heal", timeout_s=timeout_s)
        return {int(id_): what for id_, what in found.items()}

    # -- topics -----------------------------------------------------------------------------

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int = 0,
        configs: Mapping[str, Value] | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> str:
        """Makes a topic and returns its name; without one given, a name that nobody has.

        `replication_factor` 0 is the brokers' default, which is 1. Returns when every running
        broker knows the topic and serves what it leads of it, so that no client has to try twice.
        """
        name = f"topic-{uuid.uuid4().hex[:12]}" if name is None else name
        texts = {key: str(value) for key, value in (configs or {}).items()}
        self._call(
            "create_topic",
            name=name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=texts,
            timeout_s=timeout_s,
        )
        return name

    def delete_topic(self, name: str) -> None:
        """Deletes a topic."""
        self._call("delete_topic", name=name)

    def leader(
        self,
        topic: str,
        partition: int = 0,
        *,
        other_than: int | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> int:
        """The id of the broker that leads a partition; waits until there is one, and another than
        `other_than` (the one that was killed)."""
        other = -1 if other_than is None else other_than
        return int(
            self._call(
                "leader", topic=topic, partition=partition, other_than=other, timeout_s=timeout_s
            )
        )

    def wait_until_in_sync(self, *topics: str, timeout_s: float = _TIMEOUT_S) -> None:
        """Returns when all replicas of the topics (none: all topics) are in sync."""
        self._call("wait_until_in_sync", topics=topics, timeout_s=timeout_s)

    # -- inside -----------------------------------------------------------------------------

    def _call(self, do: str, **arguments: Any) -> Any:
        if self._link is None:
            raise ClusterError("the cluster is not up: use it in a `with`, or call up()")
        return self._link.call(do, **arguments)

    def _running(self) -> dict[str, Any]:
        if not self._nodes:
            raise ClusterError("the cluster is not up: use it in a `with`, or call up()")
        return self._status


def _node(told: Mapping[str, Any]) -> Node:
    return Node(
        told["id"],
        tuple(told["roles"]),
        told["kafka"],
        told["admin"],
        told["metrics"],
        Path(told["data"]),
        Path(told["log"]),
    )


def _directory(nodes: tuple[Node, ...]) -> Path:
    """DIR of DIR/nodes/ID/node.log."""
    return nodes[0].log.parents[2]
