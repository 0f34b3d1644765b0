"""From records to the Arrow columns of the `kraft` data source.

Only the columns that a query's schema names are built. Rows of the frequent types come from
the kernels as arrays; the others are decoded one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from metadata.records import UnknownRecord, name_of, record_class
from spark_audit import kernels
from spark_audit.fields import control_field, field_reader, payload
from spark_audit.frames import Bytes, Ints
from spark_audit.kernels import Partitions
from spark_audit.rows import Rows, Sorted, sort_rows
from wire.control import Control
from wire.errors import DecodeError

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
    "removing": "array<int>",
    "adding": "array<int>",
    "elr": "array<int>",
    "leader_epoch": "int",
    "partition_epoch": "int",
    "broker_id": "int",
    "broker_epoch": "bigint",
    "fenced": "boolean",
    "in_controlled_shutdown": "boolean",
    "controller_id": "int",
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
_LISTS = frozenset(["isr", "replicas", "removing", "adding", "elr"])
UNDECODABLE = "Undecodable"


@dataclass(slots=True)
class _Group:
    """Rows of one type that no kernel read, decoded when a column first needs them."""

    rows: list[int]
    items: list[Any] | None = None


_CONTROL = -1


class ChunkColumns:
    """Builds the columns of one chunk of records on demand; `payloads` names the record types
    whose payload is wanted, None for all."""

    def __init__(self, rows: Rows, payloads: frozenset[str] | None = None) -> None:
        self._rows = rows
        self._wanted = payloads
        self._kinds = rows.kinds()
        self._sorted: Sorted | None = None
        self._grouped: dict[int, _Group] | None = None

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """One column as an Arrow array of the given type."""
        rows = self._rows
        if name in _PLAIN:
            return self._plain(name, kind)
        if name in _KINDS:
            return self._kind(name, kind)
        if name == "payload":
            return pa.array(self._payloads(), kind)
        if name in _LISTS:
            return self._lists(name, kind)
        if name == "topic_id":
            return self._topic_ids(kind)
        if name in ("partition", "leader", "leader_epoch", "partition_epoch"):
            return self._numbers(name, kind)
        numbers, slow = self._slow_fields(name)
        if not numbers:
            return pa.nulls(len(rows), kind)
        values: list[Any] = [None] * len(rows)
        for number, value in zip(numbers, slow, strict=True):
            values[number] = value
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

    def _groups(self) -> dict[int, _Group]:
        """The rows that no kernel read, by api key, control records as -1."""
        if self._grouped is None:
            rest = self._sort().rest
            known = self._kinds.known[rest]
            key = np.where(
                known, self._kinds.api_key[rest], np.where(self._rows.control[rest], -1, -2)
            )
            self._grouped = {
                int(each): _Group(rest[key == each].tolist())
                for each in np.unique(key)
                if each >= _CONTROL
            }
        return self._grouped

    def _items(self, group: _Group) -> list[Any]:
        """The group's decoded records; None for one that can't be read or is unknown."""
        if group.items is None:
            group.items = []
            for row in group.rows:
                try:
                    item = self._rows.decode(row)
                except DecodeError:
                    group.items.append(None)
                    continue
                record = item if isinstance(item, Control) else item.record
                group.items.append(None if isinstance(record, UnknownRecord) else record)
        return group.items

    def _slow_fields(self, name: str) -> tuple[list[int], list[Any]]:
        """The rows that no kernel read and that have something for a column, and what."""
        numbers: list[int] = []
        values: list[Any] = []
        for api_key, group in self._groups().items():
            if api_key == _CONTROL:
                if name != "leader":
                    continue
                found = [item and control_field(item, name) for item in self._items(group)]
            else:
                cls: Any = record_class(api_key)
                read = None if cls is None else field_reader(cls, name)
                if read is None:
                    continue
                found = [None if item is None else read(item) for item in self._items(group)]
            for row, value in zip(group.rows, found, strict=True):
                if value is not None:
                    numbers.append(row)
                    values.append(value)
        return numbers, values

    def _kind(self, name: str, kind: pa.DataType) -> pa.Array:
        kinds = self._kinds
        plain = kinds.known & (kinds.api_key < 64) & (kinds.version < 16)
        code = np.where(plain, kinds.api_key * 16 + kinds.version, 1024)
        present = np.flatnonzero(np.bincount(code, minlength=1025)[:1024])
        place = np.zeros(1025, dtype=np.int32)
        place[present] = np.arange(len(present))
        index = place[code]
        values: list[Any] = []
        for api_key, version in (divmod(int(each), 16) for each in present):
            values.append(
                {"record_type": name_of(api_key), "record_version": version}.get(name, api_key)
            )
        for row in np.flatnonzero(~plain).tolist():
            index[row] = len(values)
            values.append(self._special_kind(row, name))
        return pa.DictionaryArray.from_arrays(pa.array(index), pa.array(values, kind)).cast(kind)

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
        found: list[str | None] = [None] * len(self._rows)
        for row in self._payload_rows():
            try:
                item = self._rows.decode(row)
            except DecodeError:
                continue
            found[row] = payload(item)
        return found

    def _payload_rows(self) -> list[int]:
        """The rows whose payload is wanted: it is the one column that costs every row much."""
        rows, kinds, wanted = self._rows, self._kinds, self._wanted
        if wanted is None:
            return list(range(len(rows)))
        present = np.unique(kinds.api_key[kinds.known]).tolist()
        keys = [key for key in present if name_of(key) in wanted]
        chosen = kinds.known & np.isin(kinds.api_key, keys)
        for row in np.flatnonzero(rows.control).tolist():
            chosen[row] = self._special_kind(row, "record_type") in wanted
        found: list[int] = np.flatnonzero(chosen).tolist()
        return found

    def _kernel_parts(self) -> list[tuple[Ints, Partitions]]:
        return [(rows, part) for _, _, rows, part in self._sort().kernel if part is not None]

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
