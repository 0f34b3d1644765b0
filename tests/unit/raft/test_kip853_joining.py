"""KIP-853, a test a rule: what a controller that follows tells its leader of itself."""

from core_rig import Core, records
from kip853_rig import at, following, told, voter

from raft.effects import ChangeRefused
from raft.messages import AddVoterRequest, RemoveVoterRequest, UpdateVoterRequest
from raft.state import QuorumConfig
from wire.errors import ErrorCode

JOINING = QuorumConfig(auto_join=True)


def with_voters(base, *ids):
    return records(base, (1, 1))._replace(membership=(at(base, *ids),))


def asked(core, kind):
    """What is under way towards the leader, if it is of this kind."""
    request = core.q.role.voter_slot.in_flight
    return request if isinstance(request, kind) else None


# UpdateRaftVoter


def test_a_voter_that_has_moved_tells_the_leader():
    """Endpoints information: after a restart at another address, or with another version."""
    moved = voter(1, port=9999)
    assert asked(following(own=moved), UpdateVoterRequest) == UpdateVoterRequest(1, moved)


def test_a_voter_that_is_where_the_set_says_tells_nothing():
    """Endpoints information: its entry is up to date."""
    assert following().q.role.voter_slot.in_flight is None


def test_a_refused_update_is_tried_again():
    """UpdateRaftVoter: the last change may not be committed yet."""
    core = following(own=voter(1, port=9999))
    told(core, ErrorCode.request_timed_out)
    assert core.q.role.voter_slot.in_flight is None
    for _ in range(30):
        core.pass_ms(100)
        core.fetched(high_watermark=3)
    assert asked(core, UpdateVoterRequest)


def test_a_static_voter_tells_every_leader_once():
    """Upgrade of kraft.version: the leader needs directory id and range of every voter."""
    core = Core(3, own=voter(1))
    core.follow(2, 1)
    assert asked(core, UpdateVoterRequest) == UpdateVoterRequest(1, voter(1))
    told(core)
    core.pass_ms(1500)
    core.fetched()
    assert core.q.role.voter_slot.in_flight is None
    core.follow(3, 2)
    assert asked(core, UpdateVoterRequest) == UpdateVoterRequest(2, voter(1))


# Auto-join


def test_an_observer_asks_to_be_a_voter():
    """Auto-join: once it has fetched from the leader; the answer is wanted at the append."""
    core = following((2, 3), own=voter(1), config=JOINING)
    request = asked(core, AddVoterRequest)
    assert (request.voter, request.until_committed) == (voter(1), False)


def test_without_auto_join_it_just_follows():
    """controller.quorum.auto.join.enable: false by default."""
    core = following((2, 3), own=voter(1))
    assert core.q.role.voter_slot.in_flight is None


def test_its_former_self_goes_first():
    """Auto-join: a node that lost its disk has the voter of its id removed, then adds itself."""
    core = following(own=voter(1, disk=1), config=JOINING)
    assert asked(core, RemoveVoterRequest) == RemoveVoterRequest(voter(1).key)
    told(core)
    core.fetched(records=with_voters(3, 2, 3), high_watermark=4)
    core.sync()
    core.pass_ms(500)
    assert asked(core, AddVoterRequest).voter == voter(1, disk=1)


def test_one_that_was_a_voter_and_was_removed_stays_out():
    """Auto-join: an operator's removal isn't undone by the removed."""
    core = following(config=JOINING)
    core.fetched(records=with_voters(3, 2, 3), high_watermark=4)
    core.sync()
    core.pass_ms(1900)
    core.fetched(high_watermark=4)
    core.pass_ms(1900)
    assert not core.q.is_voter
    assert core.q.role.voter_slot.in_flight is None


def test_it_asks_again_while_it_is_refused():
    """Auto-join: it hasn't caught up yet, or another change is under way."""
    core = following((2, 3), own=voter(1), config=JOINING)
    told(core, ErrorCode.request_timed_out)
    for _ in range(30):
        core.pass_ms(100)
        core.fetched(high_watermark=3)
    assert asked(core, AddVoterRequest)


def test_it_says_why_it_is_refused():
    """Auto-join: nobody else would tell the operator. One that leads no more refuses nothing."""
    core = following((2, 3), own=voter(1), config=JOINING)
    told(core, ErrorCode.not_leader_or_follower)
    assert not core.of(ChangeRefused)
    core = following((2, 3), own=voter(1), config=JOINING)
    told(core, ErrorCode.invalid_request, message="voter 2 has the same address")
    assert core.of(ChangeRefused) == [
        ChangeRefused(2, "AddVoter: INVALID_REQUEST: voter 2 has the same address")
    ]


def test_it_is_done_once_the_set_has_it():
    """Auto-join: with the record comes a voter's life."""
    core = following((2, 3), own=voter(1), config=JOINING)
    told(core)
    core.fetched(records=with_voters(3, 1, 2, 3), high_watermark=3)
    core.sync()
    assert core.q.is_voter
    core.pass_ms(1900)
    core.fetched(high_watermark=4)
    assert core.q.role.voter_slot.in_flight is None


def test_static_voters_arent_joined():
    """Auto-join: with kraft.version 0 nobody can."""
    core = Core(3, node_id=9, own=voter(9), config=JOINING)
    core.follow(2, 1)
    core.fetched()
    assert core.q.role.voter_slot.in_flight is None


def test_an_observers_fetch_offset_is_a_promise_too():
    """Adding voters: its progress counts from the moment it is a voter, so it is durable before."""
    core = following((2, 3), own=voter(1))
    core.fetched(records=records(3, (1, 1)), high_watermark=3)
    assert core.q.role.slot.in_flight is None, "not before its own fsync"
    core.sync()
    assert core.q.role.slot.in_flight.offset == 4
