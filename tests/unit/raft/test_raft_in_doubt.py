"""A voter that misses nobody knows how much of its log: what it may do, and when it is whole."""

import pytest
from core_rig import Core, key, log, records, vote
from kip853_rig import at
from test_raft_node_membership import E

from raft.effects import ElectionState, SyncLog
from raft.log_view import UNKNOWN_END
from raft.messages import NO_LEADER, BeginEpochRequest, FetchRequest
from raft.voters import OffsetAndEpoch, ReplicaKey


def in_doubt(**rest):
    """A voter that follows leader 2 of epoch 7, whose log has a record at 4, committed."""
    core = Core(log=log((3, 4)), stored=ElectionState(3), needs_end=UNKNOWN_END, **rest)
    core.ask(BeginEpochRequest(None, 2, 7))
    core.fetched(records=records(4, (7, 1)), high_watermark=5)
    core.sync()
    return core


def asked_for_end(core):
    """The fetch under way is from where no log reaches, without our name, in the last epoch."""
    request = core.q.role.slot.in_flight
    if request.offset == core.q.log.end:
        return False
    assert request.offset == 2**62
    assert (request.replica, request.last_epoch) == (ReplicaKey(-1), core.q.epoch)
    return True


def test_a_voter_that_misses_nobody_knows_how_much_takes_no_part():
    core = Core(log=log((3, 4)), stored=ElectionState(3), needs_end=UNKNOWN_END)
    assert not core.ask(vote(2, 4, (50, 3))).granted
    core.pass_ms(10_000)
    assert core.role == "Unattached"


def test_it_is_whole_when_the_leader_commits_what_it_appended_since_it_was_asked_for_its_end():
    """Though more comes with every fetch, and never an answer without records."""
    core = in_doubt()
    assert asked_for_end(core)
    core.fetched(diverging=OffsetAndEpoch(7, 7), high_watermark=9)
    for offset in (5, 6, 7):
        assert not asked_for_end(core)
        core.fetched(records=records(offset, (7, 1)), high_watermark=7)
        core.sync()
        assert core.q.needs_end == UNKNOWN_END, "it has not all that it may have promised"
    core.fetched(records=records(8, (7, 1)), high_watermark=8)
    assert core.q.needs_end is None
    assert core.of(SyncLog), "it is written down"
    core.sync()
    assert core.sent(FetchRequest)[0][1].replica == key(1)
    core.pass_ms(2_100)
    assert core.role == "Prospective"


def test_it_is_whole_only_when_what_it_fetched_back_is_durable():
    core = in_doubt()
    core.fetched(diverging=OffsetAndEpoch(6, 7), high_watermark=5)
    core.fetched(records=records(5, (7, 2)), high_watermark=7)
    assert core.q.needs_end == 6
    core.sync()
    assert core.q.needs_end is None


def test_another_leader_is_asked_again():
    """The one before may have been deposed already when it told its end."""
    core = in_doubt()
    core.fetched(diverging=OffsetAndEpoch(5, 7), high_watermark=5)
    core.ask(BeginEpochRequest(None, 3, 8))
    core.fetched(high_watermark=-1)
    assert asked_for_end(core)
    core.fetched(diverging=OffsetAndEpoch(6, 8), high_watermark=6)
    core.fetched(records=records(5, (8, 1)), high_watermark=6)
    core.sync()
    assert core.q.needs_end == UNKNOWN_END
    core.fetched(records=records(6, (8, 1)), high_watermark=7)
    core.sync()
    assert core.q.needs_end is None


def test_of_two_voters_the_other_has_all_that_was_promised():
    core = in_doubt(voters=2)
    core.fetched(diverging=OffsetAndEpoch(6, 7), high_watermark=5)
    assert core.q.needs_end == UNKNOWN_END
    core.fetched(records=records(5, (7, 1)), high_watermark=5)
    core.sync()
    assert core.q.needs_end is None


def test_a_set_of_two_that_is_not_committed_proves_nothing():
    """Of the three before, two may have elected another, and this may be one of them."""
    core = in_doubt()
    core.fetched(diverging=OffsetAndEpoch(6, 7), high_watermark=5)
    pair = records(5, (7, 1))._replace(membership=(at(5, 1, 2),))
    core.fetched(records=pair, high_watermark=5)
    core.sync()
    assert (core.q.voters.ids, core.q.needs_end) == ((1, 2), UNKNOWN_END)
    core.fetched(high_watermark=6)
    assert core.q.needs_end is None


def test_who_is_in_doubt_confirms_no_read():
    """It may have voted for a later leader, which has committed what that read would miss."""
    core = in_doubt()
    answer = core.ask(BeginEpochRequest(None, 2, 7))
    assert (answer.error, answer.leader_id, answer.epoch) == (E.none, NO_LEADER, 7)
    core.fetched(diverging=OffsetAndEpoch(5, 7), high_watermark=5)
    core.fetched(records=records(5, (7, 1)), high_watermark=6)
    assert core.ask(BeginEpochRequest(None, 2, 7)).leader_id == 2


@pytest.mark.parametrize("error", [E.request_timed_out, E.kafka_storage_error])
def test_a_question_for_the_end_that_could_not_be_answered_is_asked_again(error):
    core = in_doubt()
    core.fetched(error=error, high_watermark=5)
    core.pass_ms(1_000)
    assert asked_for_end(core)


@pytest.mark.parametrize("error", [E.none, E.invalid_request, E.unknown_server_error])
def test_an_end_that_is_not_told_is_not_asked_for_again_and_again(error):
    core = in_doubt()
    core.fetched(error=error, high_watermark=5)
    core.pass_ms(1_000)
    for offset in range(5, 9):
        assert not asked_for_end(core)
        core.fetched(records=records(offset, (7, 1)), high_watermark=offset + 1)
        core.sync()
    assert core.q.needs_end == UNKNOWN_END
