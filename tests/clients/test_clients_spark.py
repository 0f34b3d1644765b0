"""Spark's Kafka connector on a cluster of three brokers: source and sink, batches and streams."""

import json

import pytest
import spark_jobs
import traffic
from confluent_kafka import Consumer, TopicPartition
from waiting import wait_until

from pykraft.testing import Cluster

pytestmark = [pytest.mark.clients, pytest.mark.spark, pytest.mark.ci]

COUNT = 3000
WAIT_S = 150
IDEMPOTENT = {"enable.idempotence": True}


@pytest.fixture(scope="module")
def spark():
    with spark_jobs.SparkProcess() as process:
        yield process


@pytest.fixture(scope="module")
def cluster(spark):
    with Cluster(brokers=3, controllers=1, properties={"min.insync.replicas": 2}) as cluster:
        yield cluster


def written(i):
    """Record i as `spark_jobs.write` has it: key, value, headers."""
    key = None if i % 10 == 0 else b"k%d" % i
    value = b"" if i % 7 == 0 else b"v%d" % i
    return key, value, [("n", b"%d" % i), ("none", None)]


def consumed(bootstrap, topic):
    """All records, read by librdkafka: {(partition, offset): (key, value, headers)}."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "-", "enable.partition.eof": True}
    consumer = Consumer({**settings, "log_level": 0})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(3)])
    found, ended = {}, 0
    while ended < 3:
        for message in consumer.consume(1000, timeout=1):
            if message.error():
                ended += 1
                continue
            place = (message.partition(), message.offset())
            found[place] = (message.key(), message.value(), message.headers())
    consumer.close()
    return found


def test_batches(spark, cluster):
    """What Spark has written, another client reads; what Spark reads is exactly the range asked."""
    topic = cluster.create_topic(partitions=3, replication_factor=3)
    spark.run(spark_jobs.write, cluster.bootstrap_servers, topic, COUNT)
    found = consumed(cluster.bootstrap_servers, topic)
    assert sorted(found) == [(p, o) for p in range(3) for o in range(COUNT // 3)]
    # Spark's tasks are many to a partition: each one's records are in order, theirs are mixed.
    by_number = sorted(found.values(), key=lambda one: int(one[2][0][1]))
    assert by_number == [written(i) for i in range(COUNT)]

    starting = json.dumps({topic: {"0": 100, "1": -2, "2": 999}})
    ending = json.dumps({topic: {"0": 500, "1": 300, "2": -1}})
    rows = spark.run(spark_jobs.read, cluster.bootstrap_servers, topic, starting, ending)
    asked = [(0, o) for o in range(100, 500)] + [(1, o) for o in range(300)] + [(2, 999)]
    assert {(p, o): tuple(rest) for p, o, *rest in rows} == {place: found[place] for place in asked}
    assert len(rows) == len(asked)


def test_a_stream_goes_on_where_it_was_stopped(spark, cluster, tmp_path):
    bootstrap = cluster.bootstrap_servers
    topic = cluster.create_topic(partitions=3, replication_factor=3)
    traffic.confluent_produce(bootstrap, topic, COUNT, **IDEMPOTENT)
    stream = ("stream", tmp_path, bootstrap, topic, COUNT // 3)
    spark.run(spark_jobs.follow, *stream)
    first = wait_until(lambda: spark.run(spark_jobs.batches, "stream"), "a batch", WAIT_S, 0.2)
    spark.run(spark_jobs.stop, "stream")
    spark.run(spark_jobs.follow, *stream)
    traffic.confluent_produce(bootstrap, topic, COUNT, start=COUNT, **IDEMPOTENT)

    def records():
        batches = dict(spark.run(spark_jobs.batches, "stream"))
        rows = [row for _, rows in sorted(batches.items()) for row in rows]
        return len(rows) >= 2 * COUNT and (batches, rows)

    batches, rows = wait_until(records, "all records", WAIT_S, 0.2)
    assert len(batches) > len(first)
    assert list(batches) == list(range(len(batches)))
    # A batch that the stop cut off came again, and was the same.
    for number, again in spark.run(spark_jobs.batches, "stream"):
        assert again == batches[number]
    seen = traffic.Seen(2 * COUNT)
    for row in rows:
        seen.add(*row)
    assert seen.left == 0
    spark.run(spark_jobs.stop, "stream")


def test_a_broker_is_killed_in_the_middle_of_a_stream(spark, cluster, tmp_path):
    """From one topic to another: each record comes once and in order, Spark's task never fails."""
    bootstrap = cluster.bootstrap_servers
    source = cluster.create_topic(partitions=3, replication_factor=3)
    target = cluster.create_topic(partitions=3, replication_factor=3)
    traffic.confluent_produce(bootstrap, source, 4 * COUNT, **IDEMPOTENT)
    spark.run(spark_jobs.copy, "copy", tmp_path, bootstrap, source, target, COUNT)
    copied = wait_until(lambda: spark.run(spark_jobs.copied, "copy"), "a batch", WAIT_S, 0.05)
    leader = cluster.leader(source, 0)
    cluster.kill(leader)
    assert copied < 4 * COUNT
    traffic.confluent_produce(bootstrap, source, COUNT, start=4 * COUNT, **IDEMPOTENT)
    traffic.confluent_read(bootstrap, target, traffic.Seen(5 * COUNT))
    assert spark.run(spark_jobs.copied, "copy") <= 5 * COUNT
    spark.run(spark_jobs.stop, "copy")
    cluster.heal()
