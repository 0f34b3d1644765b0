"""Configuration values: parsing, rules, precedence."""

import contextlib
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.configs import (
    DEFINITIONS,
    GROUP,
    NODE,
    TOPIC,
    ConfigType,
    Source,
    StaticConfig,
    Update,
    broker_value,
    effective_broker_config,
    effective_group_config,
    effective_topic_config,
    group_overrides,
    parse_topic_config,
    reference_markdown,
    topic_value,
    topic_values,
    validate_dynamic_broker_config,
    validate_group_configs,
    validate_topic_configs,
)
from metadata.configs.definition import to_text
from metadata.image import EMPTY
from metadata.records import ConfigRecord
from wire.errors import ErrorCode, KafkaError

MINIMAL = {"node.id": "1", "process.roles": "broker,controller"}


def with_configs(*items):
    image = EMPTY
    for kind, resource, name, value in items:
        image = image.apply(
            ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
        )
    return image


def test_names_are_unique_and_defaults_are_allowed() -> None:
    assert len(TOPIC) + len(NODE) + len(GROUP) == len(DEFINITIONS)
    for definition in DEFINITIONS:
        assert definition.help.endswith(".")
        if definition.default is not None:
            assert definition.parse(definition.default_text) == definition.default


def test_groups_have_the_defaults_of_their_brokers() -> None:
    for definition in GROUP.values():
        [synonym] = definition.synonyms
        assert NODE[synonym.name].default == definition.default


def test_a_groups_own_value_wins() -> None:
    name, static = "consumer.session.timeout.ms", {"group.consumer.session.timeout.ms": "47000"}
    image = with_configs((32, "g", name, "50000"), (32, "g", "later.setting", "1"))
    own = effective_group_config(name, image, static, "g", 1)
    assert (own.text, own.source) == ("50000", Source.GROUP)
    assert [(c.name, c.text, int(c.source)) for c in own.candidates] == [
        (name, "50000", 8),
        (f"group.{name}", "47000", 4),
        (f"group.{name}", "45000", 5),
    ]
    assert effective_group_config(name, image, static, "h", 1).text == "47000"
    assert group_overrides(image, "g") == {name: 50_000}
    assert group_overrides(with_configs((32, "g", name, "soon")), "g") == {}


@pytest.mark.parametrize(
    ("overrides", "static", "words"),
    [
        ({"consumer.session.timeout.ms": "44999"}, {}, "45000 to 60000"),
        ({"consumer.heartbeat.interval.ms": "15001"}, {}, "5000 to 15000"),
        ({"consumer.assignment.interval.ms": "-1"}, {}, "at least 0"),
        (
            {"consumer.session.timeout.ms": "50000"},
            {"group.consumer.max.session.timeout.ms": "49000"},
            "45000 to 49000",
        ),
        (
            {"consumer.session.timeout.ms": "5000"},
            {"group.consumer.min.session.timeout.ms": "1"},
            "more than consumer.heartbeat.interval.ms, which is 5000",
        ),
        ({"share.session.timeout.ms": "50000"}, {}, "share.session.timeout.ms"),
    ],
)
def test_what_a_group_may_not_have(overrides, static, words) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_group_configs(overrides, EMPTY, static)
    assert caught.value.code is ErrorCode.invalid_config
    assert words in caught.value.message


def test_synonyms_exist_and_agree_with_the_topics_default() -> None:
    for definition in TOPIC.values():
        values = []
        for synonym in definition.synonyms:
            node = NODE[synonym.name]
            if node.default is not None:
                scaled = node.default * synonym.factor if synonym.factor > 1 else node.default
                values.append(scaled)
            if synonym.factor == 1 and synonym.name != "log.flush.scheduler.interval.ms":
                assert node.update is Update.CLUSTER_WIDE
        if values:
            assert definition.default in values


@pytest.mark.parametrize(
    "name, text, shown",
    [
        ("retention.ms", "abc", "whole number"),
        ("retention.ms", "1_000", "whole number"),
        ("retention.ms", "", "whole number"),
        ("retention.ms", "9" * 10000, "whole number"),
        ("retention.ms", "9223372036854775808", "from -9223372036854775808"),
        ("retention.ms", "-2", "at least -1"),
        ("min.insync.replicas", "0", "at least 1"),
        ("min.cleanable.dirty.ratio", "1.5", "from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "a number"),
        ("cleanup.policy", "delete,shred", "compact, delete"),
        ("cleanup.policy", "delete,delete", "once"),
        ("compression.type", "brotli", "one of uncompressed"),
        ("compression.gzip.level", "0", "-1 or from 1 to 9"),
        ("preallocate", "yes", "true or false"),
        ("segment.bytes", "1024", "from 1048576"),
        ("leader.replication.throttled.replicas", "1-2", "partition:broker"),
        ("remote.storage.enable", "true", "only false"),
    ],
)
def test_a_bad_value_is_refused_with_value_and_rule(name, text, shown) -> None:
    with pytest.raises(KafkaError, match=shown) as caught:
        parse_topic_config(name, text)
    assert caught.value.code is ErrorCode.invalid_config
    assert name in caught.value.message
    assert text[:50] in caught.value.message


@pytest.mark.parametrize(
    "name, text, value",
    [
        ("retention.ms", " +60000 ", 60000),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("preallocate", "TRUE", True),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
    ],
)
def test_good_values(name, text, value) -> None:
    assert parse_topic_config(name, text) == value


@given(st.sampled_from(sorted(TOPIC)), st.text(max_size=30))
def test_any_text_is_a_value_or_an_invalid_config(name, text) -> None:
    with contextlib.suppress(KafkaError):
        assert parse_topic_config(name, text) is not None


def test_topic_configs_as_a_set() -> None:
    validate_topic_configs({"retention.ms": "5", "cleanup.policy": "compact"})
    for bad, shown in (
        ({"retention.sm": "5"}, "Unknown topic config name: retention.sm"),
        ({"retention.ms": None}, "Null value"),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, "not be more than"),
    ):
        with pytest.raises(KafkaError, match=shown):
            validate_topic_configs(bad)


