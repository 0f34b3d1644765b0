"""CreateTopics, CreatePartitions, DeleteTopics: what is refused and what is made."""

from datetime import timedelta
from uuid import UUID

import pytest
from controller_scene import Scene

from metadata.records import ConfigRecord, PartitionRecord, TopicRecord
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.uuids import UNASSIGNED_DIR

E = ErrorCode


@pytest.fixture
def scene() -> Scene:
    return Scene().lead().start_brokers(1, 2, 3)


def test_a_topic_is_one_batch_of_topic_configs_and_partitions(scene):
    result = scene.create_topic(
        "t", 2, 3, configs={"retention.ms": "1000", "cleanup.policy": "compact"}
    )
    assert (result.error_code, result.num_partitions, result.replication_factor) == (E.none, 2, 3)
    records = scene.records()[-5:]
    assert [type(r) for r in records] == [TopicRecord, *[ConfigRecord] * 2, *[PartitionRecord] * 2]
    assert len(scene.log[-1][2]) == 5
    assert records[0].topic_id == result.topic_id
    partition = records[3]
    assert partition.leader == partition.replicas[0]
    assert partition.isr == partition.replicas
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert partition.directories == tuple(UUID(int=1000 + b) for b in partition.replicas)
    configs = {c.name: c for c in result.configs}
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", 1)
    assert configs["segment.bytes"].config_source == 5
    assert list(configs) == sorted(configs)


def test_a_broker_with_two_directories_decides_later(scene):
    scene.start_broker(4, dirs=(UUID(int=701), UUID(int=702)))
    scene.create_topic("t", assignments={0: (4, 1)})
    assert scene.partition("t").directories == (UNASSIGNED_DIR, UUID(int=1001))


def test_defaults_for_minus_one():
    scene = Scene(num_partitions=4, default_replication_factor=2).lead().start_brokers(1, 2)
    result = scene.create_topic("t", -1, -1)
    assert (result.num_partitions, result.replication_factor) == (4, 2)


@pytest.mark.parametrize(
    ("name", "partitions", "factor", "code", "words"),
    [
        ("", 1, 1, E.invalid_topic_exception, "empty"),
        ("..", 1, 1, E.invalid_topic_exception, "'..'"),
        ("a b", 1, 1, E.invalid_topic_exception, "'a b'"),
        ("x" * 250, 1, 1, E.invalid_topic_exception, "249"),
        ("__cluster_metadata", 1, 1, E.invalid_request, "__cluster_metadata"),
        ("t", 0, 1, E.invalid_partitions, "0"),
        ("t", -2, 1, E.invalid_partitions, "-2"),
        ("t", 1, 0, E.invalid_replication_factor, "0"),
        ("t", 1, -2, E.invalid_replication_factor, "-2"),
        ("t", 1, 4, E.invalid_replication_factor, "3"),
        ("t", 2_000_000_000, 1, E.policy_violation, "10000"),
        ("there", 1, 1, E.topic_already_exists, "'there'"),
        ("a_b", 1, 1, E.invalid_topic_exception, "'a.b'"),
    ],
)
def test_refusals_name_value_and_rule(scene, name, partitions, factor, code, words):
    scene.create_topic("there")
    scene.create_topic("a.b")
    before = scene.end_offset
    result = scene.create_topic(name, partitions, factor)
    assert result.error_code is code
    assert words in result.error_message
    assert scene.end_offset == before


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        ({0: ()}, "empty"),
        ({0: (1, 9)}, "broker 9"),
        ({0: (1, 1)}, "more than once"),
        ({0: (1, 2), 1: (1,)}, "must have 2"),
        ({0: (1,), 2: (1,)}, "without a gap"),
        ({0: (4,)}, "no active broker"),
    ],
)
def test_bad_manual_assignments(scene, assignments, words):
    scene.register(4)
    result = scene.create_topic("t", assignments=assignments)
    assert result.error_code is E.invalid_replica_assignment
    assert words in result.error_message


