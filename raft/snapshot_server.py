"""Slices of our snapshots for those who download them (FetchSnapshot, KIP-630).

A snapshot may lie for days before anybody asks for it. It is read through again when a download
begins: a damaged one would send whoever needs it round in circles. It is set aside then, and the
state machine is asked for another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from raft.messages import FetchSnapshotResponse
from raft.requests import Slice
from raft.snapshots import SnapshotStore, SnapshotUnusable
from raft.voters import OffsetAndEpoch
from wire.errors import ErrorCode
from world.env import File

logger = structlog.get_logger("raft")
_SLICE_MAX = 8 << 20

Answer = Callable[[FetchSnapshotResponse, Slice | None], None]


class SnapshotServer:
    """`lost` is called when a snapshot turned out damaged, `fail` when the disk failed at it."""

    def __init__(
        self,
        store: SnapshotStore,
        lost: Callable[[], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._lost = lost
        self._fail = fail
        self._checks: dict[OffsetAndEpoch, asyncio.Task[None]] = {}
        self._reads: dict[asyncio.Task[None], None] = {}

    def serve(self, response: FetchSnapshotResponse, max_bytes: int, answer: Answer) -> None:
        """Fill in the slice that a response of the core is about, and give it to `answer`."""
        snapshot = response.snapshot
        if response.position or snapshot not in self._store.complete:
            self._give(response, max_bytes, answer)
            return
        check = self._checks.get(snapshot)
        if check is None:
            check = self._checks[snapshot] = asyncio.get_running_loop().create_task(
                self._check(snapshot), name="raft-check-snapshot"
            )
        check.add_done_callback(lambda _: self._give(response, max_bytes, answer))

    def _give(self, response: FetchSnapshotResponse, max_bytes: int, answer: Answer) -> None:
        file = self._store.open(response.snapshot)
        if file is None:
            answer(response._replace(error=ErrorCode.snapshot_not_found), None)
            return
        left = file.size() - response.position
        if left <= 0:
            answer(response._replace(error=ErrorCode.position_out_of_range), None)
            return
        length = min(left, max(max_bytes, 0), _SLICE_MAX)
        filled = response._replace(size=file.size(), length=length)
        data = file.pread_nowait(length, response.position)
        if data is not None:
            answer(filled, Slice(data, length))
            return
        read = asyncio.get_running_loop().create_task(
            self._read(file, filled, answer), name="raft-read-snapshot"
        )
        self._reads[read] = None
        read.add_done_callback(self._reads.pop)

    async def _read(self, file: File, filled: FetchSnapshotResponse, answer: Answer) -> None:
        """Answers with a slice that the disk has to be waited for."""
        try:
            data = await self._store.read(file, filled.position, filled.length)
        except Exception as error:  # noqa: BLE001 - told to whoever ends the node
            if filled.snapshot in self._store.complete:
                self._fail(error)
            else:  # dropped meanwhile, and closed with that
                answer(filled._replace(error=ErrorCode.snapshot_not_found), None)
            return
        answer(filled._replace(length=len(data)), Slice(data, len(data)))

    async def _check(self, snapshot: OffsetAndEpoch) -> None:
        try:
            await self._store.verify(snapshot)
        except SnapshotUnusable as error:
            logger.error("snapshot_unusable", path=self._store.path(snapshot), reason=str(error))
            self._lost()
        except Exception as error:  # noqa: BLE001 - told to whoever ends the node
            self._fail(error)
        finally:
            del self._checks[snapshot]

    async def close(self) -> None:
        """Let what is being read come to its end."""
        if self._checks or self._reads:
            await asyncio.wait([*self._checks.values(), *self._reads])
