"""What a keeper can do with its cluster: the requests of `pykraft.testing.cluster`, by name.

Arguments and answers are what JSON has. Everything that waits has a deadline. Refusals are
CommandErrors and KafkaErrors.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from metadata.configs import NODE
from pykraft.cli import CommandError
from pykraft.launcher import NodeEnded
from pykraft.local_cluster import LocalCluster, plan
from pykraft.node_config import resembling
from wire.exits import EXIT_CANNOT_LISTEN

if TYPE_CHECKING:
    from admin.client import AdminClient

_POLL_S = 0.02
_STARTS = 3

# Kafka waits 3 s for more members of a new group: most tests have one, and each a group of its own.
_OURS = {"group.initial.rebalance.delay.ms": "0"}
# Set by how a cluster is made, or not to be had yet on a cluster for tests.
_TAKEN = (
    "process.roles",
    "node.id",
    "broker.id",
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "controller.listener.names",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.auto.join.enable",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "pykraft.admin.listener",
    "pykraft.metrics.listener",
)


class KeptCluster:
    """The cluster in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._cluster = LocalCluster(directory)
        self._admin: AdminClient | None = None
        # Nodes that a test has taken down; any other that doesn't run has ended by itself.
        self._down: dict[int, str] = {}

    # -- the whole --------------------------------------------------------------------------

    def up(
        self, brokers: int, controllers: int, settings: Mapping[str, Mapping[str, str]]
    ) -> dict[str, Any]:
        """Makes the cluster and starts it; its status."""
        checked = {int(id_): {**_OURS, **_checked(own)} for id_, own in settings.items()}
        if self._directory.exists() and any(self._directory.iterdir()):
            raise CommandError(
                f"{self._directory} is not empty; a cluster wants a folder to itself"
            )
        for attempt in range(1, _STARTS + 1):
            self._cluster.create(plan(controllers, brokers, None), checked)
            try:
                return self._cluster.up()
            except NodeEnded as error:
                # Another process may have taken a port since it was found free.
                taken = EXIT_CANNOT_LISTEN in error.exit_codes.values()
                self._clear()
                if not taken or attempt == _STARTS:
                    raise
        raise AssertionError("a loop that returns or raises")

    def _clear(self) -> None:
        processes = list(self.processes().values())
        for process in processes:
            process.kill()
        psutil.wait_procs(processes, timeout=10)
        shutil.rmtree(self._directory / "nodes")
        (self._directory / "cluster.json").unlink()

    def processes(self) -> dict[int, psutil.Process]:
        """The nodes' processes that live, by node id; none where no cluster was made."""
        if not self._cluster.exists():
            return {}
        found = ((node.id, self._cluster.process(node)) for node in self._cluster.nodes())
        return {id_: process for id_, process in found if process is not None}

    def status(self) -> dict[str, Any]:
        """What `pykraft cluster status --json` prints."""
        return self._cluster.status()

    # -- nodes ------------------------------------------------------------------------------

    def kill(self, ids: Sequence[int]) -> None:
        """Ends nodes at once."""
        with self._taking_down(ids, "killed"):
            self._cluster.kill(ids)

    def stop(self, ids: Sequence[int]) -> None:
        """Ends nodes in order."""
        with self._taking_down(ids, "stopped"):
            self._cluster.stop(ids)

    def pause(self, ids: Sequence[int]) -> None:
        """Lets nodes stand still."""
        self._cluster.pause(ids)
        self._down.update(dict.fromkeys(ids, "paused"))

    @contextmanager
    def _taking_down(self, ids: Sequence[int], how: str) -> Iterator[None]:
        """Notes which nodes went down, also where not all that were asked for did."""
        before = self.processes()
        try:
            yield
        finally:
            after = self.processes()
            self._down.update({id_: how for id_ in ids if id_ in before and id_ not in after})

    def resume(self, ids: Sequence[int], timeout_s: float) -> None:
        """Lets paused nodes go on; returns when they serve."""
        self._cluster.resume(ids)
        for id_ in ids:
            self._down.pop(id_, None)
        self.start([], timeout_s)

    def start(self, ids: Sequence[int], timeout_s: float) -> None:
        """Starts the nodes `ids`; returns when they, and all others that run, serve."""
        paused = [str(id_) for id_ in ids if self._down.get(id_) == "paused"]
        if paused:
            raise CommandError(f"node {', '.join(paused)} is paused: resume it")
        if ids:
            self._cluster.start(ids)
        for id_ in ids:
            self._down.pop(id_, None)
        running = [node.id for node in self._cluster.nodes() if node.id not in self._down]
        self._cluster.start(running)
        brokers = [node.id for node in self._cluster.nodes() if node.broker and node.id in running]
        _until(lambda: self._fenced(brokers), "brokers are fenced: ", timeout_s)

    def _fenced(self, ids: Sequence[int]) -> str:
        told = self._door().describe_cluster(linearizable=True)["brokers"]
        serving = [broker["id"] for broker in told if not broker["fenced"]]
        return ", ".join(str(id_) for id_ in ids if id_ not in serving)

    def heal(self, timeout_s: float) -> dict[str, str]:
        """Everything runs again; what had become of each node that did not, by its id."""
        living = self.processes()
        found = {
            node.id: self._down.get(node.id, "ended by itself")
            for node in self._cluster.nodes()
            if node.id in self._down or node.id not in living
        }
        if not found:
            return {}
        self._cluster.resume([id_ for id_ in found if id_ in living])
        self._down.clear()
        self.start(list(found), timeout_s)
        return {str(id_): what for id_, what in found.items()}

    # -- topics -----------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str],
        timeout_s: float,
    ) -> None:
        """Makes a topic; returns when every broker that runs knows it and serves what it leads."""
        from pykraft.testing.serving import not_served

        self._door().create_topic(
            name,
            partitions,
            replication_factor,
            configs=configs,
            timeout_ms=int(timeout_s * 1000),
        )
        brokers = {
            node.id: node.broker
            for node in self._cluster.nodes()
            if node.broker and node.id not in self._down
        }
        _until(lambda: not_served(name, partitions, brokers), f"{name}: ", timeout_s)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic."""
        self._door().delete_topic(name)

    def leader(self, topic: str, partition: int, other_than: int, timeout_s: float) -> int:
        """The broker that leads a partition, once there is one and it isn't `other_than`."""

        def missing() -> str:
            leader = self._partition(topic, partition)["leader"]
            return f"led by {leader}" if leader in (-1, other_than) else ""

        _until(missing, f"{topic}-{partition}: ", timeout_s)
        return int(self._partition(topic, partition)["leader"])

    def wait_until_in_sync(self, topics: Sequence[str], timeout_s: float) -> None:
        """Returns when all replicas of the topics' partitions are in sync."""

        def missing() -> str:
            told = self._door().describe_topics(topics, linearizable=True)
            behind = [
                f"{name}-{number} has in sync {one['isr']} of {one['replicas']}"
                for name, topic in told.items()
                for number, one in topic["partitions"].items()
                if sorted(one["isr"]) != sorted(one["replicas"])
            ]
            return ", ".join(behind)

        _until(missing, "", timeout_s)

    def active_controller(self, timeout_s: float) -> int:
        """The active controller's id, once its majority confirms it."""
        found: list[int] = []

        def missing() -> str:
            active = self._door().describe_cluster(linearizable=True)["active_controller"]
            found[:] = [] if active is None else [active]
            return "" if found else "no active controller"

        _until(missing, "", timeout_s)
        return found[0]

    def _partition(self, topic: str, partition: int) -> dict[str, Any]:
        partitions = self._door().describe_topics([topic], linearizable=True)[topic]["partitions"]
        one: dict[str, Any] | None = partitions.get(str(partition))
        if one is None:
            raise CommandError(f"{topic} has no partition {partition}; it has {len(partitions)}")
        return one

    def _door(self) -> AdminClient:
        """A client of the controllers that run: one that is paused would keep a call for all of
        its time."""
        # The start of a cluster needs no gRPC and does not wait for its import.
        from admin.client import AdminClient

        addresses = [
            node.admin
            for node in self._cluster.nodes()
            if node.admin is not None and node.id not in self._down
        ]
        if not addresses:
            raise CommandError("no controller runs: start one first")
        if self._admin is None or self._admin.addresses != addresses:
            if self._admin is not None:
                self._admin.close()
            self._admin = AdminClient(addresses)
        return self._admin


def _until(missing: Callable[[], str], what: str, timeout_s: float) -> None:
    """Returns when nothing is missing; CommandError, saying what is, when the time is over."""
    deadline = time.monotonic() + timeout_s
    while (reason := missing()) != "":
        if time.monotonic() > deadline:
            raise CommandError(f"not within {timeout_s:g} s: {what}{reason}")
        time.sleep(_POLL_S)


def _checked(properties: Mapping[str, str]) -> Mapping[str, str]:
    """The settings of one node, all of which will have an effect."""
    for name, text in properties.items():
        if name in _TAKEN:
            raise CommandError(f"{name} is set by the cluster itself")
        if name not in NODE:
            like = resembling(name)
            hint = f"is {like} meant?" if like else "docs/configuration.md lists them"
            raise CommandError(f"{name} is no setting of a node ({hint})")
        NODE[name].parse(text)
    return properties
