"""Whatever a stranger asks, in whatever order: nobody ends by it, and no log gets shorter. Nor
does anybody end by the answers of a leader that a stranger has named."""

from dataclasses import dataclass
from uuid import UUID

import pytest
from core_rig import Core, key, log, records
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kip853_rig import dynamic, following, leading

from raft import effects as fx
from raft.effects import ElectionState
from raft.events import LogSynced, RequestFailed, Resign, ResponseReceived, SnapshotFrozen, Tick
from raft.messages import (
    AddVoterRequest,
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoteRequest,
)
from raft.quorum import MAX_EPOCH
from raft.voters import OffsetAndEpoch, ReplicaKey, Voter
from wire.errors import ErrorCode

INT32 = st.one_of(st.integers(-2, 6), st.integers(-(2**31), MAX_EPOCH))
INT64 = st.one_of(st.integers(-2, 9), st.integers(-(2**63), 2**63 - 1))
IDS = st.one_of(st.integers(-1, 4), st.integers(-(2**31), 2**31 - 1))
DIRECTORIES = st.sampled_from([None, *(key(i).directory_id for i in range(5)), UUID(int=77)])
KEYS = st.builds(ReplicaKey, IDS, DIRECTORIES)
ENDS = st.builds(OffsetAndEpoch, INT64, INT32)
ADDRESSES = st.sampled_from([("host", 9002), ("stranger", 1)])
LEVELS = st.integers(-(2**15), 2**15 - 1)
VOTERS = st.builds(
    Voter,
    KEYS,
    st.dictionaries(st.sampled_from(["CONTROLLER", "OTHER"]), ADDRESSES),
    LEVELS,
    LEVELS,
)
REQUESTS = st.one_of(
    st.builds(VoteRequest, st.none() | KEYS, INT32, KEYS, ENDS, st.booleans()),
    st.builds(BeginEpochRequest, st.none() | KEYS, IDS, INT32, st.none() | ADDRESSES),
    st.builds(EndEpochRequest, IDS, INT32, st.lists(KEYS, max_size=3).map(tuple)),
    st.builds(FetchRequest, KEYS, INT32, INT64, INT32, INT32, INT64),
    st.builds(FetchSnapshotRequest, KEYS, INT32, ENDS, INT64),
    st.builds(AddVoterRequest, VOTERS, INT32, st.booleans()),
    st.builds(RemoveVoterRequest, KEYS),
    st.builds(UpdateVoterRequest, INT32, VOTERS),
)


@dataclass(frozen=True)
class Passed:
    """Time passes, and whatever the node has asked others gets no answer."""

    ms: int


STEPS = st.lists(st.one_of(REQUESTS, st.builds(Passed, st.integers(1, 3000))), max_size=12)


def stored_log():
    return Core(log=log((1, 3)), stored=ElectionState(2))


def prospective():
    core = stored_log()
    core.pass_ms(60)
    return core


def candidate():
    core = prospective()
    core.answer_votes(2, pre_vote=True)
    return core


def leader():
    core = candidate()
    core.answer_votes(2)
    core.sync()
    return core


def lone_leader():
    core = Core(1)
    core.pass_ms(1)
    core.sync()
    return core


def resigned():
    core = leader()
    core.tell(Resign())
    return core


def follower():
    core = stored_log()
    core.follow(2, 3)
    return core


def observer():
    return Core(node_id=9, can_vote=False, bootstrap=(-2,))


def standalone():
    return leading((1,))


ROLES = [
    stored_log, prospective, candidate, leader, lone_leader, resigned, follower, observer,
    dynamic, following, leading, standalone,
]  # fmt: skip


