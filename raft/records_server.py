"""The records of a leader's answer to a fetch, and the damage to them that is found at this.

They go out as the disk gives them. Who fetches looks at all of them and asks again from the first
batch that isn't sound, so to look at the first one of each answer is enough.
"""

from __future__ import annotations

from collections.abc import Callable

from raft.metadata_log import MetadataLog
from raft.requests import Slice
from raft.snapshot_server import slice_of
from storage.errors import OffsetOutOfRange
from wire.batch import crc_ok, read_header
from wire.errors import DamagedFile, DecodeError


class RecordsServer:
    """`damaged(offset, where)` is called each time that the batch at `offset` is unsound."""

    def __init__(self, log: MetadataLog, damaged: Callable[[int, str], None]) -> None:
        self._log = log
        self._damaged = damaged

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
        found = slice_of(part.file, part.position, part.length)
        if isinstance(found.data, bytes):  # else it isn't in memory yet, and will be the next time
            problem = self._problem(found.data, part.first_offset)
            if problem is not None:
                where = f"{part.file.path}: byte {part.position}: offset {part.first_offset}"
                self._damaged(part.first_offset, f"{where}: {problem}")
        return found

    def _problem(self, data: bytes, offset: int) -> str | None:
        """What is wrong with the batch that `data` begins with. Base offset and epoch are not
        covered by its CRC; an epoch that is known nowhere else can't be judged."""
        try:
            header = read_header(data)
        except DecodeError as error:
            return str(error)
        epoch = self._log.log.epochs.epoch_at(offset)
        if header.base_offset != offset:
            return f"it says that it begins at offset {header.base_offset}"
        if epoch >= 0 and header.leader_epoch != epoch:
            return f"leader epoch {header.leader_epoch}, but it is {epoch}"
        if header.length > len(data) or not crc_ok(data, 0, header.length):
            return "CRC is wrong"
        return None
