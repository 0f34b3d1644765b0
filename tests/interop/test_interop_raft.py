"""JVM Kafka as a member of our quorum, and its dump tool on our quorum's files."""

import asyncio
import contextlib
import re
import subprocess
from pathlib import Path
from uuid import UUID

import jvm_node
import kafka_jvm
import pytest
from raft_rig import Cluster, eventually

from metadata.records import FeatureLevelRecord, TopicRecord, encode
from raft.snapshots import file_name

pytestmark = pytest.mark.interop

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
TIMES = {
    "election_timeout_ms": 1000,
    "fetch_timeout_ms": 2000,
    "election_backoff_max_ms": 1000,
    "request_timeout_ms": 2000,
    "fetch_max_wait_ms": 500,
}
FEATURE = encode(FeatureLevelRecord(name="metadata.version", feature_level=25))
SEGMENT = "__cluster_metadata-0/00000000000000000000.log"
COMPLAINTS = re.compile(r"(?i)mismatch|out of order|not sound|corrupt|invalid|error|exception")


def topic(number):
    return encode(TopicRecord(name=f"topic-{number}", topic_id=UUID(int=(1 << 70) + number)))


class JvmController:
    """Voter 3, a JVM process."""

    def __init__(self, cluster, path, version):
        self.directory = path / "jvm"
        self.log = path / "jvm.log"
        self.version = version
        voters = ",".join(f"{i}@127.0.0.1:{port}" for i, (_, port) in cluster.voters.items())
        self.config = jvm_node.write_properties(
            path / "controller.properties",
            {
                "process.roles": "controller",
                "node.id": 3,
                "listeners": f"CONTROLLER://127.0.0.1:{cluster.voters[3][1]}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
                "controller.quorum.voters": voters,
                "log.dirs": self.directory,
            },
        )
        jvm_node.format_directory(self.config, CLUSTER_ID, version)
        self.process = None

    def start(self):
        command = [kafka_jvm.java(), *jvm_node.JVM_OPTIONS]
        command += ["-cp", kafka_jvm.classpath(self.version), "kafka.Kafka", str(self.config)]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait(120)

    @property
    def segment(self):
        path = self.directory / SEGMENT
        return path.read_bytes() if path.exists() else b""

    def files(self, suffix):
        return sorted(path.name for path in (self.directory / SEGMENT).parent.glob(f"*{suffix}"))


def segment(member):
    return (Path(member.directory) / SEGMENT).read_bytes()


@contextlib.asynccontextmanager
async def mixed_quorum(path, version, **settings):
    cluster = Cluster(path, foreign=(3,), cluster_id=CLUSTER_ID, **TIMES, **settings)
    jvm = JvmController(cluster, path, version)
    try:
        yield cluster, jvm
    finally:
        jvm.kill()
        await cluster.stop()


async def other_leader(cluster, lost_id):
    """The id of the next leader, as the members that are up know it."""

    def known():
        return {member.node.leader().leader_id for member in cluster.up} - {None, lost_id}

    await eventually(known, timeout_s=20)
    return max(known())


@pytest.mark.ci
@pytest.mark.parametrize("version", ["4.1.1", "4.3.1"])
def test_a_jvm_voter_follows_us_leads_us_and_is_replaced_by_us(version, tmp_path):
    async def main():
        async with mixed_quorum(tmp_path, version) as (cluster, jvm):
            jvm.start()
            await cluster.start()
            first = await cluster.leader()
            await cluster.append(FEATURE)
            for number in range(10):
                await cluster.append(topic(number))
            await eventually(lambda: jvm.segment == segment(first), timeout_s=40)
            progress = first.node.core.state.role.voters
            await eventually(lambda: progress[3].end_offset == first.node.end_offset)
            # Without our leader the JVM decides: it refuses pre-votes until its own fetch timeout.
            # Whoever leads then: leaders of ours are killed until the JVM is one.
            leader_id = first.node_id
            for number in range(10):
                killed = cluster[leader_id]
                await killed.kill()
                leader_id = await other_leader(cluster, killed.node_id)
                await killed.start()
                if leader_id == 3:
                    break
                await cluster.append(topic(100 + number))
                await asyncio.sleep(1)
            assert leader_id == 3
            await eventually(
                lambda: all(segment(member) == jvm.segment for member in cluster.up),
                timeout_s=20,
            )
            jvm.kill()
            await cluster.leader(timeout_s=20)
            await cluster.append(topic(50))
            await cluster.caught_up()
            jvm.start()
            leading = await cluster.leader()
            await eventually(lambda: jvm.segment == segment(leading), timeout_s=40)
            assert not any(member.fatal for member in cluster.up)

    asyncio.run(main())


