"""KIP-853, a test a rule: the leader adds, removes and updates voters, and raises kraft.version."""

from dataclasses import replace

import pytest
from core_rig import NONE, Core, key, log, vote
from kip853_rig import (
    add,
    answer,
    at,
    caught_up,
    commit,
    dynamic,
    later_leader,
    leading,
    probed,
    remove,
    update,
    voter,
    voters,
)

from raft import effects as fx
from raft.effects import ElectionState
from raft.events import RequestAbandoned, RequestFailed, Resign, UpgradeKraftVersion
from raft.messages import BeginEpochRequest, EndEpochRequest
from raft.voters import ReplicaKey, Voter, says_nothing_committed
from wire.errors import ErrorCode

TIMED_OUT = ErrorCode.request_timed_out


def upgrade(core, level=1, *, validate_only=False):
    """(error, message) of an upgrade that is answered at once; None of one that waits."""
    core.tell(UpgradeKraftVersion(77, level, validate_only))
    return upgraded(core)


def upgraded(core):
    found = core.of(fx.UpgradeAnswered)
    return (found[0].error, found[0].message) if found else None


# The leader's own record


def test_a_refusal_by_a_leader_that_has_committed_nothing_can_be_told_from_others():
    """The command line asks again after it, and after no other of that code."""
    core = later_leader()
    for refusal in (add(core, 4), remove(core, 2)):
        assert refusal == (TIMED_OUT, "the leader has committed nothing of its epoch 2 yet")
        assert says_nothing_committed(refusal[1])
    commit(core, 2)
    add(core, 4)
    error, message = remove(core, 2)
    assert error is TIMED_OUT
    assert not says_nothing_committed(message)


def test_the_first_leader_writes_the_bootstrap_set_into_the_log():
    """Bootstrapping: the voters' own snapshots may differ, the log is one: level and set follow
    LeaderChange in the same batch."""
    core = dynamic()
    core.win()
    (change,) = core.of(fx.AppendLeaderChange)
    assert change == fx.AppendLeaderChange(0, 1, (1, 2, 3), (1, 2), (1, voters(1, 2, 3)))
    assert (core.q.log.end, core.q.history.voters_offset) == (3, 2)


def test_a_later_leader_writes_no_set():
    """Endpoints information: the log has a set already, and what it says of the leader is true."""
    core = later_leader()
    assert core.of(fx.AppendLeaderChange)[0].membership is None


def test_a_leader_that_has_moved_says_so_as_it_takes_over():
    """Endpoints information: a leader whose entry is out of date writes it with LeaderChange."""
    moved = voter(1, port=9999)
    core = later_leader(moved)
    assert core.of(fx.AppendLeaderChange)[0].membership == (1, voters(moved, 2, 3))


# Adding voters


def test_a_voter_is_added_once_it_is_probed_caught_up_and_committed():
    """Adding voters, all steps: ApiVersions, the fetch at the log's end, the record, its commit by
    a majority of the new set."""
    core = leading()
    caught_up(core, 4)
    token = add(core, 4)
    assert core.of(fx.ProbeVoter)[0].voter.key == voter(4).key
    assert probed(core, token) is None
    assert core.of(fx.AppendMembership) == [
        fx.AppendMembership(3, 1, None, voters(1, 2, 3, 4))
    ]  # fmt: skip
    assert core.q.voters == voters(1, 2, 3, 4)
    core.sync()
    core.fetch_from(2, 4, 1)
    assert answer(core, token) is None, "two of four are no majority"
    core.fetch_from(4, 4, 1)
    assert answer(core, token) == (NONE, None)


def test_the_new_voter_gets_the_range_that_it_told():
    """Adding voters: the record has the kraft.version range of the ApiVersions answer."""
    core = leading()
    caught_up(core, 4)
    probed(core, add(core, 4), (0, 1))
    assert core.q.voters.get(4) == voter(4)


def test_what_the_new_voter_had_fetched_counts_at_once():
    """Adding voters: its progress as an observer is its progress as a voter."""
    core = leading()
    caught_up(core, 4)
    probed(core, add(core, 4))
    progress = core.q.role.voters[4]
    assert (progress.end_offset, core.q.role.observers) == (3, {})


