"""One test per claim about replication: Raft paper §5.3, §5.4.2, §6.4, §7; KIP-595, KIP-630."""

import pytest
from core_rig import NONE, Core, key, log

from raft import effects as fx
from raft.effects import ElectionState
from raft.events import (
    ConfirmLeadership,
    LogSynced,
    RequestAbandoned,
    ResponseReceived,
    ServeParked,
    SnapshotFrozen,
    SnapshotWritten,
)
from raft.messages import (
    BeginEpochRequest,
    FetchedRecords,
    FetchRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from raft.voters import MembershipRecord, OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from wire.errors import ErrorCode


def records(base, *runs):
    end, epochs = base, []
    for epoch, count in runs:
        epochs.append((epoch, end))
        end += count
    return FetchedRecords(base, end, tuple(epochs), None)


def leading(**rest):
    core = Core(**rest)
    core.win()
    core.sync()
    return core


def test_what_the_leader_hasnt_synced_doesnt_count():
    core = Core()
    core.win()
    core.fetch_from(2, 1, 1)
    assert core.q.high_watermark == 0
    core.sync()
    assert core.q.high_watermark == 1
    assert core.of(fx.HighWatermarkAdvanced) == [fx.HighWatermarkAdvanced(1)]


def test_a_majority_commits_without_the_leaders_own_disk():
    core = Core()
    core.win()
    core.fetch_from(2, 1, 1)
    core.fetch_from(3, 1, 1)
    assert core.q.high_watermark == 1


def test_records_of_older_epochs_arent_committed_by_counting():
    core = Core(log=log((1, 2), (2, 3)), stored=ElectionState(2))
    core.win()
    assert core.q.epoch == 3
    core.fetch_from(2, 5, 2)
    assert core.q.high_watermark == 0, "a majority has it, but in an older epoch"
    core.sync()
    core.fetch_from(2, 6, 3)
    assert core.q.high_watermark == 6


def test_observers_dont_count():
    core = leading()
    core.fetch_from(9, 1, 1)
    assert core.q.high_watermark == 0
    assert [k.node_id for k in core.q.role.observers] == [9]


def test_a_replica_of_another_directory_doesnt_count():
    core = leading(found=[MembershipRecord(-1, 1, VoterSet(Voter(key(i)) for i in (1, 2, 3)))])
    stranger = FetchRequest(ReplicaKey(2, key(7).directory_id), 1, 3, 1, 500, 0)
    core.ask(stranger)
    assert core.q.high_watermark == 0
    core.fetch_from(2, 3, 1)
    assert core.q.high_watermark == 3


def test_a_fetch_with_nothing_to_answer_is_parked_until_records_come():
    core = leading()
    core.fetch_from(2, 1, 1)
    assert core.fetch_from(2, 1, 1) is None
    core.append(2)
    assert fx.ServeParkedSoon() in core.effects
    core.tell(ServeParked())
    (answer,) = core.of(fx.SendResponse)
    assert answer.response.read_from == 1


def test_a_parked_fetch_is_answered_empty_when_its_wait_is_over():
    core = leading()
    core.fetch_from(2, 1, 1)
    assert core.fetch_from(2, 1, 1) is None
    core.pass_ms(499)
    assert not core.of(fx.SendResponse)
    core.pass_ms(2)
    assert core.of(fx.SendResponse)[0].response.read_from is None


def test_a_commit_is_told_to_those_who_wait():
    core = leading()
    core.fetch_from(2, 1, 1)
    core.append()
    core.sync()
    assert core.fetch_from(3, 2, 1, high_watermark=1) is None or core.q.high_watermark == 2
    core.fetch_from(9, 2, 1, high_watermark=2)  # knows it all: parked
    assert core.fetch_from(9, 2, 1, high_watermark=1).high_watermark == 2, "KIP-1166"
    core.append()
    core.tell(ServeParked())
    core.fetch_from(2, 3, 1)
    assert core.fetch_from(9, 3, 1, high_watermark=2) is None
    core.sync()
    core.tell(ServeParked())
    assert [e.response.high_watermark for e in core.of(fx.SendResponse)] == [3]


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(0, ErrorCode.fenced_leader_epoch), (2, ErrorCode.unknown_leader_epoch)],
)
def test_fetches_of_another_epoch_are_refused(epoch, error):
    core = leading()
    answer = core.fetch_from(2, 0, 0, epoch=epoch)
    assert (answer.error, answer.leader_id, answer.epoch) == (error, 1, 1)


