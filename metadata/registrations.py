"""What the image holds per broker, controller, topic and partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from metadata.maps import Map
from metadata.records.types import Endpoint, Feature

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
GROUP_RESOURCE = 32

QuotaKey = tuple[tuple[str, str | None], ...]
"""A quota's entity: its (type, name) parts sorted by type; name None is the default entity."""


class ScramCredential(NamedTuple):
    """What is stored of a user's password for one SCRAM mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class PartitionRegistration(NamedTuple):
    """The state of one partition. `directories` has one id per replica, or is empty where the
    log says nothing about directories (or only zeros, which mean the same)."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[UUID, ...] = ()
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = 0

    @property
    def reassigning(self) -> bool:
        return bool(self.removing or self.adding)

    @property
    def preferred_leader(self) -> int:
        """The first replica, or -1 where there is none."""
        return self.replicas[0] if self.replicas else -1

    def directory_of(self, broker_id: int) -> UUID | None:
        """The directory id of a broker's replica; None if unknown or not a replica."""
        if broker_id not in self.replicas or len(self.directories) != len(self.replicas):
            return None
        return self.directories[self.replicas.index(broker_id)]


class TopicImage(NamedTuple):
    """A topic and its partitions by index."""

    id: UUID
    name: str
    partitions: Map[int, PartitionRegistration]


def _find_endpoint(endpoints: tuple[Endpoint, ...], listener: str) -> Endpoint | None:
    for endpoint in endpoints:
        if endpoint.name == listener:
            return endpoint
    return None


def _find_range(features: tuple[Feature, ...], name: str) -> tuple[int, int] | None:
    for feature in features:
        if feature.name == name:
            return feature.min_supported_version, feature.max_supported_version
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """A registered broker; `epoch` is its broker epoch, by which stale requests are refused."""

    id: int
    epoch: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[Feature, ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    is_migrating_zk_broker: bool = False
    log_dirs: tuple[UUID, ...] = ()
    cordoned_log_dirs: tuple[UUID, ...] = ()

    @property
    def active(self) -> bool:
        """Neither fenced nor shutting down: may lead and join an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of a listener name, or None."""
        return _find_endpoint(self.endpoints, listener)

    def supported(self, feature: str) -> tuple[int, int] | None:
        """(lowest, highest) supported level of a feature, or None where it names none."""
        return _find_range(self.features, feature)

    def has_online_dir(self, directory: UUID) -> bool:
        """Whether a replica in that directory is online here, as Kafka counts it: unassigned and
        migrating ids do, the lost one does not, and a broker that named no directories has all."""
        if not self.log_dirs or directory.int in (0, 1):
            return True
        return directory in self.log_dirs


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRegistration:
    """A registered controller."""

    id: int
    incarnation_id: UUID
    zk_migration_ready: bool = False
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[Feature, ...] = ()

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of a listener name, or None."""
        return _find_endpoint(self.endpoints, listener)

    def supported(self, feature: str) -> tuple[int, int] | None:
        """(lowest, highest) supported level of a feature, or None where it names none."""
        return _find_range(self.features, feature)
