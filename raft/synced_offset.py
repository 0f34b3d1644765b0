"""The file `pykraft-synced-offset`: how far the metadata log was known to be durable.

Written right after each fsync of the log and synced a second later (`raft.hardening`): after a
power cut it may lag behind the truth by so much, and never runs ahead of it. At start, what ends
the log below this offset is damage, not a torn tail. Two slots are written in turn, so that one of
them is whole whatever happens, from the file's first day on: one without is damaged itself.

    slot: magic "pkso" | int64 count of writes | int64 offset | CRC-32C of the 20 bytes before

The offset `UNKNOWN_END` stands for a log that misses something, nobody here knows how much.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from raft.log_view import UNKNOWN_END
from world.env import Disk, File

NAME = "pykraft-synced-offset"
_SLOT = struct.Struct(">4sqq")
_CRC = struct.Struct(">I")
_SLOT_BYTES = 32
_MAGIC = b"pkso"


def exists(disk: Disk, directory: str) -> bool:
    return disk.exists(f"{directory}/{NAME}")


async def create(disk: Disk, directory: str, offset: int) -> None:
    """Make the file, durably and at once: there is no moment at which it is there and unsound."""
    await disk.replace(f"{directory}/{NAME}", _slot(2, offset) + _slot(1, offset))


def _slot(writes: int, offset: int) -> bytes:
    head = _SLOT.pack(_MAGIC, writes, offset)
    return head + _CRC.pack(crc32c(head)) + bytes(_SLOT_BYTES - _SLOT.size - _CRC.size)


class SyncedOffset:
    """The file, open. `offset` is what it says: all below it was durable; 0 if it says nothing.
    `synced` tells whether the file itself is durable as it is."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{NAME}"
        self._file: File = disk.open(self.path, create=True)
        self._writes = 0
        self.offset = 0
        self.synced = False  # a process that was killed leaves what it wrote in the page cache
        data = self._file.pread(2 * _SLOT_BYTES, 0)
        for position in (0, _SLOT_BYTES):
            slot = data[position : position + _SLOT_BYTES]
            if len(slot) < _SLOT.size + _CRC.size:
                continue
            magic, writes, offset = _SLOT.unpack_from(slot)
            (crc,) = _CRC.unpack_from(slot, _SLOT.size)
            if magic == _MAGIC and crc == crc32c(slot[: _SLOT.size]) and writes > self._writes:
                self._writes, self.offset = writes, offset

    @property
    def is_readable(self) -> bool:
        """Whether a slot is sound."""
        return self._writes > 0

    @property
    def is_known(self) -> bool:
        """Whether the file says how far the log was durable."""
        return self.is_readable and self.offset != UNKNOWN_END

    def _write(self, offset: int) -> None:
        self._writes += 1
        self._file.pwrite(_slot(self._writes, offset), self._writes % 2 * _SLOT_BYTES)
        self.offset = offset
        self.synced = False

    def advance(self, offset: int) -> None:
        """All below `offset` is durable now."""
        if offset > self.offset:
            self._write(offset)

    def know(self, offset: int) -> None:
        """A log that missed nobody knew how much is whole, and durable up to `offset`. Should
        that be lost, it will be found out once more."""
        self._write(offset)

    async def lower(self, offset: int) -> None:
        """Records from `offset` on are about to be cut for good reason. Durable on return, and
        in both slots, so that their absence will not be taken for damage."""
        if offset < self.offset:
            self._write(offset)
            self._write(offset)
            await self.sync()

    async def hold(self, offset: int) -> None:
        """Records below `offset` are missing and were durable once: durable on return, so that
        it is known after a restart in the middle of fetching them back, too."""
        if offset > self.offset:
            self._write(offset)
            await self.sync()

    async def sync(self) -> None:
        """Make the file durable as it is now, unless it is. Raises SyncFailed."""
        if not self.synced:
            self.synced = True  # false again if it is written to while we wait
            await self._file.sync()

    def close(self) -> None:
        self._file.close()
