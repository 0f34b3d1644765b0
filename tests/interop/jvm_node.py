"""A JVM Kafka node with both roles, for tests: formatted, started, awaited, always ended by pid."""

import re
import subprocess
from contextlib import contextmanager
from pathlib import Path

import kafka_jvm
from confluent_kafka.admin import AdminClient
from waiting import wait_until

from pykraft.ports import free_ports

JVM_OPTIONS = [
    "-Xmx512m",
    "-Xshare:auto",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server=info",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
]
# Who speaks of what is on the disk.
READERS = re.compile(
    r"storage\.|LogManager|LogLoader|KafkaMetadataLog|KafkaRaftLog|[Ss]napshot|Loader|Checkpoint|meta\."
)
STOP_TIMEOUT_S = 120


def combined_properties(directory, node_id=1, **more):
    """Properties of a node with both roles on free ports of this machine."""
    broker, controller = free_ports(2)
    return {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"{node_id}@127.0.0.1:{controller}",
        "log.dirs": Path(directory) / "data",
        "offsets.topic.replication.factor": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def write_properties(path, values):
    """Writes a properties file; returns its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return path


def read_properties(path):
    """The values of a properties file without escapes or continuation lines."""
    lines = [line for line in Path(path).read_text().splitlines() if "=" in line]
    values = (line.partition("=") for line in lines if not line.startswith("#"))
    return {name: value.replace("\\:", ":") for name, _, value in values}


def format_directory(config, cluster_id, version=kafka_jvm.DEFAULT_VERSION, **features):
    """What `kafka-storage format` does: metadata.version 4.0-IV3, every other feature at 0, but for
    those that are given (`group_version=1`)."""
    arguments = ["format", "--config", str(config), "--cluster-id", cluster_id]
    arguments += ["--release-version", "4.0-IV3"]
    for feature in ("eligible.leader.replicas.version", "group.version", "transaction.version"):
        level = features.pop(feature.replace(".", "_"), 0)
        arguments += ["--feature", f"{feature}={level}"]
    assert not features
    kafka_jvm.run_java("kafka.tools.StorageTool", arguments, kafka_jvm.classpath(version))


class JvmNode:
    """A running node. `bootstrap` is its address for clients, `complaints` what it logged."""

    def __init__(self, config, log, version):
        values = read_properties(config)
        listeners = (one.split("://") for one in values["listeners"].split(","))
        self.bootstrap = dict(listeners)["PLAINTEXT"]
        self.log = Path(log)
        path = kafka_jvm.classpath(version)
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [kafka_jvm.java(), *JVM_OPTIONS, "-cp", path, "kafka.Kafka", str(config)],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )

    def wait_ready(self, timeout_s=60):
        """Returns when clients are told of this broker: it is registered and unfenced."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "logger": _quiet})

        def served():
            assert self.process.poll() is None, f"JVM Kafka ended:\n{self.tail()}"
            try:
                return admin.list_topics(timeout=1).brokers
            except Exception as error:  # noqa: BLE001 any failure means: not yet
                return not error

        try:
            wait_until(served, f"JVM Kafka on {self.bootstrap} serves", timeout_s, 0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.tail()}") from None

    def tail(self, lines=60):
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def complaints(self):
        """Warnings and errors of what reads the disk.

        Not of partition directories on their way out: they have no index any more, and the node
        rebuilds it before it deletes them.
        """
        lines = self.log.read_text(errors="replace").splitlines()
        loud = [line for line in lines if re.match("(WARN|ERROR|FATAL) ", line)]
        return [
            line for line in loud if READERS.search(line.split(" - ")[0]) and "-delete/" not in line
        ]

    def stop(self):
        """A controlled shutdown, then, if it takes too long, the end."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(120)
                raise AssertionError(f"JVM Kafka would not stop:\n{self.tail()}") from None


@contextmanager
def jvm_node(config, *, version=kafka_jvm.DEFAULT_VERSION):
    """A JVM node on a formatted directory, ready for clients; stopped on leaving."""
    node = JvmNode(config, Path(config).with_suffix(".jvm.log"), version)
    try:
        node.wait_ready()
        yield node
    finally:
        node.stop()


def _quiet_logger():
    import logging

    logger = logging.getLogger("quiet-librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


_quiet = _quiet_logger()
