"""The metadata records of KIP-631 and what later KIPs added, as of Kafka 4.4.

One class per record type, with the fields of its newest version; a field that a version lacks
has its default there. Field meanings are Kafka's; `Leader` in a change record is -2 for
"unchanged" and -1 for "none" (kept as Kafka's numbers, since they are on the wire).
"""

# Annotations must stay real objects here: the reader looks at them. `kafka` declares a field,
# as dataclasses.field does.
# ruff: noqa: RUF009
from dataclasses import dataclass
from uuid import UUID

from metadata.records.schema import ZERO_UUID, Entity, Record, kafka, record

NO_LEADER = -1
NO_LEADER_CHANGE = -2
RECOVERY_RECOVERED = 0
RECOVERY_RECOVERING = 1
RECOVERY_UNCHANGED = -1
FENCE_UNCHANGED = 0
FENCE = 1
UNFENCE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Entity):
    """A listener of a broker or controller. `security_protocol`: 0 PLAINTEXT, 1 SSL,
    2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str = kafka("string")
    host: str = kafka("string")
    port: int = kafka("uint16")
    security_protocol: int = kafka("int16", default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature(Entity):
    """The levels of one feature that a node supports."""

    name: str = kafka("string")
    min_supported_version: int = kafka("int16")
    max_supported_version: int = kafka("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntity(Entity):
    """One part of a quota's entity; `entity_name` None is the default entity."""

    entity_type: str = kafka("string")
    entity_name: str | None = kafka("string", nullable=True)


@record(0, max_version=4)
@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecord(Record):
    """A broker came with a new incarnation; it is fenced until a change record says otherwise."""

    broker_id: int = kafka("int32")
    is_migrating_zk_broker: bool = kafka("bool", default=False, since=2)
    incarnation_id: UUID = kafka("uuid", default=ZERO_UUID)
    broker_epoch: int = kafka("int64")
    end_points: tuple[Endpoint, ...] = kafka(default=())
    features: tuple[Feature, ...] = kafka(default=())
    rack: str | None = kafka("string", default=None, nullable=True)
    fenced: bool = kafka("bool", default=True)
    in_controlled_shutdown: bool = kafka("bool", default=False, since=1)
    log_dirs: tuple[UUID, ...] = kafka("uuid", default=(), since=3, tag=0)
    cordoned_log_dirs: tuple[UUID, ...] | None = kafka(
        "uuid", default=None, since=4, tag=1, nullable=True
    )


