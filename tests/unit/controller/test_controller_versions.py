"""Every version of every API: a request with each field away from its default is read, handled
and refused, and both answers survive their own bytes."""

import asyncio
import dataclasses
import typing
from datetime import timedelta
from uuid import UUID

import pytest
from controller_scene import Scene, over_the_wire

from controller.apis import APIS
from controller.describe_cluster import describe_cluster
from controller.events import ApiRequest
from metadata.configs.describe import describe_configs
from metadata.image import EMPTY
from metadata.records import ConfigRecord, Endpoint, RegisterControllerRecord, TopicRecord
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages import (
    RequestHeader,
    decode_body,
    decode_response,
    encode_body,
    fill,
    request_class,
    request_module,
)

SAMPLES = {
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "uint16": 5,
    "string": "text",
    "bool": True,
    "uuid": UUID(int=77),
    "bytes": b"bytes",
    "timedelta_i32": timedelta(milliseconds=1234),
}
VERSIONS = [
    (key, version)
    for key, api in sorted(APIS.items())
    for version in range(api.min_version, api.max_version + 1)
]


def sample(cls):
    """An entity with a value in each field and one item in each array."""
    hints = typing.get_type_hints(cls)
    values = {}
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        if type(None) in typing.get_args(hint):
            hint = next(a for a in typing.get_args(hint) if a is not type(None))
        kind = field.metadata.get("kafka_type")
        if typing.get_origin(hint) is tuple:
            (item, _) = typing.get_args(hint)
            values[field.name] = (SAMPLES[kind] if kind else sample(item),)
        else:
            values[field.name] = SAMPLES[kind]
    return cls(**values)


def round_trip(entity):
    again = decode_body(type(entity), encode_body(entity))
    assert again == entity
    return again


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_any_request_gets_an_answer_of_its_version(key, version):
    scene = Scene().lead().start_brokers(1, 2, 3)
    scene.create_topic("text", 5, 3)
    entity = round_trip(sample(request_class(key, version)))
    scene._token += 1
    scene.handle(ApiRequest(scene._token, key, version, entity))
    answered = scene.answer(scene._token)
    refused = over_the_wire(
        key,
        version,
        APIS[key].refuse(ApiRequest(0, key, version, entity), ErrorCode.not_controller, "why"),
    )
    for reply in (answered, refused):
        assert type(reply).__version__ == version
    assert "not_controller" in repr(refused) or "41" in repr(refused)


def test_what_is_served():
    served = {ApiKey(k).name: (a.min_version, a.max_version) for k, a in APIS.items()}
    assert served == {
        "CREATE_TOPICS": (2, 7),
        "DELETE_TOPICS": (1, 6),
        "ALTER_CONFIGS": (0, 2),
        "CREATE_PARTITIONS": (0, 3),
        "ELECT_LEADERS": (0, 2),
        "INCREMENTAL_ALTER_CONFIGS": (0, 1),
        "ALTER_PARTITION": (2, 3),
        "BROKER_REGISTRATION": (0, 4),
        "BROKER_HEARTBEAT": (0, 2),
        "UNREGISTER_BROKER": (0, 0),
        "UPDATE_FEATURES": (0, 2),
        "ALLOCATE_PRODUCER_IDS": (0, 0),
        "CONTROLLER_REGISTRATION": (0, 0),
        "ASSIGN_REPLICAS_TO_DIRS": (0, 0),
    }


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics(version):
    scene = Scene().lead().start_brokers(1, 2)
    made = scene.create_topic(
        "t", assignments={0: (2, 1)}, configs={"retention.ms": "9"}, version=version
    )
    assert made.error_code is ErrorCode.none
    assert scene.partition("t").replicas == (2, 1)
    assert scene.core.image.topic_config("t")["retention.ms"] == "9"
    assert (getattr(made, "num_partitions", 1), getattr(made, "replication_factor", 2)) == (1, 2)
    tried = scene.create_topic("u", version=version, validate_only=True)
    assert tried.error_code is ErrorCode.none
    assert scene.core.image.topic("u") is None


