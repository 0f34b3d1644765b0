"""The `uniform` assignor: as many partitions for each member as for any other, and as few moves as
that allows.

Where all subscribe to the same topics, members end up within one partition of each other. Where
they don't, a partition is given to the subscriber that has the fewest, and then moved from one
subscriber of its topic to another as long as that brings the two closer together; what is left is a
target that no single move improves.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from uuid import UUID

from broker.groups.consumer.assignors import Partitions, Subscriber, homogeneous


def assign(
    members: tuple[Subscriber, ...], partition_counts: Mapping[UUID, int]
) -> dict[str, Partitions]:
    """See `assignors.Assignor`."""
    if not members:
        return {}
    if homogeneous(members):
        return _Alike(members, partition_counts).assign()
    return _Unlike(members, partition_counts).assign()


class _Alike:
    """All members subscribe to the same topics."""

    def __init__(
        self, members: tuple[Subscriber, ...], partition_counts: Mapping[UUID, int]
    ) -> None:
        self.members = members
        self.topics = members[0].topics
        self.partition_counts = partition_counts
        total = sum(partition_counts[topic] for topic in self.topics)
        self.quota, self.extras = divmod(total, len(members))

    def assign(self) -> dict[str, Partitions]:
        target: dict[str, Partitions] = {}
        taken: dict[UUID, set[int]] = {topic: set() for topic in self.topics}
        wanting: list[tuple[str, int]] = []
        extras = self.extras
        for member in self.members:
            kept, size = self._keep(member.current, taken, self.quota + (extras > 0))
            target[member.member_id] = kept
            if size > self.quota:
                extras -= 1
            else:
                wanting.append((member.member_id, self.quota - size))
        free = iter(
            [
                (topic, partition)
                for topic, those in taken.items()
                for partition in range(self.partition_counts[topic])
                if partition not in those
            ]
        )
        for member_id, missing in wanting:
            if extras > 0:
                extras -= 1
                missing += 1
            if missing:
                target[member_id] = _with(target[member_id], free, missing)
        return target

    def _keep(
        self, current: Partitions, taken: dict[UUID, set[int]], limit: int
    ) -> tuple[Partitions, int]:
        """What of its current target a member keeps, up to `limit` partitions, and how many."""
        kept: dict[UUID, tuple[int, ...]] = {}
        size = 0
        for topic in sorted(current):
            if topic not in taken or size == limit:
                continue
            partitions = free_of(current[topic], taken[topic], self.partition_counts[topic])
            if size + len(partitions) > limit:
                partitions = partitions[: limit - size]
            if partitions:
                kept[topic] = partitions
                taken[topic].update(partitions)
                size += len(partitions)
        return (current if kept == current else kept), size


def free_of(partitions: tuple[int, ...], taken: set[int], count: int) -> tuple[int, ...]:
    """Those that nobody has and that exist: a log may hold whatever another broker wrote."""
    if taken.isdisjoint(partitions) and (not partitions or partitions[-1] < count):
        return partitions
    return tuple(p for p in partitions if p not in taken and p < count)


def _with(partitions: Partitions, more: Iterator[tuple[UUID, int]], count: int) -> Partitions:
    """The partitions and the next `count` of `more`."""
    changed = {topic: list(those) for topic, those in partitions.items()}
    for _ in range(count):
        topic, partition = next(more)
        insort(changed.setdefault(topic, []), partition)
    return {topic: tuple(those) for topic, those in changed.items()}


class _Unlike:
    """Members subscribe to different topics."""

    def __init__(
        self, members: tuple[Subscriber, ...], partition_counts: Mapping[UUID, int]
    ) -> None:
        self.members = members
        self.partition_counts = partition_counts
        self.subscribers: dict[UUID, list[int]] = {}
        for number, member in enumerate(members):
            for topic in member.topics:
                self.subscribers.setdefault(topic, []).append(number)
        # By member's number: what it has of each topic, and how many partitions that is.
        self.owned: list[dict[UUID, set[int]]] = [{} for _ in members]
        self.sizes = [0] * len(members)
        # Topics that bring each subscriber the most come first, then those that have the least
        # choice: later ones even out what the earlier ones could not.
        self.topics = sorted(
            self.subscribers,
            key=lambda t: (
                -partition_counts[t] / len(self.subscribers[t]),
                len(self.subscribers[t]),
                t,
            ),
        )

    def assign(self) -> dict[str, Partitions]:
        for topic, taken in self._keep().items():
            heap = self._loads(topic)
            for partition in range(self.partition_counts[topic]):
                if partition not in taken:
                    _, owner = heap[0]
                    self._give(owner, topic, partition)
                    heapreplace(heap, (self.sizes[owner], owner))
        while sum(map(self._balance, self.topics)):
            pass
        return {
            member.member_id: self._result(number, member.current)
            for number, member in enumerate(self.members)
        }

    def _keep(self) -> dict[UUID, set[int]]:
        """Leaves members what they have of their topics; tells what is taken then, in the topics'
        order."""
        taken: dict[UUID, set[int]] = {topic: set() for topic in self.topics}
        for number, member in enumerate(self.members):
            subscribed = set(member.topics)
            for topic, partitions in member.current.items():
                if topic in subscribed:
                    count = self.partition_counts[topic]
                    for partition in free_of(partitions, taken[topic], count):
                        self._give(number, topic, partition)
                        taken[topic].add(partition)
        return taken

    def _loads(self, topic: UUID) -> list[tuple[int, int]]:
        """The topic's subscribers as a heap by how much they have."""
        heap = [(self.sizes[number], number) for number in self.subscribers[topic]]
        heapify(heap)
        return heap

    def _give(self, number: int, topic: UUID, partition: int) -> None:
        self.owned[number].setdefault(topic, set()).add(partition)
        self.sizes[number] += 1

    def _balance(self, topic: UUID) -> bool:
        """Moves the topic's partitions from those who have the most partitions to those who have
        the fewest, while they are two apart or more. Each move brings the sum of the squares down,
        so this ends. Whether anything moved."""
        fewest = self._loads(topic)
        # Loads and numbers are negative here, so that the greatest comes first.
        most = [(-size, -number) for size, number in fewest if self.owned[number].get(topic)]
        heapify(most)
        moved = False
        while most:
            taker, giver = fewest[0][1], -most[0][1]
            if self.sizes[giver] - self.sizes[taker] < 2:
                break
            partition = max(self.owned[giver][topic])
            self.owned[giver][topic].remove(partition)
            self.sizes[giver] -= 1
            self._give(taker, topic, partition)
            moved = True
            # Who stands in both heaps has its old load in the other one. That may end this pass
            # early, no more: a topic is done when a pass with new heaps moves nothing.
            heapreplace(fewest, (self.sizes[taker], taker))
            if self.owned[giver][topic]:
                heapreplace(most, (-self.sizes[giver], -giver))
            else:
                heappop(most)
        return moved

    def _result(self, number: int, current: Partitions) -> Partitions:
        owned = self.owned[number]
        target = {topic: tuple(sorted(owned[topic])) for topic in sorted(owned) if owned[topic]}
        return current if target == current else target
