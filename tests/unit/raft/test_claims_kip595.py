"""KIP-595 (a Raft protocol for the metadata quorum), a test a rule: Raft, pulled by followers."""

from itertools import pairwise

import pytest
from core_rig import NONE, Core, key, log, records, vote

from raft import effects as fx
from raft.effects import ElectionState
from raft.events import RequestFailed, Resign, ResponseReceived, ServeParked
from raft.messages import (
    BeginEpochRequest,
    BeginEpochResponse,
    EndEpochRequest,
    FetchRequest,
    FetchResponse,
    VoteRequest,
)
from raft.quorum import backoff_ms
from raft.voters import MembershipRecord, OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from wire.errors import ErrorCode


def leading(**rest):
    core = Core(**rest)
    core.win()
    core.sync()
    return core


def kinds(effects):
    return [type(effect) for effect in effects]


# Quorum state


def test_epoch_leader_and_vote_are_durable_before_anything_is_said():
    """Quorum state: what was persisted comes before the answer that depends on it."""
    core = Core()
    assert core.ask(vote(2, 1)).granted
    assert kinds(core.effects)[0] is fx.PersistQuorumState
    assert core.of(fx.PersistQuorumState)[0].state == ElectionState(1, -1, key(2))
    core.ask(BeginEpochRequest(None, 3, 2))
    assert kinds(core.effects)[0] is fx.PersistQuorumState
    assert core.of(fx.PersistQuorumState)[0].state == ElectionState(2, 3, None)


def test_a_restarted_follower_follows_the_leader_it_knew():
    """Quorum state, initialization: a known leader of the epoch is followed again."""
    core = Core(stored=ElectionState(4, 2, None))
    assert (core.role, core.q.leader_id, core.q.epoch) == ("Follower", 2, 4)


def test_a_restarted_voter_keeps_its_vote():
    """Quorum state, initialization: the vote of the epoch is as it was."""
    core = Core(stored=ElectionState(4, -1, key(3)))
    assert core.role == "Unattached"
    assert not core.ask(vote(2, 4)).granted
    assert core.ask(vote(3, 4)).granted


def test_a_leader_that_crashed_never_leads_nor_votes_in_that_epoch_again():
    """Quorum state, initialization: a leader starts as resigned: what it appended may be lost."""
    core = Core(stored=ElectionState(4, 1, key(1)), log=log((4, 3)))
    assert core.role == "ResignedLeader"
    assert not core.ask(vote(2, 4, (9, 3))).granted
    core.pass_ms(60)
    assert core.q.epoch == 5


def test_a_log_newer_than_the_quorum_state_raises_the_epoch():
    """Quorum state, initialization: the epoch is at least that of the log's last record."""
    core = Core(log=log((7, 2)), stored=ElectionState(4, 2, key(2)))
    assert (core.q.epoch, core.q.leader_id, core.q.voted) == (7, -1, None)


# Vote


def test_vote_requests_of_an_old_epoch_are_fenced():
    """Vote response: FENCED_LEADER_EPOCH, with the epoch and leader known here."""
    core = Core(stored=ElectionState(5))
    answer = core.ask(vote(2, 4))
    assert (answer.error, answer.epoch, answer.granted) == (
        ErrorCode.fenced_leader_epoch,
        5,
        False,
    )


@pytest.mark.parametrize(
    "request_",
    [vote(2, 3, (-1, 0)), vote(2, 3, (0, -1)), vote(2, 3, (5, 3)), vote(-1, 3), vote(1, 3)],
)
def test_impossible_vote_requests_are_refused(request_):
    """Vote handling: INVALID_REQUEST for offsets and epochs that no candidate can have."""
    assert Core().ask(request_).error == ErrorCode.invalid_request


