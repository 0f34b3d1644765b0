"""The records inside a batch: varint-coded, one after the other (KIP-98). For `wire.batch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wire.errors import DecodeError

Headers = tuple[tuple[str, bytes | None], ...]
# Timestamp in ms, key, value, headers.
RecordTuple = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


class Record(NamedTuple):
    """One record. A header key that isn't UTF-8 keeps its bytes by surrogate escapes."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def _zigzag(value: int) -> bytes:
    out = bytearray()
    put_varint(out, value)
    return bytes(out)


def put_varint(out: bytearray, value: int) -> None:
    """Append the zigzag varint of a 64-bit signed integer."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def read_varint(data: bytes, pos: int, max_bytes: int = 10) -> tuple[int, int]:
    """A zigzag varint and the position after it. IndexError where the bytes end."""
    byte = data[pos]
    pos += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos
    value = byte & 0x7F
    shift = 7
    start = pos
    while byte & 0x80:
        if pos - start >= max_bytes - 1:
            raise DecodeError(f"byte {pos}: varint too long")
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), pos


def _put_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)
    else:
        put_varint(out, len(value))
        out += value


# The length -1 of a field that is null.
_NULL = 1
# Of the numbers that are frequent: offset deltas and lengths.
_ZIGZAG = [_zigzag(number) for number in range(2048)]


def _put_bare(out: bytearray, delta: int, value: bytes) -> None:
    """A record of the base timestamp without key and headers, as the metadata log has them."""
    size, offset = _ZIGZAG[len(value)], _ZIGZAG[delta]
    # Attributes and timestamp delta 0, key length -1, no headers: four bytes.
    out += _ZIGZAG[4 + len(offset) + len(size) + len(value)]
    out += b"\x00\x00"
    out += offset
    out += b"\x01"
    out += size
    out += value
    out.append(0)


_new_tuple = tuple.__new__


class PlacedRecord(NamedTuple):
    """Where a record lies in a batch's uncompressed records: from `start` to `end`.

    `delta` is its offset after the batch's base offset, `timestamp_delta` its time after the base
    timestamp; what follows that begins at `rest`.
    """

    start: int
    end: int
    rest: int
    delta: int
    timestamp_delta: int
    key: bytes | None
    has_value: bool


def encode_records(records: Sequence[RecordTuple], base_timestamp: int) -> bytes:
    """The records' bytes, at consecutive offset deltas from 0."""
    out = bytearray()
    for delta, (timestamp, key, value, headers) in enumerate(records):
        bare = key is None and not headers and timestamp == base_timestamp
        if bare and value is not None and delta < 2048 and len(value) < 2000:
            _put_bare(out, delta, value)
            continue
        body = bytearray(1)
        put_varint(body, timestamp - base_timestamp)
        put_varint(body, delta)
        _put_bytes(body, key)
        _put_bytes(body, value)
        put_varint(body, len(headers))
        for name, header_value in headers:
            _put_bytes(body, name.encode("utf-8", "surrogateescape"))
            _put_bytes(body, header_value)
        put_varint(out, len(body))
        out += body
    return bytes(out)


def _take(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    length, pos = read_varint(data, pos, 5)
    if length < 0:
        if length == -1:
            return None, pos
        raise DecodeError(f"byte {pos}: field of {length} bytes in a record")
    stop = pos + length
    if stop > end:
        raise DecodeError(f"byte {pos}: field of {length} bytes in a record with {end - pos} left")
    return data[pos:stop], stop


def _take_headers(data: bytes, pos: int, end: int) -> tuple[Headers, int]:
    count, pos = read_varint(data, pos, 5)
    if not 0 <= count <= end - pos:
        raise DecodeError(f"byte {pos}: {count} headers in a record with {end - pos} bytes left")
    headers = []
    for _ in range(count):
        key, pos = _take(data, pos, end)
        if key is None:
            raise DecodeError(f"byte {pos}: record header without a key")
        value, pos = _take(data, pos, end)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), pos


def _parse_one(
    data: bytes, pos: int, end: int
) -> tuple[int, int, bytes | None, bytes | None, Headers]:
    # The attributes byte has no meaning yet.
    timestamp_delta, pos = read_varint(data, pos + 1)
    offset_delta, pos = read_varint(data, pos, 5)
    key, pos = _take(data, pos, end)
    value, pos = _take(data, pos, end)
    headers, pos = _take_headers(data, pos, end)
    if pos != end:
        raise DecodeError(f"byte {pos}: record says it ends at {end}")
    return timestamp_delta, offset_delta, key, value, headers


