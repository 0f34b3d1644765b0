"""The network that tests spoil does what it is told, in both its kinds."""

import json
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

import namespaces
import psutil
import pytest
from networks import CLIENTS, Link, Proxies, Wires

pytestmark = pytest.mark.cluster

SILENCE_S = 0.8
ECHO = """
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
host, _, port = sys.argv[1].rpartition(":")
server = Server((host, int(port)), Echo)
print("ready", flush=True)
server.serve_forever()
"""
PROBE = """
import json, socket, sys, time
host, _, port = sys.argv[1].rpartition(":")
for line in sys.stdin:
    size, silence_s = json.loads(line)
    begin = time.monotonic()
    answer = None
    try:
        with socket.create_connection((host, int(port)), silence_s) as link:
            link.sendall(bytes(size))
            left = size
            while left:
                left -= len(link.recv(65536))
            answer = time.monotonic() - begin
    except TimeoutError:
        pass
    print(json.dumps(answer), flush=True)
"""


def kinds():
    reason = namespaces.why_not()
    mark = pytest.mark.skipif(reason is not None, reason=str(reason))
    return [pytest.param(Wires, marks=mark, id="namespaces"), pytest.param(Proxies, id="proxies")]


class Scene:
    """Node 1 answers what node 2, and the test itself, say to it."""

    def __init__(self, network, directory, after):
        self.network, self._directory, self._after = network, directory, after
        self._node = network.nodes[0]
        listener = network.own_settings(self._node).get("listeners", f"//{self._node.kafka}")
        echo = self._start(1, ECHO, listener.split(",")[0].partition("//")[2])
        assert echo.stdout.readline() == "ready\n"
        self._probe = self._start(2, PROBE, self._node.kafka)

    def _start(self, id_, script, address):
        with self.network.place(id_):
            process = subprocess.Popen(
                [sys.executable, "-c", script, address],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        self._after.enter_context(process)
        self._after.callback(process.kill)
        folder = self._directory / "nodes" / str(id_)
        folder.mkdir(parents=True)
        created = psutil.Process(process.pid).create_time()
        record = {"pid": process.pid, "created": created, "stopped": False}
        (folder / "process.json").write_text(json.dumps(record))
        return process

    def ask(self, size=10, silence_s=SILENCE_S):
        """Seconds until node 2 had its bytes back from node 1, None where nothing came."""
        self._probe.stdin.write(json.dumps([size, silence_s]) + "\n")
        self._probe.stdin.flush()
        return json.loads(self._probe.stdout.readline())

    def ask_as_client(self):
        host, _, port = self._node.kafka.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), SILENCE_S) as link:
                link.sendall(b"x")
                return link.recv(1) == b"x"
        except TimeoutError:
            return False


@pytest.fixture(params=kinds())
def scene(request, tmp_path):
    with ExitStack() as after:
        network = request.param(tmp_path, 0, 2, 1)
        after.callback(network.close)
        yield Scene(network, tmp_path, after)


def test_a_cut_is_one_way_or_both_and_between_those_two_alone(scene):
    network = scene.network
    assert scene.ask(silence_s=10) is not None
    for cut in (
        lambda: network.cut([2], [1], both=False),
        lambda: network.cut([1], [2], both=False),
        lambda: network.cut([1], [2]),
    ):
        cut()
        assert scene.ask() is None
        assert scene.ask_as_client()
        network.heal()
        assert scene.ask(silence_s=10) is not None
    network.cut([CLIENTS], [1], both=False)
    assert not scene.ask_as_client()
    assert scene.ask(silence_s=10) is not None


def test_links_are_late_lossy_and_narrow(scene):
    network = scene.network
    network.shape([2], [1], Link(delay_ms=100))
    assert scene.ask(silence_s=10) >= 0.2
    network.shape([2], [1], Link(bytes_per_s=100_000), both=False)
    assert scene.ask(30_000, silence_s=20) >= 0.25
    network.shape([2], [1], Link(delay_ms=5, jitter_ms=5, loss=0.1))
    begin = time.monotonic()
    while not network.counts().get("lost"):
        assert scene.ask(3000, silence_s=20) is not None
        assert time.monotonic() - begin < 60, "nothing was ever lost"


@pytest.mark.skipif(namespaces.why_not() is not None, reason=str(namespaces.why_not()))
def test_nothing_is_left_of_a_network(tmp_path):
    network = Wires(tmp_path, 1, 1, 0)
    subnet = network.nodes[0].metrics.rpartition(".")[0]
    assert f"{subnet}.{CLIENTS}" in namespaces.addresses()
    network.close()
    assert f"{subnet}.{CLIENTS}" not in namespaces.addresses()
