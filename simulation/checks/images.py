"""The same prefix gives the same image, on every node, from log or from snapshot; and no image
is reached by a step that the metadata may not take.

Only committed images are looked at: what nodes publish to their rooms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from metadata.image import EMPTY, MetadataImage, PartitionRegistration
from metadata.maps import Map
from metadata.records.types import NO_LEADER, RECOVERY_RECOVERED
from metadata.topics import TopicsImage
from simulation.checks import require

Pair = tuple[MetadataImage, MetadataImage]

_NOTHING = object()
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
        # By node, what it showed last that was equal to another's image, and that.
        self._equal: dict[int, Pair] = {}

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
            difference = describe_difference(known, image, self._equal.get(node_id))
            require(
                difference is None,
                "same prefix, same image",
                f"node {node_id}, offset {image.last_offset}: {difference}",
            )
            self._equal[node_id] = known, image

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
        if before is not None:
            self._brokers(before, after)
            self._producer_ids(before, after)
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
                        self.counts["partitions created"] += 1

    def _brokers(self, before: MetadataImage, after: MetadataImage) -> None:
        """Every life of a broker has a newer epoch; one that is fenced leads nothing."""
        if after.brokers is before.brokers:
            return
        for broker_id, broker in after.brokers.items():
            known = before.brokers.get(broker_id)
            if known is broker:
                continue
            if known is not None:
                same = known.incarnation_id == broker.incarnation_id
                require(
                    broker.epoch > known.epoch or (same and broker.epoch == known.epoch),
                    "a broker's epoch rises with every life",
                    f"offset {after.last_offset}: {known}, then {broker}",
                )
            if broker.fenced:
                self._leads_nothing(after, broker_id)

    def _leads_nothing(self, image: MetadataImage, broker_id: int) -> None:
        for topic, index in image.partitions_of_broker(broker_id):
            partition = topic.partitions[index]
            require(
                partition.leader != broker_id,
                "a fenced broker leads nothing",
                f"{topic.name}-{index} at offset {image.last_offset}: {partition}",
            )

    def _producer_ids(self, before: MetadataImage, after: MetadataImage) -> None:
        require(
            (after.next_producer_id or 0) >= (before.next_producer_id or 0),
            "blocks of producer ids are given once",
            f"offset {after.last_offset}: {before.next_producer_id}, then {after.next_producer_id}",
        )

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
        leader = image.brokers.get(after.leader)
        require(
            after.leader == NO_LEADER or (leader is not None and not leader.fenced),
            "a fenced broker leads nothing",
            f"{where}, led by {leader}",
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
            # Several changes that were committed together are shown as one: who was in the ISR
            # between them can't be seen.
            seen = after.partition_epoch == before.partition_epoch + 1
            if not seen:
                self.counts["leader changes seen together with others"] += 1
            # Where everybody left in a way that may have lost data (a kill can't be told from a
            # power cut), who led last leads, marked as recovering (KIP-966).
            nobody = not before.isr and not after.elr
            marked = after.leader_recovery_state != RECOVERY_RECOVERED and (
                (nobody and after.leader in before.last_known_elr)
                or image.topic_config(topic).get(_UNCLEAN) == "true"
            )
            require(
                clean or marked or not seen,
                "leaders come from the ISR",
                where,
            )


def describe_difference(
    one: MetadataImage, other: MetadataImage, equal: Pair | None = None
) -> str | None:
    """Which part of two images differs and how, None where they are equal.

    Parts that they have from `equal`, two images that are known to be equal, aren't looked at.
    """
    before, other_before = equal or (EMPTY, EMPTY)
    parts: Iterable[tuple[str, Any, Any, Any, Any]] = zip(
        one._fields, one, other, before, other_before, strict=True
    )
    for name, mine, theirs, mine_before, theirs_before in parts:
        if mine is mine_before and theirs is theirs_before:
            continue
        if isinstance(mine, TopicsImage):
            tables: Iterable[Any] = zip(mine, theirs, mine_before, theirs_before, strict=True)
            same = all(_same_table(*four) for four in tables)
        elif isinstance(mine, Map):
            same = _same_table(mine, theirs, mine_before, theirs_before)
        else:
            same = mine == theirs
        if not same:
            return f"{name}: {mine!r:.600} and {theirs!r:.600}"
    return None


def _same_table(
    mine: Map[Any, Any],
    theirs: Map[Any, Any],
    mine_before: Map[Any, Any],
    theirs_before: Map[Any, Any],
) -> bool:
    """Whether two maps are equal, by what isn't as in two others that are."""
    if mine is mine_before and theirs is theirs_before:
        return True
    if len(mine) != len(theirs):
        return False
    for key, value in mine.items():
        other = theirs.get(key, _NOTHING)
        if value is mine_before.get(key) and other is theirs_before.get(key):
            continue
        if value != other:
            return False
    return True
