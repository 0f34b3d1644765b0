"""JVM Kafka's log cleaner and ours: the same log and settings, the same that is left.

The input has what a cleaner has to decide about: keys written again, tombstones before, at and
after their time, all codecs, idempotent producers, transactions of both ends, records without a
key, times of both types. The second round begins with what the JVM's first left.
"""

import asyncio
import random
import re
import shutil
from dataclasses import replace

import jvm_node
import kafka_jvm
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from dump_tool import complaints, dump
from waiting import wait_until

from storage.cleaning.dirt import measure
from storage.cleaning.throttle import Throttle
from storage.cleaning.work import Limits, clean
from storage.config import LogConfig
from storage.log import Log
from wire.batch import build_batch, decode_records, iter_headers
from wire.control import encode_end_txn_marker
from world.memory import Media, memory_env
from world.real import RealClock, real_env

pytestmark = pytest.mark.interop

TOPIC = "compacted"
SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0001",
    "delete.retention.ms": "1000",
}
SMALL = LogConfig(
    segment_bytes=4_000,
    index_interval_bytes=500,
    cleanup_compact=True,
    cleanup_delete=False,
    delete_retention_ms=1_000,
)
CLEANER = {"log.cleaner.backoff.ms": 200, "log.cleaner.dedupe.buffer.size": 4 << 20}
PRODUCERS = (11, 12)
TRANSACTIONAL = 20
# All of a batch's header that a cleaner has no choice about.
FRAME = (
    "base_offset",
    "last_offset",
    "count",
    "leader_epoch",
    "attributes",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
)


