"""ConsumerGroupHeartbeat: joining, reconciling, leaving, and what is refused.

What heartbeats are told, and what they have written, was compared with a JVM 4.4.0 step by step.
"""

import pytest
from consumer_scene import AWAY, ConsumerScene, settle, topic_id

from broker.groups import events as e
from broker.groups.settings import GroupOverrides
from wire.errors import ErrorCode
from wire.group_records import decode

T, U = topic_id("t"), topic_id("u")


def scene(**settings):
    it = ConsumerScene(**settings)
    it.know(t=3, u=4)
    return it


def written(it, start=0):
    """What was appended since, as (kind of record, what matters of it)."""
    found = []
    for key, value, _ in it.log[start:]:
        decoded, content = decode(key, value)
        found.append((type(decoded).__name__.removeprefix("ConsumerGroup"), decoded, content))
    return found


def kinds(it, start=0):
    return [kind.removesuffix("Key") for kind, _, _ in written(it, start)]


# -- joining and reconciling ---------------------------------------------------------------------


def test_the_first_member_is_assigned_everything_at_once():
    it = scene()
    a = it.consumer("a", ("t", "u"))
    told = a.join()
    assert (told.error, told.member_id, told.member_epoch) == (ErrorCode.none, "a", 2)
    assert told.assignment == ((T, (0, 1, 2)), (U, (0, 1, 2, 3)))
    assert kinds(it) == [
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]


def test_a_heartbeat_without_news_writes_nothing_and_says_nothing():
    it = scene()
    a = it.consumer("a")
    a.join()
    before = len(it.log)
    assert a.request().assignment is None
    assert a.beat().assignment is None
    assert len(it.log) == before


def test_a_whole_heartbeat_is_told_the_assignment_again():
    it = scene()
    a = it.consumer("a")
    first = a.join()
    assert a.request(**a.saying_all()).assignment == first.assignment


def test_a_partition_moves_only_when_its_owner_has_given_it_up():
    it = scene()
    a, b = it.consumer("a", ("t", "u")), it.consumer("b", ("t", "u"))
    a.join()
    told = b.join()
    assert (told.member_epoch, told.assignment) == (3, ())
    assert it.describe().state == "Reconciling"
    # It is told what it keeps, stays at its epoch, and the others wait.
    kept = a.request()
    assert (kept.member_epoch, kept.assignment) == (2, ((T, (0, 1, 2)), (U, (0,))))
    assert b.beat().assignment is None
    assert a.request().assignment is None
    a.take(kept)
    gone_on = a.beat()
    assert (gone_on.member_epoch, gone_on.assignment) == (3, None)
    assert b.beat().assignment == ((U, (1, 2, 3)),)
    assert it.describe().state == "Stable"


def test_members_that_come_within_the_interval_are_assigned_together():
    it = scene(group_consumer_assignment_interval_ms=1_000)
    a, b = it.consumer("a"), it.consumer("b")
    a.join()
    told = b.join()
    assert (told.member_epoch, told.assignment) == (2, ())
    assert it.describe().state == "Assigning"
    it.advance(1_000)
    assert b.beat().member_epoch == 3
    assert settle(a, b) < 4
    assert sorted(a.partitions + b.partitions) == [("t", 0), ("t", 1), ("t", 2)]


def test_a_clock_that_goes_back_does_not_hold_up_assignments():
    it = scene(group_consumer_assignment_interval_ms=1_000)
    a, b = it.consumer("a"), it.consumer("b")
    a.join()
    it.now_ms -= 4_000
    assert b.join().member_epoch == 3
    assert a.request().assignment is not None


def test_a_member_without_an_id_is_given_one():
    it = scene()
    told = it.consumer("").join()
    assert len(told.member_id) == 22
    assert list(it.group().members) == [told.member_id]


def test_a_member_that_gives_up_a_topic_is_told_so_before_there_is_a_new_target():
    it = scene(group_consumer_assignment_interval_ms=60_000)
    a = it.consumer("a", ("t", "u"))
    a.join()
    told = a.request(subscribed_topics=("t",))
    assert (told.member_epoch, told.assignment) == (2, ((T, (0, 1, 2)),))
    assert set(it.group().members["a"].revoking) == {U}


