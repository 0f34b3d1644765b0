"""What the group coordinator is told: requests and what happened in the world. All frozen values.

Requests know no API versions. `caller` comes back in the Answer and means nothing to the core.
Times are milliseconds. Ids of topics are in the shell's hands unless a field says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from broker.groups.settings import GroupOverrides
from wire.errors import ErrorCode

UNKNOWN_GENERATION = -1
NO_MEMBER = ""
NO_OFFSET = -1
NO_LEADER_EPOCH = -1
NO_PRODUCER = -1

NONE = ErrorCode.none

# -- the classic protocol ----------------------------------------------------------------------


class Protocol(NamedTuple):
    """A protocol that a member knows, and its metadata for it; opaque but for subscriptions."""

    name: str
    metadata: bytes


class JoinGroup(NamedTuple):
    """Answered by Joined.

    `require_known_member_id` is whether a dynamic member without id must come again with the one
    it is given (KIP-394, version 4 on); `may_skip_assignment` whether a leader may be told to skip
    it (KIP-814, version 9). In version 0 `rebalance_timeout_ms` is the session timeout.
    """

    caller: int
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    require_known_member_id: bool = True
    may_skip_assignment: bool = True
    reason: str | None = None


class JoinedMember(NamedTuple):
    """A member as the leader is told of it; `metadata` is for the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """`members` is empty for all but the leader; names are None where there is none."""

    error: ErrorCode
    member_id: str = NO_MEMBER
    generation: int = UNKNOWN_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncGroup(NamedTuple):
    """Answered by Synced. `assignments` is by member id, the leader's; names None if not told."""

    caller: int
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]


class Synced(NamedTuple):
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Heartbeat(NamedTuple):
    """Answered by Beaten."""

    caller: int
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


class Beaten(NamedTuple):
    error: ErrorCode


class Leaving(NamedTuple):
    """A member that leaves: by id, or by instance id with `member_id` empty or right."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class LeaveGroup(NamedTuple):
    """Answered by Left."""

    caller: int
    group_id: str
    members: tuple[Leaving, ...]


class Left(NamedTuple):
    """`members` has one entry for each that was asked for, in that order, unless `error` says that
    the whole request failed."""

    error: ErrorCode
    members: tuple[tuple[Leaving, ErrorCode], ...] = ()


# -- offsets -----------------------------------------------------------------------------------


class CommittedOffset(NamedTuple):
    """What a consumer commits for a partition. `topic_id` is None where the shell knows none."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    topic_id: UUID | None = None


class OffsetCommit(NamedTuple):
    """Answered by OffsetsCommitted. Topics that do not exist are the shell's to refuse. A group
    that does not exist is GROUP_ID_NOT_FOUND; before version 9 it was ILLEGAL_GENERATION.

    `generation` is a classic group's generation or a consumer group's member epoch; below 0 with an
    empty member id it is a commit from outside the group's protocol. `retention_ms` is what
    versions before 5 may ask for, None for the broker's own. `knows_epochs` is whether the client
    may speak for a member of the consumer protocol (version 9 on).
    """

    caller: int
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None
    offsets: tuple[CommittedOffset, ...]
    retention_ms: int | None = None
    knows_epochs: bool = True


class TxnOffsetCommit(NamedTuple):
    """Offsets that count when the transaction is committed (KIP-447). Answered by
    OffsetsCommitted."""

    caller: int
    group_id: str
    producer_id: int
    producer_epoch: int
    member_id: str
    generation: int
    instance_id: str | None
    offsets: tuple[CommittedOffset, ...]


class OffsetsCommitted(NamedTuple):
    """`errors` has one entry for each offset of the request, in its order."""

    errors: tuple[ErrorCode, ...]


class OffsetFetch(NamedTuple):
    """Answered by OffsetsFetched. `topics` None is all that the group has offsets of.

    `member_id` None is an administrator or a consumer that tells no epoch (`member_epoch` below 0).
    `require_stable` reports UNSTABLE_OFFSET_COMMIT for partitions with offsets of open
    transactions.
    """

    caller: int
    group_id: str
    topics: tuple[tuple[str, tuple[int, ...]], ...] | None
    member_id: str | None = None
    member_epoch: int = -1
    require_stable: bool = False


class FetchedOffset(NamedTuple):
    """`offset` is NO_OFFSET where nothing is committed or `error` says why it isn't told."""

    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: ErrorCode = NONE


class OffsetsFetched(NamedTuple):
    error: ErrorCode
    topics: tuple[tuple[str, tuple[FetchedOffset, ...]], ...] = ()


class OffsetDelete(NamedTuple):
    """Answered by OffsetsDeleted. Topics that do not exist are the shell's to refuse."""

    caller: int
    group_id: str
    topics: tuple[tuple[str, tuple[int, ...]], ...]


class OffsetsDeleted(NamedTuple):
    """`topics` as in the request, with an error for each partition."""

    error: ErrorCode
    topics: tuple[tuple[str, tuple[tuple[int, ErrorCode], ...]], ...] = ()


# -- all groups --------------------------------------------------------------------------------


