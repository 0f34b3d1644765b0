"""Real nodes whose files are ruined, and whose disks are full.

The tests of this file share one cluster and leave it whole.
"""

import asyncio
import os
import shutil

import psutil
import pytest
from clusters import pykraft_server, running_cluster
from confluent_kafka import Producer
from waiting import wait_until

from admin.client import AdminClient
from pykraft.node_files import new_cluster_id
from pykraft.ports import free_ports
from pykraft.storage_format import format_directories
from wire.exits import EXIT_METADATA_DISK_FAILED
from world.real import real_env

pytestmark = pytest.mark.cluster

RUINS = ("flip", "empty", "half") if os.environ.get("CI") == "true" else ("half",)
UNLIMITED = (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY)
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "log.retention.check.interval.ms": "500",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with running_cluster(tmp_path_factory.mktemp("disks"), 3, 1, SETTINGS) as cluster:
        yield cluster


def metadata(cluster, id_):
    return cluster.data(id_) / "__cluster_metadata-0"


def snapshots(cluster, id_):
    return sorted(metadata(cluster, id_).glob("*.checkpoint"))


def topics_of(cluster, broker):
    """The topics that a broker knows of."""
    producer = Producer({"bootstrap.servers": cluster.node(broker).kafka, "log_level": 0})
    return set(producer.list_topics(timeout=60).topics)


def events(cluster, id_):
    return [entry["event"] for entry in cluster.log_entries(id_)]


def create(cluster, *names):
    with cluster.admin() as admin:
        for name in names:
            admin.create_topic(name, 3, 1)


def follower(cluster):
    active = cluster.active_controller()
    return next(id_ for id_ in cluster.ids("controller") if id_ != active)