def test_new_partitions_and_deleted_topics_change_the_target():
    it = scene()
    a = it.consumer("a", ("t", "u", "later"))
    a.join()
    it.know(t=5)
    assert (T, (0, 1, 2, 3, 4)) in a.beat().assignment
    it.know(u=None)
    assert a.beat().assignment == ((T, (0, 1, 2, 3, 4)),)
    it.know(later=1)
    assert a.beat().assignment == ((topic_id("later"), (0,)), (T, (0, 1, 2, 3, 4)))


def test_topics_that_nobody_subscribes_to_change_nothing():
    it = scene()
    a = it.consumer("a")
    a.join()
    before = len(it.log)
    it.know(u=9, other=1)
    a.beat()
    it.tell(it.known())
    a.beat()
    assert len(it.log) == before


def test_members_choose_the_assignor_by_majority():
    it = scene()
    a, b = it.consumer("a", ("t", "u")), it.consumer("b", ("t", "u"), assignor="range")
    a.join()
    assert it.describe().assignor == "uniform"
    b.join()
    settle(a, b)
    assert it.describe().assignor == "range"
    assert a.partitions == [("t", 0), ("t", 1), ("u", 0), ("u", 1)]
    epoch = it.group().epoch
    assert a.request(server_assignor="uniform").member_epoch == epoch
    assert it.group().epoch == epoch  # a tie, and the first by name goes on
    assert it.describe().assignor == "range"


def test_an_assignor_of_another_broker_is_not_missed():
    it = scene()
    a = it.consumer("a", assignor="range")
    a.join()
    it.settings = type(it.settings)(group_consumer_assignors=("uniform",))
    it.fail_over()
    assert it.describe().assignor == "uniform"
    b = it.consumer("b")
    b.join()
    settle(a, b)


# -- what is refused -----------------------------------------------------------------------------


def test_epochs_that_are_not_the_members_fence_it():
    it = scene()
    a, b = it.consumer("a", ("t", "u")), it.consumer("b", ("t", "u"))
    a.join()
    b.join()
    settle(a, b)
    assert a.epoch == 3
    assert a.request(member_epoch=4).error is ErrorCode.fenced_member_epoch
    assert a.request(member_epoch=1).error is ErrorCode.fenced_member_epoch
    # It missed the answer that told it of epoch 3. What it says it owns is still its own.
    assert a.request(member_epoch=2).error is ErrorCode.fenced_member_epoch
    assert a.request(member_epoch=2, owned=a.says()).member_epoch == 3
    assert a.request(member_epoch=2, owned=b.says()).error is ErrorCode.fenced_member_epoch


@pytest.mark.parametrize(
    "fields, error",
    [
        ({"group_id": " "}, ErrorCode.invalid_request),
        ({"member_id": "", "member_epoch": 2}, ErrorCode.invalid_request),
        ({"instance_id": ""}, ErrorCode.invalid_request),
        ({"rack_id": ""}, ErrorCode.invalid_request),
        ({"member_epoch": -2}, ErrorCode.invalid_request),
        ({"member_epoch": -3}, ErrorCode.invalid_request),
        ({"member_epoch": 0}, ErrorCode.invalid_request),
        ({"member_epoch": 0, "rebalance_timeout_ms": 1}, ErrorCode.invalid_request),
        (
            {"member_epoch": 0, "rebalance_timeout_ms": 1, "owned": ()},
            ErrorCode.invalid_request,
        ),
        (
            {
                "member_epoch": 0,
                "rebalance_timeout_ms": 1,
                "subscribed_topics": (),
                "owned": (e.TopicPartitions(T, (0,)),),
            },
            ErrorCode.invalid_request,
        ),
        ({"member_epoch": 2, "server_assignor": "sticky"}, ErrorCode.unsupported_assignor),
        ({"member_epoch": 2, "member_id": "nobody"}, ErrorCode.unknown_member_id),
        ({"member_epoch": -1, "member_id": "nobody"}, ErrorCode.unknown_member_id),
        ({"member_epoch": 2, "group_id": "other"}, ErrorCode.group_id_not_found),
        ({"member_epoch": -1, "group_id": "other"}, ErrorCode.group_id_not_found),
        ({"member_epoch": 2, "instance_id": "i"}, ErrorCode.unknown_member_id),
        ({"member_epoch": -2, "instance_id": "i"}, ErrorCode.unknown_member_id),
    ],
)
def test_refused(fields, error):
    it = scene()
    a = it.consumer("a")
    a.join()
    before = len(it.log)
    told = a.request(**fields)
    assert (told.error, told.assignment) == (error, None)
    assert told.message
    assert len(it.log) == before
    assert a.beat().error is ErrorCode.none