def test_a_lagging_node_is_waited_for():
    """Adding voters: the record isn't appended before the node has the leader's log."""
    core = leading()
    core.append()
    core.fetch_from(4, 0, 0)
    token = add(core, 4)
    assert probed(core, token) is None
    assert not core.of(fx.AppendMembership)
    caught_up(core, 4)
    assert core.of(fx.AppendMembership)


def test_a_node_that_stays_behind_isnt_added():
    """Adding voters: REQUEST_TIMED_OUT when the request's time is over."""
    core = leading()
    core.append()
    core.fetch_from(4, 0, 0)
    token = add(core, 4, timeout_ms=300)
    probed(core, token)
    core.pass_ms(299)
    assert answer(core, token) is None
    core.pass_ms(1)
    assert answer(core, token)[0] == TIMED_OUT
    assert core.q.voters.ids == (1, 2, 3)


def test_a_node_that_nobody_knows_isnt_waited_for():
    """Adding voters, as Kafka: whoever has never fetched is refused once it is probed."""
    core = leading()
    caught_up(core, 4)
    token = add(core, voter(4, disk=1))
    error, message = probed(core, token)
    assert error == TIMED_OUT
    assert "doesn't fetch from this leader; those that do: node 4 with" in message
    probed(core, add(core, 4))
    assert core.of(fx.AppendMembership)


def test_a_caller_in_no_hurry_holds_up_no_other_change():
    """Its time counts only once the record is there: until then, as in Kafka, the quorum's own."""
    core = leading()
    core.append()
    core.fetch_from(4, 0, 0)
    token = add(core, 4, timeout_ms=2**31 - 1)
    probed(core, token)
    core.pass_ms(core.q.config.voter_change_ms)
    assert answer(core, token)[0] == TIMED_OUT
    assert core.q.role.change is None


def test_a_written_change_is_waited_for_as_long_as_its_caller_says():
    core = leading()
    caught_up(core, 4)
    token = add(core, 4, timeout_ms=5000)
    probed(core, token)
    for _ in range(4):
        core.pass_ms(1000)
        core.fetch_from(2, 3, 1)
        core.fetch_from(3, 3, 1)
    assert answer(core, token) is None
    core.pass_ms(1000)
    assert answer(core, token) == (TIMED_OUT, "the change, at offset 3, isn't committed yet")


@pytest.mark.parametrize("written", [False, True])
def test_a_caller_that_is_gone_ends_its_change_unless_it_is_written(written):
    core = leading()
    if written:
        caught_up(core, 4)
    else:
        core.append()
        core.fetch_from(4, 0, 0)
    token = add(core, 4)
    probed(core, token)
    core.tell(RequestAbandoned(token + 1))
    assert core.q.role.change is not None
    core.tell(RequestAbandoned(token))
    assert (core.q.role.change is not None) == written
    if not written:
        assert remove(core, 3) is not None
        assert core.of(fx.AppendMembership)[0].voters == voters(1, 2)


def test_a_node_that_was_caught_up_long_ago_isnt():
    """Adding voters: one that has stopped fetching would hold up every commit."""
    core = leading()
    caught_up(core, 4)
    for _ in range(30):
        core.pass_ms(100)
        core.fetch_from(2, 3, 1)
    probed(core, add(core, 4))
    assert not core.of(fx.AppendMembership)


def test_a_node_that_doesnt_answer_isnt_added():
    """Adding voters: REQUEST_TIMED_OUT, with its address."""
    core = leading()
    caught_up(core, 4)
    error, message = probed(core, add(core, 4), None)
    assert error == TIMED_OUT
    assert "host:9004" in message


@pytest.mark.parametrize("levels", [(0, 0), (2, 3)])
def test_a_node_that_doesnt_support_the_level_isnt_added(levels):
    """Adding voters: INVALID_REQUEST unless its range has the finalised kraft.version."""
    core = leading()
    caught_up(core, 4)
    error, message = probed(core, add(core, 4), levels)
    assert error == ErrorCode.invalid_request
    assert f"kraft.version {levels[0]} to {levels[1]}, but 1" in message
    assert core.q.voters.ids == (1, 2, 3)


@pytest.mark.parametrize("disk", [0, 1])
def test_an_id_can_be_a_voter_once(disk):
    """Adding voters: DUPLICATE_VOTER, for another disk too, whose former self must go first."""
    error, message = add(leading(), voter(2, disk=disk))
    assert error == ErrorCode.duplicate_voter
    assert "node 2" in message


