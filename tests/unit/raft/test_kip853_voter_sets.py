"""KIP-853, a test a rule: which voter set is in force, and who is a voter of it."""

from core_rig import NONE, Core, key, log, records, vote
from kip853_rig import at, begin, bootstrap, dynamic, following, leading, voter, voters

from raft import effects as fx
from raft.effects import ElectionState
from raft.events import LogStartAdvanced, ResponseReceived, SnapshotFrozen
from raft.messages import FetchRequest, FetchResponse, VoteRequest
from raft.voter_history import VoterHistory
from raft.voters import MembershipRecord, OffsetAndEpoch, ReplicaKey, VoterSet
from wire.errors import ErrorCode


def with_voters(base, epoch, *ids):
    """Fetched records of which the last is a VotersRecord."""
    outline = records(base, (epoch, 2))
    return outline._replace(membership=(at(base + 1, *ids),))


# Voter set


def test_the_bootstrap_snapshot_is_in_force_until_the_log_has_a_set():
    """Bootstrapping: the set of the snapshot 0-0 stands above the configured one."""
    core = Core(5, own=voter(1), found=[bootstrap(1, 2, 3)])
    assert core.q.voters == voters(1, 2, 3)
    assert (core.q.history.kraft_version, core.q.history.voters_offset) == (1, -1)


def test_the_configured_voters_are_in_force_where_the_log_has_none():
    """Bootstrapping: static voters go on as before, with kraft.version 0."""
    core = Core(3)
    assert core.q.voters.ids == (1, 2, 3)
    assert (core.q.history.kraft_version, core.q.history.voters_offset) == (0, None)


def test_the_latest_set_is_in_force_though_it_isnt_committed():
    """Voter set: a replica uses the latest VotersRecord of its log, committed or not."""
    core = following()
    core.fetched(records=with_voters(3, 1, 1, 2, 3, 4), high_watermark=3)
    assert core.q.voters.ids == (1, 2, 3, 4)
    assert core.q.high_watermark == 3
    assert core.of(fx.VotersInForce) == [fx.VotersInForce(voters(1, 2, 3, 4), 1)]


def test_a_set_that_is_cut_off_the_log_has_never_been():
    """Voter set: truncating the record brings the set before it back."""
    core = following()
    core.fetched(records=with_voters(3, 1, 2, 3, 4), high_watermark=3)
    assert not core.q.is_voter
    core.sync()
    core.fetched(diverging=OffsetAndEpoch(3, 1), high_watermark=3)
    assert core.q.log.end == 3
    assert core.q.voters.ids == (1, 2, 3)
    assert core.q.is_voter
    assert core.of(fx.VotersInForce)[-1].voters == voters(1, 2, 3)


def test_a_replica_made_a_voter_stands_when_its_leader_is_lost():
    """Voter set: from its record on, the new voter has a voter's duties."""
    core = following((2, 3), node_id=1, own=voter(1))
    assert core.q.role.deadline_ms is None, "an observer of no leader's voters never stands"
    core.fetched(records=with_voters(3, 1, 1, 2, 3), high_watermark=3)
    core.sync()
    assert core.q.role.deadline_ms == core.now_ms + core.q.config.fetch_timeout_ms
    core.pass_ms(3000)
    assert core.role == "Prospective"


def test_a_removed_voter_follows_on_and_stands_late():
    """Removing voters: with its record it counts no more, and leaves elections to the voters."""
    core = following()
    core.fetched(records=with_voters(3, 1, 2, 3), high_watermark=3)
    assert not core.q.is_voter
    core.sync()
    core.fetched(high_watermark=5)
    assert core.q.role.deadline_ms >= core.now_ms + core.q.config.outsider_wait_ms
    core.pass_ms(core.q.config.outsider_wait_ms - 1)
    assert core.role == "Follower"
    assert not core.sent(VoteRequest)


def test_the_first_set_that_a_controller_gets_lets_it_stand_late():
    """Voter set: before it, its log was none that anybody could need."""
    core = Core(0, own=voter(1), bootstrap=(-2, -3))
    core.ask(begin(2, 5, ("host", 9002)))
    assert core.q.role.deadline_ms is None
    core.fetched(records=with_voters(0, 5, 2, 3), high_watermark=0)
    assert core.q.role.deadline_ms >= core.now_ms + core.q.config.outsider_wait_ms


