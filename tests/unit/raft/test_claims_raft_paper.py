"""The Raft paper (Ongaro and Ousterhout, extended version), §5: a test a claim.

An epoch here is the paper's term. Followers pull: an answered Fetch is the paper's AppendEntries,
its offset and last epoch are the consistency check, and the next fetch offset is the reply.
Claims about several servers play on the stage (`raft_stage`), whose checks are the simulation's.
"""

import pytest
from core_rig import NONE, Core, key, log, records, vote
from raft_stage import Stage

from raft import effects as fx
from raft.effects import ElectionState
from raft.events import RequestFailed, ResponseReceived
from raft.messages import (
    BeginEpochRequest,
    BeginEpochResponse,
    EndEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    VoteRequest,
)
from raft.voters import OffsetAndEpoch, ReplicaKey
from wire.errors import ErrorCode


def leading(**rest):
    core = Core(**rest)
    core.win()
    core.sync()
    return core


def committed():
    core = leading()
    core.fetch_from(2, 1, 1)
    return core


def entries(stage, node_id):
    return stage.disks[node_id].entries


# §5.1 Raft basics


@pytest.mark.parametrize(
    "request_",
    [
        vote(2, 7),
        vote(2, 7, pre_vote=True),
        BeginEpochRequest(None, 2, 7),
        EndEpochRequest(2, 7, ()),
    ],
)
def test_a_server_takes_up_a_larger_term_from_any_request(request_):
    """§5.1: if one server's current term is smaller than the other's, it updates its own."""
    core = Core(stored=ElectionState(4))
    core.ask(request_)
    assert core.q.epoch == 7
    assert core.of(fx.PersistQuorumState)[0].state.epoch == 7


def test_a_server_takes_up_a_larger_term_from_any_response():
    """§5.1: current terms are exchanged whenever servers communicate."""
    core = Core()
    core.follow(2, 5)
    slot = core.q.role.slot
    core.tell(ResponseReceived(2, slot.in_flight, FetchResponse(NONE, -1, 8)))
    assert core.q.epoch == 8
    core = leading()
    request = BeginEpochRequest(ReplicaKey(2), 1, 1)
    core.tell(ResponseReceived(2, request, BeginEpochResponse(NONE, 3, 9)))
    assert (core.q.epoch, core.q.leader_id) == (9, 3)


@pytest.mark.parametrize("leads", [False, True])
def test_candidates_and_leaders_that_are_out_of_date_give_up_at_once(leads):
    """§5.1: a candidate or leader that discovers that its term is out of date reverts."""
    core = Core()
    core.pass_ms(60)
    core.answer_votes(2, pre_vote=True)
    if leads:
        core.answer_votes(2)
    assert core.role == ("Leader" if leads else "Candidate")
    core.ask(vote(3, 9, (0, 0)))
    assert (core.role, core.q.epoch) == ("Unattached", 9)


@pytest.mark.parametrize(
    "request_",
    [
        vote(2, 4),
        vote(2, 4, pre_vote=True),
        BeginEpochRequest(None, 2, 4),
        EndEpochRequest(2, 4, ()),
        FetchRequest(key(2), 4, 0, 0, 0, 0),
        FetchSnapshotRequest(key(2), 4, OffsetAndEpoch(3, 1), 0),
    ],
)
def test_requests_with_a_stale_term_are_rejected(request_):
    """§5.1: if a server receives a request with a stale term number, it rejects the request."""
    answer = Core(stored=ElectionState(5)).ask(request_)
    assert (answer.error, answer.epoch) == (ErrorCode.fenced_leader_epoch, 5)


def test_the_term_never_decreases():
    """§5.1: each server stores a current term number, which increases monotonically over time."""
    core = Core(stored=ElectionState(5))
    for request_ in (vote(2, 3), BeginEpochRequest(None, 3, 6), vote(2, 2), vote(3, 6)):
        before = core.q.epoch
        core.ask(request_)
        assert core.q.epoch >= before


