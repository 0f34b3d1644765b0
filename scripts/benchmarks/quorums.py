"""Controllers without brokers: pykraft's and JVM Kafka's, started from the same properties."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import calls
from benchmarks.servers import BenchFailed
from pykraft.node_files import new_cluster_id
from wire.errors import DecodeError

START_TIMEOUT_S = 120.0
FIRST_ID = 101
RELEASE = "4.0-IV3"
# The broker on paper sends one heartbeat, and the session outlasts every run.
SESSION_MS = 3_600_000


class Quorum:
    """Controllers in processes of their own, by id. `hosts` are their addresses, 127.0.0.1 by
    default; `within` puts a command of a node into its network, as it is by default."""

    label = ""

    def __init__(
        self,
        directory: Path,
        first_port: int,
        *,
        count: int = 3,
        settings: Mapping[str, object] | None = None,
        hosts: Sequence[str] | None = None,
        within: Callable[[int, list[str]], list[str]] | None = None,
    ) -> None:
        self.directory = directory
        self.cluster_id = new_cluster_id()
        self._within = within or (lambda _, command: command)
        self._settings = dict(settings or {})
        places = list(hosts or ["127.0.0.1"] * count)
        self.addresses = {
            FIRST_ID + index: f"{host}:{first_port + index}" for index, host in enumerate(places)
        }
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def node_directory(self, node_id: int) -> Path:
        """Where properties, output and data of a node are."""
        return self.directory / str(node_id)

    def metadata_directory(self, node_id: int) -> Path:
        """Where its metadata log is."""
        return self.node_directory(node_id) / "data" / "__cluster_metadata-0"

    def prepare(self) -> None:
        """Writes the properties and formats the directories."""
        formats = []
        for node_id in self.addresses:
            directory = self.node_directory(node_id)
            directory.mkdir(parents=True)
            self._write_properties(node_id, "controller", [])
            formats.append((node_id, self._run(node_id, self._format_words())))
        for node_id, process in formats:
            if process.wait(START_TIMEOUT_S) != 0:
                raise BenchFailed(f"{self.label}: formatting failed: {self.tail(node_id)}")

    def _write_properties(self, node_id: int, role: str, more: list[str]) -> None:
        directory = self.node_directory(node_id)
        voters = ",".join(f"{id_}@{address}" for id_, address in self.addresses.items())
        lines = [
            f"process.roles={role}",
            f"node.id={node_id}",
            f"controller.quorum.voters={voters}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            f"log.dirs={directory / 'data'}",
            f"broker.session.timeout.ms={SESSION_MS}",
            *more,
            *(f"{name}={value}" for name, value in self._settings.items()),
        ]
        if role == "controller":
            lines.append(f"listeners=CONTROLLER://{self.addresses[node_id]}")
        (directory / "server.properties").write_text("\n".join(lines) + "\n")

    def add_broker(self, node_id: int, address: str) -> None:
        """A broker's directory, formatted; `start` starts it too from now on."""
        self.node_directory(node_id).mkdir()
        self._write_properties(node_id, "broker", [f"listeners=PLAINTEXT://{address}"])
        if self._run(node_id, self._format_words()).wait(START_TIMEOUT_S) != 0:
            raise BenchFailed(f"{self.label}: formatting failed: {self.tail(node_id)}")

    def _format_words(self) -> list[str]:
        raise NotImplementedError

    def _start_words(self) -> list[str]:
        raise NotImplementedError

    def _run(self, node_id: int, words: list[str]) -> subprocess.Popen[bytes]:
        """Runs a command in a node's directory, its output in the node's log."""
        directory = self.node_directory(node_id)
        with (directory / "out.log").open("ab") as output:
            return subprocess.Popen(
                self._within(node_id, words),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def tail(self, node_id: int) -> str:
        """The end of what a node wrote."""
        return (self.node_directory(node_id) / "out.log").read_text(errors="replace")[-500:]

    def start(self, *ids: int) -> None:
        """Starts these nodes, all controllers by default; doesn't wait for them."""
        for node_id in ids or self.addresses:
            self.processes[node_id] = self._run(node_id, self._start_words())

    def pids(self) -> list[int]:
        """The processes; BenchFailed where one has ended."""
        for node_id, process in self.processes.items():
            if process.poll() is not None:
                raise BenchFailed(f"{self.label}: node {node_id} ended: {self.tail(node_id)}")
        return [process.pid for process in self.processes.values()]

    def signal(self, node_id: int, number: int) -> None:
        """Sends a signal to a node."""
        os.kill(self.processes[node_id].pid, number)

    def leader(self, timeout_s: float = START_TIMEOUT_S) -> int:
        """The id of the active controller, once all controllers answer and follow it closely."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self._settled_leader()
            if found is not None:
                return found
            self.pids()
            if time.monotonic() > deadline:
                raise BenchFailed(f"{self.label}: no leader in {timeout_s:.0f} s")
            time.sleep(calls.PAUSE_S)

    def _settled_leader(self) -> int | None:
        leader = None
        for node_id, address in self.addresses.items():
            try:
                with calls.Caller(address, 1.0) as caller:
                    quorum = calls.quorum_of(caller)
            except (OSError, DecodeError):
                return None
            if quorum is not None and self._all_follow(quorum):
                leader = node_id
        return leader

    def _all_follow(self, quorum: Any) -> bool:
        """Whether every voter's log goes as far as the high watermark did when this was said."""
        running = [id_ for id_, one in self.processes.items() if one.poll() is None]
        behind = [
            voter.replica_id
            for voter in quorum.current_voters
            if voter.log_end_offset < quorum.high_watermark
        ]
        return quorum.high_watermark > 0 and not any(id_ in behind for id_ in running)

    def settle(self) -> int:
        """Waits for a leader and gives it a broker on paper; the leader's id."""
        leader = self.leader()
        with calls.Caller(self.addresses[leader]) as caller:
            calls.register_paper_broker(caller, self.cluster_id)
        return leader

    def stop(self) -> None:
        """Ends every process."""
        kill_all(list(self.processes.values()))
        self.processes.clear()


def kill_all(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """SIGKILL, which a stopped process takes too: nobody needs what these have on disk."""
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


class PykraftQuorum(Quorum):
    """`pykraft server` on each properties file."""

    label = "pykraft"
    _program = str(Path(sys.executable).parent / "pykraft")

    def _format_words(self) -> list[str]:
        words = ["storage", "format", "--config", "server.properties"]
        return [
            self._program,
            *words,
            "--cluster-id",
            self.cluster_id,
            "--release-version",
            RELEASE,
        ]

    def _start_words(self) -> list[str]:
        return [self._program, "server", "server.properties"]


class JvmQuorum(Quorum):
    """`kafka-server-start.sh`'s JVM on each."""

    def __init__(self, directory: Path, first_port: int, **more: Any) -> None:
        from benchmarks import jvm

        super().__init__(directory, first_port, **more)
        self.label = f"JVM Kafka {jvm.VERSION}"
        self._java = jvm.command()
        self._heap = list(jvm.HEAP)

    def _format_words(self) -> list[str]:
        words = ["kafka.tools.StorageTool", "format", "-c", "server.properties"]
        # As pykraft formats: what isn't finalised there isn't here.
        off = ("eligible.leader.replicas.version", "group.version", "transaction.version")
        features = [word for name in off for word in ("--feature", f"{name}=0")]
        release = ["--release-version", RELEASE]
        return [*self._java, *words, "-t", self.cluster_id, *release, *features]

    def _start_words(self) -> list[str]:
        return [self._java[0], *self._heap, *self._java[1:], "kafka.Kafka", "server.properties"]
