"""Groups whose members change the protocol while they are in (KIP-848)."""

import pytest
from consumer_scene import AWAY, ConsumerScene, topic_id
from subscriptions import subscription

from broker.groups import events as e
from broker.groups.classic_group import ClassicGroup
from broker.groups.consumer.group import ConsumerGroup
from wire.consumer_protocol import read_assignment, write_assignment
from wire.errors import ErrorCode
from wire.group_records import decode

T = topic_id("t")


def scene(**settings):
    it = ConsumerScene(group_initial_rebalance_delay_ms=0, **settings)
    it.know(t=4, u=2)
    return it


class OldConsumer:
    """A client of the classic, cooperative protocol: it keeps what it owns while it joins, and
    joins again when it has given up something."""

    def __init__(self, scene, instance_id=None, topics=("t",)):
        self.scene = scene
        self.instance_id = instance_id
        self.topics = topics
        self.joined = None
        self.owned = ()
        self.member_id = ""
        self.caller = None

    def join(self):
        """Returns what it is told, None if it has to wait."""
        while True:
            metadata = subscription(*self.topics, owned=self.owned)
            self.caller = self.scene.join(
                self.member_id,
                self.instance_id,
                protocols=(e.Protocol("sticky", metadata),),
            )
            self.joined = self.scene.answers.get(self.caller)
            if self.joined is None or self.joined.error.name != "member_id_required":
                break
            self.member_id = self.joined.member_id
        if self.joined is not None and self.joined.error is ErrorCode.none:
            self.member_id = self.joined.member_id
        return self.joined

    def sync(self, assignments=()):
        """Returns the error it is told; what it is assigned is its own then."""
        joined = self.scene.answers[self.caller]
        caller = self.scene.sync(joined, assignments, instance_id=self.instance_id)
        synced = self.scene.answers[caller]
        if synced.error is ErrorCode.none:
            self.owned = read_assignment(synced.assignment).partitions.get("t", ())
        return synced.error

    def beat(self):
        joined = self.scene.answers[self.caller]
        return self.scene.beat(joined, instance_id=self.instance_id).name

    def go_on(self):
        """One step of a client's life."""
        if self.beat() == "rebalance_in_progress":
            before = self.owned
            if self.join().error is ErrorCode.none and self.sync() is ErrorCode.none:
                return before != self.owned
        return False

    def leave(self):
        return self.scene.leave((self.member_id, self.instance_id))


def alone(it, partitions=(0, 1, 2, 3), **fields):
    """A classic group of one, which has all partitions."""
    old = OldConsumer(it, **fields)
    old.join()
    it.advance(1)
    assignment = write_assignment(3, {"t": partitions})
    joined = it.answers[old.caller]
    old.member_id = joined.member_id
    assert old.sync([(joined.member_id, assignment)]) is ErrorCode.none
    assert old.owned == partitions
    return old


def settle(it, new, old, rounds=12):
    for _ in range(rounds):
        for one in new:
            one.beat()
        for one in old:
            one.go_on()
    assert it.group().state == "Stable"
    owned = [p for one in new for _, p in one.partitions] + [p for one in old for p in one.owned]
    assert sorted(owned) == [0, 1, 2, 3]


def test_a_new_consumer_joins_a_classic_group_and_takes_its_share():
    it = scene()
    old = alone(it)
    new = it.consumer("n")
    before = len(it.log)
    told = new.join()
    assert (told.error, told.member_epoch, told.assignment) == (ErrorCode.none, 2, ())
    group = it.group()
    assert isinstance(group, ConsumerGroup)
    assert group.classic_members == 1
    kinds = [type(decode(key, value)[0]).__name__ for key, value, _ in it.log[before:]]
    assert kinds == [
        "GroupMetadataKey",
        "ConsumerGroupMemberMetadataKey",
        "ConsumerGroupMetadataKey",
        "ConsumerGroupTargetAssignmentMemberKey",
        "ConsumerGroupTargetAssignmentMetadataKey",
        "ConsumerGroupCurrentMemberAssignmentKey",
        "ConsumerGroupMemberMetadataKey",
        "ConsumerGroupMetadataKey",
        "ConsumerGroupTargetAssignmentMemberKey",
        "ConsumerGroupTargetAssignmentMemberKey",
        "ConsumerGroupTargetAssignmentMetadataKey",
        "ConsumerGroupCurrentMemberAssignmentKey",
    ]
    assert old.beat() == "rebalance_in_progress"
    assert old.join().error is ErrorCode.none
    assert old.sync() is ErrorCode.none
    assert old.owned == (0, 1)
    assert new.beat().assignment is None
    settle(it, [new], [old])
    assert len(new.partitions) == 2
    assert it.describe().members[0].type + it.describe().members[1].type == 1
    it.fail_over()
    settle(it, [new], [old])


