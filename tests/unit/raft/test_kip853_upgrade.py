"""KIP-853, a test a rule: the upgrade of kraft.version, by which static voters become the log's."""

import pytest
from core_rig import NONE, Core, key
from kip853_rig import TIMED_OUT, leading, remove, update, voter, voters

from raft import effects as fx
from raft.events import Resign, UpgradeKraftVersion
from raft.voters import ReplicaKey, Voter
from wire.errors import ErrorCode


def upgrade(core, level=1, *, validate_only=False):
    """(error, message) of an upgrade that is answered at once; None of one that waits."""
    core.tell(UpgradeKraftVersion(77, level, validate_only))
    return upgraded(core)


def upgraded(core):
    found = core.of(fx.UpgradeAnswered)
    return (found[0].error, found[0].message) if found else None


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
