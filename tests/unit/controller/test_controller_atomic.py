"""Many new partitions are made in slices and appended as one batch, which others can't spoil."""

from datetime import timedelta

import pytest
from controller_scene import Scene

from controller import atomic, core
from controller.events import AppendRecords, LogEndMoved, LostLeadership, Tick
from metadata.image import TOPIC_RESOURCE
from wire.apis import ApiKey
from wire.errors import ErrorCode

E = ErrorCode
PARTITIONS = 1_000


@pytest.fixture
def scene() -> Scene:
    scene = Scene(session_timeout_ms=3_000).lead().start_brokers(1, 2, 3)
    scene.create_topic("old", 4, 3)
    return scene


def create(scene, name="big", partitions=PARTITIONS, *, validate_only=False, assignments=None):
    return scene.send(
        ApiKey.CREATE_TOPICS,
        7,
        topics=(scene.new_topic(name, partitions, 3, assignments=assignments),),
        timeout=timedelta(0),
        validate_only=validate_only,
    )


def grow(scene, name, count, assignments=None):
    key = ApiKey.CREATE_PARTITIONS
    if assignments is not None:
        assignments = tuple(
            scene.part(key, 3, "CreatePartitionsAssignment", broker_ids=brokers)
            for brokers in assignments
        )
    topic = scene.part(
        key, 3, "CreatePartitionsTopic", name=name, count=count, assignments=assignments
    )
    return scene.send(key, 3, topics=(topic,), timeout=timedelta(0), validate_only=False)


def batches(effects):
    return [effect.values for effect in effects if isinstance(effect, AppendRecords)]


def error_of(scene, token):
    reply = scene.answer(token)
    (result,) = getattr(reply, "topics", None) or reply.results
    return result.error_code


def assert_all_led_by_others_than(scene, broker, partitions=PARTITIONS):
    found = scene.core.image.topic("big").partitions
    assert sorted(found) == list(range(partitions))
    assert all(broker not in p.isr and p.leader != broker for p in found.values())


@pytest.mark.parametrize("by_hand", [False, True])
def test_slices_with_one_batch_at_the_end(scene, by_hand):
    before = scene.core.image
    by_index = dict.fromkeys(range(PARTITIONS), (3, 2, 1)) if by_hand else None
    token = create(scene, assignments=by_index)
    seen = 1
    while scene.core.under_way:
        assert token not in scene.replies
        assert scene.core.image is before
        assert scene.core.next_deadline_ms() <= scene.now_ms
        effects = scene.handle(Tick())
        seen += 1
    assert seen >= PARTITIONS * (1 + by_hand) // core._ATOMIC_SLICE
    assert [len(values) for values in batches(effects)] == [PARTITIONS + 1]
    assert error_of(scene, token) is E.none
    assert len(scene.core.image.topic("big").partitions) == PARTITIONS


@pytest.mark.parametrize("by_hand", [False, True])
def test_so_are_partitions_added(scene, by_hand):
    more = ((2, 3, 1),) * (PARTITIONS - 4) if by_hand else None
    token = grow(scene, "old", PARTITIONS, more)
    assert scene.core.under_way == 1
    assert len(scene.core.image.topic("old").partitions) == 4
    scene.finish()
    assert error_of(scene, token) is E.none
    found = scene.core.image.topic("old").partitions
    assert sorted(found) == list(range(PARTITIONS))
    assert not by_hand or found[PARTITIONS - 1].replicas == (2, 3, 1)


def test_many_small_topics_too(scene):
    names = [f"t{number}" for number in range(300)]
    token = scene.send(
        ApiKey.CREATE_TOPICS,
        7,
        topics=tuple(scene.new_topic(name, 1, 2) for name in names),
        timeout=timedelta(0),
        validate_only=False,
    )
    assert scene.core.under_way == 1
    scene.finish()
    assert [str(topic.name) for topic in scene.answer(token).topics] == names
    assert len(scene.log[-1][2]) == 600


def test_others_go_on_in_between(scene):
    token = create(scene)
    grown = grow(scene, "old", PARTITIONS)
    partition = scene.partition("old")
    outside = next(b for b in partition.replicas if b != partition.leader)
    isr = tuple(b for b in partition.isr if b != outside)
    epochs = (partition.leader_epoch, partition.partition_epoch)
    topic_id = scene.core.image.topic("old").id
    reply = scene.alter_isr(topic_id, 0, partition.leader, epochs, isr)
    assert reply.error_code is E.none
    assert scene.set_config(TOPIC_RESOURCE, "old", "retention.ms", "7") is E.none
    scene.finish()
    assert error_of(scene, token) is error_of(scene, grown) is E.none
    # What was decided meanwhile is still there.
    assert scene.partition("old").isr == isr
    assert len(scene.core.image.topic("old").partitions) == PARTITIONS