def test_a_voter_needs_a_directory_id_and_the_controllers_listener():
    """AddRaftVoter: INVALID_REQUEST otherwise."""
    core = leading()
    nameless = replace(voter(4), key=ReplicaKey(4))
    unreachable = replace(voter(4), endpoints={"OTHER": ("host", 1)})
    assert add(core, nameless)[0] == ErrorCode.invalid_request
    error, message = add(core, unreachable)
    assert error == ErrorCode.invalid_request
    assert "CONTROLLER" in message
    assert "OTHER" in message


def test_who_asks_for_itself_is_answered_when_the_record_is_appended():
    """KIP-1186: it fetches on the connection on which it asks, and the commit may need it."""
    core = leading()
    caught_up(core, 4)
    token = add(core, 4, until_committed=False)
    assert probed(core, token) == (NONE, None)
    assert core.q.history.voters_offset == 3


def test_who_asks_for_itself_too_early_is_told_at_once():
    """KIP-1186: it can't catch up while its own request is in the way."""
    core = leading()
    core.append()
    core.fetch_from(4, 0, 0)
    assert probed(core, add(core, 4, until_committed=False))[0] == TIMED_OUT


# Removing voters


def test_a_removed_voter_is_out_with_the_record_and_answered_with_its_commit():
    """Removing voters: the majority that commits the record is the new set's."""
    core = leading()
    token = remove(core, 3)
    assert core.q.voters == voters(1, 2)
    core.sync()
    core.fetch_from(3, 4, 1)
    assert answer(core, token) is None, "the removed one doesn't count"
    core.fetch_from(2, 4, 1)
    assert answer(core, token) == (NONE, None)


def test_a_removed_voter_is_an_observer():
    """Removing voters: what is known of it stays, and it may fetch on."""
    core = leading()
    remove(core, 3)
    assert list(core.q.role.observers) == [voter(3).key]
    assert list(core.q.role.voters) == [2]


def test_a_leader_that_removes_itself_leads_until_that_is_committed():
    """Removing voters: it replicates the record without counting itself, then resigns."""
    core = leading()
    token = remove(core, 1)
    assert (core.role, core.q.voters) == ("Leader", voters(2, 3))
    core.sync()
    core.fetch_from(2, 4, 1)
    assert core.role == "Leader", "one of two is no majority"
    core.fetch_from(3, 4, 1)
    assert answer(core, token) == (NONE, None)
    assert core.role == "ResignedLeader"
    assert [peer for peer, _ in core.sent(EndEpochRequest)] == [2, 3]


def removed_and_crashed(high_watermark, *, left=(2, 3), **rest):
    """Node 1 starts again with a log whose last record, at 3, leaves it out: 2 and 3 remain."""
    found = [at(2, 1, 2, 3)._replace(kraft_version=1), at(3, *left)]
    stored = ElectionState(1, 3, None)
    core = Core(0, own=voter(1), found=found, log=log((1, 4)), stored=stored, **rest)
    core.fetched(high_watermark=high_watermark)
    return core


def stand_late(core):
    """Let the time pass after which a controller stands that is no voter."""
    core.pass_ms(core.q.config.outsider_wait_ms - 1)
    assert core.role in ("Follower", "Unattached")
    until_ms = core.now_ms + core.q.config.election_timeout_ms * 2
    while core.role in ("Follower", "Unattached"):
        assert core.now_ms < until_ms
        core.pass_ms(10)
    assert core.role == "Prospective"


@pytest.mark.parametrize("high_watermark", [3, 4])
def test_an_outsider_that_may_be_needed_as_leader_stands_late(high_watermark):
    """Removing voters (and Ongaro's dissertation, 4.2.2): nobody else may have the latest log, and
    without it nobody can be elected. Its removal may be committed, and what came after be what only
    outsiders have. It stands, but has no vote of its own, and leads for no longer than it must."""
    core = removed_and_crashed(high_watermark)
    stand_late(core)
    assert core.q.role.ballot.votes == {}
    core.answer_votes(2, pre_vote=True)
    assert core.role == "Prospective", "one of two is no majority"
    core.answer_votes(3, pre_vote=True)
    core.answer_votes(2)
    core.answer_votes(3)
    assert core.role == "Leader"
    assert core.of(fx.AppendLeaderChange)[0].membership is None
    core.sync()
    core.fetch_from(2, 4, 1)
    core.fetch_from(3, 4, 1)
    assert core.role == "Leader", "neither voter has what it has"
    commit(core, 2, 3)
    assert core.role == "ResignedLeader", "now they have"
    (end,) = {request.successors[0].node_id for _, request in core.sent(EndEpochRequest)}
    assert end in (2, 3)


