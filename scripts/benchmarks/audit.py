"""How fast the audits read: records a second at local[2] on a generated log of five million."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measures import Bench
from benchmarks.servers import BenchFailed
from benchmarks.stats import HIGHER, Result, spread
from spark_audit import session
from spark_audit.verify import verify

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import bench_audit_log

READ, VERIFY = "audit/read", "audit/verify"
NAMES = (READ, VERIFY)
RECORDS, QUICK_RECORDS = 5_000_000, 500_000
GOAL = 500_000.0
MASTER = "local[2]"


def rates(bench: Bench, *, quick: bool) -> Iterator[Result]:
    """Every column of every record into an aggregate, and the whole of `audit verify`.

    Making the log and starting the session are not timed; the first query of the session is.
    """
    if not any(bench.wanted(name) for name in NAMES):
        return
    directory = bench.scratch / "audit"
    bench.say("writing the metadata log for the audit")
    records = bench_audit_log.generate(directory, QUICK_RECORDS if quick else RECORDS)
    log = str(directory / "__cluster_metadata-0")
    spark = session.start(MASTER, app="bench", quiet=True)

    def read() -> None:
        rows = spark.read.format("kraft").load(log).groupBy("record_type").count().collect()
        counted = sum(row["count"] for row in rows)
        if counted != records:
            raise BenchFailed(f"{READ}: {records} records written, {counted} read")

    def check() -> None:
        if not verify([log], session.on_spark(spark))["sound"]:
            raise BenchFailed(f"{VERIFY}: damage found in a sound log")

    try:
        for name, job in ((READ, read), (VERIFY, check)):
            if bench.wanted(name):
                yield _rate(bench, name, job, records)
    finally:
        spark.stop()


def _rate(bench: Bench, name: str, job: Callable[[], None], records: int) -> Result:
    values = []
    for run in range(bench.plan.runs):
        bench.say(f"{name}, run {run + 1}")
        begun = time.perf_counter()
        job()
        values.append(records / (time.perf_counter() - begun))
    limit = spread([GOAL]) if name == READ else None
    return Result(
        name,
        "records/s",
        HIGHER,
        spread(values),
        peer="goal" if limit else None,
        theirs=limit,
        note=f"{MASTER}, {records:,} records",
    )
