"""Offsets of groups: who may commit them, what is told of them, when they go."""

from uuid import UUID

import pytest
from group_scene import DAY_MS, WALL_MS, GroupScene, subscription

from broker.groups import events as e
from wire.errors import ErrorCode
from wire.group_records import OffsetCommitKey, OffsetCommitValue, decode, encode_key, encode_value

T, U = ("t", 0), ("u", 0)


def as_member(joined):
    return {"member_id": joined.member_id, "generation": joined.generation}


def transactional(scene, offset, producer_id=7, partition=0, **fields):
    """Returns the caller of a transactional commit of one offset."""
    values = {"member_id": "", "generation": -1, "instance_id": None, **fields}
    one = e.CommittedOffset("t", partition, offset)
    return scene.ask(
        e.TxnOffsetCommit,
        group_id="g",
        producer_id=producer_id,
        producer_epoch=3,
        offsets=(one,),
        **values,
    )


# -- commits -------------------------------------------------------------------------------------


def test_a_group_without_members_is_committed_to_by_anybody():
    scene = GroupScene()
    assert scene.commit_offset(5) is ErrorCode.none
    assert scene.offset() == e.FetchedOffset(0, 5)
    assert (scene.state(), scene.described().protocol_type) == ("Empty", "")


def test_a_commit_has_epoch_and_metadata():
    scene = GroupScene()
    one = e.CommittedOffset("t", 3, 17, leader_epoch=4, metadata="\u00e4")
    scene.told(e.OffsetCommit, "g", "", -1, None, (one,))
    assert scene.offset(3) == e.FetchedOffset(3, 17, 4, "\u00e4")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"generation": 1}, "group_id_not_found"),
        ({"member_id": "m", "generation": 0}, "group_id_not_found"),
        ({"member_id": "m", "generation": -1}, "none"),
    ],
)
def test_a_group_that_is_not_there_has_no_members_that_could_commit(fields, error):
    scene = GroupScene()
    assert scene.commit_offset(5, **fields).name == error


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "none"),
        ({"generation": 0}, "illegal_generation"),
        ({"generation": 2}, "illegal_generation"),
        ({"generation": -1}, "illegal_generation"),
        ({"member_id": "stranger"}, "unknown_member_id"),
        ({"member_id": ""}, "unknown_member_id"),
        ({"member_id": "", "generation": -1}, "unknown_member_id"),
        ({"instance_id": "i"}, "unknown_member_id"),
    ],
)
def test_a_group_with_members_is_committed_to_by_those_of_its_generation(fields, error):
    scene = GroupScene()
    [only] = scene.stable()
    assert scene.commit_offset(5, **(as_member(only) | fields)).name == error


def test_members_may_commit_before_they_join_again_but_not_before_they_sync():
    scene = GroupScene()
    leader, follower = scene.stable(2)
    scene.join(leader.member_id)
    assert scene.state() == "PreparingRebalance"
    assert scene.commit_offset(5, **as_member(follower)) is ErrorCode.none
    told = scene.answers[scene.join(follower.member_id)]
    assert scene.state() == "CompletingRebalance"
    assert scene.commit_offset(6, **as_member(told)) is ErrorCode.rebalance_in_progress


def test_metadata_that_is_too_long_is_refused_for_its_partition_alone():
    scene = GroupScene(offset_metadata_max_bytes=4)
    metadata = ["abcd", "abcde", "ab\U0001f600", "abc\U0001f600"]
    offsets = tuple(e.CommittedOffset("t", p, 1, metadata=m) for p, m in enumerate(metadata))
    told = scene.told(e.OffsetCommit, "g", "", -1, None, offsets)
    assert [one.name for one in told.errors] == [
        "none",
        "offset_metadata_too_large",
        "none",
        "offset_metadata_too_large",
    ]
    assert len(scene.log) == 2
    told = scene.told(e.OffsetCommit, "other", "", -1, None, offsets[1:2])
    assert scene.state("other") == "Dead"


def test_a_commit_is_told_and_seen_when_it_is_committed():
    scene = GroupScene()
    scene.commit_offset(5)
    scene.replicated = False
    one = e.CommittedOffset("t", 0, 6)
    caller = scene.ask(e.OffsetCommit, "g", "", -1, None, (one,))
    assert caller not in scene.answers
    assert scene.offset().offset == 5
    scene.commit()
    assert scene.answers[caller].errors == (ErrorCode.none,)
    assert scene.offset().offset == 6


