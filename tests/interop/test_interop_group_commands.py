"""`pykraft groups` asks any Kafka's brokers: here a JVM node, whose own tool says the same."""

import json
import re
import subprocess
import sys

import jvm_node
import kafka_jvm
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.ci]

TOPIC, PARTITIONS, RECORDS = "read", 2, 40
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory):
    directory = tmp_path_factory.mktemp("jvm")
    values = jvm_node.combined_properties(directory, group_initial_rebalance_delay_ms=0)
    config = jvm_node.write_properties(directory / "server.properties", values)
    version = kafka_jvm.NEWEST_VERSION
    jvm_node.format_directory(config, "AAAAAAAAAAAAAAAAAAAAAA", version, group_version=1)
    with jvm_node.jvm_node(config, version=version) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
        producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        yield node.bootstrap


def pykraft(bootstrap, *words, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "pykraft", "groups", *words, "--bootstrap", bootstrap],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_jvm_kafka(bootstrap, protocol):
    group, end = f"group-{protocol}", RECORDS // PARTITIONS
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([TOPIC])
    found = []
    wait_until(
        lambda: found.extend(consumer.consume(RECORDS, 0.2)) or len(found) >= RECORDS, "all is read"
    )
    consumer.commit(asynchronous=False)
    ours = json.loads(pykraft(bootstrap, "describe", group, "--json"))
    listed = json.loads(pykraft(bootstrap, "list", "--json"))
    refused = pykraft(bootstrap, "reset", group, "--to", "earliest", code=1)
    consumer.close()
    assert (ours["type"], ours["state"]) == (protocol, "Stable")
    assert [one["assigned"] for one in ours["members"]] == [{TOPIC: [0, 1]}]
    assert [(one["offset"], one["end"], one["lag"]) for one in ours["partitions"]] == [
        (end, end, 0)
    ] * PARTITIONS
    assert [(one["type"], one["state"]) for one in listed if one["group"] == group] == [
        (protocol, "Stable")
    ]
    assert "NON_EMPTY_GROUP" in refused

    pykraft(bootstrap, "reset", group, "--to", "7", "--topic", f"{TOPIC}:1")
    ours = json.loads(pykraft(bootstrap, "describe", group, "--json"))
    tool = [TOOL, "--bootstrap-server", bootstrap, "--describe", "--group", group]
    with kafka_jvm.Tools(kafka_jvm.NEWEST_VERSION) as tools:
        _, said = tools.run(*tool)
    rows = re.findall(rf"^{group}\s+{TOPIC}\s+(\d)\s+(\d+)\s+(\d+)\s+(\d+)\s", said, re.MULTILINE)
    columns = ("partition", "offset", "end", "lag")
    assert [tuple(str(one[column]) for column in columns) for one in ours["partitions"]] == sorted(
        rows
    )
    assert rows, said
    pykraft(bootstrap, "delete", group)
    assert "GROUP_ID_NOT_FOUND" in pykraft(bootstrap, "describe", group, code=1)
