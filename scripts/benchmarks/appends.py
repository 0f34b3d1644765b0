"""Appends within one process: `appends.py '{"directory": …, "records": N, "per_turn": M}'`.

A quorum of one voter on a real disk, without a network: records of 100 bytes, each an append of
its own, M of them in a turn of the loop. Prints records a second, all of them committed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from typing import Any
from uuid import UUID

import structlog
import uvloop

from raft.config import RaftConfig
from raft.node import RaftNode
from wire.errors import FatalError
from world.real import real_env

RECORD = b"\x01" + bytes(99)


class _Listener:
    """Counts what is committed; `done` once it is all."""

    def __init__(self, records: int) -> None:
        self._left = records
        self.done = asyncio.Event()
        self.leads = asyncio.Event()

    async def prepare(self, batch: Any) -> None:
        """Nothing takes long here."""

    def on_batch(self, batch: Any) -> None:
        self._left -= len(batch.values)
        if self._left <= 0:
            self.done.set()

    def on_snapshot(self, snapshot: Any) -> None:
        raise AssertionError("a new directory has no snapshot")

    def on_leader_change(self, leader: Any) -> None:
        if leader.leader_id == 1:
            self.leads.set()


def _fatal(error: FatalError) -> None:
    raise error


async def run(job: dict[str, Any]) -> dict[str, float]:
    """Returns when all are committed; the figures."""
    listener = _Listener(job["records"])
    config = RaftConfig(1, UUID(int=7), "bench", {1: ("127.0.0.1", 0)})
    node = RaftNode(real_env(), config, job["directory"], listener, on_fatal=_fatal)
    await node.start()
    await listener.leads.wait()
    epoch = node.leader().epoch
    begun, used = time.perf_counter(), time.process_time()
    for start in range(0, job["records"], job["per_turn"]):
        for _ in range(min(job["per_turn"], job["records"] - start)):
            node.append([RECORD], epoch)
        await asyncio.sleep(0)
    await listener.done.wait()
    seconds, cpu_s = time.perf_counter() - begun, time.process_time() - used
    fsyncs = node.fsyncs
    await node.stop()
    return {"rate": job["records"] / seconds, "cpu_s": cpu_s, "fsyncs": fsyncs}


def main() -> int:
    """Runs the job in argv, prints its figures."""
    # Standard output has the figures and nothing else.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    print(json.dumps(uvloop.run(run(json.loads(sys.argv[1])))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
