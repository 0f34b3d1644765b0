"""Random instances of any kio message class, every field away from its default."""

from __future__ import annotations

import random
from dataclasses import fields, is_dataclass
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