class Writer:
    """Appends batches drawn from a seed to a log, with what a JVM broker keeps beside them."""

    def __init__(self, log, seed):
        self.log = log
        self.chance = random.Random(seed)
        self.now_ms = RealClock().wall_ms()
        self.aborted = []

    def records(self):
        chance = self.chance
        return [
            (
                self.now_ms - chance.randrange(1_000),
                b"key-%d" % chance.randrange(60) if chance.random() > 0.03 else None,
                chance.randbytes(chance.randrange(60)) if chance.random() > 0.2 else None,
                [("header", b"h")] if chance.random() < 0.1 else (),
            )
            for _ in range(chance.randrange(1, 7))
        ]

    def append(self, **fields):
        batch = build_batch(
            self.records(),
            codec=self.chance.randrange(5),
            timestamp_type=int(self.chance.random() < 0.1),
            **fields,
        )
        return self.log.append_as_leader([bytearray(batch)], 0).base_offset

    def append_as(self, producer, **fields):
        known = self.log.producers.get(producer)
        sequence = known.last_sequence + 1 if known else 0
        return self.append(producer_id=producer, producer_epoch=0, base_sequence=sequence, **fields)

    def transaction(self, commit):
        for _ in range(self.chance.randrange(1, 4)):
            self.append_as(TRANSACTIONAL, transactional=True)
            if self.chance.random() < 0.5:
                self.append()
        key, value = encode_end_txn_marker(commit, 0)
        marker = build_batch(
            [(self.now_ms, key, value, ())],
            producer_id=TRANSACTIONAL,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
        self.log.append_as_leader([bytearray(marker)], 0)

    def fill(self, batches):
        for _ in range(batches):
            kind = self.chance.random()
            if kind < 0.6:
                self.append()
            elif kind < 0.8:
                self.append_as(self.chance.choice(PRODUCERS))
            else:
                self.transaction(self.chance.random() < 0.5)


async def write(directory, seed, batches, cleaned_to=0):
    """Adds to a partition directory, so that all but the last batch may be cleaned; where that
    ends."""
    log = await Log.open(real_env(1), str(directory), SMALL, clean=True, cleaned_to=cleaned_to)
    writer = Writer(log, seed)
    writer.fill(batches)
    # Of one producer nothing but its last sequence will be left.
    writer.records = lambda: [(writer.now_ms, None, b"no key", ())]
    writer.append_as(13)
    del writer.records
    writer.fill(5)
    log.roll()
    end = log.end_offset
    writer.append()
    await log.close()
    return end


async def clean_ours(directory, cleaned_to=0):
    """One pass of our cleaner, with the topic's settings on the JVM."""
    env = real_env(1)
    log = await Log.open(env, str(directory), SMALL, clean=True, cleaned_to=cleaned_to)
    log.config = replace(SMALL, segment_bytes=1 << 30, min_cleanable_dirty_ratio=0.0001)
    dirt = measure(log, log.end_offset, env.clock.wall_ms())
    assert dirt.is_due(log.config)
    done = await clean(log, dirt, Limits(4 << 20, 0.9, Throttle(1e300)))
    await log.close()
    return done


def left_in(directory):
    """Header and records of every batch of the stopped log in a directory."""
    found = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for position, header in iter_headers(data):
            frame = {name: getattr(header, name) for name in FRAME}
            found.append((frame, decode_records(data, position, header)))
    return found


def aborted_in(directory):
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.txnindex")))


def cleaned_offset(data):
    """What the JVM's cleaner-offset-checkpoint says of our topic; 0 for nothing."""
    path = data / "cleaner-offset-checkpoint"
    text = path.read_text() if path.exists() else ""
    found = re.search(rf"^{TOPIC} 0 (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


class Jvm:
    """A JVM node whose partition directory is exchanged while it is stopped."""

    def __init__(self, directory, version=kafka_jvm.DEFAULT_VERSION, topics=(TOPIC,)):
        self.version = version
        self.config = jvm_node.write_properties(
            directory / "server.properties", jvm_node.combined_properties(directory, **CLEANER)
        )
        jvm_node.format_directory(self.config, "kraftkraftkraftkraftkr", version)
        self.data = directory / "data"
        self.partition = self.data / f"{TOPIC}-0"
        with self.running() as node:
            admin = AdminClient({"bootstrap.servers": node.bootstrap})
            made = admin.create_topics([NewTopic(name, 1, 1, config=SETTINGS) for name in topics])
            for one in made.values():
                one.result(120)

    def running(self):
        return jvm_node.jvm_node(self.config, version=self.version)

    def put(self, directory, topic=TOPIC):
        """What is in `directory` is the topic's partition from now on."""
        partition = self.data / f"{topic}-0"
        for path in partition.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in directory.iterdir():
            if path.name != "partition.metadata":
                shutil.copyfile(path, partition / path.name)

    def clean(self, upto):
        """Runs until its cleaner has got there."""
        with self.running() as node:
            wait_until(
                lambda: cleaned_offset(self.data) >= upto,
                f"JVM Kafka has cleaned up to {upto}",
                60,
                0.1,
            )
            # It warns of records without a key.
            assert [c for c in node.complaints() if "invalid messages during" not in c] == []
        assert cleaned_offset(self.data) == upto


def read_with_a_client(bootstrap, end, topic=TOPIC):
    """All that a consumer is given, of committed transactions only."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    try:
        while not found or found[-1][0] < end:
            message = consumer.poll(20)
            assert message is not None, "the consumer is given no more"
            assert message.error() is None, message.error()
            found.append((message.offset(), message.timestamp()[1], message.key(), message.value()))
    finally:
        consumer.close()
    return found


@pytest.mark.ci
@pytest.mark.parametrize("version", [kafka_jvm.DEFAULT_VERSION, kafka_jvm.NEWEST_VERSION])
def test_both_cleaners_leave_the_same(version, tmp_path):
    jvm = Jvm(tmp_path / "jvm", version)
    ours = tmp_path / "ours"
    cleaned_to = 0
    for number in range(2):
        end = asyncio.run(write(ours, 40 + number, 250, cleaned_to))
        jvm.put(ours)
        before = left_in(ours)
        # Tombstones that the first round gave a time are past it by now.
        done = asyncio.run(clean_ours(ours, cleaned_to))
        assert done.cleaned_to == end
        jvm.clean(end)
        left = left_in(ours)
        assert left == left_in(jvm.partition)
        assert len(left) < len(before)
        assert aborted_in(ours) == aborted_in(jvm.partition)
        kinds = {frame["attributes"] for frame, _ in left}
        assert any(kind & 0x40 for kind in kinds), "no tombstones"
        assert any(kind & 0x20 for kind in kinds), "no markers"
        assert any(frame["count"] == 0 for frame, _ in left), "no header alone"
        old = [r for f, records in left for r in records if r.offset < cleaned_to]
        assert not any(r.value is None for r in old), "the first round's tombstones are over"
        cleaned_to = end
        # Goes on with what the other made.
        shutil.rmtree(ours)
        shutil.copytree(jvm.partition, ours)


@pytest.mark.ci
def test_a_jvm_broker_serves_what_our_cleaner_left(tmp_path):
    jvm = Jvm(tmp_path / "jvm")
    ours = tmp_path / "ours"
    end = asyncio.run(write(ours, 7, 300))
    asyncio.run(clean_ours(ours))
    logs = sorted(ours.glob("*.log"))
    text = dump("4.1.1", [*logs, *ours.glob("*.*index"), *ours.glob("*.snapshot")])
    assert complaints(text) == []
    expected = data_in(ours)
    jvm.put(ours)
    (jvm.data / "cleaner-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 {end}\n")
    with jvm.running() as node:
        assert read_with_a_client(node.bootstrap, expected[-1][0]) == expected
        assert node.complaints() == []
    # It had nothing to do, and its recovery finds nothing to mend after a stop without a word.
    assert cleaned_offset(jvm.data) == end
    (jvm.data / ".kafka_cleanshutdown").unlink()
    (jvm.data / "recovery-point-offset-checkpoint").unlink()
    with jvm.running() as node:
        assert read_with_a_client(node.bootstrap, expected[-1][0]) == expected


class Cut(BaseException):
    """The process ends here."""


def data_in(directory):
    """What a consumer should be given of a log without open transactions and aborted data."""
    return [
        (record.offset, record.timestamp, record.key, record.value)
        for frame, records in left_in(directory)
        if not frame["attributes"] & 0x20
        for record in records
    ]


async def cut_off(source, target, moment):
    """Our cleaner's work on a copy of `source`, ended before a rename of a log file that has been
    counted to `moment` by what it is renamed to; what is on the disk then is in `target`."""
    media = Media()
    disk = media.mount()
    disk.make_dirs("/p")
    for path in source.iterdir():
        disk.open(f"/p/{path.name}", create=True).append([path.read_bytes()])
    left = moment[1]

    def watch(operation, path, position, data):
        nonlocal left
        if operation == "rename" and data.decode().endswith(f".log{moment[0]}"):
            left -= 1
            if left < 0:
                raise Cut

    env = memory_env(1, disk)
    log = await Log.open(env, "/p", SMALL, clean=True)
    log.config = replace(SMALL, segment_bytes=20_000)
    dirt = measure(log, log.end_offset, env.clock.wall_ms())
    await log.flush()
    media.before_change = watch
    with pytest.raises(Cut):
        await clean(log, dirt, Limits(4 << 20, 0.9, Throttle(1e300)))
    media.kill()
    target.mkdir()
    disk = media.mount()
    for name in disk.list_dir("/p"):
        (target / name).write_bytes(disk.read_bytes(f"/p/{name}"))


# Before a new log is complete, with the old ones half gone, before it has their place; the first
# and the third time.
MOMENTS = [(kind, number) for number in (0, 2) for kind in (".swap", ".deleted", "")]


@pytest.mark.ci
def test_a_jvm_broker_finishes_or_undoes_what_our_cleaner_was_at(tmp_path):
    topics = [f"cut-{number}" for number in range(len(MOMENTS))]
    jvm = Jvm(tmp_path / "jvm", topics=topics)
    whole = tmp_path / "whole"
    asyncio.run(write(whole, 9, 300))
    before = data_in(whole)
    asyncio.run(clean_ours(shutil.copytree(whole, tmp_path / "cleaned")))
    after = data_in(tmp_path / "cleaned")
    left_behind = set()
    for topic, moment in zip(topics, MOMENTS, strict=True):
        asyncio.run(cut_off(whole, tmp_path / topic, moment))
        jvm.put(tmp_path / topic, topic)
        left_behind |= {"".join(path.suffixes[-2:]) for path in (tmp_path / topic).iterdir()}
    assert {".log.cleaned", ".log.swap", ".log.deleted"} <= left_behind
    with jvm.running() as node:
        for topic in topics:
            found = read_with_a_client(node.bootstrap, before[-1][0], topic)
            assert set(after) <= set(found) <= set(before), topic
