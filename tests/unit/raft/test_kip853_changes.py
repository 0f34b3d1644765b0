"""KIP-853, a test a rule: the leader adds, removes and updates voters, and raises kraft.version."""

from dataclasses import replace

import pytest
from core_rig import NONE, Core
from kip853_rig import (
    TIMED_OUT,
    add,
    answer,
    caught_up,
    commit,
    dynamic,
    later_leader,
    leading,
    probed,
    remove,
    removed,
    update,
    voter,
    voters,
)

from raft import effects as fx
from raft.effects import ElectionState
from raft.events import RequestAbandoned, Resign
from raft.messages import EndEpochRequest
from raft.voters import ReplicaKey, says_nothing_committed
from wire.errors import ErrorCode
from wire.uuids import to_text

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
        removed(core, 3, 2)
        assert core.of(fx.AppendMembership)[0].voters == voters(1, 2)


def test_what_a_node_had_before_it_answered_does_not_count():
    """Adding voters: its disk may have lost that since, and a voter that lacks it bears no set."""
    core = leading()
    assert core.fetch_from(4, 3, 1, high_watermark=3) is None, "parked"
    fetch = core.tokens
    core.pass_ms(1)
    assert probed(core, add(core, 4)) is None
    assert not core.of(fx.AppendMembership)
    told = [effect.token for effect in core.of(fx.SendResponse)]
    assert told == [fetch], "it is to fetch again at once"
    core.fetch_from(4, 2, 1)
    assert not core.of(fx.AppendMembership), "it has lost a record"
    caught_up(core, 4)
    assert core.of(fx.AppendMembership)


def test_a_node_that_answered_late_still_has_its_time_to_fetch():
    core = leading()
    caught_up(core, 4)
    token = add(core, 4)
    core.pass_ms(core.q.config.voter_change_ms - 1)
    probed(core, token)
    core.fetch_from(3, 3, 1)
    core.pass_ms(core.q.config.voter_change_ms - 1)
    core.fetch_from(3, 3, 1)
    assert answer(core, token) is None
    caught_up(core, 4)
    assert core.of(fx.AppendMembership)


@pytest.mark.parametrize("until_committed", [False, True])
def test_a_node_that_fetches_from_an_earlier_place_has_caught_up_with_nothing(until_committed):
    core = leading()
    caught_up(core, 4)
    core.fetch_from(4, 2, 1)
    probed(core, add(core, 4, until_committed=until_committed))
    assert not core.of(fx.AppendMembership)


def test_who_asks_for_itself_counts_by_what_it_had():
    """Auto-join: it asks on the connection on which it fetches, and waits there for its answer."""
    core = leading()
    caught_up(core, 4)
    core.pass_ms(1)
    assert probed(core, add(core, 4, until_committed=False)) == (NONE, None)
    assert core.of(fx.AppendMembership)


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
    token = removed(core, 3, 2)
    assert core.q.voters == voters(1, 2)
    core.sync()
    core.fetch_from(3, 4, 1)
    assert answer(core, token) is None, "the removed one doesn't count"
    core.fetch_from(2, 4, 1)
    assert answer(core, token) == (NONE, None)


def test_a_removed_voter_is_an_observer():
    """Removing voters: what is known of it stays, and it may fetch on."""
    core = leading()
    removed(core, 3, 2)
    assert list(core.q.role.observers) == [voter(3).key]
    assert list(core.q.role.voters) == [2]


def test_a_leader_that_removes_itself_leads_until_that_is_committed():
    """Removing voters: it replicates the record without counting itself, then resigns."""
    core = leading()
    token = removed(core, 1, 2, 3)
    assert (core.role, core.q.voters) == ("Leader", voters(2, 3))
    core.sync()
    core.fetch_from(2, 4, 1)
    assert core.role == "Leader", "one of two is no majority"
    core.fetch_from(3, 4, 1)
    assert answer(core, token) == (NONE, None)
    assert core.role == "ResignedLeader"
    assert [peer for peer, _ in core.sent(EndEpochRequest)] == [2, 3]


@pytest.mark.parametrize(("who", "left"), [(3, (1, 2)), (1, (2, 3)), (2, (1, 3))])
def test_nobody_is_removed_before_enough_of_the_others_have_answered(who, left):
    """One of them may have died a moment ago, and the new set could never commit itself."""
    core = leading()
    for node_id in (2, 3):
        core.fetch_from(node_id, core.q.log.end, 1)
    token = removed(core, who, who)
    assert answer(core, token) is None, "not by what was fetched before"
    assert core.q.voters == voters(1, 2, 3)
    for _ in range(19):
        core.pass_ms(100)
        assert answer(core, token) is None
        for node_id in (2, 3):
            core.fetch_from(node_id, core.q.log.end, 1)
    core.pass_ms(100)
    others = [node_id for node_id in left if node_id != 1]
    error, message = answer(core, token)
    assert error == TIMED_OUT
    assert f"only {2 - len(others)} of the 2 voters that would be left fetch and have" in message
    assert message.endswith(", ".join(f"node {n} with directory id {_id(n)}" for n in others))
    assert core.q.voters == voters(1, 2, 3)
    removed(core, who, *others)
    assert core.q.voters == voters(*left)


def test_who_answers_but_does_not_fetch_is_not_enough_for_a_removal():
    """As one that loads a long snapshot: it commits nothing meanwhile. 3 has died just now."""
    core = leading((1, 2, 3, 4, 5))
    for _ in range(core.q.config.fetch_timeout_ms // 100 + 1):
        core.pass_ms(100)
        for node_id in (2, 3, 5):
            core.fetch_from(node_id, core.q.log.end, 1)
    removed(core, 5, 2, 4)
    assert core.q.voters.ids == (1, 2, 3, 4, 5)


def _id(node_id):
    return to_text(voter(node_id).key.directory_id)


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
    token = removed(core, 3, 2)
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