def test_an_outsider_that_was_not_elected_waits_as_long_again():
    """Removing voters: the voters' own elections are not to be disturbed."""
    core = removed_and_crashed(high_watermark=4)
    for _ in range(3):
        stand_late(core)
        core.answer_votes(2, pre_vote=True)
        core.answer_votes(3, pre_vote=True, granted=False)
        assert core.role == "Follower"
    core.ask(vote(2, 2, (9, 1)))
    assert core.q.voted == key(2)
    stand_late(core)


def test_an_outsider_that_hears_its_leader_does_not_stand():
    """Removing voters: an observer like any other."""
    core = removed_and_crashed(high_watermark=4)
    for _ in range(100):
        core.pass_ms(500)
        core.fetched(high_watermark=4)
        assert core.role == "Follower"


def test_an_outsider_looks_for_a_leader_while_it_waits():
    """Bootstrap servers: the voters of its log may all have been replaced."""
    core = removed_and_crashed(high_watermark=4, bootstrap=(-2, -3))
    asked = set()
    until_ms = core.now_ms + core.q.config.outsider_wait_ms - 1
    while core.now_ms < until_ms:
        slot = core.q.role.slot
        if slot.in_flight is not None:
            asked.add(slot.peer_id)
            core.tell(RequestFailed(slot.peer_id, slot.in_flight))
        core.pass_ms(1)
    assert core.role == "Follower"
    assert asked == {2, 3, -2, -3}


def test_a_former_disk_of_a_voter_is_an_outsider_that_does_not_count():
    """Removing voters: a voter is its disk, so what this one holds is no vote and no copy."""
    core = removed_and_crashed(high_watermark=3, left=(voter(1, disk=1), 2, 3))
    stand_late(core)
    core.answer_votes(2, pre_vote=True)
    assert core.role == "Prospective"
    core.answer_votes(3, pre_vote=True)
    core.answer_votes(2)
    core.answer_votes(3)
    commit(core, 2)
    assert core.role == "Leader", "one of three, whatever this node holds"
    assert not core.q.role.committed_in_epoch
    commit(core, 3)
    assert core.role == "ResignedLeader"


def test_an_outsider_that_leads_is_not_taken_for_a_fork_of_the_quorum():
    """Removing voters: that the voter of its id is another disk says nothing new to it."""
    core = removed_and_crashed(high_watermark=3, left=(voter(1, disk=1), 2, 3))
    stand_late(core)
    for pre_vote in (True, False):
        core.answer_votes(2, pre_vote=pre_vote)
        core.answer_votes(3, pre_vote=pre_vote)
    assert core.role == "Leader"
    core.ask(
        BeginEpochRequest(voter(1, disk=1).key, 2, core.q.epoch + 1, leader_address=("host", 9002))
    )
    assert not core.of(fx.MessageRefused)
    assert (core.role, core.q.leader_id) == ("Follower", 2)


@pytest.mark.parametrize(
    "core",
    [
        dynamic((2, 3)),
        Core(0, own=voter(1), found=[at(2, 2, 3)], log=log((1, 3)), can_vote=False),
        Core(0, own=voter(1), found=[at(2, 2, 3)], log=log((1, 3)), needs_end=9),
    ],
    ids=["with nothing but its format", "a broker", "damaged"],
)
def test_no_outsider_stands_whose_log_can_not_be_needed(core):
    """Removing voters: its log isn't one that somebody was promised to."""
    core.pass_ms(600_000)
    assert core.role == "Unattached"
    assert core.q.epoch in (0, 1)
    assert core.q.role.election_at_ms is None


@pytest.mark.parametrize("who", [voter(4).key, voter(2, disk=1).key])
def test_who_isnt_a_voter_cant_be_removed(who):
    """Removing voters: VOTER_NOT_FOUND unless id and directory id are a voter's."""
    error, message = remove(leading(), who)
    assert error == ErrorCode.voter_not_found
    assert f"node {who.node_id}" in message


