"""Values of the metadata log: a frame (KIP-631) around a record body.

The frame is three unsigned varints: frame version 1, API key, record version.
"""

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from metadata.records.decoders import BodyReader, body_reader
from metadata.records.encoders import record_writer, write_uvarint
from metadata.records.schema import Record
from metadata.records.types import (
    RECORD_TYPES,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from wire.errors import DecodeError

Buffer = bytes | bytearray | memoryview

FRAME_VERSION: Final = 1
NEWEST_LEVEL: Final = 29
"""The newest metadata.version that we write."""

_new_tuple: Final = tuple.__new__

_BY_KEY: Final[dict[int, type[Record]]] = {cls.API_KEY: cls for cls in RECORD_TYPES}

# The first metadata.version that writes each version of a record, newest first (the rest: 0).
_WRITTEN_FROM: Final[dict[type[Record], tuple[tuple[int, int], ...]]] = {
    RegisterBrokerRecord: ((30, 4), (17, 3), (8, 2), (7, 1)),
    PartitionRecord: ((23, 2), (17, 1)),
    PartitionChangeRecord: ((23, 2), (17, 1)),
    BrokerRegistrationChangeRecord: ((30, 3), (17, 2), (7, 1)),
}


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A record of a type or version that this code does not know, kept as it came."""

    api_key: int
    version: int
    body: bytes


class Decoded(NamedTuple):
    """One decoded value of the metadata log."""

    api_key: int
    version: int
    record: Record | UnknownRecord


def name_of(api_key: int) -> str:
    """`TopicRecord` for 2; `Unknown99` where nobody knows the type."""
    cls = _BY_KEY.get(api_key)
    return cls.NAME if cls is not None else f"Unknown{api_key}"


def record_class(api_key: int) -> type[Record] | None:
    """The class of an API key, or None for an unknown one."""
    return _BY_KEY.get(api_key)


def version_for(record_type: type[Record], metadata_version: int) -> int:
    """The record version that Kafka writes at a metadata.version level."""
    for level, version in _WRITTEN_FROM.get(record_type, ()):
        if metadata_version >= level:
            return version
    return 0


def _read_frame(buffer: bytes | memoryview) -> tuple[int, int, int, int]:
    """(frame version, API key, record version, position of the body)."""
    numbers = []
    position = 0
    for _ in range(3):
        value = shift = 0
        while True:
            if position >= len(buffer):
                raise DecodeError("metadata record ends inside its frame")
            byte = buffer[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise DecodeError("metadata record frame holds a varint of more than 5 bytes")
        numbers.append(value)
    return numbers[0], numbers[1], numbers[2], position


@lru_cache(maxsize=256)
def _reader(api_key: int, version: int) -> BodyReader | None:
    """What reads such a body; None where nobody here knows it."""
    cls = _BY_KEY.get(api_key)
    return None if cls is None or version > cls.MAX_VERSION else body_reader(cls, version)


def decode(value: Buffer) -> Decoded:
    """Decode one value of the metadata log. Unknown types and newer versions are kept as
    UnknownRecord; DecodeError on anything malformed, trailing bytes included."""
    buffer: bytes | memoryview
    if type(value) is bytes:
        buffer = value
    else:
        buffer = memoryview(value).toreadonly()
    size = len(buffer)
    if size > 3 and buffer[0] == 1 and buffer[1] < 0x80 and buffer[2] < 0x80:
        api_key, version, position = buffer[1], buffer[2], 3
    else:
        frame_version, api_key, version, position = _read_frame(buffer)
        if frame_version != FRAME_VERSION:
            raise DecodeError(
                f"metadata record frame version {frame_version}, only {FRAME_VERSION} is known"
            )
    read = _reader(api_key, version)
    if read is None:
        return Decoded(api_key, version, UnknownRecord(api_key, version, bytes(buffer[position:])))
    try:
        record, end = read(buffer, position)
    except DecodeError as error:
        raise DecodeError(f"{name_of(api_key)} version {version}: {error}") from error
    except (IndexError, struct.error) as error:
        raise DecodeError(f"{name_of(api_key)} version {version} ends too early") from error
    if end != size:
        raise DecodeError(f"{name_of(api_key)} version {version}: {size - end} bytes after it")
    # Past the constructor, which is a call more: this runs for every record.
    return _new_tuple(Decoded, (api_key, version, record))


def encode(record: Record | UnknownRecord, version: int | None = None) -> bytes:
    """The framed value as it stands in the log. Without `version`, the one that the newest
    metadata.version writes. ValueError where the version cannot hold the record."""
    out = bytearray((FRAME_VERSION,))
    if isinstance(record, UnknownRecord):
        write_uvarint(out, record.api_key)
        write_uvarint(out, record.version)
        return bytes(out + record.body)
    kind: Any = type(record)
    if version is None:
        version = version_for(kind, NEWEST_LEVEL)
    if not 0 <= version <= record.MAX_VERSION:
        raise ValueError(f"{record.NAME} has no version {version}")
    out.append(record.API_KEY)
    out.append(version)
    record_writer(kind, version)(out, record)
    return bytes(out)


def encode_at(record: Record, metadata_version: int) -> bytes:
    """The framed value in the record version that a metadata.version level writes."""
    return encode(record, version_for(type(record), metadata_version))
