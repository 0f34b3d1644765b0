"""The assignors that a coordinator offers, by name, and what all of them are asked.

An assignor is a function of the members' subscriptions, the topics' partitions and the target so
far. It is deterministic: members and topics come sorted, and so do partitions in what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

Partitions = Mapping[UUID, tuple[int, ...]]
"""Partitions in ascending order by topic; not changed once it is made. No topic is empty."""
NO_PARTITIONS: Final[Partitions] = {}


class Subscriber(NamedTuple):
    """A member as an assignor sees it: `topics` in order, all of them existing, and `current` its
    target so far."""

    member_id: str
    instance_id: str | None
    topics: tuple[UUID, ...]
    current: Partitions


Assignor = Callable[[tuple[Subscriber, ...], Mapping[UUID, int]], dict[str, Partitions]]
"""(members by id, partition counts by topic) -> target by member id, with an entry for each."""


def homogeneous(members: tuple[Subscriber, ...]) -> bool:
    """Whether all members subscribe to the same topics."""
    return all(m.topics == members[0].topics for m in members)
