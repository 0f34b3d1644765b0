"""The committed records of the local metadata log, from any offset, for Watch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from admin.ports import WatchedRecord
from pykraft.publisher import MetadataPublisher
from raft.listener import CommittedBatch
from wire.errors import ErrorCode, KafkaError

_READ_BYTES = 256 * 1024


class CommittedLog(Protocol):
    """What the watch reads: the quorum member's own log."""

    @property
    def log_start_offset(self) -> int: ...

    async def read_committed(self, offset: int, max_bytes: int) -> list[CommittedBatch]:
        """Committed batches from the one that holds `offset` on; empty at the end."""
        ...


class MetadataWatch:
    """See `admin.ports.WatchSource`: reads from the log at the reader's pace and keeps nothing."""

    def __init__(self, log: CommittedLog, publisher: MetadataPublisher) -> None:
        self._log = log
        self._publisher = publisher

    async def iterate(self, from_offset: int) -> AsyncIterator[WatchedRecord]:
        """Records at `from_offset` and above, as they are committed, in order."""
        offset = from_offset
        while True:
            moved = self._publisher.moved
            if offset < self._log.log_start_offset:
                raise KafkaError(
                    ErrorCode.offset_out_of_range,
                    f"offset {offset}: the metadata log begins at {self._log.log_start_offset} "
                    "(what was before is in its snapshot: ask for the snapshot first)",
                )
            batches = await self._log.read_committed(offset, _READ_BYTES)
            if not batches:
                await moved.wait()
                continue
            for batch in batches:
                for position, value in enumerate(batch.values, batch.base_offset):
                    if position >= offset:
                        yield WatchedRecord(position, batch.epoch, batch.timestamp_ms, value)
            offset = batches[-1].last_offset + 1
