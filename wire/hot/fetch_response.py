"""Fetch responses, versions 4 to 18, both ways; records are never looked at nor copied."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from wire.apis import ApiKey
from wire.errors import DecodeError
from wire.hot import primitives as p
from wire.hot.primitives import NodeEndpoint
from wire.messages import response_header
from wire.reader import MAX_ELEMENTS, Allowance

MIN_VERSION = 4
MAX_VERSION = 18
_FLEXIBLE = 12
_BY_ID = 13
_ENDPOINTS_TAG = 16

_P4 = struct.Struct(">ihqq")
_P5 = struct.Struct(">ihqqq")
_HEAD_7 = struct.Struct(">ihi")
_ABORTED = struct.Struct(">qq")
_DIVERGING = struct.Struct(">iq")
_LEADER = struct.Struct(">ii")
_SNAPSHOT = struct.Struct(">qi")


class FetchedPartition(NamedTuple):
    """One partition's outcome.

    To encode, `records` are the parts whose bytes follow each other, `records_size` bytes in
    all; a part is whatever the sender can send (bytes, a range of a file) and is passed through
    as it is. When decoded it's one memoryview, or no part where there are no records.
    `aborted` are (producer id, first offset), None where the field is null.
    """

    index: int  # type: ignore[assignment]  # not the tuple method
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    records: Sequence[Any] = ()
    records_size: int = 0
    # (epoch, end offset)
    diverging_epoch: tuple[int, int] | None = None
    # (leader id, leader epoch)
    current_leader: tuple[int, int] | None = None
    # (end offset, epoch)
    snapshot_id: tuple[int, int] | None = None


class FetchedTopic(NamedTuple):
    """Name up to version 12, id from 13 on; the other may be None."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[FetchedPartition]


class FetchResponse(NamedTuple):
    """A decoded response; its records are slices of the buffer."""

    throttle_ms: int
    error_code: int
    session_id: int
    topics: list[FetchedTopic]
    node_endpoints: list[NodeEndpoint]


def _tags(part: FetchedPartition) -> bytes:
    tags = []
    if part.diverging_epoch is not None:
        tags.append(p.tag(0, _DIVERGING.pack(*part.diverging_epoch) + b"\x00"))
    if part.current_leader is not None:
        tags.append(p.tag(1, _LEADER.pack(*part.current_leader) + b"\x00"))
    if part.snapshot_id is not None:
        tags.append(p.tag(2, _SNAPSHOT.pack(*part.snapshot_id) + b"\x00"))
    return p.uvarint(len(tags)) + b"".join(tags)


def _before_records(version: int, flexible: bool, part: FetchedPartition) -> bytes:
    fixed = _P5.pack(*part[:5]) if version >= 5 else _P4.pack(*part[:4])
    if part.aborted is None:
        aborted = b"\x00" if flexible else b"\xff\xff\xff\xff"
    else:
        end = b"\x00" if flexible else b""
        aborted = p.count(len(part.aborted), flexible) + b"".join(
            _ABORTED.pack(producer_id, first_offset) + end
            for producer_id, first_offset in part.aborted
        )
    replica = p.INT32.pack(part.preferred_read_replica) if version >= 11 else b""
    return fixed + aborted + replica + p.count(part.records_size, flexible)


def encode_fetch_response(
    version: int,
    correlation_id: int,
    topics: Sequence[FetchedTopic],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Any]:
    """The complete frame, size and header included, as parts: bytes, and the records' own parts.

    Parts of bytes between records are joined, so N partitions with records give 2N + 1 parts.
    """
    assert MIN_VERSION <= version <= MAX_VERSION, version
    flexible, by_id = version >= _FLEXIBLE, version >= _BY_ID
    parts: list[Any] = []
    total = 0
    pending = [response_header(ApiKey.FETCH, version, correlation_id)]
    if version >= 7:
        pending.append(_HEAD_7.pack(throttle_ms, error_code, session_id))
    else:
        pending.append(p.INT32.pack(throttle_ms))
    pending.append(p.count(len(topics), flexible))
    for topic in topics:
        pending.append(p.topic(topic.name, topic.topic_id, by_id, flexible))
        pending.append(p.count(len(topic.partitions), flexible))
        for part in topic.partitions:
            pending.append(_before_records(version, flexible, part))
            if part.records_size:
                joined = b"".join(pending)
                parts.append(joined)
                parts.extend(part.records)
                total += len(joined) + part.records_size
                pending = []
            if flexible:
                pending.append(_tags(part))
        if flexible:
            pending.append(b"\x00")
    if flexible:
        if node_endpoints and version >= _ENDPOINTS_TAG:
            pending.append(b"\x01" + p.tag(0, p.endpoints(node_endpoints)))
        else:
            pending.append(b"\x00")
    last = b"".join(pending)
    if last:
        parts.append(last)
    size = p.INT32.pack(total + len(last))
    parts[0] = size + parts[0]
    return parts


