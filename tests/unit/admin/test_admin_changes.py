import grpc
import pytest
from admin_rig import TOPIC_ID, Aborted, Rig
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from admin.stubs import admin_pb2 as pb
from net.errors import ConnectFailed, ConnectionLost, RequestTimedOut, UnsupportedVersion
from wire.errors import ErrorCode, KafkaError
from wire.messages import fill, millis
from wire.uuids import to_text


def create_answer(errors=None):
    errors = errors or {}

    def answer(request, module):
        topics = tuple(
            fill(
                module.CreatableTopicResult,
                name=topic.name,
                topic_id=None if topic.name in errors else TOPIC_ID,
                error_code=errors.get(topic.name, (ErrorCode.none, None))[0],
                error_message=errors.get(topic.name, (ErrorCode.none, None))[1],
                configs=None,
            )
            for topic in reversed(request.topics)
        )
        return fill(module.CreateTopicsResponse, throttle_time=millis(0), topics=topics)

    return answer


def create(rig, *topics, **fields):
    return rig.call("CreateTopics", pb.CreateTopicsRequest(topics=topics, **fields)).results


def test_create_topics_with_every_field():
    rig = Rig()
    rig.controller.answers[19] = create_answer()
    topics = [
        pb.NewTopic(name="a", partitions=3, replication_factor=2, configs={"x": "1", "b": ""}),
        pb.NewTopic(
            name="b", assignments=[pb.ReplicaAssignment(partition=0, replicas=[3, 1])], configs={}
        ),
    ]
    results = create(rig, *topics, validate_only=True, timeout_ms=1234)
    assert [(r.name, r.topic_id, r.HasField("error")) for r in results] == [
        ("a", to_text(TOPIC_ID), False),
        ("b", to_text(TOPIC_ID), False),
    ]
    [request] = rig.controller.seen
    assert rig.controller.timeouts == [1234]
    assert request.validate_only
    assert request.timeout == millis(1234)
    first, second = request.topics
    assert (first.name, first.num_partitions, first.replication_factor) == ("a", 3, 2)
    assert [(c.name, c.value) for c in first.configs] == [("b", ""), ("x", "1")]
    assert (second.num_partitions, second.replication_factor) == (-1, -1)
    assert [(a.partition_index, a.broker_ids) for a in second.assignments] == [(0, (3, 1))]


def test_item_errors_keep_their_place_and_the_others_go_on():
    rig = Rig()
    rig.controller.answers[19] = create_answer(
        {
            "b": (ErrorCode.topic_already_exists, "there is a b"),
            "c": (ErrorCode.invalid_config, None),
        }
    )
    results = create(
        rig,
        pb.NewTopic(name="bad", partitions=-7, replication_factor=1),
        pb.NewTopic(name="b", partitions=1),
        pb.NewTopic(name="a", partitions=1),
        pb.NewTopic(name="c"),
        pb.NewTopic(name="wide", partitions=1, replication_factor=40000),
        pb.NewTopic(name="none", partitions=1, replication_factor=-1),
        pb.NewTopic(name="twice"),
        pb.NewTopic(name="twice"),
    )
    assert [topic.name for topic in rig.controller.seen[0].topics] == ["b", "a", "c"]
    got = [(r.name, r.error.name, r.error.code) for r in results]
    assert got == [
        ("bad", "INVALID_PARTITIONS", 37),
        ("b", "TOPIC_ALREADY_EXISTS", 36),
        ("a", "", 0),
        ("c", "INVALID_CONFIG", 40),
        ("wide", "INVALID_REPLICATION_FACTOR", 38),
        ("none", "INVALID_REPLICATION_FACTOR", 38),
        ("twice", "INVALID_REQUEST", 42),
        ("twice", "INVALID_REQUEST", 42),
    ]
    assert "-7" in results[0].error.message
    assert results[1].error.message == "there is a b"
    assert results[3].error.message == "Invalid config"
    assert "40000" in results[4].error.message


