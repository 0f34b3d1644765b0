"""Splits record batches into records with numpy: record k of every batch at once.

The arrays of one call describe the records of many batches: where each one's value lies, its
offset and timestamp. Batches that this can't take apart (compressed ones, ones with headers,
very long ones, malformed ones) are handed back by number for a record-at-a-time reader.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_audit.walk import HEADER_SIZE

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

PADDING = 64  # bytes that `padded` adds, so that reads past a damaged end stay inside
LONG_BATCH = 2500  # from about here on, one record at a time is the faster way


def padded(data: bytes) -> Bytes:
    """The bytes as an array with room behind, for reads that run over the end."""
    array = np.zeros(len(data) + PADDING, dtype=np.uint8)
    array[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    return array


def big_endian(data: Bytes, at: Ints, dtype: str) -> Ints:
    """Big-endian numbers of `dtype` (">i4", ">u2", …) at the given places."""
    width = np.dtype(dtype).itemsize
    picked = data[at[:, None] + np.arange(width)]
    return np.ascontiguousarray(picked).view(dtype).ravel().astype(np.int64)


def uvarints(data: Bytes, at: Ints, longest: int = 5) -> tuple[Ints, Ints, Mask]:
    """Unsigned varints at the given places: values, the places after them, which are sound."""
    first = data[at].astype(np.int64)
    after = at + 1
    more = first >= 0x80
    if not more.any():
        return first, after, np.ones(len(at), dtype=np.bool_)
    value = first & 0x7F
    pending = np.flatnonzero(more)
    for step in range(1, longest):
        byte = data[after[pending]].astype(np.int64)
        value[pending] |= (byte & 0x7F) << (7 * step)
        after[pending] += 1
        pending = pending[byte >= 0x80]
        if not len(pending):
            break
    sound = np.ones(len(at), dtype=np.bool_)
    sound[pending] = False
    return value, after, sound


def varints(data: Bytes, at: Ints, longest: int = 5) -> tuple[Ints, Ints, Mask]:
    """Zigzag varints, as in record batches."""
    value, after, sound = uvarints(data, at, longest)
    return ((value >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(value & 1), after, sound


@dataclass(slots=True)
class Headers:
    """The header fields of n batches, one array each."""

    position: Ints
    length: Ints  # whole, with the 12 bytes before the length field's count begins
    base_offset: Ints
    epoch: Ints
    attributes: Ints
    last_delta: Ints
    base_timestamp: Ints
    max_timestamp: Ints
    count: Ints

    @property
    def control(self) -> Mask:
        mask: Mask = (self.attributes & 0x20) != 0
        return mask


def read_headers(data: Bytes, positions: Ints) -> Headers:
    """Gathers the headers of the batches at `positions`."""
    raw = np.ascontiguousarray(data[positions[:, None] + np.arange(HEADER_SIZE)])

    def field(start: int, dtype: str) -> Ints:
        stop = start + np.dtype(dtype).itemsize
        return np.ascontiguousarray(raw[:, start:stop]).view(dtype).ravel().astype(np.int64)

    return Headers(
        position=positions,
        length=field(8, ">i4") + 12,
        base_offset=field(0, ">i8"),
        epoch=field(12, ">i4"),
        attributes=field(21, ">u2"),
        last_delta=field(23, ">i4"),
        base_timestamp=field(27, ">i8"),
        max_timestamp=field(35, ">i8"),
        count=field(57, ">i4"),
    )


@dataclass(slots=True)
class Frames:
    """Records of many batches in file order. A null value has length -1, as has a null key."""

    batch: Ints  # number of the batch among the positions given
    offset: Ints
    timestamp: Ints
    key_position: Ints
    key_length: Ints
    value_position: Ints
    value_length: Ints
    odd: Ints  # numbers of the batches that were left out

    def __len__(self) -> int:
        return len(self.batch)


def split(data: Bytes, headers: Headers) -> Frames:
    """Frames the records of all plain batches; `odd` names the rest."""
    end = headers.position + headers.length
    plain = (
        ((headers.attributes & 0x07) == 0) & (headers.count >= 0) & (headers.count <= LONG_BATCH)
    )
    cursor = headers.position + HEADER_SIZE
    sound = plain.copy()
    columns: list[tuple[Ints, ...]] = []
    alive = np.flatnonzero(plain & (headers.count > 0))
    round_number = 0
    while len(alive):
        step = _record(data, cursor[alive], end[alive])
        bad = ~step.sound
        if bad.any():
            sound[alive[bad]] = False
        good = ~bad
        at = alive[good]
        columns.append((at, *(column[good] for column in step.columns)))
        cursor[at] = step.after[good]
        round_number += 1
        alive = at[headers.count[at] > round_number]
    sound &= cursor == end  # bytes left after the last record
    odd = np.flatnonzero(~sound)
    return _assemble(headers, columns, sound, odd, round_number)


@dataclass(slots=True)
class _Step:
    columns: tuple[Ints, ...]
    after: Ints
    sound: Mask


def _record(data: Bytes, at: Ints, end: Ints) -> _Step:
    """One record of each batch: (timestamp delta, offset delta, key, value) and what follows."""
    length, body, sound = varints(data, at)
    after = body + length
    sound &= (length >= 7) & (after <= end)
    body = np.where(sound, body, at)  # a wild length must not send a read outside
    timestamp, here, fine = varints(data, body + 1, 10)
    sound &= fine
    delta, here, fine = varints(data, here)
    sound &= fine
    key_length, key_position, fine = varints(data, here)
    sound &= fine & (key_length >= -1) & (key_position + np.maximum(key_length, 0) < after)
    here = np.where(sound, key_position + np.maximum(key_length, 0), at)
    value_length, value_position, fine = varints(data, here)
    sound &= fine & (value_length >= -1)
    sound &= value_position + np.maximum(value_length, 0) < after
    here = np.where(sound, value_position + np.maximum(value_length, 0), at)
    # A header count of zero is one zero byte, and the record ends with it.
    sound &= (data[here] == 0) & (here + 1 == after)
    columns = (timestamp, delta, key_position, key_length, value_position, value_length)
    return _Step(columns, after, sound)


def _assemble(
    headers: Headers,
    columns: list[tuple[Ints, ...]],
    sound: Mask,
    odd: Ints,
    rounds: int,
) -> Frames:
    if not columns:
        empty = np.zeros(0, dtype=np.int64)
        return Frames(empty, empty, empty, empty, empty, empty, empty, odd)
    joined = [np.concatenate(parts) for parts in zip(*columns, strict=True)]
    batch = joined[0]
    if rounds > 1:
        order = np.argsort(batch, kind="stable")
        joined = [column[order] for column in joined]
        batch = joined[0]
    if len(odd):
        keep = sound[batch]
        joined = [column[keep] for column in joined]
        batch = joined[0]
    timestamp = headers.base_timestamp[batch] + joined[1]
    appended = (headers.attributes & 0x08) != 0  # log-append time is the batch's alone
    if appended.any():
        timestamp = np.where(appended[batch], headers.max_timestamp[batch], timestamp)
    return Frames(batch, headers.base_offset[batch] + joined[2], timestamp, *joined[3:], odd)  # type: ignore[call-arg]
