"""What is told of nodes that don't get ready in time."""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from pykraft import launcher
from pykraft.cli import CommandError
from pykraft.ports import free_ports


class Waiting(BaseHTTPRequestHandler):
    """A node's /readyz while it waits for others."""

    def do_GET(self):
        self.send_response(503)
        self.end_headers()
        self.wfile.write(json.dumps({"state": "starting", "reason": "nobody leads"}).encode())

    def log_message(self, *_): ...


@pytest.fixture
def metrics():
    with HTTPServer(("127.0.0.1", 0), Waiting) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_nodes_that_are_late_say_themselves_what_they_wait_for(tmp_path, metrics):
    (port,) = free_ports(1)
    pipes = [os.pipe(), os.pipe()]
    nodes = [
        launcher.Starting(id_, place, reading, tmp_path / f"{id_}.log", process=None)
        for id_, place, (reading, _) in zip(
            (1, 2), (metrics, f"127.0.0.1:{port}"), pipes, strict=True
        )
    ]
    with pytest.raises(CommandError) as refused:
        launcher.wait_until_ready(nodes, 0.05)
    told = str(refused.value)
    assert told.startswith("not ready after 0 s, still starting: ")
    assert f"node 1 (log: {tmp_path}/1.log): nobody leads" in told
    assert f"node 2 (log: {tmp_path}/2.log): it doesn't answer" in told
    for _, writing in pipes:
        os.close(writing)


def test_a_node_that_was_started_before_says_what_it_waits_for(metrics):
    with pytest.raises(CommandError, match="node 1 runs but is not ready after 0 s: nobody leads"):
        launcher.wait_until_answered(1, metrics, lambda: True, 0.0)
