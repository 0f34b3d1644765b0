"""Stock Kafka clients against brokers in this process, consuming by assign()."""

import asyncio
import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "broker"))
from broker_fakes import cluster, until

pytestmark = pytest.mark.clients
COUNT = 3000
OTHER_CODECS = [
    *(pytest.param(codec, marks=pytest.mark.ci) for codec in ("gzip", "snappy", "lz4")),
    "zstd",
]


def needs(module):
    return pytest.mark.skipif(
        importlib.util.find_spec(module) is None, reason=f"{module} is not installed"
    )


def run_with_cluster(path, client, brokers=(1, 2, 3), topic="t", partitions=3, configs=None):
    async def main():
        async with cluster(path, brokers) as c:
            if topic is not None:
                c.controller.create_topic(topic, partitions, brokers, configs)
                await until(lambda: all(len(b.replicas) == partitions for b in c.brokers.values()))
            await asyncio.to_thread(client, c.bootstrap)
            assert all(s.counters.malformed == 0 for s in c.servers.values())

    asyncio.run(main())


@needs("confluent_kafka")
@pytest.mark.parametrize("codec", ["none", *OTHER_CODECS])
@pytest.mark.parametrize("idempotent", [False, True])
def test_confluent_kafka(tmp_path, codec, idempotent):
    from confluent_kafka import Consumer, Producer, TopicPartition

    def client(bootstrap):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 2,
            }
        )
        failures = []
        for i in range(COUNT):
            producer.produce(
                "t",
                key=b"%d" % i,
                value=b"value-%d" % i,
                partition=i % 3,
                on_delivery=lambda e, _: failures.append(e) if e else None,
            )
            producer.poll(0)
        assert producer.flush(30) == 0
        assert failures == []
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition("t", p, 0) for p in range(3)])
        got = {0: [], 1: [], 2: []}
        while sum(map(len, got.values())) < COUNT:
            messages = consumer.consume(500, timeout=10)
            assert messages, f"only {sum(map(len, got.values()))} came"
            for message in messages:
                assert message.error() is None, message.error()
                got[message.partition()].append(message.value())
        for p in range(3):
            assert got[p] == [b"value-%d" % i for i in range(p, COUNT, 3)]
            assert consumer.get_watermark_offsets(TopicPartition("t", p)) == (0, COUNT // 3)
        consumer.close()

    run_with_cluster(tmp_path, client)


@needs("kafka")
@pytest.mark.parametrize("codec", [None, pytest.param("gzip", marks=pytest.mark.ci), "lz4"])
def test_kafka_python(tmp_path, codec):
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    def client(bootstrap):
        servers = bootstrap.split(",")
        producer = KafkaProducer(
            bootstrap_servers=servers, acks="all", compression_type=codec, linger_ms=2
        )
        futures = [producer.send("t", b"v%d" % i, partition=i % 3) for i in range(COUNT)]
        producer.flush(30)
        assert [f.get(10).offset for f in futures] == [i // 3 for i in range(COUNT)]
        producer.close()
        consumer = KafkaConsumer(
            bootstrap_servers=servers, consumer_timeout_ms=10_000, auto_offset_reset="earliest"
        )
        partitions = [TopicPartition("t", p) for p in range(3)]
        consumer.assign(partitions)
        assert consumer.end_offsets(partitions) == dict.fromkeys(partitions, COUNT // 3)
        consumer.seek_to_beginning()
        got = {0: [], 1: [], 2: []}
        for message in consumer:
            got[message.partition].append(message.value)
            if sum(map(len, got.values())) == COUNT:
                break
        for p in range(3):
            assert got[p] == [b"v%d" % i for i in range(p, COUNT, 3)]
        consumer.close()

    run_with_cluster(tmp_path, client)


@needs("aiokafka")
def test_aiokafka_with_a_topic_made_on_first_use(tmp_path):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    async def talk(bootstrap):
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=True
        )
        await producer.start()
        try:
            sends = [
                await producer.send("made-on-first-use", b"v%d" % i, partition=0)
                for i in range(COUNT)
            ]
            await asyncio.gather(*sends)
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            partition = TopicPartition("made-on-first-use", 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            got = [(await consumer.getone()).value for _ in range(COUNT)]
            assert got == [b"v%d" % i for i in range(COUNT)]
        finally:
            await consumer.stop()

    run_with_cluster(
        tmp_path, lambda bootstrap: asyncio.run(talk(bootstrap)), brokers=(1,), topic=None
    )
