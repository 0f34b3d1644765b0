"""The six roles of a quorum member, each with what it has to remember. All times in ms."""

from __future__ import annotations

from dataclasses import dataclass, field

from raft.messages import FetchRequest, FetchSnapshotRequest, VoterChangeRequest
from raft.voters import OffsetAndEpoch, ReplicaKey, Voter, VoterSet


@dataclass(slots=True)
class FetchSlot:
    """The one Fetch or FetchSnapshot that may be in flight, and when the next may go out.

    `next_at_ms` None: not before something else (a sync, a frozen snapshot) has happened.
    `leader_end`: where this leader's log ended when we asked, as one in doubt does once.
    """

    next_at_ms: int | None
    in_flight: FetchRequest | FetchSnapshotRequest | None = None
    peer_id: int = -1
    leader_end: int | None = None


@dataclass(slots=True)
class SnapshotDownload:
    """A snapshot being fetched, slice by slice, from the leader that has offered it."""

    snapshot: OffsetAndEpoch
    leader_id: int
    position: int = 0
    size: int = -1
    freezing: bool = False


@dataclass(slots=True)
class Unattached:
    """Knows no leader it could follow. Who may stand does so at `election_at_ms`."""

    election_at_ms: int | None
    slot: FetchSlot


@dataclass(slots=True)
class Ballot:
    """Votes asked for since `began_ms`. A peer is either in flight, or asked (again) at
    `ask_at_ms`.

    `unreachable` are those who could not be asked: they count against us until they answer.
    """

    votes: dict[int, bool]
    ask_at_ms: dict[int, int | None]
    began_ms: int
    unreachable: dict[int, None] = field(default_factory=dict)

    @property
    def tally(self) -> dict[int, bool]:
        """What is to be counted on now. Two that split the votes of a third which is gone must
        not wait for it until their time is up."""
        return {**dict.fromkeys(self.unreachable, False), **self.votes}


@dataclass(slots=True)
class Prospective:
    """Asks whether it would win before it raises its epoch (KIP-996). `slot`: with what it has
    asked the leader that it takes for lost, whose answer may be but late."""

    ballot: Ballot
    deadline_ms: int
    slot: FetchSlot | None = None


@dataclass(slots=True)
class Candidate:
    """Has raised the epoch and voted for itself. `lost`: only waits to try again."""

    ballot: Ballot
    deadline_ms: int
    lost: bool = False


@dataclass(slots=True)
class VoterSlot:
    """The one request in which we tell the leader of ourselves as a voter, and when the next may
    go out. `told`: this leader knows of us, as far as it can without a VotersRecord."""

    next_at_ms: int
    in_flight: VoterChangeRequest | None = None
    told: bool = False


@dataclass(slots=True)
class Follower:
    """Follows `leader_id`. `lost`: it seems to be gone, though the timeout hasn't passed yet:
    others' pre-votes are granted, and we stand at `deadline_ms` unless a fetch succeeds."""

    leader_id: int
    deadline_ms: int | None  # None: one that may not stand just follows
    slot: FetchSlot
    voter_slot: VoterSlot
    lost: bool = False
    has_fetched: bool = False


@dataclass(slots=True)
class Progress:
    """What a leader knows of a replica. `end_offset` -1: nothing yet in this epoch."""

    key: ReplicaKey
    end_offset: int = -1
    last_fetch_ms: int = -1
    caught_up_ms: int = -1
    last_fetch_leader_end: int = -1  # our end at that fetch, to tell when it had caught up
    told_high_watermark: int = -1  # the last one we sent it


@dataclass(slots=True)
class ParkedFetch:
    """A fetch with nothing to answer yet."""

    token: int
    request: FetchRequest
    deadline_ms: int


@dataclass(slots=True)
class RollCall:
    """Who follows from now on, not just of late. `asked`: voters to whom an announcement went out
    since it began; `confirmed`: those of them that answered it as followers of this epoch."""

    asked: dict[int, None] = field(default_factory=dict)
    confirmed: dict[int, None] = field(default_factory=dict)


@dataclass(slots=True)
class PendingRead:
    """A linearizable read."""

    token: int
    offset: int | None  # None: until a record of this epoch is committed
    roll_call: RollCall = field(default_factory=RollCall)


@dataclass(slots=True)
class Announcement:
    """BeginQuorumEpoch or EndQuorumEpoch to one voter. `at_ms` None: one is in flight, or done.
    At most one is in flight, so that an answer is to the last one sent."""

    at_ms: int | None
    failed: bool = False
    done: bool = False


@dataclass(slots=True)
class PendingChange:
    """The one change of membership that somebody waits for.

    A voter to be added is probed, then has to catch up after `probed_ms`; before one is removed, a
    majority of the others has to answer. Then, as with every other change, the record at `offset`
    has to be committed. `deadline_ms` is of the step that it is at: as long as nothing is written,
    others' changes wait for no longer than `QuorumConfig.voter_change_ms`, whatever its caller
    says; then it is answered by `answer_by_ms` at the latest.
    """

    token: int
    deadline_ms: int | None
    answer_by_ms: int | None = None
    adding: Voter | None = None
    removing: ReplicaKey | None = None
    roll_call: RollCall | None = None
    probed_ms: int | None = None
    until_committed: bool = True
    upgrade: bool = False
    offset: int | None = None


@dataclass(slots=True)
class Leader:
    """Leads. The high watermark counts only once it has passed `epoch_start`. `observers` are in
    the order of their last fetch."""

    epoch_start: int
    voters: dict[int, Progress]
    observers: dict[ReplicaKey, Progress]
    announcements: dict[int, Announcement]
    check_quorum_at_ms: int | None  # None: alone, there is nobody to lose
    fetched_since_check: dict[int, None] = field(default_factory=dict)
    committed_in_epoch: bool = False
    parked: dict[int, ParkedFetch] = field(default_factory=dict)
    reads: list[PendingRead] = field(default_factory=list)
    change: PendingChange | None = None
    # Under kraft.version 0: what the voters have said of themselves, for an upgrade to 1.
    told_voters: VoterSet | None = None

    def roll_calls(self) -> list[RollCall]:
        """Those under way."""
        calls = [read.roll_call for read in self.reads]
        if self.change is not None and self.change.roll_call is not None:
            calls.append(self.change.roll_call)
        return calls


@dataclass(slots=True)
class ResignedLeader:
    """Led this epoch and doesn't any more; must not vote in it."""

    deadline_ms: int
    successors: tuple[ReplicaKey, ...]
    announcements: dict[int, Announcement]


Role = Unattached | Prospective | Candidate | Leader | Follower | ResignedLeader