def test_a_full_group_takes_nobody_but_those_who_are_in_it():
    it = scene(group_consumer_max_size=2)
    a, b = it.consumer("a"), it.consumer("b", instance_id="i")
    a.join()
    b.join()
    assert it.consumer("c").join().error is ErrorCode.group_max_size_reached
    assert it.consumer("").join().error is ErrorCode.group_max_size_reached
    assert a.join().error is ErrorCode.none
    b.leave(AWAY)
    assert it.consumer("d", instance_id="i").join().error is ErrorCode.none


def test_a_group_of_the_classic_protocol_with_members_has_the_id():
    it = scene(group_consumer_migration_policy="disabled")
    it.stable()
    assert it.consumer("a").join().error is ErrorCode.group_id_not_found
    assert it.consumer("a").request(member_epoch=3).error is ErrorCode.group_id_not_found
    assert it.describe().error is ErrorCode.group_id_not_found
    assert it.describe("nobody's").error is ErrorCode.group_id_not_found


# -- leaving -------------------------------------------------------------------------------------


def test_what_a_member_had_that_leaves_is_free_at_once():
    it = scene()
    a, b = it.consumer("a"), it.consumer("b")
    a.join()
    b.join()
    settle(a, b)
    before = len(it.log)
    told = a.leave()
    assert (told.error, told.member_id, told.member_epoch) == (ErrorCode.none, "a", -1)
    assert kinds(it, before) == [
        "CurrentMemberAssignment",
        "TargetAssignmentMember",
        "MemberMetadata",
        "Metadata",
    ]
    assert all(value is None for _, value, _ in it.log[before:-1])
    assert b.beat().assignment == ((T, (0, 1, 2)),)


def test_the_last_one_leaves_an_empty_group_that_need_not_wait():
    it = scene(group_consumer_assignment_interval_ms=60_000)
    a = it.consumer("a")
    a.join()
    a.leave()
    assert it.describe().state == "Empty"
    assert (it.group().target_epoch, it.group().target_timestamp) == (3, 0)
    assert a.join().assignment == ((T, (0, 1, 2)),)


def test_sessions_end_when_nothing_is_heard():
    it = scene()
    a, b = it.consumer("a"), it.consumer("b")
    a.join()
    b.join()
    settle(a, b)
    it.advance(44_000)
    b.beat()
    it.advance(2_000)
    assert list(it.group().members) == ["b"]
    assert a.beat().error is ErrorCode.unknown_member_id
    assert b.beat().assignment == ((T, (0, 1, 2)),)
    it.advance(100_000)
    assert it.group().is_empty
    assert it.core.next_deadline_ms() is None or it.core.next_deadline_ms() > it.now_ms


def test_a_group_has_times_of_its_own_from_the_next_heartbeat_on():
    it = scene()
    a, other = it.consumer("a"), it.consumer("b", group_id="h")
    a.join()
    other.join()
    own = GroupOverrides(session_timeout_ms=60_000, heartbeat_interval_ms=9_000)
    it.tell(e.GroupsConfigured({"g": own}))
    it.advance(1_000)
    assert a.beat().heartbeat_interval_ms == 9_000
    assert other.beat().heartbeat_interval_ms == 5_000
    it.advance(59_000)
    assert list(it.group().members) == ["a"]
    assert it.group("h").is_empty
    it.advance(2_000)
    assert it.group().is_empty


def test_the_members_of_a_loaded_group_have_its_own_time():
    it = scene()
    it.consumer("a").join()
    own = e.GroupsConfigured({"g": GroupOverrides(session_timeout_ms=60_000)})
    for told, session_ms in (((e.Loaded(),), 45_000), ((own, e.Loaded()), 60_000)):
        core = it.loaded_copy()
        for event in told:
            core.handle(event, it.now_ms, it.wall_ms)
        assert core.next_deadline_ms() == it.now_ms + session_ms


def test_a_groups_own_interval_between_targets():
    it = scene(group_consumer_assignment_interval_ms=1_000)
    it.tell(e.GroupsConfigured({"g": GroupOverrides(assignment_interval_ms=0)}))
    a, b = it.consumer("a"), it.consumer("b", group_id="h")
    a.join()
    b.join()
    c, d = it.consumer("c"), it.consumer("d", group_id="h")
    c.join()
    d.join()
    assert it.group().target_epoch == it.group().epoch
    assert it.group("h").target_epoch < it.group("h").epoch


