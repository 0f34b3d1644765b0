"""The classic group protocol: joining, rebalancing, staying, going."""

from group_scene import GroupScene

from wire.errors import ErrorCode


def test_a_group_becomes_stable_with_what_its_leader_assigns():
    scene = GroupScene()
    leader, follower = scene.stable(2)
    assert scene.state() == "Stable"
    assert [one.member_id for one in leader.members] == [leader.member_id, follower.member_id]
    assert follower.members == ()
    for member in scene.described().members:
        assert member.assignment == member.member_id.encode()
    assert scene.beat(follower) is ErrorCode.none
