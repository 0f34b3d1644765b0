"""The JSON form of records: Kafka's field names, Kafka's UUID text, base64 for bytes."""

from base64 import b64encode
from functools import cache
from typing import Any
from uuid import UUID

from metadata.records.codec import UnknownRecord
from metadata.records.schema import Entity, FieldSchema, Record, schema_of
from wire.uuids import to_text


def _plain(value: Any, version: int) -> Any:
    if isinstance(value, UUID):
        return to_text(value)
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, tuple):
        return [_plain(item, version) for item in value]
    if isinstance(value, Entity):
        return _fields_to_json(value, version)
    return value


@cache
def _fields_of(cls: Any, version: int) -> tuple[FieldSchema, ...]:
    return tuple(f for f in schema_of(cls) if f.since <= version)


def _fields_to_json(entity: Entity, version: int) -> dict[str, Any]:
    found = {}
    kind: Any = type(entity)
    for schema in _fields_of(kind, version):
        value = getattr(entity, schema.name)
        if schema.tag is not None and value == schema.default:
            continue  # as on the wire, and as Kafka's own dump prints it
        found[schema.kafka_name] = _plain(value, version)
    return found


def to_json(record: Record | UnknownRecord, version: int | None = None) -> dict[str, Any]:
    """The record's fields by their names in Kafka's schema, those that `version` has (all by
    default). Tagged fields at their default are left out. Of an unknown record, its body."""
    if isinstance(record, UnknownRecord):
        return {"Body": b64encode(record.body).decode("ascii")}
    return _fields_to_json(record, record.MAX_VERSION if version is None else version)
