"""The load of one run, in a process of its own: `load.py '{"kind": "produce", …}'`, JSON on stdout.

Its own process, so that every run starts with the same client, and the client's CPU time is not
the servers'. It samples the servers' CPU time itself, around exactly what it times.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import stats
from benchmarks.processes import cpu_seconds
from benchmarks.rdkafka import BATCH, Consuming, LoadFailed, Producing

RUN_TIMEOUT_S = 300.0
WARM_UP_RECORDS = 100
CATCH_UP_S = 60.0
# Consuming is timed from here on: connections are made and fetch sessions are under way.
CONSUME_WARM_UP = 0.05
RELEASE_BYTES = 8 << 20

QUIET = {"log_level": 3, "socket.timeout.ms": 20_000, "broker.address.family": "v4"}
PRODUCER = {
    "linger.ms": 5,
    "compression.type": "none",
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 1_048_576,
    "delivery.report.only.error": "true",
}
CONSUMER = {
    "group.id": "bench",
    # Without these librdkafka stops fetching for a second whenever 100,000 records are queued.
    "fetch.queue.backoff.ms": 1,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1_048_576,
    "check.crcs": "false",
}


def _client_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Measured:
    """The servers' CPU time of the block; wall time and the client's CPU time up to `done()`."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self.figures: dict[str, float] = {}

    def __enter__(self) -> Measured:
        self._servers, self._client = cpu_seconds(self._pids), _client_cpu()
        self._begun = time.perf_counter()
        return self

    def done(self) -> None:
        self.figures["seconds"] = time.perf_counter() - self._begun
        self.figures["client_cpu_s"] = _client_cpu() - self._client

    def __exit__(self, *_: object) -> None:
        self.figures["server_cpu_s"] = cpu_seconds(self._pids) - self._servers


class Balloon:
    """Gives memory back to the machine in step with what the servers write.

    A virtual machine's free pages may lie with its host: the first touch of one costs a hundred
    times a later touch, whoever runs then pays, and no server is to blame. The balloon is a file
    of the run's size, resident; shrunk while the servers' logs grow, it hands them warm pages.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._size = os.path.getsize(path) if path else 0
        self._owed = 0

    def release(self, count: int) -> None:
        self._owed += count
        if self._path and self._owed >= RELEASE_BYTES:
            self._size = max(0, self._size - self._owed)
            os.truncate(self._path, self._size)
            self._owed = 0


def produce(job: dict[str, Any]) -> dict[str, Any]:
    """`records` of `record_bytes` round-robin over the partitions; all must be acknowledged."""
    settings = {**QUIET, **PRODUCER, **job["settings"]}
    client = Producing(settings, job["topic"], job["record_bytes"])
    partitions, records = job["partitions"], job["records"]
    for partition in range(partitions):
        client.enqueue(partition, WARM_UP_RECORDS)
    client.flush(RUN_TIMEOUT_S)
    _wait_replicated(client, partitions, WARM_UP_RECORDS * partitions)
    balloon = Balloon(job.get("balloon"))
    with Measured(job["pids"]) as measured:
        left, turn = records, 0
        while left > 0:
            count = min(BATCH, left)
            client.enqueue(turn % partitions, count)
            balloon.release(count * job["record_bytes"] * job["replicas"])
            left, turn = left - count, turn + 1
        client.flush(RUN_TIMEOUT_S)
        measured.done()
        # At acks=1 followers are behind now; the CPU time of what they owe belongs to the run.
        _wait_replicated(client, partitions, WARM_UP_RECORDS * partitions + records)
    return {**measured.figures, "bytes": records * job["record_bytes"]}


def _wait_replicated(client: Producing, partitions: int, records: int) -> None:
    """Returns when all in-sync replicas have every record, exactly so many of them."""
    deadline = time.monotonic() + CATCH_UP_S
    while True:
        arrived = sum(client.end_offset(partition) for partition in range(partitions))
        if arrived == records:
            return
        if arrived > records or time.monotonic() > deadline:
            raise LoadFailed(f"{records} records were acknowledged, {arrived} are in the topic")
        time.sleep(0.02)


def fetch(job: dict[str, Any]) -> dict[str, Any]:
    """Every record of the topic, from the beginning, all partitions at once."""
    client = Consuming({**QUIET, **CONSUMER, **job["settings"]}, job["topic"])
    records = sum(client.end_offset(partition) for partition in range(job["partitions"]))
    taken, deadline = 0, time.monotonic() + RUN_TIMEOUT_S

    def take_until(goal: int) -> None:
        nonlocal taken
        while taken < goal:
            taken += client.take(1000)
            if time.monotonic() > deadline:
                raise LoadFailed(f"{taken} of {records} records came ({client.last_error})")

    begun = cpu_seconds(job["pids"])
    client.start(job["partitions"])
    take_until(int(records * CONSUME_WARM_UP))
    timed = records - taken
    with Measured(job["pids"]) as measured:
        take_until(records)
        measured.done()
    # What was fetched ahead before the clock started is paid for too.
    measured.figures["server_cpu_s"] = cpu_seconds(job["pids"]) - begun
    return {
        **measured.figures,
        "bytes": timed * job["record_bytes"],
        "cpu_bytes": records * job["record_bytes"],
    }


def latency(job: dict[str, Any]) -> dict[str, Any]:
    """One record at a time: the next is sent when the last is acknowledged."""
    settings = {**QUIET, **PRODUCER, "linger.ms": 0, "delivery.report.only.error": "false"}
    client = Producing({**settings, **job["settings"]}, job["topic"], job["record_bytes"])
    for _ in range(WARM_UP_RECORDS):
        _one(client)
    times: list[float] = []
    with Measured(job["pids"]) as measured:
        for _ in range(job["records"]):
            begun = time.perf_counter()
            _one(client)
            times.append((time.perf_counter() - begun) * 1e6)
        measured.done()
    percentiles = {f"p{percent}": stats.percentile(times, percent) for percent in (50, 99)}
    return {**measured.figures, **percentiles, "records": job["records"]}


def _one(client: Producing) -> None:
    client.enqueue(0, 1)
    deadline = time.monotonic() + 30.0
    while not client.next_delivery(1000):
        if time.monotonic() > deadline:
            raise LoadFailed(f"no acknowledgement in 30 s ({client.last_error})")


KINDS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "produce": produce,
    "fetch": fetch,
    "latency": latency,
}


def main() -> int:
    """Runs the job in argv, prints its figures."""
    job = json.loads(sys.argv[1])
    try:
        print(json.dumps(KINDS[job["kind"]](job)))
    except LoadFailed as failure:
        print(f"{job['kind']} on {job['topic']}: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