def test_old_consumers_come_and_go_in_a_new_group():
    it = scene()
    new = it.consumer("n")
    new.join()
    old = OldConsumer(it)
    assert old.join().error is ErrorCode.none
    assert (old.joined.protocol_type, old.joined.protocol_name) == ("consumer", "sticky")
    assert (old.joined.leader, old.joined.members) == ("", ())
    assert old.sync() is ErrorCode.none
    settle(it, [new], [old])
    assert len(old.owned) == 2
    assert old.leave().error is ErrorCode.none
    new.beat()
    assert len(new.partitions) == 4


def test_when_the_last_new_one_leaves_the_old_ones_are_a_classic_group_again():
    it = scene()
    old = alone(it)
    new = it.consumer("n")
    new.join()
    settle(it, [new], [old])
    it.commit_offset(7, member_id=old.member_id, generation=old.joined.generation)
    assert new.leave().error is ErrorCode.none
    assert it.group().type == "classic"
    assert it.state() == "PreparingRebalance"
    assert old.beat() == "rebalance_in_progress"
    old.join()
    it.advance(1)
    joined = it.answers[old.caller]
    assert (joined.leader, joined.generation) == (old.member_id, 3)
    assert old.sync([(old.member_id, write_assignment(3, {"t": (0, 1, 2, 3)}))]) is ErrorCode.none
    assert it.state() == "Stable"
    assert it.offset().offset == 7
    it.fail_over()
    assert it.state() == "Stable"
    assert old.beat() == "none"


def test_old_consumers_alone_in_a_consumer_group_get_what_is_free():
    it = scene(group_consumer_migration_policy="upgrade")
    old = alone(it)
    new = it.consumer("n")
    new.join()
    settle(it, [new], [old])
    new.leave()
    settle(it, [], [old])
    it.know(t=6)
    for _ in range(3):
        old.go_on()
    assert old.owned == (0, 1, 2, 3, 4, 5)


def test_another_broker_leads_while_the_old_ones_rebalance():
    it = scene()
    old = alone(it)
    new = it.consumer("n")
    new.join()
    settle(it, [new], [old])
    new.leave()
    it.fail_over()
    # What it has is not all that there is by now: it must come again.
    assert old.beat() == "unknown_member_id"


def test_the_last_new_ones_session_ends_and_the_old_ones_go_on():
    it = scene()
    old = alone(it)
    it.consumer("n").join()
    for _ in range(50):
        it.advance(1_000)
        if it.group().type == "classic":
            break
        old.go_on()
    assert it.group().type == "classic"
    assert old.beat() == "rebalance_in_progress"


def test_a_static_consumer_changes_the_protocol_and_back():
    it = scene()
    old = alone(it, instance_id="i")
    new = it.consumer("n", instance_id="i")
    assert new.join().assignment == ((T, (0, 1, 2, 3)),)
    assert it.group().classic_members == 0
    assert old.beat() == "fenced_instance_id"
    new.leave(AWAY)
    again = OldConsumer(it, "i")
    assert again.join().error is ErrorCode.none
    assert it.group().type == "classic"
    assert again.sync() is ErrorCode.none
    assert again.owned == (0, 1, 2, 3)
    assert again.beat() == "none"


@pytest.mark.parametrize("waits", ["for its first assignment", "for what another has left"])
def test_a_static_consumer_changes_the_protocol_while_its_group_rebalances(waits):
    """Its old self's partitions are not all that it is to have."""
    it = scene()
    if waits == "for its first assignment":
        static = OldConsumer(it, "i")
        assert static.join() is None
    else:
        other = alone(it)
        static = OldConsumer(it, "i")
        assert static.join() is None
        other.leave()
    assert it.state() != "Stable"
    new = it.consumer("n", instance_id="i")
    new.join()
    settle(it, [new], [])


