"""A member of a consumer group, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final
from uuid import UUID

from broker.groups.consumer.assignors import Partitions
from broker.groups.events import TopicPartitions
from wire.group_records import ClassicMemberMetadata, OwnedPartitions

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
LEAVING_STATIC_EPOCH: Final = -2
"""A static member's that went away for a while: what it owned is kept for its instance id."""
NO_EPOCH: Final = -1
SAME_TIMEOUT_MS: Final = -1
NO_REGEX: Final = ""

Owned = Mapping[UUID, Mapping[int, int]]
"""By topic and partition, the member's epoch at which the partition was assigned to it (KIP-1251).
No topic is empty."""
NOTHING: Final[Owned] = {}


class MemberState(IntEnum):
    """How far a member is on its way to its target; the numbers are those of the records.

    `UNREVOKED`: it was told to give up partitions and has not said that it did. `UNRELEASED`: it
    waits for partitions that others still have. `UNKNOWN`: a newer broker wrote what we don't know.
    """

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> MemberState:
        """The state of that number in a record."""
        return cls(number) if 0 <= number <= cls.UNRELEASED else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Member:
    """What the log says of a member. `topics` are the names that it subscribes to, in order, and
    `regex` its expression, NO_REGEX or None if it has none; both may be there.

    `classic` is there while it speaks the classic protocol (online migration).
    """

    member_id: str
    epoch: int = JOINING_EPOCH
    previous_epoch: int = NO_EPOCH
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = SAME_TIMEOUT_MS
    topics: tuple[str, ...] = ()
    regex: str | None = NO_REGEX
    assignor: str | None = None
    assigned: Owned = field(default_factory=lambda: NOTHING)
    revoking: Owned = field(default_factory=lambda: NOTHING)
    classic: ClassicMemberMetadata | None = None

    def but(self, **changes: Any) -> Member:
        """The member with other values in some fields."""
        return replace(self, **changes)

    def at(self, epoch: int) -> Member:
        """The member after it moved on to an epoch, which may be the one that it had."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch)

    def is_at(self, epoch: int) -> bool:
        """Whether it has reached the target of that epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def owned_since(self, topic_id: UUID, partition: int) -> int | None:
        """The epoch at which it was given a partition that it still has or is giving up."""
        for owned in (self.assigned, self.revoking):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


def told(owned: Owned) -> tuple[TopicPartitions, ...]:
    """What a member is told that it has."""
    return tuple(TopicPartitions(t, tuple(sorted(owned[t]))) for t in sorted(owned))


def stored(owned: Owned) -> tuple[OwnedPartitions, ...]:
    """As a record holds it."""
    found = []
    for topic_id in sorted(owned):
        partitions = tuple(sorted(owned[topic_id]))
        epochs = tuple(owned[topic_id][p] for p in partitions)
        found.append(
            OwnedPartitions(topic_id=topic_id, partitions=partitions, assignment_epochs=epochs)
        )
    return tuple(found)


def restored(stored_partitions: tuple[OwnedPartitions, ...], member_epoch: int) -> Owned:
    """From a record. Where that has no epochs, partitions count as assigned at the member's."""
    owned: dict[UUID, Mapping[int, int]] = {}
    for one in stored_partitions:
        epochs = one.assignment_epochs
        if epochs is None or len(epochs) != len(one.partitions):
            epochs = (max(member_epoch, 0),) * len(one.partitions)
        if one.partitions:
            owned[one.topic_id] = dict(zip(one.partitions, epochs, strict=True))
    return owned


def without_epochs(owned: Owned) -> Partitions:
    """The partitions alone."""
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in owned.items()}


def since(partitions: Partitions, epoch: int) -> Owned:
    """Partitions that were all assigned at one epoch."""
    return {topic_id: dict.fromkeys(those, epoch) for topic_id, those in partitions.items()}
