"""The first records of a new active controller (KIP-778, KIP-868)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller import eligible_replicas
from metadata.features import SUPPORTED, TRANSACTIONS, level_name
from metadata.image import METADATA_VERSION, MetadataImage
from metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    Record,
)
from wire.errors import FatalError
from wire.exits import EXIT_NO_BOOTSTRAP, EXIT_UNSUPPORTED_LEVEL

TRANSACTION_NAME = "Bootstrap records"


def is_empty(image: MetadataImage) -> bool:
    """Whether the log has no record that counts: the bootstrap records are still to be written.

    The first of them finalises a metadata.version, and none can ever be without one after that
    (the oldest logs, without feature records, hold brokers or topics).
    """
    return not (image.features or image.brokers or image.topics_by_id or image.configs)


def activation_records(
    image: MetadataImage,
    bootstrap: Sequence[Record],
    static: Mapping[str, str],
    *,
    open_transaction: bool,
) -> list[Record]:
    """What to append on becoming active; often nothing. `static` is the node's file.

    A 4.x JVM writes the bootstrap records in one metadata transaction, without the ZooKeeper
    migration state of its 3.x predecessors (seen in logs of 4.0 to 4.2). FatalError if the log
    is empty and there is nothing to begin with.
    """
    records: list[Record] = []
    empty = is_empty(image)
    if open_transaction:
        reason = "the bootstrap transaction was cut short" if empty else "controller failover"
        records.append(AbortTransactionRecord(reason=reason))
    if not empty:
        _check_level(image.metadata_version)
        return records
    if not bootstrap:
        raise FatalError(
            EXIT_NO_BOOTSTRAP,
            "the metadata log is empty and there are no bootstrap records: "
            "was this directory formatted?",
        )
    level = bootstrap_level(bootstrap)
    _check_level(level)
    if level >= TRANSACTIONS:
        records.append(BeginTransactionRecord(name=TRANSACTION_NAME))
    records += bootstrap
    if eligible_replicas.turned_on(bootstrap):
        records += eligible_replicas.one_min_isr(image, static)
    if level >= TRANSACTIONS:
        records.append(EndTransactionRecord())
    return records


def bootstrap_level(bootstrap: Sequence[Record]) -> int:
    """The metadata.version that the bootstrap records finalise; FatalError without one."""
    for record in bootstrap:
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            return record.feature_level
    raise FatalError(EXIT_NO_BOOTSTRAP, "the bootstrap records name no metadata.version")


def _check_level(level: int) -> None:
    """The controller writes in the ways of the levels it supports and knows no older ones."""
    low, high = SUPPORTED[METADATA_VERSION]
    if not low <= level <= high:
        raise FatalError(
            EXIT_UNSUPPORTED_LEVEL,
            f"the cluster is at metadata.version {level} ({level_name(level)}); this version "
            f"supports {low} ({level_name(low)}) to {high} ({level_name(high)})",
        )