def test_a_snapshot_with_the_first_set_lets_a_controller_stand_late():
    """Voter set: the same, while it follows nobody."""
    core = Core(0, own=voter(1), bootstrap=(-2, -3))
    core.ask(begin(2, 5, ("host", 9002)))
    core.fetched(snapshot=OffsetAndEpoch(9, 5), high_watermark=9)
    core.q.download.freezing = True
    core.q.role.slot.in_flight = None
    core.ask(vote(3, 6, (9, 5)))
    assert (core.role, core.q.role.election_at_ms) == ("Unattached", None)
    core.tell(SnapshotFrozen(OffsetAndEpoch(9, 5), True, at(8, 2, 3)))
    assert core.q.role.election_at_ms >= core.now_ms + core.q.config.outsider_wait_ms


def test_a_candidate_that_is_no_voter_of_its_new_log_gives_up():
    """Voter set: a snapshot can bring a set while its downloader stands."""
    core = following()
    core.fetched(snapshot=OffsetAndEpoch(9, 1), high_watermark=3)
    core.q.download.freezing = True
    core.q.role.slot.in_flight = None
    core.pass_ms(2500)
    assert core.role == "Prospective"
    core.tell(SnapshotFrozen(OffsetAndEpoch(9, 1), True, at(8, 2, 3)))
    assert core.role == "Unattached"
    assert core.q.role.election_at_ms >= core.now_ms + core.q.config.outsider_wait_ms
    assert core.q.voters.ids == (2, 3)


def test_a_candidate_counts_votes_of_the_new_set():
    """Voter set: a vote that another disk of that id gave isn't the new voter's."""
    core = following()
    core.fetched(snapshot=OffsetAndEpoch(9, 1), high_watermark=3)
    core.q.download.freezing = True
    core.q.role.slot.in_flight = None
    core.pass_ms(2500)
    core.tell(SnapshotFrozen(OffsetAndEpoch(9, 1), True, at(8, 1, voter(2, disk=1), 4)))
    asked = core.sent(VoteRequest)
    assert [(peer, request.voter) for peer, request in asked] == [
        (2, voter(2, disk=1).key), (4, voter(4).key)
    ]  # fmt: skip
    core.answer_votes(2, pre_vote=True)
    assert core.role == "Candidate"


# Directory id


def test_an_id_with_another_directory_is_no_voter():
    """Directory id: a node that lost its disk neither stands nor counts as its former self."""
    core = dynamic(own=voter(1, disk=1))
    assert not core.q.is_voter
    core.pass_ms(60_000)
    assert core.role == "Unattached"
    assert not core.sent(VoteRequest)


def test_a_vote_for_a_former_self_is_refused():
    """Vote: INVALID_VOTER_KEY where the request is for another directory of this id."""
    core = dynamic(own=voter(1, disk=1))
    answered = core.ask(vote(2, 1, voter=voter(1).key))
    assert (answered.error, answered.granted) == (ErrorCode.invalid_voter_key, False)


def test_a_vote_for_this_very_replica_is_granted_though_it_isnt_known_to_vote():
    """Vote: the receiver's own set may lag behind the candidate's, so it doesn't matter."""
    core = dynamic((2, 3), node_id=1)
    answered = core.ask(vote(2, 1, voter=voter(1).key))
    assert (answered.error, answered.granted) == (NONE, True)


def test_the_leader_tells_a_former_self_that_it_isnt_meant():
    """BeginQuorumEpoch: INVALID_VOTER_KEY, but who leads is learnt all the same."""
    core = dynamic(own=voter(1, disk=1))
    answered = core.ask(begin(2, 4)._replace(voter=voter(1).key))
    assert answered.error == ErrorCode.invalid_voter_key
    assert (core.role, core.q.leader_id) == ("Follower", 2)


def test_fetches_of_a_former_self_count_for_nothing():
    """High watermark: only a fetch of the voter's very key tells where it is."""
    core = leading()
    core.append()
    core.sync()
    core.ask(FetchRequest(voter(2, disk=1).key, 1, 4, 1, 500, 3))
    assert core.q.high_watermark == 3
    assert voter(2, disk=1).key in core.q.role.observers
    core.fetch_from(2, 4, 1)
    assert core.q.high_watermark == 4


def test_the_vote_is_remembered_with_the_candidates_directory():
    """Quorum state: votedDirectoryId; the same id on another disk is another candidate."""
    core = dynamic(stored=ElectionState(5, -1, voter(2).key))
    assert not core.ask(vote(2, 5)._replace(candidate=voter(2, disk=1).key)).granted
    assert core.ask(vote(2, 5)).granted