def test_nothing_is_sent_when_nothing_is_left():
    rig = Rig()
    assert create(rig, pb.NewTopic(name="x", partitions=-1))[0].error.code == 37
    assert list(create(rig)) == []
    assert rig.controller.seen == []


def test_a_controller_that_leaves_out_an_item():
    rig = Rig()
    rig.controller.answers[19] = lambda request, module: fill(
        module.CreateTopicsResponse, throttle_time=millis(0), topics=()
    )
    assert create(rig, pb.NewTopic(name="x"))[0].error.name == "UNKNOWN_SERVER_ERROR"


@pytest.mark.parametrize("version", [1, 5, 6])
def test_delete_topics(version):
    rig = Rig()
    rig.controller.version[20] = version

    def answer(request, module):
        names = (
            [topic.name for topic in request.topics] if version == 6 else list(request.topic_names)
        )
        assert names == ["a", "b"]
        responses = tuple(
            fill(
                module.DeletableTopicResult,
                name=name,
                topic_id=TOPIC_ID,
                error_code=ErrorCode.none if name == "a" else ErrorCode.unknown_topic_or_partition,
                error_message=None if name == "a" else "no b",
            )
            for name in names
        )
        return fill(module.DeleteTopicsResponse, throttle_time=millis(0), responses=responses)

    rig.controller.answers[20] = answer
    request = pb.DeleteTopicsRequest(names=["a", "b", "c", "c"])
    results = rig.call("DeleteTopics", request).results
    assert [(r.name, r.error.code) for r in results] == [("a", 0), ("b", 3), ("c", 42), ("c", 42)]
    assert rig.controller.timeouts == [30_000]


def test_create_partitions():
    rig = Rig()

    def answer(request, module):
        results = tuple(
            fill(
                module.CreatePartitionsTopicResult,
                name=topic.name,
                error_code=ErrorCode.none if topic.assignments else ErrorCode.invalid_partitions,
                error_message=None,
            )
            for topic in request.topics
        )
        return fill(module.CreatePartitionsResponse, throttle_time=millis(0), results=results)

    rig.controller.answers[37] = answer
    request = pb.CreatePartitionsRequest(
        topics=[
            pb.NewPartitions(
                name="a", count=5, assignments=[pb.NewPartitionReplicas(replicas=[1, 2])]
            ),
            pb.NewPartitions(name="b", count=-2),
        ],
        validate_only=True,
        timeout_ms=5,
    )
    results = rig.call("CreatePartitions", request).results
    assert [(r.name, r.error.name) for r in results] == [("a", ""), ("b", "INVALID_PARTITIONS")]
    [sent] = rig.controller.seen
    assert sent.validate_only
    assert [(t.name, t.count) for t in sent.topics] == [("a", 5), ("b", -2)]
    assert [a.broker_ids for a in sent.topics[0].assignments] == [(1, 2)]
    assert sent.topics[1].assignments is None


def test_alter_configs():
    rig = Rig()

    def answer(request, module):
        responses = tuple(
            fill(
                module.AlterConfigsResourceResponse,
                error_code=ErrorCode.none if r.resource_type == 2 else ErrorCode.invalid_config,
                error_message=None if r.resource_type == 2 else "no such config",
                resource_type=r.resource_type,
                resource_name=r.resource_name,
            )
            for r in request.resources
        )
        return fill(
            module.IncrementalAlterConfigsResponse, throttle_time=millis(0), responses=responses
        )

    rig.controller.answers[44] = answer

    def alteration(kind, name, *configs):
        return pb.ConfigAlteration(
            type=kind,
            name=name,
            configs=[pb.AlterConfig(name=n, operation=o, value=v) for n, o, v in configs],
        )

    request = pb.AlterConfigsRequest(
        resources=[
            alteration(2, "a", ("x", 0, "1"), ("y", 1, "ignored"), ("z", 2, "q"), ("w", 3, "")),
            alteration(4, "", ("x", 0, "1")),
            alteration(77, "a", ("x", 0, "1")),
            alteration(2, "b", ("x", 9, "1")),
            alteration(2, "c"),
            alteration(2, "c"),
        ],
        validate_only=True,
    )
    results = rig.call("AlterConfigs", request).results
    assert [(r.type, r.name, r.error.code) for r in results] == [
        (2, "a", 0),
        (4, "", 40),
        (77, "a", 42),
        (2, "b", 42),
        (2, "c", 42),
        (2, "c", 42),
    ]
    assert "77" in results[2].error.message
    assert "9" in results[3].error.message
    [sent] = rig.controller.seen
    assert sent.validate_only
    assert [(c.name, c.config_operation, c.value) for c in sent.resources[0].configs] == [
        ("x", 0, "1"),
        ("y", 1, None),
        ("z", 2, "q"),
        ("w", 3, ""),
    ]


