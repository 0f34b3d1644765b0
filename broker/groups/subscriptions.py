"""What consumers of the classic protocol say that they subscribe to."""

from __future__ import annotations

import struct
from collections.abc import Iterable

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(members: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members, from their metadata; None if one's cannot be read.

    Metadata is Kafka's ConsumerProtocolSubscription. All its versions begin as version 0: the
    version, then the topics.
    """
    topics: set[str] = set()
    try:
        for metadata in members:
            topics.update(_topics(metadata))
    except (struct.error, ValueError):
        return None
    return frozenset(topics)


def _topics(metadata: bytes) -> list[str]:
    _, count = _HEAD.unpack_from(metadata)
    position = _HEAD.size
    topics = []
    for _ in range(count):
        (size,) = _LENGTH.unpack_from(metadata, position)
        position += _LENGTH.size
        if not 0 <= size <= len(metadata) - position:
            raise ValueError(f"byte {position}: a name of {size} bytes")
        topics.append(str(metadata[position : position + size], "utf-8"))
        position += size
    return topics
