"""Methods that change something: gRPC request to Kafka request, Kafka response to gRPC response.

Rules are the active controller's. Checked here is only what a Kafka request can't even hold;
an item that fails this is answered here and left out of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from admin.errors import message_of
from admin.ports import ControllerCall
from admin.stubs import admin_pb2 as pb
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from wire.messages import fill, millis
from wire.uuids import to_text

_INT16_MAX = 32767
_RESOURCE_TYPES = (2, 4, 16, 32)


def _duplicates(names: Iterable[str]) -> dict[str, None]:
    seen: dict[str, None] = {}
    twice: dict[str, None] = {}
    for name in names:
        (twice if name in seen else seen)[name] = None
    return twice


def _bad(code: ErrorCode, text: str) -> pb.KafkaError | None:
    return message_of(code, text)


def _check_unique(name: str, twice: dict[str, None]) -> pb.KafkaError | None:
    if name in twice:
        return _bad(ErrorCode.invalid_request, f"{name!r} is named twice in one request")
    return None


def _check_new_topic(topic: pb.NewTopic) -> pb.KafkaError | None:
    if topic.partitions < 0:
        return _bad(
            ErrorCode.invalid_partitions,
            f"{topic.partitions} partitions: at least 1, or 0 for the cluster's default",
        )
    if not 0 <= topic.replication_factor <= _INT16_MAX:
        return _bad(
            ErrorCode.invalid_replication_factor,
            f"replication factor {topic.replication_factor}: "
            f"1 to {_INT16_MAX}, or 0 for the cluster's default",
        )
    return None


def _merge(
    names: Sequence[str],
    refused: dict[str, pb.KafkaError],
    answered: dict[str, Any],
    result: Callable[..., Any],
) -> list[Any]:
    """One result an item, in the order of the request."""
    results = []
    for name in names:
        if name in refused:
            results.append(result(name=name, error=refused[name]))
        elif name in answered:
            results.append(result(**answered[name]))
        else:
            error = _bad(ErrorCode.unknown_server_error, f"{name!r}: the controller said nothing")
            results.append(result(name=name, error=error))
    return results


def _answers(items: Iterable[Any]) -> dict[str, Any]:
    """Response items by name, with Kafka's error as ours."""
    return {
        item.name: {
            "name": item.name,
            "error": message_of(item.error_code, getattr(item, "error_message", None)),
        }
        for item in items
    }


async def create_topics(
    call: ControllerCall, request: pb.CreateTopicsRequest, timeout_ms: int
) -> pb.CreateTopicsResponse:
    """Kafka's CreateTopics."""
    names = [topic.name for topic in request.topics]
    twice = _duplicates(names)
    refused: dict[str, pb.KafkaError] = {}
    for topic in request.topics:
        error = _check_unique(topic.name, twice) or _check_new_topic(topic)
        if error is not None:
            refused[topic.name] = error
    wanted = [topic for topic in request.topics if topic.name not in refused]

    def build(version: int, module: ModuleType) -> Any:
        return fill(
            module.CreateTopicsRequest,
            topics=tuple(_new_topic(module, topic) for topic in wanted),
            timeout=millis(timeout_ms),
            validate_only=request.validate_only,
        )

    answered: dict[str, Any] = {}
    if wanted:
        response = await call(ApiKey.CREATE_TOPICS, build, timeout_ms)
        answered = _answers(response.topics)
        for topic in response.topics:
            topic_id = getattr(topic, "topic_id", None)
            if topic.error_code == ErrorCode.none and topic_id is not None:
                answered[topic.name]["topic_id"] = to_text(topic_id)
    return pb.CreateTopicsResponse(results=_merge(names, refused, answered, pb.CreateTopicResult))


def _new_topic(module: ModuleType, topic: pb.NewTopic) -> Any:
    # Kafka's -1 is what an unset number means; with assignments both have to be -1.
    return fill(
        module.CreatableTopic,
        name=topic.name,
        num_partitions=topic.partitions or -1,
        replication_factor=topic.replication_factor or -1,
        assignments=tuple(
            fill(
                module.CreatableReplicaAssignment,
                partition_index=one.partition,
                broker_ids=tuple(one.replicas),
            )
            for one in topic.assignments
        ),
        configs=tuple(
            fill(module.CreatableTopicConfig, name=key, value=topic.configs[key])
            for key in sorted(topic.configs)
        ),
    )


