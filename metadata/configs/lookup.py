"""Looking configurations up: a node's file, the image's dynamic values, a topic's overrides."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from metadata.configs.definition import ConfigDef, Update, Value, to_text
from metadata.configs.group_overrides import GROUP_CONFIGS
from metadata.configs.node import NODE_CONFIGS
from metadata.configs.topic import TOPIC_CONFIGS
from metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, MetadataImage
from wire.errors import ErrorCode, KafkaError

TOPIC: Final[dict[str, ConfigDef]] = {d.name: d for d in TOPIC_CONFIGS}
NODE: Final[dict[str, ConfigDef]] = {d.name: d for d in NODE_CONFIGS}
GROUP: Final[dict[str, ConfigDef]] = {d.name: d for d in GROUP_CONFIGS}
DEFINITIONS: Final[tuple[ConfigDef, ...]] = (*NODE_CONFIGS, *TOPIC_CONFIGS, *GROUP_CONFIGS)
_LAGS: Final = ("min.compaction.lag.ms", "max.compaction.lag.ms")


class Source(IntEnum):
    """Where a value comes from, numbered as in DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Candidate(NamedTuple):
    """One place that has a say: the name used there, the value's text, the place."""

    name: str
    text: str | None
    source: Source


class Effective(NamedTuple):
    """A configuration as it is in force, and all places that have a say, the strongest first."""

    definition: ConfigDef
    text: str | None
    source: Source
    candidates: tuple[Candidate, ...]


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_config, message)


class StaticConfig:
    """A node's property file, parsed. `given` has the texts of the file, `unknown` the names in
    it that nobody knows (worth a warning)."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """KafkaError(INVALID_CONFIG) on a bad value or a required name that is missing."""
        self.given: dict[str, str] = dict(properties)
        self.unknown: tuple[str, ...] = tuple(sorted(n for n in properties if n not in NODE))
        self._values: dict[str, Value] = {}
        for name, definition in NODE.items():
            if name in self.given:
                self._values[name] = definition.parse(self.given[name])
            elif definition.required:
                raise _invalid(f"Missing {name}: {definition.help}")
            else:
                self._values[name] = definition.default

    def __getitem__(self, name: str) -> Any:
        """The value in force by file and defaults; KeyError for a name that is not defined."""
        return self._values[name]

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The data directories, from `log.dirs` or else `log.dir`."""
        text = self._values["log.dirs"] or self._values["log.dir"]
        return tuple(part.strip() for part in str(text).split(",") if part.strip())


def parse_topic_config(name: str, text: str) -> Value:
    """The value of a topic configuration; KafkaError(INVALID_CONFIG) for an unknown name or a
    bad value."""
    definition = TOPIC.get(name)
    if definition is None:
        raise _invalid(f"Unknown topic config name: {name}")
    return definition.parse(text)


def validate_topic_configs(overrides: Mapping[str, str | None]) -> None:
    """Check a topic's overrides, each alone and together; KafkaError(INVALID_CONFIG)."""
    values: dict[str, Any] = {}
    for name in sorted(overrides):
        text = overrides[name]
        if text is None:
            raise _invalid(f"Null value not supported for topic config {name}")
        values[name] = parse_topic_config(name, text)
    if values.keys().isdisjoint(_LAGS):
        return
    bounds: list[Any] = [values.get(name, TOPIC[name].default) for name in _LAGS]
    low, high = bounds
    if low > high:
        raise _invalid(
            f"Invalid value {low} for min.compaction.lag.ms: must not be more than "
            f"max.compaction.lag.ms, which is {high}"
        )


