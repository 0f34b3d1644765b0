"""KIP-630 (snapshots), a test a rule: who is behind the log's start loads a snapshot instead."""

import pytest
from core_rig import NONE, Core, key, log, records, snapshot_slice, vote

from raft import effects as fx
from raft.effects import ElectionState
from raft.events import LogStartAdvanced, SnapshotFrozen, SnapshotWritten
from raft.log_view import LogView
from raft.messages import BeginEpochRequest, FetchRequest, FetchSnapshotRequest
from raft.voters import OffsetAndEpoch
from wire.errors import ErrorCode

TRIMMED = OffsetAndEpoch(6, 2)


def trimmed_leader():
    """Leads epoch 3 with a log of epoch 2 from offset 6 on, behind its snapshot."""
    core = Core(
        log=log((2, 4), start=6, earliest_snapshot=TRIMMED, latest_snapshot=TRIMMED),
        stored=ElectionState(2),
    )
    core.win()
    return core


def downloading(offset=50, epoch=4, **rest):
    core = Core(**rest)
    core.follow(2, 5)
    core.fetched(snapshot=OffsetAndEpoch(offset, epoch))
    return core


def test_a_snapshots_id_is_its_end_offset_and_the_epoch_before_it():
    """Snapshot format: (end offset, epoch) names a snapshot; the log goes on at that offset."""
    core = Core(log=log((1, 4), (2, 6)), stored=ElectionState(2))
    core.tell(SnapshotWritten(OffsetAndEpoch(4, 1)))
    assert core.q.log.epoch_at(4) == 1
    assert core.q.log.latest_snapshot == OffsetAndEpoch(4, 1)


@pytest.mark.parametrize(
    ("offset", "epoch"),
    [
        (0, 0),  # from the very start
        (5, 2),  # below the log start offset
        (6, 1),  # at it, in another epoch than the snapshot's
        (6, 3),
        (8, 1),  # above it, in an epoch before the snapshot's
    ],
)
def test_who_is_behind_the_log_start_is_told_to_load_the_snapshot(offset, epoch):
    """Fetch response: SnapshotId is set if the fetch is before the log start, or its epoch isn't
    one that the log still knows."""
    response = trimmed_leader().fetch_from(2, offset, epoch)
    assert (response.error, response.snapshot) == (NONE, TRIMMED)
    assert response.read_from is None
    assert response.diverging is None


def test_who_stands_at_the_snapshots_end_gets_records():
    """Fetch response: at the log start with the snapshot's epoch the log itself goes on."""
    response = trimmed_leader().fetch_from(2, 6, 2)
    assert (response.snapshot, response.read_from) == (None, 6)


def test_a_fetch_from_the_start_gets_the_snapshot_while_the_log_is_whole_too():
    """Fetch response: a new replica needn't replay what a snapshot holds."""
    core = Core(log=log((1, 10)), stored=ElectionState(1))
    core.tell(SnapshotWritten(OffsetAndEpoch(6, 1)))
    core.win()
    assert core.fetch_from(2, 0, 0).snapshot == OffsetAndEpoch(6, 1)
    assert core.fetch_from(2, 6, 1).read_from == 6


def test_a_fetch_that_is_told_of_a_snapshot_is_no_acknowledgement():
    """Fetch handling: only a position on the leader's log counts for the high watermark."""
    core = trimmed_leader()
    core.sync()
    core.fetch_from(2, 5, 2)
    core.fetch_from(3, 0, 0)
    assert core.q.high_watermark <= TRIMMED.offset


def test_the_log_start_moves_to_a_snapshots_end():
    """When to increase the log start offset: only to where a snapshot ends."""
    core = Core(log=log((1, 4), (2, 6)), stored=ElectionState(2))
    snapshot = OffsetAndEpoch(6, 2)
    core.tell(SnapshotWritten(snapshot))
    core.tell(LogStartAdvanced(snapshot))
    assert (core.q.log.start, core.q.log.end, core.q.log.earliest_snapshot) == (6, 10, snapshot)


