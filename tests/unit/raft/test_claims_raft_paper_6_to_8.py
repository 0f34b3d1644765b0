"""The Raft paper (Ongaro and Ousterhout, extended version), §6 to §8: a test a claim.

See test_claims_raft_paper.py for §5, and for how its words map to ours.
"""

from core_rig import Core, log, snapshot_slice, vote
from raft_stage import Stage

from raft import effects as fx
from raft.effects import ElectionState
from raft.events import ConfirmLeadership, SnapshotFrozen
from raft.messages import BeginEpochRequest
from raft.voters import OffsetAndEpoch
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


# §6 Cluster membership (what isn't KIP-853's)


def test_servers_that_hear_a_leader_disregard_requests_for_votes():
    """§6: if a server receives RequestVote within the minimum election timeout of hearing from a
    current leader, it doesn't grant its vote; here by the pre-vote, whose term isn't taken up."""
    core = Core()
    core.follow(2, 5)
    assert not core.ask(vote(3, 5, (100, 5), pre_vote=True)).granted
    assert (core.role, core.q.epoch) == ("Follower", 5)


def test_who_joins_as_a_non_voting_member_is_replicated_to_and_not_counted():
    """§6: the leader replicates log entries to new servers, but they are not considered for
    majorities."""
    core = leading()
    assert core.fetch_from(9, 0, 0).read_from == 0
    core.fetch_from(9, 1, 1)
    assert core.q.high_watermark == 0


# §7 Log compaction


def test_a_leader_sends_its_snapshot_to_who_lags_too_far_behind():
    """§7: the leader must send snapshots to followers that lag behind when it has already discarded
    the next log entry that it needs to send."""
    snapshot = OffsetAndEpoch(6, 2)
    core = Core(
        log=log((2, 4), start=6, earliest_snapshot=snapshot, latest_snapshot=snapshot),
        stored=ElectionState(2),
    )
    core.win()
    assert core.fetch_from(2, 5, 2).snapshot == snapshot
    assert core.fetch_from(2, 6, 2).read_from == 6


def test_a_snapshot_of_what_the_log_lacks_replaces_the_log():
    """§7: if the snapshot contains new information, the follower discards its entire log."""
    core = Core(log=log((1, 3)), stored=ElectionState(1))
    core.follow(2, 5)
    core.fetched(snapshot=OffsetAndEpoch(50, 4))
    snapshot_slice(core, 100)
    core.tell(SnapshotFrozen(OffsetAndEpoch(50, 4), True))
    assert fx.RestartLog(OffsetAndEpoch(50, 4), 1) in core.effects
    assert core.q.log.last == OffsetAndEpoch(50, 4)


def test_a_snapshot_of_a_prefix_keeps_what_follows():
    """§7: if the snapshot describes a prefix of its log, entries following it are still valid and
    must be retained."""
    core = Core(log=log((4, 9)), stored=ElectionState(4))
    core.follow(2, 5)
    core.fetched(snapshot=OffsetAndEpoch(6, 4))
    snapshot_slice(core, 100)
    core.tell(SnapshotFrozen(OffsetAndEpoch(6, 4), True))
    assert not core.of(fx.RestartLog)
    assert core.q.log.end == 9


def test_servers_with_a_snapshot_go_on_as_if_they_had_the_log():
    """§7: a server that loaded a snapshot holds the same state as one that replayed the log."""
    stage = Stage(3).start()
    stage.elect(1)
    stage.crash(3)
    for value in "abcdef":
        stage.append(1, [value])
    stage.pass_ms(100)
    stage.members[1].take_snapshot(trim=True)
    stage.boot_node(3)
    stage.pass_ms(1_000)
    assert stage.disks[3].start > 0
    assert len({member.digest for member in stage.members.values()}) == 1


# §8 Client interaction


def test_a_leader_begins_its_term_with_an_entry_of_its_own():
    """§8: each leader commits a blank no-op entry at the start of its term, to find out which
    entries are committed; until then it tells nobody."""
    core = Core(log=log((1, 4)), stored=ElectionState(1))
    core.win()
    assert core.of(fx.AppendLeaderChange)[0].base_offset == 4
    core.sync()
    assert core.fetch_from(3, 4, 1).high_watermark == -1
    core.fetch_from(2, 5, 2)
    assert core.fetch_from(3, 4, 1).high_watermark == 5