def elect_answer(code=ErrorCode.none):
    def answer(request, module):
        results = tuple(
            fill(
                module.ReplicaElectionResult,
                topic=topic.topic,
                partition_result=tuple(
                    fill(
                        module.PartitionResult,
                        partition_id=n,
                        error_code=ErrorCode.election_not_needed if n else ErrorCode.none,
                        error_message=None,
                    )
                    for n in topic.partitions
                ),
            )
            for topic in request.topic_partitions or ()
        )
        return fill(
            module.ElectLeadersResponse,
            throttle_time=millis(0),
            error_code=code,
            replica_election_results=results,
        )

    return answer


def test_elect_leaders():
    rig = Rig()
    rig.controller.answers[43] = elect_answer()
    request = pb.ElectLeadersRequest(
        type=1, topics=[pb.TopicPartitions(topic="a", partitions=[0, 1])], timeout_ms=99
    )
    results = rig.call("ElectLeaders", request).results
    assert [(r.topic, r.partition, r.error.name) for r in results] == [
        ("a", 0, ""),
        ("a", 1, "ELECTION_NOT_NEEDED"),
    ]
    [sent] = rig.controller.seen
    assert (sent.election_type, sent.timeout) == (1, millis(99))
    rig.call("ElectLeaders", pb.ElectLeadersRequest())
    assert rig.controller.seen[1].topic_partitions is None


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (pb.ElectLeadersRequest(type=5), "5"),
        (pb.ElectLeadersRequest(topics=[pb.TopicPartitions(topic="lonely")]), "lonely"),
        (pb.ElectLeadersRequest(timeout_ms=-3), "-3"),
    ],
)
def test_elect_leaders_bad_input(request_, text):
    rig = Rig()
    with pytest.raises(Aborted, match=text) as failed:
        rig.call("ElectLeaders", request_)
    assert failed.value.status == grpc.StatusCode.INVALID_ARGUMENT
    assert failed.value.error.name == "INVALID_REQUEST"
    assert rig.controller.seen == []


def test_elect_leaders_refused_as_a_whole():
    rig = Rig()
    rig.controller.answers[43] = elect_answer(ErrorCode.cluster_authorization_failed)
    with pytest.raises(Aborted) as failed:
        rig.call("ElectLeaders", pb.ElectLeadersRequest())
    assert failed.value.status == grpc.StatusCode.PERMISSION_DENIED


def features_answer(code=ErrorCode.none, *, per_feature=ErrorCode.none):
    def answer(request, module):
        results = ()
        if hasattr(module, "UpdatableFeatureResult"):
            results = tuple(
                module.UpdatableFeatureResult(
                    feature=update.feature, error_code=per_feature, error_message=None
                )
                for update in request.feature_updates
            )
        return fill(
            module.UpdateFeaturesResponse,
            throttle_time=millis(0),
            error_code=code,
            error_message=None if code == ErrorCode.none else "because",
            results=results,
        )

    return answer


def update_features(rig, **fields):
    updates = [
        pb.FeatureUpdate(name="up", level=5),
        pb.FeatureUpdate(name="down", level=4, allow_downgrade=True),
        pb.FeatureUpdate(name="off", level=0, allow_unsafe_downgrade=True),
    ]
    return rig.call("UpdateFeatures", pb.UpdateFeaturesRequest(updates=updates, **fields))


