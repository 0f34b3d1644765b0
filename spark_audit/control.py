"""The JSON form of control records, in their schemas' field names."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from wire.uuids import ZERO, to_text

# Schemas name these in ways that splitting at underscores doesn't give back; the two lost
# their Ms or Timestamp ending nowhere, so no other exceptions are needed.
_NAMES = {
    "k_raft_version": "KRaftVersion",
    "k_raft_version_feature": "KRaftVersionFeature",
}


def _name(field: str) -> str:
    if field in _NAMES:
        return _NAMES[field]
    return "".join(part[:1].upper() + part[1:] for part in field.split("_"))


def _plain(value: Any, uuid_field: bool = False) -> Any:
    if value is None and uuid_field:
        return to_text(ZERO)
    if isinstance(value, UUID):
        return to_text(value)
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, timedelta):
        return int(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return control_json(value)
    return value


def control_json(entity: Any) -> dict[str, Any]:
    """The fields of a decoded control record; {} where its type is unknown."""
    if entity is None:
        return {}
    return {
        _name(item.name): _plain(
            getattr(entity, item.name), item.metadata.get("kafka_type") == "uuid"
        )
        for item in fields(entity)
    }