def test_a_read_asks_and_waits_for_an_answer_of_a_majority():
    """§8: a leader exchanges heartbeats with a majority before responding to read-only requests."""
    core = committed()
    core.hear_announced(2)
    core.hear_announced(3)
    core.tell(ConfirmLeadership(7))
    assert [peer_id for peer_id, _ in core.sent(BeginEpochRequest)] == [2, 3]
    assert not core.of(fx.LeadershipConfirmed)
    core.hear_announced(3)
    assert core.of(fx.LeadershipConfirmed) == [fx.LeadershipConfirmed(7, 1)]


def test_a_read_waits_until_the_leader_has_committed_in_its_term():
    """§8: a leader must have the latest information on which entries are committed."""
    core = leading()
    core.tell(ConfirmLeadership(7))
    core.hear_announced(2)
    core.hear_announced(2)
    assert not core.of(fx.LeadershipConfirmed)
    core.fetch_from(2, 1, 1)
    assert core.of(fx.LeadershipConfirmed) == [fx.LeadershipConfirmed(7, 1)]


def test_an_answer_to_what_was_asked_before_the_read_says_nothing():
    """§8: the heartbeats must be exchanged after the read came."""
    core = committed()  # whose first announcements are still under way
    core.tell(ConfirmLeadership(7))
    assert not core.sent(BeginEpochRequest), "one is in flight"
    core.hear_announced(2)
    assert not core.of(fx.LeadershipConfirmed)
    assert [peer_id for peer_id, _ in core.sent(BeginEpochRequest)] == [2], "asked again"
    core.hear_announced(2)
    assert core.of(fx.LeadershipConfirmed) == [fx.LeadershipConfirmed(7, 1)]


def test_fetches_confirm_no_read_however_many_come():
    """§8: a fetch may have been sent before the read, and have waited on its way to a leader that
    was paused: it is no heartbeat that was asked for."""
    core = committed()
    core.tell(ConfirmLeadership(7))
    for voter in (2, 3, 2, 3):
        core.fetch_from(voter, 1, 1)
        assert not core.of(fx.LeadershipConfirmed)


def test_a_read_asks_again_when_the_question_was_lost_but_not_at_once():
    """§8: a peer that can't be reached is left alone for a while, then asked for all reads."""
    core = committed()
    core.hear_announced(2)
    core.tell(ConfirmLeadership(7))
    core.hear_announced(2, failed=True)
    core.tell(ConfirmLeadership(8))
    assert not core.sent(BeginEpochRequest)
    core.pass_ms(500)
    assert 2 in [peer_id for peer_id, _ in core.sent(BeginEpochRequest)]
    core.hear_announced(2)
    assert core.of(fx.LeadershipConfirmed) == [
        fx.LeadershipConfirmed(7, 1),
        fx.LeadershipConfirmed(8, 1),
    ]


def test_a_refusal_confirms_nothing():
    """§8: only who follows this leader counts."""
    core = committed()
    core.hear_announced(2)
    core.tell(ConfirmLeadership(7))
    core.hear_announced(2, error=ErrorCode.invalid_voter_key)
    assert not core.of(fx.LeadershipConfirmed)


def test_reads_of_a_deposed_leader_are_refused():
    """§8: read-only operations must not return stale data."""
    core = committed()
    core.tell(ConfirmLeadership(7))
    core.ask(BeginEpochRequest(None, 3, 9))
    assert fx.LeadershipRefused(7) in core.effects
    core.tell(ConfirmLeadership(8))
    assert fx.LeadershipRefused(8) in core.effects


def test_a_lonely_leader_confirms_at_once():
    """§8: a majority of one is there already."""
    core = Core(voters=1)
    core.pass_ms(1)
    core.sync()
    core.tell(ConfirmLeadership(1))
    assert core.of(fx.LeadershipConfirmed) == [fx.LeadershipConfirmed(1, 1)]
