"""Static members of classic groups (KIP-345): who has an instance id, and who had it before."""

import pytest
from group_scene import RANGE, GroupScene, subscription

from broker.groups import events as e
from wire.errors import ErrorCode

STICKY = e.Protocol("sticky", subscription("t"))


def static_group(scene, *instances, **fields):
    """A stable group of static members; what they were told, the leader first."""
    callers = [scene.join(instance_id=one, **fields) for one in instances]
    while callers[-1] not in scene.answers:
        scene.advance(3_000)
    return scene.synced([scene.answers[caller] for caller in callers])


def test_a_static_member_needs_no_id_beforehand():
    scene = GroupScene()
    [only] = static_group(scene, "i")
    assert only.member_id.startswith("i-")
    assert scene.described().members[0].instance_id == "i"


def test_a_static_follower_that_starts_anew_goes_on_with_what_it_had():
    scene = GroupScene()
    leader, old = static_group(scene, "a", "b")
    new = scene.answers[scene.join(instance_id="b")]
    assert new.member_id != old.member_id
    assert (new.generation, new.leader, new.members) == (1, leader.member_id, ())
    assert not new.skip_assignment
    assert scene.state() == "Stable"
    assert scene.answers[scene.sync(new)].assignment == old.member_id.encode()


def test_a_static_leader_that_starts_anew_leads_but_skips_the_assignment():
    """KIP-814."""
    scene = GroupScene()
    old, follower = static_group(scene, "a", "b")
    new = scene.answers[scene.join(instance_id="a")]
    assert (new.leader, new.skip_assignment) == (new.member_id, True)
    assert {one.member_id for one in new.members} == {new.member_id, follower.member_id}
    assert scene.state() == "Stable"
    assert scene.answers[scene.sync(new)].assignment == old.member_id.encode()


def test_a_static_leader_before_kip_814_is_told_of_its_old_id_as_the_leader():
    scene = GroupScene()
    old, _ = static_group(scene, "a", "b")
    new = scene.answers[scene.join(instance_id="a", may_skip_assignment=False)]
    assert (new.leader, new.members, new.skip_assignment) == (old.member_id, (), False)
    assert scene.state() == "Stable"


def test_a_static_member_that_would_change_the_protocol_begins_a_rebalance():
    scene = GroupScene()
    leader, _ = static_group(scene, "a", "b", protocols=(*RANGE, STICKY))
    caller = scene.join(instance_id="b", protocols=(STICKY,))
    assert scene.state() == "PreparingRebalance"
    scene.join(leader.member_id, "a", protocols=(*RANGE, STICKY))
    assert scene.answers[caller].protocol_name == "sticky"


def test_a_static_member_that_starts_anew_while_the_leader_assigns_begins_a_rebalance():
    scene = GroupScene()
    callers = [scene.join(instance_id=one) for one in "ab"]
    scene.advance(6_000)
    follower = scene.answers[callers[1]]
    waiting = scene.sync(follower, instance_id="b")
    scene.join(instance_id="b")
    assert scene.state() == "PreparingRebalance"
    assert scene.answers[waiting].error is ErrorCode.fenced_instance_id


def test_whoever_joins_under_an_instance_id_fences_the_one_before():
    scene = GroupScene()
    first = scene.join(instance_id="a")
    second = scene.join(instance_id="a")
    assert scene.answers[first].error is ErrorCode.fenced_instance_id
    scene.advance(6_000)
    assert scene.answers[second].generation == 1
    assert len(scene.described().members) == 1


@pytest.mark.parametrize("with_instance", [True, False])
def test_the_fenced_one_is_told_so_wherever_it_asks(with_instance):
    scene = GroupScene()
    [old] = static_group(scene, "a")
    scene.join(instance_id="a")
    instance = "a" if with_instance else None
    error = ErrorCode.fenced_instance_id if with_instance else ErrorCode.unknown_member_id
    assert scene.beat(old, instance_id=instance) is error
    assert scene.answers[scene.sync(old, instance_id=instance)].error is error
    assert scene.answers[scene.join(old.member_id, instance)].error is error
    fields = {"member_id": old.member_id, "generation": 1, "instance_id": instance}
    assert scene.commit_offset(1, **fields) is error
    assert scene.leave((old.member_id, instance)).members[0][1] is error


