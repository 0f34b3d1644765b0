"""The pytest plugin of pykraft.testing, in test runs of their own as another project's would be."""

import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.cluster

PLUGIN = "pykraft.testing.plugin"


@pytest.fixture
def run(tmp_path):
    """Runs pytest on `files` (name: text) with options; returns its exit code and output."""

    def run_files(files, *options, more_plugins=()):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        plugins = [word for name in (PLUGIN, *more_plugins) for word in ("-p", name)]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *plugins, "-p", "no:cacheprovider", "-v", *options],
            cwd=tmp_path,
            # This project's plugins, installed or not, are none of the other's.
            env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run_files


SESSION = """
import asyncio
import pytest


@pytest.fixture(scope="session")
def application(kafka):
    return f"app on {kafka.bootstrap_servers}"


def test_one_line(kafka):
    assert len(kafka.nodes) == 1


def test_records(kafka, kafka_topic):
    from confluent_kafka import Consumer, Producer

    assert kafka_topic.startswith("test_records-")
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    producer = Producer(servers)
    producer.produce(kafka_topic, b"hello")
    assert producer.flush(10) == 0
    consumer = Consumer(servers | {"group.id": kafka_topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([kafka_topic])
    assert consumer.poll(20).value() == b"hello"
    consumer.close()


def test_records_in_a_coroutine(kafka, kafka_topic):
    from aiokafka import AIOKafkaProducer

    async def main():
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            kill = asyncio.to_thread(kafka.pause, 1)
            assert (await producer.send_and_wait(kafka_topic, b"hello")).offset == 0
            await kill

    asyncio.run(main())


def test_what_was_paused_runs_again(kafka, application):
    assert [node["state"] for node in kafka.status()["nodes"]] == ["ready"]
    assert kafka.bootstrap_servers in application


@pytest.mark.kafka(brokers=2, properties={"num.partitions": 2})
class TestMarked:
    def test_of_another_shape(self, kafka, application):
        assert len(kafka.nodes) == 2
        assert kafka.bootstrap_servers in application
        kafka.kill(2)

    def test_shares_it(self, kafka):
        assert [node["state"] for node in kafka.status()["nodes"]] == ["ready", "ready"]


@pytest.mark.parametrize("kafka", [{}, {"brokers": 2, "properties": {"num.partitions": 2}}],
                         indirect=True, ids=["one", "two"])
def test_parametrized(kafka, request):
    assert len(kafka.nodes) == {"one": 1, "two": 2}[request.node.callspec.id]


def test_of_its_own(kafka_cluster_factory, kafka):
    with kafka_cluster_factory(brokers=2) as one:
        two = kafka_cluster_factory()
        assert len({one.cluster_id, two.cluster_id, kafka.cluster_id}) == 3
        assert (len(one.nodes), len(two.nodes)) == (2, 1)


@pytest.mark.kafka
def test_with_a_marker_that_says_nothing(kafka):
    assert len(kafka.nodes) == 1
"""


def test_a_session(run, tmp_path):
    code, output = run({"test_it.py": SESSION}, "-W", "error")
    assert code == 0, output
    assert re.search(r"== 10 passed in", output), output
    assert "TestMarked::test_of_another_shape[2,num.partitions=2] PASSED" in output


def test_inert_until_asked(run):
    text = "import sys\ndef test():\n    assert not {'kio', 'grpc', 'psutil'} & set(sys.modules)\n"
    code, output = run({"test_it.py": text}, "-W", "error")
    assert code == 0, output
    assert "1 passed" in output


FAILING = """
import psutil

def test_that_works(kafka):
    kafka.stop(1)
    kafka.start(1)

def test_that_fails(kafka):
    kafka.stop(1)
    kafka.start(1)
    kafka.pause(1)
    assert kafka.brokers == "what it is not"

def test_where_a_node_dies(kafka):
    node = psutil.Process(kafka.status()["nodes"][0]["pid"])
    node.kill()
    node.wait(120)

def test_that_hears_of_it(kafka):
    pass
"""


@pytest.mark.ci
def test_a_failing_test_shows_its_nodes_and_what_they_logged_meanwhile(run):
    code, output = run({"test_it.py": FAILING})
    assert code == 1, output
    assert "1 failed, 3 passed, 1 warning" in output
    shown = output.partition("Kafka nodes")[2].partition("warnings summary")[0]
    assert re.search(r"node 1 \(broker\+controller\): paused, /.*node\.log", shown), shown
    assert len(re.findall(r"^  [0-9:.]{12} info     ready ", shown, re.MULTILINE)) == 1, shown
    assert re.search(r"node 1 of <Cluster 1: .*> had ended by itself before this test", output)


