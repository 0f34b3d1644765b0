"""The two sides: a pykraft cluster and a JVM Kafka cluster of one shape on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.processes import pss_mb

STOP_TIMEOUT_S = 60.0
# Below pykraft's own free ports (pykraft/ports.py), so that no other cluster takes one meanwhile.
FIRST_PORT, LAST_PORT = 10_000, 12_000
PORTS_PER_CLUSTER = 15


class BenchFailed(Exception):
    """A benchmark can't be taken; says why in one line."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Controllers (0: one combined node) and brokers; the replication factor follows."""

    label: str
    controllers: int
    brokers: int

    @property
    def replicas(self) -> int:
        return min(3, self.brokers)

    @property
    def partitions(self) -> int:
        """A leader on every broker."""
        return self.brokers


ONE = Shape("one node", 0, 1)
SIX = Shape("3+3", 3, 3)


def free_block(taken: int, count: int = PORTS_PER_CLUSTER) -> int:
    """The first of `count` consecutive ports on which nothing listens, not below `taken`."""
    first = max(taken, FIRST_PORT)
    while first + count <= LAST_PORT:
        for port in range(first, first + count):
            with socket.socket() as candidate:
                candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    candidate.bind(("127.0.0.1", port))
                except OSError:
                    first = port + 1
                    break
        else:
            return first
    raise BenchFailed(f"no {count} free ports in a row from {FIRST_PORT} to {LAST_PORT}")


class Servers(Protocol):
    """A cluster that is started once and then loaded."""

    label: str

    def prepare(self) -> str:
        """Whatever isn't part of starting; returns the bootstrap servers that will be."""

    def start(self) -> None:
        """Runs the command that starts the cluster; may return before it serves."""

    def pids(self) -> list[int]:
        """The server processes."""

    def live_mb(self) -> float:
        """The memory that the server processes need now, in MB."""

    def log_directories(self) -> list[Path]:
        """The brokers' data."""

    def halt(self) -> None:
        """Stops every node in order; `start` starts them again with their data."""

    def stop(self) -> None:
        """Ends every process."""


class Pykraft:
    """Started as a user does: `pykraft cluster up`."""

    label = "pykraft"

    def __init__(self, shape: Shape, directory: Path, first_port: int) -> None:
        self._shape, self._directory, self._first_port = shape, directory, first_port
        self._program = str(Path(sys.executable).parent / "pykraft")

    def prepare(self) -> str:
        # The ports of `cluster up --base-port`: a combined node takes four, a broker two.
        step = 4 if self._shape.controllers == 0 else 2
        ports = [self._first_port + step * index for index in range(self._shape.brokers)]
        return ",".join(f"127.0.0.1:{port}" for port in ports)

    def start(self) -> None:
        self._cluster(
            "up",
            "--controllers",
            str(self._shape.controllers),
            "--brokers",
            str(self._shape.brokers),
            "--base-port",
            str(self._first_port),
        )

    def _cluster(self, *words: str) -> str:
        command = [self._program, "cluster", *words, "--dir", str(self._directory)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchFailed(f"pykraft cluster {words[0]}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def _nodes(self) -> list[dict[str, object]]:
        nodes: list[dict[str, object]] = json.loads(self._cluster("status", "--json"))["nodes"]
        return nodes

    def pids(self) -> list[int]:
        pids = [node["pid"] for node in self._nodes()]
        if not all(isinstance(pid, int) for pid in pids):
            raise BenchFailed(f"a pykraft node is not running, see {self._directory}")
        return [pid for pid in pids if isinstance(pid, int)]

    def live_mb(self) -> float:
        return pss_mb(self.pids())

    def log_directories(self) -> list[Path]:
        return sorted(self._directory.glob("nodes/*/data"))

    def halt(self) -> None:
        self.stop()

    def stop(self) -> None:
        if (self._directory / "cluster.json").exists():
            self._cluster("down")


def empty_deleted_topics(servers: Servers) -> None:
    """Takes the space of deleted topics at once.

    Both sides keep a deleted topic's files for a minute; by then the disk would be busy writing
    back what nobody wants, in the middle of somebody's run.
    """
    for directory in servers.log_directories():
        for deleted in list(directory.glob("*-delete")):
            # The server removes them whenever it likes, and has nothing left to be asked then.
            with suppress(FileNotFoundError):
                for file in list(deleted.iterdir()):
                    os.truncate(file, 0)


def end_processes(processes: list[subprocess.Popen[bytes]]) -> None:
    """SIGTERM to all, then SIGKILL to those that stay."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