def test_a_fetch_for_stable_offsets_waits_for_commits_under_way():
    scene = GroupScene()
    scene.replicated = False
    scene.ask(e.OffsetCommit, "g", "", -1, None, (e.CommittedOffset("t", 0, 6),))
    caller = scene.ask(e.OffsetFetch, "g", (("t", (0,)),), require_stable=True)
    assert caller not in scene.answers
    scene.commit()
    assert scene.answers[caller].topics == (("t", (e.FetchedOffset(0, 6),)),)


def test_everything_of_a_group_is_told_as_it_is_committed():
    scene = GroupScene()
    scene.commit_offset(1, 0)
    scene.commit_offset(2, 1)
    scene.commit_offset(3, topic="u")
    scene.replicated = False
    scene.ask(e.OffsetCommit, "g", "", -1, None, (e.CommittedOffset("t", 0, 9),))
    scene.ask(e.OffsetCommit, "g", "", -1, None, (e.CommittedOffset("v", 0, 9),))
    scene.ask(e.OffsetDelete, "g", (("u", (0,)),))
    t, u = ((0, 1), (1, 2)), ((0, 3),)
    told = scene.told(e.OffsetFetch, "g", None)
    assert {name: tuple((one[0], one[1]) for one in ps) for name, ps in told.topics} == {
        "t": t,
        "u": u,
    }


@pytest.mark.parametrize(
    ("appended", "told"),
    [
        ("not_enough_replicas", "coordinator_not_available"),
        ("request_timed_out", "coordinator_not_available"),
        ("not_leader_or_follower", "not_coordinator"),
        ("kafka_storage_error", "not_coordinator"),
        ("message_too_large", "invalid_commit_offset_size"),
    ],
)
def test_a_commit_that_cannot_be_stored_never_was(appended, told):
    scene = GroupScene()
    scene.commit_offset(5)
    scene.append_error = ErrorCode[appended]
    assert scene.commit_offset(6).name == told
    assert scene.commit_offset(6, group_id="other").name == told
    assert scene.offset().offset == 5
    assert scene.state("other") == "Dead"


def test_commits_that_were_appended_together_fail_together_from_the_failed_one_on():
    scene = GroupScene()
    core = scene.core
    tokens = []
    for offset in (1, 2, 3):
        request = e.OffsetCommit(offset, "g", "", -1, None, (e.CommittedOffset("t", 0, offset),))
        tokens += [one.token for one in core.handle(request, 0, WALL_MS)]
    told = core.handle(e.Appended(tokens[0], 1), 0, WALL_MS)
    told += core.handle(e.AppendFailed(tokens[1], ErrorCode.request_timed_out), 0, WALL_MS)
    told += core.handle(e.Committed(1), 0, WALL_MS)
    failed = ErrorCode.coordinator_not_available
    assert [(one.caller, one.value.errors) for one in told] == [
        (3, (failed,)),
        (2, (failed,)),
        (1, (ErrorCode.none,)),
    ]
    assert scene.offset().offset == 1


# -- fetches -------------------------------------------------------------------------------------


def test_what_is_not_committed_is_no_offset():
    scene = GroupScene()
    assert scene.offset() == e.FetchedOffset(0, -1, -1, "")
    assert scene.told(e.OffsetFetch, "g", None) == e.OffsetsFetched(ErrorCode.none)
    scene.commit_offset(5)
    assert scene.offset(1) == e.FetchedOffset(1, -1, -1, "")


def test_the_newest_offset_of_a_partition_counts_after_a_failover():
    scene = GroupScene()
    for offset in (5, 9, 7):
        scene.commit_offset(offset)
    scene.fail_over()
    assert scene.offset().offset == 7


def test_an_offset_that_was_not_committed_is_lost_with_its_coordinator():
    scene = GroupScene()
    scene.commit_offset(5)
    scene.replicated = False
    caller = scene.ask(e.OffsetCommit, "g", "", -1, None, (e.CommittedOffset("t", 0, 6),))
    scene.fail_over()
    assert scene.answers[caller].errors == (ErrorCode.not_coordinator,)
    assert scene.offset().offset == 5


# -- transactions --------------------------------------------------------------------------------


def test_an_offset_in_a_transaction_counts_when_that_is_committed():
    scene = GroupScene()
    scene.commit_offset(5)
    assert scene.answers[transactional(scene, 6)].errors == (ErrorCode.none,)
    assert scene.offset().offset == 5
    assert scene.offset(require_stable=True) == e.FetchedOffset(
        0, error=ErrorCode.unstable_offset_commit
    )
    scene.end_transaction(7, True)
    assert scene.offset(require_stable=True).offset == 6


