"""Where a command asks, how long it waits there, and what it says while it does."""

import json
import os
import socketserver
import sys
import threading
import time
from contextlib import contextmanager

import psutil
from command_lines import DEAD

from pykraft import cli
from pykraft.local_cluster import LocalCluster, plan


def test_a_person_is_told_why_a_command_waits_and_a_script_is_not(here, capsys, monkeypatch):
    assert cli.main(["topics", "list", *DEAD]) == 1
    assert "waiting" not in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli.main(["topics", "list", *DEAD]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("pykraft: waiting: ")
    assert len(set(told)) == len(told), "each reason once"


def test_what_speaks_no_grpc_is_told_at_once(here, capsys, monkeypatch):
    """Both kinds of other listeners: one that closes, and one that answers in its own way."""
    for answer in (b"", b"HTTP/1.1 405 Method Not Allowed\r\n\r\n"):
        with answering(answer) as address:
            began = time.monotonic()
            assert cli.main(["topics", "list", "--admin", address]) == 1
            told = capsys.readouterr().err
            assert f"{address} (--admin) answers, but not in gRPC" in told
            assert "pykraft.admin.listener" in told
            assert time.monotonic() - began < 15, "not for all of the 30 s that a command has"
            monkeypatch.setenv("PYKRAFT_ADMIN", address)
            assert cli.main(["topics", "list"]) == 1
            assert f"{address} (PYKRAFT_ADMIN) answers" in capsys.readouterr().err
            # Another address may come up yet.
            others = f"{address},127.0.0.1:1"
            assert cli.main(["topics", "list", "--admin", others, "--timeout", "0.5"]) == 1
            assert f"no answer within 500 ms from {address}, 127.0.0.1:1 (--admin)" in (
                capsys.readouterr().err
            )


@contextmanager
def answering(data):
    """The address of something that answers whatever it is sent with `data`, and closes."""

    class Answer(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(1000)
            self.request.sendall(data)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_local_cluster_that_does_not_run_is_told_at_once(here, capsys):
    LocalCluster(here / "home").create(plan(1, 1, None))
    assert cli.main(["topics", "list"]) == 1
    assert f"no node of {here}/home runs: `pykraft cluster up`" in capsys.readouterr().err
    assert cli.main(["groups", "list"]) == 1
    assert f"no broker of {here}/home runs: `pykraft cluster up`" in capsys.readouterr().err
    # Its broker alone runs: this very process stands for it.
    created = psutil.Process().create_time()
    record = {"pid": os.getpid(), "created": created, "stopped": False}
    (here / "home" / "nodes" / "1" / "process.json").write_text(json.dumps(record))
    assert cli.main(["topics", "list"]) == 1
    told = capsys.readouterr().err
    assert f"no controller of {here}/home runs: `pykraft cluster start 101`" in told
