"""Random metadata records and histories, each from a `random.Random`, for several test kinds."""

from __future__ import annotations

import random
import struct
from typing import Any
from uuid import UUID

from metadata.image import EMPTY, MetadataImage
from metadata.records import Record
from metadata.records import types as t
from metadata.records.schema import Entity, FieldSchema, schema_of

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TEXTS = ("", "a", "PLAINTEXT", "ünïcode-名前", "x" * 130, "User:alice")


def uuid_of(rng: random.Random) -> UUID:
    """Mostly random, sometimes one of the reserved ones."""
    return UUID(int=rng.choice((0, 1, 2, rng.getrandbits(128), rng.getrandbits(128))))


def _scalar(kind: str, rng: random.Random) -> Any:
    if kind in _BITS:
        bits = _BITS[kind]
        return rng.choice((0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), rng.randrange(100)))
    if kind == "uint16":
        return rng.choice((0, 9092, 65535))
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return struct.unpack(">d", struct.pack(">d", rng.uniform(-1e9, 1e9)))[0]
    if kind == "uuid":
        return uuid_of(rng)
    if kind == "string":
        return rng.choice(_TEXTS)
    assert kind == "bytes", kind
    return rng.randbytes(rng.choice((0, 1, 16, 200)))


def _value(schema: FieldSchema, version: int, rng: random.Random) -> Any:
    if schema.nullable and rng.random() < 0.3:
        return None
    if not schema.is_array:
        return _scalar(schema.kafka_type, rng)
    count = rng.choice((0, 1, 3, 3, 150))
    if schema.nested is not None:
        return tuple(random_entity(schema.nested, version, rng) for _ in range(min(count, 4)))
    return tuple(_scalar(schema.kafka_type, rng) for _ in range(count))


def random_entity(cls: type[Entity], version: int, rng: random.Random) -> Any:
    """An entity with random values in the fields that the version has."""
    values = {}
    for schema in schema_of(cls):
        if schema.since <= version and not (schema.tag is not None and rng.random() < 0.3):
            values[schema.name] = _value(schema, version, rng)
    return cls(**values)


BROKERS = (1, 2, 3, 4)


def _endpoints(rng: random.Random) -> tuple[t.Endpoint, ...]:
    names = rng.sample(["PLAINTEXT", "INTERNAL", "EXTERNAL"], rng.randrange(1, 4))
    return tuple(t.Endpoint(name=n, host=f"host-{n}", port=rng.randrange(1, 60000)) for n in names)


def _features(rng: random.Random) -> tuple[t.Feature, ...]:
    found = [t.Feature(name="metadata.version", min_supported_version=7, max_supported_version=29)]
    if rng.random() < 0.5:
        extra = t.Feature(name="group.version", min_supported_version=0, max_supported_version=1)
        found.append(extra)
    return tuple(found)


def _some(rng: random.Random, low: int = 0) -> tuple[int, ...]:
    return tuple(rng.sample(BROKERS, rng.randrange(low, len(BROKERS) + 1)))


def _directories(rng: random.Random, replicas: tuple[int, ...]) -> tuple[UUID, ...]:
    return tuple(UUID(int=rng.choice((0, 1, 1000 + broker))) for broker in replicas)


