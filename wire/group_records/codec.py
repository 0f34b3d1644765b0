"""Bytes of keys and values, both directions.

Offset commits are nearly all of what a coordinator loads and writes, so theirs are plain code;
whatever that doesn't take goes to the general one, and tests hold the two against each other.
"""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from typing import Any, Final
from uuid import UUID

from wire.errors import DecodeError
from wire.group_records.schema import Codec, struct_codec
from wire.group_records.types import (
    NO_TIMESTAMP,
    VALUE_OF,
    GroupKey,
    GroupMetadataValue,
    GroupValue,
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownKey,
)
from wire.uuids import ZERO

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_KEY_CLASSES: Final[dict[int, Any]] = {cls.VERSION: cls for cls in VALUE_OF}

_OFFSET_KEY: Final = _INT16.pack(OffsetCommitKey.VERSION)
_OFFSET_VERSION: Final = 4
_OFFSET_PREFIX: Final = _INT16.pack(_OFFSET_VERSION)
# Version, offset, leader epoch, and the length of the metadata: an int16 in version 3, in version 4
# a varint, one more than the length and less than 128 where the plain code takes it.
_OFFSET_3: Final = struct.Struct(">hqih")
_OFFSET_4: Final = struct.Struct(">hqiB")
# The time of the commit, and the tagged fields: none, or one, tag 0 of 16 bytes.
_OFFSET_END: Final = struct.Struct(">qB")
_OFFSET_END_WITH_ID: Final = struct.Struct(">q3s16s")
_TOPIC_ID_TAG: Final = b"\x01\x00\x10"


def decode(key: bytes, value: bytes | None) -> tuple[GroupKey | UnknownKey, GroupValue | None]:
    """A record of `__consumer_offsets`; the value is None for a tombstone, and of an unknown key,
    which is no error. DecodeError on anything malformed, trailing bytes included."""
    found = decode_key(key)
    if value is None or isinstance(found, UnknownKey):
        return found, None
    return found, decode_value(type(found), value)


def decode_key(key: bytes) -> GroupKey | UnknownKey:
    """The key alone; DecodeError as for `decode`."""
    if key[:2] == _OFFSET_KEY:
        names = _group_and_topic(key[2:-4])
        if names is not None:
            return OffsetCommitKey(*names, _INT32.unpack_from(key, len(key) - 4)[0])
    if len(key) < 2:
        raise DecodeError(f"group record: a key of {len(key)} bytes: {key.hex()}")
    version = _INT16.unpack_from(key)[0]
    cls = _KEY_CLASSES.get(version)
    if cls is None:
        return UnknownKey(version, key[2:])
    return _whole(_key_codec(cls), key, f"{cls.NAME} key")  # type: ignore[no-any-return]


@lru_cache(maxsize=8192)
def _group_and_topic(raw: bytes) -> tuple[str, str] | None:
    """The two strings before a partition, None if the bytes aren't that. A group's commits bring
    the same ones again and again: one object for each saves the coordinator most of its memory."""
    size = len(raw)
    if size < 4:
        return None
    middle = 2 + _INT16.unpack_from(raw)[0]
    if not 2 <= middle <= size - 2 or middle + 2 + _INT16.unpack_from(raw, middle)[0] != size:
        return None
    try:
        return str(raw[2:middle], "utf-8"), str(raw[middle + 2 :], "utf-8")
    except UnicodeDecodeError:
        return None


def decode_value(kind: type[GroupKey], value: bytes) -> GroupValue:
    """A value under a key of that kind; DecodeError as for `decode`."""
    if kind is OffsetCommitKey:
        found = _plain_offset(value)
        if found is not None:
            return found
    cls: Any = VALUE_OF[kind]
    if len(value) < 2:
        raise DecodeError(f"{kind.NAME} value of {len(value)} bytes: {value.hex()}")
    version = _INT16.unpack_from(value)[0]
    if not 0 <= version <= cls.MAX_VERSION:
        raise DecodeError(
            f"{kind.NAME} value: byte 0: version {version}, 0 to {cls.MAX_VERSION} are known"
        )
    place = f"{kind.NAME} value version {version}"
    return _whole(_value_codec(cls, version), value, place)  # type: ignore[no-any-return]


def _plain_offset(value: bytes) -> OffsetCommitValue | None:
    """An offset in version 3 or 4, None if the bytes aren't that."""
    size = len(value)
    if size < _OFFSET_4.size + _OFFSET_END.size:
        return None
    version, offset, leader_epoch, length = _OFFSET_4.unpack_from(value)
    if version == _OFFSET_VERSION:
        start, end = _OFFSET_4.size, _OFFSET_4.size + length - 1
        topic_id = ZERO
        if size == end + _OFFSET_END_WITH_ID.size:
            timestamp, tag, raw = _OFFSET_END_WITH_ID.unpack_from(value, end)
            if tag != _TOPIC_ID_TAG:
                return None
            topic_id = _uuid(raw)
        elif size == end + _OFFSET_END.size and value[-1] == 0:
            timestamp = _INT64.unpack_from(value, end)[0]
        else:
            return None
        if not 0 < length < 0x80:
            return None
    elif version == 3:
        length = _OFFSET_3.unpack_from(value)[3]
        start, end = _OFFSET_3.size, size - _INT64.size
        if length != end - start:
            return None
        timestamp = _INT64.unpack_from(value, end)[0]
        topic_id = ZERO
    else:
        return None
    try:
        metadata = "" if start == end else str(value[start:end], "utf-8")
    except UnicodeDecodeError:
        return None
    return OffsetCommitValue(offset, leader_epoch, metadata, timestamp, NO_TIMESTAMP, topic_id)