class Victim:
    """A node that only strangers talk to."""

    def __init__(self, core):
        self.core = core
        self.unanswered = []
        self.end = core.q.log.end

    def check(self):
        core = self.core
        assert not core.of(fx.Fatal), core.effects
        assert not core.of(fx.TruncateLog) + core.of(fx.RestartLog)
        assert core.q.log.end >= self.end
        self.end = core.q.log.end
        self.unanswered += [(e.peer_id, e.request) for e in core.of(fx.SendRequest)]

    def suffer(self, step):
        core = self.core
        if isinstance(step, Passed):
            self.pass_ms(step.ms)
        else:
            core.ask(step)
            self.check()
        if core.q.log.synced_end < core.q.log.end:
            core.sync()
            self.check()

    def pass_ms(self, ms):
        core = self.core
        until = core.now_ms + ms
        while self.unanswered:
            core.tell(RequestFailed(*self.unanswered.pop(0)), core.now_ms + 1)
            self.check()
        while (deadline := core.core.deadline_ms) is not None and deadline <= until:
            core.tell(Tick(), max(deadline, core.now_ms))
            self.check()
        core.now_ms = max(core.now_ms, until)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.__name__)
@examples(150)
@given(steps=STEPS)
def test_no_stranger_ends_a_node(role, steps):
    victim = Victim(role())
    epoch = victim.core.q.epoch
    for step in steps:
        victim.suffer(step)
        assert victim.core.q.epoch >= epoch
        epoch = victim.core.q.epoch


STRANGER = 9
EPOCHS = st.one_of(st.integers(0, 9), st.integers(0, MAX_EPOCH), st.just(MAX_EPOCH))
ERRORS = st.sampled_from(
    [
        ErrorCode.none,
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.snapshot_not_found,
        ErrorCode.invalid_request,
    ]
)


@st.composite
def told(draw):
    """What an answer says of leader and epoch: often what keeps the victim with it."""
    if draw(st.booleans()):
        return None
    return draw(IDS), draw(EPOCHS), draw(st.none() | ADDRESSES)


ANSWERS = st.fixed_dictionaries(
    {
        "error": ERRORS,
        "told": told(),
        "high_watermark": INT64,
        "diverging": st.none() | ENDS,
        "snapshot": st.none() | ENDS,
        "records": st.lists(st.tuples(EPOCHS, st.integers(1, 3)), max_size=2),
        "size": st.integers(-1, 4),
    }
)


class Deceived:
    """A follower of a stranger, which answers whatever it is asked."""

    def __init__(self):
        self.core = core = Core(log=log((1, 3)), stored=ElectionState(2))
        core.follow(2, 3)
        core.fetched(high_watermark=2)
        core.ask(BeginEpochRequest(None, STRANGER, 4, ("stranger", 1)))
        assert core.q.leader_id == STRANGER

    def hear(self, answer):
        core = self.core
        slot = getattr(core.q.role, "slot", None)
        if slot is None or slot.in_flight is None or slot.peer_id != STRANGER:
            return
        request = slot.in_flight
        leader_id, epoch, address = answer["told"] or (STRANGER, core.q.epoch, None)
        if isinstance(request, FetchRequest):
            runs = sorted(answer["records"])
            response = FetchResponse(
                answer["error"],
                leader_id,
                epoch,
                answer["high_watermark"],
                answer["diverging"],
                answer["snapshot"],
                None,
                records(core.q.log.end, *runs) if runs else None,
                address,
            )
        else:
            size = answer["size"]
            response = FetchSnapshotResponse(
                answer["error"], leader_id, epoch, request.snapshot, request.position, size, size
            )
        self.tell(ResponseReceived(STRANGER, request, response))

    def tell(self, event):
        core = self.core
        mark = core.q.high_watermark
        core.tell(event, core.now_ms + 25)
        assert not core.of(fx.Fatal), core.effects
        assert core.q.log.end >= core.q.high_watermark >= mark
        frozen = core.of(fx.FreezeSnapshot)
        if core.q.log.synced_end < core.q.log.end:
            self.tell(LogSynced(core.q.log.end, core.q.log.truncations))
        if frozen:
            self.tell(SnapshotFrozen(frozen[0].snapshot, False))


@examples(400)
@given(answers=st.lists(ANSWERS, max_size=12))
def test_no_leader_that_a_stranger_has_named_ends_a_node(answers):
    deceived = Deceived()
    for answer in answers:
        deceived.hear(answer)
        deceived.tell(Tick())
    deceived.core.pass_ms(5000)
    assert not deceived.core.of(fx.Fatal)
