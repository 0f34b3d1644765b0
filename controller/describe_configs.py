"""DescribeConfigs 1-4 on the controller listener (KIP-919): topics, all brokers, this node.

Any controller answers it, from the committed image. Kafka's tools ask it before they alter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from controller.config import ControllerConfig
from metadata.configs import (
    NODE,
    TOPIC,
    Effective,
    Scope,
    Source,
    Update,
    effective_broker_config,
    effective_topic_config,
)
from metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from wire.messages import fill, millis, response_module


def describe_configs(
    version: int, entity: Any, image: MetadataImage, config: ControllerConfig
) -> Any:
    """The answer; each resource fails or succeeds by itself."""
    module: Any = response_module(ApiKey.DESCRIBE_CONFIGS, version)
    results = []
    for resource in entity.resources:
        code, message = ErrorCode.none, None
        found: list[Effective] = []
        try:
            found = _in_force(image, config, int(resource.resource_type), resource.resource_name)
        except KafkaError as error:
            code, message = error.code, error.message
        wanted = resource.configuration_keys
        results.append(
            module.DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=tuple(
                    _shown(module, effective, entity)
                    for effective in found
                    if not wanted or effective.definition.name in wanted
                ),
            )
        )
    return module.DescribeConfigsResponse(throttle_time=millis(0), results=tuple(results))


def _in_force(
    image: MetadataImage, config: ControllerConfig, kind: int, name: str
) -> list[Effective]:
    if kind == TOPIC_RESOURCE:
        if image.topic(name) is None:
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition, f"There is no topic named {name!r}"
            )
        return [
            effective_topic_config(key, image, config.static, name, config.node_id)
            for key in sorted(TOPIC)
        ]
    if kind != BROKER_RESOURCE:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Resource type {kind} has no configs here: topics ({TOPIC_RESOURCE}) and brokers "
            f"({BROKER_RESOURCE}) have",
        )
    if not name:
        return _dynamic_default(effective_broker_config(key, image, {}) for key in sorted(NODE))
    if name != str(config.node_id):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Unexpected broker id, expected {config.node_id} or empty string, but received {name}",
        )
    return [
        effective_broker_config(key, image, config.static, config.node_id) for key in sorted(NODE)
    ]


def _dynamic_default(found: Iterable[Effective]) -> list[Effective]:
    """Of all brokers only what was set for all is known, not what each has in its file."""
    return [e for e in found if e.source is Source.DYNAMIC_DEFAULT_BROKER]


def _shown(module: Any, effective: Effective, entity: Any) -> Any:
    definition = effective.definition
    hidden = definition.sensitive
    synonyms: tuple[Any, ...] = ()
    if entity.include_synonyms:
        synonyms = tuple(
            module.DescribeConfigsSynonym(
                name=c.name, value=None if hidden else c.text, source=int(c.source)
            )
            for c in effective.candidates
        )
    documented = getattr(entity, "include_documentation", False)
    return fill(
        module.DescribeConfigsResourceResult,
        name=definition.name,
        value=None if hidden else effective.text,
        read_only=definition.scope is Scope.NODE and definition.update is Update.READ_ONLY,
        config_source=int(effective.source),
        is_sensitive=hidden,
        synonyms=synonyms,
        config_type=int(definition.type),
        documentation=definition.help if documented else None,
    )