@pytest.mark.parametrize(("offset", "last_epoch"), [(-1, 0), (0, -1), (0, 7)])
def test_impossible_fetches_are_refused(offset, last_epoch):
    core = leading()
    assert core.fetch_from(2, offset, last_epoch).error == ErrorCode.invalid_request


def test_who_doesnt_lead_says_who_does():
    core = Core()
    core.follow(3, 5)
    answer = core.fetch_from(2, 0, 0)
    assert (answer.error, answer.leader_id) == (ErrorCode.not_leader_or_follower, 3)


def test_a_diverging_log_is_told_where_the_epoch_ended():
    core = Core(log=log((1, 4), (3, 4)), stored=ElectionState(3))
    core.win()
    assert core.fetch_from(2, 6, 2).diverging == OffsetAndEpoch(4, 1)
    assert core.fetch_from(2, 9, 3).diverging == OffsetAndEpoch(8, 3)
    assert core.fetch_from(2, 4, 1).read_from == 4
    assert core.q.role.voters[2].end_offset == 4, "only a matching position counts"


def test_a_follower_fetches_again_only_when_what_it_got_is_durable():
    core = Core()
    core.follow(2, 5)
    core.fetched(records=records(0, (4, 2), (5, 1)))
    assert core.of(fx.AppendFetched)
    assert fx.SyncLog() in core.effects
    assert not core.sent(FetchRequest)
    core.sync()
    ((peer, request),) = core.sent(FetchRequest)
    assert (peer, request.offset, request.last_epoch) == (2, 3, 5)


def test_an_observer_fetches_on_without_waiting_for_its_disk():
    core = Core(node_id=9, can_vote=False)
    core.follow(2, 5)
    core.fetched(records=records(0, (5, 2)))
    assert core.sent(FetchRequest)[0][1].offset == 2


def test_the_high_watermark_follows_the_leaders_within_our_log():
    core = Core()
    core.follow(2, 5)
    core.fetched(records=records(0, (5, 2)), high_watermark=10)
    assert core.q.high_watermark == 2
    core.sync()
    core.fetched(high_watermark=1)
    assert core.q.high_watermark == 2, "it never goes back"


def test_records_that_dont_continue_the_log_are_ignored():
    core = Core(log=log((4, 5)), stored=ElectionState(4))
    core.follow(2, 5)
    core.fetched(records=records(3, (5, 2)))
    assert core.q.log.end == 5
    core.pass_ms(50)
    core.fetched(records=records(5, (3, 1)))
    assert core.q.log.end == 5, "an epoch older than the last one"
    core.pass_ms(50)
    core.fetched(records=records(5, (6, 1)))
    assert core.q.log.end == 5, "an epoch that hasn't begun"


def test_a_diverging_follower_truncates_and_asks_again():
    core = Core(log=log((1, 4), (2, 4)), stored=ElectionState(2))
    core.follow(2, 5)
    core.fetched(diverging=OffsetAndEpoch(6, 1))
    assert core.of(fx.TruncateLog) == [fx.TruncateLog(4, 1)]
    order = [type(e) for e in core.effects]
    assert order.index(fx.TruncateLog) < order.index(fx.SendRequest)
    assert core.sent(FetchRequest)[0][1].offset == 4


def test_committed_records_are_never_cut():
    core = Core()
    core.follow(2, 5)
    core.fetched(records=records(0, (5, 4)), high_watermark=3)
    core.sync()
    core.fetched(diverging=OffsetAndEpoch(2, 5))
    assert "below the high watermark 3" in core.of(fx.Fatal)[0].reason


def test_a_sync_begun_before_a_truncation_isnt_credited_after_it():
    core = Core(log=log((1, 4)), stored=ElectionState(1))
    core.follow(2, 5)
    core.fetched(records=records(4, (2, 4)))
    began = core.q.log.truncations
    core.fetched_before = core.q.role.slot
    core.q.log.truncate(5)
    core.q.log.append(5, 5, 7)
    core.tell(LogSynced(8, began))
    assert core.q.log.synced_end == 5


