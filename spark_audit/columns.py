"""From records to the Arrow columns of the `kraft` data source.

Only the columns that a query's schema names are built. Rows of the frequent types come from
the kernels as arrays; the others are decoded one by one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from metadata.records import (
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    UnknownRecord,
    name_of,
    to_json,
)
from spark_audit import kernels
from spark_audit.control import control_json
from spark_audit.frames import Bytes, Ints
from spark_audit.kernels import Partitions
from spark_audit.rows import Item, Rows, Sorted, sort_rows
from wire.control import Control
from wire.errors import DecodeError
from wire.uuids import to_text

# Name, Spark type: every column there is. Times are milliseconds since 1970.
COLUMNS = {
    "offset": "bigint",
    "epoch": "int",
    "timestamp": "bigint",
    "record_type": "string",
    "record_version": "int",
    "api_key": "int",
    "source": "string",
    "position": "bigint",
    "topic_id": "string",
    "topic": "string",
    "partition": "int",
    "leader": "int",
    "isr": "array<int>",
    "replicas": "array<int>",
    "leader_epoch": "int",
    "partition_epoch": "int",
    "broker_id": "int",
    "broker_epoch": "bigint",
    "fenced": "boolean",
    "in_controlled_shutdown": "boolean",
    "resource_type": "int",
    "resource_name": "string",
    "config_name": "string",
    "config_value": "string",
    "feature_name": "string",
    "feature_level": "int",
    "payload": "string",
}
DEFAULT_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items() if name != "payload")

_PLAIN = frozenset(["offset", "epoch", "timestamp", "source", "position"])
_KINDS = frozenset(["record_type", "record_version", "api_key"])
_KERNEL = frozenset(["topic_id", "partition", "leader", "isr", "replicas"])
# Where a record's field has another name than its column.
_FIELDS = {
    "partition": "partition_id",
    "config_name": "name",
    "config_value": "value",
    "feature_name": "name",
}
_ONLY_OF = {
    "config_name": "ConfigRecord",
    "config_value": "ConfigRecord",
    "feature_name": "FeatureLevelRecord",
    "feature_level": "FeatureLevelRecord",
    "topic": "TopicRecord",
    "resource_type": "ConfigRecord",
    "resource_name": "ConfigRecord",
}
UNDECODABLE = "Undecodable"


def _fenced(value: Any) -> bool | None:
    """A record's state as it is, a change record's number: 1 fences, -1 unfences, 0 is none."""
    if isinstance(value, bool):
        return value
    return None if not value else value > 0


def typed_field(item: Item, column: str) -> Any:
    """What one record has for one typed column; None where it has nothing to say."""
    if isinstance(item, Control):
        return getattr(item.entity, "leader_id", None) if column == "leader" else None
    record = item.record
    if isinstance(record, UnknownRecord):
        return None
    name = record.NAME
    if _ONLY_OF.get(column, name) != name:
        return None
    if column == "topic":
        return record.name  # type: ignore[attr-defined]
    if isinstance(record, FenceBrokerRecord | UnfenceBrokerRecord):
        short = {"broker_id": record.id, "broker_epoch": record.epoch}
        return isinstance(record, FenceBrokerRecord) if column == "fenced" else short.get(column)
    value = getattr(record, _FIELDS.get(column, column), None)
    if column in ("fenced", "in_controlled_shutdown"):
        return _fenced(value)
    if column == "leader" and value == kernels.UNCHANGED:
        return None
    return to_text(value) if isinstance(value, UUID) else value


def payload(item: Item) -> str:
    """The record's fields as JSON, in the names of Kafka's schemas."""
    if isinstance(item, Control):
        fields = control_json(item.entity)
    else:
        fields = to_json(item.record, item.version)
    return json.dumps(fields, separators=(",", ":"))


@dataclass(slots=True)
class _Decoded:
    """The rows of a chunk that were decoded one by one."""

    numbers: list[int]
    items: list[Item | None]


class ChunkColumns:
    """Builds the columns of one chunk of records on demand."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._kinds = rows.kinds()
        self._sorted: Sorted | None = None
        self._decoded: _Decoded | None = None

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """One column as an Arrow array of the given type."""
        rows = self._rows
        if name in _PLAIN:
            return self._plain(name, kind)
        if name in _KINDS:
            return self._kind(name, kind)
        if name == "payload":
            return pa.array(self._payloads(), kind)
        if name in ("isr", "replicas"):
            return self._lists(name, kind)
        if name == "topic_id":
            return self._topic_ids(kind)
        if name in ("partition", "leader", "leader_epoch", "partition_epoch"):
            return self._numbers(name, kind)
        decoded = self._one_by_one()
        values: list[Any] = [None] * len(rows)
        for number, item in zip(decoded.numbers, decoded.items, strict=True):
            if item is not None:
                values[number] = typed_field(item, name)
        return pa.array(values, kind)

    def _plain(self, name: str, kind: pa.DataType) -> pa.Array:
        rows = self._rows
        if name == "source":
            return _repeated(rows.file, len(rows))
        array = pa.array(getattr(rows, name))
        if name == "timestamp" and pa.types.is_timestamp(kind):
            return array.cast(pa.timestamp("ms")).cast(pa.timestamp("us")).cast(kind)
        return array.cast(kind)

    def _sort(self) -> Sorted:
        if self._sorted is None:
            self._sorted = sort_rows(self._rows, self._kinds)
        return self._sorted

    def _one_by_one(self) -> _Decoded:
        if self._decoded is None:
            numbers = self._sort().rest.tolist()
            items: list[Item | None] = []
            for number in numbers:
                try:
                    items.append(self._rows.decode(number))
                except DecodeError:
                    items.append(None)
            self._decoded = _Decoded(numbers, items)
        return self._decoded

    def _kind(self, name: str, kind: pa.DataType) -> pa.Array:
        kinds = self._kinds
        code = np.where(kinds.known, kinds.api_key * 4096 + np.minimum(kinds.version, 4095), -1)
        special = code < 0
        values, inverse = np.unique(code, return_inverse=True)
        names: list[Any] = [None] * len(values)
        for index, each in enumerate(values.tolist()):
            if each >= 0:
                api_key, version = divmod(each, 4096)
                names[index] = {
                    "record_type": name_of(api_key),
                    "record_version": version,
                    "api_key": api_key,
                }[name]
        if not special.any():
            return pa.DictionaryArray.from_arrays(
                pa.array(inverse.astype(np.int32)), pa.array(names, kind)
            ).dictionary_decode()
        listed = [names[index] for index in inverse.tolist()]
        for row in np.flatnonzero(special).tolist():
            listed[row] = self._special_kind(row, name)
        return pa.array(listed, kind)

    def _special_kind(self, row: int, name: str) -> Any:
        """Type or version of a control record, or of a value that no one can read."""
        try:
            item = self._rows.decode(row)
        except DecodeError:
            return UNDECODABLE if name == "record_type" else None
        if not isinstance(item, Control):
            return {"record_type": name_of(item.api_key), "api_key": item.api_key}.get(
                name, item.version
            )
        return {"record_type": item.name, "record_version": item.version}.get(name)

    def _payloads(self) -> list[str | None]:
        found: list[str | None] = []
        for row in range(len(self._rows)):
            try:
                found.append(payload(self._rows.decode(row)))
            except DecodeError:
                found.append(None)
        return found

    def _kernel_parts(self) -> list[tuple[Ints, Partitions]]:
        return [(rows, part) for _, _, rows, part in self._sort().kernel if part is not None]

    def _slow_fields(self, name: str) -> tuple[list[int], list[Any]]:
        decoded = self._one_by_one()
        numbers, values = [], []
        for number, item in zip(decoded.numbers, decoded.items, strict=True):
            value = None if item is None else typed_field(item, name)
            if value is not None:
                numbers.append(number)
                values.append(value)
        return numbers, values

    def _numbers(self, name: str, kind: pa.DataType) -> pa.Array:
        n = len(self._rows)
        values = np.zeros(n, dtype=np.int32)
        absent = np.ones(n, dtype=np.bool_)
        for rows, part in self._kernel_parts():
            column = getattr(part, name)
            if not len(column) and len(rows):
                continue
            values[rows] = column
            absent[rows] = column == kernels.UNCHANGED if name == "leader" else False
        numbers, slow = self._slow_fields(name)
        if numbers:
            values[numbers] = slow
            absent[numbers] = False
        return pa.array(values, mask=absent).cast(kind)

    def _lists(self, name: str, kind: pa.DataType) -> pa.Array:
        n = len(self._rows)
        lengths = np.full(n, -1, dtype=np.int64)
        parts = self._kernel_parts()
        for rows, part in parts:
            lengths[rows] = getattr(part, name).count
        numbers, slow = self._slow_fields(name)
        if numbers:
            lengths[numbers] = [len(value) for value in slow]
        offsets = np.zeros(n + 1, dtype=np.int32)
        np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
        values = np.zeros(int(offsets[-1]), dtype=np.int32)
        for rows, part in parts:
            each, flat = kernels.int_lists(self._rows.data, getattr(part, name))
            inside = np.arange(len(flat)) - np.repeat(np.cumsum(each) - each, each)
            values[np.repeat(offsets[rows].astype(np.int64), each) + inside] = flat
        for number, value in zip(numbers, slow, strict=True):
            values[offsets[number] : offsets[number] + len(value)] = value
        return pa.ListArray.from_arrays(
            pa.array(offsets), pa.array(values), type=kind, mask=pa.array(lengths < 0)
        )

    def _topic_ids(self, kind: pa.DataType) -> pa.Array:
        n = len(self._rows)
        texts: Bytes = np.zeros((n, 22), dtype=np.uint8)
        present = np.zeros(n, dtype=np.bool_)
        for rows, part in self._kernel_parts():
            texts[rows] = kernels.uuid_texts(self._rows.data, part.topic)
            present[rows] = True
        for number, value in zip(*self._slow_fields("topic_id"), strict=True):
            texts[number] = np.frombuffer(value.encode("ascii"), dtype=np.uint8)
            present[number] = True
        offsets = np.zeros(n + 1, dtype=np.int32)
        np.cumsum(np.where(present, 22, 0), out=offsets[1:])
        validity = pa.py_buffer(np.packbits(present, bitorder="little").tobytes())
        buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(texts[present].tobytes())]
        return pa.Array.from_buffers(pa.string(), n, buffers).cast(kind)


def _repeated(text: str, times: int) -> pa.Array:
    raw = text.encode()
    offsets = np.arange(times + 1, dtype=np.int32) * len(raw)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(raw * times)]
    return pa.Array.from_buffers(pa.string(), times, buffers)
