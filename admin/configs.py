"""DescribeConfigs: what the metadata log sets, and what is in force for a topic."""

from __future__ import annotations

from collections.abc import Mapping

from admin.errors import message_of
from admin.reads import unknown_topic
from admin.stubs import admin_pb2 as pb
from metadata.configs import NODE, TOPIC, Source, effective_topic_config
from metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from wire.errors import ErrorCode, KafkaError
from wire.numbers import INT32_MAX, whole_number

_SOURCES: dict[int, pb.ConfigSource] = {
    TOPIC_RESOURCE: pb.CONFIG_SOURCE_TOPIC,
    BROKER_RESOURCE: pb.CONFIG_SOURCE_DYNAMIC_BROKER,
    16: pb.CONFIG_SOURCE_CLIENT_METRICS,
    32: pb.CONFIG_SOURCE_GROUP,
}

_IN_FORCE: dict[Source, pb.ConfigSource] = {
    Source.TOPIC: pb.CONFIG_SOURCE_TOPIC,
    Source.DYNAMIC_BROKER: pb.CONFIG_SOURCE_DYNAMIC_BROKER,
    Source.DYNAMIC_DEFAULT_BROKER: pb.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER,
    Source.STATIC_BROKER: pb.CONFIG_SOURCE_STATIC_BROKER,
    Source.DEFAULT: pb.CONFIG_SOURCE_DEFAULT,
}


def describe_configs(
    image: MetadataImage, request: pb.DescribeConfigsRequest, node_config: Mapping[str, str]
) -> pb.DescribeConfigsResponse:
    """One result a resource, in the order of the request.

    `node_config` has the texts of this node's property file: the defaults of topics follow it.
    """
    return pb.DescribeConfigsResponse(
        metadata_offset=image.last_offset,
        results=[_describe(image, resource, node_config) for resource in request.resources],
    )


def _describe(
    image: MetadataImage, resource: pb.ConfigResource, node_config: Mapping[str, str]
) -> pb.ConfigDescription:
    kind, name = int(resource.type), resource.name
    error = _check_resource(image, kind, name)
    entries: list[pb.ConfigEntry] = []
    if error is None:
        try:
            if kind == TOPIC_RESOURCE:
                entries = _topic(image, resource, node_config)
            else:
                entries = _from_log(image, resource)
        except KafkaError as refused:
            error = message_of(refused.code, refused.message)
    return pb.ConfigDescription(type=resource.type, name=name, configs=entries, error=error)


def _topic(
    image: MetadataImage, resource: pb.ConfigResource, node_config: Mapping[str, str]
) -> list[pb.ConfigEntry]:
    """Every config in force; KafkaError for a name that is no topic config."""
    entries = []
    for key in resource.keys or sorted(TOPIC):
        found = effective_topic_config(key, image, node_config, resource.name)
        source = _IN_FORCE[found.source]
        entries.append(_entry(key, found.text, source, found.definition.sensitive))
    return entries


def _from_log(image: MetadataImage, resource: pb.ConfigResource) -> list[pb.ConfigEntry]:
    """What is set for a resource that is no topic; a broker has the default of all beneath."""
    kind, name = int(resource.type), resource.name
    found: dict[str, tuple[str, pb.ConfigSource]] = {}
    if kind == BROKER_RESOURCE:
        for key, value in image.config(kind, "").items():
            found[key] = (value, pb.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER)
    if kind != BROKER_RESOURCE or name:
        for key, value in image.config(kind, name).items():
            found[key] = (value, _SOURCES[kind])
    entries = []
    for key in resource.keys or sorted(found):
        if key not in found:
            continue
        # What nobody here knows may be a secret.
        definition = NODE.get(key)
        hidden = kind == BROKER_RESOURCE and (definition is None or definition.sensitive)
        entries.append(_entry(key, found[key][0], found[key][1], hidden))
    return entries


def _entry(
    name: str, value: str | None, source: pb.ConfigSource, sensitive: bool
) -> pb.ConfigEntry:
    shown = "" if sensitive or value is None else value
    return pb.ConfigEntry(name=name, value=shown, source=source, sensitive=sensitive)


def _check_resource(image: MetadataImage, kind: int, name: str) -> pb.KafkaError | None:
    if kind not in _SOURCES:
        return message_of(
            ErrorCode.invalid_request,
            f"config resource type {kind}: 2 (topic), 4 (broker), "
            "16 (client metrics) or 32 (group)",
        )
    if kind == TOPIC_RESOURCE and image.topic(name) is None:
        return unknown_topic(name)
    if kind == BROKER_RESOURCE and name:
        if whole_number(name, INT32_MAX) is None:
            return message_of(
                ErrorCode.invalid_request,
                f"broker {name!r}: a broker id, or nothing for the default of all brokers",
            )
        if image.broker(int(name)) is None:
            return message_of(
                ErrorCode.broker_id_not_registered, f"broker {name} is not registered"
            )
    return None