@pytest.mark.ci
def test_a_jvm_voter_loads_our_snapshot(tmp_path):
    async def main():
        settings = {"retention_bytes": 1}
        async with mixed_quorum(tmp_path, "4.1.1", **settings) as (cluster, jvm):
            await cluster.start()
            leader = await cluster.leader()
            await cluster.append(FEATURE)
            for number in range(100):
                await cluster.append(topic(number))
                if number % 40 == 39:
                    await leader.node.write_snapshot(
                        leader.node.applied_offset, leader.node.leader().epoch, 1_700_000_000_000,
                        [list(leader.recorder.state)],
                    )  # fmt: skip
            snapshot = leader.node.latest_snapshot_id
            assert leader.node.status()["log_start_offset"] == snapshot.offset
            jvm.start()
            await eventually(lambda: file_name(snapshot) in jvm.files(".checkpoint"), timeout_s=40)
            ours = Path(leader.directory) / "__cluster_metadata-0" / file_name(snapshot)
            theirs = (jvm.directory / SEGMENT).parent / file_name(snapshot)
            assert theirs.read_bytes() == ours.read_bytes()
            await cluster.append(topic(200))
            await eventually(
                lambda: leader.node.core.state.role.voters[3].end_offset == leader.node.end_offset,
                timeout_s=20,
            )

    asyncio.run(main())


@pytest.mark.parametrize(
    ("version", "tool"),
    [("4.1.1", "kafka.tools.DumpLogSegments"), ("4.3.1", "org.apache.kafka.tools.DumpLogSegments")],
)
def test_the_dump_tool_has_no_complaint(version, tool, tmp_path):
    async def main():
        cluster = Cluster(tmp_path, voters=1, segment_bytes=4_000)
        await cluster.start()
        await cluster.append(FEATURE)
        for number in range(60):
            await cluster.append(topic(number), topic(1000 + number))
        node = cluster[1].node
        await node.write_snapshot(
            node.applied_offset, node.leader().epoch, 1_700_000_000_000, [cluster[1].recorder.state]
        )
        end = node.end_offset
        await cluster.stop()
        return end

    end = asyncio.run(main())
    directory = tmp_path / "node-1" / "__cluster_metadata-0"
    logs = sorted(directory.glob("*.log"))
    assert len(logs) > 2
    path = kafka_jvm.classpath(version)
    files = ",".join(map(str, logs))
    told = kafka_jvm.run_java(tool, ["--cluster-metadata-decoder", "--files", files], path)
    assert not COMPLAINTS.search(told.replace("isvalid: true", "")), told[-3000:]
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", told, re.MULTILINE)]
    assert sorted(offsets) == list(range(end))
    assert told.count("LeaderChange") == 1
    assert "topic-59" in told
    (snapshot,) = directory.glob("*.checkpoint")
    told = kafka_jvm.run_java(tool, ["--cluster-metadata-decoder", "--files", str(snapshot)], path)
    assert not COMPLAINTS.search(told.replace("isvalid: true", "")), told[-3000:]
    assert "SnapshotHeader" in told
    assert "SnapshotFooter" in told
    assert told.count("TOPIC_RECORD") == 120
