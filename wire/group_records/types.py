"""Keys and values of `__consumer_offsets`, as of Kafka 4.4.

A key's version says what kind of record it is: 0 to 2 the offsets and groups of the classic
protocol, 3 to 8 and 16 those of KIP-848. One class per kind and side, with the fields of its
newest version; a field that a version lacks has its default there. A record without a value is a
tombstone: what its key names is gone.
"""

# `kafka` declares a field, as dataclasses.field does.
# ruff: noqa: RUF009
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final
from uuid import UUID

from wire.group_records.schema import (
    BYTES,
    INT8,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UUID_TYPE,
    Struct,
    array,
    kafka,
)
from wire.uuids import ZERO

NO_LEADER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1


class GroupKey:
    """Base of all keys. `VERSION` is what the key begins with, `NAME` Kafka's name of the kind."""

    __slots__ = ()
    VERSION: ClassVar[int]
    NAME: ClassVar[str]


class GroupValue:
    """Base of all values; versions from `FLEXIBLE_FROM` on have tagged fields."""

    __slots__ = ()
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """A key of a kind that this code does not know, kept as it came; readers pass over it."""

    version: int
    body: bytes


@dataclass(frozen=True, slots=True)
class OffsetCommitKey(GroupKey):
    """A group's offset in a partition."""

    VERSION = 1
    NAME = "OffsetCommit"

    group_id: str = kafka(STRING, name="group")
    topic: str = kafka(STRING)
    partition: int = kafka(INT32)


@dataclass(frozen=True, slots=True)
class LegacyOffsetCommitKey(GroupKey):
    """The same of brokers before Kafka 0.9. It is another key to the cleaner, so that its
    tombstone has to be written in this form, too."""

    VERSION = 0
    NAME = "LegacyOffsetCommit"

    group_id: str = kafka(STRING, name="group")
    topic: str = kafka(STRING)
    partition: int = kafka(INT32)


@dataclass(frozen=True, slots=True)
class OffsetCommitValue(GroupValue):
    """A committed offset. Times are ms since the epoch. `expire_timestamp` is of version 1 alone,
    which is written for commits that bring a retention of their own (OffsetCommit versions 2 to 4).
    """

    MAX_VERSION = 4
    FLEXIBLE_FROM = 4

    offset: int = kafka(INT64)
    leader_epoch: int = kafka(INT32, since=3, default=NO_LEADER_EPOCH, ignorable=True)
    metadata: str = kafka(STRING, default="")
    commit_timestamp: int = kafka(INT64, default=NO_TIMESTAMP)
    expire_timestamp: int = kafka(INT64, since=1, until=1, default=NO_TIMESTAMP, ignorable=True)
    topic_id: UUID = kafka(UUID_TYPE, since=4, tag=0, default=ZERO, ignorable=True)