def test_the_last_voter_stays():
    """Removing voters: the set is never empty."""
    error, message = remove(leading((1,)), 1)
    assert error == ErrorCode.voter_not_found
    assert "only voter" in message


def test_a_removal_that_isnt_committed_in_time_is_answered_so():
    """Removing voters: REQUEST_TIMED_OUT; the record may be committed later all the same."""
    core = leading()
    token = remove(core, 3)
    core.fetch_from(3, 4, 1)
    for _ in range(19):
        core.pass_ms(100)
        core.fetch_from(2, 3, 1)
    assert answer(core, token) is None
    core.pass_ms(100)
    assert answer(core, token)[0] == TIMED_OUT
    assert core.q.voters == voters(1, 2)


# One change at a time


@pytest.mark.parametrize("change", [lambda core: add(core, 5), lambda core: remove(core, 2)])
def test_nothing_begins_while_a_change_is_under_way(change):
    """One change at a time: REQUEST_TIMED_OUT while another waits for its node."""
    core = leading()
    add(core, 4)
    assert change(core)[0] == TIMED_OUT


@pytest.mark.parametrize("change", [lambda core: add(core, 5), lambda core: remove(core, 2)])
def test_nothing_begins_while_the_last_change_is_uncommitted(change):
    """One change at a time: also where nobody waits for the last one any more."""
    core = leading()
    update(core, voter(2, port=9999))
    error, message = change(core)
    assert error == TIMED_OUT
    assert "offset 3" in message
    commit(core, 2, 3)
    assert not isinstance(change(core), tuple)


@pytest.mark.parametrize("change", [lambda core: add(core, 4), lambda core: remove(core, 2)])
def test_nothing_begins_before_the_leader_has_committed_in_its_epoch(change):
    """One change at a time: a record of an earlier leader may still be undone until then."""
    core = later_leader()
    core.sync()
    error, message = change(core)
    assert error == TIMED_OUT
    assert "epoch 2" in message


def test_nothing_changes_with_static_voters():
    """Feature kraft.version: UNSUPPORTED_VERSION at level 0."""
    core = Core(3, own=voter(1))
    core.win()
    core.sync()
    core.fetch_from(2, 1, 1)
    assert add(core, 4)[0] == ErrorCode.unsupported_version
    assert remove(core, 2)[0] == ErrorCode.unsupported_version


def test_only_the_leader_changes_voters():
    """AddRaftVoter, RemoveRaftVoter: NOT_LEADER_OR_FOLLOWER."""
    core = dynamic()
    core.follow(2, 1)
    assert add(core, 4)[0] == ErrorCode.not_leader_or_follower
    assert remove(core, 3)[0] == ErrorCode.not_leader_or_follower


def test_a_change_ends_with_the_leadership():
    """Adding voters: who waits is told, and asks the next leader."""
    core = leading()
    token = add(core, 4)
    core.tell(Resign())
    assert answer(core, token)[0] == ErrorCode.not_leader_or_follower


# Endpoints information: UpdateRaftVoter


def test_a_voter_that_has_moved_is_updated():
    """UpdateRaftVoter: the set gets its entry at once; it isn't told of the commit."""
    core = leading()
    moved = voter(2, port=9999)
    assert update(core, moved) == (NONE, None)
    assert core.of(fx.AppendMembership) == [fx.AppendMembership(3, 1, None, voters(1, moved, 3))]


def test_nothing_is_written_for_what_is_known():
    """UpdateRaftVoter: an entry that is up to date stays."""
    core = leading()
    assert update(core, voter(2)) == (NONE, None)
    assert not core.of(fx.AppendMembership)


def test_only_a_voter_is_updated():
    """UpdateRaftVoter: VOTER_NOT_FOUND for another id, or another disk of an id."""
    core = leading()
    assert update(core, voter(4))[0] == ErrorCode.voter_not_found
    assert update(core, voter(2, disk=1))[0] == ErrorCode.voter_not_found


def test_a_voter_must_go_on_supporting_the_level():
    """UpdateRaftVoter: INVALID_REQUEST where its range lacks the finalised one, or is none."""
    core = leading()
    assert update(core, voter(2, levels=(0, 0)))[0] == ErrorCode.invalid_request
    assert update(core, voter(2, levels=(-1, 1)))[0] == ErrorCode.invalid_request
    assert update(core, replace(voter(2), endpoints={}))[0] == ErrorCode.invalid_request


