"""What concerns all partitions of a broker is decided in slices, with others' turn in between."""

from datetime import timedelta
from itertools import takewhile
from types import SimpleNamespace

import pytest
from controller_scene import Scene

from controller import api_alter_partition, api_elect_leaders, core, fencing
from controller.events import AppendRecords, LostLeadership, Tick
from metadata.maps import AT_ONCE
from metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from wire.apis import ApiKey
from wire.errors import ErrorCode

E = ErrorCode
PARTITIONS = 1_000


@pytest.fixture
def scene() -> Scene:
    scene = Scene(session_timeout_ms=3_000).lead().start_brokers(1, 2, 3)
    scene.create_topic("big", assignments=dict.fromkeys(range(PARTITIONS), (1, 2, 3)))
    return scene


def silence(scene: Scene, *brokers: int) -> list[int]:
    """Time passes until the brokers' sessions end and a first slice is done; its size."""
    alive = tuple(broker for broker in (1, 2, 3) if broker not in brokers)
    scene.pass_ms(2_900, alive=alive)
    while not scene.core.under_way:
        scene.now_ms = scene.core.next_deadline_ms()
        effects = scene.handle(Tick())
    return [len(e.values) for e in effects if isinstance(e, AppendRecords)]


def led_by(scene: Scene, broker: int) -> int:
    return scene.core.image.leader_count(broker)


def test_a_session_that_ends_moves_leaders_slice_by_slice(scene):
    slices = silence(scene, 1)
    while scene.core.under_way:
        assert scene.core.next_deadline_ms() <= scene.now_ms
        effects = scene.handle(Tick())
        (append,) = [e for e in effects if isinstance(e, AppendRecords)]
        slices.append(len(append.values))
    assert max(slices) <= core._SLICE
    assert sum(slices) == PARTITIONS + 1
    assert led_by(scene, 1) == 0
    assert led_by(scene, 2) == PARTITIONS
    last = scene.records()[-1]
    assert isinstance(last, BrokerRegistrationChangeRecord)
    assert last.fenced == 1, "said last, so that whoever takes over in the middle begins again"


def test_who_is_on_its_way_out_gets_nothing_new(scene):
    silence(scene, 1)
    assert 0 < led_by(scene, 1) < PARTITIONS
    assert not scene.core.image.broker(1).fenced
    # Neither a new partition, nor a place in an ISR, nor an election.
    token = scene.send(
        ApiKey.CREATE_TOPICS,
        7,
        topics=(scene.new_topic("new", assignments={0: (1, 2, 3)}),),
        timeout=timedelta(seconds=5),
        validate_only=False,
    )
    assert scene.answer(token).topics[0].error_code is E.none
    assert (scene.partition("new").leader, scene.partition("new").isr) == (2, (2, 3))
    moved = next(i for i in range(PARTITIONS) if scene.partition("big", i).leader == 2)
    found = scene.partition("big", moved)
    epochs = (found.leader_epoch, found.partition_epoch)
    topic = scene.core.image.topic("big").id
    reply = scene.alter_isr(topic, moved, 2, epochs, (2, 3, 1))
    assert reply.error_code is E.ineligible_replica
    scene.finish()
    assert led_by(scene, 1) == 0
    assert all(1 not in p.isr for p in scene.core.image.topic("big").partitions.values())


def test_its_own_requests_wait_for_the_end(scene):
    silence(scene, 1)
    end = scene.end_offset
    heartbeat = scene.send(
        ApiKey.BROKER_HEARTBEAT,
        1,
        broker_id=1,
        broker_epoch=scene.epochs[1],
        current_metadata_offset=scene.metadata_offset,
        want_fence=False,
        want_shut_down=True,
        offline_log_dirs=(),
    )
    unregister = scene.send(ApiKey.UNREGISTER_BROKER, 0, broker_id=1)
    assert scene.end_offset == end
    answer = scene.answer(heartbeat)
    assert (answer.is_fenced, answer.should_shut_down) == (True, False)
    assert scene.answer(unregister).error_code is E.request_timed_out
    assert scene.register(1).error_code is E.duplicate_broker_registration
    assert scene.core.under_way == 0, "asking for an answer has let time pass"
    assert scene.core.image.broker(1).fenced
    assert not scene.heartbeat(1).is_fenced


