"""`pykraft cluster up` that is ended while nodes start: what it had started ends too."""

import signal
import subprocess
import sys

import pytest
from clusters import Cluster, ended_afterwards
from waiting import wait_until

from pykraft.local_cluster import plan

pytestmark = pytest.mark.cluster

# A shell that runs tests in the background has SIGINT ignored, and who inherits that keeps it.
PYKRAFT = """\
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from pykraft.cli import main
sys.exit(main(sys.argv[1:]))
"""


def interrupted(cluster, number, *ids):
    """`up`, sent a signal once every node of `ids` is a process; its exit code and what it said."""
    with subprocess.Popen(
        [sys.executable, "-c", PYKRAFT, "cluster", "up", "--dir", cluster.directory],
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        try:
            wait_until(lambda: len(running(cluster, ids)) == len(ids), "they are being started")
            command.send_signal(number)
            told = command.communicate(timeout=240)[1]
        finally:
            command.kill()
    return command.returncode, told


def running(cluster, ids):
    return [id_ for id_ in ids if cluster.local.process(cluster.node(id_))]


@pytest.fixture
def cluster(tmp_path):
    """Three nodes of both roles, of which none has run."""
    cluster = Cluster(tmp_path)
    cluster.local.create(plan(0, 3, None))
    with ended_afterwards(cluster):
        yield cluster


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_up_leaves_nothing_running(cluster, number):
    code, told = interrupted(cluster, number, 1, 2, 3)
    assert code == 128 + number
    assert "the nodes that this command had started are stopped: 1, 2, 3" in told
    assert running(cluster, [1, 2, 3]) == []
    assert {node["state"] for node in cluster.local.status()["nodes"]} == {"stopped"}


def test_nodes_that_ran_before_run_on(cluster):
    cluster.start(1, 2)
    code, told = interrupted(cluster, signal.SIGINT, 3)
    assert code == 128 + signal.SIGINT
    assert told == "pykraft: interrupted; the nodes that this command had started are stopped: 3\n"
    assert running(cluster, [1, 2, 3]) == [1, 2]
