"""Changes of a group that are under way at once, and all fail: as if none had ever been."""

import pytest
from consumer_scene import ConsumerScene

from broker.groups import events as e
from broker.groups.classic_group import ClassicGroup
from broker.groups.consumer.group import ConsumerGroup
from wire.errors import ErrorCode

UNAVAILABLE = ErrorCode.coordinator_not_available


class Scene(ConsumerScene):
    def heartbeat_of(self, consumer, **fields):
        return self.ask(e.ConsumerGroupHeartbeat, **consumer.heartbeat(**fields))


@pytest.fixture
def scene():
    it = Scene(group_initial_rebalance_delay_ms=0)
    it.know(t=2)
    return it


def stable_static(scene):
    """What a static member that is alone was told when it joined; the group is stable."""
    caller = scene.join(instance_id="i")
    scene.advance(3_000)
    joined = scene.answers[caller]
    scene.sync(joined, [(joined.member_id, b"")], instance_id="i")
    return joined


def test_a_static_members_return_and_a_change_of_kind(scene):
    old = stable_static(scene)
    scene.hold()
    back = scene.join(instance_id="i")
    new = scene.consumer("new")
    beat = scene.heartbeat_of(new, **new.saying_all())
    assert isinstance(scene.group(), ConsumerGroup)
    scene.fail()
    assert scene.answers[back].error is ErrorCode.rebalance_in_progress
    assert scene.answers[beat].error is UNAVAILABLE
    assert list(scene.group().members) == [old.member_id]
    assert scene.beat(old, instance_id="i") is ErrorCode.none
    scene.advance(60_000)  # its session goes on, and ends
    assert list(scene.group().members) == []


def test_the_return_is_stored_and_the_change_of_kind_is_not(scene):
    old = stable_static(scene)
    scene.join(instance_id="i")
    (returned,) = scene.group().members
    assert returned != old.member_id
    scene.hold()
    new = scene.consumer("new")
    scene.heartbeat_of(new, **new.saying_all())
    scene.fail()
    assert list(scene.group().members) == [returned]
    scene.fail_over()
    assert list(scene.group().members) == [returned]


def test_a_group_that_was_never_stored_and_its_change_of_kind(scene):
    scene.hold()
    scene.join(instance_id="i")
    scene.advance(3_000)
    assert scene.held, "a static member's group is stored"
    new = scene.consumer("new")
    beat = scene.heartbeat_of(new, **new.saying_all())
    scene.fail()
    assert scene.answers[beat].error is UNAVAILABLE
    assert scene.group() is None
    assert scene.log == []


def test_two_returns_of_a_static_member(scene):
    old = stable_static(scene)
    scene.hold()
    first, second = scene.join(instance_id="i"), scene.join(instance_id="i")
    scene.fail()
    assert scene.answers[first].error is ErrorCode.fenced_instance_id
    assert scene.answers[second].error is UNAVAILABLE
    assert list(scene.group().members) == [old.member_id]
    assert scene.beat(old, instance_id="i") is ErrorCode.none


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.kafka_storage_error, ErrorCode.not_coordinator),
        (ErrorCode.not_enough_replicas, UNAVAILABLE),
    ],
)
def test_who_joins_what_does_not_become_a_classic_group(scene, error, told):
    (joined,) = scene.joined(1)
    scene.sync(joined, [(joined.member_id, b"")])
    new = scene.consumer("new")
    new.join()
    scene.hold()
    leave = scene.heartbeat_of(new, member_epoch=-1)
    assert isinstance(scene.group(), ClassicGroup)
    waits = scene.join("", require_known_member_id=False)
    scene.fail(error)
    assert scene.answers[leave].error is told
    assert scene.answers[waits].error is told
    assert isinstance(scene.group(), ConsumerGroup)