def test_a_vote_meant_for_another_replica_is_refused():
    """Vote handling, with KIP-853's keys: INVALID_VOTER_KEY if it is for another replica."""
    core = Core()
    assert core.ask(vote(2, 1, voter=ReplicaKey(3))).error == ErrorCode.invalid_voter_key
    assert core.ask(vote(2, 1, voter=key(3)._replace(node_id=1))).error == (
        ErrorCode.invalid_voter_key
    )
    assert core.ask(vote(2, 1, voter=ReplicaKey(1))).granted


def test_a_vote_for_another_directory_of_the_same_node_is_another_vote():
    """Quorum state, with KIP-853's keys: the vote names node and directory."""
    core = Core(stored=ElectionState(4, -1, ReplicaKey(3, key(9).directory_id)))
    assert not core.ask(vote(3, 4)).granted


def test_a_vote_of_an_epoch_whose_leader_is_known_is_refused():
    """Vote handling: a voter that knows the epoch's leader votes for nobody in it."""
    core = Core()
    core.ask(BeginEpochRequest(None, 2, 5))
    answer = core.ask(vote(3, 5, (100, 4)))
    assert (answer.granted, answer.leader_id) == (False, 2)


def test_a_lost_candidate_backs_off_at_random():
    """Vote: an election that can't be won any more is followed by a random wait, at most
    quorum.election.backoff.max.ms."""
    waits = set()
    for seed in range(10):
        core = Core(seed=seed)
        core.pass_ms(60)
        core.answer_votes(2, pre_vote=True)
        for voter in (2, 3):
            core.answer_votes(voter, granted=False)
        assert core.q.role.lost
        began = core.now_ms
        while core.role == "Candidate":
            core.pass_ms(1)
        waits.add(core.now_ms - began)
    assert len(waits) > 3
    assert max(waits) <= core.core.state.config.election_backoff_max_ms


def test_a_failed_vote_request_is_sent_again():
    """Vote: retried, after a pause, until the election is decided."""
    core = Core()
    core.pass_ms(60)
    request = core.sent(VoteRequest)[0][1]
    core.tell(RequestFailed(2, request))
    assert not core.sent(VoteRequest)
    core.pass_ms(50)
    assert [peer for peer, _ in core.sent(VoteRequest)] == [2]


# BeginQuorumEpoch


def test_a_new_leader_tells_every_other_voter():
    """BeginQuorumEpoch: sent to all voters by the new leader of an epoch."""
    core = Core()
    core.win()
    assert [peer for peer, _ in core.sent(BeginEpochRequest)] == [2, 3]


def test_it_is_told_again_until_it_is_heard():
    """BeginQuorumEpoch: retried while a voter neither answers nor fetches."""
    core = leading()
    core.hear_announced(3, failed=True)
    core.pass_ms(500)
    assert 3 in [peer for peer, _ in core.sent(BeginEpochRequest)]


def test_who_is_told_of_a_leader_follows_it():
    """BeginQuorumEpoch handling: an epoch at least ours and a voter's id make a follower."""
    core = Core(stored=ElectionState(4))
    answer = core.ask(BeginEpochRequest(None, 2, 4))
    assert (answer.error, answer.leader_id, core.role) == (NONE, 2, "Follower")
    answer = core.ask(BeginEpochRequest(None, 3, 6))
    assert (core.q.leader_id, core.q.epoch) == (3, 6)


@pytest.mark.parametrize("kind", [BeginEpochRequest, EndEpochRequest])
def test_announcements_of_an_old_epoch_are_fenced(kind):
    """Begin- and EndQuorumEpoch response: FENCED_LEADER_EPOCH, with the epoch known here."""
    core = Core(stored=ElectionState(5))
    request = kind(None, 2, 4) if kind is BeginEpochRequest else kind(2, 4, ())
    answer = core.ask(request)
    assert (answer.error, answer.epoch) == (ErrorCode.fenced_leader_epoch, 5)


def test_who_is_no_voter_leads_nobody():
    """BeginQuorumEpoch handling: INVALID_REQUEST from who isn't one of the voters."""
    assert Core().ask(BeginEpochRequest(None, 9, 5)).error == ErrorCode.invalid_request


