"""A core without a world: events in, effects out."""

import random
from uuid import UUID

from raft import effects as fx
from raft.core import QuorumCore
from raft.effects import ElectionState
from raft.events import (
    LeaderAppend,
    LogSynced,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    Started,
    Tick,
)
from raft.log_view import LogView
from raft.messages import (
    BeginEpochRequest,
    BeginEpochResponse,
    FetchedRecords,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from raft.state import QuorumConfig
from raft.voter_history import VoterHistory
from raft.voters import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from wire.errors import ErrorCode

NONE = ErrorCode.none


def key(node_id):
    return ReplicaKey(node_id, UUID(int=100 + node_id))


def log(*runs, **rest):
    """A log of runs (epoch, count of records)."""
    end, epochs = rest.pop("start", 0), []
    start = end
    for epoch, count in runs:
        epochs.append((epoch, end))
        end += count
    return LogView(start=start, end=end, epochs=epochs, **rest)


def records(base, *runs):
    """What a leader sends: runs (epoch, count of records) from offset `base` on."""
    end, epochs = base, []
    for epoch, count in runs:
        epochs.append((epoch, end))
        end += count
    return FetchedRecords(base, end, tuple(epochs), None)


def snapshot_slice(core, length, *, error=NONE, **changes):
    """The leader answers the FetchSnapshot in flight, of a file of 100 bytes."""
    slot = core.q.role.slot
    request = slot.in_flight
    assert isinstance(request, FetchSnapshotRequest), request
    response = FetchSnapshotResponse(
        error, core.q.leader_id, core.q.epoch, request.snapshot, request.position,
        100, length, b"x" * length,
    )  # fmt: skip
    return core.tell(ResponseReceived(slot.peer_id, request, response._replace(**changes)))


class Core:
    """Node 1 of voters 1..n, started at time 0."""

    def __init__(self, voters=3, *, node_id=1, log=None, stored=None, seed=0, config=None,
                 own=None, found=(), **rest):  # fmt: skip
        self.core = QuorumCore(
            own=own or Voter(key(node_id)),
            history=VoterHistory(
                VoterSet(Voter(ReplicaKey(i)) for i in range(1, voters + 1)), found
            ),
            config=config or QuorumConfig(news_wait_max_ms=0),
            chance=random.Random(seed),
            log=log or LogView(),
            stored=stored or ElectionState(),
            **rest,
        )
        self.now_ms = 0
        self.tokens = 0
        self.effects = []
        self.tell(Started())

    @property
    def q(self):
        return self.core.state

    @property
    def role(self):
        return type(self.q.role).__name__

    def tell(self, event, at_ms=None):
        if at_ms is not None:
            self.now_ms = at_ms
        self.effects = self.core.handle(event, self.now_ms)
        self.core.check_invariants()
        return self.effects

    def pass_ms(self, ms):
        """Let time pass, with every tick that is wanted meanwhile; all effects."""
        until, seen = self.now_ms + ms, []
        while (deadline := self.core.deadline_ms) is not None and deadline <= until:
            self.now_ms = max(deadline, self.now_ms)
            seen += self.tell(Tick())
        self.now_ms = until
        self.effects = seen
        return seen

    def ask(self, request):
        """Bring a request in; the answer to it, if it came at once."""
        self.tokens += 1
        self.tell(RequestReceived(self.tokens, request))
        return next((e.response for e in self.of(fx.SendResponse) if e.token == self.tokens), None)

    def of(self, kind):
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def sent(self, kind):
        return [(e.peer_id, e.request) for e in self.of(fx.SendRequest)
                if isinstance(e.request, kind)]  # fmt: skip

    def sync(self):
        return self.tell(LogSynced(self.q.log.end, self.q.log.truncations))

    # Stories

    def win(self):
        """Be elected by a majority, voter 2 and those after it."""
        if self.role == "Unattached":
            self.pass_ms(60)
        for role in ("Prospective", "Candidate"):
            assert self.role == role, self.role
            for voter_id in range(2, self.q.voters.majority + 1):
                self.answer_votes(voter_id, pre_vote=role == "Prospective")
        return self.effects

    def answer_votes(self, voter_id, *, pre_vote=False, granted=True, leader_id=-1, epoch=None):
        request = VoteRequest(
            self.q.voters.key_of(voter_id), self.q.epoch, self.q.key, self.q.log.last, pre_vote
        )
        response = VoteResponse(NONE, leader_id, self.q.epoch if epoch is None else epoch, granted)
        return self.tell(ResponseReceived(voter_id, request, response))

    def hear_announced(self, voter_id, *, error=NONE, failed=False):
        """A voter answers our BeginQuorumEpoch, or can't be reached."""
        request = BeginEpochRequest(ReplicaKey(voter_id), self.q.node_id, self.q.epoch)
        if failed:
            return self.tell(RequestFailed(voter_id, request))
        response = BeginEpochResponse(error, self.q.node_id, self.q.epoch)
        return self.tell(ResponseReceived(voter_id, request, response))

    def fetch_from(self, node_id, offset, last_epoch, *, epoch=None, max_wait_ms=500,
                   high_watermark=2**63 - 1):  # fmt: skip
        return self.ask(
            FetchRequest(
                key(node_id),
                self.q.epoch if epoch is None else epoch,
                offset,
                last_epoch,
                max_wait_ms,
                high_watermark,
            )
        )

    def follow(self, leader_id=2, epoch=5):
        """Follow a leader, with one successful fetch."""
        self.ask(BeginEpochRequest(None, leader_id, epoch))
        assert self.role == "Follower"
        self.fetched()

    def fetched(self, **fields):
        """The leader answers the fetch in flight."""
        slot = self.q.role.slot
        assert isinstance(slot.in_flight, FetchRequest), slot
        told = {"error": NONE, "leader_id": self.q.leader_id, "epoch": self.q.epoch}
        response = FetchResponse(**{**told, **fields})
        return self.tell(ResponseReceived(slot.peer_id, slot.in_flight, response))

    def append(self, count=1):
        return self.tell(LeaderAppend(self.q.epoch, count, None))


def vote(candidate=2, epoch=1, last=(0, 0), *, pre_vote=False, voter=None):
    return VoteRequest(voter, epoch, key(candidate), OffsetAndEpoch(*last), pre_vote)
