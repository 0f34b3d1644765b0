"""How a record's fields are stated, once, on its dataclass, and the codecs made from that.

A field says its Kafka type, the versions that carry it, and its tag if it is a tagged field. Older
versions of a record have Kafka's legacy strings and arrays, newer ones the compact ones and tagged
fields (KIP-482). Every length is checked against the bytes at hand before anything is allocated,
and an error names the field, the byte and the value that was found there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import MISSING, field, fields
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from wire.errors import DecodeError
from wire.reader import read_uvarint

Read = Callable[[bytes, int], tuple[Any, int]]
"""(buffer, position) -> (value, position after it)."""
Write = Callable[[bytearray, Any], None]
NO_END = 0x7FFF


class Codec(NamedTuple):
    """One type's two directions."""

    read: Read
    write: Write


class Type(NamedTuple):
    """A field's type: its codec in each form of the protocol."""

    legacy: Codec
    flexible: Codec


def put_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned LEB128 number."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _fixed(code: str) -> Type:
    layout = struct.Struct(">" + code)
    pack, unpack, size = layout.pack, layout.unpack_from, layout.size

    def read(buffer: bytes, position: int) -> tuple[Any, int]:
        if position + size > len(buffer):
            raise _cut(buffer, position, size)
        return unpack(buffer, position)[0], position + size

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    codec = Codec(read, write)
    return Type(codec, codec)


def _cut(buffer: bytes, position: int, size: int) -> DecodeError:
    found = bytes(buffer[position:]).hex()
    return DecodeError(f"byte {position}: {size} bytes needed, found {found or 'the end'}")


def _read_uuid(buffer: bytes, position: int) -> tuple[UUID, int]:
    end = position + 16
    if end > len(buffer):
        raise _cut(buffer, position, 16)
    return UUID(bytes=bytes(buffer[position:end])), end


def _write_uuid(out: bytearray, value: UUID) -> None:
    out += value.bytes


def _read_uvarint(buffer: bytes, position: int) -> tuple[int, int]:
    try:
        return read_uvarint(buffer, position)
    except IndexError:
        raise DecodeError(f"byte {len(buffer)}: the bytes end where a varint must be") from None


def _read_compact_length(buffer: bytes, position: int) -> tuple[int, int]:
    length, position = _read_uvarint(buffer, position)
    return length - 1, position


def _write_compact_length(out: bytearray, length: int) -> None:
    put_uvarint(out, length + 1)


INT8, INT16, INT32, INT64 = _fixed("b"), _fixed("h"), _fixed("i"), _fixed("q")
UUID_TYPE = Type(Codec(_read_uuid, _write_uuid), Codec(_read_uuid, _write_uuid))
_COMPACT_LENGTH = Codec(_read_compact_length, _write_compact_length)


def _sized(length: Codec, nullable: bool, text: bool) -> Codec:
    def read(buffer: bytes, position: int) -> tuple[Any, int]:
        size, start = length.read(buffer, position)
        if size < 0:
            if nullable and size == -1:
                return None, start
            raise DecodeError(f"byte {position}: length {size} where a value must be")
        end = start + size
        if end > len(buffer):
            raise DecodeError(
                f"byte {position}: {size} bytes announced, {len(buffer) - start} left"
            )
        value = bytes(buffer[start:end])
        if not text:
            return value, end
        try:
            return str(value, "utf-8"), end
        except UnicodeDecodeError:
            raise DecodeError(f"byte {start}: not UTF-8: {value.hex()}") from None

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            length.write(out, -1)
            return
        raw = value.encode() if text else value
        length.write(out, len(raw))
        out += raw

    return Codec(read, write)


def _sized_type(legacy_length: Codec, nullable: bool, text: bool) -> Type:
    return Type(
        _sized(legacy_length, nullable, text),
        _sized(_COMPACT_LENGTH, nullable, text),
    )


STRING = _sized_type(INT16.legacy, nullable=False, text=True)
NULLABLE_STRING = _sized_type(INT16.legacy, nullable=True, text=True)
BYTES = _sized_type(INT32.legacy, nullable=False, text=False)


def _array(length: Codec, item: Codec, nullable: bool) -> Codec:
    read_item, write_item = item

    def read(buffer: bytes, position: int) -> tuple[Any, int]:
        count, start = length.read(buffer, position)
        if count < 0:
            if nullable and count == -1:
                return None, start
            raise DecodeError(f"byte {position}: array of {count}")
        # Every element of every type takes a byte at least.
        if count > len(buffer) - start:
            raise DecodeError(f"byte {position}: array of {count} in {len(buffer) - start} bytes")
        items = []
        for _ in range(count):
            value, start = read_item(buffer, start)
            items.append(value)
        return tuple(items), start

    def write(out: bytearray, value: tuple[Any, ...] | None) -> None:
        if value is None:
            length.write(out, -1)
            return
        length.write(out, len(value))
        for one in value:
            write_item(out, one)

    return Codec(read, write)


def array(item: Type, nullable: bool = False) -> Type:
    """An array of a type that is no struct."""
    return Type(
        _array(INT32.legacy, item.legacy, nullable),
        _array(_COMPACT_LENGTH, item.flexible, nullable),
    )


class Struct(NamedTuple):
    """A field that holds another dataclass, or an array of them, in the version of its record.

    `nullable` is for a single one in a tagged field: a varint before it says whether it is there.
    """

    cls: Any
    many: bool = True
    nullable: bool = False

    def codec(self, version: int, flexible: bool) -> Codec:
        """Both directions of this field in one version of the record that it is in."""
        inner = struct_codec(self.cls, version, flexible)
        if self.many:
            return _array(_COMPACT_LENGTH if flexible else INT32.legacy, inner, False)
        return _nullable_struct(inner) if self.nullable else inner


