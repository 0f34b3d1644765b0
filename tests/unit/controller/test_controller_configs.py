"""AlterConfigs and IncrementalAlterConfigs."""

import pytest
from controller_scene import Scene

from metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from wire.apis import ApiKey
from wire.errors import ErrorCode

E = ErrorCode
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def scene() -> Scene:
    scene = Scene().lead().start_brokers(1)
    scene.create_topic("t", configs={"retention.ms": "1000"})
    return scene


def change(scene: Scene, *changes, kind=TOPIC_RESOURCE, name="t", version=1, validate_only=False):
    key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    configs = tuple(
        scene.part(key, version, "AlterableConfig", name=n, config_operation=o, value=v)
        for n, o, v in changes
    )
    resource = scene.part(
        key,
        version,
        "AlterConfigsResource",
        resource_type=kind,
        resource_name=name,
        configs=configs,
    )
    reply = scene.ask(key, version, resources=(resource,), validate_only=validate_only)
    return reply.responses[0]


def replace(scene: Scene, configs, *, kind=TOPIC_RESOURCE, name="t", version=2):
    key = ApiKey.ALTER_CONFIGS
    resource = scene.part(
        key,
        version,
        "AlterConfigsResource",
        resource_type=kind,
        resource_name=name,
        configs=tuple(
            scene.part(key, version, "AlterableConfig", name=n, value=v) for n, v in configs.items()
        ),
    )
    return scene.ask(key, version, resources=(resource,), validate_only=False).responses[0]


def of(scene: Scene, kind=TOPIC_RESOURCE, name="t"):
    return dict(scene.core.image.config(kind, name))


def test_set_and_delete(scene):
    result = change(scene, ("segment.ms", SET, "5000"), ("retention.ms", DELETE, None))
    assert (result.error_code, result.resource_name, result.resource_type) == (E.none, "t", 2)
    assert of(scene) == {"segment.ms": "5000"}


def test_lists_grow_and_shrink_from_their_default(scene):
    change(scene, ("cleanup.policy", APPEND, "compact"))
    assert of(scene)["cleanup.policy"] == "delete,compact"
    change(scene, ("cleanup.policy", APPEND, "compact"))
    assert of(scene)["cleanup.policy"] == "delete,compact"
    change(scene, ("cleanup.policy", SUBTRACT, "delete"))
    assert of(scene)["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("item", "code", "words"),
    [
        (("retention.ms", APPEND, "1"), E.invalid_config, "not a list"),
        (("retention.ms", SET, None), E.invalid_request, "retention.ms"),
        (("retention.ms", 9, "1"), E.invalid_request, "9"),
        (("retention.ms", SET, "x"), E.invalid_config, "'x'"),
        (("nope", SET, "1"), E.invalid_config, "nope"),
        (("cleanup.policy", APPEND, "burn"), E.invalid_config, "burn"),
        (("retention.ms", SET, "1" * 40_000), E.invalid_config, "32767"),
    ],
)
def test_refusals_name_value_and_rule(scene, item, code, words):
    result = change(scene, item)
    assert result.error_code is code
    assert words in result.error_message
    assert of(scene) == {"retention.ms": "1000"}


def test_all_or_nothing_within_a_resource(scene):
    assert (
        change(scene, ("segment.ms", SET, "5000"), ("bad", SET, "1")).error_code is E.invalid_config
    )
    assert of(scene) == {"retention.ms": "1000"}


def test_the_same_key_twice(scene):
    result = change(scene, ("segment.ms", SET, "5000"), ("segment.ms", DELETE, None))
    assert result.error_code is E.invalid_request


def test_unknown_resources(scene):
    assert change(scene, name="nope").error_code is E.unknown_topic_or_partition
    assert change(scene, kind=BROKER_RESOURCE, name="9").error_code is E.broker_id_not_registered
    assert change(scene, kind=BROKER_RESOURCE, name="x").error_code is E.invalid_request
    assert change(scene, kind=77, name="x").error_code is E.invalid_request


def test_a_resource_twice_in_a_request(scene):
    key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    resource = scene.part(
        key, 1, "AlterConfigsResource", resource_type=2, resource_name="t", configs=()
    )
    reply = scene.ask(key, 1, resources=(resource, resource), validate_only=False)
    assert [r.error_code for r in reply.responses] == [E.invalid_request]


def test_validate_only(scene):
    assert change(scene, ("segment.ms", SET, "5000"), validate_only=True).error_code is E.none
    assert of(scene) == {"retention.ms": "1000"}


def test_unchanged_topic_values_are_not_written_but_a_brokers_are(scene):
    before = scene.end_offset
    change(scene, ("retention.ms", SET, "1000"), ("segment.ms", DELETE, None))
    assert scene.end_offset == before
    for _ in range(2):
        change(scene, ("log.retention.ms", SET, "7"), kind=BROKER_RESOURCE, name="")
    assert scene.end_offset == before + 2


def test_brokers_one_and_all(scene):
    change(scene, ("log.retention.ms", SET, "7"), kind=BROKER_RESOURCE, name="1")
    change(scene, ("log.retention.ms", SET, "8"), kind=BROKER_RESOURCE, name="")
    assert of(scene, BROKER_RESOURCE, "1") == {"log.retention.ms": "7"}
    assert of(scene, BROKER_RESOURCE, "") == {"log.retention.ms": "8"}
    refused = change(scene, ("node.id", SET, "8"), kind=BROKER_RESOURCE, name="")
    assert refused.error_code is E.invalid_config


def test_groups_need_not_be_there(scene):
    """What is refused is what a JVM 4.4.0 refuses."""
    name, kind = "consumer.session.timeout.ms", GROUP_RESOURCE

    def told(*item, group="g"):
        return change(scene, item, kind=kind, name=group)

    assert told(name, SET, "50000").error_code is E.none
    before = scene.end_offset
    assert told(name, SET, "50000").error_code is E.none
    assert scene.end_offset == before
    refused = told(name, SET, "44999")
    assert refused.error_code is E.invalid_config
    assert "45000 to 60000" in refused.error_message
    assert told(name, APPEND, "50000").error_code is E.invalid_config
    assert told("share.session.timeout.ms", SET, "50000").error_code is E.invalid_config
    assert told(name, SET, "50000", group="").error_code is E.invalid_request
    assert of(scene, kind, "g") == {name: "50000"}
    assert replace(scene, {"consumer.heartbeat.interval.ms": "6000"}, kind=kind, name="g")
    assert of(scene, kind, "g") == {"consumer.heartbeat.interval.ms": "6000"}
    assert told("consumer.heartbeat.interval.ms", DELETE, None).error_code is E.none
    assert of(scene, kind, "g") == {}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_old_way_replaces_everything(scene, version):
    result = replace(scene, {"segment.ms": "5000"}, version=version)
    assert result.error_code is E.none
    assert of(scene) == {"segment.ms": "5000"}
    assert replace(scene, {"segment.ms": None}).error_code is E.invalid_request
    assert replace(scene, {}).error_code is E.none
    assert of(scene) == {}