@pytest.mark.parametrize("version", range(3))
def test_update_features(version):
    rig = Rig()
    rig.controller.version[57] = version
    rig.controller.answers[57] = features_answer()
    results = update_features(rig, validate_only=version > 0, timeout_ms=77).results
    assert [(one.name, one.HasField("error")) for one in results] == [
        ("up", False),
        ("down", False),
        ("off", False),
    ]
    [sent] = rig.controller.seen
    assert sent.timeout == millis(77)
    assert [(u.feature, u.max_version_level) for u in sent.feature_updates] == [
        ("up", 5),
        ("down", 4),
        ("off", 0),
    ]
    if version == 0:
        assert [u.allow_downgrade for u in sent.feature_updates] == [False, True, True]
    else:
        assert sent.validate_only
        assert [u.upgrade_type for u in sent.feature_updates] == [1, 2, 3]


def test_update_features_refused_as_a_whole():
    rig = Rig()
    rig.controller.answers[57] = features_answer(ErrorCode.invalid_update_version)
    with pytest.raises(Aborted, match="because") as failed:
        update_features(rig)
    assert failed.value.status == grpc.StatusCode.INVALID_ARGUMENT
    assert failed.value.error.name == "INVALID_UPDATE_VERSION"


def test_update_features_of_a_controller_that_tells_each():
    rig = Rig()
    rig.controller.version[57] = 1
    rig.controller.answers[57] = features_answer(per_feature=ErrorCode.feature_update_failed)
    results = update_features(rig).results
    assert [one.error.name for one in results] == ["FEATURE_UPDATE_FAILED"] * 3


def test_update_features_that_no_request_can_hold():
    rig = Rig()
    for level in (-1, 32768):
        with pytest.raises(Aborted, match=str(level)) as failed:
            rig.call(
                "UpdateFeatures",
                pb.UpdateFeaturesRequest(updates=[pb.FeatureUpdate(name="f", level=level)]),
            )
        assert failed.value.error.name == "INVALID_UPDATE_VERSION"
    rig.controller.version[57] = 0
    with pytest.raises(Aborted, match="can't only validate"):
        update_features(rig, validate_only=True)
    assert rig.controller.seen == []


def test_unregister_broker():
    rig = Rig()

    def answer(request, module):
        unknown = request.broker_id == 9
        return fill(
            module.UnregisterBrokerResponse,
            throttle_time=millis(0),
            error_code=ErrorCode.broker_id_not_registered if unknown else ErrorCode.none,
            error_message="broker 9 is not registered" if unknown else None,
        )

    rig.controller.answers[64] = answer
    rig.call("UnregisterBroker", pb.UnregisterBrokerRequest(broker_id=1))
    with pytest.raises(Aborted, match="broker 9") as failed:
        rig.call("UnregisterBroker", pb.UnregisterBrokerRequest(broker_id=9))
    assert failed.value.status == grpc.StatusCode.NOT_FOUND
    assert failed.value.error.name == "BROKER_ID_NOT_REGISTERED"


def test_the_deadline_shortens_the_time():
    rig = Rig()
    rig.controller.answers[19] = create_answer()
    request = pb.CreateTopicsRequest(topics=[pb.NewTopic(name="a")], timeout_ms=9000)
    rig.call("CreateTopics", request, left_s=2.5)
    rig.call("CreateTopics", request, left_s=200)
    assert rig.controller.timeouts == [2250, 9000], "the answer needs a moment too"


