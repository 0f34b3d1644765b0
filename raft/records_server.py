"""The records of a leader's answer to a fetch, and the damage to them that others notice first.

They go out as the disk gives them, unread by us. Who fetches looks at them, and asks once more from
where they aren't sound: then we look, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from raft.metadata_log import MetadataLog, describe_fetched
from raft.requests import Slice
from raft.snapshot_server import slice_of
from storage.errors import OffsetOutOfRange
from storage.reading import Slice as LogSlice
from wire.errors import DamagedFile

_OFFSETS_REMEMBERED = 16


class RecordsServer:
    """`damaged(offset, where)` is called when the batch at `offset` turned out unsound."""

    def __init__(self, log: MetadataLog, damaged: Callable[[int, str], None]) -> None:
        self._log = log
        self._damaged = damaged
        self._given: deque[int] = deque(maxlen=_OFFSETS_REMEMBERED)

    def records(self, offset: int, max_bytes: int) -> Slice | None:
        """Whole batches from `offset` on, of at most `max_bytes` but for the first; None where the
        log was trimmed meanwhile, which the next fetch is told.

        Raises DamagedFile where not even the lengths of batches make sense, and DiskError."""
        try:
            part = self._log.log.read(offset, max_bytes)
        except OffsetOutOfRange:
            return None
        except DamagedFile as error:
            self._damaged(offset, str(error))
            raise
        if part is None:
            return None
        if offset not in self._given:
            self._given.append(offset)
        elif not _is_sound(part, offset):
            path = part.file.path
            self._damaged(offset, f"{path}: byte {part.position}: offset {offset}: CRC is wrong")
        return slice_of(part.file, part.position, part.length)


def _is_sound(part: LogSlice, offset: int) -> bool:
    data = part.file.pread(part.length, part.position)
    return describe_fetched(memoryview(data), offset) is not None