@pytest.mark.parametrize("version", range(5))
def test_broker_registration(version):
    scene = Scene(level=14).lead()
    assert scene.register(1, version=version, rack="r").error_code is ErrorCode.none
    broker = scene.core.image.broker(1)
    assert (broker.rack, broker.supported("metadata.version")) == ("r", (1, 25))


@pytest.mark.parametrize("version", range(3))
def test_broker_heartbeat(version):
    scene = Scene().lead().start_brokers(1, 2)
    reply = scene.heartbeat(1, version=version, want_shut_down=True, want_fence=True)
    assert reply.should_shut_down


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(version):
    image = EMPTY
    for node in (2, 1):
        image = image.apply(
            RegisterControllerRecord(
                controller_id=node,
                end_points=(Endpoint(name="CONTROLLER", host=f"h{node}", port=9000 + node),),
            )
        )

    def ask(kind):
        request = fill(
            request_class(ApiKey.DESCRIBE_CLUSTER, version),
            include_cluster_authorized_operations=False,
            endpoint_type=kind,
            include_fenced_brokers=False,
        )
        return round_trip(
            describe_cluster(
                version, request, image, cluster_id="c", leader_id=2, listener="CONTROLLER"
            )
        )

    reply = ask(2)
    if version == 0:
        assert reply.error_code is ErrorCode.mismatched_endpoint_type
        return
    assert (reply.error_code, reply.cluster_id, reply.controller_id) == (ErrorCode.none, "c", 2)
    assert [(b.broker_id, b.host, b.port) for b in reply.brokers] == [
        (1, "h1", 9001),
        (2, "h2", 9002),
    ]
    assert ask(1).error_code is ErrorCode.mismatched_endpoint_type
    assert ask(7).error_code is ErrorCode.unsupported_endpoint_type


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs(version):
    image = EMPTY.apply(TopicRecord(name="t", topic_id=UUID(int=9)))
    for kind, name, key, value in (
        (2, "t", "retention.ms", "5"),
        (4, "", "log.segment.bytes", "2000000"),
        (4, "3000", "log.retention.ms", "7"),
    ):
        image = image.apply(
            ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
        )
    module = request_module(ApiKey.DESCRIBE_CONFIGS, version)

    def ask(kind, name, keys=None):
        request = fill(
            module.DescribeConfigsRequest,
            resources=(
                module.DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=keys
                ),
            ),
            include_synonyms=True,
            include_documentation=True,
        )
        static = {"num.partitions": "4"}
        header = RequestHeader(ApiKey.DESCRIBE_CONFIGS, version, 7, None)
        parts = asyncio.run(describe_configs(header, request, image, static, 3000))
        size, frame = parts[0], b"".join(parts[1:])
        assert int.from_bytes(size, "big") == len(frame)
        number, response = decode_response(ApiKey.DESCRIBE_CONFIGS, version, frame)
        assert number == 7
        (result,) = response.results
        return result.error_code, {c.name: c for c in result.configs}

    code, topic = ask(2, "t")
    assert code is ErrorCode.none
    assert (topic["retention.ms"].value, topic["retention.ms"].config_source) == ("5", 1)
    assert (topic["segment.bytes"].value, topic["segment.bytes"].config_source) == ("2000000", 3)
    assert [s.source for s in topic["segment.bytes"].synonyms] == [3, 5]
    assert not topic["retention.ms"].read_only
    assert list(ask(2, "t", ("retention.ms",))[1]) == ["retention.ms"]
    assert list(ask(4, "")[1]) == ["log.segment.bytes"]
    own = ask(4, "3000")[1]
    assert (own["log.retention.ms"].value, own["log.retention.ms"].config_source) == ("7", 2)
    assert (own["num.partitions"].value, own["num.partitions"].read_only) == ("4", True)
    assert ask(2, "nope")[0] is ErrorCode.unknown_topic_or_partition
    assert ask(4, "7")[0] is ErrorCode.invalid_request
    assert ask(8, "7")[0] is ErrorCode.invalid_request
