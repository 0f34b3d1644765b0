"""Quorums of JVM controllers and ours, whole processes: either kind leads, follows, takes over,
gives the other a snapshot, and serves brokers of both kinds. All directories hold the same log."""

import asyncio
import contextlib
import itertools
import shutil
import socket
import subprocess
import sys

import jvm_node
import kafka_jvm
import pytest
import traffic
from api_versions import finalized_features
from waiting import wait_until

from admin.client import AdminClient
from metadata.features import DEFAULT_METADATA_VERSION
from metadata.image import BROKER_RESOURCE, METADATA_VERSION
from pykraft.node_files import new_cluster_id
from pykraft.ports import free_ports
from pykraft.storage_format import format_directories
from wire.apis import ApiKey, ErrorCode
from wire.batch import iter_headers
from wire.errors import KafkaError
from wire.messages import (
    RequestHeader,
    decode_response,
    encode_request,
    fill,
    request_class,
    request_module,
)
from world.real import real_env

pytestmark = [pytest.mark.interop, pytest.mark.ci]

VERSIONS = ["4.1.1", kafka_jvm.NEWEST_VERSION]
OURS, JVM = "ours", "jvm"
JVM_BROKER, OUR_BROKER = 11, 12
LOG = "__cluster_metadata-0"
TIMES = {
    "controller.quorum.election.timeout.ms": 500,
    "controller.quorum.fetch.timeout.ms": 1000,
    "controller.quorum.election.backoff.max.ms": 200,
    "broker.heartbeat.interval.ms": 200,
}
# A snapshot every few changes, of which only the newest stays, and the log behind it.
SMALL = {
    "metadata.log.max.record.bytes.between.snapshots": 3000,
    "metadata.max.retention.bytes": 1000,
}
RECORDS = 300


