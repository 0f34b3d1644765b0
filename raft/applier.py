"""Hands what is committed to the listener, batch by batch, in order.

What this node appended itself is handed on from memory. Anything else is read back from the
log: little of it at once on the spot, much of it in slices that leave the loop to others, and a
batch of many records is prepared in slices before it is handed on as a whole. A snapshot is loaded
the same way, while the node takes part in the quorum: what is committed meanwhile follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from raft.listener import CommittedBatch, LeaderAndEpoch, RaftListener
from raft.metadata_log import MetadataLog
from raft.snapshots import view
from raft.voters import OffsetAndEpoch
from storage.reading import Slice
from wire.batch import BatchHeader, decode_records, decode_values, iter_headers
from wire.control import Control, decode_control
from wire.errors import DecodeError, FatalError
from wire.exits import EXIT_LOG_DAMAGED

_SLICE_BYTES = 256 * 1024  # read at once
_SPOT_BYTES = 64 * 1024  # applied on the spot
_SLICE_RECORDS = 256  # applied at once otherwise: some milliseconds of work
# A batch of more is decoded off the loop and prepared in slices. Not one of less: it is what many
# callers appended in one turn, and they wait. Nor are more records handed on at once from memory.
_LONG_BATCH = 1_024


def decode_batch(data: bytes, position: int, header: BatchHeader) -> CommittedBatch:
    """One batch of the log as the listener takes it."""
    values: list[bytes] = []
    control: list[Control] = []
    if header.is_control:
        records = decode_records(data, position, header)
        control = [decode_control(record.key, record.value) for record in records]
    else:
        values = [value or b"" for value in decode_values(data, position, header)]
    return CommittedBatch(
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        header.max_timestamp,
        values,
        [(entry.type, entry.entity) for entry in control],
        header.length,
    )


class Applier:
    """`applied`: everything below it was handed on. `fail` takes what keeps it from going on."""

    def __init__(
        self,
        log: MetadataLog,
        listener: RaftListener,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._listener = listener
        self._fail = fail
        self.applied = 0
        self._committed = 0
        self._own: dict[int, CommittedBatch] = {}  # by base offset, in order
        self._task: asyncio.Task[None] | None = None
        self._records_in_slice = 0
        self._leader: tuple[LeaderAndEpoch, int] | None = None  # told once applied is past this
        # Set unless the snapshot that was there at start is still being loaded.
        self.loaded = asyncio.Event()

    async def read(self, offset: int, max_bytes: int) -> list[CommittedBatch]:
        """Committed batches from the one that holds `offset` on, at least one while there is any.

        Raises storage.errors.OffsetOutOfRange below the start of the log.
        """
        if offset >= self.applied:
            return []
        part = self._log.log.read(offset, max_bytes, upto=self.applied)
        if part is None:
            return []
        data = await self._log.env.run_blocking(part.file.pread, part.length, part.position)
        return [decode_batch(data, position, header) for position, header in iter_headers(data)]

    def remember(self, batch: CommittedBatch) -> None:
        """A batch that was just appended here, and needn't be read back."""
        self._own[batch.base_offset] = batch

    def forget_from(self, offset: int) -> None:
        """The log was cut."""
        self._own = {base: batch for base, batch in self._own.items() if base < offset}

    def hold(self) -> None:
        """Hand on nothing more, neither of the log, which is about to be replaced by a snapshot,
        nor of an older snapshot."""
        self._own.clear()
        self._committed = self.applied
        if self._task is not None:
            self._task.cancel()

    def load_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """Replace all that was applied by a complete snapshot, which the log goes on from."""
        self._committed = max(self._committed, snapshot.offset)
        self._start(self._load(snapshot, self._task), "raft-load-snapshot")

    async def _load(self, snapshot: OffsetAndEpoch, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        env, snapshots = self._log.env, self._log.snapshots
        # Opened for this alone, so that it stays open should the snapshot be dropped meanwhile.
        file = env.disk.open(snapshots.path(snapshot))
        try:
            await self._listener.on_snapshot(view(env, file, snapshots.complete[snapshot]))
        finally:
            file.close()
        self.applied = snapshot.offset
        self.loaded.set()

    def tell_leader(self, leader: LeaderAndEpoch, after: int) -> None:
        """Tell of a leader, once all below `after` is applied."""
        self._leader = (leader, after)
        self._tell_leader_if_due()

    def _tell_leader_if_due(self) -> None:
        if self._leader is not None and self.applied >= self._leader[1]:
            leader, self._leader = self._leader[0], None
            self._listener.on_leader_change(leader)

    def advance(self, high_watermark: int) -> None:
        """All below `high_watermark` is committed."""
        self._committed = max(self._committed, high_watermark)
        if self._task is None:
            self._run_now()

    def _run_now(self) -> None:
        """Apply on the spot what is in memory or little; a task does the rest."""
        try:
            self._run_on_the_spot()
        except DecodeError as error:
            self._fail(self._damage(error))

    def _run_on_the_spot(self) -> None:
        budget, records = _SPOT_BYTES, 0
        while self.applied < self._committed:
            own = self._own.get(self.applied)
            if own is None:
                data = self._read_now(budget)
                budget -= len(data)
                done = self._apply_now(data)
            else:
                records += len(own.values)
                done = records <= _LONG_BATCH
                if done:
                    self._hand_on(own)
            if not done:
                self._start(self._run_later(), "raft-apply")
                return
        self._tell_leader_if_due()

    def _read_now(self, budget: int) -> bytes:
        """What comes next, if it is little and in memory; else nothing."""
        part = self._next_slice()
        if part is None or part.length > budget:
            return b""
        data = part.file.pread_nowait(part.length, part.position)
        return data or b""

    def _apply_now(self, data: bytes) -> bool:
        """Whether all that comes next in `data` was little enough to be handed on."""
        for position, header in self._next_in(data):
            if header.count > _LONG_BATCH:
                return False
            self._hand_on(decode_batch(data, position, header))
        return len(data) > 0

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._task = asyncio.get_running_loop().create_task(work, name=name)
        self._task.add_done_callback(self._ended)

    def _next_slice(self) -> Slice | None:
        return self._log.log.read(self.applied, _SLICE_BYTES, upto=self._committed)

    async def _run_later(self) -> None:
        run_blocking = self._log.env.run_blocking
        while self.applied < self._committed:
            own = self._own.get(self.applied)
            if own is not None:
                await self._hand_on_in_slices(own)
                continue
            part = self._next_slice()
            assert part is not None, (self.applied, self._committed)
            data = await run_blocking(part.file.pread, part.length, part.position)
            before = self.applied
            for position, header in self._next_in(data):
                if header.count > _LONG_BATCH:
                    batch = await run_blocking(decode_batch, data, position, header)
                else:
                    batch = decode_batch(data, position, header)
                await self._hand_on_in_slices(batch)
            if self.applied == before < self._committed:
                raise DecodeError(f"{len(data)} bytes without the batch that was written there")

    async def _hand_on_in_slices(self, batch: CommittedBatch) -> None:
        if len(batch.values) > _LONG_BATCH:
            await self._listener.prepare(batch)
        self._hand_on(batch)
        self._records_in_slice += len(batch.values)
        if self._records_in_slice >= _SLICE_RECORDS:
            self._records_in_slice = 0
            await asyncio.sleep(0)  # others first

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._task is task:
            self._task = None
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, DecodeError):
            error = self._damage(error)
        if error is not None:
            self._fail(error)
        elif self._task is None:
            self._run_now()

    def _damage(self, error: DecodeError) -> FatalError:
        """The log's files aren't what was written to them. The next start finds out how much of
        it is lost, and fetches that from others."""
        where = f"{self._log.directory}, offset {self.applied}"
        return FatalError(EXIT_LOG_DAMAGED, f"the metadata log is damaged: {where}: {error}")

    def _next_in(self, data: bytes) -> Iterator[tuple[int, BatchHeader]]:
        """The batches of a stretch of the log that come next, for as long as they do: where they
        begin, and their headers."""
        for position, header in iter_headers(data):
            if header.base_offset == self.applied and header.next_offset <= self._committed:
                yield position, header

    def _hand_on(self, batch: CommittedBatch) -> None:
        self._own.pop(batch.base_offset, None)
        self.applied = batch.last_offset + 1
        self._listener.on_batch(batch)
        self._tell_leader_if_due()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