def test_an_update_is_for_the_leader_of_its_epoch():
    """UpdateRaftVoter: FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH otherwise."""
    core = leading(stored=ElectionState(6))
    assert update(core, voter(2), epoch=6)[0] == ErrorCode.fenced_leader_epoch
    assert update(core, voter(2), epoch=8)[0] == ErrorCode.unknown_leader_epoch


# kraft.version


def static(*, told=()):
    """A leader of static voters 1 to 3, to whom some have told of themselves."""
    core = Core(3, own=voter(1))
    core.win()
    core.sync()
    core.fetch_from(2, 1, 1)
    for node_id in told:
        assert update(core, voter(node_id)) == (NONE, None)
    return core


def test_the_static_voters_become_those_of_the_log():
    """Upgrade of kraft.version: level and set in one batch, the set with all directory ids."""
    core = static(told=(2, 3))
    assert upgrade(core) is None
    assert core.of(fx.AppendMembership) == [fx.AppendMembership(1, 1, 1, voters(1, 2, 3))]
    assert (core.q.history.kraft_version, core.q.voters) == (1, voters(1, 2, 3))
    assert core.q.role.voters[2].end_offset == 1, "what was known of a voter stays"
    core.sync()
    assert upgraded(core) is None
    core.fetch_from(3, 3, 1)
    assert upgraded(core) == (NONE, "")
    assert remove(core, 3), "and now they can be changed"


def test_it_takes_word_from_every_voter():
    """Upgrade of kraft.version: INVALID_UPDATE_VERSION while a directory id isn't known."""
    error, message = upgrade(static(told=(2,)))
    assert error == ErrorCode.invalid_update_version
    assert "voters 3 " in message


def test_it_takes_support_by_every_voter():
    """Upgrade of kraft.version: INVALID_UPDATE_VERSION where a range lacks the level."""
    core = static(told=(2,))
    update(core, voter(3, levels=(0, 0)))
    assert upgrade(core)[0] == ErrorCode.invalid_update_version


def test_a_voter_told_of_by_another_leader_tells_again():
    """Upgrade of kraft.version: what a leader is told lasts as long as it leads."""
    core = static(told=(2, 3))
    core.tell(Resign())
    core.pass_ms(10_000)
    core.win()
    core.sync()
    core.fetch_from(2, core.q.log.end, core.q.epoch)
    assert upgrade(core)[0] == ErrorCode.invalid_update_version


@pytest.mark.parametrize("told", [(), (2, 3)])
def test_validating_writes_nothing(told):
    """Upgrade of kraft.version: validate_only gives the same refusals."""
    core = static(told=told)
    expected = NONE if told else ErrorCode.invalid_update_version
    assert upgrade(core, validate_only=True)[0] == expected
    assert (core.q.history.kraft_version, core.q.log.end) == (0, 1)


def test_the_level_never_goes_down_nor_beyond_what_there_is():
    """Upgrade of kraft.version: 0 to 1 is all that there is; at 1, 1 is nothing new."""
    core = leading()
    assert upgrade(core, 0)[0] == ErrorCode.invalid_update_version
    assert upgrade(core, 2)[0] == ErrorCode.invalid_update_version
    assert upgrade(core, 1) == (NONE, "")
    assert core.q.log.end == 3


def test_only_the_leader_upgrades():
    """Upgrade of kraft.version: NOT_LEADER_OR_FOLLOWER."""
    core = Core(3)
    core.follow(2, 1)
    assert upgrade(core)[0] == ErrorCode.not_leader_or_follower


def test_no_other_change_beside_an_upgrade():
    """Upgrade of kraft.version: it is a change of the voters like any other."""
    core = static(told=(2, 3))
    upgrade(core)
    assert remove(core, 2)[0] == TIMED_OUT
    assert upgrade(core)[0] == TIMED_OUT


def test_a_static_voter_is_told_of_by_id():
    """Upgrade of kraft.version: UpdateRaftVoter at level 0 takes any directory id of a voter."""
    core = static(told=(2,))
    assert update(core, voter(2, disk=1)) == (NONE, None)
    assert update(core, voter(9))[0] == ErrorCode.voter_not_found
    assert core.q.role.told_voters.get(2) == voter(2, disk=1)
    assert core.q.voters.get(2) == Voter(ReplicaKey(2)), "nothing of it is in force"
    assert core.q.voters.contains(key(2))