def test_an_offset_in_an_aborted_transaction_never_counts():
    scene = GroupScene()
    scene.commit_offset(5)
    transactional(scene, 6)
    scene.end_transaction(7, False)
    assert scene.offset(require_stable=True).offset == 5


def test_of_several_commits_the_last_in_the_log_counts_whenever_its_transaction_ended():
    scene = GroupScene()
    transactional(scene, 1, producer_id=1)
    transactional(scene, 2, producer_id=2)
    scene.end_transaction(2, True)
    scene.end_transaction(1, True)
    assert scene.offset().offset == 2
    transactional(scene, 3, producer_id=1)
    scene.commit_offset(4)
    scene.end_transaction(1, True)
    assert scene.offset().offset == 4
    scene.fail_over()
    assert scene.offset().offset == 4


def test_transactions_that_are_open_at_a_failover_end_with_their_markers():
    scene = GroupScene()
    scene.commit_offset(5)
    transactional(scene, 6, producer_id=1)
    transactional(scene, 7, producer_id=2, partition=1)
    scene.fail_over()
    assert scene.offset(require_stable=True).error is ErrorCode.unstable_offset_commit
    scene.end_transaction(1, True)
    scene.end_transaction(2, False)
    assert [scene.offset(p, require_stable=True).offset for p in (0, 1)] == [6, -1]


def test_a_marker_counts_when_it_is_committed():
    scene = GroupScene()
    scene.commit_offset(5)
    transactional(scene, 6)
    scene.replicated = False
    scene.end_transaction(7, True)
    assert scene.offset().offset == 5
    scene.commit()
    assert scene.offset().offset == 6


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "none"),
        ({"member_id": "", "generation": -1}, "none"),
        ({"generation": 0}, "illegal_generation"),
        ({"member_id": "stranger"}, "unknown_member_id"),
        ({"instance_id": "i"}, "unknown_member_id"),
    ],
)
def test_a_transaction_that_tells_its_member_has_to_be_of_the_generation(fields, error):
    """KIP-447; a producer that tells nothing is let pass."""
    scene = GroupScene()
    [only] = scene.stable()
    caller = transactional(scene, 5, **(as_member(only) | fields))
    assert scene.answers[caller].errors[0].name == error


def test_a_transaction_may_commit_during_a_rebalance():
    scene = GroupScene()
    leader, _ = scene.joined(2)
    assert scene.state() == "CompletingRebalance"
    assert scene.answers[transactional(scene, 5, **as_member(leader))].errors == (ErrorCode.none,)


def test_a_group_that_is_not_there_has_no_generation_for_a_transaction():
    scene = GroupScene()
    refused = scene.answers[transactional(scene, 5, generation=0)]
    assert refused.errors == (ErrorCode.illegal_generation,)


# -- deletion ------------------------------------------------------------------------------------


def deleted(scene, *topics):
    told = scene.told(
        e.OffsetDelete, "g", tuple((name, (partition,)) for name, partition in topics)
    )
    return told.error.name, [error.name for _, partitions in told.topics for _, error in partitions]


def test_single_offsets_are_deleted():
    scene = GroupScene()
    scene.commit_offset(5)
    scene.commit_offset(6, 1)
    assert deleted(scene, T, U) == ("none", ["none", "none"])
    assert [scene.offset(p).offset for p in (0, 1)] == [-1, 6]
    scene.fail_over()
    assert [scene.offset(p).offset for p in (0, 1)] == [-1, 6]


def test_offsets_that_members_use_stay():
    scene = GroupScene()
    [only] = scene.stable()
    scene.commit_offset(5, **as_member(only))
    scene.commit_offset(5, topic="u", **as_member(only))
    assert deleted(scene, T, U) == ("none", ["group_subscribed_to_topic", "none"])
    assert scene.offset().offset == 5
    scene.leave((only.member_id, None))
    assert deleted(scene, T) == ("none", ["none"])


def test_of_other_protocols_nobody_knows_what_members_use():
    scene = GroupScene()
    joined = scene.joined(protocol_type="connect")
    scene.synced(joined)
    assert deleted(scene, U) == ("non_empty_group", [])
    scene.leave((joined[0].member_id, None))
    assert deleted(scene, U) == ("none", ["none"])


