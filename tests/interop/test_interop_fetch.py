"""Fetching beside JVM Kafka: aborted transactions on the disk, and the Java client's own ways."""

import asyncio
import sys
import time
from pathlib import Path

import jvm_node
import kafka_jvm
import pytest
from clusters import pykraft_server
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pykraft.ports import free_ports

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "broker"))
from broker_fakes import cluster, until

from broker.config import RACK_AWARE

pytestmark = pytest.mark.interop

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
ROUNDS = 40


def write_transactions(bootstrap):
    """Interleaved transactions of two producers, every third aborted, in many small segments; what
    readers of committed records may see, in order."""
    producers = [
        Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t-{n}", "linger.ms": 0})
        for n in (0, 1)
    ]
    placed = []  # (offset, value, whether it was committed), as acknowledged
    # Each is later by more than log.roll.ms than all before, than the markers too, whose time is
    # the clock's: so it begins a segment, however fast the machine is.
    ahead_ms = int(time.time() * 1000) + 600_000
    begun = {0: [], 1: []}
    for producer in producers:
        producer.init_transactions(30)
        producer.begin_transaction()
    for number in range(ROUNDS):
        which = number % 2
        producer = producers[which]
        for part in range(2):
            value = b"%d-%d" % (number, part)
            producer.produce(
                "txn",
                value,
                partition=0,
                timestamp=ahead_ms + number * 1_000,
                on_delivery=lambda e, m, which=which: begun[which].append((m.offset(), m.value())),
            )
        assert producer.flush(30) == 0
        if number % 6 < 4:
            committed = number % 3 != 0
            producer.commit_transaction(30) if committed else producer.abort_transaction(30)
            placed += [(*one, committed) for one in begun[which]]
            begun[which].clear()
            producer.begin_transaction()
    for which, producer in enumerate(producers):
        producer.abort_transaction(30)
        placed += [(*one, False) for one in begun[which]]
    return [value for _, value, committed in sorted(placed) if committed], len(placed)


def read(bootstrap, isolation, count):
    """`count` values from the start on, and that nothing follows them."""
    settings = {"group.id": "-", "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "isolation.level": isolation, **settings})
    consumer.assign([TopicPartition("txn", 0, 0)])
    values = []
    while len(values) < count:
        message = consumer.poll(20)
        assert message is not None, f"only {len(values)} of {count} came"
        assert message.error() is None, message.error()
        values.append(message.value())
    assert consumer.poll(1) is None
    consumer.close()
    return values


def indexes(data):
    """The content of the .txnindex files that have any."""
    files = (data / "txn-0").glob("*.txnindex")
    return {path.name: path.read_bytes() for path in files if path.stat().st_size}


@pytest.mark.ci
def test_aborted_transactions_of_a_jvm_node_and_back(tmp_path):
    values = {
        **jvm_node.combined_properties(tmp_path),
        "log.roll.ms": 200,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.min.isr": 1,
    }
    config = jvm_node.write_properties(tmp_path / "server.properties", values)
    jvm_node.format_directory(config, "AAAAAAAAQACAAAAAAAAAAQ")
    with jvm_node.jvm_node(config) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for made in admin.create_topics([NewTopic("txn", 1, 1)]).values():
            made.result(120)
        committed, total = write_transactions(node.bootstrap)
        assert read(node.bootstrap, "read_committed", len(committed)) == committed
    data = tmp_path / "data"
    by_the_jvm = indexes(data)
    assert len(by_the_jvm) > 2
    for name, listener in zip(("admin", "metrics"), free_ports(2), strict=True):
        values[f"pykraft.{name}.listener"] = f"127.0.0.1:{listener}"
    jvm_node.write_properties(config, values)
    with pykraft_server(config):
        assert read(node.bootstrap, "read_committed", len(committed)) == committed
        assert len(read(node.bootstrap, "read_uncommitted", total)) == total
    assert indexes(data) == by_the_jvm
    # After an unclean stop all of it is derived anew, and a JVM node reads it.
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").unlink()
    for name in by_the_jvm:
        (data / "txn-0" / name).unlink()
    with pykraft_server(config):
        assert read(node.bootstrap, "read_committed", len(committed)) == committed
    assert indexes(data) == by_the_jvm
    with jvm_node.jvm_node(config) as again:
        assert read(again.bootstrap, "read_committed", len(committed)) == committed
    assert again.complaints() == []


@pytest.mark.parametrize("version", [kafka_jvm.DEFAULT_VERSION])
def test_a_java_consumer_reads_from_the_replica_in_its_rack(tmp_path, version):
    path = kafka_jvm.classpath(version)
    count = 2000

    async def main():
        async with cluster(tmp_path, ()) as c:
            for broker in (1, 2, 3):
                await c.start_broker(
                    broker, broker_rack=f"rack-{broker}", replica_selector_class=RACK_AWARE
                )
            c.controller.create_topic("t", 1, (1, 2, 3))
            await until(lambda: all(len(b.replicas) == 1 for b in c.brokers.values()))
            text = await asyncio.to_thread(write_and_read, c.bootstrap, count, path)
            assert text == "".join(f"value-{i}\n" for i in range(count))
            log_size = c.brokers[1].replicas.find("t", None, 0).log.size
            assert c.brokers[3].bytes_out >= log_size
            assert c.brokers[2].bytes_out == 0
            assert c.brokers[1].bytes_out == 2 * log_size, "what its two followers copied"

    asyncio.run(main())


def write_and_read(bootstrap, count, path):
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 2})
    for number in range(count):
        producer.produce("t", b"value-%d" % number, partition=0)
    assert producer.flush(30) == 0
    options = ["--bootstrap-server", bootstrap, "--topic", "t", "--partition", "0"]
    options += ["--offset", "earliest", "--max-messages", str(count), "--timeout-ms", "30000"]
    # Several fetches, so that the session is in use.
    for setting in ("client.rack=rack-3", "max.partition.fetch.bytes=2000"):
        options += ["--consumer-property", setting]
    return kafka_jvm.run_java(CONSUMER, options, path)
