"""Requests about groups get the answers that a JVM broker gives, in every version."""

import asyncio

import consumer_group_story
import group_story
import kafka_jvm
import migration_story
import pytest
from clusters import running_cluster
from confluent_kafka.admin import AdminClient, NewTopic
from jvm_node import combined_properties, jvm_node, write_properties

from broker.groups.consumer.heartbeats import SOON_MS

pytestmark = pytest.mark.interop

VERSION = kafka_jvm.NEWEST_VERSION
CLUSTER_ID = "kraftkraftkraftkraftkr"
# Nobody else is to join these groups, and partitions are to be assigned at once.
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "group.consumer.assignment.interval.ms": 0}
USUAL_MS = 5_000
STORIES = (
    group_story.classic_groups,
    consumer_group_story.consumer_groups,
    migration_story.groups_that_migrate,
)


def with_usual_interval(told):
    """An answer with Kafka's interval where ours wants the member back sooner."""
    if isinstance(told, dict):
        sooner = told.get("heartbeat_interval") == SOON_MS
        changed = {"heartbeat_interval": USUAL_MS} if sooner else {}
        return {name: with_usual_interval(value) for name, value in {**told, **changed}.items()}
    if isinstance(told, tuple | list):
        return type(told)(with_usual_interval(value) for value in told)
    return told


def told_by(bootstrap):
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("t", 3, 1)], operation_timeout=60)["t"].result()
    return asyncio.run(group_story.tell(bootstrap, *STORIES))


@pytest.fixture(scope="module")
def told_by_jvm(tmp_path_factory):
    directory = tmp_path_factory.mktemp("jvm")
    config = write_properties(
        directory / "server.properties", {**combined_properties(directory), **SETTINGS}
    )
    arguments = ["format", "--config", str(config), "--cluster-id", CLUSTER_ID]
    kafka_jvm.run_java("kafka.tools.StorageTool", arguments, kafka_jvm.classpath(VERSION))
    with jvm_node(config, version=VERSION) as node:
        return told_by(node.bootstrap)


@pytest.fixture(scope="module")
def told_by_us(tmp_path_factory):
    with running_cluster(tmp_path_factory.mktemp("ours"), 0, 1, SETTINGS) as cluster:
        return told_by(cluster.bootstrap)


@pytest.mark.ci
def test_every_answer_is_a_jvm_brokers(told_by_us, told_by_jvm):
    assert with_usual_interval(told_by_jvm) == told_by_jvm
    told_by_us = with_usual_interval(told_by_us)
    assert len(told_by_us) > 1100
    assert list(told_by_us) == list(told_by_jvm)
    different = {
        what: (told_by_us[what], told_by_jvm[what])
        for what in told_by_us
        if told_by_us[what] != told_by_jvm[what]
    }
    assert different == {}
