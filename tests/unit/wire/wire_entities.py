"""Random instances of any kio message class, every field away from its default."""

from __future__ import annotations

import random
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from types import NoneType, UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map

ALL_MESSAGES = [
    (key, version) for key, name in api_key_map.items() for version in sorted(schema_name_map[name])
]
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}


def _scalar(kafka_type: str, chance: random.Random) -> Any:
    if kafka_type in _BITS:
        bits = _BITS[kafka_type]
        return chance.choice([1, 2, 100, -2, (1 << bits - 1) - 1, -(1 << bits - 1)])
    if kafka_type in _UNSIGNED:
        return chance.choice([1, (1 << _UNSIGNED[kafka_type]) - 1])
    if kafka_type == "string":
        return chance.choice(["x", "topic-ä", "", "y" * 200])
    if kafka_type in ("bytes", "records"):
        return chance.randbytes(chance.choice([0, 1, 130]))
    if kafka_type == "uuid":
        return UUID(int=chance.getrandbits(127) + 1)
    if kafka_type == "bool":
        return chance.random() < 0.7
    if kafka_type == "error_code":
        return chance.choice(list(ErrorCode))
    if kafka_type.startswith("timedelta"):
        return timedelta(milliseconds=chance.choice([1, -1, 2**31 - 1, 12345]))
    if kafka_type == "datetime_i64":
        return datetime(2024, 5, 6, 7, 8, 9, 321000, tzinfo=UTC)
    assert kafka_type == "float64", kafka_type
    return 1.5


def random_entity(cls: Any, chance: random.Random) -> Any:
    values = {}
    for field in fields(cls):
        kind: Any = field.type
        nullable = False
        if get_origin(kind) is UnionType:
            nullable = NoneType in get_args(kind)
            kind = next(arg for arg in get_args(kind) if arg is not NoneType)
        if nullable and "tag" not in field.metadata and chance.random() < 0.2:
            values[field.name] = None
        elif get_origin(kind) is tuple:
            item: Any = get_args(kind)[0]
            number = chance.choice([0, 1, 1, 2])
            if is_dataclass(item):
                values[field.name] = tuple(random_entity(item, chance) for _ in range(number))
            else:
                values[field.name] = tuple(
                    _scalar(field.metadata["kafka_type"], chance) for _ in range(number)
                )
        elif is_dataclass(kind):
            values[field.name] = random_entity(kind, chance)
        else:
            values[field.name] = _scalar(field.metadata["kafka_type"], chance)
    return cls(**values)


def _kind_of(field: Any) -> Any:
    """A field's type without its None."""
    if get_origin(field.type) is UnionType:
        return next(arg for arg in get_args(field.type) if arg is not NoneType)
    return field.type


_SMALLEST: dict[str, Any] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": None,
    "bool": False,
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "datetime_i64": datetime(1970, 1, 1, tzinfo=UTC),
    "float64": 0.0,
}


def smallest_entity(cls: Any, **given: Any) -> Any:
    """An instance with empty strings, zeros and empty arrays but for the fields given, and without
    the tagged fields that may be left out."""
    values = {}
    for field in fields(cls):
        kind = _kind_of(field)
        if field.name in given:
            values[field.name] = given[field.name]
        elif "tag" in field.metadata and field.default is not MISSING:
            continue
        elif get_origin(kind) is tuple:
            values[field.name] = ()
        elif is_dataclass(kind):
            values[field.name] = smallest_entity(kind)
        else:
            values[field.name] = _SMALLEST.get(field.metadata["kafka_type"], 0)
    return cls(**values)


def crowded_entities(cls: Any, count: int) -> list[Any]:
    """For each array of a message, at any depth: one instance that holds `count` array elements,
    all but the way there in that array, and each the smallest that there can be.

    Not for arrays in tagged fields: those count themselves.
    """
    found: list[dict[str, Any]] = []
    for field in fields(cls):
        if "tag" in field.metadata:
            continue
        kind = _kind_of(field)
        if get_origin(kind) is tuple:
            item: Any = get_args(kind)[0]
            if is_dataclass(item):
                found.append({field.name: (smallest_entity(item),) * count})
                if count > 1:
                    found += [{field.name: (one,)} for one in crowded_entities(item, count - 1)]
            else:
                zero = _SMALLEST.get(field.metadata["kafka_type"], 0)
                found.append({field.name: (zero,) * count})
        elif is_dataclass(kind):
            found += [{field.name: one} for one in crowded_entities(kind, count)]
    return [smallest_entity(cls, **values) for values in found]
