"""Planning a local cluster and its files; nothing is started here."""

import json
import os
import socket
import subprocess
import threading

import psutil
import pytest
from waiting import wait_until

from pykraft import local_cluster, ports
from pykraft.cli import CommandError
from pykraft.local_cluster import LocalCluster
from pykraft.node_config import parse_node_config, parse_properties


def planned(controllers, brokers, base_port=20_000):
    return local_cluster.plan(controllers, brokers, base_port)


def test_dedicated_nodes():
    nodes = planned(3, 2)
    assert [node.id for node in nodes] == [1, 2, 101, 102, 103]
    assert [node.roles for node in nodes] == [("broker",)] * 2 + [("controller",)] * 3
    for node in nodes:
        is_broker = node.roles == ("broker",)
        assert (node.broker is not None, node.controller is None) == (is_broker, is_broker)
        assert (node.admin is None) == is_broker
        assert node.kafka == (node.broker if is_broker else node.controller)


def test_without_controllers_every_node_has_both_roles():
    (node,) = planned(0, 1)
    assert node.roles == ("broker", "controller")
    assert None not in (node.broker, node.controller, node.admin, node.metrics)


@pytest.mark.parametrize("shape", [(3, 3), (0, 3), (1, 5)])
def test_no_address_is_given_twice(shape):
    for base_port in (20_000, None):
        nodes = planned(*shape, base_port)
        given = [
            address
            for node in nodes
            for address in (node.broker, node.controller, node.admin, node.metrics)
            if address
        ]
        assert len(set(given)) == len(given)
        if base_port:
            assert given == [f"127.0.0.1:{base_port + i}" for i in range(len(given))]


@pytest.mark.parametrize("base_port", [0, 80, 1023, 65_530, 70_000, -1])
def test_a_base_port_without_room_is_refused(base_port):
    with pytest.raises(CommandError, match=f"--base-port {base_port}: 1024 to 65520"):
        planned(3, 3, base_port)


@pytest.mark.parametrize("shape", [(3, 0), (-1, 1), (1, 51), (51, 1)])
def test_a_shape_that_cannot_be_is_refused(tmp_path, shape):
    with pytest.raises(CommandError, match=r"--(brokers|controllers) "):
        LocalCluster(tmp_path / "c").up(*shape)
    assert not (tmp_path / "c").exists()


@pytest.fixture
def made(tmp_path):
    """A cluster whose files are there and whose nodes never ran."""
    cluster = LocalCluster(tmp_path)
    cluster.create(local_cluster.plan(3, 3, None))
    return cluster


def test_every_node_has_a_sound_configuration_and_a_formatted_directory(made):
    for node in made.nodes():
        directory = made.node_directory(node)
        text = (directory / "server.properties").read_text()
        config = parse_node_config(parse_properties(text, "file"))
        assert config.node_id == node.id
        assert sorted(config.voters) == [101, 102, 103]
        assert config.static.unknown == ()
        assert config.static["broker.session.timeout.ms"] == 3000
        assert config.static["offsets.topic.replication.factor"] == 3
        assert (directory / "data" / "meta.properties").exists()


def test_status_of_nodes_that_never_ran(made):
    status = made.status()
    assert status["active_controller"] is None
    assert {node["state"] for node in status["nodes"]} == {"stopped"}
    assert {node["pid"] for node in status["nodes"]} == {None}
    assert status["bootstrap_servers"].count(",") == 2
    assert set(status["nodes"][0]) >= {
        *("id", "roles", "pid", "state", "kafka", "admin", "metrics", "data", "log")
    }


def test_a_dead_process_is_told_from_a_stopped_one_and_from_a_stranger(made):
    one, two, three, *_ = made.nodes()
    record = made.node_directory(one) / "process.json"
    record.write_text(json.dumps({"pid": 2**22 + 1, "created": 1.0, "stopped": False}))
    record = made.node_directory(two) / "process.json"
    record.write_text(json.dumps({"pid": 2**22 + 1, "created": 1.0, "stopped": True}))
    # A number that another process has by now: this very test.
    record = made.node_directory(three) / "process.json"
    record.write_text(json.dumps({"pid": os.getpid(), "created": 1.0, "stopped": False}))
    states = [node["state"] for node in made.status()["nodes"]]
    assert states[:3] == ["dead", "stopped", "dead"]
    with pytest.raises(CommandError, match=f"node {three.id} is not running"):
        made.kill([three.id])