@pytest.mark.parametrize("kind", [BeginEpochRequest, EndEpochRequest])
def test_a_second_leader_in_one_epoch_isnt_heeded(kind):
    """BeginQuorumEpoch handling: another leader in a known epoch is inconsistent. (In Kafka the
    node ends, but anybody can send this.)"""
    core = Core()
    core.follow(2, 5)
    request = kind(None, 3, 5) if kind is BeginEpochRequest else kind(3, 5, (key(1),))
    answer = core.ask(request)
    assert (answer.error, answer.leader_id) == (ErrorCode.invalid_request, 2)
    assert "two leaders in epoch 5: 2 and 3" in core.of(fx.MessageRefused)[0].reason
    assert (core.role, core.q.leader_id, core.q.role.lost) == ("Follower", 2, False)


def test_a_third_ones_word_of_a_second_leader_isnt_heeded():
    """Fetch handling: the answer to a request to one that isn't the leader."""
    core = Core()
    core.follow(2, 5)
    asked = BeginEpochRequest(None, 1, 5)
    core.tell(ResponseReceived(3, asked, BeginEpochResponse(NONE, 3, 5)))
    assert "two leaders in epoch 5: 2 and 3" in core.of(fx.MessageRefused)[0].reason
    assert core.q.leader_id == 2


def test_a_leader_who_names_another_for_its_epoch_never_led():
    """Somebody said it leads, and it says itself that it doesn't: the one it names is followed."""
    core = Core()
    core.ask(BeginEpochRequest(None, 2, 5))
    core.fetched(error=ErrorCode.not_leader_or_follower, leader_id=3)
    assert not core.of(fx.MessageRefused)
    assert (core.role, core.q.leader_id) == ("Follower", 3)
    assert core.sent(FetchRequest)[0][0] == 3


# EndQuorumEpoch


def test_who_resigns_names_the_best_successors_first():
    """EndQuorumEpoch: preferred successors by their log end offsets, the longest first."""
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


@pytest.mark.parametrize(
    ("place", "least_ms", "most_ms"), [(0, 0, 1), (1, 1, 510), (-1, 900, 1010)]
)
def test_successors_stand_in_their_order(place, least_ms, most_ms):
    """EndQuorumEpoch handling: the first stands at once, the others after a backoff that grows
    with their place; who isn't named waits longest."""
    core = Core()
    core.follow(2, 5)
    order = [key(3)]
    if place >= 0:
        order.insert(place, key(1))
    core.ask(EndEpochRequest(2, 5, tuple(order)))
    began = core.now_ms
    while core.role == "Follower":
        core.pass_ms(1)
    assert least_ms <= core.now_ms - began <= most_ms


@pytest.mark.parametrize("voters", range(2, 8))
def test_backoffs_double_from_place_to_place(voters):
    """EndQuorumEpoch handling: exponential backoff within the election backoff's maximum."""
    waits = [backoff_ms(place, 1_000, voters) for place in range(voters - 1)]
    assert waits[0] == 0
    assert all(2 * one == two for one, two in pairwise(waits[1:]))
    assert max(waits) <= 1_000 == backoff_ms(-1, 1_000, voters)


def test_who_hears_of_a_resignation_encourages_others():
    """EndQuorumEpoch handling: the leader is gone, so others may stand too."""
    core = Core()
    core.follow(2, 5)
    core.ask(EndEpochRequest(2, 5, (key(3), key(1))))
    assert core.ask(vote(3, 5, (100, 5), pre_vote=True)).granted


def test_a_resigned_leader_votes_for_nobody_in_its_epoch_and_leaves_it():
    """EndQuorumEpoch: having resigned, it refuses votes of its epoch and moves on to the next."""
    core = leading()
    core.tell(Resign())
    assert not core.ask(vote(3, 1, (50, 0))).granted
    core.pass_ms(2_100)
    assert core.q.epoch > 1


# Fetch: the leader's side


