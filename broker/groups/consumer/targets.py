"""The group's epoch and its target assignment: when each moves on, and to what."""

from __future__ import annotations

from typing import Final

from broker.groups.consumer import range_assignor, uniform_assignor
from broker.groups.consumer.assignors import Assignor, Subscriber
from broker.groups.consumer.group import NEVER, ConsumerGroup
from broker.groups.consumer.member import Member
from broker.groups.consumer.records import (
    drop_partition_metadata,
    write_epoch,
    write_target,
    write_target_epoch,
)
from broker.groups.consumer.replay import Draft
from broker.groups.consumer.topics import Topics

ASSIGNORS: Final[dict[str, Assignor]] = {
    "uniform": uniform_assignor.assign,
    "range": range_assignor.assign,
}


def advance_epoch(draft: Draft, topics: Topics, *, changed: bool) -> bool:
    """Let the group's epoch rise if its subscriptions have changed, or its topics have. Whether it
    rose."""
    group = draft.group
    metadata_hash = topics.metadata_hash(group.subscribed_topics())
    rises = changed or metadata_hash != group.metadata_hash
    if rises:
        write_epoch(draft, group.epoch + 1, metadata_hash)
    drop_partition_metadata(draft)
    return rises


def may_compute(group: ConsumerGroup, interval_ms: int, wall_ms: int) -> bool:
    """Whether it is time for a new target: an interval apart, so that members who come together are
    assigned together (KIP-1263). A clock that went back holds nobody up."""
    last = group.target_timestamp
    return last == NEVER or not last <= wall_ms < last + interval_ms


def compute(draft: Draft, topics: Topics, assignor: Assignor, wall_ms: int) -> None:
    """A new target for the group's epoch."""
    group = draft.group
    target = assignor(
        tuple(_subscriber(group, member, topics) for member in group.in_order()),
        topics.partition_counts(group.subscribed_topics()),
    )
    for member_id, partitions in target.items():
        if member_id not in group.targets or partitions != group.targets[member_id]:
            write_target(draft, member_id, partitions)
    write_target_epoch(draft, group.epoch, wall_ms)


def _subscriber(group: ConsumerGroup, member: Member, topics: Topics) -> Subscriber:
    return Subscriber(
        member.member_id,
        member.instance_id,
        topics.ids(group.subscription(member)),
        group.target_of(member.member_id),
    )