@record(1, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRecord(Record):
    broker_id: int = kafka("int32")
    broker_epoch: int = kafka("int64")


@record(2, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord(Record):
    name: str = kafka("string")
    topic_id: UUID = kafka("uuid")


@record(3, max_version=2)
@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord(Record):
    """A partition in full; in the log it appears when the partition is created."""

    partition_id: int = kafka("int32", default=-1)
    topic_id: UUID = kafka("uuid", default=ZERO_UUID)
    replicas: tuple[int, ...] = kafka("int32", default=())
    isr: tuple[int, ...] = kafka("int32", default=())
    removing_replicas: tuple[int, ...] = kafka("int32", default=())
    adding_replicas: tuple[int, ...] = kafka("int32", default=())
    leader: int = kafka("int32", default=NO_LEADER)
    leader_recovery_state: int = kafka("int8", default=RECOVERY_RECOVERED, tag=0)
    leader_epoch: int = kafka("int32", default=-1)
    partition_epoch: int = kafka("int32", default=-1)
    directories: tuple[UUID, ...] = kafka("uuid", default=(), since=1)
    eligible_leader_replicas: tuple[int, ...] | None = kafka(
        "int32", default=None, since=2, tag=1, nullable=True
    )
    last_known_elr: tuple[int, ...] | None = kafka(
        "int32", default=None, since=2, tag=2, nullable=True
    )


@record(4, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord(Record):
    """One key of a resource; `value` None removes the key."""

    resource_type: int = kafka("int8")
    resource_name: str = kafka("string")
    name: str = kafka("string")
    value: str | None = kafka("string", nullable=True)


@record(5, max_version=2)
@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord(Record):
    """What changes in a partition; None (or -2 for `leader`, -1 for the recovery state) is
    "unchanged". Any other `leader` raises the leader epoch, the record always the partition
    epoch."""

    partition_id: int = kafka("int32", default=-1)
    topic_id: UUID = kafka("uuid", default=ZERO_UUID)
    isr: tuple[int, ...] | None = kafka("int32", default=None, tag=0, nullable=True)
    leader: int = kafka("int32", default=NO_LEADER_CHANGE, tag=1)
    replicas: tuple[int, ...] | None = kafka("int32", default=None, tag=2, nullable=True)
    removing_replicas: tuple[int, ...] | None = kafka("int32", default=None, tag=3, nullable=True)
    adding_replicas: tuple[int, ...] | None = kafka("int32", default=None, tag=4, nullable=True)
    leader_recovery_state: int = kafka("int8", default=RECOVERY_UNCHANGED, tag=5)
    directories: tuple[UUID, ...] | None = kafka(
        "uuid", default=None, since=1, tag=8, nullable=True
    )
    eligible_leader_replicas: tuple[int, ...] | None = kafka(
        "int32", default=None, since=2, tag=6, nullable=True
    )
    last_known_elr: tuple[int, ...] | None = kafka(
        "int32", default=None, since=2, tag=7, nullable=True
    )


@record(7, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class FenceBrokerRecord(Record):
    """Written below metadata.version 6 in place of BrokerRegistrationChangeRecord."""

    id: int = kafka("int32")
    epoch: int = kafka("int64")


@record(8, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class UnfenceBrokerRecord(Record):
    """Written below metadata.version 6 in place of BrokerRegistrationChangeRecord."""

    id: int = kafka("int32")
    epoch: int = kafka("int64")


@record(9, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord(Record):
    """Removes the topic, its partitions and its configs."""

    topic_id: UUID = kafka("uuid")


@record(10, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenRecord(Record):
    """Principals are in `type:name` form, times in milliseconds since 1970."""

    owner: str = kafka("string")
    requester: str = kafka("string")
    renewers: tuple[str, ...] = kafka("string", default=())
    issue_timestamp: int = kafka("int64")
    max_timestamp: int = kafka("int64")
    expiration_timestamp: int = kafka("int64")
    token_id: str = kafka("string")


@record(11, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredentialRecord(Record):
    """`mechanism`: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    name: str = kafka("string")
    mechanism: int = kafka("int8")
    salt: bytes = kafka("bytes")
    stored_key: bytes = kafka("bytes")
    server_key: bytes = kafka("bytes")
    iterations: int = kafka("int32")


@record(12, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecord(Record):
    """Finalises a feature's level; level 0 removes the feature."""

    name: str = kafka("string")
    feature_level: int = kafka("int16")


@record(14, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotaRecord(Record):
    entity: tuple[QuotaEntity, ...] = kafka(default=())
    key: str = kafka("string")
    value: float = kafka("float64")
    remove: bool = kafka("bool")


@record(15, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord(Record):
    """`next_producer_id` is the first id after the block given to that broker."""

    broker_id: int = kafka("int32")
    broker_epoch: int = kafka("int64", default=-1)
    next_producer_id: int = kafka("int64")


@record(17, max_version=3)
@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecord(Record):
    """`fenced`: 1 fences, -1 unfences, 0 leaves it; `in_controlled_shutdown`: 1 enters it, 0
    leaves it; empty `log_dirs` and None `cordoned_log_dirs` leave those."""

    broker_id: int = kafka("int32")
    broker_epoch: int = kafka("int64")
    fenced: int = kafka("int8", default=0, tag=0)
    in_controlled_shutdown: int = kafka("int8", default=0, since=1, tag=1)
    log_dirs: tuple[UUID, ...] = kafka("uuid", default=(), since=2, tag=2)
    cordoned_log_dirs: tuple[UUID, ...] | None = kafka(
        "uuid", default=None, since=3, tag=3, nullable=True
    )


@record(18, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControlEntryRecord(Record):
    id: UUID = kafka("uuid")
    resource_type: int = kafka("int8")
    resource_name: str = kafka("string")
    pattern_type: int = kafka("int8")
    principal: str = kafka("string")
    host: str = kafka("string")
    operation: int = kafka("int8")
    permission_type: int = kafka("int8")


@record(19, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAccessControlEntryRecord(Record):
    id: UUID = kafka("uuid")


@record(20, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class NoOpRecord(Record):
    """Shows that the controller is alive while nothing happens."""


@record(21, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class ZkMigrationStateRecord(Record):
    """`zk_migration_state`: 0 none, 1 pre-migration, 2 migration, 3 post-migration."""

    zk_migration_state: int = kafka("int8")


@record(22, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveUserScramCredentialRecord(Record):
    name: str = kafka("string")
    mechanism: int = kafka("int8")


@record(23, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTransactionRecord(Record):
    """Starts a metadata transaction: nothing after it counts until its end record."""

    name: str | None = kafka("string", default=None, tag=0, nullable=True)


@record(24, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRecord(Record):
    """Commits the open metadata transaction."""


@record(25, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTransactionRecord(Record):
    """Drops everything since the begin record."""

    reason: str | None = kafka("string", default=None, tag=0, nullable=True)


@record(26, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDelegationTokenRecord(Record):
    token_id: str = kafka("string")


@record(27, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerRecord(Record):
    controller_id: int = kafka("int32")
    incarnation_id: UUID = kafka("uuid", default=ZERO_UUID)
    zk_migration_ready: bool = kafka("bool", default=False)
    end_points: tuple[Endpoint, ...] = kafka(default=())
    features: tuple[Feature, ...] = kafka(default=())


@record(28, max_version=0)
@dataclass(frozen=True, slots=True, kw_only=True)
class ClearElrRecord(Record):
    """Empties the eligible leader replicas of one topic, or of all with an empty name."""

    topic_name: str = kafka("string")


RECORD_TYPES: tuple[type[Record], ...] = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    TopicRecord,
    PartitionRecord,
    ConfigRecord,
    PartitionChangeRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    RemoveTopicRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
    FeatureLevelRecord,
    ClientQuotaRecord,
    ProducerIdsRecord,
    BrokerRegistrationChangeRecord,
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    NoOpRecord,
    ZkMigrationStateRecord,
    RemoveUserScramCredentialRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
    RemoveDelegationTokenRecord,
    RegisterControllerRecord,
    ClearElrRecord,
)
