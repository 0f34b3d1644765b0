"""What a configuration definition is, and how its text becomes a value."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Final

from wire.errors import ErrorCode, KafkaError

Value = bool | int | float | str | tuple[str, ...] | None
Rule = Callable[[Any], str | None]
"""Takes a parsed value; returns what is wrong with it (what is allowed), or None."""

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
SEGMENT_BYTES_MIN: Final = 1 << 20  # of a topic's segment.bytes (KIP-1030)


class ConfigType(IntEnum):
    """Value types, numbered as in DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


Row = tuple[str, ConfigType, Value, Rule | None, str]
"""A definition as the lists write it: name, type, default, rule, help."""


class Scope(Enum):
    """Whose configuration it is."""

    TOPIC = "topic"
    NODE = "node"
    GROUP = "group"


class Update(Enum):
    """How a node's configuration may change while it runs (KIP-226)."""

    READ_ONLY = "read-only"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True)
class Synonym:
    """A node configuration that gives a topic's or group's configuration its default; its value
    times `factor` is that (hours and minutes to milliseconds)."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDef:
    """One configuration. `default` None means that there is none (with `required`: that the
    file must give it). `synonyms` are tried in order where the configuration itself is absent."""

    name: str
    type: ConfigType
    default: Value
    help: str
    scope: Scope
    rule: Rule | None = None
    synonyms: tuple[Synonym, ...] = ()
    required: bool = False
    update: Update = Update.READ_ONLY

    @property
    def sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def default_text(self) -> str | None:
        """The default as it would stand in a file; None where there is none."""
        return to_text(self.default)

    def parse(self, text: str) -> Value:
        """The value of a text. KafkaError(INVALID_CONFIG) names the value and what is allowed."""
        value = _PARSERS[self.type](self, text)
        if self.rule is not None:
            complaint = self.rule(value)
            if complaint is not None:
                raise self.invalid(text, complaint)
        return value

    def invalid(self, text: str, complaint: str) -> KafkaError:
        """The error for a bad value of this configuration."""
        shown = "(hidden)" if self.sensitive else repr(text)
        return KafkaError(
            ErrorCode.invalid_config, f"Invalid value {shown} for {self.name}: {complaint}"
        )


def to_text(value: Value) -> str | None:
    """A value as it stands in a property file; None for no value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _double_text(value)
    return str(value)


def _double_text(value: float) -> str:
    """As Java writes it: 0.5, but 1.0E7."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(value)
    sign, digits, exponent = Decimal(str(value)).normalize().as_tuple()
    assert isinstance(exponent, int), value
    first, *rest = map(str, digits)
    power = exponent + len(rest)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{power}"


_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BOUNDS: Final = {ConfigType.SHORT: 2**15, ConfigType.INT: 2**31, ConfigType.LONG: 2**63}


def _parse_boolean(definition: ConfigDef, text: str) -> Value:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise definition.invalid(text, "must be true or false")
    return lowered == "true"


def _parse_integer(definition: ConfigDef, text: str) -> Value:
    stripped = text.strip()
    bound = _BOUNDS[definition.type]
    # The length check keeps a hostile text from becoming a huge number first.
    if len(stripped) > 40 or not _INTEGER.fullmatch(stripped):
        raise definition.invalid(text, "must be a whole number")
    value = int(stripped)
    if not -bound <= value < bound:
        raise definition.invalid(text, f"must be from {-bound} to {bound - 1}")
    return value


def _parse_double(definition: ConfigDef, text: str) -> Value:
    stripped = text.strip()
    if len(stripped) > 400 or not _NUMBER.fullmatch(stripped):
        raise definition.invalid(text, "must be a number")
    return float(stripped)


def _parse_string(definition: ConfigDef, text: str) -> Value:
    return text.strip()


def _parse_list(definition: ConfigDef, text: str) -> Value:
    if not text.strip():
        return ()
    return tuple(item.strip() for item in text.split(","))


_PARSERS: Final[dict[ConfigType, Callable[[ConfigDef, str], Value]]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: _parse_string,
    ConfigType.INT: _parse_integer,
    ConfigType.SHORT: _parse_integer,
    ConfigType.LONG: _parse_integer,
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
    ConfigType.CLASS: _parse_string,
    ConfigType.PASSWORD: lambda definition, text: text,
}


def at_least(low: float) -> Rule:
    """Allow numbers from `low` on."""

    def rule(value: Any) -> str | None:
        return None if value >= low else f"must be at least {low}"

    return rule


def between(low: float, high: float) -> Rule:
    """Allow numbers from `low` to `high`, both included."""

    def rule(value: Any) -> str | None:
        return None if low <= value <= high else f"must be from {low} to {high}"

    return rule


def one_of(*allowed: str) -> Rule:
    """Allow only these texts."""

    def rule(value: Any) -> str | None:
        return None if value in allowed else f"must be one of {', '.join(allowed)}"

    return rule


def items_of(*allowed: str) -> Rule:
    """Allow lists whose items are all among these, none twice."""

    def rule(value: Any) -> str | None:
        if any(item not in allowed for item in value):
            return f"must be a list of {', '.join(allowed)}"
        return "must name each item once" if len(set(value)) != len(value) else None

    return rule


def path(value: Any) -> str | None:
    """Allow what the system can be asked for; there may be none."""
    if value is not None and "\0" in value:
        return "must be a path, which has no NUL character (\\u0000) in it"
    return None


def gzip_level(value: Any) -> str | None:
    """Kafka's gzip levels."""
    return None if value == -1 or 1 <= value <= 9 else "must be -1 or from 1 to 9"


def throttled_replicas(value: Any) -> str | None:
    """`*`, or a list of partition:broker pairs (KIP-73)."""
    if value == ("*",) or all(re.fullmatch(r"[0-9]+:[0-9]+", item) for item in value):
        return None
    return "must be * or a list of partition:broker"
