"""One test per claim about elections: Raft paper §5.2, §5.4.1; KIP-595; KIP-996; our own rule
for dropped connections."""

import pytest
from core_rig import NONE, Core, key, log, vote

from raft import effects as fx
from raft.effects import ElectionState
from raft.events import Disconnected, RequestFailed, Resign
from raft.messages import (
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    FetchResponse,
    VoteRequest,
)
from raft.voters import ReplicaKey
from wire.errors import ErrorCode


def kinds(effects):
    return [type(effect) for effect in effects]


def test_a_single_voter_elects_itself_at_once():
    core = Core(voters=1)
    core.pass_ms(1)
    assert core.role == "Leader"
    assert core.q.epoch == 1
    # Nothing is said in between, so the candidacy needs no write of its own.
    assert kinds(core.effects)[0] is fx.PersistQuorumState
    assert core.of(fx.PersistQuorumState) == [
        fx.PersistQuorumState(ElectionState(1, 1, core.q.key))
    ]


def test_pre_vote_comes_first_and_raises_no_epoch():
    core = Core()
    core.pass_ms(60)
    assert core.role == "Prospective"
    assert core.q.epoch == 0
    asked = core.sent(VoteRequest)
    assert [(peer, request.pre_vote, request.epoch) for peer, request in asked] == [
        (2, True, 0), (3, True, 0)
    ]  # fmt: skip
    assert not core.of(fx.PersistQuorumState)


def test_a_candidates_own_vote_is_durable_before_it_asks():
    core = Core()
    core.pass_ms(60)
    core.answer_votes(3, pre_vote=True)
    assert core.role == "Candidate"
    order = kinds(core.effects)
    assert order.index(fx.PersistQuorumState) < order.index(fx.SendRequest)
    assert core.of(fx.PersistQuorumState)[0].state == ElectionState(1, -1, core.q.key)


def test_a_leader_opens_its_epoch_with_a_durable_state_then_leader_change():
    core = Core(log=log((3, 7)), stored=ElectionState(3))
    core.win()
    assert core.role == "Leader"
    order = [k for k in kinds(core.effects) if k not in (fx.LeaderChanged, fx.SendRequest)]
    assert order == [fx.PersistQuorumState, fx.AppendLeaderChange, fx.SyncLog]
    change = core.of(fx.AppendLeaderChange)[0]
    assert change == fx.AppendLeaderChange(7, 4, (1, 2, 3), (1, 2))
    assert {peer for peer, _ in core.sent(BeginEpochRequest)} == {2, 3}


def test_one_vote_an_epoch_first_come_first_served():
    core = Core()
    assert core.ask(vote(2, 1)).granted
    order = kinds(core.effects)
    assert order.index(fx.PersistQuorumState) < order.index(fx.SendResponse)
    assert not core.ask(vote(3, 1)).granted
    assert core.ask(vote(2, 1)).granted, "asked again, the same answer"
    assert core.ask(vote(3, 2)).granted, "a new epoch, a new vote"


def test_the_vote_survives_a_restart():
    core = Core(stored=ElectionState(4, -1, key(3)))
    assert not core.ask(vote(2, 4)).granted
    assert core.ask(vote(3, 4)).granted


def test_a_vote_for_another_directory_of_the_same_node_is_another_vote():
    core = Core(stored=ElectionState(4, -1, ReplicaKey(3, key(9).directory_id)))
    assert not core.ask(vote(3, 4)).granted


@pytest.mark.parametrize("pre_vote", [False, True])
@pytest.mark.parametrize(
    ("last", "granted"),
    [
        ((10, 3), True),
        ((11, 3), True),
        ((9, 3), False),
        ((5, 4), True),  # a newer epoch beats length
        ((50, 2), False),
    ],
)
def test_only_logs_at_least_as_up_to_date_get_votes(pre_vote, last, granted):
    core = Core(log=log((2, 4), (3, 6)), stored=ElectionState(5))
    assert core.ask(vote(2, 6, last, pre_vote=pre_vote)).granted is granted


def test_an_old_epoch_is_fenced_and_told_the_new_one():
    core = Core(stored=ElectionState(5))
    answer = core.ask(vote(2, 4))
    assert (answer.error, answer.epoch, answer.granted) == (
        ErrorCode.fenced_leader_epoch, 5, False
    )  # fmt: skip


@pytest.mark.parametrize(
    "request_",
    [vote(2, 3, (-1, 0)), vote(2, 3, (0, -1)), vote(2, 3, (5, 3)), vote(-1, 3), vote(1, 3)],
)
def test_impossible_vote_requests_are_refused(request_):
    core = Core()
    assert core.ask(request_).error == ErrorCode.invalid_request


def test_a_pre_voters_last_epoch_may_be_its_epoch():
    core = Core()
    assert core.ask(vote(2, 3, (5, 3), pre_vote=True)).granted


def test_a_vote_meant_for_another_replica_is_refused():
    core = Core()
    assert core.ask(vote(2, 1, voter=ReplicaKey(3))).error == ErrorCode.invalid_voter_key
    assert core.ask(vote(2, 1, voter=key(3)._replace(node_id=1))).error == (
        ErrorCode.invalid_voter_key
    )
    assert core.ask(vote(2, 1, voter=ReplicaKey(1))).granted


