"""Whatever a stranger asks, in whatever order: nobody ends by it, and no log gets shorter."""

from dataclasses import dataclass
from uuid import UUID

import pytest
from core_rig import Core, key, log
from hypothesis import given, settings
from hypothesis import strategies as st
from kip853_rig import dynamic, following, leading

from raft import effects as fx
from raft.effects import ElectionState
from raft.events import RequestFailed, Resign, Tick
from raft.messages import (
    AddVoterRequest,
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoteRequest,
)
from raft.quorum import MAX_EPOCH
from raft.voters import OffsetAndEpoch, ReplicaKey, Voter

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
@settings(max_examples=150)
@given(steps=STEPS)
def test_no_stranger_ends_a_node(role, steps):
    victim = Victim(role())
    epoch = victim.core.q.epoch
    for step in steps:
        victim.suffer(step)
        assert victim.core.q.epoch >= epoch
        epoch = victim.core.q.epoch