@pytest.mark.ci
def test_a_snapshot_that_was_fetched_and_then_ruined_is_fetched_again(cluster):
    create(cluster, *(f"before-{n}" for n in range(12)))
    for id_ in (follower(cluster), cluster.ids("broker")[0]):
        wait_until(
            lambda id_=id_: snapshots(cluster, cluster.active_controller()), "a snapshot", 20
        )
        # Without its log, it begins at a snapshot that it has to fetch. (For a voter of a static
        # quorum this is for others to survive, not to be done at home.)
        cluster.kill(id_)
        shutil.rmtree(metadata(cluster, id_))
        cluster.start(id_)
        wait_until(lambda id_=id_: snapshots(cluster, id_), f"node {id_} has a snapshot", 20)
        for number, ruin in enumerate(RUINS):
            cluster.stop(id_)
            for path in snapshots(cluster, id_):
                data = bytearray(path.read_bytes())
                data[len(data) // 2] ^= 1
                kept = {"flip": data, "empty": b"", "half": data[: len(data) // 2]}[ruin]
                path.write_bytes(kept)
            cluster.start(id_)
            create(cluster, f"after-{id_}-{number}")
            wait_until(
                lambda id_=id_: snapshots(cluster, id_),
                f"node {id_} has a whole snapshot again",
                20,
            )
        told = events(cluster, id_)
        assert told.count("snapshot_unusable") >= len(RUINS)
        assert told.count("snapshot_fetched") >= 1 + len(RUINS)
    broker = cluster.ids("broker")[0]
    everything = {f"before-{n}" for n in range(12)}
    everything |= {f"after-{broker}-{n}" for n in range(len(RUINS))}
    wait_until(lambda: everything <= topics_of(cluster, broker), "the broker knows every topic", 20)


def test_a_controller_whose_disk_is_full_steps_aside_and_comes_back(cluster):
    create(cluster, *(f"filling-{n}" for n in range(40)))
    active = cluster.active_controller()
    segment = max(metadata(cluster, active).glob("*.log"))
    room = segment.stat().st_size - cluster.log(active).stat().st_size
    assert room > 5_000, "its own log has room"
    limit = (segment.stat().st_size, psutil.RLIM_INFINITY)
    cluster.process(active).rlimit(psutil.RLIMIT_FSIZE, limit)
    create(cluster, "while-it-is-full")
    wait_until(lambda: cluster.process(active) is None, "the full controller has stopped", 20)
    reason = next(
        e["reason"] for e in reversed(cluster.log_entries(active)) if e["event"] == "raft_failed"
    )
    assert reason.startswith("the metadata log: append to ")
    assert reason.endswith("File too large")
    assert cluster.active_controller() != active
    cluster.start(active)
    create(cluster, "with-room-again")
    # Where not even its log lines find room, it steps aside all the same.
    active = cluster.active_controller()
    cluster.process(active).rlimit(psutil.RLIMIT_FSIZE, (1, psutil.RLIM_INFINITY))
    create(cluster, "while-another-is-full")
    wait_until(lambda: cluster.process(active) is None, "it has stopped without a word", 20)
    cluster.start(active)
    create(cluster, "with-room-for-all")


def test_a_broker_whose_disk_is_full_acknowledges_nothing_until_there_is_room(cluster):
    """Its metadata log has room: a limit of the file's size keeps only the partition's back."""
    create(cluster, "full")
    broker = cluster.ids("broker")[0]
    errors, done = [], []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "enable.idempotence": False,
            "retries": 0,
            "linger.ms": 0,
            "log_level": 0,
        }
    )

    def send(value):
        producer.produce(
            "full",
            value,
            partition=0,
            on_delivery=lambda error, _: (done if error is None else errors).append(error or value),
        )
        producer.flush(20)

    send(b"x" * 500_000)
    assert done
    process = cluster.process(broker)
    process.rlimit(psutil.RLIMIT_FSIZE, (600_000, psutil.RLIM_INFINITY))
    send(b"y" * 500_000)
    assert [error.name() for error in errors] == ["KAFKA_STORAGE_ERROR"]
    process.rlimit(psutil.RLIMIT_FSIZE, UNLIMITED)
    send(b"z" * 500_000)
    assert done == [b"x" * 500_000, b"z" * 500_000]
    assert cluster.process(broker) is not None


def write_node(directory, node_id, roles, ports, cluster_id):
    """A node with two log directories, formatted; the path of its properties."""
    broker, controller, admin, metrics = ports[node_id]
    listeners = [f"PLAINTEXT://127.0.0.1:{broker}"]
    if "controller" in roles:
        listeners.append(f"CONTROLLER://127.0.0.1:{controller}")
    directories = [str(directory / f"node-{node_id}-{name}") for name in ("a", "b")]
    values = {
        "process.roles": roles,
        "node.id": node_id,
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{ports[1][1]}",
        "log.dirs": ",".join(directories),
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        "pykraft.metrics.listener": f"127.0.0.1:{metrics}",
        **({"pykraft.admin.listener": f"127.0.0.1:{admin}"} if "controller" in roles else {}),
        **SETTINGS,
    }
    path = directory / f"node-{node_id}.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    levels = {"metadata.version": 25}
    asyncio.run(
        format_directories(
            real_env(), directories, node_id=node_id, cluster_id=cluster_id, levels=levels
        )
    )
    return path


def test_what_was_led_from_a_directory_that_is_gone_is_led_by_others(tmp_path):
    ports = {1: free_ports(4), 2: free_ports(4)}
    cluster_id = new_cluster_id()
    first = write_node(tmp_path, 1, "broker,controller", ports, cluster_id)
    second = write_node(tmp_path, 2, "broker", ports, cluster_id)
    with (
        pykraft_server(first),
        pykraft_server(second) as process,
        AdminClient([f"127.0.0.1:{ports[1][2]}"]) as admin,
    ):
        # Node 2 leads them all, from both of its directories.
        admin.create_topic("t", assignments={index: [2, 1] for index in range(8)})

        def partitions():
            return admin.describe_topics(["t"], linearizable=True)["t"]["partitions"]

        wait_until(
            lambda: all(len(p["isr"]) == 2 for p in partitions().values()), "all in sync", 20
        )
        wait_until(
            lambda: all(len(set(p["directories"])) == 2 for p in partitions().values()),
            "the controller knows the directories",
            20,
        )
        lost = tmp_path / "node-2-b"
        there = {path.name.rpartition("-")[2] for path in lost.glob("t-*")}
        led = {index for index, p in partitions().items() if p["leader"] == 2}
        assert len(led) == 8
        assert 0 < len(there) < 8
        producer = Producer(
            {"bootstrap.servers": f"127.0.0.1:{ports[1][0]}", "acks": "all", "log_level": 0}
        )
        lost.rename(tmp_path / "gone")
        # A disk is missed when something is to be written there: the high watermark, here.
        for index in there:
            producer.produce("t", b"before", partition=int(index))
        wait_until(
            lambda: {i for i, p in partitions().items() if p["leader"] == 2} == led - there,
            "what lay in the other directory is still led from there, and nothing else",
            20,
        )
        assert {i for i, p in partitions().items() if p["isr"] == [1]} == there
        assert process.poll() is None
        errors = []
        for index in range(8):
            producer.produce(
                "t", b"x", partition=index, on_delivery=lambda e, _: e and errors.append(e)
            )
        assert producer.flush(20) == 0
        assert errors == []


@pytest.mark.ci
def test_a_broker_starts_without_a_directory_that_cannot_be_opened(tmp_path):
    """A file lies where one of its two directories was, as root may read what others may not."""
    ports = {1: free_ports(4), 2: free_ports(4)}
    cluster_id = new_cluster_id()
    first = write_node(tmp_path, 1, "broker,controller", ports, cluster_id)
    second = write_node(tmp_path, 2, "broker", ports, cluster_id)
    lost, kept = tmp_path / "node-2-b", tmp_path / "node-2-a"
    with pykraft_server(first), AdminClient([f"127.0.0.1:{ports[1][2]}"]) as admin:

        def partitions(topic):
            return admin.describe_topics([topic], linearizable=True)[topic]["partitions"]

        def led_by_2(topic):
            return {index for index, p in partitions(topic).items() if p["leader"] == 2}

        def produce(topic, indexes):
            errors = []
            producer = Producer(
                {"bootstrap.servers": f"127.0.0.1:{ports[1][0]}", "acks": "all", "log_level": 0}
            )
            for index in indexes:
                producer.produce(
                    topic, b"x", partition=int(index), on_delivery=lambda e, _: errors.append(e)
                )
            assert producer.flush(20) == 0
            assert errors == [None] * len(indexes)

        with pykraft_server(second):
            # Twice on both nodes, and once on node 2 alone.
            admin.create_topic("both", assignments={index: [2, 1] for index in range(8)})
            admin.create_topic("alone", assignments={index: [2] for index in range(8)})
            produce("both", range(8))
            produce("alone", range(8))
            known = [*partitions("both").values(), *partitions("alone").values()]
            assert all(p["leader"] == 2 for p in known)
        there = {
            topic: {i for i in partitions(topic) if (lost / f"{topic}-{i}").exists()}
            for topic in ("both", "alone")
        }
        assert all(0 < len(found) < 8 for found in there.values())
        lost.rename(tmp_path / "elsewhere")
        lost.write_text("not a directory")
        everything = set(partitions("both"))
        with pykraft_server(second) as process:
            wait_until(
                lambda: led_by_2("alone") == everything - there["alone"],
                "what lies in the other directory is led from there, and nothing else",
                20,
            )
            wait_until(
                lambda: all(
                    sorted(p["isr"]) == ([1] if index in there["both"] else [1, 2])
                    for index, p in partitions("both").items()
                ),
                "node 2 is in sync where its directory is",
                20,
            )
            produce("both", range(8))
            produce("alone", everything - there["alone"])
            admin.create_topic("new", assignments={index: [2] for index in range(4)})
            produce("new", range(4))
            assert len(list(kept.glob("new-*"))) == 4
            # Nothing of what lies in the lost one was made anew.
            for topic, indexes in there.items():
                assert not [i for i in indexes if (kept / f"{topic}-{i}").exists()]
            assert process.poll() is None
        told = (tmp_path / "node-2.pykraft.log").read_text()
        assert f'"path": "{lost}"' in told
        assert "Not a directory" in told
        lost.unlink()
        (tmp_path / "elsewhere").rename(lost)
        with pykraft_server(second):
            wait_until(lambda: led_by_2("alone") == everything, "all are led again", 20)
            wait_until(
                lambda: all(len(p["isr"]) == 2 for p in partitions("both").values()),
                "all are in sync again",
                20,
            )
            produce("alone", range(8))


def test_a_node_that_cannot_write_down_at_its_stop_where_it_was_says_so(tmp_path):
    ports = {1: free_ports(4)}
    properties = write_node(tmp_path, 1, "broker,controller", ports, new_cluster_id())
    metadata_directory = tmp_path / "node-1-a"
    with pykraft_server(properties, exit_code=EXIT_METADATA_DISK_FAILED):
        metadata_directory.rename(tmp_path / "gone")
    told = (tmp_path / "node-1.pykraft.log").read_text().splitlines()
    assert str(metadata_directory) in told[-1]
    assert "No such file or directory" in told[-1]
