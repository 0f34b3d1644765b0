"""One node's directory under both: what pykraft leaves, JVM Kafka reads and serves, and back.

Kafka's dump tool is the judge of every file that a stopped pykraft node wrote.
"""

import asyncio
import re
import shutil

import jvm_node
import kafka_jvm
import pytest
import traffic
from clusters import pykraft_server, running_cluster
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from dump_tool import DUMP_TOOLS, complaints, dump
from waiting import wait_until

from pykraft.ports import free_ports
from storage.config import LogConfig
from storage.log_dir import LogDirectory
from world.real import real_env

pytestmark = pytest.mark.interop

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 3000
# Snapshots, and segments that are over soon, so that a small log has all kinds of files.
SMALL_FILES = {
    "metadata.log.max.record.bytes.between.snapshots": 3000,
    "log.roll.ms": 200,
    "log.index.interval.bytes": 500,
}


def create(bootstrap, *names, **configs):
    """Topics of three partitions with one replica, by librdkafka's admin client."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(
        [NewTopic(name, 3, 1, config=configs) for name in names]
    ).values():
        made.result(120)


def write_new(bootstrap, topic):
    """A new topic with `COUNT` records."""
    create(bootstrap, topic)
    traffic.wait_for_leaders(bootstrap, topic)
    traffic.confluent_produce(bootstrap, topic, COUNT)


def fill(bootstrap):
    """A topic of records for every codec, and others, a compacted and deleted ones among them."""
    for codec in CODECS:
        create(bootstrap, codec)
        traffic.wait_for_leaders(bootstrap, codec)
        produce(bootstrap, codec, 0)
    create(bootstrap, "compacted", **{"cleanup.policy": "compact"})
    create(bootstrap, *(f"more-{n}" for n in range(12)))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for gone in admin.delete_topics(["more-0", "more-1"]).values():
        gone.result(120)


def produce(bootstrap, codec, start, **more):
    """`COUNT` records in small batches, from number `start` on, to the topic named as the codec."""
    settings = {"batch.num.messages": 100, **more}
    traffic.confluent_produce(bootstrap, codec, COUNT, codec, start=start, **settings)


def check(bootstrap, count, *more):
    """Every topic that `fill` left has its first `count` records, `more` topics their COUNT."""
    for codec in CODECS:
        traffic.confluent_read(bootstrap, codec, traffic.Seen(count))
    for topic in more:
        traffic.confluent_read(bootstrap, topic, traffic.Seen(COUNT))
    names = set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).topics)
    assert {*CODECS, "compacted", *(f"more-{n}" for n in range(2, 12)), *more} <= names
    assert not {"more-0", "more-1"} & names


@pytest.fixture(scope="module")
def left_by_pykraft(tmp_path_factory):
    """The folder of a one-node pykraft that was filled, restarted, filled more, and stopped."""
    kafka_jvm.classpath()
    directory = tmp_path_factory.mktemp("ours")
    with running_cluster(directory, 0, 1, SMALL_FILES) as cluster:
        fill(cluster.bootstrap)
        cluster.stop(1)
        cluster.start(1)
        check(cluster.bootstrap, COUNT)
        for codec in CODECS:
            produce(cluster.bootstrap, codec, COUNT, **{"enable.idempotence": True})
        write_new(cluster.bootstrap, "after-restart")
        cluster.down()
    return directory / "nodes" / "1"


@pytest.mark.parametrize("version", DUMP_TOOLS)
def test_dump_tool_reads_the_metadata(left_by_pykraft, version):
    log = left_by_pykraft / "data" / "__cluster_metadata-0"
    segments, snapshots = sorted(log.glob("*.log")), sorted(log.glob("*.checkpoint"))
    assert segments
    assert snapshots
    # The tool knows a snapshot by a name without .log, and its records by the same option.
    text = dump(version, [*segments, *snapshots], "--cluster-metadata-decoder")
    assert complaints(text) == []
    for path in (*segments, *snapshots):
        assert f"Dumping {path}" in text
    for name in ("REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD"):
        assert name in text
    assert text.count("SnapshotHeader") == text.count("SnapshotFooter") == len(snapshots)
    indexes = [*log.glob("*.index"), *log.glob("*.timeindex")]
    if indexes:
        assert complaints(dump(version, indexes)) == []


@pytest.mark.ci
@pytest.mark.parametrize("version", DUMP_TOOLS)
def test_dump_tool_reads_the_partitions(left_by_pykraft, version):
    data = left_by_pykraft / "data"
    partitions = [path for path in sorted(data.iterdir()) if path.name[-2:] in ("-0", "-1", "-2")]
    logs = [path for one in partitions for path in sorted(one.glob("*.log"))]
    logs = [path for path in logs if "__cluster_metadata" not in str(path)]
    assert len(logs) > len(partitions), "no partition has several segments"
    text = dump(version, logs, "--deep-iteration", "--print-data-log")
    assert complaints(text) == []
    records = dict.fromkeys(CODECS, 0)
    for line in text.splitlines():
        match = re.search(r"compresscodec: (\w+)", line)
        if match and "baseOffset" in line:
            records[match[1]] += int(re.search(r"count: (\d+)", line)[1])
    total = 2 * COUNT
    assert sum(records.values()) == total * len(CODECS) + COUNT
    # A client sends a small batch as it is where compressing would make it larger.
    assert all(count > total * 0.9 for count in records.values())
    assert text.count("payload: record ") == total * len(CODECS) + COUNT


@pytest.mark.parametrize("version", DUMP_TOOLS)
def test_dump_tool_reads_indexes_and_producer_snapshots(left_by_pykraft, version):
    data = left_by_pykraft / "data"
    files = [
        path
        for suffix in ("index", "timeindex", "snapshot")
        for path in sorted(data.glob(f"*-[0-9]/*.{suffix}"))
        if "__cluster_metadata" not in str(path)
    ]
    assert {path.suffix for path in files} == {".index", ".timeindex", ".snapshot"}
    # Files are held against the .log beside them.
    text = dump(version, files)
    assert complaints(text) == []
    assert text.count("producerId:") >= len(CODECS)
    assert len(re.findall(r"^offset: \d+ position: \d+", text, re.MULTILINE)) > len(CODECS)
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", text, re.MULTILINE)) > len(CODECS)


def moved(source, target):
    """A copy of a node's folder whose properties name its own data directory."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    values = jvm_node.read_properties(target / "server.properties")
    values["log.dirs"] = target / "data"
    values["offsets.topic.num.partitions"] = 1
    return jvm_node.write_properties(target / "server.properties", values)


