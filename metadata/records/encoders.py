"""Encoding of record bodies: a generic writer built from the schema, and three written by hand.

PartitionRecord, PartitionChangeRecord and ConfigRecord are nearly all of a busy log, so theirs are
plain code; tests hold them against the generic ones.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final
from uuid import UUID

from metadata.records.schema import Entity, FieldSchema, schema_of
from metadata.records.types import (
    NO_LEADER_CHANGE,
    RECOVERY_RECOVERED,
    RECOVERY_UNCHANGED,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
)

Writer = Callable[[bytearray, Any], None]

_ID_AND_UUID: Final = struct.Struct(">i16s")
_LEADER_AND_EPOCHS: Final = struct.Struct(">iii")
_INT32: Final = struct.Struct(">i")
_INT8: Final = struct.Struct(">b")


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned LEB128 number; it must not be negative."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _fixed(code: str) -> Writer:
    pack = struct.Struct(">" + code).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write


def _write_uuid(out: bytearray, value: UUID) -> None:
    out += value.bytes


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(0)
        return
    write_uvarint(out, len(value) + 1)
    out += value


def _write_string(out: bytearray, value: str | None) -> None:
    _write_bytes(out, None if value is None else value.encode())


_PRIMITIVES: Final[dict[str, Writer]] = {
    "bool": _fixed("?"),
    "int8": _fixed("b"),
    "int16": _fixed("h"),
    "uint16": _fixed("H"),
    "int32": _fixed("i"),
    "int64": _fixed("q"),
    "float64": _fixed("d"),
    "uuid": _write_uuid,
    "string": _write_string,
    "bytes": _write_bytes,
}


def _array(item: Writer) -> Writer:
    def write(out: bytearray, value: tuple[Any, ...] | None) -> None:
        if value is None:
            out.append(0)
            return
        write_uvarint(out, len(value) + 1)
        for element in value:
            item(out, element)

    return write


def _field_writer(schema: FieldSchema, version: int) -> Writer:
    if schema.nested is not None:
        item = body_writer(schema.nested, version)
    else:
        item = _PRIMITIVES[schema.kafka_type]
    writer = _array(item) if schema.is_array else item
    if schema.nullable:
        return writer

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            raise ValueError(f"{schema.kafka_name} must not be null")
        writer(out, value)

    return write


def body_writer(cls: type[Entity], version: int) -> Writer:
    """A function that appends an entity's body in that version. It raises ValueError when the
    entity holds a value that the version has no field for."""
    present = [f for f in schema_of(cls) if f.since <= version]
    absent = [(f.name, f.kafka_name, f.default) for f in schema_of(cls) if f.since > version]
    plain = [(f.name, _field_writer(f, version)) for f in present if f.tag is None]
    tagged = sorted(
        (f.tag, f.name, f.default, _field_writer(f, version)) for f in present if f.tag is not None
    )

    def write(out: bytearray, entity: Any) -> None:
        for name, kafka_name, default in absent:
            if getattr(entity, name) != default:
                raise ValueError(f"{cls.__name__} version {version} cannot hold {kafka_name}")
        for name, writer in plain:
            writer(out, getattr(entity, name))
        chosen = []
        for tag, name, default, writer in tagged:
            value = getattr(entity, name)
            if value != default:
                chosen.append((tag, value, writer))
        write_uvarint(out, len(chosen))
        for tag, value, writer in chosen:
            payload = bytearray()
            writer(payload, value)
            write_uvarint(out, tag)
            write_uvarint(out, len(payload))
            out += payload

    return write


def _append_int32s(out: bytearray, values: tuple[int, ...]) -> None:
    count = len(values)
    write_uvarint(out, count + 1)
    out += struct.pack(f">{count}i", *values)


def _append_uuids(out: bytearray, values: tuple[UUID, ...]) -> None:
    write_uvarint(out, len(values) + 1)
    for value in values:
        out += value.bytes


def _append_tagged_int32s(out: bytearray, tag: int, values: tuple[int, ...]) -> None:
    count = len(values)
    out.append(tag)
    write_uvarint(out, 4 * count + (1 if count < 0x7F else 2 if count < 0x3FFF else 3))
    _append_int32s(out, values)


def _write_partition(out: bytearray, record: PartitionRecord, version: int) -> None:
    out += _ID_AND_UUID.pack(record.partition_id, record.topic_id.bytes)
    _append_int32s(out, record.replicas)
    _append_int32s(out, record.isr)
    _append_int32s(out, record.removing_replicas)
    _append_int32s(out, record.adding_replicas)
    out += _LEADER_AND_EPOCHS.pack(record.leader, record.leader_epoch, record.partition_epoch)
    if version >= 1:
        _append_uuids(out, record.directories)
    elif record.directories:
        raise ValueError("PartitionRecord version 0 cannot hold Directories")
    elr, last_known = record.eligible_leader_replicas, record.last_known_elr
    if version < 2 and (elr is not None or last_known is not None):
        raise ValueError(f"PartitionRecord version {version} cannot hold EligibleLeaderReplicas")
    recovering = record.leader_recovery_state != RECOVERY_RECOVERED
    out.append(recovering + (elr is not None) + (last_known is not None))
    if recovering:
        out += struct.pack(">BBb", 0, 1, record.leader_recovery_state)
    if elr is not None:
        _append_tagged_int32s(out, 1, elr)
    if last_known is not None:
        _append_tagged_int32s(out, 2, last_known)


def _write_partition_change(out: bytearray, record: PartitionChangeRecord, version: int) -> None:
    directories, elr = record.directories, record.eligible_leader_replicas
    last_known = record.last_known_elr
    if version < 2 and (elr is not None or last_known is not None):
        raise ValueError(
            f"PartitionChangeRecord version {version} cannot hold EligibleLeaderReplicas"
        )
    if version < 1 and directories is not None:
        raise ValueError("PartitionChangeRecord version 0 cannot hold Directories")
    out += _ID_AND_UUID.pack(record.partition_id, record.topic_id.bytes)
    count_at = len(out)
    out.append(0)
    count = 0
    if record.isr is not None:
        _append_tagged_int32s(out, 0, record.isr)
        count += 1
    if record.leader != NO_LEADER_CHANGE:
        out += b"\x01\x04"
        out += _INT32.pack(record.leader)
        count += 1
    for tag, values in (
        (2, record.replicas),
        (3, record.removing_replicas),
        (4, record.adding_replicas),
    ):
        if values is not None:
            _append_tagged_int32s(out, tag, values)
            count += 1
    if record.leader_recovery_state != RECOVERY_UNCHANGED:
        out += struct.pack(">BBb", 5, 1, record.leader_recovery_state)
        count += 1
    for tag, values in ((6, elr), (7, last_known)):
        if values is not None:
            _append_tagged_int32s(out, tag, values)
            count += 1
    if directories is not None:
        payload = bytearray()
        _append_uuids(payload, directories)
        out.append(8)
        write_uvarint(out, len(payload))
        out += payload
        count += 1
    out[count_at] = count


def _write_config(out: bytearray, record: ConfigRecord) -> None:
    out += _INT8.pack(record.resource_type)
    for text in (record.resource_name, record.name, record.value):
        if text is None:  # the value's alone
            out.append(0)
            continue
        data = text.encode()
        if len(data) < 0x7F:
            out.append(len(data) + 1)
        else:
            write_uvarint(out, len(data) + 1)
        out += data
    out.append(0)


@cache
def record_writer(cls: Any, version: int) -> Writer:
    """The body writer of a record type in one of its versions."""
    if cls is PartitionRecord:
        return lambda out, record: _write_partition(out, record, version)
    if cls is ConfigRecord:
        return _write_config
    if cls is PartitionChangeRecord:
        return lambda out, record: _write_partition_change(out, record, version)
    return body_writer(cls, version)
