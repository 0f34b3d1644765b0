"""Produce, versions 3 to 13: a walker over requests that copies nothing, and a response encoder."""

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
from wire.reader import MAX_ELEMENTS, Allowance, read_uvarint

MIN_VERSION = 3
MAX_VERSION = 13
_FLEXIBLE = 9
_LEADER_TAGS = 10
_BY_ID = 13

_ACKS_TIMEOUT = struct.Struct(">hi")
_RESULT_3 = struct.Struct(">ihqq")
_RESULT_5 = struct.Struct(">ihqqq")
_LEADER = struct.Struct(">ii")
# Around the topic's name and the partition's result, in a flexible answer with one of each: size,
# correlation id, no header tags, one topic; then no record errors, no message, three ends without
# tags around a throttle time of 0.
_SINGLE_HEAD = struct.Struct(">iiBB")
_SINGLE_END = b"\x01\x00\x00" + b"\x00" + bytes(4) + b"\x00"
_SINGLE_REST = 6 + 1 + _RESULT_5.size + len(_SINGLE_END)
_INT32_FROM = p.INT32.unpack_from

# (partition, its records as a slice of the request, None where they are null)
PartitionRecords = tuple[int, Any]
TopicRecords = tuple[str | None, UUID | None, list[PartitionRecords]]


class ProduceRequestView(NamedTuple):
    """A request whose records are slices of its buffer: valid as long as that is."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    # (name, None, partitions) up to version 12, (None, topic id, partitions) from 13 on.
    topics: list[TopicRecords]


@p.decoding
def walk_produce(version: int, body: Any, max_elements: int = MAX_ELEMENTS) -> ProduceRequestView:
    """The request in `body`, a memoryview that begins after the header.

    DecodeError where it is malformed, or holds more than `max_elements` array elements and tagged
    fields.
    """
    if not MIN_VERSION <= version <= MAX_VERSION:
        raise DecodeError(f"no version {version} of Produce")
    allowance = Allowance(max_elements)
    if version >= _FLEXIBLE:
        return _walk_flexible(body, version >= _BY_ID, allowance)
    transactional_id, pos = p.read_string(body, 0, False)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, pos)
    topic_count, pos = p.read_count(body, pos + 6, False, allowance)
    topics: list[TopicRecords] = []
    for _ in range(topic_count):
        name, _, pos = p.read_topic(body, pos, False, False)
        partition_count, pos = p.read_count(body, pos, False, allowance)
        partitions: list[PartitionRecords] = []
        for _ in range(partition_count):
            (index,) = p.INT32.unpack_from(body, pos)
            records, pos = p.read_bytes(body, pos + 4, False)
            partitions.append((index, records))
        topics.append((name, None, partitions))
    p.check_end(body, pos)
    return ProduceRequestView(transactional_id, acks, timeout_ms, topics)


def _walk_flexible(body: Any, by_id: bool, allowance: Allowance) -> ProduceRequestView:
    # The most frequent message of all: what takes one byte is read in place, not by a call.
    if body[0] == 0:
        transactional_id, pos = None, 1
    else:
        transactional_id, pos = p.read_string(body, 0, True)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, pos)
    topic_count, pos = p.read_count(body, pos + 6, True, allowance)
    topics: list[TopicRecords] = []
    for _ in range(topic_count):
        name, topic_id = None, None
        size = body[pos]
        if not by_id and 0 < size < 128 and pos + size <= len(body):
            name = str(body[pos + 1 : pos + size], "utf-8")
            pos += size
        else:
            name, topic_id, pos = p.read_topic(body, pos, by_id, True)
        partitions, pos = _flexible_partitions(body, pos, allowance)
        topics.append((name, topic_id, partitions))
    pos = pos + 1 if body[pos] == 0 else p.skip_tags(body, pos, allowance)
    if pos != len(body):
        p.check_end(body, pos)
    return ProduceRequestView(transactional_id, acks, timeout_ms, topics)


def _flexible_partitions(
    body: Any, pos: int, allowance: Allowance
) -> tuple[list[PartitionRecords], int]:
    partition_count, pos = p.read_count(body, pos, True, allowance)
    partitions: list[PartitionRecords] = []
    for _ in range(partition_count):
        (index,) = _INT32_FROM(body, pos)
        size, pos = read_uvarint(body, pos + 4)
        if size:
            start, pos = pos, pos + size - 1
            if pos > len(body):
                raise DecodeError(f"byte {start}: {size - 1} bytes of records are cut short")
            partitions.append((index, body[start:pos]))
        else:
            partitions.append((index, None))
        pos = pos + 1 if body[pos] == 0 else p.skip_tags(body, pos, allowance)
    return partitions, pos + 1 if body[pos] == 0 else p.skip_tags(body, pos, allowance)


class ProducedPartition(NamedTuple):
    """One partition's outcome. Fields that a version lacks are left out of its bytes."""

    index: int  # type: ignore[assignment]  # not the tuple method
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    # (index of the record in the batch, message)
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    # (leader id, leader epoch), sent with NOT_LEADER_OR_FOLLOWER (KIP-951)
    current_leader: tuple[int, int] | None = None


