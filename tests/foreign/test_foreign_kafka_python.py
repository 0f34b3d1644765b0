"""kafka-python's own integration tests, unchanged, against a cluster of one node.

What failed is asked once more: their limits are for a machine that has nothing else to do. A
warning tells.
"""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from foreign_suites import Verdict, asked, complaints, left_out, python_source

from pykraft.testing import Cluster

SUITE = "kafka_python"
RUN_S = 900
# What its tests presume of a broker: sessions of 3 s, topics of four partitions, groups at once.
PROPERTIES = {
    "num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
}
pytestmark = [pytest.mark.clients, pytest.mark.ci, pytest.mark.timeout(RUN_S + 300)]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What the suite tells, test -> verdict, None for one that wasn't run."""
    source, scratch = python_source("kafka-python"), tmp_path_factory.mktemp(SUITE)
    with Cluster(properties=PROPERTIES) as cluster:
        verdicts = _told(source, scratch, cluster, asked(SUITE))
        failed = [name for name, told in verdicts.items() if told and told.outcome == "failed"]
        for name in failed:
            warnings.warn(f"{name} is asked again: {verdicts[name].reason[:500]}", stacklevel=1)
        if failed:
            again = _told(source, tmp_path_factory.mktemp(SUITE), cluster, failed)
            verdicts |= {name: again[name] for name in failed}
    return verdicts


def _told(source, scratch, cluster, names):
    (scratch / "allowed").write_text("\n".join(names))
    _run(source, scratch, cluster)
    verdicts = {}
    for line in (scratch / "report").read_text().splitlines():
        test, *verdict = json.loads(line)
        # A test that passed may still fail when its fixtures end, which is told later.
        verdicts[test] = Verdict(*verdict) if verdict else verdicts.get(test)
    return verdicts


def _run(source, scratch, cluster):
    address = cluster.bootstrap_servers
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).resolve().parent),
        "FOREIGN_SOURCE": str(source),
        "FOREIGN_ALLOWED": str(scratch / "allowed"),
        "FOREIGN_REPORT": str(scratch / "report"),
        "KAFKA_URI": f"kafka://{address}",
        # The release whose protocol its client finds here.
        "KAFKA_VERSION": "4.2.0",
        # Must be a folder; nothing in it is used.
        "KAFKA_ROOT": str(scratch),
    }
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "kafka_python_plugin"]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "--timeout=600"]
    command += ["--rootdir", str(source), "test/integration"]
    with (scratch / "output").open("w") as output:
        done = subprocess.run(
            command,
            cwd=source,
            env=environment,
            stdout=output,
            stderr=output,
            timeout=RUN_S,
            check=False,
        )
    # 0: all passed, 1: some failed, which each test says for itself.
    assert done.returncode in (0, 1), (scratch / "output").read_text()[-3000:]


def test_every_test_of_the_suite_is_on_one_list(told):
    assert not complaints(SUITE, told), f"{len(left_out(SUITE))} are left out"


@pytest.mark.parametrize("name", asked(SUITE))
def test_kafka_python(told, name):
    verdict = told.get(name)
    assert verdict is not None, "it did not run"
    assert verdict.outcome == "passed", verdict.reason
