"""The same prefix gives the same image, on every node, from log or from snapshot; and no image
is reached by a step that the metadata may not take.

Only committed images are looked at: what nodes publish to their rooms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from uuid import UUID

from metadata.image import MetadataImage, PartitionRegistration
from metadata.records.types import NO_LEADER, RECOVERY_RECOVERED
from simulation.checks import require

_KEPT = 4_000
_UNCLEAN = "unclean.leader.election.enable"


class ImageChecks:
    """`committed_end` says how far the metadata log is committed at the moment."""

    def __init__(self, committed_end: Callable[[], int]) -> None:
        self.counts: Counter[str] = Counter()
        self.newest: MetadataImage | None = None
        self._committed_end = committed_end
        self._by_offset: dict[int, MetadataImage] = {}
        self._seen: dict[int, tuple[object, MetadataImage]] = {}

    def look(self, node_id: int, life: object, image: MetadataImage) -> None:
        """A node shows an image. `life` tells its lives apart."""
        seen = self._seen.get(node_id)
        if seen is not None and seen[0] is life:
            if seen[1] is image:
                return
            require(
                image.last_offset >= seen[1].last_offset,
                "a node's image never goes back",
                f"node {node_id}: {seen[1].last_offset}, then {image.last_offset}",
            )
        self._seen[node_id] = (life, image)
        if image.last_offset < 0:
            return
        require(
            image.last_offset < self._committed_end(),
            "only committed metadata is shown",
            f"node {node_id}: offset {image.last_offset}, committed end {self._committed_end()}",
        )
        known = self._by_offset.get(image.last_offset)
        if known is None:
            self._new(image)
        elif known is not image:
            difference = describe_difference(known, image)
            require(
                difference is None,
                "same prefix, same image",
                f"node {node_id}, offset {image.last_offset}: {difference}",
            )

    def shown(self, node_id: int) -> MetadataImage | None:
        """The image that a node showed last, in whatever life."""
        seen = self._seen.get(node_id)
        return None if seen is None else seen[1]

    def _new(self, image: MetadataImage) -> None:
        self._by_offset[image.last_offset] = image
        if len(self._by_offset) > _KEPT:
            del self._by_offset[next(iter(self._by_offset))]
        before = self.newest
        if before is None or image.last_offset > before.last_offset:
            self.newest = image
            self._step(before, image)

    def _step(self, before: MetadataImage | None, after: MetadataImage) -> None:
        old = None if before is None else before.topics.by_id
        if old is after.topics.by_id:
            return
        for topic_id, topic in after.topics.by_id.items():
            known = None if old is None else old.get(topic_id)
            if known is topic:
                continue
            for index, partition in topic.partitions.items():
                earlier = None if known is None else known.partitions.get(index)
                if earlier is not partition and earlier != partition:
                    self._partition(after, topic.name, index, earlier, partition)
                    if earlier is None and before is not None:
                        self._created(before, topic_id, index)

    def _created(self, before: MetadataImage, topic_id: UUID, index: int) -> None:
        self.counts["partitions created"] += 1

    def _partition(
        self,
        image: MetadataImage,
        topic: str,
        index: int,
        before: PartitionRegistration | None,
        after: PartitionRegistration,
    ) -> None:
        where = f"{topic}-{index} at offset {image.last_offset}: {after}"
        require(all(r in after.replicas for r in after.isr), "ISR within the replicas", where)
        require(bool(after.isr) or bool(after.elr) or before is not None, "someone leads", where)
        require(
            after.leader == NO_LEADER or after.leader in after.isr, "the leader is in sync", where
        )
        require(
            all(r in after.replicas and r not in after.isr for r in after.elr),
            "eligible leader replicas are replicas out of sync",
            where,
        )
        if before is None:
            return
        self._changed(image, topic, where, before, after)

    def _changed(
        self,
        image: MetadataImage,
        topic: str,
        where: str,
        before: PartitionRegistration,
        after: PartitionRegistration,
    ) -> None:
        where = f"{where}, before {before}"
        require(after.partition_epoch > before.partition_epoch, "the partition epoch rises", where)
        moved = after.leader != before.leader
        require(
            after.leader_epoch > before.leader_epoch
            if moved
            else after.leader_epoch >= before.leader_epoch,
            "the leader epoch rises with every leader",
            where,
        )
        if after.isr != before.isr:
            self.counts["ISR changes"] += 1
        if moved and after.leader != NO_LEADER:
            self.counts["partition leader changes"] += 1
            clean = after.leader in before.isr or after.leader in before.elr
            if not clean:
                self.counts["unclean elections"] += 1
            # Where everybody left after losing data, who led last leads, marked as recovering.
            marked = after.leader_recovery_state != RECOVERY_RECOVERED and (
                after.leader in before.last_known_elr
                or image.topic_config(topic).get(_UNCLEAN) == "true"
            )
            require(
                clean or marked,
                "leaders come from the ISR",
                where,
            )


def describe_difference(one: MetadataImage, other: MetadataImage) -> str | None:
    """Which part of two images differs and how, None where they are equal."""
    if one == other:
        return None
    for name in one._fields:
        mine, theirs = getattr(one, name), getattr(other, name)
        if mine != theirs:
            return f"{name}: {mine!r:.600} and {theirs!r:.600}"
    return None
