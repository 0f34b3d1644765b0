"""KIP-996 (pre-vote), a test a rule: who wouldn't be elected raises no epoch, deposes nobody."""

import pytest
from core_rig import NONE, Core, key, log, vote

from raft import effects as fx
from raft.effects import ElectionState
from raft.events import Disconnected, RequestFailed, Resign, ResponseReceived
from raft.messages import BeginEpochRequest, FetchResponse, VoteRequest, VoteResponse
from wire.errors import ErrorCode


def test_a_node_asks_before_it_raises_its_epoch():
    """Proposed changes: becoming Prospective changes neither epoch nor vote, nothing on disk."""
    core = Core()
    core.pass_ms(60)
    assert core.role == "Prospective"
    assert core.q.epoch == 0
    asked = core.sent(VoteRequest)
    assert [(peer, request.pre_vote, request.epoch) for peer, request in asked] == [
        (2, True, 0),
        (3, True, 0),
    ]
    assert not core.of(fx.PersistQuorumState)


def test_a_follower_whose_fetches_fail_for_the_fetch_timeout_asks():
    """Proposed changes: Follower to Prospective when the fetch timeout expires."""
    core = Core()
    core.follow(2, 5)
    core.pass_ms(1_990)
    assert core.role == "Follower"
    core.pass_ms(20)
    assert (core.role, core.q.epoch) == ("Prospective", 5)


def test_a_prospective_node_remembers_its_epochs_leader():
    """Proposed changes: Prospective keeps the leader id it knew, tells it, and votes for nobody
    else in that epoch."""
    core = Core()
    core.follow(2, 5)
    core.pass_ms(2_010)
    assert core.role == "Prospective"
    answer = core.ask(vote(3, 5, (0, 4)))
    assert (answer.leader_id, answer.granted) == (2, False)


def test_a_majority_of_grants_makes_a_candidate_with_the_next_epoch():
    """Proposed changes: Prospective to Candidate with a majority; its vote for itself is durable
    before it asks."""
    core = Core()
    core.pass_ms(60)
    core.answer_votes(3, pre_vote=True)
    assert (core.role, core.q.epoch) == ("Candidate", 1)
    order = [type(effect) for effect in core.effects]
    assert order.index(fx.PersistQuorumState) < order.index(fx.SendRequest)
    assert core.of(fx.PersistQuorumState)[0].state == ElectionState(1, -1, core.q.key)


def test_a_lost_pre_vote_makes_a_follower_of_a_known_leader():
    """Proposed changes: Prospective to Follower if the leader is known, its epoch unchanged."""
    core = Core()
    core.follow(2, 5)
    core.pass_ms(2_010)
    for voter in (2, 3):
        core.answer_votes(voter, pre_vote=True, granted=False, leader_id=2)
    assert (core.role, core.q.leader_id, core.q.epoch) == ("Follower", 2, 5)


def test_a_lost_pre_vote_waits_at_random_and_tries_again():
    """Proposed changes: Prospective to Unattached if no leader is known; the next try comes after
    a random time."""
    waits = set()
    for seed in range(12):
        core = Core(seed=seed)
        core.pass_ms(60)
        for voter in (2, 3):
            core.answer_votes(voter, pre_vote=True, granted=False)
        assert core.role == "Unattached"
        began = core.now_ms
        while core.role != "Prospective":
            core.pass_ms(1)
        waits.add(core.now_ms - began)
    assert max(waits) <= 260
    assert len(waits) > 4


def test_lost_pre_votes_are_tried_again_soon_however_many_are_lost():
    """Proposed changes: they disturb nobody, so the wait between them stays short."""
    core = Core()
    core.pass_ms(60)
    for _ in range(10):
        for voter in (2, 3):
            core.answer_votes(voter, pre_vote=True, granted=False)
        began = core.now_ms
        while core.role != "Prospective":
            core.pass_ms(1)
        assert core.now_ms - began <= 251


def test_a_pre_vote_without_answers_ends_with_the_election_timeout():
    """Proposed changes: Prospective gives up when the election timeout expires."""
    core = Core()
    core.pass_ms(60)
    began = core.now_ms
    while core.role == "Prospective":
        core.pass_ms(1)
    assert (core.role, core.q.epoch) == ("Unattached", 0)
    assert 940 <= core.now_ms - began <= 2_000


def test_a_lost_election_is_followed_by_a_pre_vote():
    """Proposed changes: Candidate to Prospective after its backoff: no epoch is burnt without a
    majority's word."""
    core = Core()
    core.pass_ms(60)
    core.answer_votes(2, pre_vote=True)
    core.answer_votes(2, granted=False)
    core.answer_votes(3, granted=False)
    assert core.role == "Candidate"
    assert core.q.role.lost
    core.pass_ms(110)
    assert (core.role, core.q.epoch) == ("Prospective", 1)


