"""Epochs are int32 in Kafka's formats: nothing beyond is written or sent, and one request can't use
up those that the quorum needs."""

import pytest
from core_rig import NONE, Core, key, log, vote

from raft import effects as fx
from raft.effects import ElectionState
from raft.events import Resign, ResponseReceived, Tick
from raft.messages import BeginEpochRequest, EndEpochRequest, VoteRequest, VoteResponse
from raft.quorum import MAX_EPOCH, is_leap
from raft.voters import ReplicaKey
from wire.errors import ErrorCode
from wire.exits import EXIT_NO_EPOCH_LEFT

HIGH = 2**30


def exit_code(core, within_ms=5000):
    """What the node ends with as time passes; None if it goes on."""
    until = core.now_ms + within_ms
    while not core.of(fx.Fatal):
        deadline = core.core.deadline_ms
        if deadline is None or deadline > until:
            return None
        core.tell(Tick(), max(deadline, core.now_ms))
        assert not core.sent(VoteRequest)
    return core.of(fx.Fatal)[0].exit_code


def in_epoch(epoch, **rest):
    return Core(stored=ElectionState(epoch), **rest)


@pytest.mark.parametrize(
    ("own", "epoch", "leap"),
    [
        (0, HIGH, False),
        (0, HIGH + 1, True),
        (0, MAX_EPOCH, True),
        (HIGH, HIGH + 1, False),
        (HIGH - 1, HIGH + 1, True),
        (MAX_EPOCH - 1, MAX_EPOCH, False),
    ],
)
def test_a_leap_is_far_and_high(own, epoch, leap):
    assert is_leap(own, epoch) == leap


@pytest.mark.parametrize(
    "request_of",
    [
        lambda epoch: vote(9, epoch),
        lambda epoch: vote(9, epoch, pre_vote=True),
        lambda epoch: BeginEpochRequest(None, 2, epoch),
        lambda epoch: EndEpochRequest(2, epoch, ()),
    ],
    ids=["vote", "pre-vote", "begin", "end"],
)
@pytest.mark.parametrize("epoch", [HIGH + 1, MAX_EPOCH - 1, MAX_EPOCH])
def test_no_request_leaps_near_the_last_epoch(request_of, epoch):
    core = Core()
    core.follow(2, 5)
    assert core.ask(request_of(epoch)).error == ErrorCode.invalid_request
    assert (core.role, core.q.epoch) == ("Follower", 5)
    (refused,) = core.of(fx.MessageRefused)
    assert refused.reason == f"it leaps from epoch 5 to {epoch}"
    assert core.ask(request_of(HIGH)).error == NONE
    assert core.q.epoch == HIGH


def test_who_is_that_far_behind_learns_it_from_those_that_it_asks():
    core = Core()
    core.pass_ms(100)
    (asked,) = [request for peer, request in core.sent(VoteRequest) if peer == 2]
    core.tell(ResponseReceived(2, asked, VoteResponse(NONE, 3, HIGH + 5000, False)))
    assert (core.role, core.q.epoch, core.q.leader_id) == ("Follower", HIGH + 5000, 3)


def test_who_was_only_named_by_a_request_is_not_asked_for_that():
    core = Core()
    core.ask(BeginEpochRequest(None, 9, 5, ("stranger", 1)))
    core.fetched(error=ErrorCode.fenced_leader_epoch, leader_id=-1, epoch=MAX_EPOCH)
    assert (core.role, core.q.epoch) == ("Follower", 5)
    (refused,) = core.of(fx.MessageRefused)
    assert refused == (9, f"it leaps from epoch 5 to {MAX_EPOCH}")
    assert core.q.role.slot.next_at_ms is not None


def test_the_last_epoch_has_a_leader():
    core = in_epoch(MAX_EPOCH - 1)
    core.win()
    core.sync()
    core.fetch_from(2, 1, MAX_EPOCH)
    assert (core.role, core.q.epoch, core.q.high_watermark) == ("Leader", MAX_EPOCH, 1)
    assert not core.of(fx.Fatal)


@pytest.mark.parametrize("voters", [1, 3])
def test_nobody_stands_after_the_last_epoch(voters):
    core = in_epoch(MAX_EPOCH, voters=voters)
    assert exit_code(core) == EXIT_NO_EPOCH_LEFT
    assert core.q.epoch == MAX_EPOCH


def test_who_lost_the_leader_of_the_last_epoch_stops():
    core = in_epoch(MAX_EPOCH)
    core.ask(BeginEpochRequest(None, 2, MAX_EPOCH))
    assert core.role == "Follower"
    assert exit_code(core) == EXIT_NO_EPOCH_LEFT


def test_who_led_the_last_epoch_and_resigned_stops():
    core = in_epoch(MAX_EPOCH - 1)
    core.win()
    core.tell(Resign())
    assert exit_code(core) == EXIT_NO_EPOCH_LEFT
    assert core.q.epoch == MAX_EPOCH


@pytest.mark.parametrize("voters", [1, 3])
def test_who_led_the_last_epoch_before_it_started_stops(voters):
    led = ElectionState(MAX_EPOCH, 1, ReplicaKey(1, key(1).directory_id))
    core = Core(voters=voters, stored=led, log=log((MAX_EPOCH, 1)))
    assert exit_code(core) == EXIT_NO_EPOCH_LEFT
    assert core.q.epoch == MAX_EPOCH