@dataclass(frozen=True, slots=True)
class GroupMetadataKey(GroupKey):
    """A group of the classic protocol."""

    VERSION = 2
    NAME = "GroupMetadata"

    group_id: str = kafka(STRING, name="group")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """A member of the classic protocol. Timeouts are ms; `subscription` and `assignment` are the
    clients' own bytes."""

    member_id: str = kafka(STRING)
    group_instance_id: str | None = kafka(NULLABLE_STRING, since=3, default=None, ignorable=True)
    client_id: str = kafka(STRING)
    client_host: str = kafka(STRING)
    rebalance_timeout: int = kafka(INT32, since=1, default=-1, ignorable=True)
    session_timeout: int = kafka(INT32)
    subscription: bytes = kafka(BYTES)
    assignment: bytes = kafka(BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValue(GroupValue):
    """A generation of a group of the classic protocol, its leader being a member id."""

    MAX_VERSION = 4
    FLEXIBLE_FROM = 4

    protocol_type: str = kafka(STRING)
    generation: int = kafka(INT32)
    protocol: str | None = kafka(NULLABLE_STRING)
    leader: str | None = kafka(NULLABLE_STRING)
    current_state_timestamp: int = kafka(INT64, since=2, default=NO_TIMESTAMP, ignorable=True)
    members: tuple[MemberMetadata, ...] = kafka(Struct(MemberMetadata))


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataKey(GroupKey):
    """A group of KIP-848."""

    VERSION = 3
    NAME = "ConsumerGroupMetadata"

    group_id: str = kafka(STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataValue(GroupValue):
    """The group's epoch and the hash of the topics it was assigned over (KIP-1101)."""

    epoch: int = kafka(INT32)
    metadata_hash: int = kafka(INT64, tag=0, default=0)


@dataclass(frozen=True, slots=True)
class ConsumerGroupPartitionMetadataKey(GroupKey):
    """What brokers before Kafka 4.1 kept in place of the hash; only its tombstones are written."""

    VERSION = 4
    NAME = "ConsumerGroupPartitionMetadata"

    group_id: str = kafka(STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """The racks of a partition's replicas."""

    partition: int = kafka(INT32)
    racks: tuple[str, ...] = kafka(array(STRING))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """A topic that the group subscribes to."""

    topic_id: UUID = kafka(UUID_TYPE)
    topic_name: str = kafka(STRING)
    num_partitions: int = kafka(INT32)
    partition_metadata: tuple[PartitionMetadata, ...] = kafka(Struct(PartitionMetadata))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupPartitionMetadataValue(GroupValue):
    topics: tuple[TopicMetadata, ...] = kafka(Struct(TopicMetadata))


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataKey(GroupKey):
    """A member and what it subscribes to."""

    VERSION = 5
    NAME = "ConsumerGroupMemberMetadata"

    group_id: str = kafka(STRING)
    member_id: str = kafka(STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicProtocol:
    """An assignor that a classic member can do, with its subscription's bytes."""

    name: str = kafka(STRING)
    metadata: bytes = kafka(BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberMetadata:
    """What a member brought that still speaks the classic protocol."""

    session_timeout_ms: int = kafka(INT32)
    supported_protocols: tuple[ClassicProtocol, ...] = kafka(Struct(ClassicProtocol))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataValue(GroupValue):
    """`classic_member_metadata` is None of a member that speaks the newer protocol, which is
    written: to Kafka's code, a missing tag is an empty one."""

    instance_id: str | None = kafka(NULLABLE_STRING)
    rack_id: str | None = kafka(NULLABLE_STRING)
    client_id: str = kafka(STRING)
    client_host: str = kafka(STRING)
    subscribed_topic_names: tuple[str, ...] = kafka(array(STRING))
    subscribed_topic_regex: str | None = kafka(NULLABLE_STRING)
    rebalance_timeout_ms: int = kafka(INT32, default=-1)
    server_assignor: str | None = kafka(NULLABLE_STRING)
    classic_member_metadata: ClassicMemberMetadata | None = kafka(
        Struct(ClassicMemberMetadata, many=False, nullable=True),
        tag=0,
        default=None,
        absent=ClassicMemberMetadata(session_timeout_ms=0, supported_protocols=()),
    )


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMetadataKey(GroupKey):
    """Up to which epoch the group's target assignment is made."""

    VERSION = 6
    NAME = "ConsumerGroupTargetAssignmentMetadata"

    group_id: str = kafka(STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMetadataValue(GroupValue):
    """`assignment_timestamp` (KIP-1263): when it was finished, ms; 0 is unknown."""

    assignment_epoch: int = kafka(INT32)
    assignment_timestamp: int = kafka(INT64, tag=0, default=0, ignorable=True)


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMemberKey(GroupKey):
    """What a member is to own."""

    VERSION = 7
    NAME = "ConsumerGroupTargetAssignmentMember"

    group_id: str = kafka(STRING)
    member_id: str = kafka(STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPartitions:
    """Partitions of a topic in a target assignment."""

    topic_id: UUID = kafka(UUID_TYPE)
    partitions: tuple[int, ...] = kafka(array(INT32))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMemberValue(GroupValue):
    topic_partitions: tuple[TargetPartitions, ...] = kafka(Struct(TargetPartitions))


@dataclass(frozen=True, slots=True)
class ConsumerGroupCurrentMemberAssignmentKey(GroupKey):
    """What a member owns."""

    VERSION = 8
    NAME = "ConsumerGroupCurrentMemberAssignment"

    group_id: str = kafka(STRING)
    member_id: str = kafka(STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPartitions:
    """Partitions of a topic that a member owns. `assignment_epochs` (KIP-1251): the member's epoch
    at which each was assigned to it, empty where an older broker wrote the record."""

    topic_id: UUID = kafka(UUID_TYPE)
    partitions: tuple[int, ...] = kafka(array(INT32))
    assignment_epochs: tuple[int, ...] | None = kafka(
        array(INT32, nullable=True), tag=0, default=()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupCurrentMemberAssignmentValue(GroupValue):
    """`state`: 0 stable, 1 unrevoked partitions, 2 unreleased partitions, 127 unknown."""

    member_epoch: int = kafka(INT32)
    previous_member_epoch: int = kafka(INT32)
    state: int = kafka(INT8)
    assigned_partitions: tuple[OwnedPartitions, ...] = kafka(Struct(OwnedPartitions))
    partitions_pending_revocation: tuple[OwnedPartitions, ...] = kafka(Struct(OwnedPartitions))


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpressionKey(GroupKey):
    """A regular expression that members subscribe to."""

    VERSION = 16
    NAME = "ConsumerGroupRegularExpression"

    group_id: str = kafka(STRING)
    regular_expression: str = kafka(STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRegularExpressionValue(GroupValue):
    """The topics it stood for in the metadata of that `version` (an offset), at `timestamp`, ms."""

    topics: tuple[str, ...] = kafka(array(STRING))
    version: int = kafka(INT64)
    timestamp: int = kafka(INT64)


VALUE_OF: Final[dict[type[GroupKey], type[GroupValue]]] = {
    LegacyOffsetCommitKey: OffsetCommitValue,
    OffsetCommitKey: OffsetCommitValue,
    GroupMetadataKey: GroupMetadataValue,
    ConsumerGroupMetadataKey: ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey: ConsumerGroupPartitionMetadataValue,
    ConsumerGroupMemberMetadataKey: ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupRegularExpressionKey: ConsumerGroupRegularExpressionValue,
}
"""Each kind of key and the class of its values."""
