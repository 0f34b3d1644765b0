"""Real nodes that are told to stop while they load a large snapshot, or recover large logs."""

import asyncio
import json
import shutil
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from uuid import UUID

import pytest
from clusters import pykraft_server
from confluent_kafka import Consumer, TopicPartition
from waiting import wait_until

from admin.client import AdminClient
from metadata.records import FeatureLevelRecord, PartitionRecord, TopicRecord, encode
from pykraft.node_files import new_cluster_id
from pykraft.ports import free_ports
from pykraft.storage_format import format_directories
from raft import snapshot_writer
from raft.snapshots import SnapshotStore
from raft.voters import OffsetAndEpoch
from wire.batch import build_batch, patch_offsets
from world.real import real_env

pytestmark = pytest.mark.cluster

TOPICS, PER_TOPIC = 3_000, 50
BATCHES = 100_000


class Node:
    """One node alone in its cluster; `config` is its formatted properties file."""

    def __init__(self, directory, roles):
        broker, controller, admin, self.metrics = free_ports(4)
        self.bootstrap, self.admin = f"127.0.0.1:{broker}", f"127.0.0.1:{admin}"
        self.data = directory / "data"
        self.config = directory / "node.properties"
        listeners = [f"CONTROLLER://127.0.0.1:{controller}"]
        if "broker" in roles:
            listeners.append(f"PLAINTEXT://{self.bootstrap}")
        values = {
            "process.roles": roles,
            "node.id": 1,
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": self.data,
            "broker.session.timeout.ms": 3000,
            "pykraft.metrics.listener": f"127.0.0.1:{self.metrics}",
            "pykraft.admin.listener": self.admin,
        }
        self.config.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        levels = {"metadata.version": 25}
        asyncio.run(
            format_directories(
                real_env(),
                [str(self.data)],
                node_id=1,
                cluster_id=new_cluster_id(),
                levels=levels,
            )
        )
        self.log = self.config.with_suffix(".log")

    def events(self):
        lines = self.log.read_text().splitlines()
        return [json.loads(line)["event"] for line in lines if line.startswith("{")]

    def state(self):
        """What its broker is doing, from the answer to /readyz."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/readyz") as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refusal:
            return json.load(refusal)
        except OSError:
            return {}

    @contextmanager
    def starting(self):
        """Its process, which may not be ready yet."""
        with self.log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pykraft", "server", str(self.config)],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(120)

    def stop(self, process):
        """SIGTERM; it has to end in order, and soon."""
        begun = time.monotonic()
        process.terminate()
        assert process.wait(120) == 0, self.log.read_text()[-4000:]
        assert time.monotonic() - begun < 4, "mostly far below 1 s, on a busy machine too"


def write_snapshot(node):
    """A snapshot that takes some seconds to load, as its metadata log's only content."""

    def slices():
        yield [encode(FeatureLevelRecord(name="metadata.version", feature_level=25))]
        for number in range(TOPICS):
            topic_id = UUID(int=(number + 1) << 64)
            topic = TopicRecord(name=f"t{number}", topic_id=topic_id)
            partitions = [
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=(7, 8, 9),
                    isr=(7,),
                    leader=-1,
                    leader_epoch=3,
                    partition_epoch=4,
                )
                for index in range(PER_TOPIC)
            ]
            yield [encode(record) for record in (topic, *partitions)]

    env = real_env()
    directory = node.data / "__cluster_metadata-0"
    directory.mkdir(exist_ok=True)
    snapshot = OffsetAndEpoch(1 + TOPICS * (1 + PER_TOPIC), 1)
    store = SnapshotStore(env, str(directory))
    asyncio.run(snapshot_writer.write(env, store, snapshot, 1_000, slices()))
    return directory / store.path(snapshot)


@pytest.mark.ci
def test_a_controller_that_loads_a_large_snapshot(tmp_path):
    node = Node(tmp_path, "controller")
    snapshot = write_snapshot(node)
    whole = snapshot.read_bytes()
    with node.starting() as process:
        wait_until(lambda: "raft_started" in node.events(), "it loads", 30, 0.01)
        node.stop(process)
    assert "start_given_up" in node.events()
    assert "ready" not in node.events()
    assert snapshot.read_bytes() == whole
    with pykraft_server(node.config), AdminClient([node.admin]) as admin:
        for number in (0, TOPICS - 1):
            found = admin.describe_topics([f"t{number}"], linearizable=True)[f"t{number}"]
            assert len(found["partitions"]) == PER_TOPIC


def grow(log):
    """Gives a partition many small batches, which nobody has recovered yet."""
    one = bytearray(build_batch([(1_000, None, b"x", ())], base_offset=0, leader_epoch=0))
    whole = bytearray()
    for offset in range(BATCHES):
        patch_offsets(one, 0, offset, 0)
        whole += one
    log.write_bytes(whole)


@pytest.mark.ci
def test_a_broker_that_recovers_large_logs(tmp_path):
    node = Node(tmp_path, "broker,controller")
    with pykraft_server(node.config), AdminClient([node.admin]) as admin:
        admin.create_topic("t", partitions=16, replication_factor=1)
        wait_until(lambda: len(list(node.data.glob("t-*"))) == 16, "all are made", 20)
    logs = sorted(node.data.glob("t-*/*.log"))
    grow(logs[0])
    for log in logs[1:]:
        shutil.copy(logs[0], log)
    marker = node.data / ".kafka_cleanshutdown"
    marker.unlink()
    (node.data / "recovery-point-offset-checkpoint").unlink()
    with node.starting() as process:
        wait_until(
            lambda: node.state().get("reason") == "the broker is in state recovery",
            "it recovers",
            30,
            0.02,
        )
        node.stop(process)
    assert "ready" not in node.events()
    assert not marker.exists(), "logs that nobody has read must not be trusted"
    with pykraft_server(node.config):
        consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "unused"})
        for index in range(16):
            marks = consumer.get_watermark_offsets(TopicPartition("t", index), timeout=60)
            assert marks == (0, BATCHES)
        consumer.close()
    assert marker.exists()
