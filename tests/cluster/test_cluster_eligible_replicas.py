"""Every replica goes and comes back in the worst order: who has everything leads (KIP-966)."""

import pytest
from clusters import running_cluster
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from waiting import NotInTime, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.ci]

FEATURE = "eligible.leader.replicas.version"
TOPIC = "t"
IN_TURN = (1, 2, 3)


def partition(cluster):
    with cluster.admin() as admin:
        return admin.describe_topics([TOPIC], linearizable=True)[TOPIC]["partitions"]["0"]


def wait_for(cluster, **wanted):
    """Until the partition has these values; returns it."""
    seen = []

    def has_them():
        seen.append(partition(cluster))
        return all(seen[-1][name] == value for name, value in wanted.items())

    try:
        wait_until(has_them, f"{TOPIC}-0 has {wanted}", 30, 0.1)
    except NotInTime as error:
        raise AssertionError(f"{error}: {seen[-1]}") from None
    return seen[-1]


def produce(cluster, values, acks):
    """Writes each value; returns the error names, None for each that was acknowledged."""
    errors = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": acks,
            "message.timeout.ms": 20_000,
            "retries": 0 if acks == "all" else 10,
            "log_level": 0,
        }
    )
    for value in values:
        producer.produce(
            TOPIC, value, partition=0, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(30) == 0
    return [None if error is None else error.code() for error in errors]


def read(cluster, count):
    """The first `count` values that a consumer is given, and where its end is."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "-", "enable.auto.commit": False}
        | {"log_level": 0}
    )
    place = TopicPartition(TOPIC, 0, 0)
    end = consumer.get_watermark_offsets(place, 20)[1]
    consumer.assign([place])
    values = []
    while len(values) < count:
        messages = consumer.consume(count, 20)
        assert messages, f"{len(values)} of {count} records, and no more"
        values += [message.value() for message in messages]
    consumer.close()
    return values, end


def values(first, count):
    return [f"value-{number}".encode() for number in range(first, first + count)]


def test_the_worst_order(tmp_path):
    settings = {"min.insync.replicas": 2, "auto.leader.rebalance.enable": "false"}
    with running_cluster(tmp_path, 1, 3, settings) as cluster:
        cluster.pykraft("features", "upgrade", "--feature", f"{FEATURE}=1")
        cluster.pykraft("topics", "create", TOPIC, "--assignment", "1:2:3")
        wait_for(cluster, leader=1, isr=[1, 2, 3], elr=[], lastKnownElr=[])
        assert produce(cluster, values(0, 10), "all") == [None] * 10

        # 3 dies and misses ten records that the others have acknowledged.
        cluster.kill(3)
        wait_for(cluster, isr=[1, 2], elr=[])
        assert produce(cluster, values(10, 10), "all") == [None] * 10

        # 2 leaves in order. Alone, 1 commits nothing.
        cluster.stop(2)
        wait_for(cluster, isr=[1], elr=[2])
        refused = produce(cluster, values(50, 1), "all")
        assert refused == [KafkaError.NOT_ENOUGH_REPLICAS]
        assert produce(cluster, values(60, 5), "1") == [None] * 5
        assert read(cluster, 20) == (values(0, 20), 20), "what 1 alone has is not committed"

        cluster.stop(1)
        wait_for(cluster, leader=-1, isr=[], elr=[1, 2], lastKnownElr=[1])
        # The first to be back is the one that misses records.
        cluster.start(3)
        shown = cluster.pykraft("topics", "describe", TOPIC).split()
        assert shown[-7:] == ["0", "-1", "1", "1,2,3", "-", "1,2", "1"], "the line of the partition"
        wait_for(cluster, leader=-1, isr=[], elr=[1, 2], lastKnownElr=[1])
        cluster.start(2)
        # 3 joins by copying from it.
        led = wait_for(cluster, leader=2, isr=[2, 3], elr=[], lastKnownElr=[])
        assert led["recovery"] == 0, "a clean election"
        assert read(cluster, 20) == (values(0, 20), 20)
        assert produce(cluster, values(20, 10), "all") == [None] * 10
        cluster.start(1)
        wait_for(cluster, leader=2, isr=[2, 3, 1])
        assert read(cluster, 30) == (values(0, 30), 30)


def test_who_died_without_a_word_waits_for_who_did_not(tmp_path):
    settings = {"min.insync.replicas": 2, "auto.leader.rebalance.enable": "false"}
    with running_cluster(tmp_path, 1, 2, settings) as cluster:
        cluster.pykraft("features", "upgrade", "--feature", f"{FEATURE}=1")
        cluster.pykraft("topics", "create", TOPIC, "--assignment", "1:2")
        assert produce(cluster, values(0, 10), "all") == [None] * 10
        cluster.kill(2)
        wait_for(cluster, leader=1, isr=[1], elr=[2])
        cluster.stop(1)
        wait_for(cluster, leader=-1, isr=[], elr=[1, 2], lastKnownElr=[1])
        # It may have lost what was not on its disk yet.
        cluster.start(2)
        wait_for(cluster, leader=-1, isr=[], elr=[1], lastKnownElr=[1])
        cluster.start(1)
        wait_for(cluster, leader=1, isr=[1, 2], elr=[], lastKnownElr=[])
        assert read(cluster, 10) == (values(0, 10), 10)
