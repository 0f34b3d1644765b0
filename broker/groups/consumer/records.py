"""The records of a consumer group, as Kafka 4.4 writes them."""

from __future__ import annotations

from broker.groups.consumer.assignors import Partitions
from broker.groups.consumer.group import Resolved
from broker.groups.consumer.member import Member, stored
from broker.groups.consumer.replay import Draft
from wire.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TargetPartitions,
)


def write_epoch(draft: Draft, epoch: int, metadata_hash: int) -> None:
    """The group is at that epoch, over topics of that hash."""
    key = ConsumerGroupMetadataKey(draft.group_id)
    draft.write(key, ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))


def drop_partition_metadata(draft: Draft) -> None:
    """Delete what brokers before Kafka 4.1 kept of topics, where it is there."""
    if draft.group.has_partition_metadata:
        draft.write(ConsumerGroupPartitionMetadataKey(draft.group_id), None)


def write_subscription(draft: Draft, member: Member) -> None:
    """Who the member is and what it subscribes to."""
    draft.write(
        ConsumerGroupMemberMetadataKey(draft.group_id, member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=member.topics,
            subscribed_topic_regex=member.regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.assignor,
            classic_member_metadata=member.classic,
        ),
    )


def write_current(draft: Draft, member: Member) -> None:
    """What the member owns, and at which epoch."""
    draft.write(
        ConsumerGroupCurrentMemberAssignmentKey(draft.group_id, member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=int(member.state),
            assigned_partitions=stored(member.assigned),
            partitions_pending_revocation=stored(member.revoking),
        ),
    )


def write_target(draft: Draft, member_id: str, target: Partitions) -> None:
    """What the member is to own."""
    draft.write(
        ConsumerGroupTargetAssignmentMemberKey(draft.group_id, member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=tuple(
                TargetPartitions(topic_id=topic_id, partitions=target[topic_id])
                for topic_id in sorted(target)
            )
        ),
    )


def write_target_epoch(draft: Draft, epoch: int, timestamp: int) -> None:
    """The targets are those of that group epoch, computed then (ms of the wall clock)."""
    draft.write(
        ConsumerGroupTargetAssignmentMetadataKey(draft.group_id),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp
        ),
    )


def remove_member(draft: Draft, member_id: str) -> None:
    """All of a member, in the order that readers expect."""
    group_id = draft.group_id
    draft.write(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None)
    draft.write(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None)
    draft.write(ConsumerGroupMemberMetadataKey(group_id, member_id), None)


def write_regex(draft: Draft, regex: str, resolved: Resolved) -> None:
    """What an expression stands for."""
    draft.write(
        ConsumerGroupRegularExpressionKey(draft.group_id, regex),
        ConsumerGroupRegularExpressionValue(
            topics=resolved.topics, version=resolved.version, timestamp=resolved.timestamp
        ),
    )


def drop_unused_regex(draft: Draft, regex: str | None) -> None:
    """Forget what an expression stands for that no member subscribes to any more."""
    if regex and regex not in draft.group.regexes:
        draft.write(ConsumerGroupRegularExpressionKey(draft.group_id, regex), None)