def _read_partition(
    version: int, flexible: bool, body: Any, pos: int, allowance: Allowance
) -> tuple[Any, int]:
    if version >= 5:
        fixed = _P5.unpack_from(body, pos)
        pos += _P5.size
    else:
        fixed = (*_P4.unpack_from(body, pos), -1)
        pos += _P4.size
    aborted, pos = _read_aborted(flexible, body, pos, allowance)
    replica = -1
    if version >= 11:
        (replica,) = p.INT32.unpack_from(body, pos)
        pos += 4
    records, pos = p.read_bytes(body, pos, flexible)
    diverging = leader = snapshot = None
    if flexible:
        if body[pos] == 0:
            pos += 1
        else:
            tags, pos = p.read_tags(body, pos, allowance)
            diverging = p.tag_struct(tags[0], _DIVERGING, allowance) if 0 in tags else None
            leader = p.tag_struct(tags[1], _LEADER, allowance) if 1 in tags else None
            snapshot = p.tag_struct(tags[2], _SNAPSHOT, allowance) if 2 in tags else None
    size = len(records) if records is not None else 0
    parts = (records,) if size else ()
    return FetchedPartition._make(
        (*fixed, aborted, replica, parts, size, diverging, leader, snapshot)
    ), pos


def _read_aborted(
    flexible: bool, body: Any, pos: int, allowance: Allowance
) -> tuple[list[tuple[int, int]] | None, int]:
    if flexible and body[pos] == 0:
        return None, pos + 1
    if not flexible and p.INT32.unpack_from(body, pos)[0] == -1:
        return None, pos + 4
    number, pos = p.read_count(body, pos, flexible, allowance)
    aborted = []
    for _ in range(number):
        aborted.append(_ABORTED.unpack_from(body, pos))
        pos += _ABORTED.size
        if flexible:
            pos = p.skip_tags(body, pos, allowance)
    return aborted, pos


def _read_endpoints(value: Any, allowance: Allowance) -> list[NodeEndpoint]:
    number, pos = p.read_count(value, 0, True, allowance)
    nodes = []
    for _ in range(number):
        (node_id,) = p.INT32.unpack_from(value, pos)
        host, pos = p.read_string(value, pos + 4, True)
        if host is None:
            raise DecodeError("null host of a node endpoint")
        (port,) = p.INT32.unpack_from(value, pos)
        rack, pos = p.read_string(value, pos + 4, True)
        pos = p.skip_tags(value, pos, allowance)
        nodes.append(NodeEndpoint(node_id, host, port, rack))
    p.check_end(value, pos)
    return nodes


@p.decoding
def decode_fetch_response(
    version: int, body: Any, max_elements: int = MAX_ELEMENTS
) -> FetchResponse:
    """The response in `body` (a memoryview after the header), records sliced out of it.

    DecodeError where it is malformed, or holds more than `max_elements` array elements and tagged
    fields.
    """
    if not MIN_VERSION <= version <= MAX_VERSION:
        raise DecodeError(f"no version {version} of Fetch")
    flexible = version >= _FLEXIBLE
    allowance = Allowance(max_elements)
    error_code = session_id = 0
    if version >= 7:
        throttle_ms, error_code, session_id = _HEAD_7.unpack_from(body, 0)
        pos = _HEAD_7.size
    else:
        (throttle_ms,) = p.INT32.unpack_from(body, 0)
        pos = 4
    topic_count, pos = p.read_count(body, pos, flexible, allowance)
    topics = []
    for _ in range(topic_count):
        name, topic_id, pos = p.read_topic(body, pos, version >= _BY_ID, flexible)
        partition_count, pos = p.read_count(body, pos, flexible, allowance)
        partitions = []
        for _ in range(partition_count):
            part, pos = _read_partition(version, flexible, body, pos, allowance)
            partitions.append(part)
        if flexible:
            pos = p.skip_tags(body, pos, allowance)
        topics.append(FetchedTopic(name, topic_id, partitions))
    nodes: list[NodeEndpoint] = []
    if flexible:
        tags, pos = p.read_tags(body, pos, allowance)
        if 0 in tags and version >= _ENDPOINTS_TAG:
            nodes = _read_endpoints(tags[0], allowance)
    p.check_end(body, pos)
    return FetchResponse(throttle_ms, error_code, session_id, topics, nodes)