def test_who_does_not_give_up_in_time_is_put_out():
    it = scene()
    a, b = it.consumer("a"), it.consumer("b")
    a.join()
    b.join()
    a.request(rebalance_timeout_ms=10_000)
    for _ in range(9):
        it.advance(1_000)
        a.request()
        b.beat()
    assert set(it.group().members) == {"a", "b"}
    it.advance(1_000)
    assert set(it.group().members) == {"b"}
    assert b.beat().assignment == ((T, (0, 1, 2)),)


def test_who_gives_up_in_time_stays():
    it = scene()
    a, b = it.consumer("a"), it.consumer("b")
    a.join()
    b.join()
    a.take(a.request(rebalance_timeout_ms=10_000))
    a.beat()
    for _ in range(3):
        it.advance(10_000)
        assert settle(a, b) <= 1
    assert set(it.group().members) == {"a", "b"}


def test_a_failed_append_leaves_the_session_running():
    it = scene()
    a = it.consumer("a")
    a.join()
    it.append_error = ErrorCode.not_enough_replicas
    it.advance(50_000)
    assert set(it.group().members) == {"a"}
    it.append_error = None
    it.advance(50_000)
    assert it.group().is_empty


# -- static members ------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_has_what_it_had():
    it = scene()
    a, b = it.consumer("a", instance_id="i"), it.consumer("b", instance_id="j")
    a.join()
    b.join()
    settle(a, b)
    had, epoch = b.partitions, it.group().epoch
    told = b.leave(AWAY)
    assert (told.error, told.member_epoch) == (ErrorCode.none, -2)
    again = it.consumer("c", instance_id="j")
    before = len(it.log)
    assert again.join().error is ErrorCode.none
    assert again.partitions == had
    assert it.group().epoch == epoch
    assert kinds(it, before)[:6] == [
        "CurrentMemberAssignment",
        "TargetAssignmentMember",
        "MemberMetadata",
        "MemberMetadata",
        "TargetAssignmentMember",
        "CurrentMemberAssignment",
    ]
    assert b.request(member_epoch=3).error is ErrorCode.fenced_instance_id
    assert b.request(member_epoch=-1).error is ErrorCode.fenced_instance_id


def test_an_instance_id_that_is_not_given_up_has_no_second_owner():
    it = scene()
    it.consumer("a", instance_id="i").join()
    assert it.consumer("b", instance_id="i").join().error is ErrorCode.unreleased_instance_id


def test_a_static_member_that_stays_away_is_put_out():
    it = scene()
    a, b = it.consumer("a", instance_id="i"), it.consumer("b")
    a.join()
    b.join()
    settle(a, b)
    a.leave(AWAY)
    it.advance(30_000)
    assert b.beat().assignment is None
    it.advance(30_000)
    assert b.beat().assignment == ((T, (0, 1, 2)),)


def test_a_static_member_that_leaves_for_good_is_gone():
    it = scene()
    a = it.consumer("a", instance_id="i")
    a.join()
    a.leave()
    assert it.group().is_empty
    assert it.consumer("b", instance_id="i").join().error is ErrorCode.none


# -- the log -------------------------------------------------------------------------------------


def test_answers_wait_until_the_log_has_what_they_tell():
    it = scene()
    it.replicated = False
    a = it.consumer("a")
    caller = it.ask(e.ConsumerGroupHeartbeat, **a.heartbeat(**a.saying_all()))
    assert caller not in it.answers
    assert it.describe().error is ErrorCode.group_id_not_found
    it.commit()
    assert it.answers[caller].member_epoch == 2
    assert it.describe().members[0].member_id == "a"


def test_a_failed_append_changes_nothing():
    it = scene()
    a, b = it.consumer("a"), it.consumer("b")
    a.join()
    group = it.group()
    it.append_error = ErrorCode.not_enough_replicas
    assert b.join().error is ErrorCode.coordinator_not_available
    assert it.group() is group
    it.append_error = None
    b.join()
    assert settle(a, b) < 4


