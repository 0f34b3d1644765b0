"""What quorum members say to each other, as plain values.

The shell translates them to and from Kafka's Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch,
FetchSnapshot, AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter (KIP-595, 630, 853, 996). What is
the same in all of them (cluster id, topic, partition) is checked and filled in there, the sender's
own endpoints too. A leader id of -1 means none known; `leader_address` is where its sender says
that this leader can be reached.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from raft.voters import MembershipRecord, OffsetAndEpoch, ReplicaKey, Voter
from wire.errors import ErrorCode

Address = tuple[str, int]

NO_LEADER = -1
UNKNOWN_EPOCH = -1
UNKNOWN_OFFSET = -1
# What a fetcher sends that can't say what it knows of the high watermark (Fetch before v18).
HIGH_WATERMARK_UNSUPPORTED = 2**63 - 1


class VoteRequest(NamedTuple):
    voter: ReplicaKey | None  # the receiver, where the sender names it
    epoch: int
    candidate: ReplicaKey
    last: OffsetAndEpoch  # the candidate's end offset and last epoch
    pre_vote: bool


class VoteResponse(NamedTuple):
    error: ErrorCode
    leader_id: int
    epoch: int
    granted: bool
    leader_address: Address | None = None


class BeginEpochRequest(NamedTuple):
    voter: ReplicaKey | None
    leader_id: int
    epoch: int
    leader_address: Address | None = None


class BeginEpochResponse(NamedTuple):
    error: ErrorCode
    leader_id: int
    epoch: int
    leader_address: Address | None = None


class EndEpochRequest(NamedTuple):
    leader_id: int
    epoch: int
    successors: tuple[ReplicaKey, ...]


class EndEpochResponse(NamedTuple):
    error: ErrorCode
    leader_id: int
    epoch: int
    leader_address: Address | None = None


class FetchRequest(NamedTuple):
    replica: ReplicaKey
    epoch: int
    offset: int
    last_epoch: int
    max_wait_ms: int
    high_watermark: int


class FetchedRecords(NamedTuple):
    """Whole batches: where they begin and end, each run of one epoch, and the bytes."""

    base_offset: int
    end_offset: int
    epochs: tuple[tuple[int, int], ...]  # (epoch, first offset), rising
    payload: Any  # the shell's: never looked at by the core
    membership: tuple[MembershipRecord, ...] = ()  # the records among them that are about it


class FetchResponse(NamedTuple):
    """A leader's answer. `read_from` is for its own shell, which attaches records from there."""

    error: ErrorCode
    leader_id: int
    epoch: int
    high_watermark: int = UNKNOWN_OFFSET
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    read_from: int | None = None
    records: FetchedRecords | None = None
    leader_address: Address | None = None


class FetchSnapshotRequest(NamedTuple):
    replica: ReplicaKey
    epoch: int
    snapshot: OffsetAndEpoch
    position: int


class FetchSnapshotResponse(NamedTuple):
    """A slice. In the leader's core `size` is unknown (-1): its shell fills size and bytes in,
    or turns the answer into SNAPSHOT_NOT_FOUND or POSITION_OUT_OF_RANGE."""

    error: ErrorCode
    leader_id: int
    epoch: int
    snapshot: OffsetAndEpoch
    position: int
    size: int = -1
    length: int = 0
    payload: Any = None
    leader_address: Address | None = None


class AddVoterRequest(NamedTuple):
    """Make `voter` one of the voters. Its range of kraft.version is for the leader to find out.

    `until_committed`: answer once that is committed, not when it is appended.
    """

    voter: Voter
    timeout_ms: int
    until_committed: bool = True


class RemoveVoterRequest(NamedTuple):
    voter: ReplicaKey


class UpdateVoterRequest(NamedTuple):
    """A voter says where it listens and which range of kraft.version it supports."""

    epoch: int
    voter: Voter


class VoterChangeResponse(NamedTuple):
    """The answer to the three requests above; `message` says what an error is about."""

    error: ErrorCode
    leader_id: int
    epoch: int
    message: str | None = None
    leader_address: Address | None = None


VoterChangeRequest = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest
Request = (
    VoteRequest
    | BeginEpochRequest
    | EndEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | VoterChangeRequest
)
Response = (
    VoteResponse
    | BeginEpochResponse
    | EndEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | VoterChangeResponse
)