def test_a_subscription_that_cannot_be_read_is_one_to_every_topic():
    scene = GroupScene()
    scene.stable(protocols=(e.Protocol("range", b"?"),))
    assert deleted(scene, U) == ("none", ["group_subscribed_to_topic"])
    names = subscription("t", "u")
    other = GroupScene()
    other.stable(protocols=(e.Protocol("range", names[:-5]),))
    assert deleted(other, ("v", 0)) == ("none", ["group_subscribed_to_topic"])


def test_deleting_from_nowhere_is_an_error():
    scene = GroupScene()
    assert deleted(scene, T) == ("group_id_not_found", [])
    assert scene.told(e.OffsetDelete, "", ()).error is ErrorCode.invalid_group_id


def test_a_deletion_ends_what_open_transactions_have_of_it():
    scene = GroupScene()
    transactional(scene, 5)
    assert deleted(scene, T) == ("none", ["none"])
    scene.end_transaction(7, True)
    assert scene.offset().offset == -1


def test_offsets_go_with_their_topic():
    scene = GroupScene()
    for group_id in ("g", "h"):
        scene.commit_offset(5, group_id=group_id)
        scene.commit_offset(6, topic="u", group_id=group_id)
    transactional(scene, 7, partition=1)
    scene.tell(e.TopicsDeleted(("t", "other")))
    scene.end_transaction(7, True)
    for _ in range(2):
        for group_id in ("g", "h"):
            assert scene.offset(group_id=group_id).offset == -1
            assert scene.offset(group_id=group_id, topic="u").offset == 6
        assert scene.offset(1).offset == -1
        scene.fail_over()


CHECK_MS = 600_000
OLD, NEW, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)


def knows(scene, **topics):
    """The coordinator's metadata has these topics, by name and id."""
    known = {name: e.Topic(topic_id, 3) for name, topic_id in topics.items()}
    scene.tell(e.TopicsKnown(len(scene.log), known))


def commit_for(scene, topic, topic_id, offset):
    one = e.CommittedOffset(topic, 0, offset, topic_id=topic_id)
    scene.told(e.OffsetCommit, "g", "", -1, None, (one,))


def fail_over_to_one_who_knows(scene, **topics):
    """As `fail_over`, and the next coordinator has this metadata when it has loaded."""
    scene.tell(e.Resigned())
    scene.core = scene.loaded_copy()
    knows(scene, **topics)
    scene.tell(e.Loaded())
    scene.tell(e.Committed(scene.high_watermark))


@pytest.mark.parametrize("now", [{}, {"t": NEW}])
def test_offsets_of_a_topic_that_went_while_nobody_coordinated_go_when_they_are_loaded(now):
    scene = GroupScene()
    commit_for(scene, "t", OLD, 5)
    commit_for(scene, "u", OTHER, 6)
    fail_over_to_one_who_knows(scene, u=OTHER, **now)
    assert scene.offset().offset == -1
    assert scene.offset(topic="u").offset == 6
    # It stays so where it is only read, as by Kafka.
    other = GroupScene()
    other.log, other.markers = list(scene.log), scene.markers
    other.commit()
    other.fail_over()
    assert other.offset().offset == -1
    assert other.offset(topic="u").offset == 6


def test_offsets_without_a_topics_id_count_for_the_topic_of_the_name():
    """Kafka stores ids for some clients only."""
    scene = GroupScene()
    scene.commit_offset(5)
    fail_over_to_one_who_knows(scene, t=NEW)
    assert scene.offset().offset == 5


def test_what_was_committed_for_an_earlier_topic_of_the_name_is_not_told():
    """Though its deletion could not be written; that is tried again when offsets expire."""
    scene = GroupScene()
    knows(scene, t=OLD, u=OTHER)
    commit_for(scene, "t", OLD, 5)
    commit_for(scene, "u", OTHER, 6)
    scene.append_error = ErrorCode.not_enough_replicas
    scene.tell(e.TopicsDeleted(("t",)))
    knows(scene, t=NEW, u=OTHER)
    assert scene.offset().offset == -1
    told = scene.told(e.OffsetFetch, "g", None).topics
    assert {topic: one.offset for topic, [one] in told} == {"t": -1, "u": 6}
    scene.append_error = None
    scene.advance(CHECK_MS)
    told = scene.told(e.OffsetFetch, "g", None).topics
    assert {topic: one.offset for topic, [one] in told} == {"u": 6}
    scene.commit_offset(7)
    assert scene.offset().offset == 7


