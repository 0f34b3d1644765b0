"""A pass of the log cleaner: `cleaning.py '{"directory": …, "records": N, "size": B, "codec": C}'`.

A log of one partition on a real disk, N records of B bytes in batches of 16 KB, each of one of
50,000 keys by chance. Prints MB of record values cleaned a second, and by how many milliseconds the
loop was late meanwhile (99th percentile and most).
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from typing import Any

import uvloop

from storage.cleaning.dirt import measure
from storage.cleaning.throttle import Throttle
from storage.cleaning.work import Limits, clean
from storage.config import LogConfig
from storage.log import Log
from wire.batch import build_batch
from world.real import real_env

KEYS = 50_000
BATCH = 16 << 10
TICK_S = 0.001


async def filled(job: dict[str, Any]) -> Log:
    """The log, durable, with an active segment that is empty."""
    config = LogConfig(
        segment_bytes=64 << 20,
        cleanup_compact=True,
        cleanup_delete=False,
        min_cleanable_dirty_ratio=0.0,
    )
    log = await Log.open(real_env(1), job["directory"], config)
    chance, size = random.Random(1), job["size"]
    # Half of a value can be compressed.
    values = [chance.randbytes(size // 2) + bytes(size - size // 2) for _ in range(50)]
    for _ in range(0, job["records"], BATCH // size):
        records = [
            (1, b"key-%010d" % chance.randrange(KEYS), chance.choice(values), ())
            for _ in range(BATCH // size)
        ]
        log.append_as_leader([bytearray(build_batch(records, codec=job["codec"]))], 1)
    log.roll()
    await log.flush()
    return log


async def tick(late: list[float]) -> None:
    """Notes how late the loop is, for ever."""
    while True:
        begun = time.perf_counter()
        await asyncio.sleep(TICK_S)
        late.append((time.perf_counter() - begun - TICK_S) * 1e3)


async def run(job: dict[str, Any]) -> dict[str, float]:
    """The figures of one pass."""
    log = await filled(job)
    late: list[float] = []
    ticking = asyncio.ensure_future(tick(late))
    begun, used = time.perf_counter(), time.process_time()
    dirt = measure(log, log.end_offset, log.env.clock.wall_ms())
    await clean(log, dirt, Limits(128 << 20, 0.9, Throttle(sys.float_info.max)))
    seconds, cpu_s = time.perf_counter() - begun, time.process_time() - used
    ticking.cancel()
    late.sort()
    await log.close()
    return {
        "rate": log.end_offset * job["size"] / 1e6 / seconds,
        "cpu_s": cpu_s,
        "late_p99": late[len(late) * 99 // 100],
        "late_max": late[-1],
    }


if __name__ == "__main__":
    print(json.dumps(uvloop.run(run(json.loads(sys.argv[1])))))