def test_the_last_new_one_changes_the_protocol_while_others_wait_for_its_partitions():
    it = scene()
    new = it.consumer("n", instance_id="i")
    new.join()
    old = OldConsumer(it)
    old.join()
    assert old.sync() is ErrorCode.none
    assert old.owned == ()
    OldConsumer(it, "i").join()
    assert it.state() == "PreparingRebalance"
    assert old.beat() == "rebalance_in_progress"


@pytest.mark.parametrize(
    "policy, upgrades, downgrades",
    [
        ("bidirectional", True, True),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("disabled", False, False),
    ],
)
def test_policies(policy, upgrades, downgrades):
    it = scene(group_consumer_migration_policy=policy)
    alone(it)
    told = it.consumer("n").join().error
    assert told is (ErrorCode.none if upgrades else ErrorCode.group_id_not_found)
    it = scene(group_consumer_migration_policy=policy)
    new = it.consumer("n")
    new.join()
    joined = OldConsumer(it).join()
    refused = policy == "disabled"
    assert joined.error is (ErrorCode.inconsistent_group_protocol if refused else ErrorCode.none)
    new.leave()
    assert it.group().type == ("classic" if downgrades else "consumer")


def test_groups_that_stay_classic():
    it = scene(group_consumer_max_size=1)
    first, second = OldConsumer(it), OldConsumer(it)
    first.join()
    second.join()
    it.advance(1)
    assert it.consumer("n").join().error is ErrorCode.group_id_not_found
    it = scene()
    it.stable(protocol_type="connect")
    assert it.consumer("n").join().error is ErrorCode.group_id_not_found
    it = scene()
    it.stable()  # assigns what is no consumer's assignment
    assert it.consumer("n").join().error is ErrorCode.group_id_not_found
    assert it.state() == "Stable"


def test_an_assignor_with_data_of_its_own_keeps_its_group():
    it = scene()
    old = OldConsumer(it)
    old.join()
    it.advance(1)
    assignment = write_assignment(0, {"t": (0,)})[:-4] + b"\0\0\0\1x"
    old.sync([(it.answers[old.caller].member_id, assignment)])
    assert it.consumer("n").join().error is ErrorCode.group_id_not_found


def test_who_waits_in_the_classic_group_is_told_to_join_again():
    it = scene()
    old = alone(it)
    late = OldConsumer(it)
    assert late.join() is None
    it.consumer("n").join()
    assert it.answers[late.caller].error is ErrorCode.rebalance_in_progress
    assert it.group().classic_members == 2
    assert old.beat() == "rebalance_in_progress"


def test_a_failed_append_leaves_the_classic_group_as_it_was():
    it = scene()
    old = alone(it)
    new = it.consumer("n")
    it.append_error = ErrorCode.not_enough_replicas
    assert new.join().error is ErrorCode.coordinator_not_available
    it.append_error = None
    assert it.state() == "Stable"
    assert old.beat() == "none"
    it.advance(9_000)
    assert old.beat() == "none"
    new.join()
    settle(it, [new], [old])
    it.append_error = ErrorCode.not_enough_replicas
    new.leave()
    it.append_error = None
    assert it.group().type == "consumer"
    assert new.join().error is ErrorCode.none


@pytest.mark.parametrize("first", [True, False])
def test_a_failed_append_leaves_a_classic_group_that_rebalances(first):
    it = scene()
    if not first:
        gone = alone(it)
    old = OldConsumer(it)
    assert old.join() is None
    if not first:
        gone.leave()
    assert it.state() != "Stable"
    it.append_error = ErrorCode.not_enough_replicas
    assert it.consumer("n").join().error is ErrorCode.coordinator_not_available
    it.append_error = None
    assert it.group().type == "classic"
    assert it.state() == "PreparingRebalance"
    if first:
        assert it.answers[old.caller].error is ErrorCode.rebalance_in_progress
        (old.member_id,) = it.group().members
    joined = old.join()
    assert joined.error is ErrorCode.none
    assert joined.protocol_name == "sticky"
    assert joined.leader == old.member_id


