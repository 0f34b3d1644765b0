"""The records of a stretch of a log as arrays, with what is wrong inside its batches.

`chunks` cuts a stretch into pieces of about a hundred thousand records; `Rows` holds one such
piece. Values stay bytes in one buffer until somebody asks: kernels read the frequent types,
`decode` reads one row at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from metadata import records as metadata_records
from spark_audit import kernels
from spark_audit.findings import Finding
from spark_audit.frames import (
    PADDING,
    Bytes,
    Frames,
    Headers,
    Ints,
    Mask,
    big_endian,
    padded,
    read_headers,
    split,
)
from spark_audit.kernels import Kinds, Partitions
from wire.batch import decode_records, read_header
from wire.control import Control, decode_control
from wire.errors import DecodeError

RECORDS_PER_CHUNK = 100_000
_BATCHES_PER_CHUNK = 65_536

Item = metadata_records.Decoded | Control


@dataclass(slots=True)
class Rows:
    """Records in file order. `position` is where a record's batch starts in its file."""

    file: str
    data: Bytes
    batch: Ints
    position: Ints
    offset: Ints
    epoch: Ints
    timestamp: Ints
    control: Mask
    key_position: Ints
    key_length: Ints
    value_position: Ints
    value_length: Ints
    problems: list[Finding] = field(default_factory=list)
    _kinds: Kinds | None = None

    def __len__(self) -> int:
        return len(self.offset)

    def value(self, row: int) -> bytes | None:
        length = int(self.value_length[row])
        start = int(self.value_position[row])
        return None if length < 0 else self.data[start : start + length].tobytes()

    def key(self, row: int) -> bytes | None:
        length = int(self.key_length[row])
        start = int(self.key_position[row])
        return None if length < 0 else self.data[start : start + length].tobytes()

    def kinds(self) -> Kinds:
        """Frames of all values; control records and values without a sound frame aren't known."""
        if self._kinds is None:
            found = kernels.kinds(self.data, self.value_position, self.value_length)
            found.known &= ~self.control
            self._kinds = found
        return self._kinds

    def decode(self, row: int) -> Item:
        """The record of one row; DecodeError where it can't be read."""
        value = self.value(row)
        if self.control[row]:
            return decode_control(self.key(row), value)
        if value is None:
            raise DecodeError("a metadata record without a value")
        return metadata_records.decode(value)

    def finding(self, code: str, row: int, detail: str) -> Finding:
        return Finding(
            code, self.file, f"offset {self.offset[row]}: {detail}", int(self.position[row]),
            int(self.offset[row]), int(self.epoch[row]), int(self.timestamp[row]),
        )  # fmt: skip


@dataclass(slots=True)
class Sorted:
    """Rows by how they are decoded: `kernel` holds (api key, version, rows, columns) for the
    rows that numpy read, `rest` the numbers of all others."""

    kernel: list[tuple[int, int, Ints, Partitions | None]]
    rest: Ints


def sort_rows(rows: Rows, kinds: Kinds) -> Sorted:
    """Runs the kernels over the rows of the types they know."""
    end = rows.value_position + np.maximum(rows.value_length, 0)
    plain = kinds.known & (kinds.api_key < 64) & (kinds.version < 64)
    code = np.where(plain, kinds.api_key * 64 + kinds.version, 4096)
    done = np.zeros(len(rows), dtype=np.bool_)
    kernel: list[tuple[int, int, Ints, Partitions | None]] = []
    for each in np.flatnonzero(np.bincount(code, minlength=4097)[:4096]):
        api_key, version = divmod(int(each), 64)
        if not kernels.supported(api_key, version):
            continue
        which = np.flatnonzero(code == each)
        body, stop = kinds.body[which], end[which]
        if api_key == kernels.NO_OP:
            good = kernels.no_op(rows.data, body, stop)
            kernel.append((api_key, version, which[good], None))
        else:
            read = kernels.partition_record
            if api_key == kernels.PARTITION_CHANGE:
                read = kernels.partition_change
            columns = read(rows.data, body, stop, version)
            good = columns.ok
            kernel.append((api_key, version, which[good], _only(columns, good)))
        done[which[good]] = True
    return Sorted(kernel, np.flatnonzero(~done))