class History:
    """Makes records that a controller could have written, one after the other."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.image: MetadataImage = EMPTY
        self.offset = 0

    def take(self, count: int) -> list[Record]:
        """The next records; the first ever sets metadata.version 25."""
        found: list[Record] = []
        if self.offset == 0:
            found.append(t.FeatureLevelRecord(name="metadata.version", feature_level=25))
        while len(found) < count:
            maker = self.rng.choices(_MAKERS, _WEIGHTS)[0]
            made = maker(self)
            if made is not None:
                found.append(made)
                self.image = self.image.apply(made)
            self.offset += 1
        self.offset += 1
        return found

    def _topic(self) -> Any:
        names = sorted(self.image.topics_by_name)
        return self.image.topic(self.rng.choice(names)) if names else None

    def _partition(self) -> Any:
        topic = self._topic()
        if topic is None or not topic.partitions:
            return None
        return topic, self.rng.choice(sorted(topic.partitions))

    def register_broker(self) -> Record:
        rng = self.rng
        return t.RegisterBrokerRecord(
            broker_id=rng.choice(BROKERS),
            incarnation_id=UUID(int=rng.getrandbits(128)),
            broker_epoch=1000 + self.offset,
            end_points=_endpoints(rng),
            features=_features(rng),
            rack=rng.choice((None, "a", "b")),
            fenced=rng.random() < 0.7,
            in_controlled_shutdown=rng.random() < 0.1,
            log_dirs=tuple(UUID(int=1000 + n) for n in rng.sample(range(5), rng.randrange(3))),
        )

    def _some_broker(self) -> Any:
        known = sorted(self.image.brokers)
        return self.image.brokers[self.rng.choice(known)] if known else None

    def change_broker(self) -> Record | None:
        broker = self._some_broker()
        if broker is None:
            return None
        dirs = tuple(UUID(int=1000 + n) for n in self.rng.sample(range(5), self.rng.randrange(3)))
        return t.BrokerRegistrationChangeRecord(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            fenced=self.rng.choice((-1, 0, 1)),
            in_controlled_shutdown=self.rng.choice((0, 0, 1)),
            log_dirs=dirs,
        )

    def fence_broker(self) -> Record | None:
        broker = self._some_broker()
        if broker is None:
            return None
        kind = self.rng.choice((t.FenceBrokerRecord, t.UnfenceBrokerRecord))
        return kind(id=broker.id, epoch=broker.epoch)

    def unregister_broker(self) -> Record | None:
        broker = self._some_broker()
        if broker is None:
            return None
        return t.UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)

    def register_controller(self) -> Record:
        return t.RegisterControllerRecord(
            controller_id=self.rng.randrange(3000, 3003),
            incarnation_id=UUID(int=self.rng.getrandbits(128)),
            zk_migration_ready=self.rng.random() < 0.5,
            end_points=_endpoints(self.rng),
            features=_features(self.rng),
        )

    def topic(self) -> Record | None:
        name = f"topic-{self.rng.randrange(12)}"
        if name in self.image.topics_by_name:
            return None
        return t.TopicRecord(name=name, topic_id=UUID(int=self.rng.getrandbits(128)))

    def partition(self) -> Record | None:
        topic = self._topic()
        if topic is None or len(topic.partitions) > 5:
            return None
        replicas = _some(self.rng, 1)
        return t.PartitionRecord(
            partition_id=len(topic.partitions),
            topic_id=topic.id,
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=_directories(self.rng, replicas),
        )

    def change_partition(self) -> Record | None:
        found = self._partition()
        if found is None:
            return None
        rng = self.rng
        topic, index = found
        before = topic.partitions[index]
        values: dict[str, Any] = {}
        if rng.random() < 0.3:
            replicas = _some(rng, 1)
            values |= {"replicas": replicas, "directories": _directories(rng, replicas)}
            values["adding_replicas"] = _some(rng)
            values["removing_replicas"] = _some(rng)
        after = values.get("replicas", before.replicas)
        if rng.random() < 0.7:
            values["isr"] = tuple(rng.sample(after, rng.randrange(len(after) + 1)))
        if rng.random() < 0.6:
            values["leader"] = rng.choice((-1, *after))
        if rng.random() < 0.2:
            values["leader_recovery_state"] = rng.choice((0, 1))
        if rng.random() < 0.3:
            values["eligible_leader_replicas"] = _some(rng)
            values["last_known_elr"] = _some(rng)
        return t.PartitionChangeRecord(partition_id=index, topic_id=topic.id, **values)

    def remove_topic(self) -> Record | None:
        topic = self._topic()
        return None if topic is None else t.RemoveTopicRecord(topic_id=topic.id)

    def clear_elr(self) -> Record | None:
        topic = self._topic()
        if topic is None:
            return None
        return t.ClearElrRecord(topic_name=self.rng.choice(("", topic.name)))

    def config(self) -> Record | None:
        kind, name = self.rng.choice(((2, None), (4, ""), (4, "1"), (16, "sub"), (32, "group")))
        if name is None:
            topic = self._topic()
            if topic is None:
                return None
            name = topic.name
        key = self.rng.choice(("retention.ms", "segment.bytes", "min.insync.replicas"))
        known = key in self.image.config(kind, name)
        value = None if known and self.rng.random() < 0.4 else str(self.rng.randrange(1, 9))
        return t.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)

    def quota(self) -> Record:
        parts = self.rng.choice(((("user", "u"),), (("client-id", None), ("user", "u"))))
        entity = tuple(t.QuotaEntity(entity_type=kind, entity_name=name) for kind, name in parts)
        held = self.image.quotas.get(parts)
        key = self.rng.choice(("producer_byte_rate", "request_percentage"))
        return t.ClientQuotaRecord(
            entity=entity,
            key=key,
            value=float(self.rng.randrange(1, 10**6)),
            remove=held is not None and key in held and self.rng.random() < 0.5,
        )

    def producer_ids(self) -> Record:
        return t.ProducerIdsRecord(
            broker_id=1, broker_epoch=1, next_producer_id=(self.image.next_producer_id or 0) + 1000
        )

    def acl(self) -> Record:
        known = sorted(self.image.acls)
        if known and self.rng.random() < 0.4:
            return t.RemoveAccessControlEntryRecord(id=self.rng.choice(known))
        return t.AccessControlEntryRecord(
            id=UUID(int=self.rng.getrandbits(128)),
            resource_type=2,
            resource_name="topic",
            pattern_type=self.rng.choice((3, 4)),
            principal="User:alice",
            host="*",
            operation=self.rng.choice((3, 4)),
            permission_type=self.rng.choice((2, 3)),
        )

    def scram(self) -> Record:
        known = sorted(self.image.scram)
        if known and self.rng.random() < 0.4:
            name, mechanism = self.rng.choice(known)
            return t.RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)
        return t.UserScramCredentialRecord(
            name=self.rng.choice(("alice", "bob")),
            mechanism=self.rng.choice((1, 2)),
            salt=self.rng.randbytes(8),
            stored_key=self.rng.randbytes(16),
            server_key=self.rng.randbytes(16),
            iterations=4096,
        )

    def token(self) -> Record:
        known = sorted(self.image.tokens)
        if known and self.rng.random() < 0.4:
            return t.RemoveDelegationTokenRecord(token_id=self.rng.choice(known))
        return t.DelegationTokenRecord(
            owner="User:alice",
            requester="User:bob",
            renewers=("User:carol",),
            issue_timestamp=1000,
            max_timestamp=3000,
            expiration_timestamp=2000,
            token_id=f"token-{self.rng.randrange(5)}",
        )

    def feature(self) -> Record:
        return t.FeatureLevelRecord(name="group.version", feature_level=self.rng.choice((0, 1)))

    def no_op(self) -> Record:
        return t.NoOpRecord()


_MAKERS = (
    History.register_broker,
    History.change_broker,
    History.fence_broker,
    History.unregister_broker,
    History.register_controller,
    History.topic,
    History.partition,
    History.change_partition,
    History.remove_topic,
    History.clear_elr,
    History.config,
    History.quota,
    History.producer_ids,
    History.acl,
    History.scram,
    History.token,
    History.feature,
    History.no_op,
)
_WEIGHTS = (3, 3, 1, 1, 1, 4, 10, 14, 1, 1, 6, 3, 1, 3, 3, 2, 1, 1)
