"""KIP-853: controllers that are no voters, but may have the only latest log."""

import pytest
from core_rig import Core, key, log, vote
from kip853_rig import (
    at,
    commit,
    dynamic,
    voter,
)

from raft import effects as fx
from raft.effects import ElectionState
from raft.events import RequestFailed
from raft.messages import BeginEpochRequest, EndEpochRequest


def removed_and_crashed(high_watermark, *, left=(2, 3), **rest):
    """Node 1 starts again with a log whose last record, at 3, leaves it out: 2 and 3 remain."""
    found = [at(2, 1, 2, 3)._replace(kraft_version=1), at(3, *left)]
    stored = ElectionState(1, 3, None)
    core = Core(0, own=voter(1), found=found, log=log((1, 4)), stored=stored, **rest)
    core.fetched(high_watermark=high_watermark)
    return core


def stand_late(core):
    """Let the time pass after which a controller stands that is no voter."""
    core.pass_ms(core.q.config.outsider_wait_ms - 1)
    assert core.role in ("Follower", "Unattached")
    until_ms = core.now_ms + core.q.config.election_timeout_ms * 2
    while core.role in ("Follower", "Unattached"):
        assert core.now_ms < until_ms
        core.pass_ms(10)
    assert core.role == "Prospective"


@pytest.mark.parametrize("high_watermark", [3, 4])
def test_an_outsider_that_may_be_needed_as_leader_stands_late(high_watermark):
    """Removing voters (and Ongaro's dissertation, 4.2.2): nobody else may have the latest log, and
    without it nobody can be elected. Its removal may be committed, and what came after be what only
    outsiders have. It stands, but has no vote of its own, and leads for no longer than it must."""
    core = removed_and_crashed(high_watermark)
    stand_late(core)
    assert core.q.role.ballot.votes == {}
    core.answer_votes(2, pre_vote=True)
    assert core.role == "Prospective", "one of two is no majority"
    core.answer_votes(3, pre_vote=True)
    core.answer_votes(2)
    core.answer_votes(3)
    assert core.role == "Leader"
    assert core.of(fx.AppendLeaderChange)[0].membership is None
    core.sync()
    core.fetch_from(2, 4, 1)
    core.fetch_from(3, 4, 1)
    assert core.role == "Leader", "neither voter has what it has"
    commit(core, 2, 3)
    assert core.role == "ResignedLeader", "now they have"
    (end,) = {request.successors[0].node_id for _, request in core.sent(EndEpochRequest)}
    assert end in (2, 3)


def test_an_outsider_that_was_not_elected_waits_as_long_again():
    """Removing voters: the voters' own elections are not to be disturbed."""
    core = removed_and_crashed(high_watermark=4)
    for _ in range(3):
        stand_late(core)
        core.answer_votes(2, pre_vote=True)
        core.answer_votes(3, pre_vote=True, granted=False)
        assert core.role == "Follower"
    core.ask(vote(2, 2, (9, 1)))
    assert core.q.voted == key(2)
    stand_late(core)


def test_an_outsider_that_hears_its_leader_does_not_stand():
    """Removing voters: an observer like any other."""
    core = removed_and_crashed(high_watermark=4)
    for _ in range(100):
        core.pass_ms(500)
        core.fetched(high_watermark=4)
        assert core.role == "Follower"


def test_an_outsider_looks_for_a_leader_while_it_waits():
    """Bootstrap servers: the voters of its log may all have been replaced."""
    core = removed_and_crashed(high_watermark=4, bootstrap=(-2, -3))
    asked = set()
    until_ms = core.now_ms + core.q.config.outsider_wait_ms - 1
    while core.now_ms < until_ms:
        slot = core.q.role.slot
        if slot.in_flight is not None:
            asked.add(slot.peer_id)
            core.tell(RequestFailed(slot.peer_id, slot.in_flight))
        core.pass_ms(1)
    assert core.role == "Follower"
    assert asked == {2, 3, -2, -3}


def test_a_former_disk_of_a_voter_is_an_outsider_that_does_not_count():
    """Removing voters: a voter is its disk, so what this one holds is no vote and no copy."""
    core = removed_and_crashed(high_watermark=3, left=(voter(1, disk=1), 2, 3))
    stand_late(core)
    core.answer_votes(2, pre_vote=True)
    assert core.role == "Prospective"
    core.answer_votes(3, pre_vote=True)
    core.answer_votes(2)
    core.answer_votes(3)
    commit(core, 2)
    assert core.role == "Leader", "one of three, whatever this node holds"
    assert not core.q.role.committed_in_epoch
    commit(core, 3)
    assert core.role == "ResignedLeader"


def test_an_outsider_that_leads_is_not_taken_for_a_fork_of_the_quorum():
    """Removing voters: that the voter of its id is another disk says nothing new to it."""
    core = removed_and_crashed(high_watermark=3, left=(voter(1, disk=1), 2, 3))
    stand_late(core)
    for pre_vote in (True, False):
        core.answer_votes(2, pre_vote=pre_vote)
        core.answer_votes(3, pre_vote=pre_vote)
    assert core.role == "Leader"
    core.ask(
        BeginEpochRequest(voter(1, disk=1).key, 2, core.q.epoch + 1, leader_address=("host", 9002))
    )
    assert not core.of(fx.MessageRefused)
    assert (core.role, core.q.leader_id) == ("Follower", 2)


@pytest.mark.parametrize(
    "core",
    [
        dynamic((2, 3)),
        Core(0, own=voter(1), found=[at(2, 2, 3)], log=log((1, 3)), can_vote=False),
        Core(0, own=voter(1), found=[at(2, 2, 3)], log=log((1, 3)), needs_end=9),
    ],
    ids=["with nothing but its format", "a broker", "damaged"],
)
def test_no_outsider_stands_whose_log_can_not_be_needed(core):
    """Removing voters: its log isn't one that somebody was promised to."""
    core.pass_ms(600_000)
    assert core.role == "Unattached"
    assert core.q.epoch in (0, 1)
    assert core.q.role.election_at_ms is None