def test_an_empty_log_behind_a_snapshot_has_the_snapshots_epoch():
    """Changes to leader election: the last epoch is the snapshot's where the log holds nothing."""
    view = LogView(start=50, end=50, earliest_snapshot=OffsetAndEpoch(50, 4),
                   latest_snapshot=OffsetAndEpoch(50, 4))  # fmt: skip
    assert view.last == OffsetAndEpoch(50, 4)


def test_a_snapshot_is_fetched_in_slices_and_then_replaces_the_log():
    """FetchSnapshot: bytes in order from position 0; then the whole log is dropped for it, the
    high watermark is its end, and fetching goes on there."""
    core = downloading(log=log((1, 3)), stored=ElectionState(1))
    wanted = OffsetAndEpoch(50, 4)
    assert core.sent(FetchSnapshotRequest) == [(2, FetchSnapshotRequest(key(1), 5, wanted, 0))]
    snapshot_slice(core, 60)
    assert core.of(fx.WriteSnapshotSlice)[0].position == 0
    assert core.sent(FetchSnapshotRequest)[0][1].position == 60
    snapshot_slice(core, 40)
    assert fx.FreezeSnapshot(wanted) in core.effects
    assert not core.of(fx.SendRequest), "nothing to ask for until it is durable"
    core.tell(SnapshotFrozen(wanted, True))
    assert [type(effect) for effect in core.effects] == [
        fx.RestartLog,
        fx.HighWatermarkAdvanced,
        fx.SendRequest,
    ]
    assert (core.q.log.start, core.q.log.end, core.q.high_watermark) == (50, 50, 50)
    request = core.sent(FetchRequest)[0][1]
    assert (request.offset, request.last_epoch) == (50, 4)


def test_a_download_goes_on_where_it_was_when_the_same_leader_is_back():
    """FetchSnapshot: a fetch goes on from the position reached; another leader's file may differ
    in its bytes, so with that one it begins again."""
    core = downloading()
    snapshot_slice(core, 60)
    core.ask(BeginEpochRequest(None, 2, 6))
    assert core.sent(FetchSnapshotRequest)[0][1].position == 60
    core.ask(BeginEpochRequest(None, 3, 7))
    assert core.sent(FetchRequest)


def test_who_has_lost_its_leader_looks_for_one_by_fetch():
    """FetchSnapshot: only the leader that offered the snapshot is asked for it."""
    core = downloading()
    snapshot_slice(core, 60)
    core.ask(vote(3, 6))
    assert core.role == "Unattached"
    assert core.sent(FetchRequest)
    assert not core.sent(FetchSnapshotRequest)


@pytest.mark.parametrize("error", [ErrorCode.snapshot_not_found, ErrorCode.position_out_of_range])
def test_a_snapshot_that_is_gone_is_asked_for_anew(error):
    """FetchSnapshot errors: SNAPSHOT_NOT_FOUND and POSITION_OUT_OF_RANGE lead back to Fetch."""
    core = downloading()
    snapshot_slice(core, 0, error=error)
    core.pass_ms(50)
    assert core.sent(FetchRequest)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"snapshot": OffsetAndEpoch(51, 4)}, "another snapshot"),
        ({"position": 7}, "another position"),
        ({"size": 200}, "another size than before"),
        ({"length": 0}, "nothing"),
        ({"length": 41}, "more than the size says"),
    ],
)
def test_a_slice_that_doesnt_fit_ends_the_download(changes, place):
    """FetchSnapshot: a slice must be of the snapshot, at the position and of the size expected."""
    core = downloading()
    snapshot_slice(core, 60)
    snapshot_slice(core, changes.pop("length", 40), **changes)
    assert not core.of(fx.WriteSnapshotSlice), place
    core.pass_ms(50)
    assert core.sent(FetchRequest), place