def _nullable_struct(inner: Codec) -> Codec:
    def read(buffer: bytes, position: int) -> tuple[Any, int]:
        there, start = _read_uvarint(buffer, position)
        return inner.read(buffer, start) if there else (None, start)

    def write(out: bytearray, value: Any) -> None:
        put_uvarint(out, value is not None)
        if value is not None:
            inner.write(out, value)

    return Codec(read, write)


def kafka(
    kind: Type | Struct,
    *,
    since: int = 0,
    until: int = NO_END,
    tag: int | None = None,
    default: Any = MISSING,
    ignorable: bool = False,
    absent: Any = MISSING,
    name: str | None = None,
) -> Any:
    """Declare a field that the versions `since` to `until` carry; `default` is what it is in the
    others, and writing one of those fails unless the field is at its default or `ignorable`. What a
    tagged field is where its tag isn't written is `absent`, by default the same. `name` is Kafka's
    name where that is another one."""
    metadata = {
        "kind": kind,
        "since": since,
        "until": until,
        "tag": tag,
        "ignorable": ignorable,
        "absent": default if absent is MISSING else absent,
        "name": name,
    }
    if default is MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


def kafka_name(item: Any) -> str:
    """A field's name as Kafka's tools print it: `member_epoch` is `memberEpoch`."""
    first, *rest = item.name.split("_")
    camel = first + "".join(part.capitalize() for part in rest)
    return str(item.metadata["name"] or camel)


def is_left_out(item: Any, value: Any) -> bool:
    """Whether a field with this value is a tagged one that isn't written."""
    return item.metadata["tag"] is not None and bool(value == item.metadata["absent"])


def fields_in(cls: Any, version: int) -> list[Any]:
    """The dataclass fields that a version carries, in wire order."""
    return [
        item for item in fields(cls) if item.metadata["since"] <= version <= item.metadata["until"]
    ]


def _field_codec(item: Any, version: int, flexible: bool) -> Codec:
    kind = item.metadata["kind"]
    if isinstance(kind, Struct):
        return kind.codec(version, flexible)
    return kind.flexible if flexible else kind.legacy  # type: ignore[no-any-return]


def _read_tags(
    buffer: bytes, position: int, tagged: dict[int, tuple[str, Read]], values: dict[str, Any]
) -> int:
    """Reads the tagged fields that are known into `values` and passes over the others."""
    count, position = _read_uvarint(buffer, position)
    for _ in range(count):
        tag, position = _read_uvarint(buffer, position)
        size, position = _read_uvarint(buffer, position)
        end = position + size
        if end > len(buffer):
            raise DecodeError(
                f"byte {position}: tag {tag} of {size} bytes, {len(buffer) - position} left"
            )
        known = tagged.get(tag)
        if known is not None:
            name, read = known
            values[name], after = read(buffer, position)
            if after != end:
                raise DecodeError(
                    f"byte {position}: tag {tag} of {size} bytes, {after - position} used"
                )
        position = end
    return position


@cache
def struct_codec(cls: Any, version: int, flexible: bool) -> Codec:
    """Both directions of a dataclass in one version. Reading raises DecodeError alone; writing
    ValueError where the version has no place for what the object holds."""
    present = fields_in(cls, version)
    kept = {item.name for item in present}
    absent = [
        item for item in fields(cls) if item.name not in kept and not item.metadata["ignorable"]
    ]
    codecs = [(item, _field_codec(item, version, flexible)) for item in present]
    plain = [(item, codec) for item, codec in codecs if item.metadata["tag"] is None]
    reads = [(item.name, codec.read, kafka_name(item)) for item, codec in plain]
    writes = [(item.name, codec.write) for item, codec in plain]
    with_tag = [(item, codec) for item, codec in codecs if item.metadata["tag"] is not None]
    with_tag.sort(key=lambda pair: pair[0].metadata["tag"])
    tagged = {item.metadata["tag"]: (item.name, codec.read) for item, codec in with_tag}
    absent_tags = {item.name: item.metadata["absent"] for item, _ in with_tag}

    def read(buffer: bytes, position: int) -> tuple[Any, int]:
        values = absent_tags.copy()
        place = ""
        try:
            for name, read_value, place in reads:  # noqa: B007 the error says where it was
                values[name], position = read_value(buffer, position)
            if flexible:
                place = "tagged fields"
                position = _read_tags(buffer, position, tagged, values)
        except DecodeError as error:
            raise DecodeError(f"{place}: {error}") from None
        return cls(**values), position

    def write(out: bytearray, value: Any) -> None:
        for item in absent:
            if getattr(value, item.name) != item.default:
                raise ValueError(f"{cls.__name__} version {version} has no {kafka_name(item)}")
        for name, write_value in writes:
            write_value(out, getattr(value, name))
        if flexible:
            _write_tags(out, value, with_tag)

    return Codec(read, write)


def _write_tags(out: bytearray, value: Any, with_tag: list[tuple[Any, Codec]]) -> None:
    found = [(item, codec, getattr(value, item.name)) for item, codec in with_tag]
    chosen = [one for one in found if not is_left_out(one[0], one[2])]
    put_uvarint(out, len(chosen))
    for item, codec, content in chosen:
        payload = bytearray()
        codec.write(payload, content)
        put_uvarint(out, item.metadata["tag"])
        put_uvarint(out, len(payload))
        out += payload
