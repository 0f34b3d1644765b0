"""Topics by the hundred thousand, as logs and snapshots bring them.

What comes out is what applying the records one after the other gives. But partitions of one topic
follow each other there, and are put in their places together: that takes a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from metadata.delta import ImageDelta, note_partitions, note_topic
from metadata.maps import Map
from metadata.records.types import (
    NO_LEADER,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from metadata.registrations import PartitionRegistration, TopicImage
from metadata.topics import TopicsImage, merge, registration_of

_NO_PARTITIONS: Map[int, None] = Map()


class TopicsDraft:
    """Takes records in their order; `finish` gives the image after them, and ends it. `delta`, if
    there is one, is told what changes."""

    def __init__(self, image: TopicsImage, delta: ImageDelta | None = None) -> None:
        self._image = image
        self._delta = delta
        self._by_name: Any = image.by_name.mutate()
        self._by_id: Any = image.by_id.mutate()
        self._leaderless: Any = image.leaderless.mutate()
        self._held: dict[int, Any] = {}  # broker id -> its part of `by_broker`, where it changes
        self._led: dict[int, int] = {}  # broker id -> how many partitions more it leads
        # The topic whose partitions come, as it was before them, and those that have come.
        self._topic: TopicImage | None = None
        self._partitions: dict[int, PartitionRegistration] = {}

    def topic(self, record: TopicRecord) -> bool:
        """A topic begins. False where its name or id is taken: that is not for a draft."""
        self.place()
        topic_id, name = record.topic_id, record.name
        if topic_id in self._by_id or name in self._by_name:
            return False
        self._topic = self._by_name[name] = self._by_id[topic_id] = TopicImage(
            topic_id, name, Map()
        )
        if self._delta is not None:
            note_topic(self._delta, record)
        return True

    def partition(self, record: PartitionRecord) -> None:
        """A partition as it is from now on; nothing where its topic is unknown."""
        if self._topic_of(record.topic_id) is not None:
            self._partitions[record.partition_id] = registration_of(record)

    def change(self, record: PartitionChangeRecord) -> None:
        """A change of a partition; nothing where topic or partition is unknown."""
        topic = self._topic_of(record.topic_id)
        if topic is not None:
            index = record.partition_id
            before = self._partitions.get(index) or topic.partitions.get(index)
            if before is not None:
                self._partitions[index] = merge(before, record)

    def _topic_of(self, topic_id: UUID) -> TopicImage | None:
        topic = self._topic
        # Mostly one object for all: comparing ids takes many times longer.
        if topic is None or (topic.id is not topic_id and topic.id != topic_id):
            self.place()
            topic = self._topic = self._by_id.get(topic_id)
        return topic

    def place(self) -> None:
        """Put what has come in its places. Where thousands may come of one topic, do so now and
        then, since it takes long for many."""
        topic, self._topic = self._topic, None
        partitions, self._partitions = self._partitions, {}
        if topic is None or not partitions:
            return
        before, topic_id, led = topic.partitions, topic.id, self._led
        if self._delta is not None:
            note_partitions(self._delta, topic_id, partitions)
        self._by_name[topic.name] = self._by_id[topic_id] = TopicImage(
            topic_id, topic.name, before.update(partitions)
        )
        come: dict[int, dict[int, None]] = {}  # broker id -> partitions that are new to it
        gone: dict[int, dict[int, None]] = {}
        for index, after in partitions.items():
            old = before.get(index)
            replicas, leader = after.replicas, after.leader
            if old is None:
                for broker in replicas:
                    come.setdefault(broker, {})[index] = None
            else:
                if old.replicas != replicas:
                    for broker in replicas:
                        if broker not in old.replicas:
                            come.setdefault(broker, {})[index] = None
                    for broker in old.replicas:
                        if broker not in replicas:
                            gone.setdefault(broker, {})[index] = None
                if old.leader == leader:
                    continue
                led[old.leader] = led.get(old.leader, 0) - 1
            led[leader] = led.get(leader, 0) + 1
        for broker in come | gone:
            held = self._held.get(broker)
            if held is None:
                held = self._held[broker] = self._image.held_by(broker).mutate()
            _exchange(held, topic_id, gone.get(broker, ()), come.get(broker, {}))
        self._place_leaderless(topic, partitions)

    def _place_leaderless(
        self, topic: TopicImage, partitions: dict[int, PartitionRegistration]
    ) -> None:
        come = {index: None for index, one in partitions.items() if one.leader == NO_LEADER}
        had = self._leaderless.get(topic.id, _NO_PARTITIONS)
        if come or had:
            gone = [index for index in partitions if index in had and index not in come]
            _exchange(self._leaderless, topic.id, gone, come)

    def finish(self) -> TopicsImage:
        """All that has come; nothing can be added after it."""
        self.place()
        image = self._image
        by_broker: Any = image.by_broker.mutate()
        for broker, changed in self._held.items():
            held = changed.finish()
            if held:
                by_broker[broker] = held
            elif broker in by_broker:
                del by_broker[broker]
        counts = image.leader_counts
        for leader, change in self._led.items():
            if change and leader != NO_LEADER:
                count = counts.get(leader, 0) + change
                counts = counts.set(leader, count) if count else counts.delete(leader)
        return TopicsImage(
            self._by_name.finish(),
            self._by_id.finish(),
            by_broker.finish(),
            self._leaderless.finish(),
            counts,
        )


def _exchange(held: Any, topic_id: UUID, gone: Iterable[int], come: dict[int, None]) -> None:
    """Take partitions of a topic out of a set that is being made, and put others in."""
    indexes = held.get(topic_id, _NO_PARTITIONS)
    for index in gone:
        if index in indexes:
            indexes = indexes.delete(index)
    indexes = indexes.update(come)
    if indexes:
        held[topic_id] = indexes
    elif topic_id in held:
        del held[topic_id]
