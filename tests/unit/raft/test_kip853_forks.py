"""KIP-853: a disk that was formatted to begin a quorum where there is one already.

Its node can't know whether it is told so by a member or by a stranger: it goes on, and hides.
"""

from uuid import UUID

import pytest
from core_rig import NONE, Core, key, log, vote
from kip853_rig import at, commit, leading, voter

from raft import effects as fx
from raft.effects import ElectionState
from raft.messages import (
    BeginEpochRequest,
    EndEpochRequest,
    FetchSnapshotRequest,
    RemoveVoterRequest,
)
from raft.voters import OffsetAndEpoch, ReplicaKey
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


def doubted(core, request):
    """What the operator is told of the request, after which this node hides; None if nothing.
    In any case the role is what it was."""
    before = core.role, core.q.epoch
    answer = core.ask(request)
    assert not core.of(fx.Fatal)
    refused = core.of(fx.MessageRefused)
    if not refused:
        return None
    assert (answer.error, answer.leader_id, answer.epoch) == (ErrorCode.invalid_voter_key, -1, -1)
    assert (core.role, core.q.epoch) == before
    return refused[0].reason


@pytest.mark.parametrize("epoch", [0, 1, 2])
@pytest.mark.parametrize(
    "spoken",
    [
        lambda epoch: BeginEpochRequest(FORMER, 3, epoch, ("host", 3)),
        lambda epoch: vote(3, epoch, voter=FORMER),
    ],
)
def test_who_leads_by_configuration_hides_when_it_is_known_by_another_disk(spoken, epoch):
    """Before it can name itself as leader to them: one epoch ahead, and they would follow."""
    reason = doubted(by_configuration(), spoken(epoch))
    assert "node 3 knows voter 1 by directory id AAAAAAAAAAAAAAAAAAAATQ" in reason


@pytest.mark.parametrize(
    "request_of_member",
    [
        lambda core: EndEpochRequest(3, 0, ()),
        lambda core: vote(3, 0),
        lambda core: FetchSnapshotRequest(key(2), 0, OffsetAndEpoch(5, 0), 0),
        lambda core: RemoveVoterRequest(key(1)),
    ],
)
def test_who_hides_names_neither_leader_nor_epoch_whatever_it_is_asked(request_of_member):
    core = by_configuration()
    doubted(core, vote(3, 0, voter=FORMER))
    answer = core.ask(request_of_member(core))
    assert answer.error != NONE
    assert (answer.leader_id, answer.epoch) == (-1, -1)


def test_who_hides_moves_nobody_that_fetches_but_serves_its_followers():
    core = by_configuration()
    doubted(core, vote(3, 0, voter=FORMER))
    for epoch in (0, 5):
        answer = core.fetch_from(2, 0, 0, epoch=epoch)
        assert answer.error != NONE
        assert (answer.leader_id, answer.epoch) == (-1, -1)
    answer = core.fetch_from(2, 0, 0)
    assert (answer.error, answer.leader_id, answer.read_from) == (NONE, -1, 0)
    diverging = core.fetch_from(2, 1, 0)
    assert (diverging.leader_id, diverging.diverging) == (-1, OffsetAndEpoch(0, 0))


def test_it_tells_that_it_leads_once_nobody_has_said_so_for_a_while():
    core = by_configuration()
    doubted(core, vote(3, 0, voter=FORMER))
    core.pass_ms(core.q.config.doubt_ms - 1)
    assert core.fetch_from(2, 0, 0, epoch=0).epoch == -1
    doubted(core, vote(3, 0, voter=FORMER))
    core.pass_ms(core.q.config.doubt_ms - 1)
    assert core.fetch_from(2, 0, 0, epoch=0).epoch == -1
    core.pass_ms(1)
    answer = core.fetch_from(2, 0, 0, epoch=0)
    assert (answer.leader_id, answer.epoch) == (1, 1)


@pytest.mark.parametrize("named", [None, ReplicaKey(1), key(1), ReplicaKey(2, UUID(int=77))])
def test_it_hides_from_nobody_when_nobody_says_so(named):
    """Static voters know no directory ids; and a request may have come to the wrong node."""
    for epoch in (0, 2):
        core = by_configuration()
        assert doubted(core, BeginEpochRequest(named, 3, epoch, ("host", 3))) is None
        assert doubted(core, vote(3, epoch, voter=named)) is None


def test_who_began_a_quorum_of_its_own_hides_when_a_later_leader_knows_another_disk():
    """`storage format --standalone` on a new disk: two logs with voters."""
    core = leading((1,))
    assert "voter 1" in doubted(core, BeginEpochRequest(FORMER, 3, 2, ("host", 3)))


def test_who_may_not_know_yet_that_the_disk_was_replaced_is_not_believed():
    """A candidate or an earlier leader with a shorter log: the leader's own is right."""
    for request in (
        BeginEpochRequest(FORMER, 2, 0),
        vote(2, 1, voter=FORMER),
        vote(2, 2, voter=FORMER),
    ):
        core = leading()
        commit(core, 2, 3)
        assert doubted(core, request) is None


def test_a_leader_of_several_goes_on_while_it_hides():
    """Whoever said so: its voters follow it, and commit."""
    core = Core(3)
    core.win()
    core.sync()
    assert "voter 1" in doubted(core, BeginEpochRequest(FORMER, 9, 7, ("host", 9)))
    core.fetch_from(2, 1, 1)
    assert (core.role, core.q.high_watermark) == ("Leader", 1)


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
