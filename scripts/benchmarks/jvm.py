"""Apache Kafka on the JVM: the release that the interop tests use, run as its own scripts do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.servers import BenchFailed, Shape, end_processes
from pykraft.node_files import new_cluster_id

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "interop"))

import kafka_jvm  # noqa: E402

VERSION = kafka_jvm.DEFAULT_VERSION
# What bin/kafka-server-start.sh and kafka-run-class.sh of the release pass by default.
HEAP = ("-Xmx1G", "-Xms1G")
OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)


def classpath() -> str:
    """The release's jars; BenchFailed where Java, Maven or the artifacts are missing."""
    try:
        kafka_jvm.java()
        return kafka_jvm.classpath(VERSION)
    except (pytest.skip.Exception, pytest.fail.Exception) as reason:
        raise BenchFailed(f"--vs kafka: {reason}") from None


def command() -> list[str]:
    """The JVM as the release's scripts run it, without a heap size: a main class comes next."""
    return [kafka_jvm.java(), *OPTIONS, "-cp", classpath()]


class JvmKafka:
    """A KRaft cluster of static voters, every setting that isn't an address at its default."""

    label = f"JVM Kafka {VERSION}"

    def __init__(self, shape: Shape, directory: Path, first_port: int) -> None:
        self._shape, self._directory, self._first_port = shape, directory, first_port
        self._classpath = classpath()
        self._processes: list[subprocess.Popen[bytes]] = []

    def _nodes(self) -> list[tuple[int, str, int, int | None, int | None]]:
        """(id, roles, index, broker port, controller port), ports from `first_port` on."""
        brokers, controllers = self._shape.brokers, self._shape.controllers
        if controllers == 0:
            first = self._first_port
            return [
                (i + 1, "broker,controller", i, first + 2 * i, first + 2 * i + 1)
                for i in range(brokers)
            ]
        own = [(i + 1, "broker", i, self._first_port + i, None) for i in range(brokers)]
        ports = [self._first_port + brokers + i for i in range(controllers)]
        return own + [(101 + i, "controller", i, None, port) for i, port in enumerate(ports)]

    def prepare(self) -> str:
        """Writes and formats the directories: Kafka's user does so before the first start."""
        cluster_id = new_cluster_id()
        nodes = self._nodes()
        voters = ",".join(f"{id_}@127.0.0.1:{port}" for id_, _, _, _, port in nodes if port)
        formats = []
        for id_, roles, _, broker, controller in nodes:
            directory = self._directory / str(id_)
            directory.mkdir(parents=True)
            listeners = [f"PLAINTEXT://127.0.0.1:{broker}"] if broker else []
            listeners += [f"CONTROLLER://127.0.0.1:{controller}"] if controller else []
            lines = [
                f"process.roles={roles}",
                f"node.id={id_}",
                f"controller.quorum.voters={voters}",
                "controller.listener.names=CONTROLLER",
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                f"listeners={','.join(listeners)}",
                f"log.dirs={directory / 'data'}",
                f"offsets.topic.replication.factor={self._shape.replicas}",
                f"transaction.state.log.replication.factor={self._shape.replicas}",
            ]
            properties = directory / "server.properties"
            properties.write_text("\n".join(lines) + "\n")
            words = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)]
            formats.append((id_, self._java(words, directory, ())))
        for id_, process in formats:
            if process.wait(120) != 0:
                log = (self._directory / str(id_) / "out.log").read_text()
                raise BenchFailed(f"JVM Kafka's format failed: {log[-500:]}")
        return ",".join(f"127.0.0.1:{port}" for _, _, _, port, _ in nodes if port)

    def _java(
        self, words: list[str], directory: Path, heap: tuple[str, ...]
    ) -> subprocess.Popen[bytes]:
        with (directory / "out.log").open("ab") as output:
            return subprocess.Popen(
                [kafka_jvm.java(), *heap, *OPTIONS, "-cp", self._classpath, *words],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def start(self) -> None:
        for id_, *_ in self._nodes():
            directory = self._directory / str(id_)
            self._processes.append(
                self._java(["kafka.Kafka", "server.properties"], directory, HEAP)
            )

    def pids(self) -> list[int]:
        for process in self._processes:
            if process.poll() is not None:
                raise BenchFailed(f"a JVM Kafka node ended, see {self._directory}")
        return [process.pid for process in self._processes]

    def log_directories(self) -> list[Path]:
        return sorted(self._directory.glob("*/data"))

    def live_mb(self) -> float:
        """What is reachable on the heaps: the rest of a heap is garbage, or not used yet."""
        tool = Path(kafka_jvm.java()).with_name("jcmd")
        total = 0
        for pid in self.pids():
            command = [str(tool), str(pid), "GC.class_histogram"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            words = done.stdout.split()[-3:]
            if done.returncode != 0 or words[0] != "Total":
                raise BenchFailed(f"{tool} {pid}: {done.stderr.strip()[-300:]}")
            total += int(words[2])
        return total / 1e6

    def halt(self) -> None:
        end_processes(self._processes)
        self._processes = []

    def stop(self) -> None:
        # SIGKILL: a controlled shutdown of a cluster whose controllers go too takes its time-out.
        for process in self._processes:
            process.kill()
        end_processes(self._processes)
        self._processes = []
