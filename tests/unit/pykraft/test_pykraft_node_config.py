"""A node's settings as a whole: every refusal names value, setting and rule."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykraft.cli.server import DEFAULT_PROPERTIES
from pykraft.node_config import (
    Address,
    is_loopback,
    parse_address,
    parse_node_config,
    parse_properties,
    resembling,
)
from wire.errors import ErrorCode, KafkaError

COMBINED = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
    "log.dirs": "/data",
}


def config(**changed):
    """COMBINED with changes, `a_b` standing for `a.b`; None removes a setting."""
    values = COMBINED | {name.replace("_", "."): value for name, value in changed.items()}
    return parse_node_config({name: value for name, value in values.items() if value is not None})


BAD = [
    ({"node_id": "x"}, "node.id", "'x'", "whole number"),
    ({"node_id": "-1"}, "node.id", "-1", "at least 0"),
    ({"node_id": "2"}, "node.id", "2", "must be one of the voters (1)"),
    ({"process_roles": ""}, "process.roles", "'' for", "must name broker, controller, or both"),
    ({"process_roles": "witness"}, "process.roles", "witness", "broker"),
    ({"process_roles": "broker"}, "listeners", "CONTROLLER", "without the controller role"),
    ({"process_roles": "controller"}, "listeners", "PLAINTEXT", "without the broker role"),
    (
        {"listeners": "PLAINTEXT://localhost:9092"},
        "listeners",
        "PLAINTEXT://localhost:9092",
        "a controller needs a listener",
    ),
    (
        {"listeners": "CONTROLLER://localhost:9093"},
        "listeners",
        "CONTROLLER://localhost:9093",
        "a broker needs a listener",
    ),
    ({"listeners": "PLAINTEXT:9092"}, "listeners", "PLAINTEXT:9092", "NAME://host:port"),
    ({"listeners": "PLAINTEXT://h:70000"}, "listeners", "PLAINTEXT://h:70000", "0 to 65535"),
    ({"listeners": "A://h:-1"}, "listeners", "A://h:-1", "0 to 65535"),
    ({"listeners": f"A://h:{'9' * 5000}"}, "listeners", "99999", "0 to 65535"),
    ({"listeners": "A://h:1,A://h:2"}, "listeners", "A://h:1,A://h:2", "A is there twice"),
    (
        {"listeners": "ODD://h:1,CONTROLLER://h:2"},
        "listeners",
        "ODD",
        "must have an entry in listener.security.protocol.map",
    ),
    (
        {"listeners": "SSL://h:1,CONTROLLER://h:2"},
        "listener.security.protocol.map",
        "SSL:SSL",
        "only PLAINTEXT is served",
    ),
    (
        {"listener_security_protocol_map": "PLAINTEXT"},
        "listener.security.protocol.map",
        "PLAINTEXT",
        "NAME:one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
    ),
    ({"controller_listener_names": None}, "controller.listener.names", "", "must name"),
    ({"controller_quorum_voters": None}, "controller.quorum.voters", "", "id@host:port"),
    (
        {"controller_quorum_voters": None, "controller_quorum_bootstrap_servers": "h"},
        "controller.quorum.bootstrap.servers",
        "h",
        "must be host:port",
    ),
    ({"controller_quorum_voters": "1"}, "controller.quorum.voters", "1", "id@host:port"),
    ({"controller_quorum_voters": "1@h"}, "controller.quorum.voters", "h", "must be host:port"),
    (
        {"controller_quorum_voters": "1@h:1,1@h:2"},
        "controller.quorum.voters",
        "1@h:2",
        "the voter 1 is there twice",
    ),
    (
        {"controller_quorum_voters": "1@h:1,2@h:1"},
        "controller.quorum.voters",
        "2@h:1",
        "voter 1 has the same address",
    ),
    (
        {"advertised_listeners": "PLAINTEXT://0.0.0.0:9092"},
        "advertised.listeners",
        "PLAINTEXT://0.0.0.0:9092",
        "a host that clients can reach",
    ),
    *(
        (
            {"controller_quorum_voters": None, "controller_quorum_bootstrap_servers": f"a:1,{bad}"},
            "controller.quorum.bootstrap.servers",
            bad,
            rule,
        )
        for bad, rule in (
            ("2@h:1", "must be host:port; ids belong into controller.quorum.voters"),
            ("h/x:1", "'h/x' is neither an address nor a host name"),
            (":1", "a port of 1 to 65535"),
            ("h:0", "a port of 1 to 65535"),
            ("h:²", "a port of 1 to 65535"),
        )
    ),
    ({"controller_quorum_voters": "1@2@h:1"}, "controller.quorum.voters", "2@h:1", "'2@h' is nei"),
    ({"controller_quorum_voters": "1@:1"}, "controller.quorum.voters", ":1", "of 1 to 65535"),
    ({"controller_quorum_voters": "1@h:0"}, "controller.quorum.voters", "h:0", "of 1 to 65535"),
    ({"controller_quorum_voters": "²@h:1"}, "controller.quorum.voters", "²@h:1", "id@host:port"),
    ({"listeners": "A://1@h:1"}, "listeners", "A://1@h:1", "'1@h' is neither an address nor"),
    (
        {"advertised_listeners": "PLAINTEXT://a b:1"},
        "advertised.listeners",
        "PLAINTEXT://a b:1",
        "'a b' is neither an address nor a host name",
    ),
    ({"pykraft_metrics_listener": "a@h:1"}, "pykraft.metrics.listener", "a@h:1", "'a@h' is nei"),
    ({"log_dirs": ""}, "log.dirs", "''", "must name a directory"),
    ({"log_dirs": None, "log_dir": " "}, "log.dirs", "''", "must name a directory"),
    ({"metadata_log_dir": ""}, "metadata.log.dir", "''", "must name a directory"),
    ({"log_dirs": ","}, "log.dirs", "", "must name a directory"),
    *(
        (
            {"log_dirs": None, name: "/a\0b"},
            name.replace("_", "."),
            r"'/a\x00b' for",
            "must be a path",
        )
        for name in ("log_dirs", "log_dir")
    ),
    ({"metadata_log_dir": "\0"}, "metadata.log.dir", r"'\x00' for", "no NUL character (\\u0000)"),
    *(
        ({name: bad}, name.replace("_", "."), repr(bad), "is neither an address nor a host name")
        for name, bad in (
            ("listeners", "A://a\0b:1"),
            ("advertised_listeners", "PLAINTEXT://a\0b:1"),
            ("pykraft_admin_listener", "a\0b:1"),
            ("pykraft_metrics_listener", "a\0b:1"),
        )
    ),
    ({"controller_quorum_voters": "1@a\0b:1"}, "controller.quorum.voters", r"'a\x00b:1' for", ""),
    ({"log_dirs": "/a,/b,/a"}, "log.dirs", "/a,/b,/a", "/a is there twice"),
    ({"log_dirs": "/a,/b,/.//a/"}, "log.dirs", "/a,/b,/.//a/", "/a is there twice"),
    ({"inter_broker_listener_name": "X"}, "inter.broker.listener.name", "X", "PLAINTEXT"),
    ({"pykraft_metrics_listener": "9095"}, "pykraft.metrics.listener", "9095", "must be host:port"),
    (
        {"pykraft_admin_listener": "0.0.0.0:9094"},
        "pykraft.admin.listener",
        "0.0.0.0:9094",
        "pykraft.admin.allow.plaintext=true",
    ),
    (
        {"listeners": "PLAINTEXT://h:1,CONTROLLER://h:1"},
        "listeners",
        "h:1",
        "listeners has the same address",
    ),
    (
        {"pykraft_metrics_listener": "localhost:9092"},
        "pykraft.metrics.listener",
        "localhost:9092",
        "listeners has the same address",
    ),
    ({"pykraft_log_level": "loud"}, "pykraft.log.level", "loud", "debug"),
    *(
        ({f"controller_quorum_{time}_ms": bad}, f"controller.quorum.{name}.ms", bad, "at least 1")
        for time in (
            "election_timeout",
            "fetch_timeout",
            "request_timeout",
            "election_backoff_max",
            "retry_backoff",
        )
        for name in (time.replace("_", "."),)
        for bad in ("0", "-1")
    ),
    ({"replica_fetch_backoff_ms": "0"}, "replica.fetch.backoff.ms", "'0'", "at least 1"),
    ({"metadata_max_retention_ms": "-2"}, "metadata.max.retention.ms", "-2", "at least -1"),
    ({"metadata_max_retention_bytes": "-2"}, "metadata.max.retention.bytes", "-2", "least -1"),
    ({"offsets_topic_segment_bytes": "1"}, "offsets.topic.segment.bytes", "'1'", "least 1048576"),
    ({"offset_metadata_max_bytes": "-1"}, "offset.metadata.max.bytes", "-1", "at least 0"),
    (
        {"group_initial_rebalance_delay_ms": "-1"},
        "group.initial.rebalance.delay.ms",
        "-1",
        "at least 0",
    ),
    ({"broker_session_timeout_ms": "soon"}, "broker.session.timeout.ms", "soon", "whole number"),
]


@pytest.mark.parametrize(
    ("changed", "setting", "value", "rule"), BAD, ids=lambda one: str(one)[:40]
)
def test_a_bad_value_is_told_with_setting_and_rule(changed, setting, value, rule):
    with pytest.raises(KafkaError) as caught:
        config(**changed)
    assert caught.value.code is ErrorCode.invalid_config
    message = caught.value.message
    assert "\n" not in message
    for part in (setting, value, rule):
        assert part in message


@pytest.mark.parametrize("name", ["node.id", "process.roles"])
def test_a_missing_setting_is_named(name):
    with pytest.raises(KafkaError, match=f"Missing {name}"):
        config(**{name.replace(".", "_"): None})


def test_both_roles():
    made = config()
    assert (made.is_broker, made.is_controller) == (True, True)
    assert [one.name for one in made.broker_listeners] == ["PLAINTEXT"]
    assert made.controller_listener.bind == Address("localhost", 9093)
    assert made.voters == {1: Address("localhost", 9093)}
    assert made.metadata_log_dir == "/data"
    assert made.inter_broker_listener == "PLAINTEXT"
    assert is_loopback(made.admin.host)
    assert is_loopback(made.metrics.host)


def test_a_broker_alone_has_no_admin_door():
    made = config(
        process_roles="broker", node_id="5", listeners="PLAINTEXT://:9092", log_dirs="/a, /b"
    )
    assert made.admin is None
    assert made.controller_listener is None
    assert made.controller_listener_name == "CONTROLLER"
    assert made.log_dirs == ("/a", "/b")
    # Clients can't be told "every interface".
    assert made.broker_listeners[0].advertised == Address("localhost", 9092)


def test_a_controller_alone():
    made = config(process_roles="controller", listeners="CONTROLLER://localhost:9093")
    assert made.broker_listeners == ()
    assert made.inter_broker_listener is None


def test_a_voter_must_be_a_controller():
    with pytest.raises(KafkaError, match="must have the controller role"):
        config(process_roles="broker", listeners="PLAINTEXT://localhost:9092")


def test_a_node_listens_on_every_interface_and_on_free_ports_where_it_is_told_to():
    made = config(
        listeners="PLAINTEXT://:0,CONTROLLER://:9093",
        pykraft_metrics_listener=":0",
        pykraft_admin_listener="localhost:0",
    )
    assert made.broker_listeners[0].bind == made.metrics == Address("", 0)
    assert made.controller_listener.bind == Address("", 9093)
    assert made.admin == Address("localhost", 0)


def test_a_quorum_found_through_servers():
    made = config(
        controller_quorum_voters=None,
        controller_quorum_bootstrap_servers="a:1, [::1]:2",
        controller_quorum_auto_join_enable="true",
    )
    assert made.voters == {}
    assert made.bootstrap == (Address("a", 1), Address("::1", 2))
    assert made.static["controller.quorum.auto.join.enable"] is True


def test_only_a_controller_joins_the_quorum():
    with pytest.raises(KafkaError, match=r"auto\.join\.enable: only a node with the controller"):
        config(
            process_roles="broker",
            node_id="5",
            listeners="PLAINTEXT://localhost:9092",
            controller_quorum_auto_join_enable="true",
        )


def test_advertised_listeners_and_names():
    made = config(
        listeners="in://127.0.0.1:1,out://0.0.0.0:2,CONTROLLER://[::1]:3",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        advertised_listeners="OUT://kafka.example.org:92",
    )
    inner, outer = made.broker_listeners
    assert (inner.name, inner.advertised) == ("IN", Address("127.0.0.1", 1))
    assert (outer.bind.host, outer.advertised) == ("0.0.0.0", Address("kafka.example.org", 92))
    assert str(made.controller_listener.bind) == "[::1]:3"
    assert made.inter_broker_listener == "IN"


def test_grpc_in_the_open_must_be_meant():
    made = config(pykraft_admin_listener="0.0.0.0:9094", pykraft_admin_allow_plaintext="true")
    assert str(made.admin) == "0.0.0.0:9094"


def test_an_unknown_name_is_kept_for_a_warning():
    assert config(some_new_thing="1").static.unknown == ("some.new.thing",)


def test_the_default_node_is_sound():
    made = parse_node_config(DEFAULT_PROPERTIES)
    assert all(is_loopback(one.bind.host) for one in made.broker_listeners)
    assert made.static.unknown == ()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("localhost", True), ("127.8.8.8", True), ("::1", True), ("0.0.0.0", False), ("", False),
     ("example.org", False), ("10.0.0.1", False)],
)  # fmt: skip
def test_loopback(host, loopback):
    assert is_loopback(host) is loopback


@given(st.text(max_size=30))
def test_any_address_is_parsed_or_refused(text):
    # Nothing but a KafkaError may leave it.
    with suppress(KafkaError):
        assert 0 <= parse_address("x", text).port <= 65535


@given(st.text(max_size=60))
def test_any_listeners_are_parsed_or_refused(text):
    with suppress(KafkaError):
        config(listeners=text)


def test_a_malformed_file_is_named():
    with pytest.raises(KafkaError, match=r"my\.properties: malformed escape"):
        parse_properties("a=\\u12", "my.properties")
    assert parse_properties("# c\na = 1\nb:2 \\\n  3\n", "f") == {"a": "1", "b": "2 3"}


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("process.role", "process.roles"),
        ("num.partitons", "num.partitions"),
        ("Node.id", "node.id"),
        ("num.partitions", None),
        ("ssl.keystore.location", None),
        ("x", None),
    ],
)
def test_a_mistyped_setting_resembles_one_that_there_is(name, like):
    assert resembling(name) == like