def test_a_manual_assignment_excludes_counts(scene):
    key = ApiKey.CREATE_TOPICS
    chosen = scene.part(key, 7, "CreatableReplicaAssignment", partition_index=0, broker_ids=(1,))
    for counts in (
        {"num_partitions": 1, "replication_factor": -1},
        {"num_partitions": -1, "replication_factor": 1},
    ):
        topic = scene.part(
            key, 7, "CreatableTopic", name="t", assignments=(chosen,), configs=(), **counts
        )
        (result,) = scene.ask(key, 7, topics=(topic,), validate_only=False).topics
        assert result.error_code is E.invalid_request
        assert "-1" in result.error_message


def test_a_replica_that_is_down_is_not_in_sync(scene):
    scene.register(4)
    scene.create_topic("t", assignments={0: (4, 1, 2)})
    partition = scene.partition("t")
    assert (partition.leader, partition.isr) == (1, (1, 2))


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"retention.msx": "1"}, "retention.msx"),
        ({"retention.ms": "soon"}, "soon"),
        ({"retention.ms": None}, "retention.ms"),
        ({"cleanup.policy": "burn"}, "burn"),
    ],
)
def test_bad_configs(scene, configs, words):
    result = scene.create_topic("t", configs=configs)
    assert result.error_code is E.invalid_config
    assert words in result.error_message
    assert scene.core.image.topic("t") is None


def test_one_request_many_topics_each_for_itself(scene):
    topics = tuple(scene.new_topic(n) for n in ("good", "twice", "twice", "b d", "c.d", "c_d"))
    reply = scene.ask(ApiKey.CREATE_TOPICS, 7, topics=topics, validate_only=False)
    codes = {t.name: t.error_code for t in reply.topics}
    assert codes == {
        "good": E.none,
        "twice": E.invalid_request,
        "b d": E.invalid_topic_exception,
        "c.d": E.none,
        "c_d": E.invalid_topic_exception,
    }
    assert sorted(scene.core.image.topics_by_name) == ["c.d", "good"]


def test_validate_only_makes_nothing(scene):
    before = scene.end_offset
    assert scene.create_topic("t", 3, 3, validate_only=True).error_code is E.none
    assert scene.create_topic("t", 3, 4, validate_only=True).error_code is not E.none
    assert scene.end_offset == before


def test_together_topics_fit_into_one_batch():
    scene = Scene(max_records_per_batch=10).lead().start_brokers(1)
    topics = tuple(scene.new_topic(name, 5) for name in "ab")
    reply = scene.ask(ApiKey.CREATE_TOPICS, 7, topics=topics, validate_only=False)
    assert [t.error_code for t in reply.topics] == [E.none, E.policy_violation]
    assert "10" in reply.topics[1].error_message


def test_no_broker_no_topic():
    scene = Scene().lead()
    assert scene.create_topic("t").error_code is E.invalid_replication_factor
    scene.register(1)
    result = scene.create_topic("t")
    assert result.error_code is E.invalid_replication_factor
    assert "fenced" in result.error_message


# CreatePartitions


def add(scene: Scene, name: str, count: int, assignments=None, *, validate_only=False, version=3):
    key = ApiKey.CREATE_PARTITIONS
    if assignments is not None:
        assignments = tuple(
            scene.part(key, version, "CreatePartitionsAssignment", broker_ids=b)
            for b in assignments
        )
    topic = scene.part(
        key, version, "CreatePartitionsTopic", name=name, count=count, assignments=assignments
    )
    reply = scene.ask(
        key, version, topics=(topic,), timeout=timedelta(seconds=1), validate_only=validate_only
    )
    return reply.results[0]


def test_more_partitions(scene):
    scene.create_topic("t", 2, 2)
    assert add(scene, "t", 5).error_code is E.none
    topic = scene.core.image.topic("t")
    assert sorted(topic.partitions) == [0, 1, 2, 3, 4]
    assert all(len(p.replicas) == 2 for p in topic.partitions.values())
    assert add(scene, "t", 7, [(1, 2), (3, 1)]).error_code is E.none
    assert scene.partition("t", 6).replicas == (3, 1)


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("none", 3, None, E.unknown_topic_or_partition),
        ("t", 2, None, E.invalid_partitions),
        ("t", 1, None, E.invalid_partitions),
        ("t", -5, None, E.invalid_partitions),
        ("t", 2_000_000_000, None, E.policy_violation),
        ("t", 4, [(1, 2)], E.invalid_replica_assignment),
        ("t", 3, [(1,)], E.invalid_replica_assignment),
        ("t", 3, [(1, 9)], E.invalid_replica_assignment),
    ],
)
def test_refused_growth(scene, name, count, assignments, code):
    scene.create_topic("t", 2, 2)
    before = scene.end_offset
    result = add(scene, name, count, assignments)
    assert result.error_code is code
    assert result.error_message
    assert scene.end_offset == before


