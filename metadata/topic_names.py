"""Rules for topic names (KIP-1 and the client's Topic class)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from operator import add

from wire.errors import ErrorCode, KafkaError

MAX_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
METADATA_TOPIC = "__cluster_metadata"


def check_topic_name(name: str) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION that names the value and the broken rule."""
    rule = _broken_rule(name)
    if rule is not None:
        raise KafkaError(
            ErrorCode.invalid_topic_exception, f"Topic name {_shown(name)} is invalid: {rule}"
        )


def is_topic_name(name: str) -> bool:
    """Whether a topic may have this name."""
    return _broken_rule(name) is None


def _broken_rule(name: str) -> str | None:
    if not name:
        return "it must not be empty"
    if name in (".", ".."):
        return "it must not be '.' or '..'"
    if len(name) > MAX_LENGTH:
        return f"it has {len(name)} characters, at most {MAX_LENGTH} are allowed"
    if not _LEGAL.fullmatch(name):
        return "only ASCII letters, digits, '.', '_' and '-' are allowed"
    return None


def _shown(name: str) -> str:
    return repr(name if len(name) <= 300 else name[:300] + "…")


def has_collision_chars(name: str) -> bool:
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Names with the same key share metric names, so Kafka refuses the second of them."""
    return name.replace(".", "_")


def names_with_key(key: str) -> Iterator[str]:
    """Every name of that collision key: 2 to the power of its separators."""
    first, *rest = key.split("_")
    for separators in product("._", repeat=len(rest)):
        yield first + "".join(map(add, separators, rest))