def test_requests_are_retried():
    """§5.1: servers retry RPCs if they do not receive a response in a timely manner."""
    core = Core()
    core.pass_ms(60)
    asked = core.sent(VoteRequest)[0][1]
    core.tell(RequestFailed(2, asked))
    core.pass_ms(50)
    assert [peer for peer, _ in core.sent(VoteRequest)] == [2]
    core = Core()
    core.follow(2, 5)
    core.tell(RequestFailed(2, core.q.role.slot.in_flight))
    core.pass_ms(50)
    assert core.sent(FetchRequest)


def test_term_and_vote_are_durable_before_the_answer():
    """§5.1, figure 2: persistent state is updated on stable storage before responding to RPCs."""
    core = Core()
    assert core.ask(vote(2, 1)).granted
    order = [type(effect) for effect in core.effects]
    assert order.index(fx.PersistQuorumState) < order.index(fx.SendResponse)


def test_the_log_is_durable_before_it_is_acknowledged():
    """§5.1, figure 2: log entries are persistent before responding; here, before fetching on."""
    core = Core()
    core.follow(2, 5)
    core.fetched(records=records(0, (4, 2), (5, 1)))
    assert fx.SyncLog() in core.effects
    assert not core.sent(FetchRequest)
    core.sync()
    ((peer, request),) = core.sent(FetchRequest)
    assert (peer, request.offset, request.last_epoch) == (2, 3, 5)


# §5.2 Leader election


def test_servers_start_as_followers():
    """§5.2: when servers start up, they begin as followers."""
    assert Core().role == "Unattached"
    assert Core(stored=ElectionState(3, 2, None)).role == "Follower"


def test_who_hears_from_its_leader_stays_a_follower():
    """§5.2: a server remains a follower as long as it receives valid RPCs from a leader."""
    core = Core()
    core.follow(2, 5)
    for _ in range(20):
        core.pass_ms(1_500)
        core.fetched()
    assert (core.role, core.q.epoch) == ("Follower", 5)


def test_who_hears_nothing_for_an_election_timeout_stands():
    """§5.2: if a follower receives no communication, it assumes that there is no viable leader."""
    core = Core()
    core.follow(2, 5)
    core.pass_ms(2_010)
    assert core.role == "Prospective"


def test_a_candidate_raises_its_term_votes_for_itself_and_asks_all_others():
    """§5.2: to begin an election a follower increments its current term, transitions to candidate,
    votes for itself and issues RequestVote in parallel to each of the other servers."""
    core = Core(voters=5, stored=ElectionState(3))
    core.pass_ms(60)
    for voter in (2, 3):
        core.answer_votes(voter, pre_vote=True)
    assert (core.role, core.q.epoch, core.q.voted) == ("Candidate", 4, key(1))
    asked = [(peer, request.epoch) for peer, request in core.sent(VoteRequest)]
    assert asked == [(peer, 4) for peer in (2, 3, 4, 5)]


@pytest.mark.parametrize(("voters", "needed"), [(2, 1), (3, 1), (4, 2), (5, 2), (7, 3)])
def test_a_majority_of_votes_wins(voters, needed):
    """§5.2: a candidate wins an election if it receives votes from a majority of the servers in the
    full cluster for the same term."""
    core = Core(voters=voters)
    core.pass_ms(60)
    for voter in range(2, 2 + needed):
        core.answer_votes(voter, pre_vote=True)
    for voter in range(2, 1 + needed):
        core.answer_votes(voter)
    assert core.role == "Candidate"
    core.answer_votes(1 + needed)
    assert core.role == "Leader"


def test_one_vote_a_term_first_come_first_served():
    """§5.2: each server votes for at most one candidate in a given term, first come first
    served."""
    core = Core()
    assert core.ask(vote(2, 1)).granted
    assert not core.ask(vote(3, 1)).granted
    assert core.ask(vote(2, 1)).granted, "asked again, the same answer"
    assert core.ask(vote(3, 2)).granted, "a new term, a new vote"


