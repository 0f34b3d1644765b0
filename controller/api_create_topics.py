"""CreateTopics 2-7: names, collisions, placement or manual assignment, configs.

The checks are Kafka's, in its order. Each topic fails or succeeds by itself;
the records of all that succeed are one atomic batch. From version 5 on the answer tells the
topic's effective configs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from controller.api import ControllerApi, answer, duplicates, part
from controller.assignment import automatic, new_partition_record, replicas_of_manual
from controller.configs import new_topic_configs
from controller.context import AtomicOperation, Context, Making, Steps
from controller.events import ApiRequest
from metadata.configs import validate_topic_configs
from metadata.image import TOPIC_RESOURCE, MetadataImage
from metadata.records import ConfigRecord, TopicRecord
from metadata.topic_names import (
    METADATA_TOPIC,
    check_topic_name,
    collision_key,
    has_collision_chars,
    names_with_key,
)
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from wire.reader import MAX_NAMED

_CONFIGS_VERSION = 5  # the answer tells configs, partition count and replication factor


@dataclass(frozen=True, slots=True)
class _NewTopic:
    id: UUID
    configs: dict[str, str]
    replicas: Iterable[tuple[int, ...]]
    partitions: int
    replication_factor: int

    @property
    def record_count(self) -> int:
        return 1 + len(self.configs) + self.partitions


def _handle(context: Context, request: ApiRequest) -> AtomicOperation:
    return AtomicOperation(
        lambda: _make(context, request), validate_only=request.entity.validate_only
    )


def _make(context: Context, request: ApiRequest) -> Making:
    entity = request.entity
    repeated = duplicates(str(t.name) for t in entity.topics)
    taken = _colliding_names(context.image, [str(t.name) for t in entity.topics])
    room = context.config.max_records_per_batch
    results: dict[str, Any] = {}
    for topic in entity.topics:
        name = str(topic.name)
        if name in results:
            continue
        yield None
        try:
            if name in repeated:
                raise KafkaError(
                    ErrorCode.invalid_request, f"Topic {name!r} is named more than once"
                )
            _check_name(context.image, name, taken)
            new = yield from _new_topic(context, topic, room)
        except KafkaError as error:
            results[name] = _failed(request, name, error.code, error.message)
            continue
        yield from _records(context, name, new)
        room -= new.record_count
        if has_collision_chars(name):
            taken[collision_key(name)] = name
        results[name] = _created(context, request, name, new)
    return answer(request, topics=tuple(results.values()))


def _colliding_names(image: MetadataImage, names: list[str]) -> dict[str, str]:
    """Collision key -> existing topic, for those that the new names could collide with."""
    existing = image.topics_by_name
    keys = dict.fromkeys(collision_key(name) for name in names if has_collision_chars(name))
    if sum(2 ** key.count("_") for key in keys) <= len(existing):
        spellings = (name for key in keys for name in names_with_key(key))
        others = sorted(name for name in spellings if name in existing)
    else:
        others = sorted(name for name in existing if collision_key(name) in keys)
    taken: dict[str, str] = {}
    for name in others:
        taken.setdefault(collision_key(name), name)
    return taken


def _check_name(image: MetadataImage, name: str, taken: dict[str, str]) -> None:
    if name == METADATA_TOPIC:
        raise KafkaError(
            ErrorCode.invalid_request, f"Topic {name!r} is the cluster's own and can't be created"
        )
    check_topic_name(name)
    if image.topic(name) is not None:
        raise KafkaError(ErrorCode.topic_already_exists, f"Topic {name!r} already exists")
    other = taken.get(collision_key(name)) if has_collision_chars(name) else None
    if other is not None:
        raise KafkaError(
            ErrorCode.invalid_topic_exception,
            f"Topic {name!r} collides with existing topic {other!r}: "
            "'.' and '_' count as the same character in metric names",
        )


def _new_topic(context: Context, topic: Any, room: int) -> Generator[None, None, _NewTopic]:
    """What to create; `room` is how many more records the batch can take."""
    configs = _configs(topic)
    validate_topic_configs(configs)
    replicas: Iterable[tuple[int, ...]]
    if topic.assignments:
        replicas = given = yield from _manual(context, topic)
        count, factor = len(given), len(given[0])
    else:
        count, factor = _count_and_factor(context, topic, room - 1 - len(configs))
        replicas = automatic(context, count, factor)
    if 1 + len(configs) + count > room:
        raise _too_many(context, count)
    return _NewTopic(context.new_uuid(), configs, replicas, count, factor)


def _configs(topic: Any) -> dict[str, str]:
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise KafkaError(
                ErrorCode.invalid_config, f"Config {config.name!r} has no value: one is needed"
            )
        if config.name in configs:
            raise KafkaError(
                ErrorCode.invalid_config, f"Config {config.name!r} is given more than once"
            )
        configs[config.name] = config.value
    return configs


def _count_and_factor(context: Context, topic: Any, room: int) -> tuple[int, int]:
    """Of partitions to place and of their replicas, as asked for or by default."""
    factor, count = int(topic.replication_factor), int(topic.num_partitions)
    if factor == 0 or factor < -1:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"Replication factor {factor} is invalid: it must be at least 1, or -1 for the "
            f"default ({context.config.default_replication_factor})",
        )
    if count == 0 or count < -1:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"Number of partitions {count} is invalid: it must be at least 1, or -1 for the "
            f"default ({context.config.num_partitions})",
        )
    if factor == -1:
        factor = context.config.default_replication_factor
    if count == -1:
        count = context.config.num_partitions
    if count > room:
        raise _too_many(context, count)
    return count, factor


def _too_many(context: Context, count: int) -> KafkaError:
    return KafkaError(
        ErrorCode.policy_violation,
        f"Number of partitions {count} is too large for one request: all its topics, configs "
        f"and partitions together may be at most {context.config.max_records_per_batch}",
    )


def _manual(context: Context, topic: Any) -> Generator[None, None, list[tuple[int, ...]]]:
    for field in ("replication_factor", "num_partitions"):
        if getattr(topic, field) != -1:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"A manual assignment is given, so {field} must be -1, "
                f"it is {getattr(topic, field)}",
            )
    by_index: dict[int, tuple[int, ...]] = {}
    factor: int | None = None
    for assignment in topic.assignments:
        yield
        index = int(assignment.partition_index)
        if index in by_index:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment, f"Partition {index} is assigned twice"
            )
        replicas = replicas_of_manual(context, assignment.broker_ids, index, factor)
        factor = len(replicas)
        by_index[index] = replicas
    if sorted(by_index) != list(range(len(by_index))):
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"Partitions {sorted(by_index)[:20]} are assigned: "
            f"they must be 0 to {len(by_index) - 1} without a gap",
        )
    return [by_index[index] for index in range(len(by_index))]


def _records(context: Context, name: str, new: _NewTopic) -> Steps:
    yield TopicRecord(name=name, topic_id=new.id)
    for key, value in sorted(new.configs.items()):
        yield ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=key, value=value)
    for index, replicas in enumerate(new.replicas):
        yield new_partition_record(context, new.id, index, replicas)


def _created(context: Context, request: ApiRequest, name: str, new: _NewTopic) -> Any:
    configs: tuple[Any, ...] = ()
    if request.api_version >= _CONFIGS_VERSION:
        configs = tuple(
            part(
                request,
                "CreatableTopicConfigs",
                name=entry.name,
                value=None if entry.sensitive else entry.value,
                read_only=False,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in new_topic_configs(context.image, context.config, name, new.configs)
        )
    return part(
        request,
        "CreatableTopicResult",
        name=name,
        topic_id=new.id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=new.partitions,
        replication_factor=new.replication_factor,
        configs=configs,
    )


def _failed(request: ApiRequest, name: str, code: ErrorCode, message: str) -> Any:
    return part(
        request,
        "CreatableTopicResult",
        name=name,
        topic_id=None,
        error_code=code,
        error_message=message,
        configs=(),
    )


def _refuse(request: ApiRequest, code: ErrorCode, message: str) -> Any:
    names = dict.fromkeys(str(t.name) for t in request.entity.topics)
    return answer(request, topics=tuple(_failed(request, name, code, message) for name in names))


API = ControllerApi(ApiKey.CREATE_TOPICS, 2, 7, _handle, _refuse, max_elements=MAX_NAMED)
