"""Our own rules, a test a rule: dropped connections, durability, damage (docs/compatibility.md says
where they go beyond Kafka; `raft/` says why)."""

import pytest
from core_rig import NONE, Core, key, log, records, vote

from raft import effects as fx
from raft.effects import ElectionState
from raft.events import (
    Disconnected,
    LogSynced,
    RequestAbandoned,
    RequestFailed,
    Resign,
    ResponseReceived,
    ServeParked,
)
from raft.messages import BeginEpochRequest, FetchRequest, FetchResponse, VoteRequest
from raft.voters import ReplicaKey


def leading(**rest):
    core = Core(**rest)
    core.win()
    core.sync()
    return core


# Elections


def test_who_stops_stands_no_longer_though_votes_come():
    core = Core()
    core.pass_ms(60)
    assert core.role == "Prospective"
    core.tell(Resign(leaving=True))
    assert core.role == "Unattached"
    core.answer_votes(2, pre_vote=True)
    core.pass_ms(60_000)
    assert core.role == "Unattached"


def test_a_single_voter_elects_itself_at_once():
    """Alone, nothing is said in between, so the candidacy needs no write of its own."""
    core = Core(voters=1)
    core.pass_ms(1)
    assert (core.role, core.q.epoch) == ("Leader", 1)
    assert core.of(fx.PersistQuorumState) == [
        fx.PersistQuorumState(ElectionState(1, 1, core.q.key))
    ]


def test_a_candidate_that_crashed_keeps_its_vote_and_doesnt_go_on():
    """What it may have sent as that epoch's leader can be lost with its log's unsynced end."""
    core = Core(stored=ElectionState(4, -1, key(1)))
    assert not core.ask(vote(2, 4)).granted
    assert core.role == "Unattached"
    core.pass_ms(60)
    assert (core.role, core.q.epoch) == ("Prospective", 4)


def test_a_split_vote_does_not_wait_for_a_peer_that_is_gone():
    """Who can't be asked counts as a refusal until it can."""
    core = Core()
    core.pass_ms(60)
    core.answer_votes(2, pre_vote=True)
    asked = {peer: request for peer, request in core.sent(VoteRequest) if not request.pre_vote}
    core.answer_votes(2, granted=False)
    assert not core.q.role.lost
    core.tell(RequestFailed(3, asked[3]))
    assert core.q.role.lost
    core.pass_ms(110)
    assert core.role == "Prospective"


def test_a_peer_that_comes_back_still_counts():
    """A failed request refuses nothing for good."""
    core = Core()
    core.pass_ms(60)
    core.answer_votes(2, pre_vote=True)
    asked = {peer: request for peer, request in core.sent(VoteRequest) if not request.pre_vote}
    core.tell(RequestFailed(3, asked[3]))
    assert core.role == "Candidate"
    core.pass_ms(50)
    core.answer_votes(3)
    assert core.role == "Leader"


@pytest.mark.parametrize("seed", range(10))
def test_who_promised_a_vote_leaves_time_to_come_for_it(seed):
    """One that was about to stand itself waits for at least one more round."""
    core = Core(seed=seed)
    assert core.ask(vote(2, 0, pre_vote=True)).granted
    core.pass_ms(49)
    assert core.role == "Unattached"
    core.pass_ms(110)
    assert core.role == "Prospective"


# Dropped connections


def test_a_dropped_connection_to_the_leader_counts_as_its_loss():
    """Others' pre-votes are granted from then on; other connections don't matter."""
    core = Core()
    core.follow(2, 5)
    core.tell(Disconnected(3))
    assert not core.ask(vote(3, 5, (100, 5), pre_vote=True)).granted
    core.tell(Disconnected(2))
    assert core.ask(vote(3, 5, (100, 5), pre_vote=True)).granted


@pytest.mark.parametrize("seed", range(20))
def test_who_lost_its_leader_stands_within_50_ms(seed):
    """At a random moment, so that they don't all stand at once."""
    core = Core(seed=seed)
    core.follow(2, 5)
    core.pass_ms(100)
    core.tell(Disconnected(2))
    began = core.now_ms
    while core.role != "Prospective":
        core.pass_ms(1)
    assert core.now_ms - began <= 51


def test_a_fetch_that_succeeds_takes_the_loss_back():
    """The leader is asked at once, and an answer ends the wait for another election."""
    core = next(core for core in map(_with_a_lost_leader, range(100)) if core.role == "Follower")
    assert core.q.role.slot.in_flight.max_wait_ms == 0, "a lost leader must answer at once"
    core.fetched()
    assert not core.q.role.lost
    core.pass_ms(200)
    assert core.role == "Follower"


def _with_a_lost_leader(seed):
    core = Core(seed=seed)
    core.follow(2, 5)
    slot = core.q.role.slot
    core.tell(Disconnected(2))
    core.tell(RequestFailed(2, slot.in_flight))
    core.pass_ms(40)
    return core


