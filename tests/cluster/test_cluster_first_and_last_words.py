"""What a node says when it is ready and when it has ended, to a person and in its log."""

import json
import re
import signal
import subprocess
import sys

import pytest
from waiting import wait_until

from admin.client import AdminClient
from pykraft import cli
from pykraft.launcher import read_readiness
from pykraft.ports import free_ports

pytestmark = pytest.mark.cluster


def configured(directory, roles):
    """A formatted node's configuration, which says nothing of where its doors are."""
    controller, broker = free_ports(2)
    listeners = [f"CONTROLLER://localhost:{controller}"]
    if "broker" in roles:
        listeners.append(f"PLAINTEXT://localhost:{broker}")
    config = directory / "node.properties"
    config.write_text(
        f"node.id=1\nprocess.roles={roles}\nlisteners={','.join(listeners)}\n"
        "controller.listener.names=CONTROLLER\n"
        f"controller.quorum.voters=1@localhost:{controller}\nlog.dirs={directory / 'data'}\n"
    )
    assert cli.main(["storage", "format", "--config", str(config)]) == 0
    return config


def life_of(config, number):
    """Runs the node until it is ready, then signals it; the lines that it wrote."""
    log = config.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pykraft", "server", str(config)],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
    try:
        wait_until(lambda: "pykraft: ready" in log.read_text(), "it is ready")
        yield log.read_text().splitlines()
        process.send_signal(number)
        assert process.wait(120) == 0
        yield log.read_text().splitlines()
    finally:
        process.kill()
        process.wait(120)


def with_event(lines, event):
    entries = [json.loads(line) for line in lines if line.startswith("{")]
    return [entry for entry in entries if entry["event"] == event]


@pytest.mark.parametrize("roles", ["controller", "broker,controller"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_last_line_tells_why_it_stopped(tmp_path, roles, number):
    *_, lines = life_of(configured(tmp_path, roles), number)
    last = json.loads(lines[-1])
    assert (last["event"], last["reason"], last["exit_code"]) == ("stopped", number.name, 0)


def test_the_ready_line_has_the_ports_that_were_bound(tmp_path):
    life = life_of(configured(tmp_path, "broker,controller"), signal.SIGTERM)
    lines = next(life)
    [said] = [line for line in lines if line.startswith("pykraft: ready")]
    admin, metrics = re.search(r"gRPC (localhost:\d+), metrics (localhost:\d+)$", said).groups()
    [logged] = with_event(lines, "ready")
    assert (logged["admin"], logged["metrics"]) == (admin, metrics)
    assert read_readiness(metrics)["state"] == "ready"
    with AdminClient([admin]) as client:
        assert client.list_topics() == []
    life.close()
