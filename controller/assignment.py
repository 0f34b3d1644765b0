"""Replicas of new partitions: checked if given by hand, placed if not; and their first state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from controller.cluster import default_directory, usable_brokers
from controller.context import Context
from controller.placement import place
from metadata.features import DIRECTORY_ASSIGNMENT
from metadata.records import PartitionRecord
from wire.errors import ErrorCode, KafkaError


def automatic(context: Context, count: int, replication_factor: int) -> Iterator[tuple[int, ...]]:
    """Replicas for `count` partitions, spread over the racks and brokers that there are; each is
    placed when it is asked for. Raises, at once, what `place` raises."""
    placed = place(usable_brokers(context), count, replication_factor, context.chance)
    return (tuple(replicas) for replicas in placed)


def replicas_of_manual(
    context: Context, brokers: Iterable[int], index: int, replication_factor: int | None
) -> tuple[int, ...]:
    """The replicas a caller wants for partition `index`; `replication_factor` is that of the
    topic's other partitions, if there are any. Raises INVALID_REPLICA_ASSIGNMENT."""

    def invalid(message: str) -> KafkaError:
        return KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"Assignment {list(replicas)} of partition {index} {message}",
        )

    replicas = tuple(int(b) for b in brokers)
    if not replicas:
        raise invalid("is empty: a partition needs at least one replica")
    if len(set(replicas)) != len(replicas):
        raise invalid("names a broker more than once")
    for broker in replicas:
        if context.image.broker(broker) is None:
            raise invalid(f"names broker {broker}, which is not registered")
    if replication_factor is not None and len(replicas) != replication_factor:
        raise invalid(
            f"has {len(replicas)} replicas: all partitions of the topic must have "
            f"{replication_factor}"
        )
    if not any(context.is_active(broker) for broker in replicas):
        raise invalid("has no active broker: all are fenced or in controlled shutdown")
    return replicas


def new_partition_record(
    context: Context, topic_id: UUID, index: int, replicas: tuple[int, ...]
) -> PartitionRecord:
    """A partition that begins: its active replicas are in sync, the first of them leads."""
    isr = tuple(broker for broker in replicas if context.is_active(broker))
    assert isr, "the caller has checked that a replica is active"
    with_directories = context.metadata_version >= DIRECTORY_ASSIGNMENT
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(default_directory(context.image, b) for b in replicas)
        if with_directories
        else (),
    )