def validate_group_configs(
    overrides: Mapping[str, str],
    image: MetadataImage,
    static: Mapping[str, str],
    node_id: int | None = None,
) -> None:
    """Check a group's overrides, each alone, by the bounds that nodes set, and together;
    KafkaError(INVALID_CONFIG)."""
    values: dict[str, Any] = {
        name: broker_value(f"group.{name}", image, static, node_id) for name in GROUP
    }
    for name in sorted(overrides):
        definition = GROUP.get(name)
        if definition is None:
            raise _invalid(f"Unknown group config name: {name}")
        values[name] = definition.parse(overrides[name])
        what = name.removeprefix("consumer.")
        low, high = (
            broker_value(f"group.consumer.{bound}.{what}", image, static, node_id)
            for bound in ("min", "max")
        )
        if not low <= values[name] <= high:
            raise _invalid(f"{name} is {values[name]}: here it must be {low} to {high}")
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    if overrides and values[session] <= values[heartbeat]:
        raise _invalid(
            f"{session} is {values[session]}: it must be more than {heartbeat}, which is "
            f"{values[heartbeat]}"
        )


def validate_dynamic_broker_config(name: str, text: str | None) -> None:
    """Check one change of a broker's or of all brokers' configuration (text None removes it);
    KafkaError(INVALID_CONFIG) where it is unknown, fixed at start, or has a bad value."""
    definition = NODE.get(name)
    if definition is None:
        raise _invalid(f"Unknown broker config name: {name}")
    if definition.update is Update.READ_ONLY:
        raise _invalid(f"{name} cannot be changed while brokers run: it is read at start")
    if text is not None:
        definition.parse(text)


def _dynamic(image: MetadataImage, broker_id: int | None) -> list[tuple[Mapping[str, str], Source]]:
    places: list[tuple[Mapping[str, str], Source]] = []
    if broker_id is not None:
        own = image.config(BROKER_RESOURCE, str(broker_id))
        places.append((own, Source.DYNAMIC_BROKER))
    places.append((image.config(BROKER_RESOURCE, ""), Source.DYNAMIC_DEFAULT_BROKER))
    return places


def _scaled(definition: ConfigDef, name: str, text: str, factor: int) -> str:
    """The text of a synonym's value in the unit of the topic configuration."""
    if factor == 1:
        return text
    value = NODE[name].parse(text)
    assert isinstance(value, int), name
    # Kafka's -1 for "no limit" stays what it is in any unit.
    return str(value if value < 0 else value * factor)


def _node_candidates(
    definition: ConfigDef,
    image: MetadataImage,
    static: Mapping[str, str],
    broker_id: int | None,
) -> list[Candidate]:
    places = [*_dynamic(image, broker_id), (static, Source.STATIC_BROKER)]
    found = []
    for values, source in places:
        text = values.get(definition.name)
        if text is not None:
            found.append(Candidate(definition.name, text, source))
    if definition.default is not None:
        found.append(Candidate(definition.name, definition.default_text, Source.DEFAULT))
    return found


def _candidates(
    definition: ConfigDef,
    image: MetadataImage,
    static: Mapping[str, str],
    broker_id: int | None,
    override: Candidate,
) -> list[Candidate]:
    """`override` is the topic's or group's own, without a text where there is none."""
    found = [] if override.text is None else [override]
    places = [*_dynamic(image, broker_id), (static, Source.STATIC_BROKER)]
    for synonym in definition.synonyms:
        for values, source in places:
            text = values.get(synonym.name)
            if text is not None:
                scaled = _scaled(definition, synonym.name, text, synonym.factor)
                found.append(Candidate(synonym.name, scaled, source))
    name = definition.synonyms[0].name if definition.synonyms else definition.name
    found.append(Candidate(name, definition.default_text, Source.DEFAULT))
    return found


def _effective(definition: ConfigDef, candidates: list[Candidate]) -> Effective:
    if not candidates:
        return Effective(definition, None, Source.DEFAULT, ())
    first = candidates[0]
    return Effective(definition, first.text, first.source, tuple(candidates))


def effective_topic_config(
    name: str,
    image: MetadataImage,
    static: Mapping[str, str],
    topic: str,
    broker_id: int | None = None,
) -> Effective:
    """A topic's configuration in force on a broker: the topic's override, else the dynamic value
    of that broker, of all brokers, its file, the default. `static` has the file's texts
    (`StaticConfig.given`). KafkaError(INVALID_CONFIG) for an unknown name."""
    definition = TOPIC.get(name)
    if definition is None:
        raise _invalid(f"Unknown topic config name: {name}")
    text = image.config(TOPIC_RESOURCE, topic).get(name)
    override = Candidate(name, text, Source.TOPIC)
    return _effective(definition, _candidates(definition, image, static, broker_id, override))


