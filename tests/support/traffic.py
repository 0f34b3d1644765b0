"""Numbered records through client libraries: written to partitions in turn, read back and counted.

Record i goes to partition i % partitions, so what a partition must hold, and in what order, is
known. Every reader assigns its partitions (no group) and gives `Seen.add` what came.
"""

import asyncio
import json
import subprocess
import time

from waiting import wait_until

TIMEOUT_S = 120


def value(i):
    return b"record %d of a numbered row, padded a little" % i


class Seen:
    """What readers must see: each record of `partitions` once and in order."""

    def __init__(self, count, partitions=3, start=0):
        self.count, self.partitions = count, partitions
        self.next = {p: start + (p - start) % partitions for p in range(partitions)}
        self.end = start + count
        self.left = count
        self.offsets = dict.fromkeys(range(partitions), -1)

    def add(self, partition, offset, data):
        expected = self.next[partition]
        assert data == value(expected), f"{partition}@{offset}: {data!r}, not record {expected}"
        assert offset > self.offsets[partition], f"{partition}: {offset} again"
        self.next[partition] = expected + self.partitions
        self.offsets[partition] = offset
        self.left -= 1


def _confluent(bootstrap, **more):
    return {"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": 20000, **more}


def wait_for_leaders(bootstrap, topic, partitions=3):
    """Returns when every partition's leader serves it, so that no first produce is refused.

    A refused batch is sent again behind those that followed it: only idempotence keeps the order.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(_confluent(bootstrap, **{"group.id": "-"}))
    for partition in range(partitions):
        wait_until(
            lambda p=partition: consumer.get_watermark_offsets(TopicPartition(topic, p), 2),
            f"{topic}-{partition} is served",
            errors=(KafkaException,),
        )
    consumer.close()


def confluent_produce(bootstrap, topic, count, codec="none", partitions=3, start=0, **more):
    """librdkafka at acks=all; returns when all are acknowledged, fails when one isn't."""
    from confluent_kafka import Producer

    settings = {"compression.type": codec, "acks": "all", "linger.ms": 5}
    settings["queue.buffering.max.messages"] = 2_000_000
    producer = Producer(_confluent(bootstrap, **settings, **more))
    failures = []

    def delivered(error, _message):
        if error is not None:
            failures.append(error)

    for i in range(start, start + count):
        producer.produce(topic, value(i), partition=i % partitions, on_delivery=delivered)
        if i % 1000 == 0:
            producer.poll(0)
    left = producer.flush(TIMEOUT_S)
    assert (left, failures[:3]) == (0, [])


def confluent_read(bootstrap, topic, seen, offset=0):
    """Reads until all of `seen` came, from `offset` of every partition."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(_confluent(bootstrap, **{"group.id": "-", "enable.auto.commit": False}))
    consumer.assign([TopicPartition(topic, p, offset) for p in range(seen.partitions)])
    deadline = time.monotonic() + TIMEOUT_S
    while seen.left > 0:
        messages = consumer.consume(5000, timeout=0.2)
        assert messages or time.monotonic() < deadline, f"{seen.left} of {seen.count} never came"
        for message in messages:
            assert message.error() is None, message.error()
            seen.add(message.partition(), message.offset(), message.value())
    consumer.close()


def kafka_python_produce(bootstrap, topic, count, codec=None, partitions=3, start=0, **more):
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        acks="all",
        compression_type=codec,
        linger_ms=5,
        **more,
    )
    numbers = range(start, start + count)
    sent = [producer.send(topic, value(i), partition=i % partitions) for i in numbers]
    producer.flush(TIMEOUT_S)
    for one in sent:
        one.get(1)
    producer.close(10)


def kafka_python_read(bootstrap, topic, seen):
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","), enable_auto_commit=False, group_id=None
    )
    consumer.assign([TopicPartition(topic, p) for p in range(seen.partitions)])
    consumer.seek_to_beginning()
    deadline = time.monotonic() + TIMEOUT_S
    while seen.left > 0:
        polled = consumer.poll(timeout_ms=500, max_records=5000)
        assert polled or time.monotonic() < deadline, f"{seen.left} of {seen.count} never came"
        for place, records in polled.items():
            for record in records:
                seen.add(place.partition, record.offset, record.value)
    consumer.close()


def aiokafka_round(bootstrap, topic, seen, codec=None):
    """Writes and reads with aiokafka, idempotent as a careful user has it."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    async def write():
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=codec, enable_idempotence=True
        ) as producer:
            pending = []
            for i in range(seen.count):
                pending.append(await producer.send(topic, value(i), partition=i % seen.partitions))
            await asyncio.gather(*pending)

    async def read():
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        await consumer.start()
        consumer.assign([TopicPartition(topic, p) for p in range(seen.partitions)])
        try:
            while seen.left > 0:
                polled = await consumer.getmany(timeout_ms=500, max_records=5000)
                for place, records in polled.items():
                    for record in records:
                        seen.add(place.partition, record.offset, record.value)
        finally:
            await consumer.stop()

    async def both():
        async with asyncio.timeout(TIMEOUT_S):
            await write()
            await read()

    asyncio.run(both())


def kcat(bootstrap, *arguments, data=None):
    """Runs kcat; returns its output."""
    done = subprocess.run(
        ["kcat", "-b", bootstrap, "-q", *arguments],
        input=data,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout


def kcat_produce(bootstrap, topic, count, codec="none", partitions=3):
    for partition in range(partitions):
        lines = b"".join(value(i) + b"\n" for i in range(partition, count, partitions))
        options = ("-z", codec, "-X", "acks=all", "-X", "queue.buffering.max.messages=2000000")
        kcat(bootstrap, "-P", "-t", topic, "-p", str(partition), *options, data=lines)


def kcat_read(bootstrap, topic, seen):
    for partition in range(seen.partitions):
        options = ("-C", "-p", str(partition), "-o", "beginning", "-e", "-f", "%o %s\n")
        for line in kcat(bootstrap, "-t", topic, *options).splitlines():
            offset, _, data = line.partition(b" ")
            seen.add(partition, int(offset), data)
    assert seen.left == 0


def kcat_metadata(bootstrap):
    return json.loads(kcat(bootstrap, "-L", "-J"))
