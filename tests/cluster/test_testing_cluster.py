"""pykraft.testing.Cluster: real nodes that are there for a test, and gone however it ends."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import psutil
import pytest
import traffic
from waiting import wait_until

from pykraft.testing import Cluster, ClusterError

pytestmark = pytest.mark.cluster

END_S = 15


@pytest.fixture(scope="module")
def three():
    """Three controllers and three brokers, whole again before each test that takes some down."""
    with Cluster(brokers=3, controllers=3) as cluster:
        yield cluster


@pytest.fixture
def whole(three):
    three.heal()
    three.wait_until_in_sync()
    return three


def states(cluster):
    return {node["id"]: node["state"] for node in cluster.status()["nodes"]}


def pids(cluster):
    return [node["pid"] for node in cluster.status()["nodes"] if node["pid"]]


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until_gone(pids, directory):
    wait_until(
        lambda: all(map(is_gone, pids)) and not Path(directory).exists(), f"{pids} are gone", END_S
    )


# What it is.


def test_one_node_serves_clients_and_leaves_nothing():
    with Cluster() as cluster:
        assert [node.roles for node in cluster.nodes] == [("broker", "controller")]
        assert cluster.brokers == cluster.controllers == cluster.nodes
        assert cluster.bootstrap_servers == cluster.node(1).address
        assert cluster.active_controller() == 1
        assert cluster.cluster_id == cluster.status()["cluster_id"]
        topic = cluster.create_topic(partitions=3)
        traffic.confluent_produce(cluster.bootstrap_servers, topic, 300)
        traffic.confluent_read(cluster.bootstrap_servers, topic, traffic.Seen(300))
        left = [*pids(cluster), cluster._link.pid]
        directory = cluster.directory
        with urllib.request.urlopen(f"http://{cluster.node(1).metrics}/readyz") as answer:
            assert answer.status == 200
    wait_until_gone(left, directory)
    with pytest.raises(ClusterError, match="not up"):
        _ = cluster.bootstrap_servers
    with pytest.raises(ClusterError, match="not up"):
        cluster.status()
    cluster.down()  # once more does nothing


def test_topics_are_created_on_first_use_and_refusals_have_kafkas_names(three):
    traffic.confluent_produce(three.bootstrap_servers, "made-by-its-use", 10, partitions=1)
    assert three.leader("made-by-its-use") in (1, 2, 3)
    name = three.create_topic("named", partitions=2, replication_factor=3)
    assert name == "named"
    for arguments, code in (
        ({"name": "named"}, "TOPIC_ALREADY_EXISTS"),
        ({"replication_factor": 4}, "INVALID_REPLICATION_FACTOR"),
        ({"configs": {"retention.ms": "soon"}}, "INVALID_CONFIG"),
        ({"name": "no spaces"}, "INVALID_TOPIC_EXCEPTION"),
    ):
        with pytest.raises(ClusterError, match=f"^{code}: ") as refused:
            three.create_topic(**arguments)
        assert refused.value.code == code
    three.delete_topic("named")
    with pytest.raises(ClusterError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        three.leader("named")


def test_a_new_topic_is_served_everywhere_at_once(three):
    """No client has to ask twice: every broker knows it, every leader leads it."""
    from confluent_kafka import Consumer, TopicPartition

    for _ in range(5):
        topic = three.create_topic(partitions=6, replication_factor=3)
        for broker in three.brokers:
            settings = {"bootstrap.servers": broker.address, "group.id": "-", "log_level": 0}
            consumer = Consumer(settings)
            for partition in range(6):
                place = TopicPartition(topic, partition)
                assert consumer.get_watermark_offsets(place, 10) == (0, 0)
            consumer.close()


def test_settings_reach_the_nodes(tmp_path):
    with Cluster(
        brokers=2,
        properties={"auto.create.topics.enable": False, "num.partitions": 4},
        node_properties={2: {"broker.rack": "b"}},
        directory=tmp_path / "kept",
    ) as cluster:
        admin = cluster.create_topic("defaults", partitions=4)
        assert cluster.leader(admin, 3) in (1, 2)
        with pytest.raises(ClusterError, match="defaults has no partition 4; it has 4"):
            cluster.leader(admin, 4)
        properties = (cluster.directory / "nodes" / "2" / "server.properties").read_text()
        assert "broker.rack=b" in properties
        assert "auto.create.topics.enable=false" in properties
        assert "group.initial.rebalance.delay.ms=0" in properties
        left = pids(cluster)
    assert all(map(is_gone, left))
    assert (tmp_path / "kept" / "nodes" / "1" / "data" / "meta.properties").exists()
    with pytest.raises(ClusterError, match="is not empty"):
        Cluster(directory=tmp_path / "kept").up()


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"num.partitons": 3}, "num.partitons is no setting of a node"),
        ({"num.partitions": "many"}, "INVALID_CONFIG: .*num.partitions"),
        ({"node.id": 7}, "node.id is set by the cluster itself"),
        ({"listeners": "PLAINTEXT://:9092"}, "listeners is set by the cluster itself"),
    ],
)
def test_a_setting_without_effect_is_refused(properties, said):
    cluster = Cluster(properties=properties)
    with pytest.raises(ClusterError, match=said):
        cluster.up()
    cluster.down()


def test_a_keeper_that_cannot_begin_says_why(monkeypatch):
    monkeypatch.setattr("pykraft.testing.link.KEEPER", "pykraft.none_such")
    with pytest.raises(ClusterError, match=r"has ended: .*No module named pykraft\.none_such"):
        Cluster().up()


# Nodes that fail.


@pytest.mark.parametrize("how", ["kill", "stop", "pause"])
def test_a_leader_is_lost_and_comes_back(whole, how):
    topic = whole.create_topic(partitions=3, replication_factor=3)
    seen = traffic.Seen(600)
    traffic.confluent_produce(whole.bootstrap_servers, topic, 300, **{"enable.idempotence": True})
    leader = whole.leader(topic)
    getattr(whole, how)(leader)
    expected = {"kill": "dead", "stop": "stopped", "pause": "paused"}[how]
    assert states(whole)[leader] == expected
    assert whole.leader(topic, other_than=leader) != leader
    traffic.confluent_produce(
        whole.bootstrap_servers, topic, 300, start=300, **{"enable.idempotence": True}
    )
    if how == "pause":
        whole.resume(leader)
    else:
        whole.start(leader)
    whole.wait_until_in_sync(topic)
    assert set(states(whole).values()) == {"ready"}
    traffic.confluent_read(whole.bootstrap_servers, topic, seen)


@pytest.mark.parametrize("how", ["kill", "stop", "pause"])
def test_the_active_controller_is_lost(whole, how):
    active = whole.active_controller()
    getattr(whole, how)(active)
    whole.create_topic(replication_factor=3)
    assert whole.active_controller() != active
    assert whole.heal() == {active: {"kill": "killed", "stop": "stopped"}.get(how, "paused")}
    assert set(states(whole).values()) == {"ready"}


def test_heal_tells_what_it_found(whole):
    assert whole.heal() == {}
    whole.kill(1)
    whole.pause(2)
    whole.stop(101)
    surprise = next(node["pid"] for node in whole.status()["nodes"] if node["id"] == 102)
    os.kill(surprise, signal.SIGKILL)
    wait_until(lambda: is_gone(surprise), "the node is gone")
    found = {1: "killed", 2: "paused", 101: "stopped", 102: "ended by itself"}
    assert whole.heal() == found
    assert set(states(whole).values()) == {"ready"}


def test_what_cannot_be_done_is_said(whole):
    whole.pause(2)
    with pytest.raises(ClusterError, match="node 2 is paused: resume it"):
        whole.start(2)
    assert whole.heal() == {2: "paused"}
    whole.kill(3)
    for call, said in (
        (lambda: whole.kill(3), "node 3 is not running"),
        (lambda: whole.kill(1, 3), "node 3 is not running"),
        (lambda: whole.pause(3), "node 3 is not running"),
        (lambda: whole.kill(7), "no node 7 in this cluster; its nodes are 1, 2, 3, 101, 102, 103"),
        (lambda: whole.node(7), "no node 7 in this cluster"),
        (lambda: whole.up(), "up already"),
        (lambda: whole.wait_until_in_sync("none-such"), "UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        with pytest.raises(ClusterError, match=said):
            call()
    whole.kill(101, 102, 103)
    with pytest.raises(ClusterError, match="no controller runs"):
        whole.create_topic()
    assert whole.heal() == dict.fromkeys((1, 3, 101, 102, 103), "killed")


def test_any_thread_and_any_coroutine_may_call(whole):
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(whole.create_topic(partitions=2)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 4

    async def main():
        beats = 0
        killing = asyncio.create_task(asyncio.to_thread(whole.kill, 2))
        while not killing.done():
            beats += 1
            await asyncio.sleep(0)
        await killing
        return beats

    assert asyncio.run(main()) > 0
    assert states(whole)[2] == "dead"


# The end of the test process.

PROGRAM = """
import os, signal, sys, threading
from pykraft.testing import Cluster
cluster = Cluster().up()
cluster.pause(1)
print(cluster._link.pid, cluster.directory, *(n["pid"] for n in cluster.status()["nodes"]))
sys.stdout.flush()
"""
ENDS = {
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "a crash": "os.kill(os.getpid(), signal.SIGSEGV)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "os._exit": "os._exit(3)",
    "an exception": "1 / 0",
    "a forgotten cluster": "sys.exit(0)",
    "SIGKILL, with a forked child that lives on": """