def offset_names(key: bytes) -> tuple[str, str, int] | None:
    """Group, topic and partition in an offset's key, None for other keys: what decode_key finds,
    without an object, for who loads millions."""
    if key[:2] == _OFFSET_KEY:
        names = _group_and_topic(key[2:-4])
        if names is not None:
            return (*names, _INT32.unpack_from(key, len(key) - 4)[0])
    return None


def check_offset(value: bytes) -> None:
    """DecodeError if these bytes are no offset's value; as decode_value, without an object."""
    end = _OFFSET_4.size
    if value[:2] == _OFFSET_PREFIX and value[end - 1 : end] == b"\x01":
        # Without metadata, as nearly all are.
        size = len(value) - end
        tag = value[end + _INT64.size : end + _INT64.size + len(_TOPIC_ID_TAG)]
        if size == _OFFSET_END_WITH_ID.size and tag == _TOPIC_ID_TAG:
            return
        if size == _OFFSET_END.size and tag == b"\x00":
            return
    decode_value(OffsetCommitKey, value)


@lru_cache(maxsize=8192)
def _uuid(raw: bytes) -> UUID:
    """The same few topics come again and again."""
    return UUID(bytes=raw)


def encode_key(key: GroupKey | UnknownKey) -> bytes:
    """The key as it stands in the log."""
    if type(key) is OffsetCommitKey:
        return _names(key.group_id, key.topic) + _INT32.pack(key.partition)
    if isinstance(key, UnknownKey):
        return _INT16.pack(key.version) + key.body
    kind: Any = type(key)
    out = bytearray(_INT16.pack(key.VERSION))
    _key_codec(kind).write(out, key)
    return bytes(out)


@lru_cache(maxsize=8192)
def _names(group_id: str, topic: str) -> bytes:
    """What is before the partition in an offset's key."""
    group, name = group_id.encode(), topic.encode()
    return b"".join((_OFFSET_KEY, _INT16.pack(len(group)), group, _INT16.pack(len(name)), name))


def encode_value(value: GroupValue, version: int | None = None) -> bytes:
    """The value as it stands in the log, without `version` in the one that Kafka writes.
    ValueError where the version cannot hold the value."""
    if (
        type(value) is OffsetCommitValue
        and version is None
        and value.expire_timestamp == NO_TIMESTAMP
        and len(value.metadata) < 40
    ):
        return _offset_bytes(value)
    if version is None:
        version = written_version(value)
    elif not 0 <= version <= value.MAX_VERSION:
        raise ValueError(f"{type(value).__name__} has no version {version}")
    kind: Any = type(value)
    out = bytearray(_INT16.pack(version))
    _value_codec(kind, version).write(out, value)
    return bytes(out)


def _offset_bytes(value: OffsetCommitValue) -> bytes:
    """An offset in version 4, its metadata so short that its length takes one byte."""
    metadata = value.metadata.encode()
    head = _OFFSET_4.pack(_OFFSET_VERSION, value.offset, value.leader_epoch, len(metadata) + 1)
    if value.topic_id == ZERO:
        return head + metadata + _OFFSET_END.pack(value.commit_timestamp, 0)
    end = _OFFSET_END_WITH_ID.pack(value.commit_timestamp, _TOPIC_ID_TAG, value.topic_id.bytes)
    return head + metadata + end


def written_version(value: GroupValue) -> int:
    """The version that Kafka 4.4 writes: of an offset the newest unless it brings its own time of
    expiry, of a classic group not yet the newest, which is there to be read (KIP-915)."""
    if isinstance(value, OffsetCommitValue):
        return _OFFSET_VERSION if value.expire_timestamp == NO_TIMESTAMP else 1
    return 3 if isinstance(value, GroupMetadataValue) else value.MAX_VERSION


def _whole(codec: Codec, data: bytes, place: str) -> Any:
    try:
        found, end = codec.read(data, 2)
    except DecodeError as error:
        raise DecodeError(f"{place}: {error}") from None
    if end != len(data):
        raise DecodeError(
            f"{place}: byte {end}: {len(data) - end} bytes after it: {data[end:].hex()}"
        )
    return found


@cache
def _key_codec(cls: Any) -> Codec:
    return struct_codec(cls, 0, False)


@cache
def _value_codec(cls: Any, version: int) -> Codec:
    return struct_codec(cls, version, version >= cls.FLEXIBLE_FROM)
