"""How fast the audits read: records a second at local[2] on a generated log of five million."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.measures import Bench
from benchmarks.processes import family_cpu_seconds
from benchmarks.servers import BenchFailed
from benchmarks.stats import HIGHER, Result, spread
from spark_audit import session
from spark_audit.verify import verify

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import bench_audit_log

READ, READ_ALL, VERIFY = "audit/read", "audit/read-all-columns", "audit/verify"
NAMES = (READ, READ_ALL, VERIFY)
# What the histories of leaders and ISRs are made from.
HISTORY = (
    "offset bigint, epoch int, timestamp bigint, record_type string, topic_id string, "
    "partition int, leader int, isr array<int>"
)
RECORDS, QUICK_RECORDS = 5_000_000, 500_000
GOAL = 500_000.0
MASTER = "local[2]"


def rates(bench: Bench, *, quick: bool) -> Iterator[Result]:
    """Every record into an aggregate, with a history's columns and with all; `audit verify`.

    Making the log and starting the session are not timed; the first query of the session is.
    """
    if not any(bench.wanted(name) for name in NAMES):
        return
    directory = bench.scratch / "audit"
    bench.say("writing the metadata log for the audit")
    records = bench_audit_log.generate(directory, QUICK_RECORDS if quick else RECORDS)
    log = str(directory / "__cluster_metadata-0")
    spark = session.start(MASTER, app="bench", quiet=True)

    def read(schema: str | None) -> None:
        reader = spark.read.format("kraft")
        rows = (reader.schema(schema) if schema else reader).load(log)
        rows = rows.groupBy("record_type").count().collect()
        counted = sum(row["count"] for row in rows)
        if counted != records:
            raise BenchFailed(f"{READ}: {records} records written, {counted} read")

    def check() -> None:
        if not verify([log], session.on_spark(spark))["sound"]:
            raise BenchFailed(f"{VERIFY}: damage found in a sound log")

    try:
        jobs = ((READ, partial(read, HISTORY)), (READ_ALL, partial(read, None)), (VERIFY, check))
        for name, job in jobs:
            if bench.wanted(name):
                yield _rate(bench, name, job, records)
    finally:
        spark.stop()


def _rate(bench: Bench, name: str, job: Callable[[], None], records: int) -> Result:
    values, cpu = [], []
    for run in range(bench.plan.runs):
        bench.say(f"{name}, run {run + 1}")
        used, begun = family_cpu_seconds(), time.perf_counter()
        job()
        values.append(records / (time.perf_counter() - begun))
        cpu.append(family_cpu_seconds() - used)
    limit = spread([GOAL]) if name == READ else None
    return Result(
        name,
        "records/s",
        HIGHER,
        spread(values),
        peer="goal" if limit else None,
        theirs=limit,
        cpu_s=spread(cpu),
        note=f"{MASTER}, {records:,} records",
    )
