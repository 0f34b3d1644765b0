"""Clients in other languages write while the brokers they write to are killed or hang."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import traffic
from foreign_clients import LANGUAGES, ForeignClient
from waiting import wait_until

from pykraft.testing import Cluster

pytestmark = [pytest.mark.clients, pytest.mark.ci]

COUNT = 60_000 if os.environ.get("CI") == "true" else 20_000


@pytest.fixture(scope="module")
def one_cluster():
    with Cluster(brokers=3, controllers=1, properties={"min.insync.replicas": 2}) as cluster:
        yield cluster


@pytest.fixture
def cluster(one_cluster):
    """All nodes run, also after a test that failed half-way."""
    one_cluster.heal()
    one_cluster.wait_until_in_sync()
    return one_cluster


def ends(cluster, topic):
    """How many records each partition has."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "-", "log_level": 0}
    consumer = Consumer(settings)
    try:
        # A leader that was just elected may not know its high watermark yet (KIP-207).
        return [
            wait_until(
                lambda p=p: consumer.get_watermark_offsets(TopicPartition(topic, p), 10),
                f"the end of {topic}-{p}",
                errors=(KafkaException,),
            )[1]
            for p in range(3)
        ]
    finally:
        consumer.close()


def values(cluster, topic):
    """Every record of the topic, in its partition's order."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "-", "log_level": 0}
    consumer = Consumer(settings)
    left = sum(ends(cluster, topic))
    consumer.assign([TopicPartition(topic, p, 0) for p in range(3)])
    found = {p: [] for p in range(3)}
    try:
        while left:
            for message in consumer.consume(5000, timeout=20):
                assert message.error() is None, message.error()
                found[message.partition()].append(message.value())
                left -= 1
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("how", ["kill", "stop", "pause"])
@pytest.mark.parametrize("library", LANGUAGES)
def test_a_leader_is_lost_while_it_is_written_to(cluster, library, how):
    """What was acknowledged is there. Idempotent producers leave each record once and in order
    (their programs also check every offset); KafkaJS may write one twice."""
    client = ForeignClient(library)
    topic = cluster.create_topic(partitions=3, replication_factor=3)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(client.write, cluster.bootstrap_servers, topic, COUNT)
        wait_until(lambda: min(ends(cluster, topic)) > 0 or writing.done(), "records come")
        leader = cluster.leader(topic)
        getattr(cluster, how)(leader)
        cluster.leader(topic, other_than=leader)
        cluster.heal()
        writing.result(180)
    for partition, found in values(cluster, topic).items():
        expected = [traffic.value(i) for i in range(partition, COUNT, 3)]
        if library == "kafkajs":
            found = list(dict.fromkeys(found))
        differ = [pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]]
        assert (len(found), differ[:3]) == (len(expected), []), f"partition {partition}"
