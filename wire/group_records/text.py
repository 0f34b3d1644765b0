"""The JSON form of keys and values: the field names that Kafka's tools print, its UUID text,
base64 for bytes."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import is_dataclass
from typing import Any
from uuid import UUID

from wire.group_records.schema import fields_in, is_left_out, kafka_name
from wire.group_records.types import GroupKey, GroupValue
from wire.uuids import to_text


def to_json(entity: GroupKey | GroupValue, version: int = 0) -> dict[str, Any]:
    """The fields that the version carries, of a value its own version, of a key 0. What
    isn't written is left out."""
    found = {}
    for item in fields_in(type(entity), version):
        value = getattr(entity, item.name)
        if not is_left_out(item, value):
            found[kafka_name(item)] = _plain(value, version)
    return found


def _plain(value: Any, version: int) -> Any:
    if isinstance(value, UUID):
        return to_text(value)
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, tuple):
        return [_plain(item, version) for item in value]
    if is_dataclass(value):
        return to_json(value, version)  # type: ignore[arg-type]
    return value