def test_growth_on_trial(scene):
    scene.create_topic("t", 1, 1)
    assert add(scene, "t", 3, validate_only=True).error_code is E.none
    assert len(scene.core.image.topic("t").partitions) == 1


# DeleteTopics


def test_delete_by_name_and_by_id(scene):
    first, second = (scene.create_topic(n, configs={"retention.ms": "5"}).topic_id for n in "ab")
    key = ApiKey.DELETE_TOPICS
    reply = scene.ask(key, 5, topic_names=("a", "nope"), timeout=timedelta(0))
    assert [r.error_code for r in reply.responses] == [E.none, E.unknown_topic_or_partition]
    assert scene.core.image.topics_by_id.get(first) is None
    state = scene.part(key, 6, "DeleteTopicState", name=None, topic_id=second)
    unknown = scene.part(key, 6, "DeleteTopicState", name=None, topic_id=UUID(int=12345))
    both = scene.part(key, 6, "DeleteTopicState", name="b", topic_id=second)
    neither = scene.part(key, 6, "DeleteTopicState", name=None, topic_id=None)
    reply = scene.ask(key, 6, topics=(unknown, both, neither), timeout=timedelta(0))
    assert [r.error_code for r in reply.responses] == [
        E.unknown_topic_id,
        E.invalid_request,
        E.invalid_request,
    ]
    reply = scene.ask(key, 6, topics=(state,), timeout=timedelta(0))
    assert (reply.responses[0].name, reply.responses[0].error_code) == ("b", E.none)
    assert not scene.core.image.topics_by_name
    assert not scene.core.image.configs


def test_delete_twice_in_one_request(scene):
    topic_id = scene.create_topic("a").topic_id
    key = ApiKey.DELETE_TOPICS
    states = (
        scene.part(key, 6, "DeleteTopicState", name="a", topic_id=None),
        scene.part(key, 6, "DeleteTopicState", name=None, topic_id=topic_id),
    )
    reply = scene.ask(key, 6, topics=states, timeout=timedelta(0))
    assert {r.error_code for r in reply.responses} == {E.invalid_request}
    assert scene.core.image.topic("a") is not None


@pytest.mark.parametrize(
    ("version", "code"), [(1, E.invalid_request), (4, E.topic_deletion_disabled)]
)
def test_deletion_can_be_disabled(version, code):
    scene = Scene(delete_topic_enable=False).lead().start_brokers(1)
    scene.create_topic("a")
    reply = scene.ask(ApiKey.DELETE_TOPICS, version, topic_names=("a",), timeout=timedelta(0))
    assert reply.responses[0].error_code is code


def test_a_name_is_free_again_after_deletion(scene):
    first = scene.create_topic("a.b").topic_id
    scene.ask(ApiKey.DELETE_TOPICS, 1, topic_names=("a.b",), timeout=timedelta(0))
    second = scene.create_topic("a_b").topic_id
    assert first != second


@pytest.mark.parametrize("others", [0, 10])  # fewer than there are names that collide, and more
def test_names_that_differ_in_their_separators_only_collide(scene, others):
    for number in range(others):
        scene.create_topic(f"other{number}")
    scene.create_topic("x.y_z")
    for name in ("x_y.z", "x.y.z", "x_y_z"):
        result = scene.create_topic(name)
        assert result.error_code is E.invalid_topic_exception
        assert "'x.y_z'" in result.error_message
    assert scene.create_topic("x.y_z").error_code is E.topic_already_exists
    for name in ("xy.z", "x.yz", "x-y_z", "x.y_z."):
        assert scene.create_topic(name).error_code is E.none