# -- retention -----------------------------------------------------------------------------------

WEEK_MS = 7 * DAY_MS


def test_offsets_of_a_group_without_members_expire_a_week_after_their_commit():
    scene = GroupScene()
    scene.commit_offset(5)
    scene.advance(DAY_MS)
    scene.commit_offset(6, 1)
    scene.advance(WEEK_MS - DAY_MS - CHECK_MS)
    assert scene.offset().offset == 5
    scene.advance(2 * CHECK_MS)
    assert [scene.offset(p).offset for p in (0, 1)] == [-1, 6]
    scene.advance(DAY_MS)
    assert scene.state() == "Dead"
    scene.fail_over()
    assert (scene.state(), scene.offset(1).offset) == ("Dead", -1)


def test_offsets_of_a_group_that_had_members_expire_a_week_after_the_last_one_left():
    scene = GroupScene()
    [only] = scene.stable(session_timeout_ms=1_800_000)
    scene.commit_offset(5, **as_member(only))
    for _ in range(8 * 48):
        scene.beat(only)
        scene.advance(1_790_000)
    scene.leave((only.member_id, None))
    scene.advance(WEEK_MS - 1 - CHECK_MS)
    assert scene.offset().offset == 5
    scene.fail_over()
    scene.advance(2 * CHECK_MS)
    assert scene.state() == "Dead"


def test_offsets_of_a_topic_that_members_use_no_more_expire_though_there_are_members():
    scene = GroupScene()
    [only] = scene.stable(session_timeout_ms=1_800_000)
    for topic in "tu":
        scene.commit_offset(5, topic=topic, **as_member(only))
    for _ in range(8 * 48):
        scene.beat(only)
        scene.advance(1_790_000)
    assert [scene.offset(topic=topic).offset for topic in "tu"] == [5, -1]


def test_offsets_do_not_expire_while_a_rebalance_is_under_way():
    scene = GroupScene(
        group_initial_rebalance_delay_ms=200_000,
        offsets_retention_check_interval_ms=100_000,
        offsets_retention_minutes=1,
    )
    scene.commit_offset(5)
    scene.join(instance_id="i", protocol_type="connect")
    scene.advance(150_000)
    assert (scene.state(), scene.offset().offset) == ("PreparingRebalance", 5)


def test_a_commit_may_bring_a_retention_of_its_own():
    """OffsetCommit before version 5."""
    scene = GroupScene()
    scene.commit_offset(5, retention_ms=60_000)
    scene.commit_offset(6, 1)
    scene.advance(CHECK_MS + 1)
    assert [scene.offset(p).offset for p in (0, 1)] == [-1, 6]
    assert scene.state() == "Empty"


def test_an_offset_in_an_open_transaction_keeps_its_group():
    scene = GroupScene(offsets_retention_minutes=1)
    scene.commit_offset(5)
    transactional(scene, 6)
    scene.advance(2 * CHECK_MS)
    assert (scene.offset().offset, scene.state()) == (5, "Empty")
    scene.end_transaction(7, True)
    assert scene.offset().offset == 6


def test_expiry_goes_on_in_slices_and_batches_however_much_there_is():
    scene = GroupScene(offsets_retention_minutes=1)
    count = 12_000
    for number in range(count):
        key = encode_key(OffsetCommitKey(f"g{number % 7_000}", "t", number))
        value = encode_value(OffsetCommitValue(1, commit_timestamp=WALL_MS))
        scene.log.append((key, value, -1))
    scene.high_watermark = count
    scene.fail_over()
    batches = []
    append, scene.append = scene.append, lambda one: (batches.append(len(one.records)), append(one))
    scene.advance(CHECK_MS + 1_000)
    assert scene.told(e.ListGroups) == e.GroupsListed(ErrorCode.none)
    assert sum(batches) == count + 7_000
    assert len(batches) > 2
    assert {decode(key, value)[1] for key, value, _ in scene.log[count:]} == {None}


def test_offsets_that_could_not_be_dropped_are_dropped_later():
    scene = GroupScene(offsets_retention_minutes=1)
    scene.commit_offset(5)
    scene.append_error = ErrorCode.not_enough_replicas
    scene.advance(CHECK_MS + 1_000)
    assert scene.offset().offset == 5
    scene.append_error = None
    scene.advance(CHECK_MS + 1_000)
    assert scene.state() == "Dead"
