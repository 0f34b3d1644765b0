"""Decodes kio's message classes from bytes that a stranger sent.

kio's own compiled reader allocates what a length field announces, so that nine bytes can end the
process, and refuses tagged fields it doesn't know, which Kafka's compatibility rules (KIP-482)
demand to be skipped. This reader takes its layout from the same classes, returns equal entities,
never trusts a length beyond the bytes at hand, and raises nothing but DecodeError. An element of
three bytes takes a microsecond and more and 70 bytes of memory to decode, so the bytes alone bound
neither time nor memory: an Allowance says how many elements a whole message may hold.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode

from wire.entities import maker
from wire.errors import DecodeError

MAX_ELEMENTS = 50_000
"""What a request may hold where nothing else is said: one that names every topic of a large cluster
has less, and all of them are decoded in a third of a second."""
MAX_NAMED = 100_000
"""What CreateTopics, CreatePartitions and ElectLeaders may hold, at a broker's door as at a
controller's: 10,000 partitions, as many as are created at once, that are assigned by hand to nine
brokers each."""
MAX_ANSWERED = 10_000_000
"""What an answer may hold where nothing else is said. Who asked chose the server, and the answer
may tell of a million partitions with their replicas, or of all configs of all topics."""


class Allowance:
    """How many elements a message may still hold: those of its arrays at any depth, and its tagged
    fields. Given to everything that reads a part of that message."""

    __slots__ = ("allowed", "left")

    def __init__(self, allowed: int = MAX_ELEMENTS) -> None:
        self.allowed = self.left = allowed

    def take(self, count: int, position: int) -> None:
        """`count` elements are announced at `position`; DecodeError where that is too many."""
        if count > self.left:
            raise DecodeError(
                f"byte {position}: {count} elements after {self.allowed - self.left} others; "
                f"the message may hold {self.allowed} array elements and tagged fields in all"
            )
        self.left -= count


# A reader gets the whole buffer, a position and what the message may still hold, and gives the
# value and the position after it.
Reader = Callable[[Any, int, Allowance], tuple[Any, int]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ERROR_CODES = {int(code): code for code in ErrorCode}


def _fixed(layout: str, convert: Callable[[Any], Any] | None = None) -> Reader:
    packed = struct.Struct(">" + layout)
    unpack, size = packed.unpack_from, packed.size

    def read(buffer: Any, position: int, _: Allowance) -> tuple[Any, int]:
        return unpack(buffer, position)[0], position + size

    def read_converted(buffer: Any, position: int, _: Allowance) -> tuple[Any, int]:
        return convert(unpack(buffer, position)[0]), position + size  # type: ignore[misc]

    return read_converted if convert is not None else read


def read_uvarint(buffer: Any, position: int) -> tuple[int, int]:
    """Unsigned LEB128 of at most 32 bits. IndexError where the bytes end."""
    byte: int = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position + 1
    raise DecodeError(f"byte {position}: varint longer than 32 bits")


def _read_compact_length(buffer: Any, position: int, _: Allowance) -> tuple[int, int]:
    value, position = read_uvarint(buffer, position)
    return value - 1, position


_read_int16 = _fixed("h")
_read_int32 = _fixed("i")


def _read_uuid(buffer: Any, position: int, _: Allowance) -> tuple[UUID | None, int]:
    end = position + 16
    raw = bytes(buffer[position:end])
    if len(raw) != 16:
        raise DecodeError(f"byte {position}: a UUID is cut short")
    return (UUID(bytes=raw) if any(raw) else None), end


def _sized(read_length: Reader, nullable: bool, text: bool) -> Reader:
    compact = read_length is _read_compact_length

    def read(buffer: Any, position: int, allowance: Allowance) -> tuple[Any, int]:
        # Most lengths are one byte of a varint: that saves two calls.
        if compact and (length := buffer[position] - 1) < 0x7F:
            start = position + 1
        else:
            length, start = read_length(buffer, position, allowance)
        if length < 0:
            if nullable and length == -1:
                return None, start
            raise DecodeError(f"byte {position}: null or negative length where a value must be")
        end = start + length
        if end > len(buffer):
            raise DecodeError(
                f"byte {position}: {length} bytes announced, {len(buffer) - start} left"
            )
        if text:
            return str(buffer[start:end], "utf-8"), end
        return bytes(buffer[start:end]), end

    return read


def _array(read_length: Reader, nullable: bool, read_item: Reader) -> Reader:
    def read(buffer: Any, position: int, allowance: Allowance) -> tuple[Any, int]:
        count, start = read_length(buffer, position, allowance)
        if count < 0:
            if nullable and count == -1:
                return None, start
            raise DecodeError(f"byte {position}: null or negative array where one must be")
        # Every element of every Kafka message takes a byte at least.
        if count > len(buffer) - start:
            raise DecodeError(f"byte {position}: array of {count} in {len(buffer) - start} bytes")
        allowance.take(count, position)
        items = []
        for _ in range(count):
            item, start = read_item(buffer, start, allowance)
            items.append(item)
        return tuple(items), start

    return read


@lru_cache(maxsize=1_000)
def _millis(value: int) -> timedelta:
    return timedelta(milliseconds=value)


def _moment(value: int) -> datetime:
    if value < 0:
        raise DecodeError(f"negative time {value}")
    return _EPOCH + timedelta(milliseconds=value)


def _nullable_moment(value: int) -> datetime | None:
    return None if value == -1 else _moment(value)


def _error_code(value: int) -> ErrorCode:
    # A newer peer may know codes that we don't; Kafka's clients read those as unknown errors.
    return _ERROR_CODES.get(value, ErrorCode.unknown_server_error)


_FIXED: dict[str, Reader] = {
    "bool": _fixed("b", bool),
    "int8": _fixed("b"),
    "int16": _read_int16,
    "int32": _read_int32,
    "int64": _fixed("q"),
    "uint8": _fixed("B"),
    "uint16": _fixed("H"),
    "uint32": _fixed("I"),
    "uint64": _fixed("Q"),
    "float64": _fixed("d"),
    "error_code": _fixed("h", _error_code),
    "timedelta_i32": _fixed("i", _millis),
    "timedelta_i64": _fixed("q", _millis),
    "uuid": _read_uuid,
}


def _primitive(kafka_type: str, flexible: bool, nullable: bool) -> Reader:
    if kafka_type in _FIXED:
        return _FIXED[kafka_type]
    if kafka_type == "datetime_i64":
        return _fixed("q", _nullable_moment if nullable else _moment)
    text = kafka_type == "string"
    assert text or kafka_type in ("bytes", "records"), kafka_type
    if flexible:
        return _sized(_read_compact_length, nullable, text)
    return _sized(_read_int16 if text else _read_int32, nullable, text)


def _nullable_struct(read_struct: Reader) -> Reader:
    def read(buffer: Any, position: int, allowance: Allowance) -> tuple[Any, int]:
        marker, start = _FIXED["int8"](buffer, position, allowance)
        return (None, start) if marker < 0 else read_struct(buffer, start, allowance)

    return read


def _struct_reader_of(kind: Any) -> Reader:
    return struct_reader(kind)


def _field_reader(field: Field[Any], flexible: bool) -> Reader:
    kind: Any = field.type
    nullable = False
    if get_origin(kind) is UnionType:
        nullable = NoneType in get_args(kind)
        kind = next(arg for arg in get_args(kind) if arg is not NoneType)
    if get_origin(kind) is tuple:
        item: Any = get_args(kind)[0]
        if is_dataclass(item):
            read_item = _struct_reader_of(item)
        else:
            # Some kio versions mark the item, not the array, as nullable.
            optional_item = get_origin(item) is UnionType
            nullable = nullable or optional_item
            read_item = _primitive(field.metadata["kafka_type"], flexible, False)
        return _array(_read_compact_length if flexible else _read_int32, nullable, read_item)
    if is_dataclass(kind):
        inner = _struct_reader_of(kind)
        return _nullable_struct(inner) if nullable and "tag" not in field.metadata else inner
    return _primitive(field.metadata["kafka_type"], flexible, nullable)


def _read_tags(
    buffer: Any,
    position: int,
    allowance: Allowance,
    tagged: dict[int, tuple[int, Reader]],
    values: list[Any],
) -> int:
    if buffer[position] == 0:
        return position + 1
    count, position = read_uvarint(buffer, position)
    allowance.take(count, position)
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        end = position + size
        if end > len(buffer):
            raise DecodeError(f"byte {position}: tagged field {tag} goes past the end")
        known = tagged.get(tag)
        if known is not None:
            index, read = known
            values[index], after = read(buffer, position, allowance)
            if after != end:
                raise DecodeError(f"byte {position}: tagged field {tag} isn't {size} bytes long")
        position = end
    return position


_IMPLICIT: dict[str, Any] = {"string": "", "bytes": b"", "records": b"", "bool": False}


def implicit_default(field: Any) -> Any:
    """What an absent tagged field without a stated default means (KIP-482: the zero value)."""
    kind: Any = field.type
    if get_origin(kind) is tuple:
        return ()
    if get_origin(kind) is UnionType or field.metadata.get("kafka_type") == "uuid":
        return None
    if is_dataclass(kind):
        values = {f.name: implicit_default(f) for f in fields(kind) if f.default is MISSING}
        build: Any = kind
        return build(**values)
    kafka_type = field.metadata["kafka_type"]
    if kafka_type in _IMPLICIT:
        return _IMPLICIT[kafka_type]
    return _primitive(kafka_type, True, False)(bytes(8), 0, Allowance())[0]


@cache
def struct_reader(cls: Any) -> Reader:
    """The reader of one message class or nested class; may raise more than DecodeError."""
    flexible: bool = cls.__flexible__
    # Fields by their places among the values, which are in the order of the fields.
    plain: list[tuple[int, Reader]] = []
    tagged: dict[int, tuple[int, Reader]] = {}
    defaults: list[Any] = []
    for index, field in enumerate(fields(cls)):
        reader = _field_reader(field, flexible)
        default: Any = None
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = (index, reader)
            default = implicit_default(field) if field.default is MISSING else field.default
        else:
            plain.append((index, reader))
        defaults.append(default)
    make = maker(cls)

    def read(buffer: Any, position: int, allowance: Allowance) -> tuple[Any, int]:
        values = defaults.copy()
        for index, read_value in plain:
            values[index], position = read_value(buffer, position, allowance)
        if flexible:
            position = _read_tags(buffer, position, allowance, tagged, values)
        return make(*values), position

    return read


def read_entity(
    cls: Any, buffer: Any, position: int = 0, max_elements: int = MAX_ELEMENTS
) -> tuple[Any, int]:
    """Decode one entity of `cls` from bytes or a memoryview of bytes.

    Gives the entity, which shares nothing with the buffer, and the position after it. Raises
    DecodeError on anything that isn't one, bytes that end too early among them, and on more than
    `max_elements` array elements and tagged fields.
    """
    try:
        return struct_reader(cls)(buffer, position, Allowance(max_elements))
    except DecodeError as error:
        raise DecodeError(f"{cls.__name__}: {error}") from error
    except (struct.error, IndexError) as error:
        raise DecodeError(f"{cls.__name__}: the bytes end too early") from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"{cls.__name__}: a string is not UTF-8") from error
    except OverflowError as error:
        raise DecodeError(f"{cls.__name__}: a time is out of range") from error
    except RecursionError as error:  # pragma: no cover - no Kafka message nests deeply
        raise DecodeError(f"{cls.__name__}: nested too deeply") from error