def locate_records(data: bytes, count: int) -> list[PlacedRecord]:
    """Exactly `count` records filling `data`, looked at as far as their keys; DecodeError
    otherwise. Runs for every record that a log cleaner meets: varints of one byte are read in
    place."""
    found = []
    key: bytes | None
    pos, size = 0, len(data)
    try:
        for _ in range(count):
            start = pos
            length, pos = read_varint(data, pos, 5)
            end = pos + length
            if length < 0 or end > size:
                raise DecodeError(f"byte {pos}: record of {length} bytes, {size - pos} left")
            byte = data[pos + 1]
            if byte < 0x80:
                timestamp, rest = (byte >> 1) ^ -(byte & 1), pos + 2
            else:
                timestamp, rest = read_varint(data, pos + 1)
            byte = data[rest]
            if byte < 0x80:
                delta, pos = (byte >> 1) ^ -(byte & 1), rest + 1
            else:
                delta, pos = read_varint(data, rest, 5)
            byte = data[pos]
            if byte < 0x80 and not byte & 1:
                stop = pos + 1 + (byte >> 1)
                key, pos = data[pos + 1 : stop], stop
            else:
                key, pos = _take(data, pos, end)
            if pos >= end:
                raise DecodeError(f"byte {pos}: record ends before its value")
            has_value = data[pos] != _NULL
            fields = (start, end, rest, delta, timestamp, key, has_value)
            found.append(_new_tuple(PlacedRecord, fields))
            pos = end
    except IndexError as error:
        raise DecodeError(f"records end after {len(found)} of {count}") from error
    if pos != size:
        raise DecodeError(f"{size - pos} bytes after the last of {count} records")
    return found


def with_timestamp_delta(data: bytes, record: PlacedRecord, delta: int) -> bytes:
    """The bytes of the record with another timestamp delta."""
    body = bytearray(1)
    put_varint(body, delta)
    body += data[record.rest : record.end]
    out = bytearray()
    put_varint(out, len(body))
    out += body
    return bytes(out)


def parse_records(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> list[Record]:
    """Exactly `count` records filling `data`; DecodeError otherwise."""
    records = []
    pos = 0
    size = len(data)
    try:
        for _ in range(count):
            length, pos = read_varint(data, pos, 5)
            end = pos + length
            if length < 0 or end > size:
                raise DecodeError(f"byte {pos}: record of {length} bytes, {size - pos} left")
            timestamp, offset, key, value, headers = _parse_one(data, pos, end)
            pos = end
            when = base_timestamp + timestamp if append_time is None else append_time
            records.append(Record(base_offset + offset, when, key, value, headers))
    except IndexError as error:
        raise DecodeError(f"records end after {len(records)} of {count}") from error
    if pos != size:
        raise DecodeError(f"{size - pos} bytes after the last of {count} records")
    return records


def parse_values(data: bytes, count: int) -> list[bytes | None]:
    """The values of exactly `count` records filling `data`, checked as `parse_records` does. Runs
    for every record of a metadata log: one as such a log has it is read in place."""
    values: list[bytes | None] = []
    pos = 0
    size = len(data)
    try:
        for _ in range(count):
            length, pos = read_varint(data, pos, 5)
            end = pos + length
            if length < 0 or end > size:
                raise DecodeError(f"byte {pos}: record of {length} bytes, {size - pos} left")
            value = _bare_value(data, pos, end)
            values.append(_parse_one(data, pos, end)[3] if value is None else value)
            pos = end
    except IndexError as error:
        raise DecodeError(f"records end after {len(values)} of {count}") from error
    if pos != size:
        raise DecodeError(f"{size - pos} bytes after the last of {count} records")
    return values


def _bare_value(data: bytes, pos: int, end: int) -> bytes | None:
    """The value of a record without key and headers whose numbers are of two bytes at most (as
    `_put_bare` puts it); None where it isn't one."""
    if data[pos + 1] >= 0x80:  # the time
        return None
    pos += 3 if data[pos + 2] < 0x80 else 4
    if data[pos - 1] >= 0x80 or data[pos] != _NULL:
        return None
    length = data[pos + 1]
    if length < 0x80:
        start = pos + 2
    else:
        start, high = pos + 3, data[pos + 2]
        if high >= 0x80:
            return None
        length = length & 0x7F | high << 7
    if length & 1 or start + (length >> 1) != end - 1 or data[end - 1] != 0:
        return None
    return data[start : end - 1]