def test_the_leader_opens_its_epoch_with_a_leader_change_record():
    """LeaderChangeMessage: the first record of an epoch, with the voters and who granted."""
    core = Core(log=log((3, 7)), stored=ElectionState(3))
    core.win()
    order = [k for k in kinds(core.effects) if k not in (fx.LeaderChanged, fx.SendRequest)]
    assert order == [fx.PersistQuorumState, fx.AppendLeaderChange, fx.SyncLog]
    change = core.of(fx.AppendLeaderChange)[0]
    assert change == fx.AppendLeaderChange(7, 4, (1, 2, 3), (1, 2))


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(0, ErrorCode.fenced_leader_epoch), (2, ErrorCode.unknown_leader_epoch)],
)
def test_fetches_of_another_epoch_are_refused(epoch, error):
    """Fetch response: FENCED_LEADER_EPOCH below the leader's epoch, UNKNOWN_LEADER_EPOCH above."""
    answer = leading().fetch_from(2, 0, 0, epoch=epoch)
    assert (answer.error, answer.leader_id, answer.epoch) == (error, 1, 1)


def test_who_doesnt_lead_says_who_does():
    """Fetch response: NOT_LEADER_OR_FOLLOWER, with the leader's id and epoch."""
    core = Core()
    core.follow(3, 5)
    answer = core.fetch_from(2, 0, 0)
    assert (answer.error, answer.leader_id, answer.epoch) == (
        ErrorCode.not_leader_or_follower,
        3,
        5,
    )


@pytest.mark.parametrize(("offset", "last_epoch"), [(-1, 0), (0, -1), (0, 7)])
def test_impossible_fetches_are_refused(offset, last_epoch):
    """Fetch handling: INVALID_REQUEST."""
    assert leading().fetch_from(2, offset, last_epoch).error == ErrorCode.invalid_request


def test_a_diverging_log_is_told_where_the_epoch_ended():
    """Fetch response: DivergingEpoch is the leader's largest epoch up to the fetcher's, with its
    end; only a matching position counts as an acknowledgement."""
    core = Core(log=log((1, 4), (3, 4)), stored=ElectionState(3))
    core.win()
    assert core.fetch_from(2, 6, 2).diverging == OffsetAndEpoch(4, 1)
    assert core.fetch_from(2, 3, 2).diverging == OffsetAndEpoch(4, 1)
    assert core.fetch_from(2, 9, 3).diverging == OffsetAndEpoch(8, 3)
    assert core.fetch_from(2, 4, 1).read_from == 4
    assert core.q.role.voters[2].end_offset == 4


def test_a_fetch_with_nothing_to_answer_is_parked_until_records_come():
    """Fetch: long polling; an append wakes those who wait."""
    core = leading()
    core.fetch_from(2, 1, 1)
    assert core.fetch_from(2, 1, 1) is None
    core.append(2)
    assert fx.ServeParkedSoon() in core.effects
    core.tell(ServeParked())
    (answer,) = core.of(fx.SendResponse)
    assert answer.response.read_from == 1


def test_a_parked_fetch_is_answered_empty_when_its_wait_is_over():
    """Fetch: MaxWaitMs."""
    core = leading()
    core.fetch_from(2, 1, 1)
    assert core.fetch_from(2, 1, 1) is None
    core.pass_ms(499)
    assert not core.of(fx.SendResponse)
    core.pass_ms(2)
    assert core.of(fx.SendResponse)[0].response.read_from is None


def test_a_leader_that_steps_down_answers_those_who_wait():
    """Fetch: parked fetches end with NOT_LEADER_OR_FOLLOWER."""
    core = leading()
    core.fetch_from(2, 1, 1)
    assert core.fetch_from(2, 1, 1) is None
    core.ask(BeginEpochRequest(None, 3, 9))
    errors = [
        effect.response.error
        for effect in core.of(fx.SendResponse)
        if isinstance(effect.response, FetchResponse)
    ]
    assert errors == [ErrorCode.not_leader_or_follower]


