"""The topics part of the image: topics by name and id, and what brokers hold and lead."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from metadata.maps import Map, in_order
from metadata.records.schema import ZERO_UUID
from metadata.records.types import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERY_UNCHANGED,
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from metadata.registrations import PartitionRegistration, TopicImage

PartitionSet = Map[UUID, Map[int, None]]
_NO_PARTITIONS: Map[int, None] = Map()
_NONE_HELD: PartitionSet = Map()
_number = attrgetter("int")


class TopicsImage(NamedTuple):
    """A persistent value. The inner indexes follow from the topics: `by_broker` has each
    broker's assigned partitions, `leaderless` those with leader -1, `leader_counts` how many
    partitions a broker leads."""

    by_name: Map[str, TopicImage]
    by_id: Map[UUID, TopicImage]
    by_broker: Map[int, PartitionSet]
    leaderless: PartitionSet
    leader_counts: Map[int, int]

    def held_by(self, broker_id: int) -> PartitionSet:
        """The partitions with a replica on the broker."""
        return self.by_broker.get(broker_id, _NONE_HELD)


def partitions_in_order(held: PartitionSet) -> Iterator[tuple[UUID, int] | None]:
    """(topic id, partition index) of every partition in the set, in a fixed order; before the
    first, a None for each stretch of the work that it takes to find that order."""
    # Ids by their numbers: that is how they compare, only many times slower.
    for topic_id in in_order(held, key=_number):
        if topic_id is None:
            yield None
            continue
        for index in sorted(held[topic_id]):
            yield topic_id, index


NO_TOPICS = TopicsImage(Map(), Map(), Map(), Map(), Map())


def _with_partition(held: PartitionSet, topic_id: UUID, index: int) -> PartitionSet:
    return held.set(topic_id, held.get(topic_id, _NO_PARTITIONS).set(index, None))


def _without_partition(held: PartitionSet, topic_id: UUID, index: int) -> PartitionSet:
    indexes = held.get(topic_id)
    if indexes is None or index not in indexes:
        return held
    indexes = indexes.delete(index)
    return held.set(topic_id, indexes) if indexes else held.delete(topic_id)


def _move_replicas(
    by_broker: Map[int, PartitionSet],
    topic_id: UUID,
    index: int,
    before: tuple[int, ...],
    after: tuple[int, ...],
) -> Map[int, PartitionSet]:
    for broker in before:
        if broker not in after:
            held = _without_partition(by_broker.get(broker, _NONE_HELD), topic_id, index)
            if held:
                by_broker = by_broker.set(broker, held)
            elif broker in by_broker:
                by_broker = by_broker.delete(broker)
    for broker in after:
        if broker not in before:
            held = by_broker.get(broker, _NONE_HELD)
            by_broker = by_broker.set(broker, _with_partition(held, topic_id, index))
    return by_broker


def _count(counts: Map[int, int], leader: int, change: int) -> Map[int, int]:
    now = counts.get(leader, 0) + change
    return counts.set(leader, now) if now else counts.delete(leader)


def _put(
    image: TopicsImage,
    topic: TopicImage,
    index: int,
    before: PartitionRegistration | None,
    after: PartitionRegistration,
) -> TopicsImage:
    topic_id = topic.id
    topic = TopicImage(topic_id, topic.name, topic.partitions.set(index, after))
    _, _, by_broker, leaderless, counts = image
    if before is None:
        by_broker = _move_replicas(by_broker, topic_id, index, (), after.replicas)
    elif before.replicas != after.replicas:
        by_broker = _move_replicas(by_broker, topic_id, index, before.replicas, after.replicas)
    old, new = None if before is None else before.leader, after.leader
    if old != new:
        if old == NO_LEADER:
            leaderless = _without_partition(leaderless, topic_id, index)
        elif old is not None:
            counts = _count(counts, old, -1)
        if new == NO_LEADER:
            leaderless = _with_partition(leaderless, topic_id, index)
        else:
            counts = _count(counts, new, 1)
    return TopicsImage(
        image.by_name.set(topic.name, topic),
        image.by_id.set(topic_id, topic),
        by_broker,
        leaderless,
        counts,
    )


def _known_directories(directories: tuple[UUID, ...]) -> tuple[UUID, ...]:
    """All zeros say "not known", like none at all; keep one form of that."""
    if (
        directories
        and directories[0] == ZERO_UUID
        and directories.count(ZERO_UUID) == len(directories)
    ):
        return ()
    return directories


def _drop(image: TopicsImage, topic: TopicImage) -> TopicsImage:
    by_broker, leaderless, counts = image.by_broker, image.leaderless, image.leader_counts
    for index, partition in topic.partitions.items():
        by_broker = _move_replicas(by_broker, topic.id, index, partition.replicas, ())
        if partition.leader != NO_LEADER:
            counts = _count(counts, partition.leader, -1)
    if topic.id in leaderless:
        leaderless = leaderless.delete(topic.id)
    by_name = image.by_name
    named = by_name.get(topic.name)
    if named is not None and named.id == topic.id:
        by_name = by_name.delete(topic.name)
    return TopicsImage(by_name, image.by_id.delete(topic.id), by_broker, leaderless, counts)


def apply_topic(image: TopicsImage, record: TopicRecord) -> TopicsImage:
    """Create a topic. On a name or id that is taken (which no sound log has), the newer wins."""
    for taken in (image.by_id.get(record.topic_id), image.by_name.get(record.name)):
        if taken is not None:
            if taken.id == record.topic_id and taken.name == record.name:
                return image
            if taken.id in image.by_id:
                image = _drop(image, taken)
    topic = TopicImage(record.topic_id, record.name, Map())
    return image._replace(
        by_name=image.by_name.set(topic.name, topic), by_id=image.by_id.set(topic.id, topic)
    )


def apply_remove_topic(image: TopicsImage, record: RemoveTopicRecord) -> TopicsImage:
    """Remove a topic with its partitions; nothing happens where there is none."""
    topic = image.by_id.get(record.topic_id)
    return image if topic is None else _drop(image, topic)


def registration_of(record: PartitionRecord) -> PartitionRegistration:
    """The partition state that a PartitionRecord states in full."""
    replicas, isr = record.replicas, record.isr
    return PartitionRegistration(
        replicas,
        replicas if isr == replicas else isr,  # mostly equal: one tuple for both
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        _known_directories(record.directories),
        record.removing_replicas,
        record.adding_replicas,
        record.eligible_leader_replicas or (),
        record.last_known_elr or (),
        record.leader_recovery_state,
    )


def merge(before: PartitionRegistration, record: PartitionChangeRecord) -> PartitionRegistration:
    """The partition after a change record: what it leaves out stays, the partition epoch rises
    by one, and any stated leader (the same one too) raises the leader epoch by one."""
    leader, leader_epoch = before.leader, before.leader_epoch
    if record.leader != NO_LEADER_CHANGE:
        leader = record.leader
        leader_epoch += 1
    replicas, isr, directories = record.replicas, record.isr, record.directories
    removing, adding = record.removing_replicas, record.adding_replicas
    elr, last_known = record.eligible_leader_replicas, record.last_known_elr
    state = record.leader_recovery_state
    return PartitionRegistration(
        before.replicas if replicas is None else replicas,
        before.isr if isr is None else isr,
        leader,
        leader_epoch,
        before.partition_epoch + 1,
        before.directories if directories is None else _known_directories(directories),
        before.removing if removing is None else removing,
        before.adding if adding is None else adding,
        before.elr if elr is None else elr,
        before.last_known_elr if last_known is None else last_known,
        before.leader_recovery_state if state == RECOVERY_UNCHANGED else state,
    )


def apply_partition(image: TopicsImage, record: PartitionRecord) -> TopicsImage:
    """Create or overwrite a partition; nothing happens where the topic is unknown."""
    topic = image.by_id.get(record.topic_id)
    if topic is None:
        return image
    before = topic.partitions.get(record.partition_id)
    return _put(image, topic, record.partition_id, before, registration_of(record))


def apply_partition_change(image: TopicsImage, record: PartitionChangeRecord) -> TopicsImage:
    """Change a partition; nothing happens where topic or partition is unknown."""
    topic = image.by_id.get(record.topic_id)
    if topic is None:
        return image
    index = record.partition_id
    before = topic.partitions.get(index)
    if before is None:
        return image
    return _put(image, topic, index, before, merge(before, record))


def apply_clear_elr(image: TopicsImage, record: ClearElrRecord) -> TopicsImage:
    """Empty the eligible leader replicas of one topic, or of all where the name is empty."""
    if record.topic_name:
        named = image.by_name.get(record.topic_name)
        topics = [] if named is None else [named]
    else:
        topics = [image.by_name[name] for name in sorted(image.by_name)]
    for topic in topics:
        for index in sorted(topic.partitions):
            before = topic.partitions[index]
            if before.elr or before.last_known_elr:
                change = PartitionChangeRecord(
                    partition_id=index,
                    topic_id=topic.id,
                    eligible_leader_replicas=(),
                    last_known_elr=(),
                )
                image = apply_partition_change(image, change)
    return image
