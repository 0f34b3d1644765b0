"""librdkafka's own tests, unchanged, against clusters of three nodes.

Its test-runner is built once from Debian's source package and kept in the tests' cache. Each entry
of the list is a process of its own, some at a time: most of what they do is wait. What failed is
asked once more, alone: its limits are for a machine that has nothing else to do. A warning tells.
The lists name its tests, or `TEST(PART)` for those of its subtests whose name contains PART.
"""

import json
import os
import queue
import re
import shutil
import subprocess
import threading
import warnings
from contextlib import ExitStack

import pytest
from foreign_suites import (
    Verdict,
    asked,
    complaints,
    debian_source,
    folder,
    left_out,
    run,
    without_part,
)
from kafka_jvm import classpath, java, skip_or_fail

from pykraft.testing import Cluster

SUITE = "librdkafka"
PACKAGE, RELEASE = "librdkafka", "2.0.2-1"
# The last broker release that the suite knows.
BROKER_VERSION = "3.1.0.0"
BUILD_S = 1500
TEST_S = 300
AT_ONCE = 4
# What the suite's own scenarios ask of a cluster.
PROPERTIES = {
    "num.partitions": 4,
    "default.replication.factor": 3,
    # Kafka's default: some tests count the rebalances of members that come together.
    "group.initial.rebalance.delay.ms": 3000,
}
# Tests of its scenario without automatic creation of topics; all others have it.
NO_AUTO_CREATE = (
    "0045_subscribe_update_topic_remove",
    "0045_subscribe_update_non_exist_and_partchange",
    "0107_topic_recreate",
    "0111_delay_create_topics",
)
PATIENCE = 4  # times the suite's own limits
pytestmark = [pytest.mark.clients, pytest.mark.ci, pytest.mark.timeout(BUILD_S + 1800)]


def _runner():
    """The test-runner's folder, fetched and built if it isn't there."""
    place = folder(f"{PACKAGE}-{RELEASE}")
    if (place / "built").exists():
        return place / "tests"
    for tool in ("apt-get", "gcc", "g++", "make"):
        if shutil.which(tool) is None:
            skip_or_fail(f"librdkafka's tests need {tool}, which is not installed")
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.is_dir():
        debian_source(PACKAGE, RELEASE, place)
    options = ["ssl", "gssapi", "curl", "optimization", "debug-symbols"]
    what = f"{PACKAGE} {RELEASE} can't be built"
    run(["./configure", *(f"--disable-{option}" for option in options)], place, what)
    for part, target in (("src", "lib"), ("src-cpp", "lib"), ("tests", "test-runner")):
        run(["make", "-j2", "-C", part, target], place, what, BUILD_S)
    (place / "built").touch()
    return place / "tests"