def test_a_flapping_connection_deposes_nobody():
    """Those who hear the leader refuse, and the next fetch takes the loss back."""
    core = Core()
    core.follow(2, 5)
    for _ in range(5):
        core.tell(Disconnected(2))
        core.pass_ms(60)
        assert core.role == "Prospective"
        core.answer_votes(3, pre_vote=True, granted=False, leader_id=2)
        core.answer_votes(2, pre_vote=True, granted=False, leader_id=2)
        assert (core.role, core.q.epoch, core.q.leader_id) == ("Follower", 5, 2)
        core.fetched()
        assert not core.q.role.lost


# Durability


def test_what_the_leader_hasnt_synced_doesnt_count():
    """The leader counts itself only up to its own last fsync."""
    core = Core()
    core.win()
    core.fetch_from(2, 1, 1)
    assert core.q.high_watermark == 0
    core.sync()
    assert core.of(fx.HighWatermarkAdvanced) == [fx.HighWatermarkAdvanced(1)]


def test_a_majority_commits_without_the_leaders_own_disk():
    """Two other disks of three are a majority."""
    core = Core()
    core.win()
    core.fetch_from(2, 1, 1)
    core.fetch_from(3, 1, 1)
    assert core.q.high_watermark == 1


def test_an_observer_fetches_on_without_waiting_for_its_disk():
    """Its fetch offset promises nothing."""
    core = Core(node_id=9, can_vote=False)
    core.follow(2, 5)
    core.fetched(records=records(0, (5, 2)))
    assert core.sent(FetchRequest)[0][1].offset == 2


def test_a_sync_begun_before_a_truncation_isnt_credited_after_it():
    """What it made durable may be what was cut."""
    core = Core(log=log((1, 4)), stored=ElectionState(1))
    core.follow(2, 5)
    core.fetched(records=records(4, (2, 4)))
    began = core.q.log.truncations
    core.q.log.truncate(5)
    core.q.log.append(5, 5, 7)
    core.tell(LogSynced(8, began))
    assert core.q.log.synced_end == 5


# Damage


def test_a_damaged_voter_neither_votes_nor_stands_nor_counts():
    """Synced records are missing, so promises may be forgotten; it fetches without its name."""
    core = Core(log=log((3, 4)), stored=ElectionState(3), needs_end=10)
    assert not core.ask(vote(2, 4, (50, 3))).granted
    assert not core.ask(vote(2, 4, (50, 3), pre_vote=True)).granted
    core.pass_ms(10_000)
    assert core.role == "Unattached"
    core.ask(BeginEpochRequest(None, 2, 7))
    assert core.sent(FetchRequest)[0][1].replica == ReplicaKey(-1)


def test_a_damaged_voter_is_whole_once_it_is_past_its_old_end():
    """And durably so; then it fetches as itself and may stand."""
    core = Core(log=log((3, 4)), stored=ElectionState(3), needs_end=6)
    core.follow(2, 5)
    core.fetched(records=records(4, (4, 1)))
    core.sync()
    assert core.q.needs_end == 6
    core.fetched(records=records(5, (5, 1)))
    core.sync()
    assert core.q.needs_end is None
    assert core.sent(FetchRequest)[0][1].replica == key(1)
    core.pass_ms(2_100)
    assert core.role == "Prospective"


# Fetches


def test_a_commit_is_told_to_those_who_wait():
    """KIP-1166, and for fetchers that can't say what they know: the leader remembers what it told
    them."""
    core = leading()
    core.fetch_from(2, 1, 1)
    core.append()
    core.sync()
    core.fetch_from(3, 2, 1, high_watermark=1)
    assert core.q.high_watermark == 2
    assert core.fetch_from(9, 2, 1, high_watermark=2) is None, "it knows all there is: parked"
    assert core.fetch_from(9, 2, 1, high_watermark=1).high_watermark == 2
    core.append()
    core.tell(ServeParked())
    core.fetch_from(2, 3, 1)
    assert core.fetch_from(9, 3, 1, high_watermark=2) is None
    core.sync()
    core.tell(ServeParked())
    told = [effect.response.high_watermark for effect in core.of(fx.SendResponse)]
    assert set(told) == {3}


def test_an_abandoned_fetch_is_forgotten():
    """Nobody waits for its answer any more."""
    core = leading()
    core.fetch_from(2, 1, 1)
    assert core.fetch_from(2, 1, 1) is None
    core.tell(RequestAbandoned(core.tokens))
    core.append()
    core.tell(ServeParked())
    assert not core.of(fx.SendResponse)


def test_an_answer_from_a_leader_that_is_gone_starts_nothing():
    """A late answer of the old leader neither takes a loss back nor fetches on."""
    core = Core()
    core.follow(2, 5)
    late = core.q.role.slot.in_flight
    core.ask(BeginEpochRequest(None, 3, 6))
    core.tell(ResponseReceived(2, late, FetchResponse(NONE, 2, 5, 1)))
    assert (core.q.leader_id, core.q.high_watermark) == (3, 0)
    assert not core.sent(FetchRequest)