NODE_VERSIONS = [kafka_jvm.DEFAULT_VERSION, kafka_jvm.NEWEST_VERSION]


@pytest.mark.ci
@pytest.mark.parametrize("version", NODE_VERSIONS)
def test_jvm_node_on_a_directory_of_pykraft(left_by_pykraft, tmp_path, version):
    config = moved(left_by_pykraft, tmp_path)
    with jvm_node.jvm_node(config, version=version) as node:
        check(node.bootstrap, 2 * COUNT, "after-restart")
        for codec in CODECS:
            produce(node.bootstrap, codec, 2 * COUNT)
        write_new(node.bootstrap, "by-the-jvm")
        check(node.bootstrap, 3 * COUNT, "after-restart", "by-the-jvm")
    assert node.complaints() == []
    if version == kafka_jvm.DEFAULT_VERSION:
        # And back: what the JVM node added is read and continued.
        with pykraft_server(config):
            check(node.bootstrap, 3 * COUNT, "after-restart", "by-the-jvm")
            produce(node.bootstrap, "none", 3 * COUNT)
            traffic.confluent_read(node.bootstrap, "none", traffic.Seen(4 * COUNT))


@pytest.mark.ci
@pytest.mark.parametrize("version", NODE_VERSIONS)
def test_pykraft_on_a_directory_of_a_jvm_node(tmp_path, version):
    small = {**SMALL_FILES, "offsets.topic.num.partitions": 1}
    values = {**jvm_node.combined_properties(tmp_path), **small}
    config = jvm_node.write_properties(tmp_path / "server.properties", values)
    jvm_node.format_directory(config, "AAAAAAAAQACAAAAAAAAAAQ", version)
    with jvm_node.jvm_node(config, version=version) as node:
        fill(node.bootstrap)
    metadata = tmp_path / "data" / "__cluster_metadata-0"
    # Its first one, of the format, may be deleted by then.
    made = [path.name for path in metadata.glob("*.checkpoint") if int(path.name.split("-")[0]) > 0]
    assert made, "the JVM node made no snapshot"
    admin, metrics = free_ports(2)
    values["pykraft.admin.listener"] = f"127.0.0.1:{admin}"
    values["pykraft.metrics.listener"] = f"127.0.0.1:{metrics}"
    jvm_node.write_properties(config, values)
    for count in (COUNT, 2 * COUNT):
        with pykraft_server(config):
            check(node.bootstrap, count)
            for codec in CODECS:
                produce(node.bootstrap, codec, count)
            write_new(node.bootstrap, f"by-pykraft-{count}")
            check(node.bootstrap, count + COUNT, f"by-pykraft-{count}")
    with jvm_node.jvm_node(config, version=version) as node:
        check(node.bootstrap, 3 * COUNT, f"by-pykraft-{COUNT}", f"by-pykraft-{2 * COUNT}")
    assert node.complaints() == []


@pytest.mark.ci
def test_what_a_jvm_broker_has_deleted_is_not_missing(tmp_path):
    """Where a log begins when its first segments have gone, by whatever its files say of that: up
    to a segment, and within one."""
    version = kafka_jvm.NEWEST_VERSION
    # The broker's first look at what is to go is after half a minute.
    values = jvm_node.combined_properties(
        tmp_path, log_retention_check_interval_ms=200, log_segment_delete_delay_ms=0
    )
    config = jvm_node.write_properties(tmp_path / "server.properties", values)
    jvm_node.format_directory(config, "AAAAAAAAAAAAAAAAAAAAAA", version)

    def bases(index):
        logs = (tmp_path / "data" / f"t-{index}").glob("*.log")
        return sorted(int(path.stem) for path in logs)

    with jvm_node.jvm_node(config, version=version) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        new = NewTopic("t", 2, 1, config={"segment.bytes": "1048576"})
        admin.create_topics([new])["t"].result(120)
        traffic.wait_for_leaders(node.bootstrap, "t", 2)
        producer = Producer({"bootstrap.servers": node.bootstrap, "batch.num.messages": 10})
        for number in range(8000):
            producer.produce("t", bytes(1000), partition=number % 2)
        assert producer.flush(60) == 0
        left = [bases(index)[2:] for index in (0, 1)]
        starts = [left[0][0], left[1][0] + 3]
        asked = [TopicPartition("t", index, start) for index, start in enumerate(starts)]
        for deleted in admin.delete_records(asked).values():
            deleted.result(120)
        wait_until(lambda: [bases(0), bases(1)] == left, "the segments are gone")
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()

    async def look():
        found = await LogDirectory.open(real_env(1), str(tmp_path / "data"))
        try:
            logs = [await found.open_log("t", index, LogConfig()) for index in (0, 1)]
            return [(log.recovery.all_damage, log.log_start_offset) for log in logs]
        finally:
            await found.close(clean=False)

    assert asyncio.run(look()) == [([], start) for start in starts]
