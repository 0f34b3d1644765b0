"""Recipes of the docs, run as they are written."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import clusters
import pytest

from pykraft.ports import free_ports

pytestmark = pytest.mark.cluster

DOCS = Path(__file__).resolve().parents[2] / "docs"
IN_A_TERMINAL = "pykraft server c4.properties "


def recipe(page, title):
    """The first block of commands after the words that begin it."""
    text = (DOCS / page).read_text()
    return re.search(rf"\*\*{re.escape(title)}\*\*.*?\n```\n(.*?)```\n", text, re.DOTALL)[1]


def run(script, folder):
    """Runs it in bash, as somebody who pastes it, in `folder`; what it says. Nothing that it
    started in its own group lives on."""
    venv = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{venv}:{os.environ['PATH']}"}
    for name in ("PYKRAFT_HOME", "PYKRAFT_ADMIN", "PYKRAFT_BOOTSTRAP"):
        env.pop(name, None)
    shell = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        return shell.communicate(timeout=180)[0]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


@pytest.mark.ci
def test_a_local_cluster_gets_a_fourth_controller(tmp_path):
    """At once after the start, when voters haven't told their leader yet what they support."""
    text = recipe("operations.md", "A fourth controller of a local cluster")
    listens, admin = free_ports(2)
    text = text.replace("19093", str(listens)).replace("19094", str(admin))
    before, server, after = text.partition(IN_A_TERMINAL)
    with clusters.running_cluster(tmp_path / ".pykraft", 3, 3):
        said = run(before, tmp_path)
        assert "kraft.version is now at level 1\n" in said
        terminal = (
            f"{server.strip()} >c4.log 2>&1 &\n"
            "until grep -q 'pykraft: ready' c4.log; do sleep 0.2; done\n"
        )
        _, _, after = after.partition("\n")
        said = run(f"{terminal}{after}kill $!; wait $!", tmp_path)
        assert re.search(r"^controller 104 with directory id \S+ is a voter$", said, re.MULTILINE)
        assert re.findall(r"^voter +(\d+) ", said, re.MULTILINE) == ["101", "102", "103", "104"]