if os.fork() == 0:
    signal.alarm(30)
    signal.pause()
os.kill(os.getpid(), signal.SIGKILL)
""",
    "SIGKILL of the keeper": """
os.kill(cluster._link.pid, signal.SIGKILL)
try:
    cluster.status()
except Exception as error:
    assert "keeper" in str(error)
cluster.down()
""",
}


@pytest.mark.parametrize("how", ENDS)
def test_nothing_outlives_the_test_process(tmp_path, how):
    """Not even a node that is paused, nor the files."""
    errors = tmp_path / "errors"
    with (
        errors.open("w") as output,
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM + ENDS[how]],
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        ) as process,
    ):
        line = process.stdout.readline()
        assert line, errors.read_text()
        process.wait(END_S)
        keeper, directory, *nodes = line.split()
        wait_until_gone([int(keeper), *map(int, nodes)], directory)


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.3, 0.6, 1.0])
def test_nothing_outlives_a_process_that_is_killed_while_it_starts_a_cluster(tmp_path, after_s):
    """`after_s` says where in the start it is, nothing waits for it to be anywhere."""
    # A quick machine has it up before that: then it stands there until it is killed.
    program = (
        "import signal; from pykraft.testing import Cluster; "
        "print(flush=True); cluster = Cluster(2).up(); signal.pause()"
    )
    variables = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=variables, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        family = []
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(after_s)
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    wait_until(
        lambda: all(is_gone(one.pid) for one in family) and not list(tmp_path.iterdir()),
        "nothing is left",
        END_S,
    )


def test_a_forked_child_leaves_its_parents_cluster_alone(three):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                three.status()
            except ClusterError as error:
                code = 0 if "forked" in str(error) else 2
            three.down()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert three.create_topic()


def test_a_ctrl_c_is_for_the_tests(whole):
    """Neither the keeper nor a node is in the process group that a terminal signals."""
    group = os.getpgrp()
    for pid in (whole._link.pid, *pids(whole)):
        assert os.getpgid(pid) != group
