"""The records of an image, as a snapshot holds them (without header and footer)."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from metadata.image import METADATA_VERSION, MetadataImage
from metadata.maps import in_order
from metadata.records import Endpoint, Feature, Record, UnknownRecord, encode, version_for
from metadata.records import types as t
from metadata.records.schema import schema_of
from metadata.registrations import (
    BrokerRegistration,
    ControllerRegistration,
    PartitionRegistration,
    TopicImage,
)

Versioned = tuple[Record | UnknownRecord, int]

# Records of a slice and keys sorted at once: each is a millisecond or two of work.
_SLICE = 128
_RUN = 2_000


def _holding(record: Record, metadata_version: int) -> Versioned:
    """The record with the version that the level writes, or a newer one where that could not
    hold it (a level can have been lowered since the value was written)."""
    kind = type(record)
    version = version_for(kind, metadata_version)
    for schema in schema_of(kind):
        if schema.since > version and getattr(record, schema.name) != schema.default:
            version = schema.since
    return record, version


def _endpoints(endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    return tuple(sorted(endpoints, key=lambda endpoint: endpoint.name))


def _features(features: tuple[Feature, ...]) -> tuple[Feature, ...]:
    return tuple(sorted(features, key=lambda feature: feature.name))


def broker_record(broker: BrokerRegistration) -> t.RegisterBrokerRecord:
    """The record that registers a broker exactly as it now is."""
    return t.RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=_endpoints(broker.endpoints),
        features=_features(broker.features),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
        cordoned_log_dirs=broker.cordoned_log_dirs or None,
    )


def controller_record(controller: ControllerRegistration) -> t.RegisterControllerRecord:
    """The record that registers a controller as it now is."""
    return t.RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=_endpoints(controller.endpoints),
        features=_features(controller.features),
    )


def partition_record(
    topic_id: Any, index: int, partition: PartitionRegistration
) -> t.PartitionRecord:
    """The record that states a partition in full."""
    return t.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing,
        adding_replicas=partition.adding,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        eligible_leader_replicas=partition.elr or None,
        last_known_elr=partition.last_known_elr or None,
    )


def _topics(image: MetadataImage, metadata_version: int) -> Iterator[Versioned | None]:
    for name in in_order(image.topics_by_name, at_once=_RUN):
        if name is None:
            yield None
            continue
        topic = image.topics_by_name[name]
        yield t.TopicRecord(name=name, topic_id=topic.id), 0
        yield from _partitions(topic, metadata_version)


def _partitions(topic: TopicImage, metadata_version: int) -> Iterator[Versioned | None]:
    partitions = topic.partitions
    few = len(partitions) <= _RUN
    for index in sorted(partitions) if few else in_order(partitions, at_once=_RUN):
        if index is None:
            yield None
        else:
            record = partition_record(topic.id, index, partitions[index])
            yield _holding(record, metadata_version)


def _feature_records(image: MetadataImage) -> Iterator[Versioned]:
    names = sorted(image.features, key=lambda name: (name != METADATA_VERSION, name))
    for name in names:
        yield t.FeatureLevelRecord(name=name, feature_level=image.features[name]), 0
    if image.zk_migration_state is not None:
        yield t.ZkMigrationStateRecord(zk_migration_state=image.zk_migration_state), 0


def _config_records(image: MetadataImage) -> Iterator[Versioned | None]:
    for found in in_order(image.configs, at_once=_RUN):
        if found is None:
            yield None
            continue
        kind, resource = found
        values = image.configs[kind, resource]
        for name in sorted(values):
            record = t.ConfigRecord(
                resource_type=kind, resource_name=resource, name=name, value=values[name]
            )
            yield record, 0


def _quota_records(image: MetadataImage) -> Iterator[Versioned]:
    def order(key: Any) -> Any:
        return [(kind, name is not None, name or "") for kind, name in key]

    for entity in sorted(image.quotas, key=order):
        parts = tuple(t.QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity)
        values = image.quotas[entity]
        for key in sorted(values):
            record = t.ClientQuotaRecord(entity=parts, key=key, value=values[key], remove=False)
            yield record, 0


def _scram_records(image: MetadataImage) -> Iterator[Versioned]:
    for name, mechanism in sorted(image.scram):
        salt, stored_key, server_key, iterations = image.scram[name, mechanism]
        record = t.UserScramCredentialRecord(
            name=name,
            mechanism=mechanism,
            salt=salt,
            stored_key=stored_key,
            server_key=server_key,
            iterations=iterations,
        )
        yield record, 0


def _records(image: MetadataImage) -> Iterator[Versioned | None]:
    """The records of `records_of`, with a None wherever work was done that gave none yet."""
    level = image.metadata_version
    yield from _feature_records(image)
    for broker_id in sorted(image.brokers):
        yield _holding(broker_record(image.brokers[broker_id]), level)
    for controller_id in sorted(image.controllers):
        yield controller_record(image.controllers[controller_id]), 0
    yield from _topics(image, level)
    yield from _config_records(image)
    yield from _quota_records(image)
    if image.next_producer_id is not None:
        yield (
            t.ProducerIdsRecord(
                broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
            ),
            0,
        )
    for acl_id in in_order(image.acls, key=attrgetter("int"), at_once=_RUN):
        yield None if acl_id is None else (image.acls[acl_id], 0)
    yield from _scram_records(image)
    for token_id in sorted(image.tokens):
        yield image.tokens[token_id], 0


def records_of(image: MetadataImage) -> Iterator[Versioned]:
    """(record, version) of everything in the image, in the order of Kafka's own snapshots and
    sorted within each part. Applied to an empty image they give the same state. kraft.version
    and voters are control records of the snapshot's header and not among them."""
    return (found for found in _records(image) if found is not None)


def values_of(image: MetadataImage) -> Iterator[bytes]:
    """The framed values of `records_of`, ready for a snapshot's batches."""
    for record, version in records_of(image):
        yield encode(record, version)


def slices_of(image: MetadataImage) -> Iterator[list[bytes]]:
    """The same values, each list the work of a few milliseconds, for a writer that lets others
    have their turn in between. A list may be empty."""
    values: list[bytes] = []
    for found in _records(image):
        if found is not None:
            values.append(encode(*found))
        if found is None or len(values) == _SLICE:
            yield values
            values = []
    yield values