async def delete_topics(
    call: ControllerCall, request: pb.DeleteTopicsRequest, timeout_ms: int
) -> pb.DeleteTopicsResponse:
    """Kafka's DeleteTopics, by name."""
    names = list(request.names)
    twice = _duplicates(names)
    refused = {name: error for name in names if (error := _check_unique(name, twice))}
    wanted = [name for name in names if name not in refused]

    def build(version: int, module: ModuleType) -> Any:
        if version >= 6:
            topics = tuple(
                fill(module.DeleteTopicState, name=name, topic_id=None) for name in wanted
            )
            return fill(module.DeleteTopicsRequest, topics=topics, timeout=millis(timeout_ms))
        return fill(
            module.DeleteTopicsRequest, topic_names=tuple(wanted), timeout=millis(timeout_ms)
        )

    answered: dict[str, Any] = {}
    if wanted:
        response = await call(ApiKey.DELETE_TOPICS, build, timeout_ms)
        answered = _answers(response.responses)
    return pb.DeleteTopicsResponse(results=_merge(names, refused, answered, pb.DeleteTopicResult))


async def create_partitions(
    call: ControllerCall, request: pb.CreatePartitionsRequest, timeout_ms: int
) -> pb.CreatePartitionsResponse:
    """Kafka's CreatePartitions."""
    names = [topic.name for topic in request.topics]
    twice = _duplicates(names)
    refused = {name: error for name in names if (error := _check_unique(name, twice))}
    wanted = [topic for topic in request.topics if topic.name not in refused]

    def build(version: int, module: ModuleType) -> Any:
        topics = tuple(
            fill(
                module.CreatePartitionsTopic,
                name=topic.name,
                count=topic.count,
                assignments=tuple(
                    fill(module.CreatePartitionsAssignment, broker_ids=tuple(one.replicas))
                    for one in topic.assignments
                )
                or None,
            )
            for topic in wanted
        )
        return fill(
            module.CreatePartitionsRequest,
            topics=topics,
            timeout=millis(timeout_ms),
            validate_only=request.validate_only,
        )

    answered: dict[str, Any] = {}
    if wanted:
        response = await call(ApiKey.CREATE_PARTITIONS, build, timeout_ms)
        answered = _answers(response.results)
    results = _merge(names, refused, answered, pb.CreatePartitionsResult)
    return pb.CreatePartitionsResponse(results=results)


def _check_alteration(
    resource: pb.ConfigAlteration, twice: dict[str, None]
) -> pb.KafkaError | None:
    if resource.type not in _RESOURCE_TYPES:
        return _bad(
            ErrorCode.invalid_request,
            f"config resource type {int(resource.type)}: "
            "2 (topic), 4 (broker), 16 (client metrics) or 32 (group)",
        )
    if f"{resource.type}:{resource.name}" in twice:
        return _bad(
            ErrorCode.invalid_request, f"resource {resource.name!r} is named twice in one request"
        )
    for config in resource.configs:
        if not 0 <= config.operation <= 3:
            return _bad(
                ErrorCode.invalid_request,
                f"{config.name}: operation {int(config.operation)}: "
                "0 (set), 1 (delete), 2 (append) or 3 (subtract)",
            )
    return None


async def alter_configs(
    call: ControllerCall, request: pb.AlterConfigsRequest, timeout_ms: int
) -> pb.AlterConfigsResponse:
    """Kafka's IncrementalAlterConfigs."""
    twice = _duplicates(f"{one.type}:{one.name}" for one in request.resources)
    checked = [(one, _check_alteration(one, twice)) for one in request.resources]
    wanted = [one for one, error in checked if error is None]

    def build(version: int, module: ModuleType) -> Any:
        resources = tuple(
            fill(
                module.AlterConfigsResource,
                resource_type=int(one.type),
                resource_name=one.name,
                configs=tuple(
                    fill(
                        module.AlterableConfig,
                        name=config.name,
                        config_operation=int(config.operation),
                        value=None if config.operation == 1 else config.value,
                    )
                    for config in one.configs
                ),
            )
            for one in wanted
        )
        return fill(
            module.IncrementalAlterConfigsRequest,
            resources=resources,
            validate_only=request.validate_only,
        )

    answered: dict[tuple[int, str], pb.KafkaError | None] = {}
    if wanted:
        response = await call(ApiKey.INCREMENTAL_ALTER_CONFIGS, build, timeout_ms)
        for item in response.responses:
            error = message_of(item.error_code, item.error_message)
            answered[item.resource_type, item.resource_name] = error
    silent = _bad(ErrorCode.unknown_server_error, "the controller said nothing about it")
    return pb.AlterConfigsResponse(
        results=[
            pb.AlterConfigsResult(
                type=one.type,
                name=one.name,
                error=answered.get((one.type, one.name), silent) if error is None else error,
            )
            for one, error in checked
        ]
    )


