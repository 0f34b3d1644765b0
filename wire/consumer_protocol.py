"""What consumers of the classic protocol put in its opaque bytes: subscription and assignment.

All versions begin with their number; a newer one than is known is read as the newest known.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

from wire.errors import DecodeError
from wire.messages import encode_body, fill
from wire.reader import read_entity

NEWEST: Final = 3
_VERSION: Final = struct.Struct(">h")


class Subscription(NamedTuple):
    """`owned` has the partitions by topic that the member still has; rack_id None for none."""

    version: int
    topics: tuple[str, ...]
    owned: tuple[tuple[str, tuple[int, ...]], ...]
    rack_id: str | None


class Assigned(NamedTuple):
    """`user_data` is the assignor's own."""

    partitions: dict[str, tuple[int, ...]]
    user_data: bytes


def read_subscription(data: bytes) -> Subscription:
    """DecodeError on what is none."""
    version, entity = _read("subscription", data)
    owned = getattr(entity, "owned_partitions", ())
    return Subscription(
        version,
        tuple(entity.topics),
        tuple((one.topic, tuple(one.partitions)) for one in owned),
        getattr(entity, "rack_id", None) or None,
    )


def read_assignment(data: bytes) -> Assigned:
    """DecodeError on what is none; no bytes at all are an empty one."""
    if not data:
        return Assigned({}, b"")
    _, entity = _read("assignment", data)
    partitions = {one.topic: tuple(sorted(one.partitions)) for one in entity.assigned_partitions}
    return Assigned(partitions, entity.user_data or b"")


def write_assignment(version: int, partitions: Mapping[str, tuple[int, ...]]) -> bytes:
    """An assignment for a member whose subscription is of that version."""
    version = min(version, NEWEST)
    data: Any = _module("assignment", version)
    topics = tuple(
        data.TopicPartition(topic=name, partitions=partitions[name]) for name in sorted(partitions)
    )
    entity = fill(data.ConsumerProtocolAssignment, assigned_partitions=topics, user_data=None)
    return _VERSION.pack(version) + encode_body(entity)


def _read(kind: str, data: bytes) -> tuple[int, Any]:
    if len(data) < _VERSION.size:
        raise DecodeError(f"a consumer's {kind} of {len(data)} bytes")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise DecodeError(f"a consumer's {kind} of version {version}")
    version = min(version, NEWEST)
    cls = getattr(_module(kind, version), f"ConsumerProtocol{kind.capitalize()}")
    return version, read_entity(cls, data, _VERSION.size)[0]


def _module(kind: str, version: int) -> Any:
    return import_module(f"kio.schema.consumer_protocol_{kind}.v{version}.data")