def effective_group_config(
    name: str,
    image: MetadataImage,
    static: Mapping[str, str],
    group: str,
    broker_id: int | None = None,
) -> Effective:
    """A group's configuration in force on a broker, as `effective_topic_config`; whether there is
    such a group doesn't matter."""
    definition = GROUP.get(name)
    if definition is None:
        raise _invalid(f"Unknown group config name: {name}")
    text = image.config(GROUP_RESOURCE, group).get(name)
    override = Candidate(name, text, Source.GROUP)
    return _effective(definition, _candidates(definition, image, static, broker_id, override))


def effective_broker_config(
    name: str, image: MetadataImage, static: Mapping[str, str], broker_id: int | None = None
) -> Effective:
    """A broker's configuration in force, as `effective_topic_config`."""
    definition = NODE.get(name)
    if definition is None:
        raise _invalid(f"Unknown broker config name: {name}")
    return _effective(definition, _node_candidates(definition, image, static, broker_id))


def _value(effective: Effective) -> Any:
    """The parsed value. A text that the image holds and our rules refuse (written by another
    version, say) must not stop a broker: the next candidate counts, at last the default."""
    for candidate in effective.candidates:
        if candidate.source is Source.DEFAULT:
            break
        try:
            return effective.definition.parse(candidate.text or "")
        except KafkaError:
            continue
    return effective.definition.default


def topic_value(
    name: str,
    image: MetadataImage,
    static: Mapping[str, str],
    topic: str,
    broker_id: int | None = None,
) -> Any:
    """The parsed value of a topic's configuration in force."""
    return _value(effective_topic_config(name, image, static, topic, broker_id))


def broker_value(
    name: str, image: MetadataImage, static: Mapping[str, str], broker_id: int | None = None
) -> Any:
    """The parsed value of a broker's configuration in force."""
    return _value(effective_broker_config(name, image, static, broker_id))


def group_overrides(image: MetadataImage, group: str) -> dict[str, Any]:
    """What is set for a group itself, parsed, by name; what our rules refuse is left out."""
    found: dict[str, Any] = {}
    for name, text in sorted(image.config(GROUP_RESOURCE, group).items()):
        try:
            found[name] = GROUP[name].parse(text)
        except (KeyError, KafkaError):
            continue
    return found


def topic_values(
    image: MetadataImage, static: Mapping[str, str], topic: str, broker_id: int | None = None
) -> dict[str, Any]:
    """All of a topic's configurations in force, parsed, by name; what a partition log needs."""
    return {name: topic_value(name, image, static, topic, broker_id) for name in TOPIC}


def reference_markdown() -> str:
    """All definitions as Markdown tables, for the docs page."""
    lines = []
    for title, definitions in (("Nodes", NODE), ("Topics", TOPIC), ("Groups", GROUP)):
        lines += [f"## {title}", "", "| name | type | default | meaning |", "|---|---|---|---|"]
        for name in sorted(definitions):
            one = definitions[name]
            default = "required" if one.required else one.default_text
            shown = "" if default is None else f"`{default}`" if default else "empty"
            lines.append(f"| `{name}` | {one.type.name.lower()} | {shown} | {one.help} |")
        lines.append("")
    return "\n".join(lines)


__all__ = [
    "DEFINITIONS",
    "GROUP",
    "NODE",
    "TOPIC",
    "Candidate",
    "Effective",
    "Source",
    "StaticConfig",
    "broker_value",
    "effective_broker_config",
    "effective_group_config",
    "effective_topic_config",
    "group_overrides",
    "parse_topic_config",
    "reference_markdown",
    "to_text",
    "topic_value",
    "topic_values",
    "validate_dynamic_broker_config",
    "validate_group_configs",
    "validate_topic_configs",
]
