"""Request and response framing over kio's message classes (facts: Kafka protocol guide, KIP-482).

Message modules are imported at first use per API and version. A frame is a 4-byte size, a header
and a body; whether the header has a tagged section follows from the API and version, except that
an ApiVersions response never has one (KIP-511).
"""

from __future__ import annotations

import struct
from datetime import timedelta
from functools import cache, lru_cache
from types import ModuleType
from typing import Any, NamedTuple

from kio.index import KioIndexError, load_payload_module, load_request_schema, load_response_schema
from kio.static.constants import EntityType

from wire.apis import ApiKey, is_flexible
from wire.errors import DecodeError
from wire.reader import MAX_ANSWERED, MAX_ELEMENTS, read_entity, read_uvarint
from wire.writer import struct_writer

__all__ = [
    "RequestHeader",
    "decode_body",
    "decode_request",
    "decode_request_header",
    "decode_response",
    "decode_response_header",
    "encode_body",
    "encode_request",
    "encode_response",
    "fill",
    "is_flexible",
    "millis",
    "request_class",
    "request_header",
    "request_module",
    "response_class",
    "response_header",
    "response_module",
]

_HEADER = struct.Struct(">hhih")
_SIZE = struct.Struct(">i")
# Members of an enum are looked up at every use, which takes longer than what is done with this.
_API_VERSIONS = int(ApiKey.API_VERSIONS)


class RequestHeader(NamedTuple):
    """What precedes a request's body; `client_id` is None where the client sent none."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


@cache
def request_module(api_key: int, version: int) -> ModuleType:
    """kio's module with the request class and its nested classes; DecodeError if there is none."""
    try:
        return load_payload_module(api_key, version, EntityType.request)
    except KioIndexError as error:
        raise DecodeError(f"no version {version} of API {api_key}") from error


@cache
def response_module(api_key: int, version: int) -> ModuleType:
    """kio's module with the response class and its nested classes; DecodeError if there is none."""
    try:
        return load_payload_module(api_key, version, EntityType.response)
    except KioIndexError as error:
        raise DecodeError(f"no version {version} of API {api_key}") from error


@cache
def request_class(api_key: int, version: int) -> type[Any]:
    """The request's class; DecodeError if there is no such version."""
    request_module(api_key, version)
    return load_request_schema(api_key, version)


@cache
def response_class(api_key: int, version: int) -> type[Any]:
    """The response's class; DecodeError if there is no such version."""
    response_module(api_key, version)
    return load_response_schema(api_key, version)


@cache
def _field_names(cls: Any) -> frozenset[str]:
    return frozenset(cls.__dataclass_fields__)


def fill(cls: type[Any], **fields: Any) -> Any:
    """Build `cls`, nested classes of a message module too, leaving out fields that it lacks.

    So one builder serves all versions of a message. A field without a default that isn't given
    is a TypeError, as in the class itself.
    """
    anything: Any = cls  # mypy takes no class for hashable
    names = _field_names(anything)
    if fields.keys() <= names:
        return cls(**fields)
    return cls(**{name: value for name, value in fields.items() if name in names})


@lru_cache(maxsize=1_000)
def millis(value: int) -> timedelta:
    """Milliseconds as kio's message classes hold durations."""
    return timedelta(milliseconds=value)


def _read_only(frame: Any) -> Any:
    return frame if isinstance(frame, bytes) else memoryview(frame)