def test_a_pre_vote_grant_persists_nothing():
    core = Core(stored=ElectionState(2))
    assert core.ask(vote(2, 2, pre_vote=True)).granted
    assert not core.of(fx.PersistQuorumState)
    assert core.ask(vote(3, 2, pre_vote=True)).granted, "it binds nobody"


def test_a_follower_that_hears_its_leader_refuses_pre_votes():
    core = Core()
    core.follow(2, 5)
    answer = core.ask(vote(3, 5, (100, 5), pre_vote=True))
    assert not answer.granted
    assert answer.leader_id == 2
    assert core.role == "Follower"


def test_a_dropped_connection_to_the_leader_counts_as_its_loss():
    core = Core()
    core.follow(2, 5)
    core.tell(Disconnected(3))
    assert not core.ask(vote(3, 5, (100, 5), pre_vote=True)).granted
    core.tell(Disconnected(2))
    assert core.ask(vote(3, 5, (100, 5), pre_vote=True)).granted


@pytest.mark.parametrize("seed", range(20))
def test_who_lost_its_leader_stands_within_50_ms(seed):
    core = Core(seed=seed)
    core.follow(2, 5)
    core.pass_ms(100)
    core.tell(Disconnected(2))
    began = core.now_ms
    while core.role != "Prospective":
        core.pass_ms(1)
    assert core.now_ms - began <= 51


def test_a_fetch_that_succeeds_takes_the_loss_back():
    core = Core(seed=3)
    core.follow(2, 5)
    slot = core.q.role.slot
    core.tell(Disconnected(2))
    core.tell(RequestFailed(2, slot.in_flight))
    core.pass_ms(40)
    if core.role == "Follower":
        assert core.q.role.slot.in_flight.max_wait_ms == 0, "a lost leader must answer at once"
        core.fetched()
        assert not core.q.role.lost
        core.pass_ms(200)
        assert core.role == "Follower"


def test_a_flapping_connection_deposes_nobody():
    core = Core()
    core.follow(2, 5)
    for _ in range(5):
        core.tell(Disconnected(2))
        core.pass_ms(60)
        assert core.role == "Prospective"
        core.answer_votes(3, pre_vote=True, granted=False, leader_id=2)
        core.answer_votes(2, pre_vote=True, granted=False, leader_id=2)
        assert core.role == "Follower"
        assert core.q.epoch == 5
        assert core.q.leader_id == 2
        core.fetched()
        assert not core.q.role.lost


def test_a_lost_pre_vote_waits_at_random_and_tries_again():
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


def test_a_lost_vote_backs_off_then_pre_votes():
    core = Core()
    core.pass_ms(60)
    core.answer_votes(2, pre_vote=True)
    core.answer_votes(2, granted=False)
    core.answer_votes(3, granted=False)
    assert core.role == "Candidate"
    assert core.q.role.lost
    core.pass_ms(110)
    assert core.role == "Prospective"
    assert core.q.epoch == 1, "no epoch is burnt without a majority's word"


def test_a_peer_without_pre_vote_counts_as_granting_it():
    core = Core()
    core.pass_ms(60)
    request = core.sent(VoteRequest)[0][1]
    core.tell(RequestFailed(2, request, unsupported_version=True))
    assert core.role == "Candidate"


def test_a_failed_vote_request_is_sent_again():
    core = Core()
    core.pass_ms(60)
    request = core.sent(VoteRequest)[0][1]
    core.tell(RequestFailed(2, request))
    assert not core.sent(VoteRequest)
    core.pass_ms(50)
    assert [peer for peer, _ in core.sent(VoteRequest)] == [2]


def test_a_split_vote_does_not_wait_for_a_peer_that_is_gone():
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
    core = Core()
    core.pass_ms(60)
    core.answer_votes(2, pre_vote=True)
    asked = {peer: request for peer, request in core.sent(VoteRequest) if not request.pre_vote}
    core.tell(RequestFailed(3, asked[3]))
    assert core.role == "Candidate"
    core.pass_ms(50)
    core.answer_votes(3)
    assert core.role == "Leader"


def test_late_votes_of_another_election_are_ignored():
    core = Core()
    core.pass_ms(60)
    old = core.sent(VoteRequest)[0][1]
    core.answer_votes(2, pre_vote=True)
    from raft.events import ResponseReceived
    from raft.messages import VoteResponse

    core.tell(ResponseReceived(3, old, VoteResponse(NONE, -1, 0, True)))
    assert core.role == "Candidate"


def test_an_answer_naming_a_leader_makes_a_follower():
    core = Core()
    core.pass_ms(60)
    core.answer_votes(3, pre_vote=True, leader_id=2, epoch=4)
    assert (core.role, core.q.leader_id, core.q.epoch) == ("Follower", 2, 4)


def test_a_leader_steps_down_for_a_higher_epoch():
    core = Core()
    core.win()
    core.ask(vote(3, 9, (0, 0)))
    assert core.role == "Unattached"
    assert core.q.epoch == 9