def test_a_name_is_not_given_twice(scene):
    first, second = create(scene), create(scene, "big", 1)
    assert second not in scene.replies
    scene.finish()
    assert error_of(scene, first) is E.none
    assert error_of(scene, second) is E.topic_already_exists


def test_a_broker_that_goes_meanwhile_gets_nothing(scene):
    token = create(scene)
    scene.handle(Tick())
    scene.stop_broker(2)
    scene.finish()
    assert error_of(scene, token) is E.none
    assert_all_led_by_others_than(scene, 2)


def test_nor_does_one_that_has_to_be_fenced_slice_by_slice(scene):
    scene.start_broker(4)
    create(scene, "many", 2_000)
    scene.finish()
    token = create(scene, partitions=400)
    unregister = scene.send(ApiKey.UNREGISTER_BROKER, 0, broker_id=1)
    assert scene.core.under_way == 2
    while token not in scene.replies:
        scene.handle(Tick())
    assert scene.core.under_way == 1, "it is decided while the other goes on"
    scene.finish()
    assert error_of(scene, token) is scene.answer(unregister).error_code is E.none
    assert_all_led_by_others_than(scene, 1, partitions=400)


def test_what_is_deleted_meanwhile_gets_no_partitions(scene):
    token = grow(scene, "old", PARTITIONS)
    deleted = scene.send(ApiKey.DELETE_TOPICS, 1, topic_names=("old",), timeout=timedelta(0))
    assert scene.answer(deleted).responses[0].error_code is E.none
    scene.finish()
    assert error_of(scene, token) is E.unknown_topic_or_partition
    assert scene.core.image.topic("old") is None


def test_brokers_that_come_and_go_all_the_time_have_it_made_in_one_piece(scene):
    token = create(scene)
    for _ in range(atomic._ATTEMPTS):
        assert token not in scene.replies
        scene.core._atomic[0].give_up_attempt()
        scene.handle(Tick())
    assert error_of(scene, token) is E.none


def test_validation_appends_nothing(scene):
    end, before = scene.end_offset, scene.core.image
    token = create(scene, validate_only=True)
    scene.finish()
    assert error_of(scene, token) is E.none
    assert (scene.end_offset, scene.core.image) == (end, before)


def test_lost_leadership_answers_those_who_wait(scene):
    first, second = create(scene), create(scene, "other")
    assert scene.core.under_way == scene.core.waiting == 2
    scene.handle(LostLeadership())
    assert error_of(scene, first) is error_of(scene, second) is E.not_controller
    assert scene.core.under_way == 0
    scene.fail_over()
    assert scene.core.image.topic("big") is None


def test_what_would_not_fit_in_a_batch_is_refused_as_a_whole():
    scene = Scene(max_batch_bytes=10_000).lead().start_brokers(1, 2, 3)
    before = scene.core.image
    token = create(scene)
    scene.finish()
    assert error_of(scene, token) is E.policy_violation
    assert scene.core.image is before
    assert scene.core.waiting == 0


def test_a_step_that_fails_ends_it_and_nothing_else(scene, monkeypatch):
    create(scene)
    before = scene.core.image

    def breaks(record, level):
        raise RuntimeError("broken")

    monkeypatch.setattr(atomic, "encode_record", breaks)
    with pytest.raises(RuntimeError, match="broken"):
        scene.handle(Tick())
    assert scene.core.image is before
    assert scene.core.under_way == 0
    scene.core.check_invariants()


def test_what_failed_meanwhile_has_left_no_trace(scene, monkeypatch):
    scene.create_topic("off", assignments=dict.fromkeys(range(10), (1, 2, 3)))
    scene.stop_broker(1)
    scene.start_broker(1)
    topic = scene.core.image.topic("off")
    for index, found in sorted(topic.partitions.items()):
        epochs = (found.leader_epoch, found.partition_epoch)
        assert scene.alter_isr(topic.id, index, 2, epochs, (2, 3, 1)).error_code is E.none
    token = create(scene)
    real = core.encode_record
    calls = iter(range(10_000))

    def breaks(record, level):
        if next(calls) == 3:
            raise RuntimeError("broken")
        return real(record, level)

    monkeypatch.setattr(core, "encode_record", breaks)
    with pytest.raises(RuntimeError, match="broken"):
        scene.send(
            ApiKey.ELECT_LEADERS, 2, election_type=0, topic_partitions=None, timeout=timedelta(0)
        )
    scene.finish()  # a standby agrees with every commit
    assert error_of(scene, token) is E.none


def test_control_records_of_the_quorum_come_in_between(scene):
    token = create(scene)
    scene.handle(LogEndMoved(scene.end_offset + 1, 1))
    scene.end_offset += 1
    scene.finish()
    assert error_of(scene, token) is E.none
    assert scene.core.image.kraft_version == 1
