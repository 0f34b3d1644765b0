"""What can happen to a quorum member. `QuorumCore.handle` takes one of these at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

from raft.messages import Request, Response
from raft.voters import MembershipRecord, OffsetAndEpoch


class Started(NamedTuple):
    """The first event."""


class Tick(NamedTuple):
    """`QuorumCore.deadline_ms` has come (harmless when early or late)."""


class RequestReceived(NamedTuple):
    """A peer asks. `token` names the request in the answer."""

    token: int
    request: Request


class RequestAbandoned(NamedTuple):
    """The connection of a request not yet answered is gone."""

    token: int


class ResponseReceived(NamedTuple):
    """`peer_id` answered `request`."""

    peer_id: int
    request: Request
    response: Response


class RequestFailed(NamedTuple):
    """`request` got no answer: connection failed or lost, timeout, or no common version."""

    peer_id: int
    request: Request
    unsupported_version: bool = False


class Disconnected(NamedTuple):
    """The connection to `peer_id` dropped (not: could not be made)."""

    peer_id: int


class LeaderAppend(NamedTuple):
    """Append `record_count` records as one batch, if still leader of `epoch`."""

    epoch: int
    record_count: int
    payload: Any


class ServeParked(NamedTuple):
    """Answer the fetches that wait for records. Sent once after a burst of appends."""


class LogSynced(NamedTuple):
    """An fsync that covers all below `end_offset` has finished; `truncations` when it began."""

    end_offset: int
    truncations: int


class SnapshotWritten(NamedTuple):
    """A snapshot of our own state is on disk, durable and complete."""

    snapshot: OffsetAndEpoch


class SnapshotFrozen(NamedTuple):
    """A downloaded snapshot was checked and made durable; or, if not `complete`, thrown away.
    `membership`: what it says of voters and kraft.version, at its last offset."""

    snapshot: OffsetAndEpoch
    complete: bool
    membership: MembershipRecord | None = None


class LogStartAdvanced(NamedTuple):
    """The log was trimmed to where `earliest`, the oldest snapshot kept, ends."""

    earliest: OffsetAndEpoch


class VoterProbed(NamedTuple):
    """The answer to `effects.ProbeVoter`: the range of kraft.version that the node supports, None
    if it didn't answer; and whether it serves what is asked of a voter, as no broker does."""

    token: int
    kraft_versions: tuple[int, int] | None
    serves_quorum: bool = True


class UpgradeKraftVersion(NamedTuple):
    """Raise kraft.version to `level`; with `validate_only`, say whether that could be done."""

    token: int
    level: int
    validate_only: bool


class ConfirmLeadership(NamedTuple):
    """A linearizable read asks whether we still lead."""

    token: int


class Resign(NamedTuple):
    """Give up leadership, telling the others who should follow; with `leaving`, for good:
    this node stands in no election any more."""

    leaving: bool = False


Event = (
    Started
    | Tick
    | RequestReceived
    | RequestAbandoned
    | ResponseReceived
    | RequestFailed
    | Disconnected
    | LeaderAppend
    | ServeParked
    | LogSynced
    | SnapshotWritten
    | SnapshotFrozen
    | LogStartAdvanced
    | VoterProbed
    | UpgradeKraftVersion
    | ConfirmLeadership
    | Resign
)
