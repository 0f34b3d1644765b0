"""What is appended in one turn of the event loop becomes one batch.

A batch costs every member about the same whether it holds one record or hundreds: a header, a CRC,
a write, an index entry, a hand-over when it is committed. So the appends of many callers who come
at once are written together. The records of one append stay in one batch, and so atomic (Kafka's
Raft client accumulates in the same way, for as long as controller.quorum.append.linger.ms says;
here it is never longer than the turn).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from wire.batch import HEADER_SIZE
from wire.errors import ErrorCode, KafkaError

MAX_BATCH_BYTES = 8 << 20
# The most that a record without a key or headers takes beside its value.
_RECORD_OVERHEAD = 20


class Burst:
    """Collects appends; `write(values, epoch)` gets those of one batch."""

    def __init__(self, write: Callable[[list[bytes], int], None]) -> None:
        self._write = write
        self._values: list[bytes] = []
        self._bytes = HEADER_SIZE
        self._epoch = 0
        self._asked = False

    def __len__(self) -> int:
        """Records that are not written yet."""
        return len(self._values)

    def add(self, values: Sequence[bytes], epoch: int) -> None:
        """Take in the records of one append. KafkaError if they fit no batch."""
        size = sum(map(len, values)) + _RECORD_OVERHEAD * len(values)
        if HEADER_SIZE + size > MAX_BATCH_BYTES:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"{len(values)} records take up to {HEADER_SIZE + size} bytes, more than "
                f"{MAX_BATCH_BYTES}",
            )
        if self._bytes + size > MAX_BATCH_BYTES or epoch != self._epoch:
            self.end()
        self._epoch = epoch
        self._values += values
        self._bytes += size
        if not self._asked:
            self._asked = True
            asyncio.get_running_loop().call_soon(self._turn_is_over)

    def end(self) -> None:
        """Write what was collected: the turn is over, or something else is about to happen."""
        if self._values:
            values, self._values, self._bytes = self._values, [], HEADER_SIZE
            self._write(values, self._epoch)

    def _turn_is_over(self) -> None:
        self._asked = False
        self.end()
