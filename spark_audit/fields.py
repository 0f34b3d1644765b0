"""Which field of a record each typed column of the `kraft` source shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any
from uuid import UUID

from metadata.records import FenceBrokerRecord, Record, UnfenceBrokerRecord, to_json
from spark_audit.control import control_json
from spark_audit.kernels import UNCHANGED
from spark_audit.rows import Item
from wire.control import Control
from wire.uuids import to_text

# Columns of one record type alone: the type and its field.
_ONLY = {
    "topic": ("TopicRecord", "name"),
    "config_name": ("ConfigRecord", "name"),
    "config_value": ("ConfigRecord", "value"),
    "controller_id": ("RegisterControllerRecord", "controller_id"),
    "feature_name": ("FeatureLevelRecord", "name"),
    "feature_level": ("FeatureLevelRecord", "feature_level"),
}
# Where the field of several record types has another name than its column.
_RENAMED = {
    "partition": "partition_id",
    "removing": "removing_replicas",
    "adding": "adding_replicas",
    "elr": "eligible_leader_replicas",
}
_FENCING = {"broker_id": "id", "broker_epoch": "epoch"}


def _flag(value: Any) -> bool | None:
    """A record's state as it is; a change record's number: 1 sets, -1 clears, 0 is no change."""
    if isinstance(value, bool):
        return value
    return None if not value else value > 0


def _text(value: Any) -> Any:
    return to_text(value) if isinstance(value, UUID) else value


def _leader(value: int) -> int | None:
    return None if value == UNCHANGED else value


_SHOWN: dict[str, Callable[[Any], Any]] = {
    "fenced": _flag,
    "in_controlled_shutdown": _flag,
    "topic_id": _text,
    "leader": _leader,
}


@cache
def field_reader(kind: type[Record], column: str) -> Callable[[Any], Any] | None:
    """Reads a column's value from records of one type; None where the type has no such field."""
    if kind in (FenceBrokerRecord, UnfenceBrokerRecord) and column == "fenced":
        fenced = kind is FenceBrokerRecord
        return lambda record: fenced
    name = _RENAMED.get(column, column)
    if kind in (FenceBrokerRecord, UnfenceBrokerRecord):
        name = _FENCING.get(column, name)
    if column in _ONLY:
        owner, name = _ONLY[column]
        if owner != kind.NAME:
            return None
    if name not in kind.__dataclass_fields__:  # type: ignore[attr-defined]
        return None
    show = _SHOWN.get(column)
    if show is None:
        return lambda record: getattr(record, name)
    return lambda record: show(getattr(record, name))


def control_field(control: Control, column: str) -> Any:
    """What a control record has for a column: a quorum's new leader, else nothing."""
    return getattr(control.entity, "leader_id", None) if column == "leader" else None


def payload(item: Item) -> str:
    """The record's fields as JSON, in the names of Kafka's schemas."""
    if isinstance(item, Control):
        fields = control_json(item.entity)
    else:
        fields = to_json(item.record, item.version)
    return json.dumps(fields, separators=(",", ":"))