# Leaders that the set doesn't name


def test_a_leader_outside_the_known_set_is_followed_where_it_says_it_is():
    """BeginQuorumEpoch, LeaderEndpoints: our set may lag behind the one that elected it."""
    core = dynamic()
    assert core.ask(begin(9, 4, ("far", 9))).error == NONE
    assert (core.role, core.q.leader_id, core.q.leader_address) == ("Follower", 9, ("far", 9))


def test_a_leader_that_nobody_can_find_isnt_followed():
    """BeginQuorumEpoch: without endpoints, only one of the known set can be."""
    assert dynamic().ask(begin(9, 4)).error == ErrorCode.invalid_request


def test_a_replica_without_voters_asks_the_bootstrap_servers():
    """controller.quorum.bootstrap.servers: any of them names the leader, with its endpoint."""
    core = Core(0, node_id=7, own=voter(7), bootstrap=(-2, -3))
    ((server, request),) = core.sent(FetchRequest)
    assert server in (-2, -3)
    answered = FetchResponse(ErrorCode.not_leader_or_follower, 2, 4, leader_address=("host", 9002))
    core.tell(ResponseReceived(server, request, answered))
    assert (core.role, core.q.leader_id, core.q.leader_address) == ("Follower", 2, ("host", 9002))
    ((peer, _),) = core.sent(FetchRequest)
    assert peer == 2


# Snapshots


def test_a_snapshot_brings_its_set():
    """Snapshots: the header's VotersRecord is the set as of the snapshot's end."""
    core = following()
    core.fetched(snapshot=OffsetAndEpoch(9, 1), high_watermark=3)
    core.q.download.freezing = True
    core.tell(SnapshotFrozen(OffsetAndEpoch(9, 1), True, MembershipRecord(8, 1, voters(1, 4))))
    assert core.q.voters == voters(1, 4)
    assert core.q.history.voters_offset == 8


def test_a_snapshot_holds_the_set_as_of_its_end():
    """Snapshots: not the latest set, which may come later in the log, or never be committed."""
    history = VoterHistory(VoterSet([]), [bootstrap(1, 2, 3), at(5, 1, 2, 3, 4), at(9, 1, 2, 3)])
    assert [history.voters_before(end).ids for end in (0, 5, 6, 9, 10)] == [
        (1, 2, 3), (1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3)
    ]  # fmt: skip
    assert history.kraft_version_before(0) == 1


def test_trimming_the_log_keeps_the_set_that_is_in_force_at_its_start():
    """Snapshots: what the log loses at its head, its oldest snapshot has."""
    core = following(log=None)
    core.fetched(records=with_voters(3, 1, 1, 2), high_watermark=5)
    core.sync()
    core.fetched(high_watermark=5)
    core.q.log.add_snapshot(OffsetAndEpoch(5, 1))
    core.tell(LogStartAdvanced(OffsetAndEpoch(5, 1)))
    assert core.q.voters == voters(1, 2)
    assert core.q.history.voters_before(5) == voters(1, 2)
    assert core.q.history.has_named(voter(3).key), "who was a voter is remembered"


# Quorum state and the start


def test_a_known_leader_outside_the_set_is_looked_for_again():
    """Quorum state: the file has no endpoints, so a leader that the set lacks is asked for."""
    core = dynamic(stored=ElectionState(5, 9, None), log=log((5, 3)))
    assert (core.role, core.q.leader_id) == ("Unattached", -1)


def test_only_the_only_voter_leads_at_once():
    """Bootstrapping: a standalone controller elects itself; an observer of one voter doesn't."""
    alone = dynamic((1,))
    alone.pass_ms(1)
    assert alone.role == "Leader"
    beside = dynamic((2,), node_id=1)
    beside.pass_ms(5000)
    assert beside.role == "Unattached"


def test_a_broker_is_never_a_voter():
    """Voter set: whatever a record says, a node without the controller role doesn't vote."""
    core = dynamic((1, 2, 3), can_vote=False)
    assert not core.q.is_voter
    core.pass_ms(60_000)
    assert core.role == "Unattached"


def test_the_keys_of_static_voters_are_known_by_id_alone():
    """Directory id: with kraft.version 0 it isn't known, and any will do."""
    core = Core(3)
    assert core.q.voters.contains(key(2))
    assert core.q.voters.contains(ReplicaKey(2, voter(2, disk=5).key.directory_id))