def test_a_new_leader_tells_all_others_of_its_authority():
    """§5.2: it then sends heartbeat messages to all of the other servers."""
    core = Core()
    core.win()
    assert [peer for peer, _ in core.sent(BeginEpochRequest)] == [2, 3]


def test_a_candidate_that_hears_of_the_terms_leader_follows_it():
    """§5.2: if the leader's term is at least as large as its own, a candidate follows it."""
    core = Core()
    core.pass_ms(60)
    core.answer_votes(2, pre_vote=True)
    assert core.role == "Candidate"
    core.ask(BeginEpochRequest(None, 3, 1))
    assert (core.role, core.q.leader_id) == ("Follower", 3)


def test_a_candidate_rejects_a_leader_of_an_older_term():
    """§5.2: if the term is smaller, the candidate rejects the RPC and continues as candidate."""
    core = Core(stored=ElectionState(4))
    core.pass_ms(60)
    core.answer_votes(2, pre_vote=True)
    answer = core.ask(BeginEpochRequest(None, 3, 4))
    assert (answer.error, core.role) == (ErrorCode.fenced_leader_epoch, "Candidate")


def test_a_split_vote_ends_in_a_new_election():
    """§5.2: if votes are split, each candidate will time out and start a new election."""
    stage = Stage(4)
    stage.patience[2].share = stage.patience[1].share
    stage.cut(1, 4, both=False)
    stage.cut(2, 3, both=False)
    stage.start().pass_ms(30)
    assert stage.leader_ids() == []
    stage.mend()
    stage.be_first(2)
    stage.pass_ms(1_000)
    assert stage.leader_ids() == [2]
    assert stage.state(2).epoch == 2


def test_election_timeouts_are_random():
    """§5.2: randomized election timeouts ensure that split votes are rare and resolved quickly."""
    moments = set()
    for seed in range(20):
        core = Core(seed=seed)
        core.ask(vote(2, 1))
        while core.role == "Unattached":
            core.pass_ms(1)
        moments.add(core.now_ms)
    assert len(moments) > 15
    assert 1_000 <= min(moments) <= max(moments) <= 2_001


def test_election_safety():
    """§5.2, figure 3: at most one leader can be elected in a given term, whoever stands when."""
    for shares in ((0, 0, 0), (0, 0, 0.5), (0, 0.3, 0.3), (0.5, 0.5, 0)):
        stage = Stage(3)
        for node_id, share in enumerate(shares, 1):
            stage.patience[node_id].share = share
        stage.start()
        for _ in range(200):
            stage.pass_ms(10)
            leaders = [(stage.state(n).epoch, n) for n in stage.leader_ids()]
            assert len({epoch for epoch, _ in leaders}) == len(leaders)


# §5.3 Log replication


def test_a_leader_appends_what_clients_send_to_its_log():
    """§5.3: the leader appends the command to its log as a new entry, with the term."""
    core = leading()
    core.append(2)
    assert core.of(fx.AppendBatch) == [fx.AppendBatch(1, 1, None)]
    assert core.q.log.end == 3


def test_an_entry_is_committed_once_it_is_on_a_majority():
    """§5.3: an entry is committed once the leader that created it has replicated it on a majority
    of the servers; this commits all preceding entries too."""
    core = Core(voters=5)
    core.pass_ms(60)
    for voter in (2, 3):
        core.answer_votes(voter, pre_vote=True)
    for voter in (2, 3):
        core.answer_votes(voter)
    core.append(3)
    core.sync()
    core.fetch_from(2, 4, 1)
    assert core.q.high_watermark == 0
    core.fetch_from(3, 2, 1)
    assert core.q.high_watermark == 2
    core.fetch_from(4, 4, 1)
    assert core.q.high_watermark == 4


def test_the_leader_tells_followers_how_far_entries_are_committed():
    """§5.3: it includes the highest committed index in future RPCs, so that the others find out."""
    core = committed()
    assert core.fetch_from(3, 0, 0).high_watermark == 1
    follower = Core()
    follower.follow(2, 5)
    follower.fetched(records=records(0, (5, 3)), high_watermark=2)
    assert follower.of(fx.HighWatermarkAdvanced) == [fx.HighWatermarkAdvanced(2)]