class ListGroups(NamedTuple):
    """Answered by GroupsListed. No states or types given is all of them; letter case is ignored."""

    caller: int
    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class ListedGroup(NamedTuple):
    """`state` and `type` are Kafka's words, e.g. `Stable` and `classic`."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupsListed(NamedTuple):
    error: ErrorCode
    groups: tuple[ListedGroup, ...] = ()


class DescribeGroups(NamedTuple):
    """Of the classic protocol. Answered by GroupsDescribed."""

    caller: int
    group_ids: tuple[str, ...]


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """A group that isn't there, or is of another type, has GROUP_ID_NOT_FOUND and is `Dead`."""

    error: ErrorCode
    group_id: str
    state: str
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()
    message: str | None = None


class GroupsDescribed(NamedTuple):
    groups: tuple[DescribedGroup, ...]


class DeleteGroups(NamedTuple):
    """Of any type. Answered by GroupsDeleted."""

    caller: int
    group_ids: tuple[str, ...]


class GroupsDeleted(NamedTuple):
    """One entry for each group id of the request, in its order."""

    groups: tuple[tuple[str, ErrorCode], ...]


# -- the consumer protocol (KIP-848) -------------------------------------------------------------


class TopicPartitions(NamedTuple):
    topic_id: UUID
    partitions: tuple[int, ...]


class ConsumerGroupHeartbeat(NamedTuple):
    """Answered by ConsumerBeaten. None is "as before", for every field that may be None.

    `subscribed_regex` is empty where a member takes its expression back. `owned` is what the
    member says it owns. `rebalance_timeout_ms` -1 is "as before".
    """

    caller: int
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    subscribed_topics: tuple[str, ...] | None
    subscribed_regex: str | None
    server_assignor: str | None
    owned: tuple[TopicPartitions, ...] | None


class ConsumerBeaten(NamedTuple):
    """`assignment` is None where the member need not be told."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[TopicPartitions, ...] | None = None


class ConsumerGroupDescribe(NamedTuple):
    """Answered by ConsumerGroupsDescribed."""

    caller: int
    group_ids: tuple[str, ...]


class DescribedAssignment(NamedTuple):
    """Partitions by topic id and name."""

    topic_id: UUID
    topic: str
    partitions: tuple[int, ...]


class DescribedConsumer(NamedTuple):
    """`type` is 0 for a member of the classic protocol, 1 for one of the consumer protocol."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topics: tuple[str, ...]
    subscribed_regex: str | None
    assignment: tuple[DescribedAssignment, ...]
    target: tuple[DescribedAssignment, ...]
    type: int


class DescribedConsumerGroup(NamedTuple):
    error: ErrorCode
    group_id: str
    message: str | None = None
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()


class ConsumerGroupsDescribed(NamedTuple):
    groups: tuple[DescribedConsumerGroup, ...]


# -- what happened in the world ----------------------------------------------------------------


class Loaded(NamedTuple):
    """Everything in the log was replayed; requests are served from now on."""


class Appended(NamedTuple):
    """The append of `token` is in the local log, which ends at `log_end` with it."""

    token: int
    log_end: int


class AppendFailed(NamedTuple):
    """The append of `token` is not in the log, nor is any later one that was not told yet."""

    token: int
    error: ErrorCode


class Committed(NamedTuple):
    """All offsets below `high_watermark` are committed."""

    high_watermark: int


class TransactionEnded(NamedTuple):
    """A transaction marker was appended while this coordinator serves; the log ends at `log_end`
    with it. The offsets that the producer's transaction committed count from then on, or never."""

    producer_id: int
    committed: bool
    log_end: int


class Topic(NamedTuple):
    """A topic of the metadata image. `racks` has, by partition, the racks of its replicas."""

    topic_id: UUID
    partitions: int
    racks: tuple[tuple[str, ...], ...] = ()


class TopicsKnown(NamedTuple):
    """The topics of the metadata image of offset `version`, as an immutable mapping by name.

    `changed` are the names whose entry is new, gone or another since the mapping that was handed in
    before; None where that isn't known.
    """

    version: int
    topics: Mapping[str, Topic]
    changed: tuple[str, ...] | None = None


class GroupsConfigured(NamedTuple):
    """What is set for single groups, of all that have anything, by group id."""

    overrides: Mapping[str, GroupOverrides]


class TopicsDeleted(NamedTuple):
    """Topics of these names are gone, and with them what was committed for them."""

    topics: tuple[str, ...]


class Tick(NamedTuple):
    """Time has passed; see `GroupCoordinator.next_deadline_ms`."""


class Resigned(NamedTuple):
    """This broker does not lead the partition any more."""


Request = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | TxnOffsetCommit
    | OffsetFetch
    | OffsetDelete
    | ListGroups
    | DescribeGroups
    | DeleteGroups
    | ConsumerGroupHeartbeat
    | ConsumerGroupDescribe
)
WorldEvent = (
    Loaded
    | Appended
    | AppendFailed
    | Committed
    | TransactionEnded
    | TopicsKnown
    | GroupsConfigured
    | TopicsDeleted
    | Tick
    | Resigned
)
Event = Request | WorldEvent