def test_topics_that_go_meanwhile_are_left_alone(scene):
    scene.create_topic("z", assignments=dict.fromkeys(range(200), (1, 2)))
    silence(scene, 1)
    token = scene.send(ApiKey.DELETE_TOPICS, 1, topic_names=("big",), timeout=timedelta(0))
    assert scene.answer(token).responses[0].error_code is E.none
    scene.finish()
    assert scene.core.image.topic("big") is None
    assert led_by(scene, 1) == 0
    assert led_by(scene, 2) == 200


def test_a_successor_begins_again_where_it_was_cut_off(scene):
    silence(scene, 1)
    scene.handle(Tick())
    left = led_by(scene, 1)
    assert 0 < left < PARTITIONS
    scene.fail_over()
    assert led_by(scene, 1) == left
    scene.pass_ms(4_000, alive=(2, 3))
    scene.finish()
    assert led_by(scene, 1) == 0
    assert scene.core.image.broker(1).fenced


def test_a_request_under_way_is_refused_when_leadership_goes(scene):
    scene.handle(Tick())
    token = scene.send(ApiKey.UNREGISTER_BROKER, 0, broker_id=1)
    assert token not in scene.replies
    assert scene.core.under_way == scene.core.waiting == 1
    scene.handle(LostLeadership())
    assert scene.answer(token).error_code is E.not_controller
    assert scene.core.under_way == 0
    scene.fail_over()
    assert scene.core.image.broker(1) is not None


def test_operations_have_their_turn_one_after_the_other(scene):
    scene.auto_commit = False
    first = scene.send(ApiKey.UNREGISTER_BROKER, 0, broker_id=1)
    second = scene.send(ApiKey.UNREGISTER_BROKER, 0, broker_id=2)
    assert led_by(scene, 2) > 0, "2 is next to lead, as long as nobody has come to it"
    scene.finish()
    assert not {first, second} & set(scene.replies)
    scene.commit()
    assert scene.answer(first).error_code is scene.answer(second).error_code is E.none
    assert led_by(scene, 3) == PARTITIONS
    assert sorted(scene.core.image.brokers) == [3]


def test_all_brokers_silent_at_once(scene):
    silence(scene, 1, 2, 3)
    scene.finish()
    assert len(list(scene.core.image.leaderless_partitions())) == PARTITIONS
    assert all(broker.fenced for broker in scene.core.image.brokers.values())
    for broker in (1, 2):
        scene.heartbeat(broker)
    assert led_by(scene, 1) == led_by(scene, 2) == 0, "3 went last"
    scene.heartbeat(3)
    assert led_by(scene, 3) == PARTITIONS


def test_a_step_that_fails_leaves_the_image_as_the_log_has_it(scene, monkeypatch):
    silence(scene, 1)
    before = scene.core.image
    calls = iter(range(10_000))
    real = core.encode_record

    def breaks(record, level):
        if isinstance(record, PartitionChangeRecord) and next(calls) == 50:
            raise RuntimeError("broken")
        return real(record, level)

    monkeypatch.setattr(core, "encode_record", breaks)
    with pytest.raises(RuntimeError, match="broken"):
        scene.handle(Tick())
    assert scene.core.image is before
    assert scene.core.under_way == 0
    scene.core.check_invariants()


def isr_request(scene: Scene, epochs: dict[int, int], isr: tuple[int, ...]) -> dict:
    """Broker 1 names one ISR for some of its partitions, by their index with its epoch."""
    key = ApiKey.ALTER_PARTITION
    members = tuple(
        scene.part(key, 3, "BrokerState", broker_id=b, broker_epoch=scene.epochs[b]) for b in isr
    )
    parts = tuple(
        scene.part(
            key,
            3,
            "PartitionData",
            partition_index=index,
            leader_epoch=0,
            new_isr_with_epochs=members,
            leader_recovery_state=0,
            partition_epoch=epoch,
        )
        for index, epoch in epochs.items()
    )
    topic = scene.part(
        key, 3, "TopicData", topic_id=scene.core.image.topic("big").id, partitions=parts
    )
    return {"broker_id": 1, "broker_epoch": scene.epochs[1], "topics": (topic,)}


def tell_isr(scene: Scene, count: int = PARTITIONS) -> int:
    """Broker 3 is out of so many partitions' ISR; the request's token."""
    request = isr_request(scene, dict.fromkeys(range(count), 0), (1, 2))
    return scene.send(ApiKey.ALTER_PARTITION, 3, **request)


def told(scene: Scene, token: int) -> list:
    (topic,) = scene.answer(token).topics
    assert [p.partition_index for p in topic.partitions] == list(range(len(topic.partitions)))
    return topic.partitions