def _only(columns: Partitions, keep: Mask) -> Partitions:
    if keep.all():
        return columns

    def lists(arrays: kernels.IntArrays) -> kernels.IntArrays:
        return kernels.IntArrays(arrays.position[keep], arrays.count[keep])

    full = len(columns.leader_epoch) > 0
    return Partitions(
        ok=keep[keep],
        partition=columns.partition[keep],
        topic=columns.topic[keep],
        leader=columns.leader[keep],
        isr=lists(columns.isr),
        replicas=lists(columns.replicas),
        removing=lists(columns.removing),
        adding=lists(columns.adding),
        elr=lists(columns.elr),
        plain=columns.plain[keep],
        leader_epoch=columns.leader_epoch[keep] if full else columns.leader_epoch,
        partition_epoch=columns.partition_epoch[keep] if full else columns.partition_epoch,
    )


def chunks(file: str, data: bytes, positions: list[int], base: int = 0) -> Iterator[Rows]:
    """The records of the sound batches at `positions` in `data`, which lies at byte `base` of
    its file."""
    if not positions:
        return
    array = padded(data)
    places = np.array(positions, dtype=np.int64)
    counts = big_endian(array, places + 57, ">i4")
    totals = np.cumsum(np.clip(counts, 0, None))
    start = 0
    while start < len(places):
        before = int(totals[start - 1]) if start else 0
        stop = int(np.searchsorted(totals, before + RECORDS_PER_CHUNK, side="right"))
        stop = min(max(stop, start + 1), start + _BATCHES_PER_CHUNK)
        yield _rows(file, data, array, places[start:stop], base)
        start = stop


def _rows(file: str, data: bytes, array: Bytes, places: Ints, base: int) -> Rows:
    headers = read_headers(array, places)
    frames = split(array, headers)
    problems: list[Finding] = []
    for number in np.flatnonzero(headers.count != headers.last_delta + 1):
        detail = f"{headers.count[number]} records, last delta {headers.last_delta[number]}"
        problems.append(_batch_finding("count-mismatch", file, headers, int(number), base, detail))
    if len(frames.odd):
        array = _add_odd(file, data, array, headers, frames, base, problems)
    batch = frames.batch
    return Rows(
        file=file,
        data=array,
        batch=batch,
        position=headers.position[batch] + base,
        offset=frames.offset,
        epoch=headers.epoch[batch],
        timestamp=frames.timestamp,
        control=headers.control[batch],
        key_position=frames.key_position,
        key_length=frames.key_length,
        value_position=frames.value_position,
        value_length=frames.value_length,
        problems=problems,
    )


def _batch_finding(
    code: str, file: str, headers: Headers, number: int, base: int, detail: str
) -> Finding:
    return Finding(
        code, file, detail, int(headers.position[number]) + base,
        int(headers.base_offset[number]), int(headers.epoch[number]),
        int(headers.max_timestamp[number]),
    )  # fmt: skip


def _add_odd(
    file: str,
    data: bytes,
    array: Bytes,
    headers: Headers,
    frames: Frames,
    base: int,
    problems: list[Finding],
) -> Bytes:
    """Reads the batches that numpy left out, one record at a time, into the same frames.

    Their values go behind the buffer, which is returned anew.
    """
    extra: list[tuple[int, int, int, int, int, int, int]] = []
    behind = bytearray()
    for number in (int(odd) for odd in frames.odd):
        position = int(headers.position[number])
        try:
            records = decode_records(data, position, read_header(data, position))
        except DecodeError as error:
            finding = _batch_finding("bad-records", file, headers, number, base, str(error))
            problems.append(finding)
            continue
        for record in records:
            places = []
            for part in (record.key, record.value):
                places += [len(array) + len(behind), -1 if part is None else len(part)]
                behind += part or b""
            extra.append((number, record.offset, record.timestamp, *places))  # type: ignore[arg-type]
    if not extra:
        return array
    table = np.array(extra, dtype=np.int64).T
    own = [
        frames.batch, frames.offset, frames.timestamp, frames.key_position,
        frames.key_length, frames.value_position, frames.value_length,
    ]  # fmt: skip
    joined = [np.concatenate(pair) for pair in zip(own, table, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    (
        frames.batch, frames.offset, frames.timestamp, frames.key_position,
        frames.key_length, frames.value_position, frames.value_length,
    ) = (column[order] for column in joined)  # fmt: skip
    tail: npt.NDArray[np.uint8] = np.frombuffer(bytes(behind) + bytes(PADDING), dtype=np.uint8)
    return np.concatenate([array, tail])
