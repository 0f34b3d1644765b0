"""Fetch requests, versions 4 to 18, both ways (KIP-74, 227, 320, 392, 516, 903, 853)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from wire.errors import DecodeError
from wire.hot import primitives as p
from wire.reader import MAX_ELEMENTS, Allowance
from wire.uuids import ZERO

MIN_VERSION = 4
MAX_VERSION = 18
_FLEXIBLE = 12
_BY_ID = 13
_STATE_TAG = 15
_DIRECTORY_TAG = 17
_HIGH_WATERMARK_TAG = 18

NO_HIGH_WATERMARK = (1 << 63) - 1

_HEAD = struct.Struct(">iiiib")
_HEAD_15 = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_STATE = struct.Struct(">iq")


class FetchPartition(NamedTuple):
    """What is wanted of a partition. -1 stands for unknown, as in the protocol."""

    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    replica_directory_id: UUID = ZERO
    high_watermark: int = NO_HIGH_WATERMARK


class FetchTopic(NamedTuple):
    """Name up to version 12, id from 13 on; the other is None when decoded."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[FetchPartition]


class FetchForgotten(NamedTuple):
    """Partitions that a fetch session drops (version 7 on)."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[int]


class FetchRequest(NamedTuple):
    """A request; replica id -1 is a consumer. `replica_epoch` is -1 before version 15."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    topics: Sequence[FetchTopic]
    replica_id: int = -1
    replica_epoch: int = -1
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    forgotten: Sequence[FetchForgotten] = ()
    rack_id: str = ""
    cluster_id: str | None = None


def _layout(version: int) -> struct.Struct:
    """A partition's fixed fields, in the order of `_fields`."""
    if version >= 12:
        return _P12
    if version >= 9:
        return _P9
    return _P5 if version >= 5 else _P4


_P4 = struct.Struct(">iqi")
_P5 = struct.Struct(">iqqi")
_P9 = struct.Struct(">iiqqi")
_P12 = struct.Struct(">iiqiqi")


def _read_partition(version: int, fields: tuple[int, ...]) -> FetchPartition:
    if version >= 12:
        index, epoch, offset, last_epoch, log_start, max_bytes = fields
        return FetchPartition(index, offset, max_bytes, epoch, last_epoch, log_start)
    if version >= 9:
        index, epoch, offset, log_start, max_bytes = fields
        return FetchPartition(index, offset, max_bytes, epoch, -1, log_start)
    if version >= 5:
        index, offset, log_start, max_bytes = fields
        return FetchPartition(index, offset, max_bytes, -1, -1, log_start)
    index, offset, max_bytes = fields
    return FetchPartition(index, offset, max_bytes)


def _partition_tags(version: int, tags: dict[int, Any], part: FetchPartition) -> FetchPartition:
    directory_id, high_watermark = part.replica_directory_id, part.high_watermark
    if version >= _DIRECTORY_TAG and 0 in tags:
        directory_id, end = p.read_uuid(tags[0], 0)
        p.check_end(tags[0], end)
    if version >= _HIGH_WATERMARK_TAG and 1 in tags:
        p.check_end(tags[1], 8)
        high_watermark = p.INT64.unpack_from(tags[1], 0)[0]
    return FetchPartition(*part[:6], directory_id, high_watermark)


def _read_topics(
    version: int, body: Any, pos: int, allowance: Allowance
) -> tuple[list[FetchTopic], int]:
    flexible = version >= _FLEXIBLE
    layout = _layout(version)
    unpack, size = layout.unpack_from, layout.size
    topic_count, pos = p.read_count(body, pos, flexible, allowance)
    topics = []
    for _ in range(topic_count):
        name, topic_id, pos = p.read_topic(body, pos, version >= _BY_ID, flexible)
        partition_count, pos = p.read_count(body, pos, flexible, allowance)
        partitions = []
        for _ in range(partition_count):
            part = _read_partition(version, unpack(body, pos))
            pos += size
            if flexible:
                if body[pos] == 0:
                    pos += 1
                else:
                    tags, pos = p.read_tags(body, pos, allowance)
                    part = _partition_tags(version, tags, part)
            partitions.append(part)
        if flexible:
            pos = p.skip_tags(body, pos, allowance)
        topics.append(FetchTopic(name, topic_id, partitions))
    return topics, pos


def _read_forgotten(
    version: int, body: Any, pos: int, allowance: Allowance
) -> tuple[list[FetchForgotten], int]:
    flexible = version >= _FLEXIBLE
    topic_count, pos = p.read_count(body, pos, flexible, allowance)
    forgotten = []
    for _ in range(topic_count):
        name, topic_id, pos = p.read_topic(body, pos, version >= _BY_ID, flexible)
        number, pos = p.read_count(body, pos, flexible, allowance)
        indexes = struct.unpack_from(f">{number}i", body, pos)
        pos += 4 * number
        if flexible:
            pos = p.skip_tags(body, pos, allowance)
        forgotten.append(FetchForgotten(name, topic_id, list(indexes)))
    return forgotten, pos


