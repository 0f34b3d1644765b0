"""Encodes kio's message classes.

kio's own writer makes a dozen Python calls for a field of a few bytes, two of them to check the
type of a number that it then packs: encoding took longer than all else that a broker does for a
small request. This one takes its layout from the same classes and writes the same bytes. A value
that doesn't fit into its field raises, but not in every case what kio raises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from operator import attrgetter
from struct import Struct
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from wire.reader import implicit_default

Writer = Callable[[bytearray, Any], None]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def _fixed(layout: str) -> Writer:
    pack = Struct(">" + layout).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write


def _duration(layout: str) -> Writer:
    pack = Struct(">" + layout).pack

    def write(out: bytearray, value: timedelta) -> None:
        out += pack(value // _MILLISECOND)

    return write


_pack_int16, _pack_int32, _pack_int64 = Struct(">h").pack, Struct(">i").pack, Struct(">q").pack


def _write_moment(out: bytearray, value: datetime | None) -> None:
    out += _pack_int64(-1 if value is None else (value - _EPOCH) // _MILLISECOND)


def _write_uuid(out: bytearray, value: Any) -> None:
    out += bytes(16) if value is None else value.bytes


def write_uvarint(out: bytearray, value: int) -> None:
    """Unsigned LEB128."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_compact_length(out: bytearray, length: int) -> None:
    if length < 0x7F:
        out.append(length + 1)
    else:
        write_uvarint(out, length + 1)


def _write_int16(out: bytearray, value: int) -> None:
    out += _pack_int16(value)


def _write_int32(out: bytearray, value: int) -> None:
    out += _pack_int32(value)


def _sized(write_length: Callable[[bytearray, int], None], nullable: bool) -> Writer:
    """Text or bytes behind their length."""

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise TypeError("null where a value must be")
            write_length(out, -1)
            return
        raw = value.encode() if isinstance(value, str) else value
        write_length(out, len(raw))
        out += raw

    return write


def _array(write_length: Callable[[bytearray, int], None], write_item: Writer) -> Writer:
    def write(out: bytearray, items: Any) -> None:
        # Some kio versions mark the item, not the array, as nullable: None is the array's always.
        if items is None:
            write_length(out, -1)
            return
        write_length(out, len(items))
        for item in items:
            write_item(out, item)

    return write


_FIXED: dict[str, Writer] = {
    "bool": _fixed("?"),
    "int8": _fixed("b"),
    "int16": _write_int16,
    "int32": _write_int32,
    "int64": _fixed("q"),
    "uint8": _fixed("B"),
    "uint16": _fixed("H"),
    "uint32": _fixed("I"),
    "uint64": _fixed("Q"),
    "float64": _fixed("d"),
    "error_code": _write_int16,
    "timedelta_i32": _duration("i"),
    "timedelta_i64": _duration("q"),
    "datetime_i64": _write_moment,
    "uuid": _write_uuid,
}


def _primitive(kafka_type: str, flexible: bool, nullable: bool) -> Writer:
    if kafka_type in _FIXED:
        return _FIXED[kafka_type]
    assert kafka_type in ("string", "bytes", "records"), kafka_type
    if flexible:
        return _sized(_write_compact_length, nullable)
    return _sized(_write_int16 if kafka_type == "string" else _write_int32, nullable)


def _nullable_struct(write_struct: Writer) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
            return
        out.append(1)
        write_struct(out, value)

    return write


def _field_writer(field: Field[Any], flexible: bool) -> Writer:
    kind: Any = field.type
    nullable = False
    if get_origin(kind) is UnionType:
        # A tagged field that is None is left out: what is written is a value.
        nullable = "tag" not in field.metadata
        kind = next(arg for arg in get_args(kind) if arg is not NoneType)
    if get_origin(kind) is tuple:
        item: Any = get_args(kind)[0]
        if is_dataclass(item):
            write_item = _struct_writer_of(item)
        else:
            write_item = _primitive(field.metadata["kafka_type"], flexible, False)
        return _array(_write_compact_length if flexible else _write_int32, write_item)
    if is_dataclass(kind):
        write_struct = _struct_writer_of(kind)
        return _nullable_struct(write_struct) if nullable else write_struct
    return _primitive(field.metadata["kafka_type"], flexible, nullable)


def _struct_writer_of(kind: Any) -> Writer:
    return struct_writer(kind)


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What takes the values of these fields from an entity, in one call where there are several."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda entity: tuple(getattr(entity, name) for name in names)


_Tagged = tuple[int, str, Any, Writer]


def _tagged_field(field: Field[Any]) -> _Tagged:
    """Its tag, its name, the value with which it is left out, and how it is written."""
    default = implicit_default(field) if field.default is MISSING else field.default
    return field.metadata["tag"], field.name, default, _field_writer(field, True)


def _write_tags(out: bytearray, entity: Any, tagged: list[_Tagged]) -> None:
    count, tags = 0, bytearray()
    for tag, name, default, write_value in tagged:
        value = getattr(entity, name)
        if value == default:
            continue
        content = bytearray()
        write_value(content, value)
        write_uvarint(tags, tag)
        write_uvarint(tags, len(content))
        tags += content
        count += 1
    write_uvarint(out, count)
    out += tags


@cache
def struct_writer(cls: Any) -> Writer:
    """The writer of one message class or nested class."""
    flexible: bool = cls.__flexible__
    plain = [field for field in fields(cls) if "tag" not in field.metadata]
    writers = [_field_writer(field, flexible) for field in plain]
    values_of = _values_of([field.name for field in plain])
    # KIP-482 wants tags in their order.
    tagged = sorted(_tagged_field(field) for field in fields(cls) if "tag" in field.metadata)

    def write(out: bytearray, entity: Any) -> None:
        for write_value, value in zip(writers, values_of(entity), strict=True):
            write_value(out, value)
        if tagged:
            _write_tags(out, entity, tagged)
        elif flexible:
            out.append(0)

    return write