@pytest.mark.parametrize(
    ("last", "granted"),
    [((10, 3), True), ((11, 3), True), ((9, 3), False), ((5, 4), True), ((50, 2), False)],
)
def test_only_logs_at_least_as_up_to_date_are_encouraged(last, granted):
    """Vote handling: a pre-vote is granted only to a log at least as up to date."""
    core = Core(log=log((2, 4), (3, 6)), stored=ElectionState(5))
    assert core.ask(vote(2, 5, last, pre_vote=True)).granted is granted


def test_a_granted_pre_vote_binds_nobody_and_persists_nothing():
    """Vote handling: a grant changes no state, so it may be given to several."""
    core = Core(stored=ElectionState(2))
    assert core.ask(vote(2, 2, pre_vote=True)).granted
    assert not core.of(fx.PersistQuorumState)
    assert core.ask(vote(3, 2, pre_vote=True)).granted


def test_having_voted_is_no_reason_to_refuse_a_pre_vote():
    """Vote handling: an Unattached node that voted in the epoch grants pre-votes of others."""
    core = Core(stored=ElectionState(4, -1, key(3)))
    assert core.ask(vote(2, 4, pre_vote=True)).granted
    assert not core.ask(vote(2, 4)).granted


def test_a_follower_that_hears_its_leader_refuses():
    """Vote handling: a Follower that has fetched from its leader refuses, and says who leads."""
    core = Core()
    core.follow(2, 5)
    answer = core.ask(vote(3, 5, (100, 5), pre_vote=True))
    assert (answer.granted, answer.leader_id, core.role) == (False, 2, "Follower")


def test_a_follower_that_never_reached_its_leader_grants():
    """Vote handling: a Follower that hasn't fetched successfully yet grants."""
    core = Core()
    core.ask(BeginEpochRequest(None, 2, 5))
    assert core.role == "Follower"
    assert core.ask(vote(3, 5, (100, 5), pre_vote=True)).granted


def test_leaders_refuse_and_so_do_those_that_resigned():
    """Vote handling: Leader and Resigned refuse."""
    core = Core()
    core.win()
    assert not core.ask(vote(3, 1, (50, 1), pre_vote=True)).granted
    core.tell(Resign())
    assert core.role == "ResignedLeader"
    assert not core.ask(vote(3, 1, (50, 1), pre_vote=True)).granted


@pytest.mark.parametrize("answers", [0, 1])
def test_prospective_nodes_and_candidates_grant(answers):
    """Vote handling: who stands itself grants a pre-vote: it is no promise."""
    core = Core()
    core.pass_ms(60)
    if answers:
        core.answer_votes(2, pre_vote=True)
    assert core.role == ("Candidate" if answers else "Prospective")
    assert core.ask(vote(3, core.q.epoch, (0, 0), pre_vote=True)).granted


def test_a_prospective_node_may_vote():
    """Vote handling: Prospective grants a vote of its epoch and becomes Unattached with it."""
    core = Core(stored=ElectionState(3))
    core.pass_ms(60)
    assert core.role == "Prospective"
    assert core.ask(vote(3, 3)).granted
    assert (core.role, core.q.voted) == ("Unattached", key(3))


def test_a_pre_vote_of_a_higher_epoch_is_taken_up():
    """Vote handling: a higher epoch in a pre-vote makes an Unattached node of that epoch."""
    core = Core()
    core.win()
    core.ask(vote(3, 9, (0, 0), pre_vote=True))
    assert (core.role, core.q.epoch) == ("Unattached", 9)


def test_a_pre_voters_last_epoch_may_be_its_epoch():
    """Vote handling: only a candidate has raised its epoch above all of its log."""
    core = Core()
    assert core.ask(vote(2, 3, (5, 3), pre_vote=True)).granted
    assert core.ask(vote(2, 3, (5, 3))).error == ErrorCode.invalid_request


def test_an_answer_naming_a_leader_makes_a_follower():
    """Vote handling: the answer's epoch and leader are taken up."""
    core = Core()
    core.pass_ms(60)
    core.answer_votes(3, pre_vote=True, leader_id=2, epoch=4)
    assert (core.role, core.q.leader_id, core.q.epoch) == ("Follower", 2, 4)


def test_late_answers_to_the_pre_vote_elect_nobody():
    """Vote handling: grants of the pre-vote don't count in the election that follows."""
    core = Core()
    core.pass_ms(60)
    old = core.sent(VoteRequest)[0][1]
    core.answer_votes(2, pre_vote=True)
    core.tell(ResponseReceived(3, old, VoteResponse(NONE, -1, 0, True)))
    assert core.role == "Candidate"


def test_a_peer_without_pre_vote_counts_as_granting_it():
    """Compatibility: quorums of mixed versions must elect."""
    core = Core()
    core.pass_ms(60)
    request = core.sent(VoteRequest)[0][1]
    core.tell(RequestFailed(2, request, unsupported_version=True))
    assert core.role == "Candidate"


