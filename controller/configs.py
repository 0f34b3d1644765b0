"""The configs that the controller itself looks at; definitions are metadata.configs'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from controller.config import ControllerConfig
from metadata.configs import (
    GROUP,
    NODE,
    TOPIC,
    ConfigDef,
    ConfigType,
    Source,
    effective_topic_config,
    topic_value,
)
from metadata.image import GROUP_RESOURCE, TOPIC_RESOURCE, MetadataImage

UNCLEAN_ELECTION = "unclean.leader.election.enable"
MIN_ISR = "min.insync.replicas"

_DEFINITIONS = {TOPIC_RESOURCE: TOPIC, GROUP_RESOURCE: GROUP}


class TopicConfig(NamedTuple):
    """One config of a topic as CreateTopics answers it; `source` as in DescribeConfigs."""

    name: str
    value: str | None
    source: int
    sensitive: bool


def unclean_election_enabled(image: MetadataImage, config: ControllerConfig, topic: str) -> bool:
    """Whether the topic may get a leader that misses records, rather than none."""
    value: Any = topic_value(UNCLEAN_ELECTION, image, config.static, topic, config.node_id)
    return bool(value)


def min_insync_replicas(image: MetadataImage, config: ControllerConfig, topic: str) -> int:
    """How many replicas in sync it takes to acknowledge with acks=all and to commit."""
    value: Any = topic_value(MIN_ISR, image, config.static, topic, config.node_id)
    return int(value)


def new_topic_configs(
    image: MetadataImage, config: ControllerConfig, topic: str, overrides: Mapping[str, str]
) -> list[TopicConfig]:
    """All configs in force for a topic that is about to get these overrides, by name."""
    found = []
    for name, definition in sorted(TOPIC.items()):
        if name in overrides:
            value, source = overrides[name], Source.TOPIC
        else:
            effective = effective_topic_config(name, image, config.static, topic, config.node_id)
            value, source = effective.text or "", effective.source
        found.append(TopicConfig(name, value, int(source), definition.sensitive))
    return found


def is_list(resource_type: int, name: str) -> bool:
    """Whether the config is known and a list, so that items can be appended."""
    definition = _definition(resource_type, name)
    return definition is not None and definition.type is ConfigType.LIST


def default_text(resource_type: int, name: str) -> str | None:
    """The default of a config as text; None if it has none or isn't known."""
    definition = _definition(resource_type, name)
    return None if definition is None else definition.default_text


def _definition(resource_type: int, name: str) -> ConfigDef | None:
    return _DEFINITIONS.get(resource_type, NODE).get(name)
