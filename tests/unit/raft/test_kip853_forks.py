"""KIP-853: a disk that was formatted to begin a quorum where there is one already."""

from uuid import UUID

import pytest
from core_rig import Core, key, log, vote
from kip853_rig import at, commit, leading, voter

from raft import effects as fx
from raft.effects import ElectionState
from raft.messages import BeginEpochRequest
from raft.voters import ReplicaKey
from wire.errors import ErrorCode

FORMER = ReplicaKey(1, UUID(int=77))
"""Node 1 as the others know it: with the disk that it had before."""


def by_configuration():
    """Node 1 leads epoch 1 as the only voter of its configuration."""
    core = Core(1)
    core.pass_ms(1)
    core.sync()
    assert (core.role, core.q.high_watermark) == ("Leader", 1)
    return core


def stopped(core, request):
    """Why the request ends this node, which then doesn't answer; None if it doesn't end it."""
    answer = core.ask(request)
    reasons = [effect.reason for effect in core.of(fx.Fatal)]
    assert bool(reasons) != bool(answer)
    return reasons[0] if reasons else None


@pytest.mark.parametrize("epoch", [0, 1, 2])
@pytest.mark.parametrize(
    "spoken",
    [
        lambda epoch: BeginEpochRequest(FORMER, 3, epoch, ("host", 3)),
        lambda epoch: vote(3, epoch, voter=FORMER),
    ],
)
def test_who_leads_by_configuration_ends_when_it_is_known_by_another_disk(spoken, epoch):
    """Before it can name itself as leader to them: one epoch ahead, and they would follow."""
    reason = stopped(by_configuration(), spoken(epoch))
    assert (
        "but node 3 of this cluster knows voter 1 by directory id AAAAAAAAAAAAAAAAAAAATQ" in reason
    )


@pytest.mark.parametrize("named", [None, ReplicaKey(1), key(1), ReplicaKey(2, UUID(int=77))])
def test_it_leads_on_when_nobody_says_so(named):
    """Static voters know no directory ids; and a request may have come to the wrong node."""
    for epoch in (0, 2):
        core = by_configuration()
        assert stopped(core, BeginEpochRequest(named, 3, epoch, ("host", 3))) is None
        assert stopped(core, vote(3, epoch, voter=named)) is None


def test_who_began_a_quorum_of_its_own_ends_when_a_later_leader_knows_another_disk():
    """`storage format --standalone` on a new disk: two logs with voters."""
    core = leading((1,))
    assert "voter 1" in stopped(core, BeginEpochRequest(FORMER, 3, 2, ("host", 3)))


def test_who_may_not_know_yet_that_the_disk_was_replaced_ends_nobody():
    """A candidate or an earlier leader with a shorter log: the leader's own is right."""
    for request in (
        BeginEpochRequest(FORMER, 2, 0),
        vote(2, 1, voter=FORMER),
        vote(2, 2, voter=FORMER),
    ):
        core = leading()
        commit(core, 2, 3)
        assert stopped(core, request) is None


def test_an_empty_disk_that_leads_nobody_follows():
    """With several configured voters it can't elect itself: it gets the log, voters and all."""
    core = Core(3)
    answer = core.ask(BeginEpochRequest(FORMER, 2, 5))
    assert answer.error == ErrorCode.invalid_voter_key
    assert (core.role, core.q.leader_id) == ("Follower", 2)


def test_a_voter_with_a_set_in_its_log_follows_too():
    """Its disk was replaced, its log is the quorum's: it will read there what it is."""
    found = [at(2, 1, 2, 3)._replace(kraft_version=1)]
    core = Core(0, own=voter(1), found=found, log=log((1, 3)), stored=ElectionState(1))
    assert core.ask(BeginEpochRequest(FORMER, 2, 5)).error == ErrorCode.invalid_voter_key
    assert core.role == "Follower"