def decode_request_header(frame: Any) -> tuple[RequestHeader, int]:
    """Header of a request frame (without its size) and the position where the body begins.

    Works for any version of a known API, also versions that we lack, since ApiVersions must be
    answered then. DecodeError if the bytes are malformed or the API key is unknown.
    """
    try:
        api_key, version, correlation_id, length = _HEADER.unpack_from(frame, 0)
    except struct.error as error:
        raise DecodeError(f"request header cut short: {len(frame)} bytes") from error
    position = _HEADER.size
    if version < 0:
        raise DecodeError(f"negative version {version} of API {api_key}")
    client_id: str | None = None
    if length >= 0:
        end = position + length
        if end > len(frame):
            raise DecodeError(f"client id of {length} bytes in a frame of {len(frame)}")
        try:
            client_id = str(frame[position:end], "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError("client id is not UTF-8") from error
        position = end
    elif length != -1:
        raise DecodeError(f"client id of length {length}")
    if api_key not in _KNOWN_KEYS:
        raise DecodeError(f"unknown API key {api_key}")
    if is_flexible(api_key, version):
        # There are none, usually.
        no_tags = position < len(frame) and frame[position] == 0
        position = position + 1 if no_tags else _skip_tags(frame, position)
    return RequestHeader(api_key, version, correlation_id, client_id), position


_KNOWN_KEYS = frozenset(int(key) for key in ApiKey)
_MAX_HEADER_TAGS = 100  # Kafka has defined none so far


def _skip_tags(frame: Any, position: int) -> int:
    try:
        count, position = read_uvarint(frame, position)
        if count > _MAX_HEADER_TAGS:
            raise DecodeError(
                f"{count} tagged fields in a header, at most {_MAX_HEADER_TAGS} are allowed"
            )
        for _ in range(count):
            _, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            position += size
            if position > len(frame):
                raise DecodeError("a tagged field of the header goes past the end")
    except IndexError as error:
        raise DecodeError("header cut short") from error
    return position


def decode_body(
    cls: type[Any], body: Any, position: int = 0, max_elements: int = MAX_ELEMENTS
) -> Any:
    """Decode `cls` from `position` to the end of `body`; DecodeError also on trailing bytes, and
    on more than `max_elements` array elements and tagged fields.

    The entity shares nothing with the buffer.
    """
    entity, end = read_entity(cls, body, position, max_elements)
    if end != len(body):
        raise DecodeError(f"{cls.__name__}: {len(body) - end} trailing bytes")
    return entity


def decode_request(
    header: RequestHeader, frame: Any, offset: int, max_elements: int = MAX_ELEMENTS
) -> Any:
    """The request entity that begins at `offset` of `frame`; DecodeError if malformed."""
    cls = request_class(header.api_key, header.api_version)
    return decode_body(cls, _read_only(frame), offset, max_elements)


def decode_response_header(api_key: int, version: int, frame: Any) -> tuple[int, int]:
    """Correlation id of a response frame (without its size) and where its body begins."""
    if len(frame) < 4:
        raise DecodeError(f"response header cut short: {len(frame)} bytes")
    correlation_id: int = _SIZE.unpack_from(frame, 0)[0]
    if api_key != ApiKey.API_VERSIONS and is_flexible(api_key, version):
        return correlation_id, _skip_tags(frame, 4)
    return correlation_id, 4


def decode_response(api_key: int, version: int, frame: Any) -> tuple[int, Any]:
    """Correlation id and entity of a response frame (without its size); DecodeError."""
    correlation_id, offset = decode_response_header(api_key, version, frame)
    cls = response_class(api_key, version)
    return correlation_id, decode_body(cls, _read_only(frame), offset, MAX_ANSWERED)


def encode_body(entity: Any) -> bytes:
    """The bytes of a message or nested entity, without size or header.

    A value out of its field's range is the caller's bug and raises.
    """
    out = bytearray()
    cls: Any = type(entity)  # mypy takes no class for hashable
    struct_writer(cls)(out, entity)
    return bytes(out)


def request_header(header: RequestHeader) -> bytes:
    """The header's bytes (v1, or v2 for flexible versions), without the frame's size."""
    api_key, version, correlation_id, client_id = header
    if client_id is None:
        encoded = _HEADER.pack(api_key, version, correlation_id, -1)
    else:
        raw = client_id.encode()
        encoded = _HEADER.pack(api_key, version, correlation_id, len(raw)) + raw
    return encoded + b"\x00" if is_flexible(api_key, version) else encoded


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header's bytes, without the frame's size."""
    if api_key != _API_VERSIONS and is_flexible(api_key, version):
        return _SIZE.pack(correlation_id) + b"\x00"
    return _SIZE.pack(correlation_id)


def encode_request(header: RequestHeader, entity: Any) -> bytes:
    """The complete frame, size included."""
    head = request_header(header)
    body = encode_body(entity)
    return b"".join((_SIZE.pack(len(head) + len(body)), head, body))


def encode_response(api_key: int, version: int, correlation_id: int, entity: Any) -> bytes:
    """The complete frame, size included."""
    frame = bytearray(_SIZE.size)
    frame += response_header(api_key, version, correlation_id)
    # Answers of wire.hot that pass for entities encode themselves.
    own = getattr(entity, "encode_body", None)
    if own is None:
        cls: Any = type(entity)  # mypy takes no class for hashable
        struct_writer(cls)(frame, entity)
    else:
        frame += own(api_key, version)
    _SIZE.pack_into(frame, 0, len(frame) - _SIZE.size)
    return bytes(frame)
