"""The committed offsets of one coordinator, and those of open transactions.

An offset is kept as the bytes of its record's value: a fifth of what an object takes, and few of
them are ever asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from broker.groups.speculation import Speculation, Versioned


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


Partitions = dict[int, bytes]


class _Committed(Versioned[OffsetKey, bytes]):
    """By group, topic, partition; a level that is empty is not there."""

    __slots__ = ("by_group",)

    def __init__(self, speculation: Speculation) -> None:
        super().__init__(speculation)
        self.by_group: dict[str, dict[str, Partitions]] = {}

    def get(self, key: OffsetKey) -> bytes | None:
        topics = self.by_group.get(key[0])
        if topics is None:
            return None
        partitions = topics.get(key[1])
        return None if partitions is None else partitions.get(key[2])

    def load(self, key: OffsetKey, value: bytes | None) -> None:
        group_id, topic, partition = key
        topics = self.by_group.get(group_id)
        if value is not None:
            if topics is None:
                topics = self.by_group[group_id] = {}
            partitions = topics.get(topic)
            if partitions is None:
                # Many groups read the same topics: one name for all of them.
                partitions = topics[sys.intern(topic)] = {}
            partitions[partition] = value
        elif topics is not None and topic in topics:
            topics[topic].pop(partition, None)
            if not topics[topic]:
                del topics[topic]
                if not topics:
                    del self.by_group[group_id]


class _PendingKey(NamedTuple):
    group_id: str
    topic: str
    partition: int
    producer_id: int

    @property
    def offset_key(self) -> OffsetKey:
        return OffsetKey(self.group_id, self.topic, self.partition)


class _Pending(NamedTuple):
    """An offset of an open transaction. `order` is its record's place among all; `overtaken` says
    that a later record than it counts already, so that it never will."""

    order: int
    value: bytes
    overtaken: bool = False


class _PendingOffsets(Versioned[_PendingKey, _Pending]):
    """Indexed by offset and by producer."""

    __slots__ = ("by_group", "by_producer")

    def __init__(self, speculation: Speculation) -> None:
        super().__init__(speculation)
        self.by_group: dict[str, dict[OffsetKey, dict[int, None]]] = {}
        self.by_producer: dict[int, dict[OffsetKey, None]] = {}

    def load(self, key: _PendingKey, value: _Pending | None) -> None:
        super().load(key, value)
        offset, producer_id = key.offset_key, key.producer_id
        if value is not None:
            producers = self.by_group.setdefault(key.group_id, {}).setdefault(offset, {})
            producers[producer_id] = None
            self.by_producer.setdefault(producer_id, {})[offset] = None
            return
        offsets = self.by_group.get(key.group_id, {})
        if producer_id in offsets.get(offset, {}):
            del offsets[offset][producer_id]
            if not offsets[offset]:
                del offsets[offset]
                if not offsets:
                    del self.by_group[key.group_id]
            del self.by_producer[producer_id][offset]
            if not self.by_producer[producer_id]:
                del self.by_producer[producer_id]

    def of(self, key: OffsetKey) -> list[_PendingKey]:
        """Those of one offset."""
        offsets = self.by_group.get(key.group_id)
        if offsets is None:
            return []
        return [_PendingKey(*key, producer_id) for producer_id in offsets.get(key, ())]


class OffsetStore:
    """See the module.

    What is `live` is bound to the next append; what is not comes from the log. Of a partition's
    records, transactional or not, the one that stands last in the log counts, whenever its
    transaction ended.
    """

    def __init__(self, speculation: Speculation) -> None:
        self._committed = _Committed(speculation)
        self._pending = _PendingOffsets(speculation)
        self._order = 0

    # -- changes ---------------------------------------------------------------------------------

    def put(self, key: OffsetKey, value: bytes, producer_id: int | None, *, live: bool) -> None:
        """An offset was committed, by a transaction that is open if there is a producer."""
        self._order += 1
        if producer_id is not None:
            change = self._pending.set if live else self._pending.load
            change(_PendingKey(*key, producer_id), _Pending(self._order, value))
            return
        self._change(live)(key, value)
        if self._pending.by_group:
            self._overtake(key, self._order, live)

    def remove(self, key: OffsetKey, *, live: bool) -> None:
        """An offset was deleted, and what open transactions have of it."""
        self._change(live)(key, None)
        change = self._pending.set if live else self._pending.load
        for pending in self._pending.of(key):
            change(pending, None)

    def end_transaction(self, producer_id: int, committed: bool, *, live: bool) -> None:
        """The producer's offsets count from here on, or are dropped."""
        change = self._pending.set if live else self._pending.load
        for key in list(self._pending.by_producer.get(producer_id, ())):
            pending_key = _PendingKey(*key, producer_id)
            pending = self._pending.get(pending_key)
            change(pending_key, None)
            if committed and pending is not None and not pending.overtaken:
                self._change(live)(key, pending.value)
                self._overtake(key, pending.order, live)

    def _change(self, live: bool) -> Callable[[OffsetKey, bytes | None], None]:
        return self._committed.set if live else self._committed.load

    def _overtake(self, key: OffsetKey, order: int, live: bool) -> None:
        change = self._pending.set if live else self._pending.load
        for pending_key in self._pending.of(key):
            pending = self._pending.get(pending_key)
            if pending is not None and pending.order < order and not pending.overtaken:
                change(pending_key, pending._replace(overtaken=True))

    # -- what is there ---------------------------------------------------------------------------

    def get(self, key: OffsetKey) -> bytes | None:
        """The newest."""
        return self._committed.get(key)

    def committed(self, key: OffsetKey) -> bytes | None:
        """The one at the high watermark."""
        return self._committed.committed(key)

    def topics(self, group_id: str) -> dict[str, Partitions]:
        """The newest of a group; not to be changed."""
        return self._committed.by_group.get(group_id, {})

    def committed_topics(self, group_id: str) -> dict[str, Partitions]:
        """All of a group at the high watermark."""
        topics = self.topics(group_id)
        uncommitted = [key for key in self._committed.uncommitted_keys() if key[0] == group_id]
        if not uncommitted:
            return topics
        topics = {topic: dict(partitions) for topic, partitions in topics.items()}
        for key in uncommitted:
            value = self._committed.committed(key)
            partitions = topics.setdefault(key.topic, {})
            if value is None:
                partitions.pop(key.partition, None)
            else:
                partitions[key.partition] = value
        return {topic: partitions for topic, partitions in topics.items() if partitions}

    def is_unstable(self, key: OffsetKey) -> bool:
        """Whether an open transaction commits this offset."""
        offsets = self._pending.by_group.get(key.group_id)
        return offsets is not None and key in offsets

    def has_open_transaction(self, group_id: str) -> bool:
        """Whether an open transaction commits any offset of the group."""
        return group_id in self._pending.by_group

    def keys(self, group_id: str) -> list[OffsetKey]:
        """All of a group, those of open transactions among them."""
        keys = {
            OffsetKey(group_id, topic, partition): None
            for topic, partitions in self.topics(group_id).items()
            for partition in partitions
        }
        keys.update(dict.fromkeys(self._pending.by_group.get(group_id, ())))
        return list(keys)

    def all_topics(self) -> Iterator[tuple[str, str, Partitions]]:
        """What is committed, the newest: group, topic, and values by partition. The store must not
        change meanwhile."""
        for group_id, topics in self._committed.by_group.items():
            for topic, partitions in topics.items():
                yield group_id, topic, partitions

    def keys_of_topic(self, topic: str) -> Iterator[OffsetKey]:
        """All of a topic, those of open transactions among them; of any group. The store must not
        change meanwhile."""
        for group_id, topics in self._committed.by_group.items():
            for partition in topics.get(topic, ()):
                yield OffsetKey(group_id, topic, partition)
        for offsets in self._pending.by_group.values():
            for key in offsets:
                if key.topic == topic and self.get(key) is None:
                    yield key