def test_the_next_coordinator_goes_on_where_this_one_was():
    it = scene()
    a, b = it.consumer("a", ("t", "u")), it.consumer("b", ("t", "u"), instance_id="i")
    a.join()
    b.join()
    kept = a.request()
    group = it.group()
    it.fail_over()
    assert it.group() == group
    assert a.take(kept).assignment == ((T, (0, 1, 2)), (U, (0,)))
    settle(a, b)
    assert sorted(a.partitions + b.partitions) == sorted(
        [("t", p) for p in range(3)] + [("u", p) for p in range(4)]
    )


def test_the_next_coordinator_waits_for_members_and_their_partitions():
    it = scene()
    a, b = it.consumer("a"), it.consumer("b")
    a.join()
    b.join()
    a.request(rebalance_timeout_ms=5_000)
    it.fail_over()
    it.advance(6_000)
    assert set(it.group().members) == {"b"}
    it.advance(60_000)
    assert it.group().is_empty


def test_an_empty_group_of_the_other_type_gives_up_its_id():
    it = scene()
    it.commit_offset(5)
    a = it.consumer("a")
    before = len(it.log)
    a.join()
    assert kinds(it, before)[0] == "GroupMetadata"
    assert it.offset().offset == 5
    a.leave()
    before = len(it.log)
    it.stable()
    assert it.state() == "Stable"
    assert kinds(it, before)[:3] == [
        "TargetAssignmentMetadata",
        "PartitionMetadata",
        "Metadata",
    ]
    assert it.offset().offset == 5


# -- offsets -------------------------------------------------------------------------------------


def test_members_commit_at_their_epoch_or_what_they_had_since_then():
    it = scene()
    a, b = it.consumer("a"), it.consumer("b")
    a.join()
    b.join()
    settle(a, b)
    (_, kept), (_, got) = a.partitions[0], b.partitions[0]

    def commit(member, epoch, partition, tid=T):
        one = e.CommittedOffset("t", partition, 1, topic_id=tid)
        told = it.told(e.OffsetCommit, "g", member, epoch, None, (one,))
        return told.errors[0].name

    assert commit("a", 3, kept) == "none"
    assert commit("a", 2, kept) == "none"
    assert commit("a", 1, kept) == "stale_member_epoch"
    assert commit("a", 2, kept, None) == "stale_member_epoch"
    assert commit("b", 3, got) == "none"
    assert commit("b", 2, got) == "stale_member_epoch"
    assert commit("a", 2, got) == "stale_member_epoch"
    assert commit("a", 4, kept) == "stale_member_epoch"
    assert commit("nobody", 3, 0) == "unknown_member_id"
    assert commit("", -1, 0) == "unknown_member_id"
    old = it.told(e.OffsetCommit, "g", "a", 3, None, (e.CommittedOffset("t", 0, 1),), None, False)
    assert old.errors == (ErrorCode.unsupported_version,)
    a.leave()
    b.leave()
    assert commit("", -1, 0) == "none"


def test_members_fetch_offsets_at_their_epoch():
    it = scene()
    a = it.consumer("a")
    a.join()

    def fetch(**fields):
        return it.told(e.OffsetFetch, "g", None, **fields).error.name

    assert fetch() == "none"
    assert fetch(member_id="a", member_epoch=2) == "none"
    assert fetch(member_id="a", member_epoch=1) == "stale_member_epoch"
    assert fetch(member_id="b", member_epoch=2) == "unknown_member_id"


# -- describing ----------------------------------------------------------------------------------


def test_described():
    it = scene()
    a = it.consumer("a", ("u", "t"), instance_id="i")
    a.join()
    b = it.consumer("b", ("u", "t"))
    b.join()
    a.request(rack_id="r")
    group = it.describe()
    assert (group.error, group.group_id, group.state) == (ErrorCode.none, "g", "Reconciling")
    assert (group.group_epoch, group.assignment_epoch, group.assignor) == (3, 3, "uniform")
    first, second = group.members
    everything = (
        e.DescribedAssignment(T, "t", (0, 1, 2)),
        e.DescribedAssignment(U, "u", (0, 1, 2, 3)),
    )
    assert first == e.DescribedConsumer(
        "a", "i", "r", 2, "client", "/1.2.3.4", ("t", "u"), "",
        everything, (everything[0], e.DescribedAssignment(U, "u", (0,))), 1,
    )  # fmt: skip
    assert (second.member_epoch, second.assignment) == (3, ())
    assert second.target == (e.DescribedAssignment(U, "u", (1, 2, 3)),)
    listed = it.told(e.ListGroups).groups
    assert listed == (e.ListedGroup("g", "consumer", "Reconciling", "consumer"),)
