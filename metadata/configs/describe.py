"""DescribeConfigs 1-4: topics, groups, all brokers, one node, with synonyms and texts (KIP-226,
KIP-569).

The same answer comes from brokers and controllers (KIP-919), each from its committed image.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from metadata.configs.definition import Scope, Update
from metadata.configs.lookup import (
    GROUP,
    NODE,
    TOPIC,
    Effective,
    Source,
    effective_broker_config,
    effective_group_config,
    effective_topic_config,
)
from metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, MetadataImage
from metadata.topic_names import check_topic_name
from wire.apis import ApiKey, is_flexible
from wire.errors import ErrorCode, KafkaError
from wire.hot.primitives import INT32, count
from wire.messages import (
    RequestHeader,
    encode_body,
    fill,
    response_header,
    response_module,
)

MIN_VERSION, MAX_VERSION = 1, 4
_NO_THROTTLE = INT32.pack(0)
_AT_ONCE = 20  # resources


async def describe_configs(
    header: RequestHeader,
    asked: Any,
    image: MetadataImage,
    static: Mapping[str, str],
    node_id: int,
) -> list[bytes]:
    """The response frame, in parts, to the request `asked`; each resource fails or succeeds by
    itself.

    `static` has the texts of the answering node's file. One resource takes half a millisecond and
    administrators ask for all topics at once: others get their turn in between.
    """
    version = header.api_version
    flexible = is_flexible(ApiKey.DESCRIBE_CONFIGS, version)
    head = response_header(ApiKey.DESCRIBE_CONFIGS, version, header.correlation_id)
    parts = [head + _NO_THROTTLE + count(len(asked.resources), flexible)]
    for index, resource in enumerate(asked.resources):
        if index % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        parts.append(encode_body(_result(version, resource, asked, image, static, node_id)))
    if flexible:
        parts.append(b"\x00")
    return [INT32.pack(sum(map(len, parts))), *parts]


def _result(
    version: int,
    resource: Any,
    asked: Any,
    image: MetadataImage,
    static: Mapping[str, str],
    node_id: int,
) -> Any:
    """The answer for one resource."""
    module: Any = response_module(ApiKey.DESCRIBE_CONFIGS, version)
    code, message = ErrorCode.none, None
    found: list[Effective] = []
    try:
        kind, name = int(resource.resource_type), resource.resource_name
        found = _in_force(image, static, node_id, kind, name)
    except KafkaError as error:
        code, message = error.code, error.message
    wanted = resource.configuration_keys
    return module.DescribeConfigsResult(
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
    if kind == GROUP_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.invalid_request, "A group's name must not be empty")
        return [effective_group_config(key, image, static, name, node_id) for key in sorted(GROUP)]
    if kind != BROKER_RESOURCE:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Resource type {kind} has no configs here: topics ({TOPIC_RESOURCE}), brokers "
            f"({BROKER_RESOURCE}) and groups ({GROUP_RESOURCE}) have",
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
