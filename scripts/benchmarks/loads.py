"""One run of load on one side: its topic, its warm memory, the client process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.processes import resident_file
from benchmarks.servers import BenchFailed, Servers, Shape, empty_deleted_topics

HERE = Path(__file__).resolve().parent
RECORD_BYTES = 1024
CALL_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Side:
    """A running cluster under load."""

    servers: Servers
    shape: Shape
    bootstrap: str
    scratch: Path

    def make_topic(self, name: str, partitions: int) -> AdminClient:
        """A topic that stays; returns the client that made it."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})
        new = NewTopic(name, num_partitions=partitions, replication_factor=self.shape.replicas)
        _result(admin.create_topics([new], request_timeout=CALL_TIMEOUT_S)[name])
        return admin

    @contextmanager
    def topic(self, name: str, partitions: int) -> Iterator[str]:
        """A fresh topic, replicated as the shape allows; deleted afterwards, its space freed."""
        admin = self.make_topic(name, partitions)
        try:
            yield name
        finally:
            _result(admin.delete_topics([name], request_timeout=CALL_TIMEOUT_S)[name])
            self._wait_deleted(name)
            empty_deleted_topics(self.servers)

    def _wait_deleted(self, name: str) -> None:
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while any(
            entry.name.rpartition("-")[0] == name
            for directory in self.servers.log_directories()
            for entry in directory.iterdir()
        ):
            if time.monotonic() > deadline:
                raise BenchFailed(f"{self.servers.label}: topic {name} is still on disk")
            time.sleep(0.05)

    @contextmanager
    def balloon(self, size: int) -> Iterator[str]:
        """A resident file that the load shrinks while it writes (see load.Balloon)."""
        path = self.scratch / "balloon"
        resident_file(path, size)
        try:
            yield str(path)
        finally:
            path.unlink()

    def run(self, kind: str, topic: str, partitions: int, **more: Any) -> dict[str, Any]:
        """Runs the client; returns its figures."""
        settings = {"bootstrap.servers": self.bootstrap, **more.pop("settings", {})}
        job = {
            "kind": kind,
            "topic": topic,
            "partitions": partitions,
            "record_bytes": RECORD_BYTES,
            "replicas": self.shape.replicas,
            "pids": self.servers.pids(),
            "settings": settings,
            **more,
        }
        return run_child("load.py", job)

    def produce(
        self, topic: str, partitions: int, records: int, settings: dict[str, Any]
    ) -> dict[str, Any]:
        """Produces with warm memory for every replica."""
        with self.balloon(records * RECORD_BYTES * self.shape.replicas) as path:
            return self.run(
                "produce", topic, partitions, records=records, settings=settings, balloon=path
            )


def run_child(script: str, job: dict[str, Any]) -> dict[str, Any]:
    """A script of this folder in its own process; its JSON."""
    command = [sys.executable, "-I", str(HERE / script), json.dumps(job)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise BenchFailed(done.stderr.strip()[-800:])
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


@contextmanager
def held_child(script: str, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Such a script that prints its figures, and then goes on until its input ends."""
    command = [sys.executable, "-I", str(HERE / script), json.dumps(job)]
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        with child:
            assert child.stdout is not None
            figures = child.stdout.readline()
            if figures:
                yield json.loads(figures)
            child.communicate()
        if not figures or child.returncode != 0:
            errors.seek(0)
            raise BenchFailed(errors.read().strip()[-800:])


def _result(future: Any) -> None:
    try:
        future.result()
    except KafkaException as error:
        raise BenchFailed(str(error)) from None