def test_a_slow_follower_is_served_as_long_as_it_takes():
    """§5.3: if followers crash or run slowly, the leader retries indefinitely, even after it has
    responded to the client: it serves any position of its log."""
    core = committed()
    core.append(5)
    core.sync()
    core.fetch_from(2, 6, 1)
    assert core.q.high_watermark == 6
    for offset in range(6):
        assert core.fetch_from(3, offset, 1 if offset else 0).read_from == offset


def test_log_matching():
    """§5.3, figure 3: if two logs contain an entry with the same index and term, they store the
    same command there, and are identical in all preceding entries."""
    stage = Stage(3).start()
    stage.elect(1)
    stage.append(1, ["a"])
    stage.pass_ms(50)
    stage.isolate(1)
    stage.append(1, ["b", "c"])
    stage.pass_ms(20)
    stage.elect(2)
    stage.append(2, ["d"])
    stage.pass_ms(50)
    for one, other in ((1, 2), (2, 3), (1, 3)):
        mine, theirs = entries(stage, one), entries(stage, other)
        alike = [i for i, (x, y) in enumerate(zip(mine, theirs, strict=False))
                 if x.epoch == y.epoch]  # fmt: skip
        last = max(alike)
        assert mine[: last + 1] == theirs[: last + 1]
    assert entries(stage, 1)[-1] != entries(stage, 2)[-1]


def test_the_consistency_check():
    """§5.3: if the follower has no entry with the same index and term, new entries are refused;
    here the leader says where the logs part instead of sending any."""
    core = Core(log=log((1, 4), (3, 4)), stored=ElectionState(3))
    core.win()
    refused = core.fetch_from(2, 6, 2)
    assert (refused.read_from, refused.diverging) == (None, OffsetAndEpoch(4, 1))
    assert core.fetch_from(2, 4, 1).read_from == 4


def test_conflicting_entries_are_overwritten_with_the_leaders():
    """§5.3: conflicting entries in follower logs are overwritten with entries from the leader's."""
    stage = Stage(3).start()
    stage.elect(1)
    stage.isolate(1)
    stage.append(1, ["lost"])
    stage.pass_ms(20)
    stage.elect(2)
    stage.append(2, ["kept"])
    stage.mend()
    stage.pass_ms(1_000)
    assert entries(stage, 1) == entries(stage, 2)
    assert stage.values(1) == ["kept"]


def test_a_conflict_costs_one_round_trip_a_term():
    """§5.3: one AppendEntries RPC will be required for each term with conflicting entries."""
    core = Core(log=log((1, 4), (2, 4), (3, 4)), stored=ElectionState(3))
    core.follow(2, 5)
    core.fetched(diverging=OffsetAndEpoch(6, 2))
    assert core.of(fx.TruncateLog)[0].offset == 6
    core.fetched(diverging=OffsetAndEpoch(3, 1))
    assert core.of(fx.TruncateLog)[0].offset == 3


def test_leader_append_only():
    """§5.3, figure 3: a leader never overwrites or deletes entries in its log."""
    core = leading(log=log((1, 4)), stored=ElectionState(1))
    core.fetch_from(2, 9, 1)
    core.fetch_from(3, 3, 1)
    core.ask(FetchSnapshotRequest(key(2), 2, OffsetAndEpoch(3, 1), 0))
    core.pass_ms(1_000)
    assert not core.of(fx.TruncateLog)
    assert core.q.log.end == 5


# §5.4 Safety


@pytest.mark.parametrize(
    ("last", "granted"),
    [
        ((10, 3), True),
        ((11, 3), True),
        ((9, 3), False),
        ((5, 4), True),  # the later term is more up to date, however short
        ((50, 2), False),
    ],
)
def test_votes_go_to_logs_at_least_as_up_to_date(last, granted):
    """§5.4.1: the voter denies its vote if its own log is more up to date than the candidate's: by
    the terms of the last entries, then by length."""
    core = Core(log=log((2, 4), (3, 6)), stored=ElectionState(5))
    assert core.ask(vote(2, 6, last)).granted is granted