async def elect_leaders(
    call: ControllerCall, request: pb.ElectLeadersRequest, timeout_ms: int
) -> pb.ElectLeadersResponse:
    """Kafka's ElectLeaders; without topics, for all partitions."""
    if request.type not in (0, 1):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"election type {int(request.type)}: 0 (preferred) or 1 (unclean)",
        )
    for topic in request.topics:
        if not topic.partitions:
            raise KafkaError(ErrorCode.invalid_request, f"{topic.topic!r}: no partitions named")

    def build(version: int, module: ModuleType) -> Any:
        topics = tuple(
            fill(module.TopicPartitions, topic=one.topic, partitions=tuple(one.partitions))
            for one in request.topics
        )
        return fill(
            module.ElectLeadersRequest,
            election_type=int(request.type),
            topic_partitions=topics or None,
            timeout=millis(timeout_ms),
        )

    response = await call(ApiKey.ELECT_LEADERS, build, timeout_ms)
    code = getattr(response, "error_code", ErrorCode.none)
    if code != ErrorCode.none:
        raise KafkaError(code)
    results = [
        pb.ElectLeadersResult(
            topic=topic.topic,
            partition=one.partition_id,
            error=message_of(one.error_code, one.error_message),
        )
        for topic in response.replica_election_results
        for one in topic.partition_result
    ]
    return pb.ElectLeadersResponse(results=results)


def _upgrade_type(update: pb.FeatureUpdate) -> int:
    if update.allow_unsafe_downgrade:
        return 3
    return 2 if update.allow_downgrade else 1


async def update_features(
    call: ControllerCall, request: pb.UpdateFeaturesRequest, timeout_ms: int
) -> pb.UpdateFeaturesResponse:
    """Kafka's UpdateFeatures: all or none, and then one KafkaError is raised for all."""
    for update in request.updates:
        if not 0 <= update.level <= _INT16_MAX:
            raise KafkaError(
                ErrorCode.invalid_update_version,
                f"{update.name}: level {update.level}: 0 (removes it) to {_INT16_MAX}",
            )

    def build(version: int, module: ModuleType) -> Any:
        if request.validate_only and version < 1:
            raise KafkaError(
                ErrorCode.unsupported_version, "the active controller can't only validate"
            )
        return fill(
            module.UpdateFeaturesRequest,
            feature_updates=tuple(
                fill(
                    module.FeatureUpdateKey,
                    feature=update.name,
                    max_version_level=update.level,
                    upgrade_type=_upgrade_type(update),
                    allow_downgrade=_upgrade_type(update) > 1,
                )
                for update in request.updates
            ),
            timeout=millis(timeout_ms),
            validate_only=request.validate_only,
        )

    response = await call(ApiKey.UPDATE_FEATURES, build, timeout_ms)
    if response.error_code != ErrorCode.none:
        raise KafkaError(response.error_code, response.error_message or "")
    # Before version 2 a controller may tell each feature's own outcome.
    told = {
        one.feature: message_of(one.error_code, one.error_message)
        for one in getattr(response, "results", ())
    }
    return pb.UpdateFeaturesResponse(
        results=[
            pb.UpdateFeaturesResult(name=update.name, error=told.get(update.name))
            for update in request.updates
        ]
    )


async def unregister_broker(
    call: ControllerCall, request: pb.UnregisterBrokerRequest, timeout_ms: int
) -> pb.UnregisterBrokerResponse:
    """Kafka's UnregisterBroker."""

    def build(version: int, module: ModuleType) -> Any:
        return fill(module.UnregisterBrokerRequest, broker_id=request.broker_id)

    response = await call(ApiKey.UNREGISTER_BROKER, build, timeout_ms)
    if response.error_code != ErrorCode.none:
        raise KafkaError(response.error_code, response.error_message or "")
    return pb.UnregisterBrokerResponse()