def test_an_unusable_download_is_fetched_again():
    """Validation: a snapshot counts only once it is whole and durable."""
    core = downloading()
    snapshot_slice(core, 100)
    core.tell(SnapshotFrozen(OffsetAndEpoch(50, 4), False))
    core.pass_ms(50)
    assert core.sent(FetchRequest)
    assert core.q.log.end == 0


def test_a_snapshot_below_the_high_watermark_is_refused():
    """Validation: what is committed here is never replaced by an older state."""
    core = Core(log=log((5, 60)), stored=ElectionState(5))
    core.follow(2, 5)
    core.fetched(high_watermark=55)
    core.fetched(snapshot=OffsetAndEpoch(50, 4))
    assert "below our high watermark 55" in core.of(fx.Fatal)[0].reason


def test_a_log_that_came_to_hold_the_snapshot_is_kept():
    """Raft paper §7 within KIP-630: records behind a snapshot that the log already agrees with
    stay."""
    core = downloading(offset=6, epoch=4, log=log((4, 6)), stored=ElectionState(4))
    snapshot_slice(core, 100)
    core.tell(SnapshotFrozen(OffsetAndEpoch(6, 4), True))
    assert not core.of(fx.RestartLog)
    assert core.q.log.latest_snapshot == OffsetAndEpoch(6, 4)
    assert core.q.log.end == 6


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(2, ErrorCode.fenced_leader_epoch), (4, ErrorCode.unknown_leader_epoch)],
)
def test_snapshot_fetches_of_another_epoch_are_refused(epoch, error):
    """FetchSnapshot errors: FENCED_LEADER_EPOCH below, UNKNOWN_LEADER_EPOCH above ours."""
    answer = trimmed_leader().ask(FetchSnapshotRequest(key(2), epoch, TRIMMED, 0))
    assert (answer.error, answer.leader_id, answer.epoch) == (error, 1, 3)


def test_who_doesnt_lead_serves_no_snapshot():
    """FetchSnapshot errors: NOT_LEADER_OR_FOLLOWER, with the leader's id."""
    core = Core()
    core.follow(3, 5)
    answer = core.ask(FetchSnapshotRequest(key(2), 5, TRIMMED, 0))
    assert (answer.error, answer.leader_id) == (ErrorCode.not_leader_or_follower, 3)


def test_a_negative_position_is_out_of_range():
    """FetchSnapshot errors: POSITION_OUT_OF_RANGE."""
    answer = trimmed_leader().ask(FetchSnapshotRequest(key(2), 3, TRIMMED, -1))
    assert answer.error == ErrorCode.position_out_of_range


def test_the_bootstrap_snapshot_is_never_given_away():
    """FetchSnapshot errors: SNAPSHOT_NOT_FOUND for 0-0, which is each node's own (KIP-853)."""
    answer = trimmed_leader().ask(FetchSnapshotRequest(key(2), 3, OffsetAndEpoch(0, 0), 0))
    assert answer.error == ErrorCode.snapshot_not_found


def test_who_fetches_a_snapshot_keeps_its_leader():
    """FetchSnapshot: a slice is a sign of life of the leader, as a fetch's answer is."""
    core = downloading()
    for _ in range(5):
        core.pass_ms(1_500)
        snapshot_slice(core, 10)
    assert core.role == "Follower"


def test_a_leader_counts_snapshot_fetches_as_a_sign_of_life():
    """FetchSnapshot: a voter that loads a snapshot for long still follows its leader."""
    core = trimmed_leader()
    for _ in range(6):
        core.pass_ms(1_500)
        core.ask(FetchSnapshotRequest(key(2), 3, TRIMMED, 0))
    assert core.role == "Leader"


def test_a_follower_that_went_behind_a_snapshot_can_append_there():
    """After loading: the log continues at the snapshot's end, in its epoch or a later one."""
    core = downloading()
    snapshot_slice(core, 100)
    core.tell(SnapshotFrozen(OffsetAndEpoch(50, 4), True))
    core.fetched(records=records(50, (4, 1), (5, 1)))
    assert core.of(fx.AppendFetched)
    assert core.q.log.end == 52