# The high watermark


def test_the_fetch_offset_is_the_acknowledgement():
    """High watermark: the leader takes a voter's fetch offset for what that voter has."""
    core = leading()
    core.append(3)
    core.sync()
    core.fetch_from(2, 3, 1)
    assert core.q.high_watermark == 3


def test_a_new_leader_tells_no_high_watermark_before_its_first_commit():
    """High watermark: unknown (-1) until a record of the leader's own epoch is committed."""
    core = Core(log=log((1, 4)), stored=ElectionState(1))
    core.win()
    core.sync()
    assert core.fetch_from(2, 4, 1).high_watermark == -1
    core.fetch_from(2, 5, 2)
    assert core.fetch_from(3, 4, 1).high_watermark == 5


def test_observers_dont_count():
    """Observers: they fetch as followers do, and neither vote nor advance the high watermark."""
    core = leading()
    core.fetch_from(9, 1, 1)
    assert core.q.high_watermark == 0
    assert [k.node_id for k in core.q.role.observers] == [9]


def test_a_replica_of_another_directory_doesnt_count():
    """Observers, with KIP-853's keys: a voter's id with another directory is somebody else."""
    voters = VoterSet(Voter(key(i)) for i in (1, 2, 3))
    core = leading(found=[MembershipRecord(-1, 1, voters)])
    stranger = FetchRequest(ReplicaKey(2, key(7).directory_id), 1, 3, 1, 500, 0)
    core.ask(stranger)
    assert core.q.high_watermark == 0
    core.fetch_from(2, 3, 1)
    assert core.q.high_watermark == 3


# Fetch: the follower's side


def test_a_voter_without_a_leader_asks_the_others():
    """Leader discovery: Fetch to any voter, whose answer names the leader."""
    core = Core()
    (sent,) = core.sent(FetchRequest)
    response = FetchResponse(ErrorCode.not_leader_or_follower, 3, 7)
    core.tell(ResponseReceived(sent[0], sent[1], response))
    assert (core.role, core.q.leader_id, core.q.epoch) == ("Follower", 3, 7)
    assert core.sent(FetchRequest)[0][0] == 3


def test_an_observer_neither_stands_nor_forgets_to_look_for_a_leader():
    """Observers: they look for a leader as long as it takes, by Fetch alone."""
    core = Core(node_id=9, can_vote=False)
    sent = core.pass_ms(5_000)
    assert core.role == "Unattached"
    assert not [
        effect
        for effect in sent
        if isinstance(effect, fx.SendRequest) and not isinstance(effect.request, FetchRequest)
    ]
    assert core.q.role.slot.in_flight is not None


def test_a_diverging_follower_truncates_and_asks_again():
    """Fetch handling: truncation to the end of the common epoch, which is durable before the next
    fetch."""
    core = Core(log=log((1, 4), (2, 4)), stored=ElectionState(2))
    core.follow(2, 5)
    core.fetched(diverging=OffsetAndEpoch(6, 1))
    assert core.of(fx.TruncateLog) == [fx.TruncateLog(4, 1)]
    order = kinds(core.effects)
    assert order.index(fx.TruncateLog) < order.index(fx.SendRequest)
    assert core.sent(FetchRequest)[0][1].offset == 4


@pytest.mark.parametrize(
    ("runs", "leader_end", "offset"),
    [
        (((1, 4), (2, 4)), (6, 2), 6),  # the same epoch: where the shorter of both ends
        (((1, 4), (2, 4)), (2, 1), 2),
        (((1, 4), (3, 4)), (9, 2), 4),  # an epoch we lack: where our one before it ends
        (((2, 4),), (3, 1), 0),  # all of ours are later
        (((2, 4),), (0, 0), 0),
    ],
)
def test_where_a_follower_cuts(runs, leader_end, offset):
    """Fetch handling: the truncation point is the largest that both logs may have in common."""
    assert log(*runs).truncation_point(OffsetAndEpoch(*leader_end)) == offset


