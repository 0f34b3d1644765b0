"""Record batches of magic 2, Kafka's unit of storage, replication and transport (KIP-98).

Header functions look at the first 61 bytes only; nothing here touches single records except
`decode_records`, `decode_values` and `build_batch`. Positions and lengths are bytes; a batch's
length is its whole length, the 12 bytes before Kafka's own length field's count included.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from crc32c import crc32c

from wire.compression import MAX_DECOMPRESSED, NONE, compress, decompress
from wire.errors import BadHeader, DecodeError
from wire.records import Record, RecordTuple, encode_records, parse_records, parse_values

__all__ = [
    "HEADER_SIZE",
    "BatchHeader",
    "Record",
    "build_batch",
    "crc_ok",
    "decode_records",
    "decode_values",
    "iter_headers",
    "patch_offsets",
    "read_header",
    "record_bytes",
    "set_log_append_time",
    "with_records",
]

HEADER_SIZE = 61
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_START = 21
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40


_new_tuple = tuple.__new__


class BatchHeader(NamedTuple):
    """The 61 bytes before a batch's records. `length` is the whole batch's."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # not the tuple method

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are no codec."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def timestamp_type(self) -> int:
        """0: times were set by the producer; 1: `max_timestamp` is every record's time."""
        return (self.attributes & LOG_APPEND_TIME) >> 3

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON != 0

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapping from 2^31-1 to 0; -1 without a sequence."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(buf: Any, pos: int = 0) -> BatchHeader:
    """The header at `pos`; the batch need not be there in full.

    BadHeader if fewer than 61 bytes are there or a field can't be true.
    """
    try:
        fields = _HEADER.unpack_from(buf, pos)
    except struct.error as error:
        raise BadHeader(pos, "batch header cut short") from error
    length = fields[1] + 12
    if fields[3] != 2:
        raise BadHeader(pos, f"batch of magic {fields[3]}, only 2 is supported")
    if length < HEADER_SIZE:
        raise BadHeader(pos, f"batch of {length} bytes is shorter than its header")
    if fields[0] < 0 or fields[6] < 0 or fields[12] < 0:
        raise BadHeader(
            pos,
            f"negative base offset {fields[0]}, last offset delta {fields[6]} "
            f"or record count {fields[12]}",
        )
    # Past the constructor, which would take the fields one by one: this runs for every batch.
    return _new_tuple(BatchHeader, (fields[0], length, *fields[2:]))


def crc_ok(buf: Any, pos: int, length: int) -> bool:
    """Whether the batch of `length` bytes at `pos` carries the CRC-32C of its bytes."""
    stored: int = _UINT32.unpack_from(buf, pos + 17)[0]
    return bool(stored == crc32c(memoryview(buf)[pos + _CRC_START : pos + length]))


def iter_headers(
    buf: Any, pos: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch in buf[pos:end]; a partial last one is left out.

    DecodeError at a header that makes no sense. Checks no CRC.
    """
    if end is None:
        end = len(buf)
    while end - pos >= HEADER_SIZE:
        header = read_header(buf, pos)
        if header.length > end - pos:
            return
        yield pos, header
        pos += header.length


def decode_records(
    buf: Any, pos: int, header: BatchHeader, limit: int = MAX_DECOMPRESSED
) -> list[Record]:
    """All records of the batch at `pos`, decompressed to at most `limit` bytes.

    Doesn't check the CRC. DecodeError if the content contradicts the header.
    """
    raw = record_bytes(buf, pos, header, limit)
    append_time = header.max_timestamp if header.timestamp_type else None
    return parse_records(raw, header.count, header.base_offset, header.base_timestamp, append_time)


def decode_values(buf: Any, pos: int, header: BatchHeader) -> list[bytes | None]:
    """The values alone of `decode_records`, in a third of the time where there are no keys."""
    return parse_values(record_bytes(buf, pos, header), header.count)


def record_bytes(buf: Any, pos: int, header: BatchHeader, limit: int = MAX_DECOMPRESSED) -> bytes:
    """The records of the batch at `pos` as bytes, decompressed to at most `limit` of them.

    DecodeError if they are cut short or can't be decompressed.
    """
    data = memoryview(buf)[pos + HEADER_SIZE : pos + header.length]
    if len(data) != header.length - HEADER_SIZE:
        raise DecodeError(f"byte {pos}: batch of {header.length} bytes cut short")
    return bytes(data) if header.codec == NONE else decompress(header.codec, data, limit)


def with_records(header: BatchHeader, records: bytes) -> tuple[BatchHeader, bytes]:
    """A batch of this header with other records (uncompressed here, put in with the header's
    codec); the header with the length and CRC that come of it, and all of its bytes."""
    body = records if header.codec == NONE else compress(header.codec, records)
    length = HEADER_SIZE + len(body)
    head = bytearray(_HEADER.pack(header.base_offset, length - 12, *header[2:4], 0, *header[5:]))
    crc = crc32c(body, crc32c(memoryview(head)[_CRC_START:]))
    _UINT32.pack_into(head, 17, crc)
    return header._replace(length=length, crc=crc), bytes(head) + body


def build_batch(
    records: Sequence[RecordTuple],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: int = NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: int = 0,
) -> bytes:
    """One batch of (timestamp, key, value, headers) at consecutive offsets, CRC set.

    With `timestamp_type` 1 the largest timestamp given is the append time. At least one record.
    """
    assert records, "a batch has at least one record"
    base_timestamp = records[0][0]
    max_timestamp = max(record[0] for record in records)
    body = encode_records(records, base_timestamp)
    if codec != NONE:
        body = compress(codec, body)
    attributes = (
        codec
        | (LOG_APPEND_TIME if timestamp_type else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
    )
    count = len(records)
    head = bytearray(
        _HEADER.pack(
            base_offset, HEADER_SIZE - 12 + len(body), leader_epoch, 2, 0, attributes, count - 1,
            base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count,
        )
    )  # fmt: skip
    _UINT32.pack_into(head, 17, crc32c(body, crc32c(memoryview(head)[_CRC_START:])))
    return bytes(head) + body


def patch_offsets(buf: Any, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch of the batch at `pos` in place; the CRC covers neither."""
    _INT64.pack_into(buf, pos, base_offset)
    _INT32.pack_into(buf, pos + 12, leader_epoch)


def set_log_append_time(buf: Any, pos: int, length: int, wall_ms: int) -> None:
    """Make `wall_ms` the time of all records of the batch at `pos`, in place, with a new CRC."""
    (attributes,) = _INT16.unpack_from(buf, pos + 21)
    _INT16.pack_into(buf, pos + 21, attributes | LOG_APPEND_TIME)
    _INT64.pack_into(buf, pos + 35, wall_ms)
    _UINT32.pack_into(buf, pos + 17, crc32c(memoryview(buf)[pos + _CRC_START : pos + length]))
