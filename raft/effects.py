"""What the quorum core wants done. The shell does them strictly in the order given:

an effect begins only when those before it are finished. So whatever follows a
`PersistQuorumState` is said or written only once that state is durable; the same goes for
`TruncateLog` and `RestartLog`, which are durable when finished. Appends are not: `SyncLog` asks
for an fsync that is told by `events.LogSynced` when it is through.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from raft.messages import FetchedRecords, Request, Response
from raft.voters import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from wire.errors import ErrorCode
from wire.exits import EXIT_PROTOCOL_BROKEN


class ElectionState(NamedTuple):
    """What must survive a crash. `leader_id` -1: none known."""

    epoch: int = 0
    leader_id: int = -1
    voted: ReplicaKey | None = None


class PersistQuorumState(NamedTuple):
    state: ElectionState


class SendRequest(NamedTuple):
    """Ends in exactly one `ResponseReceived` or `RequestFailed` of the same request."""

    peer_id: int
    request: Request


class SendResponse(NamedTuple):
    token: int
    response: Response


class AppendLeaderChange(NamedTuple):
    """Append the LeaderChange control batch that opens `epoch`, at `base_offset`.

    `membership`, where there is one, follows in the same batch: kraft.version, then the voters.
    """

    base_offset: int
    epoch: int
    voters: tuple[int, ...]
    granting: tuple[int, ...]
    membership: tuple[int, VoterSet] | None = None


class AppendMembership(NamedTuple):
    """Append a control batch: the level of kraft.version where it rises, then the voter set."""

    base_offset: int
    epoch: int
    kraft_version: int | None
    voters: VoterSet


class AppendBatch(NamedTuple):
    base_offset: int
    epoch: int
    payload: Any


class AppendFetched(NamedTuple):
    records: FetchedRecords


class SyncLog(NamedTuple):
    """Fsync what is appended; one fsync serves all that ask before it begins."""


class ServeParkedSoon(NamedTuple):
    """Say `events.ServeParked` once these effects are done."""


class TruncateLog(NamedTuple):
    offset: int
    truncations: int


class WriteSnapshotSlice(NamedTuple):
    """Keep a slice of a snapshot being downloaded; position 0 begins a new file."""

    snapshot: OffsetAndEpoch
    position: int
    payload: Any


class FreezeSnapshot(NamedTuple):
    """The download is complete: check it, make it durable, say `events.SnapshotFrozen`."""

    snapshot: OffsetAndEpoch


class RestartLog(NamedTuple):
    """Drop the log, go on behind this frozen snapshot, and load it."""

    snapshot: OffsetAndEpoch
    truncations: int


class HighWatermarkAdvanced(NamedTuple):
    """All below `offset` is committed."""

    offset: int


class CommittedTold(NamedTuple):
    """A leader has told for the first time how much is committed; our log may have a part of it."""


class LeaderChanged(NamedTuple):
    """The leader we know (-1: none) or the epoch has changed."""

    leader_id: int
    epoch: int


class LeadershipConfirmed(NamedTuple):
    """We led when asked, and everything committed by then is below `offset`."""

    token: int
    offset: int


class LeadershipRefused(NamedTuple):
    token: int


class VotersInForce(NamedTuple):
    """Another voter set, or level of kraft.version, is in force from here on."""

    voters: VoterSet
    kraft_version: int


class ProbeVoter(NamedTuple):
    """Ask the node at this voter's endpoint for the range of kraft.version that it supports, and
    say `events.VoterProbed`."""

    token: int
    voter: Voter


class UpgradeAnswered(NamedTuple):
    """The outcome of `events.UpgradeKraftVersion`: committed (or valid), or refused."""

    token: int
    error: ErrorCode
    message: str


class Resigned(NamedTuple):
    """Every voter knows of our resignation, or enough time has passed."""


class MessageRefused(NamedTuple):
    """Tell the operator of a request or an answer that no member would have sent."""

    sender_id: int
    reason: str


class ChangeRefused(NamedTuple):
    """Tell the operator that the leader has refused what this node asked for as a voter."""

    leader_id: int
    reason: str


class Fatal(NamedTuple):
    """The rules of the protocol are broken, or the disk lies: stop this node."""

    reason: str
    exit_code: int = EXIT_PROTOCOL_BROKEN


Effect = (
    PersistQuorumState
    | SendRequest
    | SendResponse
    | AppendLeaderChange
    | AppendMembership
    | AppendBatch
    | AppendFetched
    | SyncLog
    | ServeParkedSoon
    | TruncateLog
    | WriteSnapshotSlice
    | FreezeSnapshot
    | RestartLog
    | HighWatermarkAdvanced
    | CommittedTold
    | LeaderChanged
    | LeadershipConfirmed
    | LeadershipRefused
    | VotersInForce
    | ProbeVoter
    | UpgradeAnswered
    | Resigned
    | MessageRefused
    | ChangeRefused
    | Fatal
)
