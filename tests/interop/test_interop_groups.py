"""Requests about groups get the answers that a JVM broker gives, in every version."""

import asyncio

import group_story
import kafka_jvm
import pytest
from clusters import running_cluster
from confluent_kafka.admin import AdminClient, NewTopic
from jvm_node import combined_properties, format_directory, jvm_node, write_properties

pytestmark = pytest.mark.interop

VERSION = kafka_jvm.NEWEST_VERSION
CLUSTER_ID = "kraftkraftkraftkraftkr"
# Nobody else is to join these groups.
SETTINGS = {"group.initial.rebalance.delay.ms": 0}


def told_by(bootstrap):
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("t", 3, 1)], operation_timeout=30)["t"].result()
    return asyncio.run(group_story.tell(bootstrap))


@pytest.fixture(scope="module")
def told_by_jvm(tmp_path_factory):
    directory = tmp_path_factory.mktemp("jvm")
    values = combined_properties(directory, group_initial_rebalance_delay_ms=0)
    config = write_properties(directory / "server.properties", values)
    format_directory(config, CLUSTER_ID, VERSION)
    with jvm_node(config, version=VERSION) as node:
        return told_by(node.bootstrap)


@pytest.fixture(scope="module")
def told_by_us(tmp_path_factory):
    with running_cluster(tmp_path_factory.mktemp("ours"), 0, 1, SETTINGS) as cluster:
        return told_by(cluster.bootstrap)


def test_every_answer_is_a_jvm_brokers(told_by_us, told_by_jvm):
    assert len(told_by_us) > 1000
    assert list(told_by_us) == list(told_by_jvm)
    different = {
        what: (told_by_us[what], told_by_jvm[what])
        for what in told_by_us
        if told_by_us[what] != told_by_jvm[what]
    }
    assert different == {}