@pytest.mark.parametrize(
    ("error", "status", "name"),
    [
        (ConnectFailed("refused"), grpc.StatusCode.UNAVAILABLE, "NETWORK_EXCEPTION"),
        (ConnectionLost("gone"), grpc.StatusCode.UNAVAILABLE, "NETWORK_EXCEPTION"),
        (RequestTimedOut("late"), grpc.StatusCode.DEADLINE_EXCEEDED, "REQUEST_TIMED_OUT"),
        (
            UnsupportedVersion(19, "0-7", "none"),
            grpc.StatusCode.UNIMPLEMENTED,
            "UNSUPPORTED_VERSION",
        ),
        (
            KafkaError(ErrorCode.not_controller, "no active controller"),
            grpc.StatusCode.UNAVAILABLE,
            "NOT_CONTROLLER",
        ),
        (
            KafkaError(ErrorCode.fenced_leader_epoch),
            grpc.StatusCode.FAILED_PRECONDITION,
            "FENCED_LEADER_EPOCH",
        ),
        (RuntimeError("a bug"), grpc.StatusCode.INTERNAL, "UNKNOWN_SERVER_ERROR"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_failed_calls(error, status, name):
    rig = Rig()
    rig.controller.error = error
    with pytest.raises(Aborted) as failed:
        create(rig, pb.NewTopic(name="a"))
    assert failed.value.status == status
    assert failed.value.error.name == name
    assert failed.value.error.code == int(ErrorCode[name.lower()])
    assert failed.value.error.message == failed.value.details
    assert len(rig.errors) == (1 if isinstance(error, RuntimeError) else 0)


@pytest.mark.parametrize(
    "method",
    [
        "AlterPartitionReassignments",
        "ListPartitionReassignments",
        "DescribeClientQuotas",
        "AlterClientQuotas",
    ],
)
def test_methods_that_are_not_there_yet(method):
    with pytest.raises(Aborted, match=method) as failed:
        Rig().call(method, getattr(pb, f"{method}Request")())
    assert failed.value.status == grpc.StatusCode.UNIMPLEMENTED
    assert (failed.value.error.code, failed.value.error.name) == (35, "UNSUPPORTED_VERSION")


INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=20) | st.just("x" * 70_000)


@examples(40)
@given(
    topics=st.lists(
        st.builds(
            pb.NewTopic,
            name=TEXT,
            partitions=INT32,
            replication_factor=INT32,
            assignments=st.lists(
                st.builds(
                    pb.ReplicaAssignment, partition=INT32, replicas=st.lists(INT32, max_size=3)
                ),
                max_size=3,
            ),
            configs=st.dictionaries(TEXT, TEXT, max_size=3),
        ),
        max_size=6,
    )
)
def test_whatever_is_asked_every_topic_gets_one_answer(topics):
    rig = Rig()
    rig.controller.answers[19] = create_answer()
    results = create(rig, *topics)
    assert [result.name for result in results] == [topic.name for topic in topics]
    for topic, result in zip(topics, results, strict=True):
        if topic.partitions < 0 or not 0 <= topic.replication_factor < 32768:
            assert result.error.code in (37, 38, 42)
        assert result.HasField("error") or result.topic_id


@examples(40)
@given(
    resources=st.lists(
        st.builds(
            pb.ConfigAlteration,
            type=INT32,
            name=TEXT,
            configs=st.lists(
                st.builds(pb.AlterConfig, name=TEXT, operation=INT32, value=TEXT), max_size=3
            ),
        ),
        max_size=4,
    ),
    kinds=st.booleans(),
)
def test_whatever_is_asked_every_resource_gets_one_answer(resources, kinds):
    rig = Rig()
    for resource in resources:
        if kinds:
            resource.type = 4
            for config in resource.configs:
                config.operation %= 4

    def answer(request, module):
        responses = tuple(
            fill(
                module.AlterConfigsResourceResponse,
                error_code=ErrorCode.none,
                error_message=None,
                resource_type=r.resource_type,
                resource_name=r.resource_name,
            )
            for r in request.resources
        )
        return fill(
            module.IncrementalAlterConfigsResponse, throttle_time=millis(0), responses=responses
        )

    rig.controller.answers[44] = answer
    results = rig.call("AlterConfigs", pb.AlterConfigsRequest(resources=resources)).results
    assert [(r.type, r.name) for r in results] == [(r.type, r.name) for r in resources]