def test_a_flapping_connection_deposes_nobody():
    """Motivation: a node that loses its leader again and again disturbs nobody's epoch."""
    core = Core()
    core.follow(2, 5)
    for _ in range(5):
        core.pass_ms(2_010)
        assert core.role == "Prospective"
        core.answer_votes(3, pre_vote=True, granted=False, leader_id=2)
        core.answer_votes(2, pre_vote=True, granted=False, leader_id=2)
        assert (core.role, core.q.epoch, core.q.leader_id) == ("Follower", 5, 2)
        core.fetched()
        assert not core.q.role.lost


# Our own: who stands still costs no election's whole time


def test_a_refused_candidate_does_not_wait_for_who_stands_still():
    """Of three, one has voted for itself, and one doesn't answer: the leader that hangs."""
    core = Core()
    core.pass_ms(60)
    core.answer_votes(2, pre_vote=True)
    core.answer_votes(2, granted=False)
    assert core.role == "Candidate"
    assert not core.q.role.lost, "the third may grant it yet"
    core.pass_ms(2 * core.q.config.lost_leader_wait_max_ms)
    assert core.q.role.lost
    core.pass_ms(2 * core.q.config.lost_leader_wait_max_ms)
    assert core.role == "Prospective"
    core.answer_votes(2, pre_vote=True, granted=False)
    core.pass_ms(4 * core.q.config.lost_leader_wait_max_ms)
    assert core.role == "Unattached"


def test_where_answers_are_late_each_lost_election_waits_longer():
    core = Core()
    waits = []
    for _ in range(6):
        while core.role != "Candidate" or core.q.role.lost:
            if core.role == "Prospective":
                core.answer_votes(2, pre_vote=True)
            else:
                core.pass_ms(10)
        core.answer_votes(2, granted=False)
        began = core.now_ms
        while core.role == "Candidate" and not core.q.role.lost:
            core.pass_ms(1)
        waits.append(core.now_ms - began)
    assert waits == sorted(waits)
    assert waits[0] <= 100
    assert waits[-1] > 900


def test_as_long_as_the_refusal_took_is_waited_for_the_others():
    core = Core()
    core.pass_ms(60)
    core.answer_votes(2, pre_vote=True)
    core.pass_ms(300)
    core.answer_votes(2, granted=False)
    core.pass_ms(290)
    assert not core.q.role.lost
    core.pass_ms(20)
    assert core.q.role.lost


def test_a_vote_that_comes_after_the_time_counts():
    """It was given in this epoch, and nobody else can have been given it."""
    core = Core()
    core.pass_ms(60)
    core.answer_votes(2, pre_vote=True)
    core.answer_votes(2, granted=False)
    core.pass_ms(101)
    assert (core.role, core.q.role.lost) == ("Candidate", True)
    core.answer_votes(3)
    assert core.role == "Leader"


def test_who_is_refused_late_does_not_lose_twice():
    core = Core()
    core.pass_ms(60)
    core.answer_votes(2, pre_vote=True)
    core.answer_votes(2, granted=False)
    core.pass_ms(101)
    failed, deadline_ms = core.q.failed_elections, core.q.role.deadline_ms
    core.answer_votes(3, granted=False)
    assert (core.q.failed_elections, core.q.role.deadline_ms) == (failed, deadline_ms)


# Our own: a slow leader is no lost one


@pytest.mark.parametrize("late_ms", [50, 300, 900])
def test_a_voter_comes_back_to_its_leader_however_late_the_answers_are(late_ms):
    """Its pre-votes are refused sooner than its fetches are answered."""
    core = Core()
    core.follow(2, 5)
    answers = []

    def take(effects):
        for effect in effects:
            if isinstance(effect, fx.SendRequest):
                answers.append((core.now_ms + late_ms, effect.peer_id, effect.request))

    core.tell(RequestFailed(2, core.q.role.slot.in_flight))
    take(core.tell(Disconnected(2)))
    while core.now_ms < 20_000 and (core.role != "Follower" or core.q.role.lost):
        take(core.pass_ms(1))
        while answers and answers[0][0] <= core.now_ms:
            _, peer_id, request = answers.pop(0)
            if isinstance(request, VoteRequest):
                assert request.pre_vote
                response = VoteResponse(NONE, 2, 5, False)
            elif peer_id == 2:
                response = FetchResponse(NONE, 2, 5, 0)
            else:
                continue
            take(core.tell(ResponseReceived(peer_id, request, response)))
    assert core.now_ms < 3 * late_ms + 2_000
    assert (core.q.epoch, core.q.leader_id) == (5, 2)


def test_a_late_answer_of_another_is_no_sign_of_the_leader():
    core = Core()
    core.follow(2, 5)
    core.tell(Disconnected(2))
    core.pass_ms(90)
    assert core.role == "Prospective"
    slot = core.q.role.slot
    request = slot.in_flight
    for response in (
        FetchResponse(ErrorCode.not_leader_or_follower, 2, 5, 0),
        FetchResponse(NONE, 2, 4, 0),
    ):
        core.tell(ResponseReceived(slot.peer_id, request, response))
        assert core.role == "Prospective"
