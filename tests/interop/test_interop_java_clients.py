"""The Java client and Kafka's command line tools on pykraft, in processes of their own."""

import os
import subprocess

import kafka_jvm
import pytest
import traffic

pytestmark = pytest.mark.interop

COUNT = 50_000 if os.environ.get("CI") == "true" else 20_000
TOOLS = "org.apache.kafka.tools"


def create(cluster, name, partitions=3):
    with cluster.admin() as admin:
        admin.create_topic(name, partitions, 3)


@pytest.mark.parametrize(
    "version",
    [kafka_jvm.NEWEST_VERSION, pytest.param(kafka_jvm.DEFAULT_VERSION, marks=pytest.mark.ci)],
)
def test_java_client_with_default_settings(shared_cluster, version):
    topic = f"java-{version}"
    create(shared_cluster, topic)
    arguments = [shared_cluster.bootstrap, topic, "3", str(COUNT)]
    path = kafka_jvm.compiled("StockClient", version)
    assert kafka_jvm.run_java("StockClient", arguments, path) == f"wrote and read {COUNT}\n"


@pytest.mark.ci
def test_console_producer_and_consumer(shared_cluster):
    create(shared_cluster, "console", 1)
    path = kafka_jvm.classpath()
    text = "".join(traffic.value(i).decode() + "\n" for i in range(COUNT))
    options = ["--bootstrap-server", shared_cluster.bootstrap, "--topic", "console"]
    done = subprocess.run(
        [
            kafka_jvm.java(),
            *kafka_jvm.JVM_OPTIONS,
            "-cp",
            path,
            f"{TOOLS}.ConsoleProducer",
            *options,
        ],
        input=text,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    options += ["--partition", "0", "--offset", "earliest", "--max-messages", str(COUNT)]
    options += ["--timeout-ms", "20000"]
    assert kafka_jvm.run_java(f"{TOOLS}.consumer.ConsoleConsumer", options, path) == text
