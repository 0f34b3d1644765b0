"""A stock client reads from the closest replica, and over aborted transactions."""

import asyncio
import dataclasses
import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "broker"))
from broker_fakes import cluster, until

from broker.config import RACK_AWARE
from broker.partition_events import Appended
from wire.batch import build_batch
from wire.control import encode_end_txn_marker

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(
        importlib.util.find_spec("confluent_kafka") is None,
        reason="confluent_kafka is not installed",
    ),
]


def replica_of(c, broker, index=0):
    return c.brokers[broker].replicas.find("t", None, index)


def consumer_of(bootstrap, **settings):
    from confluent_kafka import Consumer

    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def read(consumer, count):
    values = []
    while len(values) < count:
        message = consumer.poll(20)
        assert message is not None, f"only {len(values)} of {count} came"
        assert message.error() is None, message.error()
        values.append(message.value())
    return values


def produce(bootstrap, values, partition=0):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 2})
    for value in values:
        producer.produce("t", value=value, partition=partition)
    assert producer.flush(30) == 0


def test_a_consumer_reads_from_the_replica_in_its_rack(tmp_path):
    from confluent_kafka import TopicPartition

    async def main():
        async with cluster(tmp_path, ()) as c:
            for broker in (1, 2, 3):
                await c.start_broker(
                    broker, broker_rack=f"rack-{broker}", replica_selector_class=RACK_AWARE
                )
            c.controller.create_topic("t", 1, (1, 2, 3))
            # Made when consumers come, it would have the followers begin fetches again.
            c.controller.create_topic("__consumer_offsets", 1, (1, 2, 3))
            await until(lambda: all(len(b.replicas) == 2 for b in c.brokers.values()))
            values = [b"value-%d" % i for i in range(3000)]

            def client():
                produce(c.bootstrap, values[:2000])
                consumer = consumer_of(c.bootstrap, client_rack="rack-3")
                consumer.assign([TopicPartition("t", 0, 0)])
                got = read(consumer, 2000)
                produce(c.bootstrap, values[2000:])
                got += read(consumer, 1000)
                consumer.close()
                return got

            assert await asyncio.to_thread(client) == values
            log_size = replica_of(c, 1).log.size
            assert c.brokers[3].bytes_out >= log_size
            assert c.brokers[2].bytes_out == 0
            assert c.brokers[1].bytes_out == 2 * log_size, "what its two followers copied"

    asyncio.run(main())


def test_a_reader_of_committed_records_sees_no_aborted_ones(tmp_path):
    """Also where aborted, committed and open transactions lie in the same fetch."""
    from confluent_kafka import TopicPartition

    async def main():
        async with cluster(tmp_path) as c:
            c.controller.create_topic("t", 1)
            await until(lambda: c.brokers[1].replicas.leaders == 1)
            log = replica_of(c, 1).log
            log.config = dataclasses.replace(log.config, segment_bytes=2000)
            committed, everything = transactions(replica_of(c, 1), 60)
            assert len(log.segments) > 2

            def client(isolation, count):
                consumer = consumer_of(c.bootstrap, isolation_level=isolation)
                consumer.assign([TopicPartition("t", 0, 0)])
                got = read(consumer, count)
                assert consumer.poll(1) is None
                _, end = consumer.get_watermark_offsets(TopicPartition("t", 0))
                consumer.close()
                return got, end

            got, end = await asyncio.to_thread(client, "read_uncommitted", len(everything))
            assert (got, end) == (everything, replica_of(c, 1).log.end_offset)
            got, _ = await asyncio.to_thread(client, "read_committed", len(committed))
            assert got == committed

    asyncio.run(main())


def transactions(replica, rounds):
    """Appends interleaved transactions of three producers, one left open, and plain records; the
    values that readers of committed records may see, and all, both in order."""
    committed, everything = [], []
    opened = {}
    sequences = {}
    epoch = {"producer_epoch": 0}

    def append(records, **fields):
        # As a coordinator would: what clients send is not taken with transactions yet.
        data = bytearray(build_batch(records, **fields))
        info = replica.log.append_as_leader([data], replica.core.leader_epoch)
        replica.tell(Appended(info.last_offset + 1))
        return info.base_offset

    def end(producer, commit):
        key, value = encode_end_txn_marker(commit, 0)
        append(
            [(1, key, value, ())], producer_id=producer, transactional=True, control=True, **epoch
        )
        if commit:
            committed.extend(opened[producer])
        del opened[producer]

    for number in range(rounds):
        producer = 10 + number % 3
        value = b"%d-%d" % (producer, number)
        sequence = sequences.get(producer, 0)
        sequences[producer] = sequence + 1
        fields = {"producer_id": producer, "base_sequence": sequence, "transactional": True}
        at = append([(1, None, value, ())], **fields, **epoch)
        everything.append(value)
        opened.setdefault(producer, []).append((at, value))
        if number % 7 == 0:
            value = b"plain-%d" % number
            committed.append((append([(1, None, value, ())]), value))
            everything.append(value)
        if number % 5 == 4:
            end(producer, commit=number % 2 == 0)
    stable = min(at for values in opened.values() for at, _ in values)
    return [value for at, value in sorted(committed) if at < stable], everything