def test_a_static_member_that_does_not_come_to_a_rebalance_stays_a_member():
    scene = GroupScene()
    leader, _ = static_group(scene, "a", "b", session_timeout_ms=300_000)
    caller = scene.join(leader.member_id, "a", session_timeout_ms=300_000)
    scene.advance(60_000)
    assert scene.answers[caller].generation == 2
    assert [one.instance_id for one in scene.answers[caller].members] == ["a", "b"]


def test_a_rebalance_of_static_members_goes_on_until_one_comes():
    scene = GroupScene()
    leader, follower = static_group(scene, "a", "b", session_timeout_ms=300_000)
    scene.leave((leader.member_id, "a"))
    scene.advance(130_000)
    assert (scene.state(), scene.described().members[0].instance_id) == ("PreparingRebalance", "b")
    caller = scene.join(follower.member_id, "b")
    assert scene.answers[caller].leader == follower.member_id


def test_an_administrator_sends_a_static_member_away_by_its_instance_id():
    scene = GroupScene()
    static_group(scene, "a", "b")
    told = scene.leave(("", "b"), ("", "c"))
    assert [error.name for _, error in told.members] == ["none", "unknown_member_id"]
    assert [one.instance_id for one in scene.described().members] == ["a"]


def test_a_static_member_is_one_after_a_failover_too():
    scene = GroupScene()
    [old] = static_group(scene, "a")
    scene.fail_over()
    new = scene.answers[scene.join(instance_id="a")]
    assert (new.generation, new.skip_assignment) == (1, True)
    assert scene.answers[scene.sync(new)].assignment == old.member_id.encode()


def test_a_replaced_static_member_is_told_when_that_is_committed_and_survives_a_failover():
    scene = GroupScene()
    static_group(scene, "a")
    scene.replicated = False
    caller = scene.join(instance_id="a")
    assert caller not in scene.answers
    scene.commit()
    new = scene.answers[caller]
    scene.replicated = True
    scene.fail_over()
    assert scene.beat(new, instance_id="a") is ErrorCode.none


def test_a_static_member_keeps_its_place_if_its_replacement_cannot_be_stored():
    scene = GroupScene()
    [old] = static_group(scene, "a")
    scene.append_error = ErrorCode.not_enough_replicas
    told = scene.answers[scene.join(instance_id="a", protocols=(*RANGE, STICKY))]
    assert told.error is ErrorCode.coordinator_not_available
    assert scene.beat(old, instance_id="a") is ErrorCode.none
    assert scene.answers[scene.join(old.member_id, "a")].generation == 2


def test_a_rebalance_meanwhile_answers_a_replaced_static_member():
    scene = GroupScene()
    leader, _ = static_group(scene, "a", "b")
    scene.replicated = False
    caller = scene.join(instance_id="b")
    scene.join(leader.member_id, "a", protocols=(*RANGE, STICKY))
    assert scene.answers[caller].generation == 2
    scene.commit()
    assert scene.state() == "CompletingRebalance"


def test_a_static_member_that_starts_anew_before_its_sync_has_to_sync_in_its_place():
    scene = GroupScene()
    sessions = {"session_timeout_ms": 300_000}
    callers = [scene.join(instance_id=one, **sessions) for one in "abc"]
    while callers[-1] not in scene.answers:
        scene.advance(3_000)
    told = [scene.answers[caller] for caller in callers]
    for one in told[:2]:
        scene.sync(one, [(other.member_id, b"x") for other in told] if one is told[0] else ())
    new = scene.answers[scene.join(instance_id="c", **sessions)]
    assert scene.state() == "Stable"
    scene.advance(60_000)
    assert scene.beat(new, instance_id="c") is ErrorCode.unknown_member_id
    assert scene.state() == "PreparingRebalance"
