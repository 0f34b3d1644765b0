"""STATE: the fixed JSON of an image that `audit state` prints, and its digest.

The form is a contract (nothing may be added to it); digests of it are compared between nodes,
between replays and snapshots, and with recorded ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from metadata.image import MetadataImage, PartitionRegistration, QuotaKey, ScramCredential
from metadata.records import Endpoint, Feature, Record, to_json
from metadata.registrations import BrokerRegistration, ControllerRegistration, TopicImage
from wire.uuids import to_text


def _endpoints(endpoints: Iterable[Endpoint]) -> list[list[Any]]:
    return sorted([e.name, e.host, e.port, e.security_protocol] for e in endpoints)


def _features(features: Iterable[Feature]) -> dict[str, list[int]]:
    return {f.name: [f.min_supported_version, f.max_supported_version] for f in features}


def _uuids(ids: Iterable[UUID]) -> list[str]:
    return [to_text(one) for one in ids]


def _broker(broker: BrokerRegistration) -> dict[str, Any]:
    return {
        "epoch": broker.epoch,
        "incarnation": to_text(broker.incarnation_id),
        "rack": broker.rack,
        "fenced": broker.fenced,
        "inControlledShutdown": broker.in_controlled_shutdown,
        "migratingZk": broker.is_migrating_zk_broker,
        "endpoints": _endpoints(broker.endpoints),
        "features": _features(broker.features),
        "logDirs": sorted(_uuids(broker.log_dirs)),
    }


def _controller(controller: ControllerRegistration) -> dict[str, Any]:
    return {
        "incarnation": to_text(controller.incarnation_id),
        "zkMigrationReady": controller.zk_migration_ready,
        "endpoints": _endpoints(controller.endpoints),
        "features": _features(controller.features),
    }


def partition_json(partition: PartitionRegistration) -> dict[str, Any]:
    """One partition as STATE has it."""
    return {
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "removing": list(partition.removing),
        "adding": list(partition.adding),
        "elr": list(partition.elr),
        "lastKnownElr": list(partition.last_known_elr),
        "leader": partition.leader,
        "leaderEpoch": partition.leader_epoch,
        "partitionEpoch": partition.partition_epoch,
        "recovery": partition.leader_recovery_state,
        "directories": _uuids(partition.directories),
    }


def topic_json(topic: TopicImage) -> dict[str, Any]:
    """One topic as STATE has it (and as `topics describe --json` prints it)."""
    return {
        "id": to_text(topic.id),
        "partitions": {
            str(index): partition_json(topic.partitions[index])
            for index in sorted(topic.partitions)
        },
    }


def quota_text(key: QuotaKey) -> str:
    """The JSON text of a quota's entity: a sorted list of [type, name]."""
    return json.dumps([list(part) for part in key])


def _secret(value: bytes) -> str:
    return "secret:" + hashlib.sha256(value).hexdigest()[:12]


def _scram(credential: ScramCredential) -> list[Any]:
    return [
        _secret(credential.salt),
        _secret(credential.stored_key),
        _secret(credential.server_key),
        credential.iterations,
    ]


def _without(record: Record, name: str) -> dict[str, Any]:
    found = to_json(record)
    del found[name]
    return found


def state_json(image: MetadataImage) -> dict[str, Any]:
    """The image as STATE; its key order is fixed too, so that the text is the same each time."""
    return {
        "features": dict(sorted(image.features.items())),
        "brokers": {str(n): _broker(image.brokers[n]) for n in sorted(image.brokers)},
        "controllers": {
            str(n): _controller(image.controllers[n]) for n in sorted(image.controllers)
        },
        "topics": {
            name: topic_json(image.topics_by_name[name]) for name in sorted(image.topics_by_name)
        },
        "configs": {
            f"{kind}:{name}": dict(sorted(image.configs[kind, name].items()))
            for kind, name in sorted(image.configs)
        },
        "quotas": {
            text: dict(sorted(values.items()))
            for text, values in sorted((quota_text(k), v) for k, v in image.quotas.items())
        },
        "scram": {
            f"{user}/{mechanism}": _scram(image.scram[user, mechanism])
            for user, mechanism in sorted(image.scram)
        },
        "acls": {to_text(n): _without(image.acls[n], "Id") for n in sorted(image.acls)},
        "tokens": {n: _without(image.tokens[n], "TokenId") for n in sorted(image.tokens)},
        "nextProducerId": image.next_producer_id,
        "zkMigrationState": image.zk_migration_state,
        "kraftVersion": image.kraft_version,
        "voters": None
        if image.voters is None
        else [[voter, to_text(directory)] for voter, directory in sorted(image.voters)],
    }


def digest(state: dict[str, Any]) -> str:
    """SHA-256 in hex of STATE as JSON with sorted keys, no spaces, non-ASCII escaped."""
    text = json.dumps(state, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