def test_old_consumers_that_do_not_do_what_they_are_told_are_put_out():
    it = scene()
    new = it.consumer("n")
    new.join()
    old = OldConsumer(it)
    old.join()
    for _ in range(7):
        it.advance(9_000)
        old.beat()
        new.beat()
    assert set(it.group().members) == {"n"}  # it never asked for its assignment
    old = OldConsumer(it)
    old.join()
    old.sync()
    settle(it, [new], [old])
    other = it.consumer("o")
    other.join()
    for _ in range(8):
        it.advance(9_000)
        assert old.beat() in ("rebalance_in_progress", "unknown_member_id")
        new.beat()
        other.beat()
    assert set(it.group().members) == {"n", "o"}  # it never joined again
    old = OldConsumer(it)
    old.join()
    it.advance(11_000)
    assert set(it.group().members) == {"n", "o"}  # its session was over


def test_what_old_consumers_are_refused():
    it = scene()
    new = it.consumer("n")
    new.join()
    old = OldConsumer(it)
    old.join()
    joined = old.joined
    assert it.beat(joined._replace(generation=9)).name == "illegal_generation"
    assert it.beat(joined._replace(member_id="nobody")).name == "unknown_member_id"
    assert it.beat(joined._replace(member_id="n", generation=2)).name == "unknown_member_id"

    def sync(**fields):
        return it.answers[it.sync(joined, **fields)].error.name

    assert sync(generation=9) == "illegal_generation"
    assert sync(member_id="nobody") == "unknown_member_id"
    assert sync(protocol_type="connect") == "inconsistent_group_protocol"
    assert sync(protocol_name="range") == "inconsistent_group_protocol"
    assert sync(protocol_name="sticky", protocol_type="consumer") == "none"
    others = it.join(protocols=(e.Protocol("range", subscription("t")),))
    assert it.answers[others].error is ErrorCode.inconsistent_group_protocol
    broken = it.join(protocols=(e.Protocol("sticky", b"\0"),), require_known_member_id=False)
    assert it.answers[broken].error is ErrorCode.inconsistent_group_protocol
    short = it.join(session_timeout_ms=1)
    assert it.answers[short].error is ErrorCode.invalid_session_timeout
    left = it.leave(("nobody", None), ("", "i"), (old.member_id, None))
    assert [error.name for _, error in left.members] == [
        "unknown_member_id",
        "unknown_member_id",
        "none",
    ]


def test_commits_of_old_consumers_tell_of_generations():
    it = scene()
    it.consumer("n").join()
    old = OldConsumer(it)
    old.join()
    assert it.commit_offset(1, member_id=old.member_id, generation=9).name == "illegal_generation"
    assert it.commit_offset(1, member_id=old.member_id, generation=3).name == "none"


def test_a_classic_group_again_is_one_protocol_to_all_that_are_told():
    """What its members like best differs; who joined last must be able to sync."""
    one, other = (
        tuple(e.Protocol(name, subscription("t")) for name in names)
        for names in (("range", "sticky"), ("sticky", "range"))
    )
    it = scene()
    new = it.consumer("new", instance_id="i")
    new.join()
    old = {}

    def go_on():
        for instance in "pq":
            told = old.get(instance)
            if told is None or it.beat(told, instance_id=instance).name != "none":
                member_id = "" if told is None else told.member_id
                caller = it.join(member_id, instance, protocols=one)
                old[instance] = told = it.answers[caller]
                it.sync(told, instance_id=instance)

    for _ in range(10):
        new.beat()
        go_on()
    new.leave(AWAY)
    back = it.answers[it.join("", "i", protocols=other)]
    synced = it.sync(back, instance_id="i", protocol_name=back.protocol_name)
    assert it.answers[synced].error is ErrorCode.none
    assert (it.state(), it.group().protocol_name) == ("Stable", back.protocol_name)


def test_who_joined_before_a_group_is_classic_again_is_told_to_join_again():
    it = scene()
    new = it.consumer("new")
    new.join()
    for instance in "pq":
        it.join("", instance, protocols=(e.Protocol("range", subscription("t")),))
    both = tuple(e.Protocol(name, subscription("t")) for name in ("sticky", "range"))
    told = it.answers[it.join("", "r", protocols=both)]
    new.leave()
    assert isinstance(it.group(), ClassicGroup)
    synced = it.sync(told, instance_id="r", protocol_name=told.protocol_name)
    assert it.answers[synced].error is ErrorCode.rebalance_in_progress