def test_committed_records_are_never_cut():
    """Fetch handling: truncation below the high watermark is a fatal inconsistency."""
    core = Core()
    core.follow(2, 5)
    core.fetched(records=records(0, (5, 4)), high_watermark=3)
    core.sync()
    core.fetched(diverging=OffsetAndEpoch(2, 5))
    assert "below the high watermark 3" in core.of(fx.Fatal)[0].reason


@pytest.mark.parametrize(
    "demand", [{"diverging": OffsetAndEpoch(2, 5)}, {"snapshot": OffsetAndEpoch(2, 5)}]
)
def test_a_leader_that_only_a_request_has_named_ends_nobody(demand):
    """The same of one that is no voter: it is left, and what is committed stays."""
    core = Core()
    core.ask(BeginEpochRequest(None, 9, 5, ("host", 9)))
    core.fetched(records=records(0, (5, 4)), high_watermark=3)
    core.sync()
    core.fetched(**demand)
    assert "high watermark 3" in core.of(fx.MessageRefused)[0].reason
    assert not core.of(fx.Fatal)
    assert (core.role, core.q.role.lost, core.q.log.end) == ("Follower", True, 4)
    assert (core.pass_ms(200), core.role)[1] == "Prospective"


def test_the_high_watermark_follows_the_leaders_within_our_log():
    """Fetch handling: it is the lower of the leader's and our log's end, and never goes back."""
    core = Core()
    core.follow(2, 5)
    core.fetched(records=records(0, (5, 2)), high_watermark=10)
    assert core.q.high_watermark == 2
    core.sync()
    core.fetched(high_watermark=1)
    assert core.q.high_watermark == 2


def test_records_that_dont_continue_the_log_are_ignored():
    """Fetch handling: records must begin at our end, in epochs from our last to the leader's."""
    core = Core(log=log((4, 5)), stored=ElectionState(4))
    core.follow(2, 5)
    for unfit in (records(3, (5, 2)), records(5, (3, 1)), records(5, (6, 1))):
        core.fetched(records=unfit)
        assert core.q.log.end == 5, unfit
        core.pass_ms(50)


def test_an_answer_of_an_old_epoch_is_ignored():
    """Fetch handling: an answer counts only in the epoch in which it was asked for."""
    core = Core()
    core.follow(2, 5)
    old = core.q.role.slot.in_flight
    core.ask(BeginEpochRequest(None, 2, 6))
    response = FetchResponse(NONE, 2, 5, 9, records=records(0, (5, 2)))
    core.tell(ResponseReceived(2, old, response))
    assert core.q.log.end == 0
    assert core.q.high_watermark == 0


def test_a_leader_that_says_it_leads_no_more_is_lost():
    """Fetch handling: NOT_LEADER_OR_FOLLOWER from the leader itself ends the wait for it."""
    core = Core()
    core.follow(2, 5)
    slot = core.q.role.slot
    answer = FetchResponse(ErrorCode.not_leader_or_follower, -1, 5)
    core.tell(ResponseReceived(2, slot.in_flight, answer))
    core.pass_ms(60)
    assert core.role == "Prospective"


def test_a_leader_that_no_majority_fetches_from_resigns():
    """Fetch timeout of the leader (check quorum): observers don't keep it in office, and one other
    of five voters doesn't either."""
    core = Core(voters=5)
    core.pass_ms(60)
    for voter in (2, 3):
        core.answer_votes(voter, pre_vote=True)
    for voter in (2, 3):
        core.answer_votes(voter)
    core.sync()
    for _ in range(10):
        core.pass_ms(1_000)
        for node in (2, 3, 9):
            core.fetch_from(node, 1, 1)
    assert core.role == "Leader"
    for _ in range(4):
        core.pass_ms(1_000)
        for node in (2, 9):
            core.fetch_from(node, 1, 1)
    assert core.role != "Leader"
