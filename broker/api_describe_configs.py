"""DescribeConfigs 1-4: topics and this broker, with synonyms and texts (KIP-226, KIP-569)."""

from __future__ import annotations

from typing import Any

from broker.context import BrokerContext
from broker.topic_creation import valid_topic_name
from metadata.configs import (
    NODE,
    TOPIC,
    Effective,
    Source,
    effective_broker_config,
    effective_topic_config,
)
from metadata.configs.definition import Update
from metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from net.handlers import Api, Request
from wire.apis import ApiKey, ErrorCode
from wire.errors import KafkaError
from wire.messages import fill, millis, response_module


def apis(context: BrokerContext) -> list[Api]:
    return [Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, lambda request: _handle(context, request))]


def _handle(context: BrokerContext, request: Request) -> Any:
    asked = request.entity()
    m: Any = response_module(ApiKey.DESCRIBE_CONFIGS, request.api_version)
    synonyms = asked.include_synonyms
    documentation = getattr(asked, "include_documentation", False)
    results = []
    for resource in asked.resources:
        error, message, found = ErrorCode.none, None, []
        try:
            found = _effective(context, resource.resource_type, resource.resource_name)
        except KafkaError as refused:
            error, message = refused.code, refused.message
        keys = resource.configuration_keys
        results.append(
            m.DescribeConfigsResult(
                error_code=error,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=tuple(
                    _config(m, e, read_only, synonyms, documentation)
                    for e, read_only in found
                    if not keys or e.definition.name in keys
                ),
            )
        )
    return m.DescribeConfigsResponse(throttle_time=millis(0), results=tuple(results))


def _effective(context: BrokerContext, kind: int, name: str) -> list[tuple[Effective, bool]]:
    """The resource's configurations in force, each with whether it is read-only."""
    image, given, own = context.image, context.config.given, context.broker_id
    if kind == TOPIC_RESOURCE:
        if not valid_topic_name(name):
            raise KafkaError(ErrorCode.invalid_topic_exception, f"{name!r} is no topic name")
        if image.topic(name) is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name}")
        return [(effective_topic_config(n, image, given, name, own), False) for n in TOPIC]
    if kind == BROKER_RESOURCE:
        if name not in ("", str(own)):
            raise KafkaError(
                ErrorCode.invalid_request,
                f"Unexpected broker id, expected {own} or empty string, but received {name}",
            )
        if name == "":
            found = [effective_broker_config(n, image, {}) for n in NODE]
            return [
                (e, e.definition.update is Update.READ_ONLY)
                for e in found
                if e.source is Source.DYNAMIC_DEFAULT_BROKER
            ]
        return [
            (
                effective_broker_config(n, image, given, own),
                NODE[n].update is Update.READ_ONLY,
            )
            for n in NODE
        ]
    raise KafkaError(ErrorCode.invalid_request, f"Unsupported resource type: {kind}")


def _config(m: Any, e: Effective, read_only: bool, synonyms: bool, documentation: bool) -> Any:
    hidden = e.definition.sensitive
    return fill(
        m.DescribeConfigsResourceResult,
        name=e.definition.name,
        value=None if hidden else e.text,
        read_only=read_only,
        config_source=int(e.source),
        is_sensitive=hidden,
        synonyms=tuple(
            m.DescribeConfigsSynonym(
                name=c.name, value=None if hidden else c.text, source=int(c.source)
            )
            for c in e.candidates
        )
        if synonyms
        else (),
        config_type=int(e.definition.type),
        documentation=e.definition.help if documentation else None,
    )