def test_another_shape_is_refused(made):
    with pytest.raises(CommandError, match="--controllers 3 --brokers 3, not 1 and 3"):
        made.up(1, 3)


def test_start_without_ids_is_for_all(made, monkeypatch):
    started = []
    monkeypatch.setattr(made, "_start", started.extend)
    made.start([])
    assert started == made.nodes()


def test_unknown_ids_are_named_with_those_there_are(made):
    with pytest.raises(
        CommandError, match="no node 9, 10 in this cluster; its nodes are 1, 2, 3, 101"
    ):
        made.start([9, 1, 10])


def test_no_cluster_and_a_damaged_one(tmp_path):
    with pytest.raises(CommandError, match="no cluster in"):
        LocalCluster(tmp_path).status()
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(CommandError, match="is damaged"):
        LocalCluster(tmp_path).status()


def test_leftover_nodes_are_not_overwritten(tmp_path):
    (tmp_path / "nodes").mkdir()
    with pytest.raises(CommandError, match=r"without a cluster\.json"):
        LocalCluster(tmp_path).up(1, 1)


def test_down_with_delete_leaves_nothing(made):
    made.down(delete=True)
    assert not made.exists()
    assert not made.directory.exists()


def test_down_with_delete_leaves_what_is_not_the_clusters(made):
    (made.directory / "notes").write_text("mine")
    made.down(delete=True)
    assert [path.name for path in made.directory.iterdir()] == ["notes"]


def test_who_waited_for_a_cluster_that_was_deleted_holds_the_lock_of_the_next(made):
    """Of two commands that wait, one would hold the old file and one a new one."""
    waiting = LocalCluster(made.directory)
    held = threading.Event()

    def take():
        with waiting._locked():
            held.set()

    with made._locked():
        thread = threading.Thread(target=take)
        thread.start()
        lock = made.directory / local_cluster.LOCK
        # It waits once it has the file open, as this does.
        wait_until(lambda: opened_by_this_process(lock) == 2, "it waits")
        lock.unlink()
        with LocalCluster(made.directory)._locked():
            pass
        lock.unlink()
    thread.join(60)
    assert held.is_set()
    assert lock.exists(), "it made a new one"


def opened_by_this_process(path):
    return [file.path for file in psutil.Process().open_files()].count(str(path))


def test_free_ports_are_free_and_different():
    found = ports.free_ports(30)
    assert len(set(found)) == 30
    assert all(ports.FIRST <= port < ports.LAST for port in found)
    for port in found:
        with socket.socket() as candidate:
            candidate.bind(("127.0.0.1", port))


def test_too_many_ports_are_refused(monkeypatch):
    monkeypatch.setattr(ports, "FIRST", 20_000)
    monkeypatch.setattr(ports, "LAST", 20_002)
    with pytest.raises(OSError, match="ports are free"):
        ports.free_ports(3)


def test_a_paused_process_is_told_and_only_living_ones_can_be_paused(made):
    """The process stands for a node's; what nodes do when they are paused: tests/cluster."""
    one, two, *_ = made.nodes()
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            created = psutil.Process(process.pid).create_time()
            record = {"pid": process.pid, "created": created, "stopped": False}
            (made.node_directory(one) / "process.json").write_text(json.dumps(record))
            made.pause([one.id])
            wait_until(lambda: made.status()["nodes"][0]["state"] == "paused", "it stands still")
            made.resume([one.id])
            wait_until(lambda: made.status()["nodes"][0]["state"] == "starting", "it goes on")
            with pytest.raises(CommandError, match=f"node {two.id} is not running"):
                made.pause([two.id])
        finally:
            process.kill()


def test_settings_of_a_planned_cluster_win(tmp_path):
    cluster = LocalCluster(tmp_path)
    settings = {2: {"broker.rack": "a: b", "broker.session.timeout.ms": "4000"}}
    cluster.create(local_cluster.plan(0, 2, None), settings)
    values = []
    for node in cluster.nodes():
        text = (cluster.node_directory(node) / "server.properties").read_text()
        config = parse_node_config(parse_properties(text, "file"))
        values.append((config.static["broker.rack"], config.static["broker.session.timeout.ms"]))
    assert values == [(None, 3000), ("a: b", 4000)]