def test_a_fetch_from_the_start_gets_the_snapshot():
    core = Core(log=log((1, 10)), stored=ElectionState(1))
    core.tell(SnapshotWritten(OffsetAndEpoch(6, 1)))
    core.win()
    assert core.fetch_from(2, 0, 0).snapshot == OffsetAndEpoch(6, 1)
    assert core.fetch_from(2, 6, 1).read_from == 6


def test_a_trimmed_log_sends_those_behind_to_the_snapshot():
    snapshot = OffsetAndEpoch(6, 2)
    core = Core(
        log=log((2, 4), start=6, earliest_snapshot=snapshot, latest_snapshot=snapshot),
        stored=ElectionState(2),
    )
    core.win()
    assert core.fetch_from(2, 5, 2).snapshot == snapshot
    assert core.fetch_from(2, 6, 1).snapshot == snapshot
    assert core.fetch_from(2, 6, 2).read_from == 6


def snapshot_slice(core, length, size=100, error=NONE):
    slot = core.q.role.slot
    request = slot.in_flight
    assert isinstance(request, FetchSnapshotRequest), request
    return core.tell(
        ResponseReceived(
            slot.peer_id,
            request,
            FetchSnapshotResponse(
                error, core.q.leader_id, core.q.epoch, request.snapshot, request.position,
                size, length, b"x" * length,
            ),
        )
    )  # fmt: skip


def test_a_snapshot_is_fetched_in_slices_and_then_replaces_the_log():
    core = Core(log=log((1, 3)), stored=ElectionState(1))
    core.follow(2, 5)
    wanted = OffsetAndEpoch(50, 4)
    core.fetched(snapshot=wanted)
    snapshot_slice(core, 60)
    assert core.of(fx.WriteSnapshotSlice)[0].position == 0
    assert core.sent(FetchSnapshotRequest)[0][1].position == 60
    snapshot_slice(core, 40)
    assert fx.FreezeSnapshot(wanted) in core.effects
    assert not core.of(fx.SendRequest), "nothing to ask for until it is durable"
    core.tell(SnapshotFrozen(wanted, True))
    assert [type(e) for e in core.effects] == [
        fx.RestartLog, fx.HighWatermarkAdvanced, fx.SendRequest
    ]  # fmt: skip
    assert (core.q.log.start, core.q.log.end, core.q.high_watermark) == (50, 50, 50)
    request = core.sent(FetchRequest)[0][1]
    assert (request.offset, request.last_epoch) == (50, 4)


def test_a_download_goes_on_where_it_was_when_the_same_leader_is_back():
    core = Core()
    core.follow(2, 5)
    core.fetched(snapshot=OffsetAndEpoch(50, 4))
    snapshot_slice(core, 60)
    core.ask(BeginEpochRequest(None, 2, 6))
    assert core.sent(FetchSnapshotRequest)[0][1].position == 60
    core.ask(BeginEpochRequest(None, 3, 7))
    assert core.sent(FetchRequest), "another leader's file may differ: begin again"


@pytest.mark.parametrize("error", [ErrorCode.snapshot_not_found, ErrorCode.position_out_of_range])
def test_a_snapshot_that_is_gone_is_asked_for_anew(error):
    core = Core()
    core.follow(2, 5)
    core.fetched(snapshot=OffsetAndEpoch(50, 4))
    snapshot_slice(core, 0, error=error)
    core.pass_ms(50)
    assert core.sent(FetchRequest)


def test_an_unusable_download_is_fetched_again():
    core = Core()
    core.follow(2, 5)
    core.fetched(snapshot=OffsetAndEpoch(50, 4))
    snapshot_slice(core, 100)
    core.tell(SnapshotFrozen(OffsetAndEpoch(50, 4), False))
    core.pass_ms(50)
    assert core.sent(FetchRequest)
    assert core.q.log.end == 0


def test_the_bootstrap_snapshot_is_never_given_away():
    core = leading()
    answer = core.ask(FetchSnapshotRequest(key(2), 1, OffsetAndEpoch(0, 0), 0))
    assert answer.error == ErrorCode.snapshot_not_found


def test_a_damaged_voter_is_whole_once_it_is_past_its_old_end():
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
    assert core.role == "Prospective", "it may stand again"


