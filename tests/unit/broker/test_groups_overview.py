"""Whole groups: listed, described, deleted."""

from group_scene import GroupScene

from broker.groups import events as e
from wire.errors import ErrorCode


def some_groups():
    """One group in each state that lasts."""
    scene = GroupScene()
    scene.stable(group_id="stable")
    scene.commit_offset(1, group_id="simple")
    [left] = scene.joined(group_id="left")
    scene.leave((left.member_id, None), group_id="left")
    scene.joined(group_id="completing")
    scene.join_new(group_id="preparing")
    return scene


def listed(scene, states=(), types=()):
    told = scene.told(e.ListGroups, states, types)
    return {one.group_id for one in told.groups}


def test_groups_are_listed_with_state_type_and_protocol():
    scene = some_groups()
    assert set(scene.told(e.ListGroups).groups) == {
        e.ListedGroup("stable", "consumer", "Stable", "classic"),
        e.ListedGroup("simple", "", "Empty", "classic"),
        e.ListedGroup("left", "consumer", "Empty", "classic"),
        e.ListedGroup("completing", "consumer", "CompletingRebalance", "classic"),
        e.ListedGroup("preparing", "consumer", "PreparingRebalance", "classic"),
    }


def test_groups_are_listed_by_state_and_type_whatever_the_case():
    scene = some_groups()
    assert listed(scene, ("empty",)) == {"simple", "left"}
    assert listed(scene, ("Stable", "PREPARINGREBALANCE")) == {"stable", "preparing"}
    assert listed(scene, ("none such",)) == set()
    assert len(listed(scene, (), ("Classic",))) == 5
    assert listed(scene, (), ("consumer",)) == set()
    assert listed(scene, ("stable",), ("consumer", "classic")) == {"stable"}


def test_only_committed_groups_are_listed_and_described():
    scene = GroupScene()
    scene.replicated = False
    scene.join(instance_id="i")
    assert (listed(scene), scene.state()) == (set(), "Dead")
    scene.commit()
    assert (listed(scene), scene.state()) == ({"g"}, "PreparingRebalance")


def test_members_metadata_is_told_of_a_stable_group_alone():
    scene = some_groups()
    stable, completing = scene.described("stable"), scene.described("completing")
    assert (stable.protocol_name, completing.protocol_name) == ("range", "")
    assert stable.members[0].metadata != b""
    assert completing.members[0].metadata == b""
    [member] = stable.members
    assert (member.client_id, member.client_host) == ("c", "/1.2.3.4")
    assert member.assignment == member.member_id.encode()


def test_a_group_that_is_not_there_is_described_as_dead():
    scene = GroupScene()
    assert scene.described("none") == e.DescribedGroup(
        ErrorCode.group_id_not_found, "none", "Dead", message="Group none not found."
    )


def test_groups_without_members_are_deleted_with_their_offsets():
    scene = some_groups()
    scene.commit_offset(4, 1, group_id="simple")
    told = scene.told(e.DeleteGroups, ("simple", "stable", "left", "none", "simple"))
    assert [(group_id, error.name) for group_id, error in told.groups] == [
        ("simple", "none"),
        ("stable", "non_empty_group"),
        ("left", "none"),
        ("none", "group_id_not_found"),
        ("simple", "group_id_not_found"),
    ]
    scene.fail_over()
    assert listed(scene) == {"stable", "preparing", "completing"}
    assert scene.offset(group_id="simple").offset == -1


def test_a_group_with_members_is_not_deleted_in_any_state():
    scene = some_groups()
    groups = ("stable", "completing", "preparing")
    told = scene.told(e.DeleteGroups, groups)
    assert {error for _, error in told.groups} == {ErrorCode.non_empty_group}


def test_groups_whose_deletion_cannot_be_stored_are_still_there():
    scene = some_groups()
    scene.append_error = ErrorCode.not_enough_replicas
    told = scene.told(e.DeleteGroups, ("simple", "left"))
    assert {error for _, error in told.groups} == {ErrorCode.coordinator_not_available}
    assert listed(scene, ("empty",)) == {"simple", "left"}
    assert scene.offset(group_id="simple").offset == 1


def test_a_deleted_group_is_told_of_until_that_is_committed():
    scene = some_groups()
    scene.replicated = False
    caller = scene.ask(e.DeleteGroups, ("simple",))
    assert "simple" in listed(scene)
    assert scene.offset(group_id="simple").offset == 1
    assert caller not in scene.answers
    scene.commit()
    assert "simple" not in listed(scene)
    assert scene.answers[caller].groups == (("simple", ErrorCode.none),)


def test_a_deleted_group_can_come_back_before_that_is_committed():
    scene = GroupScene()
    scene.commit_offset(5, 1)
    scene.replicated = False
    scene.ask(e.DeleteGroups, ("g",))
    scene.ask(e.OffsetCommit, "g", "", -1, None, (e.CommittedOffset("t", 0, 6),))
    scene.commit()
    scene.replicated = True
    for _ in range(2):
        assert [scene.offset(p).offset for p in (0, 1)] == [6, -1]
        scene.fail_over()
