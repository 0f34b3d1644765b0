"""Nodes that can't be started, or end by themselves, and what they say."""

import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from command_lines import FORMAT, NODE
from waiting import wait_until

from pykraft import cli
from pykraft.ports import free_ports
from raft.quorum import MAX_EPOCH
from wire import quorum_state
from wire.exits import EXIT_BAD_DIRECTORY, EXIT_CANNOT_LISTEN, EXIT_NO_EPOCH_LEFT
from wire.quorum_state import QuorumState

ROOT = Path(__file__).resolve().parents[3]


def ended_server(folder):
    """A node of this folder's configuration, which ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", "pykraft", "server", "node.properties"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_a_node_on_an_unformatted_directory_says_so_and_ends_with_its_code(here):
    done = ended_server(here)
    assert done.returncode == EXIT_BAD_DIRECTORY
    assert f"{here}/data does not exist" in done.stderr
    assert "`pykraft storage format`" in done.stderr
    assert '"event": "stopped"' in done.stderr
    assert "Traceback" not in done.stderr


def ended_server_at(place, directory, broker="127.0.0.1:0"):
    """What a node says that can't listen at `place` as a controller."""
    (directory / "node.properties").write_text(
        "node.id=1\nprocess.roles=broker,controller\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://{broker},CONTROLLER://{place}\n"
        f"controller.quorum.voters=1@{place}\nlog.dirs={directory}/data\n"
    )
    done = ended_server(directory)
    assert done.returncode == EXIT_CANNOT_LISTEN
    assert not (directory / "data").exists()
    return done.stderr


def test_a_node_whose_port_is_taken_touches_nothing(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        told = ended_server_at(place, tmp_path)
    assert f"pykraft: not started: {place} can't be listened on: Address already in use" in told


def test_two_listeners_of_a_node_cannot_have_one_port_by_two_names(tmp_path):
    [port] = free_ports(1)
    told = ended_server_at(f"127.0.0.1:{port}", tmp_path, broker=f"localhost:{port}")
    assert f"127.0.0.1:{port} can't be listened on: Address already in use" in told
    assert "(set by listeners)" in told


def test_a_node_whose_host_has_no_address_says_so(tmp_path):
    told = ended_server_at("no-such-host.invalid:9093", tmp_path)
    assert "no-such-host.invalid:9093 can't be listened on" in told
    assert "(set by listeners)" in told
    assert "Unknown error" not in told


def test_a_node_that_led_the_last_epoch_ends_with_its_code(here):
    broker, controller = free_ports(2)
    text = NODE.format(data=here / "data").replace("9092", str(broker))
    (here / "node.properties").write_text(text.replace("9093", str(controller)))
    assert cli.main(FORMAT) == 0
    metadata = here / "data" / "__cluster_metadata-0"
    metadata.mkdir(exist_ok=True)
    (metadata / "quorum-state").write_bytes(quorum_state.encode(QuorumState(MAX_EPOCH, 1, 1)))
    done = ended_server(here)
    assert done.returncode == EXIT_NO_EPOCH_LEFT
    assert f"epoch {MAX_EPOCH} is the last that there is" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_node_serves_when_nobody_reads_its_log_any_more(here):
    """As after `pykraft server … 2>&1 | head`."""
    broker, controller, metrics = free_ports(3)
    text = NODE.format(data=here / "data").replace("9092", str(broker))
    text = text.replace("9093", str(controller))
    (here / "node.properties").write_text(f"{text}pykraft.metrics.listener=127.0.0.1:{metrics}\n")
    assert cli.main(FORMAT) == 0
    with subprocess.Popen(
        [sys.executable, "-m", "pykraft", "server", "node.properties"],
        cwd=here,
        env={"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    ) as process:
        try:
            process.stderr.readline()
            process.stderr.close()

            def ready():
                assert process.poll() is None
                try:
                    url = f"http://127.0.0.1:{metrics}/readyz"
                    return urllib.request.urlopen(url, timeout=5).status == 200
                except OSError:
                    return False

            wait_until(ready, "the node is ready", 30)
            process.terminate()
            assert process.wait(120) == 0
        finally:
            process.kill()
