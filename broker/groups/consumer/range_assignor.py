"""The `range` assignor: each topic's partitions as ranges over its subscribers, in their order.

Members with an instance id come first, by that id, so that a static member keeps its ranges
whatever member id it comes back with; the others follow by member id. Topics with as many
partitions and the same subscribers are cut alike: partition i of each goes to one member, which
joins rely on. The first of a topic's subscribers have one partition more where it doesn't come out
even. What was assigned before plays no part.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from broker.groups.consumer.assignors import Partitions, Subscriber


def assign(
    members: tuple[Subscriber, ...], partition_counts: Mapping[UUID, int]
) -> dict[str, Partitions]:
    """See `assignors.Assignor`."""
    subscribers: dict[UUID, list[str]] = {}
    for member in sorted(members, key=_place):
        for topic in member.topics:
            subscribers.setdefault(topic, []).append(member.member_id)
    target: dict[str, dict[UUID, tuple[int, ...]]] = {m.member_id: {} for m in members}
    for topic in sorted(subscribers):
        owners = subscribers[topic]
        share, left_over = divmod(partition_counts[topic], len(owners))
        start = 0
        for number, owner in enumerate(owners):
            end = start + share + (number < left_over)
            if start < end:
                target[owner][topic] = tuple(range(start, end))
            start = end
    return {**target}


def _place(member: Subscriber) -> tuple[bool, str]:
    if member.instance_id is not None:
        return False, member.instance_id
    return True, member.member_id
