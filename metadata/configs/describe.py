"""DescribeConfigs 1-4: topics, all brokers, one node, with synonyms and texts (KIP-226, KIP-569).

The same answer comes from brokers and controllers (KIP-919), each from its committed image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from metadata.configs.definition import Scope, Update
from metadata.configs.lookup import (
    NODE,
    TOPIC,
    Effective,
    Source,
    effective_broker_config,
    effective_topic_config,
)
from metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from metadata.topic_names import check_topic_name
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from wire.messages import fill, millis, response_module

MIN_VERSION, MAX_VERSION = 1, 4


def describe_configs(
    version: int, asked: Any, image: MetadataImage, static: Mapping[str, str], node_id: int
) -> Any:
    """The response entity to the request `asked`; each resource fails or succeeds by itself.

    `static` has the texts of the answering node's file.
    """
    module: Any = response_module(ApiKey.DESCRIBE_CONFIGS, version)
    results = []
    for resource in asked.resources:
        code, message = ErrorCode.none, None
        found: list[Effective] = []
        try:
            kind, name = int(resource.resource_type), resource.resource_name
            found = _in_force(image, static, node_id, kind, name)
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
                    _shown(module, effective, asked)
                    for effective in found
                    if not wanted or effective.definition.name in wanted
                ),
            )
        )
    return module.DescribeConfigsResponse(throttle_time=millis(0), results=tuple(results))


def _in_force(
    image: MetadataImage, static: Mapping[str, str], node_id: int, kind: int, name: str
) -> list[Effective]:
    if kind == TOPIC_RESOURCE:
        check_topic_name(name)
        if image.topic(name) is None:
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition, f"There is no topic named {name!r}"
            )
        return [effective_topic_config(key, image, static, name, node_id) for key in sorted(TOPIC)]
    if kind != BROKER_RESOURCE:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Resource type {kind} has no configs here: topics ({TOPIC_RESOURCE}) and brokers "
            f"({BROKER_RESOURCE}) have",
        )
    if not name:
        return _dynamic_default(effective_broker_config(key, image, {}) for key in sorted(NODE))
    if name != str(node_id):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Unexpected broker id, expected {node_id} or empty string, but received {name}",
        )
    return [effective_broker_config(key, image, static, node_id) for key in sorted(NODE)]


def _dynamic_default(found: Iterable[Effective]) -> list[Effective]:
    """Of all brokers only what was set for all is known, not what each has in its file."""
    return [e for e in found if e.source is Source.DYNAMIC_DEFAULT_BROKER]


def _shown(module: Any, effective: Effective, asked: Any) -> Any:
    definition = effective.definition
    hidden = definition.sensitive
    synonyms: tuple[Any, ...] = ()
    if asked.include_synonyms:
        synonyms = tuple(
            module.DescribeConfigsSynonym(
                name=c.name, value=None if hidden else c.text, source=int(c.source)
            )
            for c in effective.candidates
        )
    documented = getattr(asked, "include_documentation", False)
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