class Process:
    """One node of either kind."""

    def __init__(self, quorum, node_id, kind, address, **settings):
        self.quorum, self.id, self.kind = quorum, node_id, kind
        self.address = address
        self.directory = quorum.path / str(node_id)
        self.is_controller = node_id in quorum.voters
        listener = "CONTROLLER" if self.is_controller else "PLAINTEXT"
        self.admin = f"127.0.0.1:{free_ports(1)[0]}" if self.is_controller else None
        values = {
            "process.roles": "controller" if self.is_controller else "broker",
            "node.id": node_id,
            "controller.quorum.voters": ",".join(f"{i}@{a}" for i, a in quorum.voters.items()),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listeners": f"{listener}://{address}",
            "log.dirs": self.directory / "data",
            **TIMES,
            **settings,
        }
        if kind == OURS and self.admin:
            values["pykraft.admin.listener"] = self.admin
        self.config = jvm_node.write_properties(self.directory / "server.properties", values)
        self.format()
        self.process = None

    def format(self):
        levels = {METADATA_VERSION: DEFAULT_METADATA_VERSION}
        cluster_id, data = self.quorum.cluster_id, str(self.directory / "data")
        asyncio.run(
            format_directories(
                real_env(), [data], node_id=self.id, cluster_id=cluster_id, levels=levels
            )
        )

    def start(self):
        if self.kind == JVM:
            command = [kafka_jvm.java(), *jvm_node.JVM_OPTIONS]
            command += ["-cp", kafka_jvm.classpath(self.quorum.version), "kafka.Kafka"]
        else:
            command = [sys.executable, "-m", "pykraft", "server"]
        with (self.directory / "out.log").open("ab") as output:
            self.process = subprocess.Popen(
                [*command, str(self.config)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait(120)
            self.process = None

    def wipe(self):
        """A new, empty disk."""
        shutil.rmtree(self.directory / "data")
        self.format()

    @property
    def log_start(self):
        """Where its first segment begins, None while there is none."""
        names = sorted(path.stem for path in (self.directory / "data" / LOG).glob("*.log"))
        return int(names[0]) if names else None

    def snapshots(self):
        """Every snapshot file, those about to be deleted too: bytes by end offset."""
        files = (self.directory / "data" / LOG).glob("*.checkpoint*")
        return {
            int(path.name.split("-")[0]): path.read_bytes()
            for path in files
            if path.name.endswith((".checkpoint", ".checkpoint.deleted"))
        }

    def batches(self):
        """The bytes of every batch of its log, by base offset."""
        found = {}
        for path in sorted((self.directory / "data" / LOG).glob("*.log")):
            data = path.read_bytes()
            for position, header in iter_headers(data):
                found[header.base_offset] = data[position : position + header.length]
        return found

    def tail(self):
        text = (self.directory / "out.log").read_text(errors="replace")
        return f"--- node {self.id}, {self.kind}\n" + "\n".join(text.splitlines()[-15:])


class Quorum:
    """Three controllers, `kinds` of 1 to 3, and a broker of each kind; none started yet."""

    def __init__(self, path, version, kinds):
        kafka_jvm.classpath(version)
        self.path, self.version, self.cluster_id = path, version, new_cluster_id()
        places = [f"127.0.0.1:{port}" for port in free_ports(5)]
        self.voters = dict(zip((1, 2, 3), places, strict=False))
        self.nodes = {}
        for node_id, kind in zip(self.voters, kinds, strict=True):
            settings = SMALL if kind == OURS else {}
            self.nodes[node_id] = Process(self, node_id, kind, self.voters[node_id], **settings)
        for node_id, kind, place in zip((11, 12), (JVM, OURS), places[3:], strict=True):
            self.nodes[node_id] = Process(self, node_id, kind, place)
        self.changes = 0

    def __getitem__(self, node_id):
        return self.nodes[node_id]

    def ids(self, kind):
        return [node_id for node_id in self.voters if self.nodes[node_id].kind == kind]

    def admin(self):
        """The door of our controllers that run."""
        doors = [self.nodes[i].admin for i in self.ids(OURS) if self.nodes[i].process is not None]
        return AdminClient(doors, timeout_ms=30_000)

    def running(self):
        return [i for i in self.voters if self.nodes[i].process is not None]

    def leader(self, *, unlike=None):
        """The leader's id, once there is one and all voters that run have its log."""

        def settled():
            for node_id in self.running():
                told = describe_quorum(self.voters[node_id])
                ends = {one.replica_id: one.log_end_offset for one in told.current_voters}
                if told.error_code is ErrorCode.none and told.leader_id == node_id != unlike:
                    behind = [i for i in self.running() if ends[i] < told.high_watermark]
                    return None if behind else node_id
            return None

        return wait_until(settled, "a leader that is followed", 40, 0.1, errors=(OSError,))

    def change(self, count=1):
        """Changes that each are a record, committed."""
        with self.admin() as admin:
            for _ in range(count):
                self.changes += 1
                value = {"log.retention.ms": str(1_000_000_000 + self.changes)}
                admin.alter_config(BROKER_RESOURCE, "", set=value)

    def finalise(self, level):
        """Whoever leads sets metadata.version, up or down; every node that runs says so then."""

        def done():
            with self.admin() as admin:
                now = admin.describe_features()[METADATA_VERSION]["finalized"]
                if now != level:
                    admin.update_features({METADATA_VERSION: level}, downgrade=level < now)
            return True

        # A controller that was wiped may still have to register.
        wait_until(done, f"metadata.version {level} is set", 20, 0.1, errors=(KafkaError,))
        for node in self.nodes.values():
            if node.process is not None:
                wait_until(
                    lambda n=node: finalized_features(n.address)[0].get(METADATA_VERSION) == level,
                    f"node {node.id} finalises metadata.version {level}",
                    20,
                    errors=(OSError,),
                )

    def serves(self, broker_id):
        """Returns when the active controller has unfenced the broker."""

        def unfenced():
            with self.admin() as admin:
                brokers = {one["id"]: one for one in admin.describe_cluster()["brokers"]}
            return broker_id in brokers and not brokers[broker_id]["fenced"]

        wait_until(unfenced, f"broker {broker_id} serves", 40, 0.1, errors=(KafkaError,))

    def use_topic(self, name, partitions, *brokers):
        """A topic with replicas on these brokers takes records and gives them back."""
        replicas = {index: [*brokers[index:], *brokers[:index]] for index in range(partitions)}
        with self.admin() as admin:
            admin.create_topic(name, assignments=replicas)
        bootstrap = ",".join(self.nodes[i].address for i in brokers)
        traffic.wait_for_leaders(bootstrap, name, partitions)
        traffic.confluent_produce(bootstrap, name, RECORDS, partitions=partitions)
        traffic.confluent_read(bootstrap, name, traffic.Seen(RECORDS, partitions))

    def make_lead(self, wanted):
        """Has `wanted` elected: the only one of the others that is left lacks what it has."""
        leader = self.leader()
        if leader == wanted:
            return
        (behind,) = [i for i in self.voters if i not in (leader, wanted)]
        self.nodes[behind].kill()
        self.change(3)
        self.nodes[leader].kill()
        self.nodes[behind].start()
        assert self.leader() == wanted
        self.nodes[leader].start()
        assert self.leader() == wanted

    def assert_same_logs(self):
        """Two controllers that hold a batch hold the same bytes; the last ones are held by all."""

        def logs_that_overlap():
            self.change(5)
            self.leader()
            logs = [self.nodes[i].batches() for i in self.voters]
            return logs if len(logs[0].keys() & logs[1].keys() & logs[2].keys()) >= 5 else None

        logs = wait_until(logs_that_overlap, "batches that no snapshot has replaced")
        for one, other in itertools.combinations(logs, 2):
            common = one.keys() & other.keys()
            assert {base: one[base] for base in common} == {base: other[base] for base in common}


def describe_quorum(address):
    """What a controller answers to DescribeQuorum; only the leader knows."""
    key, version = ApiKey.DESCRIBE_QUORUM, 1
    module = request_module(key, version)
    part = fill(module.PartitionData, partition_index=0)
    topic = fill(module.TopicData, topic_name="__cluster_metadata", partitions=(part,))
    body = fill(request_class(key, version), topics=(topic,))
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 2) as connection:
        connection.sendall(encode_request(RequestHeader(key, version, 1, "test"), body))
        with connection.makefile("rb") as answer:
            frame = answer.read(int.from_bytes(answer.read(4), "big"))
    if not frame:
        raise ConnectionError("closed without an answer")
    return decode_response(key, version, frame)[1].topics[0].partitions[0]


@contextlib.contextmanager
def quorum_of(path, version, *kinds):
    quorum = Quorum(path, version, kinds)
    try:
        yield quorum
    except BaseException:
        for node in quorum.nodes.values():
            if (node.directory / "out.log").exists():
                print(node.tail())
        raise
    finally:
        for node in quorum.nodes.values():
            node.kill()


def assert_loaded(node, giver):
    """The node began with a snapshot of the giver's, and its log goes on from there."""
    wait_until(lambda: node.log_start, "a log that begins behind a snapshot", 40)
    start = node.log_start
    assert start in node.snapshots()
    assert node.snapshots()[start] == giver.snapshots()[start]


@pytest.mark.parametrize("version", VERSIONS)
def test_two_of_ours_and_a_jvm_one(version, tmp_path):
    with quorum_of(tmp_path, version, OURS, OURS, JVM) as quorum:
        quorum[1].start()
        quorum[2].start()
        first = quorum.leader()
        other = 3 - first
        quorum.change(100)
        # The JVM's empty log is behind our snapshot, then our empty log behind the JVM's.
        quorum[3].start()
        assert quorum.leader() == first
        assert_loaded(quorum[3], quorum[first])
        quorum[other].kill()
        quorum.change(3)
        quorum[first].kill()
        quorum[other].wipe()
        quorum[other].start()
        assert quorum.leader() == 3
        assert_loaded(quorum[other], quorum[3])
        quorum.change(3)
        # Our broker under a JVM's controller.
        quorum[OUR_BROKER].start()
        quorum.serves(OUR_BROKER)
        quorum.use_topic("under-jvm", 1, OUR_BROKER)
        quorum.finalise(26)
        quorum[first].start()
        assert quorum.leader() == 3
        # The JVM's broker under ours.
        quorum[3].kill()
        assert quorum.leader(unlike=3) in (1, 2)
        quorum[JVM_BROKER].start()
        quorum.serves(JVM_BROKER)
        quorum.use_topic("under-ours", 2, JVM_BROKER, OUR_BROKER)
        quorum[3].start()
        quorum.leader()
        quorum.finalise(25)
        quorum.finalise(27)
        quorum.assert_same_logs()


@pytest.mark.parametrize("version", VERSIONS)
def test_two_jvm_ones_and_one_of_ours(version, tmp_path):
    with quorum_of(tmp_path, version, JVM, JVM, OURS) as quorum:
        for node_id in quorum.voters:
            quorum[node_id].start()
        quorum.leader()
        quorum.change(3)
        quorum.make_lead(3)
        quorum.change(3)
        quorum[3].kill()
        assert quorum.leader(unlike=3) in (1, 2)
        quorum[3].start()
        assert quorum.leader(unlike=3) in (1, 2)
        quorum.change(3)
        quorum.leader()
        quorum.assert_same_logs()
