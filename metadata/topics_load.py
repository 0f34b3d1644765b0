"""Topics by the hundred thousand, as a snapshot brings them.

What comes out is what applying the records one after the other gives; but a topic is put in its
places once, with all its partitions, which takes a fraction of the time.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from metadata.maps import Map
from metadata.records.types import NO_LEADER, PartitionRecord, TopicRecord
from metadata.registrations import PartitionRegistration, TopicImage
from metadata.topics import TopicsImage, apply_partition, apply_topic, registration_of

_NONE_HELD: Map[UUID, Map[int, None]] = Map()


class TopicsLoad:
    """Add topics, each followed by its partitions, then `finish`."""

    def __init__(self, image: TopicsImage) -> None:
        self._topic: TopicRecord | None = None
        self._partitions: dict[int, PartitionRegistration] = {}
        self._open(image)

    def _open(self, image: TopicsImage) -> None:
        self._by_name: Any = image.by_name.mutate()
        self._by_id: Any = image.by_id.mutate()
        self._by_broker = image.by_broker
        self._held: dict[int, Any] = {}  # broker id -> its changed part of `by_broker`
        self._leaderless: Any = image.leaderless.mutate()
        self._counts: dict[int, int] = dict(image.leader_counts.items())

    def topic(self, record: TopicRecord) -> None:
        """A topic begins."""
        self._place()
        if record.topic_id in self._by_id or record.name in self._by_name:
            self._open(apply_topic(self.finish(), record))
        else:
            self._topic = record

    def partition(self, record: PartitionRecord) -> None:
        """A partition, of the topic that has begun or of any other."""
        if self._topic is not None and self._topic.topic_id == record.topic_id:
            self._partitions[record.partition_id] = registration_of(record)
        else:
            self._open(apply_partition(self.finish(), record))

    def _place(self) -> None:
        """Put the topic that has begun into the maps, with all its partitions."""
        begun, self._topic = self._topic, None
        if begun is None:
            return
        partitions, self._partitions = self._partitions, {}
        topic_id = begun.topic_id
        topic = TopicImage(topic_id, begun.name, Map(partitions))
        self._by_name[begun.name] = self._by_id[topic_id] = topic
        counts = self._counts
        hosted: dict[int, dict[int, None]] = {}
        leaderless: dict[int, None] = {}
        for index, partition in partitions.items():
            for broker in partition.replicas:
                hosted.setdefault(broker, {})[index] = None
            leader = partition.leader
            if leader == NO_LEADER:
                leaderless[index] = None
            else:
                counts[leader] = counts.get(leader, 0) + 1
        for broker, indexes in hosted.items():
            held = self._held.get(broker)
            if held is None:
                held = self._held[broker] = self._by_broker.get(broker, _NONE_HELD).mutate()
            held[topic_id] = Map(indexes)
        if leaderless:
            self._leaderless[topic_id] = Map(leaderless)

    def finish(self) -> TopicsImage:
        """All that was added; nothing can be added after it."""
        self._place()
        changed = {broker: held.finish() for broker, held in self._held.items()}
        return TopicsImage(
            self._by_name.finish(),
            self._by_id.finish(),
            self._by_broker.update(changed),
            self._leaderless.finish(),
            Map(self._counts),
        )
