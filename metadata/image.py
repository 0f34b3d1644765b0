"""The metadata image: what a record list has made of the cluster, as an immutable value.

Images share structure, so keeping one (a snapshot being written, the committed image beneath an
uncommitted one) costs a reference. `apply` is the same code in controllers, brokers and audits;
it is total: a record that makes no sense against the image (an unknown broker, say) changes
nothing here and is for `metadata.soundness` to report.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

from metadata.maps import Map
from metadata.records import Record, UnknownRecord
from metadata.records.schema import ZERO_UUID
from metadata.records.types import AccessControlEntryRecord, DelegationTokenRecord
from metadata.registrations import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    BrokerRegistration,
    ControllerRegistration,
    PartitionRegistration,
    QuotaKey,
    ScramCredential,
    TopicImage,
)
from metadata.replay import APPLY
from metadata.topics import NO_TOPICS, PartitionSet, TopicsImage, partitions_in_order
from wire.control import ControlType

__all__ = [
    "BROKER_RESOURCE",
    "EMPTY",
    "GROUP_RESOURCE",
    "METADATA_VERSION",
    "TOPIC_RESOURCE",
    "BrokerRegistration",
    "ControllerRegistration",
    "MetadataImage",
    "PartitionRegistration",
    "QuotaKey",
    "ScramCredential",
    "TopicImage",
]

METADATA_VERSION = "metadata.version"

ConfigKey = tuple[int, str]


class MetadataImage(NamedTuple):
    """The cluster at one point of its metadata log. `configs` keys are (resource type, name):
    type 2 topic, 4 broker (name "" for the cluster-wide default); `scram` keys are (user,
    mechanism number). The `last_*` fields say where in the log it stands (-1: nowhere yet);
    they are set by `at`, not by `apply`."""

    topics: TopicsImage
    brokers: Map[int, BrokerRegistration]
    controllers: Map[int, ControllerRegistration]
    features: Map[str, int]
    configs: Map[ConfigKey, Map[str, str]]
    quotas: Map[QuotaKey, Map[str, float]]
    scram: Map[tuple[str, int], ScramCredential]
    acls: Map[UUID, AccessControlEntryRecord]
    tokens: Map[str, DelegationTokenRecord]
    next_producer_id: int | None
    zk_migration_state: int | None
    kraft_version: int | None
    voters: tuple[tuple[int, UUID], ...] | None
    last_offset: int
    last_epoch: int
    last_timestamp_ms: int

    def apply(self, record: Record | UnknownRecord) -> MetadataImage:
        """The image after one more record. Transaction markers and unknown records change
        nothing: see `metadata.loader` for transactions."""
        handler = APPLY.get(type(record))
        return self if handler is None else handler(self, record)

    def apply_control(self, control_type: int, entity: Any) -> MetadataImage:
        """The image after a control record of the log (its number and decoded form); only
        kraft.version and the voter set are kept."""
        if control_type == ControlType.KRAFT_VERSION:
            return self._replace(kraft_version=entity.k_raft_version)
        if control_type == ControlType.KRAFT_VOTERS:
            voters = ((v.voter_id, v.voter_directory_id or ZERO_UUID) for v in entity.voters)
            return self._replace(voters=tuple(sorted(voters)))
        return self

    def with_topics(self, topics: TopicsImage) -> MetadataImage:
        """The same with other topics."""
        # `_replace` takes longer than all the rest of a record that logs hold by the million.
        return tuple.__new__(MetadataImage, (topics, *self[1:]))

    def at(self, offset: int, epoch: int, timestamp_ms: int) -> MetadataImage:
        """The same state, standing at that offset (the last one applied) of the log."""
        # As `_replace` on the last three fields, which is slower; this runs for every change.
        return tuple.__new__(MetadataImage, (*self[:-3], offset, epoch, timestamp_ms))

    @property
    def topics_by_name(self) -> Map[str, TopicImage]:
        return self.topics.by_name

    @property
    def topics_by_id(self) -> Map[UUID, TopicImage]:
        return self.topics.by_id

    @property
    def partitions_by_broker(self) -> Map[int, PartitionSet]:
        """Broker id -> topic id -> partition index -> None, for every assigned replica."""
        return self.topics.by_broker

    @property
    def metadata_version(self) -> int:
        """The finalised metadata.version level; 1 where the log never said (before 3.3)."""
        return self.features.get(METADATA_VERSION, 1)

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.by_name.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        return self.topics.by_id.get(topic_id)

    def partition(self, topic: str | UUID, index: int) -> PartitionRegistration | None:
        """A partition by topic name or id and index, or None."""
        if isinstance(topic, str):
            found = self.topics.by_name.get(topic)
        else:
            found = self.topics.by_id.get(topic)
        return None if found is None else found.partitions.get(index)

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        return self.brokers.get(broker_id)

    def config(self, resource_type: int, name: str) -> Map[str, str]:
        """The overrides of a resource; empty where there are none."""
        return self.configs.get((resource_type, name), Map())

    def topic_config(self, name: str) -> Map[str, str]:
        """The overrides of a topic; empty where there are none."""
        return self.configs.get((TOPIC_RESOURCE, name), Map())

    def partitions_of_broker(self, broker_id: int) -> Iterator[tuple[TopicImage, int]]:
        """(topic, partition index) of every replica assigned to a broker, in a fixed order."""
        return self._in_order(self.topics.held_by(broker_id))

    def leaderless_partitions(self) -> Iterator[tuple[TopicImage, int]]:
        """(topic, partition index) of every partition without a leader, in a fixed order."""
        return self._in_order(self.topics.leaderless)

    def leader_count(self, broker_id: int) -> int:
        """How many partitions a broker leads."""
        return self.topics.leader_counts.get(broker_id, 0)

    def _in_order(self, held: PartitionSet) -> Iterator[tuple[TopicImage, int]]:
        for found in partitions_in_order(held):
            if found is not None:
                topic_id, index = found
                yield self.topics.by_id[topic_id], index


EMPTY = MetadataImage(
    topics=NO_TOPICS,
    brokers=Map(),
    controllers=Map(),
    features=Map(),
    configs=Map(),
    quotas=Map(),
    scram=Map(),
    acls=Map(),
    tokens=Map(),
    next_producer_id=None,
    zk_migration_state=None,
    kraft_version=None,
    voters=None,
    last_offset=-1,
    last_epoch=-1,
    last_timestamp_ms=-1,
)