class Suite:
    """One run of it: what it told, test -> verdict; None for one that wasn't asked."""

    def __init__(self, runner, scratch):
        self.runner, self.scratch = runner, scratch
        self.told = {}
        (scratch / "bin").mkdir()
        # Some tests call this tool of Kafka's, under this name.
        script = scratch / "bin" / "kafka-topics.sh"
        tool = "org.apache.kafka.tools.TopicCommand"
        options = "-Xshare:auto -XX:TieredStopAtLevel=1"
        script.write_text(f'#!/bin/sh\nexec {java()} {options} -cp "{classpath()}" {tool} "$@"\n')
        script.chmod(0o755)

    def ask(self, names, clusters):
        """Runs the entries of the list, and again those that failed."""
        self._ask(names, clusters, AT_ONCE)
        failed = [name for name in names if self.told[name].outcome == "failed"]
        for name in failed:
            warnings.warn(f"{name} is asked again: {self.told[name].reason}", stacklevel=1)
        self._ask(failed, clusters, 1)

    def _ask(self, names, clusters, at_once):
        waiting = queue.SimpleQueue()
        for name in names:
            waiting.put(name)
        workers = [
            threading.Thread(target=self._work, args=(waiting, clusters)) for _ in range(at_once)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def _work(self, waiting, clusters):
        while True:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            test = without_part(name)
            scenario = "noautocreate" if test in NO_AUTO_CREATE else "default"
            self.told[name] = self._run(name, scenario, clusters[scenario].bootstrap_servers)

    def _run(self, name, scenario, address):
        test = without_part(name)
        place = self.scratch / re.sub(r"\W+", "-", name)
        if place.exists():
            place = place.with_suffix(".again")
        place.mkdir()
        settings = {
            "bootstrap.servers": address,
            "test.timeout.multiplier": PATIENCE,
            # The library's own seed is one of 1,000, and topics are named by chance.
            "enable.random.seed": "false",
        }
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        (place / "test.conf").write_text("".join(lines))
        environment = {
            **{key: value for key, value in os.environ.items() if key != "CI"},
            "LD_LIBRARY_PATH": f"{self.runner.parent / 'src'}:{self.runner.parent / 'src-cpp'}",
            "RDKAFKA_TEST_CONF": str(place / "test.conf"),
            "TEST_REPORT": str(place / "report"),
            "TEST_SCENARIO": scenario,
            "TEST_KAFKA_VERSION": BROKER_VERSION,
            # It runs what begins with this number.
            "TESTS": test[:4],
            "KAFKA_PATH": str(self.scratch),
            "BROKERS": address,
        }
        if name != test:
            environment["SUBTESTS"] = name[len(test) + 1 : -1]
        with (place / "output").open("w") as output:
            try:
                subprocess.run(
                    # One at a time, and none of those that need no broker.
                    [str(self.runner / "test-runner"), "-p1", "-L"],
                    cwd=place,
                    env=environment,
                    stdout=output,
                    stderr=output,
                    timeout=TEST_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return Verdict("failed", f"not done after {TEST_S} s: {_end(place)}")
        return self._verdict(name, test, place)

    def _verdict(self, name, test, place):
        # The report alone is not enough: a runner that a thread of the library outlives fails.
        if "ALL TESTS PASSED" not in _output(place):
            return Verdict("failed", _end(place))
        tests = json.loads((place / "report").read_text())["tests"]
        for one in tests:
            self.told.setdefault(one, None)
        if name != test and ": PASS" not in _output(place):
            return Verdict("skipped", "it has no such subtest")
        return Verdict(tests[test]["state"].lower(), _end(place))


def _output(place):
    return re.sub(r"\x1b\[[0-9;]*m", "", (place / "output").read_text(errors="replace"))


def _end(place):
    """What the runner complains of, or else its last lines."""
    lines = [line[:300] for line in _output(place).splitlines()]
    bad = [i for i, line in enumerate(lines) if line.startswith("### Test")]
    return "\n".join("\n".join(lines[i : i + 2]) for i in bad[:3]) or "\n".join(lines[-30:])


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What the suite tells, test -> verdict, None for one that wasn't run."""
    suite = Suite(_runner(), tmp_path_factory.mktemp(SUITE))
    names = asked(SUITE)
    with ExitStack() as stack:
        clusters = {"default": stack.enter_context(Cluster(brokers=3, properties=PROPERTIES))}
        if any(without_part(name) in NO_AUTO_CREATE for name in names):
            settings = {**PROPERTIES, "auto.create.topics.enable": "false"}
            cluster = Cluster(brokers=3, properties=settings)
            clusters["noautocreate"] = stack.enter_context(cluster)
        suite.ask(names, clusters)
    return suite.told


def test_every_test_of_the_suite_is_on_one_list(told):
    tests = {without_part(name) for name in told if name != "<MAIN>"}
    assert not complaints(SUITE, tests), f"{len(left_out(SUITE))} are left out"


@pytest.mark.parametrize("name", asked(SUITE))
def test_librdkafka(told, name):
    verdict = told[name]
    assert verdict.outcome == "passed", verdict.reason
