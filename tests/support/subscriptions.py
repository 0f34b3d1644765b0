"""What consumers of the classic protocol tell their group about themselves, as kio writes it."""

from __future__ import annotations

from collections.abc import Iterable

from wire.messages import encode_body

_VERSION = b"\0\3"


def subscription(*topics: str, owned: Iterable[int] = (), rack_id: str | None = None) -> bytes:
    """A consumer's metadata, version 3; `owned` are partitions of topic t."""
    from kio.schema.consumer_protocol_subscription.v3 import data

    partitions = (data.TopicPartition(topic="t", partitions=tuple(owned)),) if owned else ()
    return _VERSION + encode_body(
        data.ConsumerProtocolSubscription(
            topics=topics, user_data=None, owned_partitions=partitions, rack_id=rack_id
        )
    )