# Linearizable reads (Raft paper §6.4)


def committed():
    core = leading()
    core.fetch_from(2, 1, 1)
    return core


def test_a_read_asks_and_waits_for_an_answer_of_a_majority():
    core = committed()
    core.hear_announced(2)
    core.hear_announced(3)
    core.tell(ConfirmLeadership(7))
    assert [peer_id for peer_id, _ in core.sent(BeginEpochRequest)] == [2, 3]
    assert not core.of(fx.LeadershipConfirmed)
    core.hear_announced(3)
    assert core.of(fx.LeadershipConfirmed) == [fx.LeadershipConfirmed(7, 1)]


def test_an_answer_to_what_was_asked_before_the_read_says_nothing():
    core = committed()  # whose first announcements are still under way
    core.tell(ConfirmLeadership(7))
    assert not core.sent(BeginEpochRequest), "one is in flight"
    core.hear_announced(2)
    assert not core.of(fx.LeadershipConfirmed)
    assert [peer_id for peer_id, _ in core.sent(BeginEpochRequest)] == [2], "asked again"
    core.hear_announced(2)
    assert core.of(fx.LeadershipConfirmed) == [fx.LeadershipConfirmed(7, 1)]


def test_fetches_confirm_no_read_however_many_come():
    """They may have been sent before it, and have waited on the way to a leader that was paused."""
    core = committed()
    core.tell(ConfirmLeadership(7))
    for _ in range(3):
        core.fetch_from(2, 1, 1)
        core.fetch_from(3, 1, 1)
        assert not core.of(fx.LeadershipConfirmed)


def test_a_read_asks_again_when_the_question_was_lost_but_not_at_once():
    core = committed()
    core.hear_announced(2)
    core.tell(ConfirmLeadership(7))
    core.hear_announced(2, failed=True)
    core.tell(ConfirmLeadership(8))
    assert not core.sent(BeginEpochRequest), "a peer that can't be reached is left alone a while"
    core.pass_ms(500)
    assert 2 in [peer_id for peer_id, _ in core.sent(BeginEpochRequest)]
    core.hear_announced(2)
    assert core.of(fx.LeadershipConfirmed) == [
        fx.LeadershipConfirmed(7, 1),
        fx.LeadershipConfirmed(8, 1),
    ]


def test_a_refusal_confirms_nothing():
    core = committed()
    core.hear_announced(2)
    core.tell(ConfirmLeadership(7))
    core.hear_announced(2, error=ErrorCode.invalid_voter_key)
    assert not core.of(fx.LeadershipConfirmed)


def test_a_read_waits_until_the_leader_has_committed_in_its_epoch():
    core = leading()
    core.tell(ConfirmLeadership(7))
    core.hear_announced(2)
    core.hear_announced(2)
    assert not core.of(fx.LeadershipConfirmed)
    core.fetch_from(2, 1, 1)
    assert core.of(fx.LeadershipConfirmed) == [fx.LeadershipConfirmed(7, 1)]


def test_reads_of_a_deposed_leader_are_refused():
    core = committed()
    core.tell(ConfirmLeadership(7))
    core.ask(BeginEpochRequest(None, 3, 9))
    assert fx.LeadershipRefused(7) in core.effects
    core.tell(ConfirmLeadership(8))
    assert fx.LeadershipRefused(8) in core.effects


def test_a_lonely_leader_confirms_at_once():
    core = Core(voters=1)
    core.pass_ms(1)
    core.sync()
    core.tell(ConfirmLeadership(1))
    assert core.of(fx.LeadershipConfirmed) == [fx.LeadershipConfirmed(1, 1)]


def test_a_deposed_leader_answers_those_it_let_wait():
    core = committed()
    assert core.fetch_from(2, 1, 1) is None
    core.ask(BeginEpochRequest(None, 3, 9))
    errors = [e.response.error for e in core.of(fx.SendResponse) if hasattr(e.response, "records")]
    assert errors == [ErrorCode.not_leader_or_follower]


def test_an_abandoned_fetch_is_forgotten():
    core = committed()
    core.fetch_from(2, 1, 1)
    core.tell(RequestAbandoned(core.tokens))
    core.append()
    core.tell(ServeParked())
    assert not core.of(fx.SendResponse)