class ProducedTopic(NamedTuple):
    """Name up to version 12, id from 13 on; the other may be None."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[ProducedPartition]


def _partition(version: int, flexible: bool, part: ProducedPartition) -> bytes:
    if version < 5:
        return _RESULT_3.pack(
            part.index, part.error_code, part.base_offset, part.log_append_time_ms
        )
    fixed = _RESULT_5.pack(*part[:5])
    if version < 8:
        return fixed
    if not part.record_errors and part.error_message is None and part.current_leader is None:
        return fixed + (b"\x01\x00\x00" if flexible else b"\x00\x00\x00\x00\xff\xff")
    out = [fixed, p.count(len(part.record_errors), flexible)]
    for index, message in part.record_errors:
        out.append(p.INT32.pack(index))
        out.append(p.string(message, flexible))
        if flexible:
            out.append(b"\x00")
    out.append(p.string(part.error_message, flexible))
    if flexible:
        if part.current_leader is not None and version >= _LEADER_TAGS:
            out.append(b"\x01" + p.tag(0, _LEADER.pack(*part.current_leader) + b"\x00"))
        else:
            out.append(b"\x00")
    return b"".join(out)


def _single(version: int, correlation_id: int, topic: ProducedTopic) -> bytes | None:
    """The frame of the most frequent answer, one partition that took its batch; else None."""
    if len(topic.partitions) != 1:
        return None
    part = topic.partitions[0]
    if part.record_errors or part.error_message is not None or part.current_leader is not None:
        return None
    if version >= _BY_ID:
        assert topic.topic_id is not None, "this version names topics by id"
        name = topic.topic_id.bytes
    else:
        assert topic.name is not None, "this version names topics by name"
        raw = topic.name.encode()
        if len(raw) > 126:
            return None
        name = p.uvarint(len(raw) + 1) + raw
    head = _SINGLE_HEAD.pack(len(name) + _SINGLE_REST, correlation_id, 0, 2)
    return head + name + b"\x02" + _RESULT_5.pack(*part[:5]) + _SINGLE_END


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[ProducedTopic],
    *,
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The complete frame, size and header included."""
    flexible = version >= _FLEXIBLE
    if flexible and len(topics) == 1 and not throttle_ms and not node_endpoints:
        frame = _single(version, correlation_id, topics[0])
        if frame is not None:
            return frame
    out = [response_header(ApiKey.PRODUCE, version, correlation_id)]
    out.append(p.count(len(topics), flexible))
    for topic in topics:
        out.append(p.topic(topic.name, topic.topic_id, version >= _BY_ID, flexible))
        out.append(p.count(len(topic.partitions), flexible))
        for part in topic.partitions:
            out.append(_partition(version, flexible, part))
        if flexible:
            out.append(b"\x00")
    out.append(p.INT32.pack(throttle_ms))
    if flexible:
        if node_endpoints and version >= _LEADER_TAGS:
            out.append(b"\x01" + p.tag(0, p.endpoints(node_endpoints)))
        else:
            out.append(b"\x00")
    body = b"".join(out)
    return p.INT32.pack(len(body)) + body
