"""A compacted topic as its users see it: stock clients, three brokers, one of them killed.

Whoever reads it from the start knows the last value of every key, and no more of the past than the
segment that grows has.
"""

import random
import time

import pytest
import traffic
from clusters import running_cluster
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, TopicPartition
from waiting import wait_until

pytestmark = pytest.mark.clients

TOPIC = "compacted"
SETTINGS = {"log.cleaner.backoff.ms": 100, "num.partitions": 1}
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.05",
    "delete.retention.ms": "500",
}
KEYS = 150
PARTITIONS = 2


class Table:
    """Writes to the topic, and knows what it should say."""

    def __init__(self, bootstrap):
        self.chance = random.Random(5)
        self.state = {}
        self.written = 0
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True}
        self.producer = Producer({**settings, "log_level": 0, "compression.type": "lz4"})
        self.failed = []

    def write(self, count, deleted=()):
        """`count` values of keys at random, then tombstones of those that are `deleted`."""
        for _ in range(count):
            key = b"key-%d" % self.chance.randrange(KEYS)
            self._put(key, self.chance.randbytes(900))
        for number in deleted:
            self._put(b"key-%d" % number, None)
        assert self.producer.flush(60) == 0
        assert self.failed == []

    def _put(self, key, value):
        partition = int(key[4:]) % PARTITIONS
        self.producer.produce(TOPIC, value, key, partition, on_delivery=self._delivered)
        self.producer.poll(0)
        self.state[key] = value
        self.written += 1

    def _delivered(self, error, _message):
        if error is not None:
            self.failed.append(error)


def read(bootstrap):
    """All records by partition, from the start to the end there is now: (offset, key, value)."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","), group_id=None, enable_auto_commit=False
    )
    places = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
    consumer.assign(places)
    ends = consumer.end_offsets(places)
    consumer.seek_to_beginning()
    found = {p: [] for p in range(PARTITIONS)}
    deadline = time.monotonic() + 60
    while any(consumer.position(place) < ends[place] for place in places):
        assert time.monotonic() < deadline
        for place, records in consumer.poll(timeout_ms=200).items():
            found[place.partition] += [(r.offset, r.key, r.value) for r in records]
    consumer.close()
    return found


def bases(cluster, broker, partition):
    """The base offsets of a replica's segments; the last is the one that grows."""
    folder = cluster.data(broker) / f"{TOPIC}-{partition}"
    return sorted(int(path.stem) for path in folder.glob("*.log"))


def cleaned_to(cluster, broker):
    """How far each partition of a broker is clean, by its checkpoint."""
    path = cluster.data(broker) / "cleaner-offset-checkpoint"
    lines = path.read_text().split("\n")[2:] if path.exists() else []
    words = [line.split() for line in lines if line.startswith(f"{TOPIC} ")]
    return {int(partition): int(offset) for _, partition, offset in words}


def wait_until_clean(cluster):
    def clean():
        return all(
            cleaned_to(cluster, broker).get(partition) == bases(cluster, broker, partition)[-1]
            for broker in cluster.ids("broker")
            for partition in range(PARTITIONS)
        )

    wait_until(clean, "every replica is clean but for the segment that grows", 60, 0.1)


def check(cluster, table):
    """What is read is what was written last, and of what is clean each key is there once."""
    found = read(cluster.bootstrap)
    state = {}
    for partition, records in found.items():
        offsets = [offset for offset, _, _ in records]
        assert offsets == sorted(set(offsets))
        # All replicas are clean that far, so the leader is.
        clean = min(cleaned_to(cluster, broker)[partition] for broker in cluster.ids("broker"))
        keys = [key for offset, key, _ in records if offset < clean]
        assert len(keys) == len(set(keys))
        state |= {key: value for _, key, value in records}
    assert {k: v for k, v in state.items() if v is not None} == {
        k: v for k, v in table.state.items() if v is not None
    }
    return found


@pytest.mark.ci
def test_a_compacted_topic_stays_small_and_right(tmp_path):
    with running_cluster(tmp_path / "c", 1, 3, SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        made = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, config=CONFIGS)])
        made[TOPIC].result(120)
        traffic.wait_for_leaders(cluster.bootstrap, TOPIC, PARTITIONS)
        table = Table(cluster.bootstrap)
        table.write(6_000, deleted=range(10))
        brokers = cluster.ids("broker")
        cluster.kill(brokers[0])
        table.write(3_000, deleted=range(10, 20))
        cluster.start(brokers[0])
        table.write(3_000)
        wait_until_clean(cluster)
        found = check(cluster, table)
        assert sum(map(len, found.values())) < table.written / 2
        # The tombstones' time is over; what comes after makes a pass due.
        table.write(3_000)
        wait_until_clean(cluster)
        check(cluster, table)
        for broker in brokers:
            log = cluster.log_entries(broker)
            assert [e for e in log if e["event"] == "log_cleaned"]
            bad = ("log_cannot_be_cleaned", "task_failed", "write_failed", "log_damaged")
            assert not [e for e in log if e["event"] in bad]
        # A broker that is stopped and started goes on where it was.
        cluster.stop(brokers[1])
        cluster.start(brokers[1])
        wait_until_clean(cluster)
        check(cluster, table)
        assert not list(cluster.directory.rglob("*.cleaned"))
        assert not list(cluster.directory.rglob("*.swap"))
