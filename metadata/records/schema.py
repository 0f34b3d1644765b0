"""How a metadata record's schema is stated, once, on its dataclass.

Each field says its Kafka type, the record versions that carry it, its tag if it is a tagged
field, and whether it may be null. The field metadata has the names that kio gives its own
(`kafka_type`, `tag`), so that one reader serves both; the same statement drives encoding and the
JSON form.
"""

from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, Final, TypeVar
from uuid import UUID

ZERO_UUID: Final = UUID(int=0)
REQUIRED: Final = object()

T = TypeVar("T", bound=type)


class Entity:
    """Marks the classes of this package. All versions are flexible (KIP-482), which is what the
    reader looks at."""

    __slots__ = ()
    __flexible__: ClassVar[bool] = True


class Record(Entity):
    """Base of all metadata records. `API_KEY` and the version range are KIP-631's."""

    __slots__ = ()
    API_KEY: ClassVar[int]
    NAME: ClassVar[str]
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int]


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """What one field of a record is on the wire."""

    name: str
    kafka_name: str
    kafka_type: str
    since: int
    tag: int | None
    nullable: bool
    is_array: bool
    nested: type[Entity] | None
    default: Any


def kafka(
    kafka_type: str | None = None,
    *,
    default: Any = REQUIRED,
    since: int = 0,
    tag: int | None = None,
    nullable: bool = False,
) -> Any:
    """Declare a field. `kafka_type` is None for arrays of nested structs; `default` may be left
    out where Kafka's schema has no default, and the caller must then give the value."""
    metadata: dict[str, Any] = {"since": since, "nullable": nullable}
    if kafka_type is not None:
        metadata["kafka_type"] = kafka_type
    if tag is not None:
        metadata["tag"] = tag
    if default is REQUIRED:
        return field(metadata=metadata)
    return field(metadata=metadata, default=default)


def camel_case(name: str) -> str:
    """`eligible_leader_replicas` -> `EligibleLeaderReplicas`, the name in Kafka's schema."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _field_schema(item: Field[Any]) -> FieldSchema:
    text = str(item.type)
    nested = item.metadata.get("kafka_type") is None
    element: type[Entity] | None = item.type.__args__[0] if nested else None  # type: ignore[union-attr]
    return FieldSchema(
        name=item.name,
        kafka_name=camel_case(item.name),
        kafka_type=item.metadata.get("kafka_type", "struct"),
        since=item.metadata["since"],
        tag=item.metadata.get("tag"),
        nullable=item.metadata["nullable"],
        is_array=text.startswith("tuple["),
        nested=element,
        default=item.default,
    )


# A memo: what it holds follows from the class alone (functools.cache takes no classes, for mypy).
_SCHEMAS: Final[dict[Any, tuple[FieldSchema, ...]]] = {}


def schema_of(cls: type[Entity]) -> tuple[FieldSchema, ...]:
    """The fields of a record or nested struct, in wire order (tagged ones are among them)."""
    found = _SCHEMAS.get(cls)
    if found is None:
        found = tuple(_field_schema(item) for item in fields(cls))  # type: ignore[arg-type]
        _SCHEMAS[cls] = found
    return found


def record(api_key: int, max_version: int) -> Callable[[T], T]:
    """Class decorator naming a record's API key and newest version (the oldest is always 0)."""

    def mark(cls: T) -> T:
        cls.API_KEY = api_key  # type: ignore[attr-defined]
        cls.NAME = cls.__name__  # type: ignore[attr-defined]
        cls.MAX_VERSION = max_version  # type: ignore[attr-defined]
        return cls

    return mark
