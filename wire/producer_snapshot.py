"""Producer state snapshots: `<offset>.snapshot` beside a segment (KIP-98)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from wire.errors import DamagedFile

_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1
_CRC_END = 6


class ProducerEntry(NamedTuple):
    """A producer's last batch. `last_offset` -1: none; `current_txn_first_offset` -1: no open
    transaction. `offset_delta` is last minus first offset of the batch."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode(entries: Sequence[ProducerEntry]) -> bytes:
    """The file, CRC set."""
    data = bytearray(_HEAD.pack(_VERSION, 0, len(entries)))
    for entry in entries:
        data += _ENTRY.pack(*entry)
    struct.pack_into(">I", data, 2, crc32c(memoryview(data)[_CRC_END:]))
    return bytes(data)


def decode(data: bytes, path: str) -> list[ProducerEntry]:
    """The entries; DamagedFile on a wrong version, CRC or length."""
    if len(data) < _HEAD.size:
        raise DamagedFile(path, 0, f"{len(data)} bytes are no producer snapshot")
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise DamagedFile(path, 0, f"version {version}, only {_VERSION} is supported")
    if crc != crc32c(memoryview(data)[_CRC_END:]):
        raise DamagedFile(path, 2, "wrong CRC")
    if count < 0 or len(data) != _HEAD.size + count * _ENTRY.size:
        raise DamagedFile(path, 6, f"{count} entries in {len(data)} bytes")
    body = memoryview(data)[_HEAD.size :]
    return [ProducerEntry._make(fields) for fields in _ENTRY.iter_unpack(body)]
