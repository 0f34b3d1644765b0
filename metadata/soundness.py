"""What is odd about a record, given the image that it meets: the warnings of an audit.

Replay never fails on such records; these checks say where a log cannot have come from a correct
controller. The codes are those of `audit verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from metadata.image import MetadataImage, PartitionRegistration
from metadata.records import Record, UnknownRecord, name_of
from metadata.records import types as t
from metadata.topics import merge, registration_of
from wire.uuids import to_text

Finding = tuple[str, str]
"""(code, detail)."""


def _partition_state(where: str, partition: PartitionRegistration) -> Iterator[Finding]:
    outside = [broker for broker in partition.isr if broker not in partition.replicas]
    if outside:
        yield "isr-outside-replicas", f"{where}: ISR members {outside} are not replicas"
    if partition.leader >= 0 and partition.leader not in partition.isr:
        yield (
            "leader-outside-isr",
            f"{where}: leader {partition.leader} is not in ISR {list(partition.isr)}",
        )
    if partition.directories and len(partition.directories) != len(partition.replicas):
        detail = (
            f"{where}: {len(partition.directories)} directories for "
            f"{len(partition.replicas)} replicas"
        )
        yield "directory-count", detail


def _register_broker(image: MetadataImage, record: t.RegisterBrokerRecord) -> Iterator[Finding]:
    known = image.brokers.get(record.broker_id)
    if known is not None and record.broker_epoch < known.epoch:
        detail = (
            f"broker {record.broker_id} registers with epoch {record.broker_epoch} after "
            f"{known.epoch}"
        )
        yield "broker-epoch-regression", detail


def _known_broker(
    image: MetadataImage, record: Record, broker_id: int, epoch: int
) -> Iterator[Finding]:
    known = image.brokers.get(broker_id)
    if known is None:
        yield "unknown-broker", f"{record.NAME} for broker {broker_id}"
    elif known.epoch != epoch:
        yield (
            "broker-epoch-mismatch",
            f"{record.NAME} for broker {broker_id}: epoch {epoch}, registered is {known.epoch}",
        )


def _broker(image: MetadataImage, record: Any) -> Iterator[Finding]:
    return _known_broker(image, record, record.broker_id, record.broker_epoch)


def _fence(image: MetadataImage, record: Any) -> Iterator[Finding]:
    return _known_broker(image, record, record.id, record.epoch)


def _topic(image: MetadataImage, record: t.TopicRecord) -> Iterator[Finding]:
    if record.name in image.topics.by_name:
        yield "duplicate-topic", f"topic {record.name} exists already"
    elif record.topic_id in image.topics.by_id:
        yield "duplicate-topic", f"topic id {to_text(record.topic_id)} exists already"


def _partition(image: MetadataImage, record: t.PartitionRecord) -> Iterator[Finding]:
    topic = image.topics.by_id.get(record.topic_id)
    if topic is None:
        yield "unknown-topic", f"partition {record.partition_id} of {to_text(record.topic_id)}"
        return
    where = f"{topic.name}-{record.partition_id}"
    before = topic.partitions.get(record.partition_id)
    after = registration_of(record)
    if before is not None:
        if after.leader_epoch < before.leader_epoch:
            yield (
                "leader-epoch-regression",
                f"{where}: leader epoch {after.leader_epoch} after {before.leader_epoch}",
            )
        if after.partition_epoch < before.partition_epoch:
            yield (
                "partition-epoch-regression",
                f"{where}: partition epoch {after.partition_epoch} after {before.partition_epoch}",
            )
    yield from _partition_state(where, after)


def _partition_change(image: MetadataImage, record: t.PartitionChangeRecord) -> Iterator[Finding]:
    topic = image.topics.by_id.get(record.topic_id)
    if topic is None:
        where = f"{to_text(record.topic_id)}-{record.partition_id}"
        yield "unknown-partition", f"change of {where}"
        return
    where = f"{topic.name}-{record.partition_id}"
    before = topic.partitions.get(record.partition_id)
    if before is None:
        yield "unknown-partition", f"change of {where}"
        return
    yield from _partition_state(where, merge(before, record))


def _remove_topic(image: MetadataImage, record: t.RemoveTopicRecord) -> Iterator[Finding]:
    if record.topic_id not in image.topics.by_id:
        yield "unknown-topic", f"removal of {to_text(record.topic_id)}"


def _clear_elr(image: MetadataImage, record: t.ClearElrRecord) -> Iterator[Finding]:
    if record.topic_name and record.topic_name not in image.topics.by_name:
        yield "unknown-topic", f"clearing of {record.topic_name}"


def _remove_acl(
    image: MetadataImage, record: t.RemoveAccessControlEntryRecord
) -> Iterator[Finding]:
    if record.id not in image.acls:
        yield "unknown-acl", f"removal of {to_text(record.id)}"


def _producer_ids(image: MetadataImage, record: t.ProducerIdsRecord) -> Iterator[Finding]:
    if image.next_producer_id is not None and record.next_producer_id < image.next_producer_id:
        yield (
            "producer-id-regression",
            f"next producer id {record.next_producer_id} after {image.next_producer_id}",
        )


_CHECKS: Final[dict[type[Any], Callable[[MetadataImage, Any], Iterator[Finding]]]] = {
    t.RegisterBrokerRecord: _register_broker,
    t.UnregisterBrokerRecord: _broker,
    t.BrokerRegistrationChangeRecord: _broker,
    t.FenceBrokerRecord: _fence,
    t.UnfenceBrokerRecord: _fence,
    t.TopicRecord: _topic,
    t.PartitionRecord: _partition,
    t.PartitionChangeRecord: _partition_change,
    t.RemoveTopicRecord: _remove_topic,
    t.ClearElrRecord: _clear_elr,
    t.RemoveAccessControlEntryRecord: _remove_acl,
    t.ProducerIdsRecord: _producer_ids,
}


def check(image: MetadataImage, record: Any) -> Iterator[Finding]:
    """(code, detail) of everything odd about applying `record` to `image`; nothing for a sound
    one. Transactions are `check_transaction`'s."""
    if isinstance(record, UnknownRecord):
        yield "unknown-record", f"{name_of(record.api_key)} version {record.version}"
        return
    checker = _CHECKS.get(type(record))
    if checker is not None:
        yield from checker(image, record)


def check_transaction(in_transaction: bool, record: Any) -> Iterator[Finding]:
    """What is odd about a transaction marker, given whether a transaction is open before it; an
    abort is reported too (as information). One still open at the log's end is the caller's
    `open-transaction`."""
    kind = type(record)
    if kind is t.BeginTransactionRecord:
        if in_transaction:
            yield "nested-transaction", "a transaction begins inside another"
    elif kind is t.EndTransactionRecord or kind is t.AbortTransactionRecord:
        if not in_transaction:
            yield "no-transaction", f"{record.NAME} outside a transaction"
        elif kind is t.AbortTransactionRecord:
            yield "aborted-transaction", record.reason or "no reason given"