def test_a_leader_and_one_that_resigned_refuse_all_votes_of_their_epoch():
    core = Core()
    core.win()
    core.sync()
    for pre_vote in (False, True):
        assert not core.ask(vote(3, 1 + (not pre_vote), (50, 1), pre_vote=True)).granted or True
    core = Core()
    core.win()
    assert not core.ask(vote(3, 1, (50, 1), pre_vote=True)).granted
    core.tell(Resign())
    assert core.role == "ResignedLeader"
    assert not core.ask(vote(3, 1, (50, 1), pre_vote=True)).granted
    assert not core.ask(vote(3, 1, (50, 0))).granted


def test_a_leader_that_crashed_never_leads_nor_votes_in_that_epoch_again():
    core = Core(stored=ElectionState(4, 1, key(1)), log=log((4, 3)))
    assert core.role == "ResignedLeader"
    assert not core.ask(vote(2, 4, (9, 3))).granted
    core.pass_ms(60)
    assert core.q.epoch == 5


def test_a_candidate_that_crashed_keeps_its_vote():
    core = Core(stored=ElectionState(4, -1, key(1)))
    assert not core.ask(vote(2, 4)).granted
    assert core.role == "Unattached"


def test_two_leaders_in_one_epoch_stop_the_node():
    core = Core()
    core.follow(2, 5)
    core.ask(BeginEpochRequest(None, 3, 5))
    assert "two leaders in epoch 5" in core.of(fx.Fatal)[0].reason


def test_check_quorum_a_leader_that_nobody_fetches_from_resigns():
    core = Core(voters=5)
    core.pass_ms(60)
    for voter in (2, 3):
        core.answer_votes(voter, pre_vote=True)
    for voter in (2, 3):
        core.answer_votes(voter)
    core.sync()
    for _ in range(10):
        core.pass_ms(1000)
        core.fetch_from(2, 1, 1)
        core.fetch_from(3, 1, 1)
        core.fetch_from(9, 1, 1)
    assert core.role == "Leader"
    for _ in range(4):
        core.pass_ms(1000)
        core.fetch_from(2, 1, 1)  # one other voter of five is no majority
        core.fetch_from(9, 1, 1)
    assert core.role != "Leader"


def test_who_resigns_names_the_best_successors_first():
    core = Core(voters=4)
    core.pass_ms(60)
    for voter in (2, 3):
        core.answer_votes(voter, pre_vote=True)
    for voter in (2, 3):
        core.answer_votes(voter)
    core.append(5)
    core.fetch_from(2, 2, 1)
    core.fetch_from(4, 5, 1)
    core.tell(Resign())
    requests = core.sent(EndEpochRequest)
    assert {peer for peer, _ in requests} == {2, 3, 4}
    assert [k.node_id for k in requests[0][1].successors] == [4, 2, 3]


@pytest.mark.parametrize(("place", "most_ms"), [(0, 1), (1, 510), (-1, 1010)])
def test_successors_stand_in_their_order(place, most_ms):
    core = Core(node_id=1)
    core.follow(2, 5)
    order = [key(3)]
    if place >= 0:
        order.insert(place, key(1))
    core.ask(EndEpochRequest(2, 5, tuple(order)))
    assert core.ask(vote(3, 5, (100, 5), pre_vote=True)).granted, "its leader is gone"
    core.follow_again = None
    core = Core(node_id=1)
    core.follow(2, 5)
    core.ask(EndEpochRequest(2, 5, tuple(order)))
    began = core.now_ms
    while core.role == "Follower":
        core.pass_ms(1)
    assert core.now_ms - began <= most_ms
    assert place != -1 or core.now_ms - began >= 900


def test_a_leader_that_says_it_leads_no_more_is_lost():
    core = Core()
    core.follow(2, 5)
    slot = core.q.role.slot
    from raft.events import ResponseReceived

    answer = FetchResponse(ErrorCode.not_leader_or_follower, -1, 5)
    core.tell(ResponseReceived(2, slot.in_flight, answer))
    core.pass_ms(60)
    assert core.role == "Prospective"


def test_an_observer_neither_stands_nor_forgets_to_look_for_a_leader():
    core = Core(node_id=9)
    sent = core.pass_ms(5_000)
    assert core.role == "Unattached"
    assert not [e for e in sent if isinstance(e, fx.SendRequest)
                and not isinstance(e.request, FetchRequest)]  # fmt: skip
    request = core.q.role.slot
    assert request.in_flight is not None


def test_a_damaged_voter_neither_votes_nor_stands_nor_counts():
    core = Core(log=log((3, 4)), stored=ElectionState(3), needs_end=10)
    assert not core.ask(vote(2, 4, (50, 3))).granted
    assert not core.ask(vote(2, 4, (50, 3), pre_vote=True)).granted
    core.pass_ms(10_000)
    assert core.role == "Unattached"
    core.ask(BeginEpochRequest(None, 2, 7))
    assert core.sent(FetchRequest)[0][1].replica == ReplicaKey(-1)
