"""What another project gets: the wheel in an environment of its own, and its one-line test."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.ci]

ROOT = Path(__file__).resolve().parents[2]
ONE_LINE = """
def test_it(kafka):
    assert kafka.bootstrap_servers.startswith("127.0.0.1:")
"""
WITHOUT_PYTEST = """
import importlib.util, sys
assert importlib.util.find_spec("pytest") is None
from pykraft.testing import Cluster
with Cluster() as cluster:
    print(cluster.create_topic("made"))
assert not {"kio", "grpc", "psutil", "structlog"} & set(sys.modules), "tests stay light"
"""


def command(*words, cwd, timeout_s=600):
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if not name.startswith("PY")},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this tree, built from a copy of it: a build leaves folders behind."""
    place = tmp_path_factory.mktemp("wheel")
    packed = subprocess.run(
        ["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True, timeout=600
    )
    (place / "source").mkdir()
    subprocess.run(
        ["tar", "-x"], cwd=place / "source", input=packed.stdout, check=True, timeout=600
    )
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps")
    command(*pip, "--wheel-dir", place / "wheels", place / "source", cwd=place)
    (built,) = (place / "wheels").glob("pykraft-*.whl")
    return built


@pytest.mark.timeout(1_200)
def test_a_project_of_its_own(wheel, tmp_path):
    """First without pytest, which pykraft doesn't bring; then with it, and no other word said."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = (python, "-m", "pip", "--disable-pip-version-check", "install", "-q")
    install += ("-c", ROOT / "constraints.txt")
    command(*install, wheel, cwd=tmp_path)
    assert command(python, "-c", WITHOUT_PYTEST, cwd=tmp_path) == "made\n"
    command(*install, f"pykraft[testing] @ file://{wheel}", cwd=tmp_path)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "test_it.py").write_text(ONE_LINE)
    told = command(python, "-m", "pytest", "-W", "error", cwd=tmp_path / "project")
    assert "1 passed" in told
    assert "pykraft-" in told  # among the plugins
