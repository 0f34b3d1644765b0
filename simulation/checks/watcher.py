"""All rules over live nodes, looked at after every step that ran a node's code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from metadata.delta import ImageDelta
from metadata.image import MetadataImage
from pykraft.node import Node
from simulation.checks import Violation
from simulation.checks.images import ImageChecks
from simulation.checks.partitions import PartitionChecks
from simulation.checks.quorum import QuorumChecks
from simulation.machine import Machine
from simulation.network import host_name
from world.memory import Media


class Watcher:
    """`after_step` is for Simulation.on_step; `media` are the nodes' disks by node id, `min_isr`
    is min.insync.replicas of every topic."""

    def __init__(self, media: Mapping[int, Media], min_isr: int) -> None:
        self.quorum = QuorumChecks(media)
        self.images = ImageChecks(lambda: self.quorum.facts.committed_end)
        self.partitions = PartitionChecks(lambda: self.images.newest, min_isr)
        # What each node's present life showed since it was looked at last, image by image.
        self.misread: str | None = None
        self._shown: dict[int, tuple[Node, list[MetadataImage]]] = {}
        self._cleanings: Counter[str] = Counter()
        self._passes: dict[
            int, tuple[Node, int]
        ] = {}  # of the cleaner, by each node's present life
        self._disk_changes: dict[int, int] = {}

    def after_step(self, machine: Machine) -> None:
        """Raises Violation if what the machine's node did breaks a rule."""
        if self.misread is not None:
            raise Violation("only what was damaged is called damaged", self.misread)
        node = machine.node
        if node is None:
            return
        raft = node.raft
        if raft is None or not raft._started:
            return
        node_id = machine.number
        self.quorum.look(node_id, raft)
        shown = self._shown.get(node_id)
        if shown is None or shown[0] is not node:
            shown = self._shown[node_id] = (node, [node.publisher.image])
            self._subscribe(node, shown[1])
        if shown[1]:
            for image in shown[1]:
                self.images.look(node_id, node, image)
            shown[1].clear()
        if node.broker is not None:
            changes = machine.machine_disk.changes
            wrote = changes != self._disk_changes.get(node_id)
            self._disk_changes[node_id] = changes
            self.partitions.look(node_id, node.broker.replicas, wrote=wrote)
            if node.broker.cleaner.passes:
                self._count_passes(node_id, node, node.broker.cleaner.passes)

    def on_log(self, machine: str, level: str, event: str, fields: Mapping[str, Any]) -> None:
        """Nodes may call their logs damaged only where they are (for Simulation.on_log)."""
        if event == "metadata_log_damaged":
            for node_id in self.quorum.spoiled:
                if host_name(node_id) == machine:
                    self.quorum.noticed(node_id)
                    return
            if self.misread is None:
                self.misread = f"{machine}: {event} {dict(fields)}"

    def _count_passes(self, node_id: int, node: Node, passes: int) -> None:
        life, before = self._passes.get(node_id, (node, 0))
        if life is not node:
            before = 0
        if passes != before:
            self._cleanings["cleanings of partition logs"] += passes - before
            self._passes[node_id] = node, passes

    def _subscribe(self, node: Node, shown: list[MetadataImage]) -> None:
        def on_image(image: MetadataImage, delta: ImageDelta) -> None:
            shown.append(image)

        node.publisher.subscribe(image=on_image)

    @property
    def counts(self) -> dict[str, int]:
        """What happened."""
        total: Counter[str] = Counter()
        parts = (self.quorum.counts, self.images.counts, self.partitions.counts, self._cleanings)
        for one in parts:
            total.update(one)
        return dict(sorted(total.items()))