def test_leader_completeness():
    """§5.4.1 and §5.4.3, figure 3: a committed entry is in the logs of the leaders of all later
    terms: who lacks it can't be elected."""
    stage = Stage(3).start()
    stage.elect(1)
    stage.isolate(3)
    stage.append(1, ["x"])
    stage.pass_ms(50)
    assert stage.state(1).high_watermark == 2
    stage.crash(1)
    stage.mend()
    stage.be_first(3)
    stage.pass_ms(6_000)
    assert stage.leader_ids() == [2]
    assert stage.values(3) == ["x"]


def test_entries_of_older_terms_are_not_committed_by_counting():
    """§5.4.2: Raft never commits log entries from previous terms by counting replicas; once one of
    the current term is committed, all prior entries are committed indirectly."""
    core = Core(log=log((1, 2), (2, 3)), stored=ElectionState(2))
    core.win()
    assert core.q.epoch == 3
    core.fetch_from(2, 5, 2)
    core.fetch_from(3, 5, 2)
    assert core.q.high_watermark == 0
    core.sync()
    core.fetch_from(2, 6, 3)
    assert core.q.high_watermark == 6


def test_state_machine_safety():
    """§5.4.3, figure 3: if a server has applied an entry at an index, no other server will ever
    apply a different one there, through changes of leaders and lost records."""
    stage = Stage(3).start()
    stage.elect(1)
    for round_ in range(3):
        (leader,) = stage.leader_ids()
        stage.append(leader, [f"{round_} for all"])
        stage.pass_ms(50)
        stage.isolate(leader)
        stage.append(leader, [f"{round_} lost"])
        stage.pass_ms(50)
        stage.crash(leader)
        stage.wait(stage.leader_ids)
        stage.mend()
        stage.boot_node(leader)
        stage.pass_ms(1_500)
    assert [stage.values(n) for n in (1, 2, 3)] == [[f"{n} for all" for n in range(3)]] * 3
    assert len({member.digest for member in stage.members.values()}) == 1


# §5.5 Follower and candidate crashes


def test_repeated_requests_do_no_harm():
    """§5.5: Raft RPCs are idempotent, so a request that is sent twice causes no harm."""
    core = Core()
    assert core.ask(vote(2, 1)).granted
    assert core.ask(vote(2, 1)).granted
    core = committed()
    core.append()
    before = core.fetch_from(2, 1, 1)
    assert core.fetch_from(2, 1, 1) == before
    follower = Core()
    follower.follow(2, 5)
    request = follower.q.role.slot.in_flight
    follower.fetched(records=records(0, (5, 2)))
    answer = FetchResponse(NONE, 2, 5, records=records(0, (5, 2)))
    follower.tell(ResponseReceived(2, request, answer))
    assert follower.q.log.end == 2


def test_a_crashed_follower_catches_up_when_it_is_back():
    """§5.5: if the crashed server restarts, the RPC will complete successfully."""
    stage = Stage(3).start()
    stage.elect(1)
    stage.crash(3)
    stage.append(1, ["a", "b"])
    stage.pass_ms(100)
    stage.boot_node(3)
    stage.pass_ms(500)
    assert stage.values(3) == ["a", "b"]


# §5.6 Timing


def test_safety_does_not_depend_on_timing():
    """§5.6: the system must not produce incorrect results because some event happens later than
    expected: a leader that was asleep through an election commits nothing afterwards."""
    stage = Stage(3).start()
    stage.elect(1)
    stage.members[1].paused_until_ms = stage.now_ms + 5_000
    stage.append(1, ["late"])
    stage.elect(2)
    stage.append(2, ["in time"])
    stage.pass_ms(8_000)
    assert stage.leader_ids() == [2]
    assert [stage.values(n) for n in (1, 2, 3)] == [["in time"]] * 3