REFUSED = """
import pytest

def test_that_is_refused(kafka):
    kafka.create_topic("t")
    kafka.create_topic("t")

@pytest.mark.kafka(properties={"log.retention.ms": "soon"})
def test_of_a_cluster_that_does_not_start(kafka):
    pass
"""


def test_a_refusal_is_shown_where_the_test_asked(run):
    code, output = run({"test_it.py": REFUSED})
    assert code == 1, output
    assert "ClusterError: TOPIC_ALREADY_EXISTS: Topic 't' already exists" in output
    assert "Invalid value 'soon' for log.retention.ms" in output
    shown = re.findall(r"^(\S+\.py):\d+: ", output, re.MULTILINE)
    assert [os.path.basename(one) for one in shown] == ["plugin.py", "test_it.py"], output


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        ("brokers=0", "@pytest.mark.kafka: brokers=0: at least 1 is needed"),
        ("3", "takes brokers, controllers, properties, node_properties by name, not positional"),
        ("broker=3", "by name, not broker$"),
        ("properties='a=b'", "@pytest.mark.kafka: properties='a=b': must map names to values"),
    ],
)
def test_a_bad_marker_says_what_is_allowed(run, marked, said):
    text = f"import pytest\n@pytest.mark.kafka({marked})\ndef test(kafka):\n    assert 0\n"
    code, output = run({"test_it.py": text})
    assert code != 0
    assert re.search(said, output, re.MULTILINE), output
    assert "Traceback" not in output


SHAPE = """
def test(kafka):
    assert (len(kafka.brokers), len(kafka.controllers)) == (2, 1)
    topic = kafka.create_topic(partitions=0)
    assert kafka.leader(topic, 3) and kafka.leader(topic, 4)
    assert kafka.shape.properties == {"num.partitions": "5", "log.retention.ms": "7000"}
"""
INI = """
[pytest]
pykraft_brokers = 2
pykraft_controllers = 4
pykraft_properties =
    num.partitions=2
    log.retention.ms = 7000
"""


@pytest.mark.ci
def test_the_shape_is_configured_and_the_command_line_wins(run):
    options = ("--pykraft-controllers", "1", "--pykraft-property", "num.partitions=5")
    code, output = run({"test_it.py": SHAPE, "pytest.ini": INI}, *options)
    assert code == 0, output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--pykraft-brokers", "0"), "brokers=0: at least 1 is needed"),
        (("--pykraft-brokers", "many"), "pykraft_brokers: must be a number"),
        (("-o", "pykraft_controllers=x"), "pykraft_controllers: must be a number"),
        (("--pykraft-property", "a"), "pykraft_properties: 'a' is not NAME=VALUE"),
    ],
)
def test_a_bad_option_says_what_is_allowed(run, options, said):
    code, output = run({"test_it.py": "def test(): pass\n"}, *options)
    assert code == pytest.ExitCode.USAGE_ERROR, output
    assert said in output
    assert "Traceback" not in output


def test_a_projects_own_fixture_and_marker_of_these_names_are_left_alone(run):
    conftest = "import pytest\n@pytest.fixture\ndef kafka():\n    return 'mine'\n"
    text = (
        "import pytest\n@pytest.mark.kafka('slow')\ndef test(kafka):\n    assert kafka == 'mine'\n"
    )
    code, output = run({"conftest.py": conftest, "test_it.py": text}, "--strict-markers")
    assert code == 0, output


WORKERS = """
import pathlib, pytest

@pytest.mark.parametrize("number", range(4))
def test(kafka, kafka_topic, number, worker_id):
    pathlib.Path(f"seen-{worker_id}-{kafka.cluster_id}").touch()
    kafka.kill(1)
"""


@pytest.mark.ci
def test_each_worker_of_xdist_has_its_own_cluster(run, tmp_path):
    code, output = run({"test_it.py": WORKERS}, "-n", "2", more_plugins=("xdist",))
    assert code == 0, output
    workers, clusters = zip(
        *(path.name.split("-", 2)[1:] for path in tmp_path.glob("seen-*")), strict=True
    )
    assert sorted(workers) == ["gw0", "gw1"]
    assert len(set(clusters)) == 2