def test_isrs_of_many_partitions_are_altered_slice_by_slice(scene):
    token = tell_isr(scene)
    slices = [len(values) for _, _, values in scene.log[-1:]]
    while scene.core.under_way:
        effects = scene.handle(Tick())
        slices += [len(e.values) for e in effects if isinstance(e, AppendRecords)]
    assert max(slices) <= core._SLICE
    assert sum(slices) == PARTITIONS
    parts = told(scene, token)
    assert {(p.error_code, p.isr, p.partition_epoch) for p in parts} == {(E.none, (1, 2), 1)}
    assert all(p.isr == (1, 2) for p in scene.core.image.topic("big").partitions.values())


def test_as_many_isrs_as_a_broker_of_ours_names_are_altered_at_once(scene):
    silence(scene, 3)
    token = tell_isr(scene, api_alter_partition._AT_ONCE)
    assert scene.core.under_way == 1
    assert token in scene.replies, "what is under way doesn't hold it up"


def test_each_isr_is_decided_on_the_state_of_its_moment(scene):
    """Others' requests have their turn in between."""
    token = tell_isr(scene)
    assert scene.core.under_way == 1
    last = PARTITIONS - 1
    # The last one changes before it is its turn, the first one after it has been.
    for index, epoch in ((last, 0), (0, 1)):
        scene.send(ApiKey.ALTER_PARTITION, 3, **isr_request(scene, {index: epoch}, (1,)))
    assert scene.partition("big", 0).isr == scene.partition("big", last).isr == (1,)
    scene.finish()
    parts = told(scene, token)
    assert parts[last].error_code is E.invalid_update_version
    assert {p.error_code for p in parts[:last]} == {E.none}
    assert (parts[0].isr, parts[0].partition_epoch) == ((1, 2), 1)
    assert scene.partition("big", 0).isr == scene.partition("big", last).isr == (1,)


def test_isrs_of_a_topic_that_goes_meanwhile(scene):
    token = tell_isr(scene)
    gone = scene.send(ApiKey.DELETE_TOPICS, 1, topic_names=("big",), timeout=timedelta(0))
    scene.finish()
    assert scene.answer(gone).responses[0].error_code is E.none
    errors = [p.error_code for p in told(scene, token)]
    first = errors.index(E.unknown_topic_id)
    assert 0 < first <= core._SLICE
    assert set(errors[:first]) == {E.none}
    assert set(errors[first:]) == {E.unknown_topic_id}


def test_isrs_under_way_are_refused_when_leadership_goes(scene):
    token = tell_isr(scene)
    scene.handle(LostLeadership())
    assert scene.answer(token).error_code is E.not_controller


@pytest.fixture
def many_topics() -> Scene:
    scene = Scene().lead().start_brokers(1, 2)
    topics = tuple(
        scene.new_topic(f"t{number}", assignments={0: (1, 2)}) for number in range(PARTITIONS)
    )
    token = scene.send(
        ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=timedelta(0), validate_only=False
    )
    scene.finish()
    assert {topic.error_code for topic in scene.answer(token).topics} == {E.none}
    return scene


def steps_before_the_first(found) -> int:
    return len(list(takewhile(lambda step: step is None, found)))


def test_putting_many_topics_in_order_takes_steps_of_its_own(many_topics):
    context = many_topics.core._context
    least = PARTITIONS // AT_ONCE
    assert steps_before_the_first(fencing.leave_partitions(context, 1)) >= least
    everything = SimpleNamespace(topic_partitions=None)
    assert steps_before_the_first(api_elect_leaders._asked_for(context, everything)) >= least


def test_so_does_the_search_for_preferred_leaders(many_topics):
    search = fencing.PreferredSearch(many_topics.core._context)
    slices = [search.slice(PARTITIONS, 2 * AT_ONCE)]
    while slices[-1].more:
        slices.append(search.slice(PARTITIONS, 2 * AT_ONCE))
    # Each name and each partition is seen once.
    assert len(slices) >= 2 * PARTITIONS // (2 * AT_ONCE)
    assert not any(part.records or part.imbalanced for part in slices)


def test_many_topics_lose_their_leader_slice_by_slice(many_topics):
    scene = many_topics
    token = scene.send(ApiKey.UNREGISTER_BROKER, 0, broker_id=1)
    assert led_by(scene, 2) <= core._SLICE - PARTITIONS // AT_ONCE
    scene.finish()
    assert scene.answer(token).error_code is E.none
    assert led_by(scene, 2) == PARTITIONS
