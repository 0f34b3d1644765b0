"""Field codecs that the hand-written messages share, flexible and legacy."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar
from uuid import UUID

from wire.errors import DecodeError
from wire.reader import Allowance, read_uvarint

INT8 = struct.Struct(">b")
INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")

P = ParamSpec("P")
T = TypeVar("T")


class NodeEndpoint(NamedTuple):
    """Where a client reaches a leader that an answer names."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def decoding(function: Callable[P, T]) -> Callable[P, T]:
    """Let a decoder raise nothing but DecodeError on malformed bytes."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except (struct.error, IndexError) as error:
            raise DecodeError(f"{function.__name__}: the bytes end too early") from error
        except UnicodeDecodeError as error:
            raise DecodeError(f"{function.__name__}: a string is not UTF-8") from error

    return guarded


_SMALL = [bytes([value]) for value in range(128)]


def uvarint(value: int) -> bytes:
    """Unsigned LEB128."""
    if value < 128:
        return _SMALL[value]
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(value: str | None, flexible: bool) -> bytes:
    """A (nullable) string."""
    if value is None:
        return b"\x00" if flexible else b"\xff\xff"
    raw = value.encode()
    return (uvarint(len(raw) + 1) if flexible else INT16.pack(len(raw))) + raw


def count(value: int, flexible: bool) -> bytes:
    """The length of an array, or of bytes, that isn't null."""
    return uvarint(value + 1) if flexible else INT32.pack(value)


def topic(name: str | None, topic_id: UUID | None, by_id: bool, flexible: bool) -> bytes:
    """How a message names a topic: by id or by name."""
    if by_id:
        assert topic_id is not None, "this version names topics by id"
        return topic_id.bytes
    assert name is not None, "this version names topics by name"
    return string(name, flexible)


def tag(number: int, value: bytes) -> bytes:
    """One tagged field."""
    return uvarint(number) + uvarint(len(value)) + value


def endpoints(nodes: Sequence[NodeEndpoint]) -> bytes:
    """The array of endpoints that Produce and Fetch responses carry in a tagged field."""
    out = [count(len(nodes), True)]
    for node in nodes:
        out.append(INT32.pack(node.node_id))
        out.append(string(node.host, True))
        out.append(INT32.pack(node.port))
        out.append(string(node.rack, True))
        out.append(b"\x00")
    return b"".join(out)


def read_string(buf: Any, pos: int, flexible: bool) -> tuple[str | None, int]:
    """A nullable string."""
    if not flexible:
        length = INT16.unpack_from(buf, pos)[0]
        pos += 2
    elif (length := buf[pos] - 1) < 127:  # one byte, as nearly always: a call costs more than it
        pos += 1
    else:
        length, pos = read_uvarint(buf, pos)
        length -= 1
    if length < 0:
        if length != -1:
            raise DecodeError(f"byte {pos}: string of length {length}")
        return None, pos
    end = pos + length
    if end > len(buf):
        raise DecodeError(f"byte {pos}: string of {length} bytes with {len(buf) - pos} left")
    return str(buf[pos:end], "utf-8"), end


def read_count(buf: Any, pos: int, flexible: bool, allowance: Allowance) -> tuple[int, int]:
    """The length of an array that may not be null; each element takes a byte at least."""
    if not flexible:
        value = INT32.unpack_from(buf, pos)[0]
        pos += 4
    elif (value := buf[pos] - 1) < 127:  # one byte, as nearly always
        pos += 1
    else:
        value, pos = read_uvarint(buf, pos)
        value -= 1
    if not 0 <= value <= len(buf) - pos:
        raise DecodeError(f"byte {pos}: array of {value} with {len(buf) - pos} bytes left")
    allowance.take(value, pos)
    return value, pos


def read_bytes(buf: Any, pos: int, flexible: bool) -> tuple[Any, int]:
    """Nullable bytes as a slice of the buffer."""
    if flexible:
        length, pos = read_uvarint(buf, pos)
        length -= 1
    else:
        length = INT32.unpack_from(buf, pos)[0]
        pos += 4
    if length < 0:
        if length != -1:
            raise DecodeError(f"byte {pos}: {length} bytes announced")
        return None, pos
    end = pos + length
    if end > len(buf):
        raise DecodeError(f"byte {pos}: {length} bytes announced with {len(buf) - pos} left")
    return buf[pos:end], end


def read_topic(
    buf: Any, pos: int, by_id: bool, flexible: bool
) -> tuple[str | None, UUID | None, int]:
    """Name and id of a topic, the one that this version doesn't carry being None."""
    if by_id:
        return None, *read_uuid(buf, pos)
    name, pos = read_string(buf, pos, flexible)
    if name is None:
        raise DecodeError(f"byte {pos}: null topic name")
    return name, None, pos


def read_uuid(buf: Any, pos: int) -> tuple[UUID, int]:
    """16 bytes; the zero UUID stays one here."""
    raw = bytes(buf[pos : pos + 16])
    if len(raw) != 16:
        raise DecodeError(f"byte {pos}: a UUID is cut short")
    return _uuid(raw), pos + 16


@lru_cache(maxsize=4096)
def _uuid(raw: bytes) -> UUID:
    """The same few topics and directories are named again and again."""
    return UUID(bytes=raw)


def read_tags(buf: Any, pos: int, allowance: Allowance) -> tuple[dict[int, Any], int]:
    """Tagged fields as slices of the buffer by tag."""
    number, pos = read_uvarint(buf, pos)
    allowance.take(number, pos)
    tags: dict[int, Any] = {}
    for _ in range(number):
        key, size = buf[pos], buf[pos + 1]
        if key < 0x80 and size < 0x80:
            pos += 2
        else:
            key, pos = read_uvarint(buf, pos)
            size, pos = read_uvarint(buf, pos)
        if size > len(buf) - pos:
            raise DecodeError(f"byte {pos}: tagged field {key} goes past the end")
        tags[key] = buf[pos : pos + size]
        pos += size
    return tags, pos


def skip_tags(buf: Any, pos: int, allowance: Allowance) -> int:
    """The position after a section of tagged fields."""
    if buf[pos] == 0:
        return pos + 1
    return read_tags(buf, pos, allowance)[1]


def tag_struct(value: Any, layout: struct.Struct, allowance: Allowance) -> tuple[Any, ...]:
    """A tagged struct that consists of fixed fields (and tagged ones that we don't know)."""
    fields = layout.unpack_from(value, 0)
    if skip_tags(value, layout.size, allowance) != len(value):
        raise DecodeError(f"tagged struct of {len(value)} bytes where {layout.size} are used")
    return fields


def check_end(buf: Any, pos: int) -> None:
    """DecodeError unless the message ends with the buffer."""
    if pos != len(buf):
        raise DecodeError(f"byte {pos}: {len(buf) - pos} trailing bytes")