def test_dynamic_broker_configs() -> None:
    validate_dynamic_broker_config("log.retention.ms", "5")
    validate_dynamic_broker_config("log.retention.ms", None)
    for name, text, shown in (
        ("node.id", "5", "read at start"),
        ("nobody", "5", "Unknown broker config name"),
        ("log.retention.ms", "x", "whole number"),
    ):
        with pytest.raises(KafkaError, match=shown):
            validate_dynamic_broker_config(name, text)


def test_precedence_of_a_topic_config() -> None:
    name = "min.insync.replicas"
    layers = [
        ((2, "t", name, "5"), Source.TOPIC),
        ((4, "1", name, "4"), Source.DYNAMIC_BROKER),
        ((4, "", name, "3"), Source.DYNAMIC_DEFAULT_BROKER),
    ]
    static = {name: "2"}
    image = with_configs(*(layer for layer, _ in layers))
    found = effective_topic_config(name, image, static, "t", broker_id=1)
    assert (found.text, found.source) == ("5", Source.TOPIC)
    assert [(c.text, c.source) for c in found.candidates] == [
        *((layer[3], source) for layer, source in layers),
        ("2", Source.STATIC_BROKER),
        ("1", Source.DEFAULT),
    ]
    assert topic_value(name, image, static, "other", broker_id=1) == 4
    assert topic_value(name, image, static, "other", broker_id=2) == 3
    assert topic_value(name, EMPTY, static, "t") == 2
    assert topic_value(name, EMPTY, {}, "t") == 1
    assert broker_value(name, image, static, broker_id=1) == 4
    found = effective_broker_config("broker.rack", EMPTY, {})
    assert (found.text, found.source, found.candidates) == (None, Source.DEFAULT, ())


def test_units_of_synonyms() -> None:
    assert topic_value("retention.ms", EMPTY, {"log.retention.hours": "2"}, "t") == 7_200_000
    both = {"log.retention.hours": "2", "log.retention.minutes": "3"}
    assert topic_value("retention.ms", EMPTY, both, "t") == 180_000
    both["log.retention.ms"] = "4"
    assert topic_value("retention.ms", EMPTY, both, "t") == 4
    assert topic_value("retention.ms", EMPTY, {"log.retention.hours": "-1"}, "t") == -1
    assert topic_value("segment.ms", EMPTY, {"log.roll.hours": "1"}, "t") == 3_600_000


def test_a_stored_value_that_we_refuse_does_not_stop_a_broker() -> None:
    image = with_configs((2, "t", "compression.type", "new-codec"))
    static = {"compression.type": "zstd"}
    assert topic_value("compression.type", image, static, "t") == "zstd"
    assert topic_values(image, {}, "t")["compression.type"] == "producer"
    assert set(topic_values(image, {}, "t")) == set(TOPIC)


def test_static_config() -> None:
    config = StaticConfig(MINIMAL | {"log.dirs": "/a, /b", "nobody.knows": "1"})
    assert config["node.id"] == 1
    assert config["process.roles"] == ("broker", "controller")
    assert config.log_dirs == ("/a", "/b")
    assert config.unknown == ("nobody.knows",)
    assert config["broker.session.timeout.ms"] == 9000
    assert StaticConfig(MINIMAL).log_dirs == ("/tmp/kafka-logs",)
    with pytest.raises(KafkaError, match=r"Missing node\.id"):
        StaticConfig({"process.roles": "broker"})
    with pytest.raises(KafkaError, match=r"'king' for process\.roles"):
        StaticConfig(MINIMAL | {"process.roles": "king"})


def test_passwords_are_not_shown() -> None:
    secret = replace(NODE["broker.rack"], type=ConfigType.PASSWORD, rule=lambda value: "wrong")
    assert secret.sensitive
    with pytest.raises(KafkaError) as caught:
        secret.parse("hunter2")
    assert "hunter2" not in caught.value.message


def test_the_reference_has_a_row_for_each() -> None:
    lines = reference_markdown().splitlines()
    for definition in DEFINITIONS:
        (row,) = [
            line
            for line in lines
            if line.startswith(f"| `{definition.name}` |") and line.endswith(f"{definition.help} |")
        ]
        assert row.count("|") == 5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.001, "0.001"),
        (9_999_999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-2.5e-5, "-2.5E-5"),
        (sys.float_info.max, "1.7976931348623157E308"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value, text):
    assert to_text(value) == text
    assert float(text) == value