@pytest.mark.parametrize("classic_left", [False, True])
def test_a_member_whose_session_ended_while_its_leave_was_under_way(scene, classic_left):
    """It comes back when the leave fails, and is put out when its next session is over."""
    if classic_left:
        (joined,) = scene.joined(1)
        scene.sync(joined, [(joined.member_id, b"")])
    leaver = scene.consumer("leaver")
    leaver.join()
    stays = scene.consumer("stays")
    if not classic_left:
        stays.join()
    scene.hold()
    scene.heartbeat_of(leaver, member_epoch=-1)
    for _ in range(12):
        scene.advance(5_000)
        if not classic_left:
            scene.heartbeat_of(stays)
    scene.fail()
    assert "leaver" in scene.group().members
    for _ in range(12):
        scene.advance(5_000)
        if not classic_left:
            stays.beat()
    assert scene.group() is None or "leaver" not in scene.group().members


def test_who_joins_a_group_whose_first_offsets_can_not_be_stored(scene):
    """Not even its member's session may write anything into a group of that name later on."""
    scene.hold()
    offsets = (e.CommittedOffset("t", 0, 5),)
    commit = scene.ask(e.OffsetCommit, "g", "", -1, None, offsets)
    joins = scene.join(instance_id="i")
    scene.fail()
    assert scene.answers[commit].errors == (UNAVAILABLE,)
    assert scene.answers[joins].error is UNAVAILABLE
    later = stable_static(scene)
    written = len(scene.log)
    for _ in range(30):
        scene.advance(3_000)
        assert scene.beat(later, instance_id="i") is ErrorCode.none
    assert len(scene.log) == written
    scene.fail_over()
    assert scene.beat(later, instance_id="i") is ErrorCode.none


def test_a_return_that_a_rebalance_has_told_of_stands(scene):
    stable_static(scene)
    scene.hold()
    back, other = scene.join(instance_id="i"), scene.join(instance_id="j")
    told = scene.answers[back]
    assert told.error is ErrorCode.none, "all had joined, so that it was over at once"
    scene.fail()
    synced = scene.sync(told, [(told.member_id, b"")], instance_id="i")
    assert scene.answers[synced].error is ErrorCode.none
    assert scene.beat(scene.answers[other], instance_id="j") is ErrorCode.none


def test_what_a_returned_member_knows_is_not_undone_in_a_rebalance():
    """Others may have changed what they know by it: there must be one protocol that all know."""
    scene = Scene(group_initial_rebalance_delay_ms=3_000)
    a, b = e.Protocol("a", b""), e.Protocol("b", b"")
    joins = [
        scene.join(instance_id="i", protocols=(a,)),
        scene.join(instance_id="j", protocols=(a, b)),
        scene.join(protocols=(a, b), require_known_member_id=False),
    ]
    scene.advance(9_000)
    told = [scene.answers[caller] for caller in joins]
    for joined, instance in zip(told, ("i", "j", None), strict=True):
        scene.sync(joined, instance_id=instance)
    assert scene.state() == "Stable"
    scene.hold()
    back = scene.join(instance_id="i", protocols=(a, b))
    changed = scene.join(told[1].member_id, "j", protocols=(b,))
    scene.fail()
    last = scene.join(told[2].member_id, protocols=(a, b))
    answers = [scene.answers[caller] for caller in (back, changed, last)]
    assert [(one.error, one.protocol_name) for one in answers] == [(ErrorCode.none, "b")] * 3


def test_ids_that_were_given_out_are_not_waited_for_after_a_failed_upgrade(scene):
    (joined,) = scene.joined(1)
    scene.sync(joined, [(joined.member_id, b"")])
    pending = scene.join()
    assert scene.answers[pending].error is ErrorCode.member_id_required
    scene.hold()
    new = scene.consumer("new")
    scene.heartbeat_of(new, **new.saying_all())
    scene.fail()
    assert scene.beat(joined) is ErrorCode.none
    again = scene.answers[scene.join(joined.member_id)]
    assert (again.error, again.generation) == (ErrorCode.none, joined.generation + 1)
