"""The topics of the metadata image, as consumer groups look at them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

from xxhash import xxh3_64_intdigest

from broker.groups.consumer.assignors import Partitions
from broker.groups.events import DescribedAssignment, Topic, TopicPartitions, TopicsKnown
from metadata.maps import Map

_UNKNOWN_VERSION: Final = -1
_INT64: Final = struct.Struct("<q")
_INT32: Final = struct.Struct("<i")
_MAGIC: Final = b"\0"
_SIGN: Final = 1 << 63


class Topics:
    """What is known of topics. `version` is the offset of the metadata image, and
    `version_of_new` that of the first image or the last that brought new topics."""

    def __init__(self) -> None:
        self.version = _UNKNOWN_VERSION
        self.version_of_new = _UNKNOWN_VERSION
        self.by_name: Mapping[str, Topic] = Map()
        # All of these are worked out when they are first asked for.
        self._hashes: dict[str, int] = {}
        self._ids: dict[tuple[str, ...], tuple[UUID, ...]] = {}
        self._names: dict[UUID, str] | None = None

    def learn(self, known: TopicsKnown) -> None:
        """Take the newest image's topics in."""
        before = self.by_name
        self.by_name, self.version = known.topics, known.version
        self._ids = {}
        self._names = None
        if known.changed is None:
            self._hashes = {}
            self.version_of_new = known.version
            return
        for name in known.changed:
            self._hashes.pop(name, None)
            now, earlier = known.topics.get(name), before.get(name)
            if now is not None and (earlier is None or earlier.topic_id != now.topic_id):
                self.version_of_new = known.version

    def ids(self, names: tuple[str, ...]) -> tuple[UUID, ...]:
        """The ids of those that exist, in order."""
        ids = self._ids.get(names)
        if ids is None:
            found = (self.by_name.get(name) for name in names)
            ids = self._ids[names] = tuple(sorted(t.topic_id for t in found if t is not None))
        return ids

    def partition_counts(self, names: Iterable[str]) -> dict[UUID, int]:
        """Of those that exist, by id."""
        found = (self.by_name.get(name) for name in names)
        return {topic.topic_id: topic.partitions for topic in found if topic is not None}

    def name(self, topic_id: UUID) -> str | None:
        """The name of a topic, None if there is none of that id."""
        if self._names is None:
            self._names = {topic.topic_id: name for name, topic in self.by_name.items()}
        return self._names.get(topic_id)

    def by_id(self, named: Iterable[tuple[str, tuple[int, ...]]]) -> tuple[TopicPartitions, ...]:
        """Partitions that come with their topics' names; of topics that exist."""
        return tuple(
            TopicPartitions(self.by_name[name].topic_id, partitions)
            for name, partitions in named
            if name in self.by_name
        )

    def described(self, partitions: Partitions) -> Iterator[DescribedAssignment]:
        """With the names of topics; what doesn't exist any more is left out."""
        for topic_id in sorted(partitions):
            name = self.name(topic_id)
            if name is not None:
                yield DescribedAssignment(topic_id, name, partitions[topic_id])

    def metadata_hash(self, names: Iterable[str]) -> int:
        """The hash by which a group sees that its topics have changed; `names` in order, those that
        don't exist play no part.

        It is Kafka's (KIP-1101), so that a group that moves between a JVM broker and us isn't
        assigned anew: XXH3 of the topics' hashes, as a signed number; 0 where there are none.
        """
        hashes = [_INT64.pack(self._hash(name)) for name in names if name in self.by_name]
        return _signed(xxh3_64_intdigest(b"".join(hashes))) if hashes else 0

    def _hash(self, name: str) -> int:
        value = self._hashes.get(name)
        if value is None:
            value = self._hashes[name] = _topic_hash(name, self.by_name[name])
        return value


def _topic_hash(name: str, topic: Topic) -> int:
    """Over id, name, and each partition's number and racks. Numbers are little-endian, texts
    UTF-16 with their length after them, as the library that Kafka uses has them."""
    high, low = struct.unpack(">qq", topic.topic_id.bytes)
    parts = [
        _MAGIC,
        _INT64.pack(high),
        _INT64.pack(low),
        _text(name),
        _INT32.pack(topic.partitions),
    ]
    for partition in range(topic.partitions):
        parts.append(_INT32.pack(partition))
        racks = topic.racks[partition] if partition < len(topic.racks) else ()
        for rack in sorted(racks):
            parts += (_INT32.pack(len(rack)), _text(rack))
    return _signed(xxh3_64_intdigest(b"".join(parts)))


def _text(text: str) -> bytes:
    return text.encode("utf-16-le") + _INT32.pack(len(text))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= _SIGN else value
