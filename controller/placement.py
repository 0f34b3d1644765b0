"""Rack-aware striped replica placement (Kafka's StripedReplicaPlacer).

Goals, in this order: no broker twice in a partition, replicas on as many racks as there are,
live brokers before fenced ones, leaders and followers spread evenly over brokers.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from wire.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class UsableBroker:
    id: int
    rack: str | None
    fenced: bool


class _BrokerRing:
    """Brokers of one rack and state, dealt round robin; a new epoch starts one further on."""

    def __init__(self, ids: list[int], chance: random.Random) -> None:
        self._ids = ids
        self._epoch = 0
        self._taken = 0
        self._offset = chance.randrange(len(ids)) if ids else 0

    def __len__(self) -> int:
        return len(self._ids)

    def next(self, epoch: int) -> int | None:
        """The next broker not yet dealt in this epoch, or None."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._taken = 0
            self._offset = (self._offset + 1) % max(1, len(self._ids))
        if self._taken >= len(self._ids):
            return None
        broker = self._ids[(self._offset + self._taken) % len(self._ids)]
        self._taken += 1
        return broker

    def shuffle(self, chance: random.Random) -> None:
        chance.shuffle(self._ids)


class _Rack:
    def __init__(self, brokers: list[UsableBroker], chance: random.Random) -> None:
        ordered = sorted(brokers, key=lambda b: b.id)
        self.unfenced = _BrokerRing([b.id for b in ordered if not b.fenced], chance)
        self.fenced = _BrokerRing([b.id for b in ordered if b.fenced], chance)

    def next(self, epoch: int) -> int | None:
        broker = self.unfenced.next(epoch)
        return self.fenced.next(epoch) if broker is None else broker


class _Racks:
    """Walks the racks, one partition an epoch."""

    def __init__(self, brokers: list[UsableBroker], chance: random.Random) -> None:
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        # No rack sorts first.
        names = sorted(by_rack, key=lambda r: (r is not None, r or ""))
        self._racks = [_Rack(by_rack[name], chance) for name in names]
        self._chance = chance
        self._unfenced_count = sum(1 for b in brokers if not b.fenced)
        self._epoch = 0
        self._offset = chance.randrange(len(self._racks))

    def place(self, replication_factor: int) -> list[int]:
        self._advance()
        leader, leader_rack = self._leader()
        replicas = [leader]
        count = len(self._racks)
        step = 0
        empty_in_a_row = 0
        while len(replicas) < replication_factor:
            index = (self._offset + step) % count
            step += 1
            # The leader's rack has given its broker of this round already.
            if index == leader_rack and step <= count and count > 1:
                continue
            broker = self._racks[index].next(self._epoch)
            if broker is None:
                empty_in_a_row += 1
                assert empty_in_a_row <= 2 * count, "more replicas asked for than brokers"
                continue
            empty_in_a_row = 0
            replicas.append(broker)
        return replicas

    def _leader(self) -> tuple[int, int]:
        for step in range(len(self._racks)):
            index = (self._offset + step) % len(self._racks)
            broker = self._racks[index].unfenced.next(self._epoch)
            if broker is not None:
                return broker, index
        raise AssertionError("placement needs an unfenced broker")

    def _advance(self) -> None:
        self._epoch += 1
        self._offset = (self._offset + 1) % len(self._racks)
        # After each broker has led once the order is mixed, so that the same brokers don't
        # always follow each other.
        if (
            self._epoch > 1
            and self._unfenced_count > 1
            and ((self._epoch - 1) % self._unfenced_count == 0)
        ):
            self._chance.shuffle(self._racks)
            for rack in self._racks:
                rack.unfenced.shuffle(self._chance)
                rack.fenced.shuffle(self._chance)


def place(
    brokers: Iterable[UsableBroker],
    partition_count: int,
    replication_factor: int,
    chance: random.Random,
) -> Iterator[list[int]]:
    """Replica lists for that many new partitions, the preferred leader first in each; a partition
    is placed when it is asked for.

    Raises KafkaError INVALID_REPLICATION_FACTOR, at once, if the brokers can't carry it.
    """
    usable = list(brokers)
    if replication_factor <= 0:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"Replication factor {replication_factor} is invalid: it must be at least 1, "
            "or -1 for the default",
        )
    if not any(not b.fenced for b in usable):
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"Replication factor {replication_factor} is not possible: "
            + (
                "all brokers are fenced"
                if usable
                else "no broker is registered that isn't stopping"
            ),
        )
    if replication_factor > len(usable):
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"Replication factor {replication_factor} is larger than the number of brokers, "
            f"{len(usable)}",
        )
    racks = _Racks(usable, chance)
    return (racks.place(replication_factor) for _ in range(partition_count))