@p.decoding
def decode_fetch_request(version: int, body: Any, max_elements: int = MAX_ELEMENTS) -> FetchRequest:
    """The request in `body` (bytes or memoryview, after the header); shares nothing with it.

    DecodeError where it is malformed, or holds more than `max_elements` array elements and tagged
    fields.
    """
    if not MIN_VERSION <= version <= MAX_VERSION:
        raise DecodeError(f"no version {version} of Fetch")
    flexible = version >= _FLEXIBLE
    allowance = Allowance(max_elements)
    body = bytes(body)  # cheaper to take apart than a view
    replica_id = replica_epoch = -1
    if version >= _STATE_TAG:
        max_wait, min_bytes, max_bytes, isolation = _HEAD_15.unpack_from(body, 0)
        pos = _HEAD_15.size
    else:
        replica_id, max_wait, min_bytes, max_bytes, isolation = _HEAD.unpack_from(body, 0)
        pos = _HEAD.size
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(body, pos)
        pos += 8
    topics, pos = _read_topics(version, body, pos, allowance)
    forgotten: list[FetchForgotten] = []
    if version >= 7:
        forgotten, pos = _read_forgotten(version, body, pos, allowance)
    rack_id = ""
    if version >= 11:
        rack, pos = p.read_string(body, pos, flexible)
        if rack is None:
            raise DecodeError("null rack id")
        rack_id = rack
    cluster_id = None
    if flexible:
        tags, pos = p.read_tags(body, pos, allowance)
        if 0 in tags:
            cluster_id, end = p.read_string(tags[0], 0, True)
            p.check_end(tags[0], end)
        if 1 in tags and version >= _STATE_TAG:
            replica_id, replica_epoch = p.tag_struct(tags[1], _STATE, allowance)
    p.check_end(body, pos)
    return FetchRequest(
        max_wait, min_bytes, max_bytes, topics, replica_id, replica_epoch, isolation,
        session_id, session_epoch, forgotten, rack_id, cluster_id,
    )  # fmt: skip


def _write_partition(version: int, part: FetchPartition) -> bytes:
    if version >= 12:
        fixed = _P12.pack(
            part.partition, part.current_leader_epoch, part.fetch_offset,
            part.last_fetched_epoch, part.log_start_offset, part.max_bytes,
        )  # fmt: skip
        tags = []
        if version >= _DIRECTORY_TAG and part.replica_directory_id != ZERO:
            tags.append(p.tag(0, part.replica_directory_id.bytes))
        if version >= _HIGH_WATERMARK_TAG and part.high_watermark != NO_HIGH_WATERMARK:
            tags.append(p.tag(1, p.INT64.pack(part.high_watermark)))
        return fixed + p.uvarint(len(tags)) + b"".join(tags)
    if version >= 9:
        return _P9.pack(
            part.partition, part.current_leader_epoch, part.fetch_offset,
            part.log_start_offset, part.max_bytes,
        )  # fmt: skip
    if version >= 5:
        return _P5.pack(part.partition, part.fetch_offset, part.log_start_offset, part.max_bytes)
    return _P4.pack(part.partition, part.fetch_offset, part.max_bytes)


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    """The body, without size and header. Fields that the version lacks are left out."""
    assert MIN_VERSION <= version <= MAX_VERSION, version
    flexible, by_id = version >= _FLEXIBLE, version >= _BY_ID
    limits = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    if version >= _STATE_TAG:
        out = [_HEAD_15.pack(*limits)]
    else:
        out = [_HEAD.pack(request.replica_id, *limits)]
    if version >= 7:
        out.append(_SESSION.pack(request.session_id, request.session_epoch))
    end = b"\x00" if flexible else b""
    out.append(p.count(len(request.topics), flexible))
    for topic in request.topics:
        out.append(p.topic(topic.name, topic.topic_id, by_id, flexible))
        out.append(p.count(len(topic.partitions), flexible))
        out.extend(_write_partition(version, part) for part in topic.partitions)
        out.append(end)
    if version >= 7:
        out.append(p.count(len(request.forgotten), flexible))
        for gone in request.forgotten:
            out.append(p.topic(gone.name, gone.topic_id, by_id, flexible))
            out.append(p.count(len(gone.partitions), flexible))
            out.extend(p.INT32.pack(index) for index in gone.partitions)
            out.append(end)
    if version >= 11:
        out.append(p.string(request.rack_id, flexible))
    if flexible:
        tags = []
        if request.cluster_id is not None:
            tags.append(p.tag(0, p.string(request.cluster_id, True)))
        state = (request.replica_id, request.replica_epoch)
        if version >= _STATE_TAG and state != (-1, -1):
            tags.append(p.tag(1, _STATE.pack(*state) + b"\x00"))
        out.append(p.uvarint(len(tags)))
        out.extend(tags)
    return b"".join(out)
