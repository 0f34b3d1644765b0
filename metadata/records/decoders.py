"""Decoding of record bodies: a general reader on the schemas, and three written by hand.

PartitionRecord, PartitionChangeRecord and ConfigRecord are nearly all of a busy log and of a
snapshot, so theirs are plain code; tests hold them against the general reader. All of them check
a length against the bytes at hand before they allocate, and pass over tagged fields that they
don't know.
"""

import struct
from collections.abc import Callable
from dataclasses import Field, fields, make_dataclass
from dataclasses import field as dataclass_field
from functools import lru_cache
from typing import Any, Final
from uuid import UUID, SafeUUID

from metadata.records.schema import ZERO_UUID, FieldSchema, Record, schema_of
from metadata.records.types import (
    NO_LEADER_CHANGE,
    RECOVERY_RECOVERED,
    RECOVERY_UNCHANGED,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
)
from wire.entities import maker
from wire.errors import DecodeError
from wire.reader import read_entity, read_uvarint

BodyReader = Callable[[Any, int], tuple[Any, int]]
"""(buffer, position) -> (record, position after it)."""

_ID_AND_UUID: Final = struct.Struct(">iQQ")
_UUID: Final = struct.Struct(">QQ")
_LEADER_AND_EPOCHS: Final = struct.Struct(">iii")
_INT32: Final = struct.Struct(">i")
_INT8: Final = struct.Struct(">b")
_SHORT_ARRAYS: Final = tuple(struct.Struct(f">{count}i").unpack_from for count in range(8))

_new: Final = object.__new__
_put: Final = object.__setattr__
_UNKNOWN_SAFETY: Final = SafeUUID.unknown


@lru_cache(maxsize=16384)
def _uuid(high: int, low: int) -> UUID:
    """A UUID of two 64-bit halves. The same few topic and directory ids come over and over: one
    object for each saves a large image most of its memory, and map lookups a comparison."""
    made = _new(UUID)
    _put(made, "int", high << 64 | low)
    _put(made, "is_safe", _UNKNOWN_SAFETY)
    return made


# The most directories of one partition that are kept for the next that has the same.
_SHARED_MAX: Final = 8


@lru_cache(maxsize=16384)
def _uuids_of(raw: bytes) -> tuple[UUID, ...]:
    """The same for all directories of a partition's replicas."""
    halves = struct.unpack(f">{len(raw) // 8}Q", raw)
    return tuple(map(_uuid, halves[::2], halves[1::2]))


def _int32s(buffer: Any, position: int) -> tuple[tuple[int, ...] | None, int]:
    count = buffer[position]
    if count == 1:
        return (), position + 1
    if count < 0x80:
        start = position + 1
    else:
        count, start = read_uvarint(buffer, position)
    if count == 0:
        return None, start
    count -= 1
    end = start + 4 * count
    if end > len(buffer):
        raise DecodeError(f"array of {count} in {len(buffer) - start} bytes")
    if count < 8:
        return _SHORT_ARRAYS[count](buffer, start), end
    return struct.unpack_from(f">{count}i", buffer, start), end


def _uuids(buffer: Any, position: int) -> tuple[tuple[UUID, ...] | None, int]:
    count = buffer[position]
    if count < 0x80:
        start = position + 1
    else:
        count, start = read_uvarint(buffer, position)
    if count <= 1:
        return (None, start) if count == 0 else ((), start)
    count -= 1
    end = start + 16 * count
    if end > len(buffer):
        raise DecodeError(f"array of {count} in {len(buffer) - start} bytes")
    if count > _SHARED_MAX:
        return _uuids_of.__wrapped__(bytes(buffer[start:end])), end
    return _uuids_of(bytes(buffer[start:end])), end


def _null(**arrays: Any) -> DecodeError:
    name = next(name for name, found in arrays.items() if found is None)
    return DecodeError(f"{name} must not be null")


def _int8(buffer: Any, position: int) -> tuple[int, int]:
    return _INT8.unpack_from(buffer, position)[0], position + 1


def _int32(buffer: Any, position: int) -> tuple[int, int]:
    return _INT32.unpack_from(buffer, position)[0], position + 4


Tagged = dict[int, tuple[int, BodyReader]]
"""Tag -> (index into the values, reader)."""


def _read_tags(buffer: Any, position: int, tagged: Tagged, values: list[Any]) -> int:
    """Put what is there into `values`; the position after it."""
    count = buffer[position]
    if count < 0x80:
        position += 1
    else:
        count, position = read_uvarint(buffer, position)
    for _ in range(count):
        tag, size = buffer[position], buffer[position + 1]
        if tag < 0x80 and size < 0x80:
            position += 2
        else:
            tag, position = read_uvarint(buffer, position)
            size, position = read_uvarint(buffer, position)
        end = position + size
        if end > len(buffer):
            raise DecodeError(f"tagged field {tag} goes past the end")
        known = tagged.get(tag)
        if known is not None:
            index, read = known
            values[index], after = read(buffer, position)
            if after != end:
                raise DecodeError(f"tagged field {tag} isn't {size} bytes long")
        position = end
    return position


_PARTITION_TAGS: Final[tuple[Tagged, ...]] = (
    {0: (0, _int8)},
    {0: (0, _int8)},
    {0: (0, _int8), 1: (1, _int32s), 2: (2, _int32s)},
)


_NO_TAGS: Final = (RECOVERY_RECOVERED, None, None)
_make_partition: Final = maker(PartitionRecord)


def _partition_reader(version: int) -> BodyReader:
    tagged, has_directories = _PARTITION_TAGS[version], version >= 1

    def read(buffer: Any, position: int) -> tuple[PartitionRecord, int]:
        index, high, low = _ID_AND_UUID.unpack_from(buffer, position)
        replicas, position = _int32s(buffer, position + 20)
        isr, position = _int32s(buffer, position)
        removing, position = _int32s(buffer, position)
        adding, position = _int32s(buffer, position)
        leader, leader_epoch, partition_epoch = _LEADER_AND_EPOCHS.unpack_from(buffer, position)
        position += 12
        directories: tuple[UUID, ...] | None = ()
        if has_directories:
            directories, position = _uuids(buffer, position)
        if buffer[position] == 0:
            position += 1
            recovery, eligible, last_known = _NO_TAGS
        else:
            values: list[Any] = list(_NO_TAGS)
            position = _read_tags(buffer, position, tagged, values)
            recovery, eligible, last_known = values
        if (
            replicas is None
            or isr is None
            or removing is None
            or adding is None
            or directories is None
        ):
            raise _null(
                Replicas=replicas,
                Isr=isr,
                RemovingReplicas=removing,
                AddingReplicas=adding,
                Directories=directories,
            )
        record = _make_partition(
            index,
            _uuid(high, low),
            replicas,
            isr,
            removing,
            adding,
            leader,
            recovery,
            leader_epoch,
            partition_epoch,
            directories,
            eligible,
            last_known,
        )
        return record, position

    return read


_CHANGE_TAGS_0: Final[Tagged] = {
    0: (0, _int32s),
    1: (1, _int32),
    2: (2, _int32s),
    3: (3, _int32s),
    4: (4, _int32s),
    5: (5, _int8),
}
_CHANGE_TAGS_1: Final[Tagged] = {**_CHANGE_TAGS_0, 8: (6, _uuids)}
_CHANGE_TAGS_2: Final[Tagged] = {**_CHANGE_TAGS_1, 6: (7, _int32s), 7: (8, _int32s)}
_CHANGE_TAGS: Final = (_CHANGE_TAGS_0, _CHANGE_TAGS_1, _CHANGE_TAGS_2)
# In the order of the record's fields behind its partition and topic.
_UNCHANGED: Final[list[Any]] = [
    None,
    NO_LEADER_CHANGE,
    None,
    None,
    None,
    RECOVERY_UNCHANGED,
    *[None] * 3,
]


_make_partition_change: Final = maker(PartitionChangeRecord)


def _partition_change_reader(version: int) -> BodyReader:
    tagged = _CHANGE_TAGS[version]

    def read(buffer: Any, position: int) -> tuple[PartitionChangeRecord, int]:
        index, high, low = _ID_AND_UUID.unpack_from(buffer, position)
        values = _UNCHANGED.copy()
        position = _read_tags(buffer, position + 20, tagged, values)
        return _make_partition_change(index, _uuid(high, low), *values), position

    return read


def _string(buffer: Any, position: int) -> tuple[str | None, int]:
    count, start = read_uvarint(buffer, position)
    if count == 0:
        return None, start
    end = start + count - 1
    if end > len(buffer):
        raise DecodeError(f"string of {count - 1} bytes, {len(buffer) - start} left")
    try:
        return str(buffer[start:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise DecodeError("a string is not UTF-8") from error


_make_config: Final = maker(ConfigRecord)


def _read_config(buffer: Any, position: int) -> tuple[ConfigRecord, int]:
    resource_type, position = _int8(buffer, position)
    resource, position = _string(buffer, position)
    name, position = _string(buffer, position)
    value, position = _string(buffer, position)
    if resource is None or name is None:
        raise DecodeError("ResourceName and Name must not be null")
    position = _read_tags(buffer, position, {}, [])
    return _make_config(resource_type, resource, name, value), position


def _zero_uuid_fixer(schemas: tuple[FieldSchema, ...]) -> Callable[[Any], None]:
    """The general reader gives the zero UUID as None, kio's custom; this puts the zero back."""
    singles = [f.name for f in schemas if f.kafka_type == "uuid" and not f.is_array]
    arrays = [f.name for f in schemas if f.kafka_type == "uuid" and f.is_array]

    def fix(record: Any) -> None:
        for name in singles:
            if getattr(record, name) is None:
                _put(record, name, ZERO_UUID)
        for name in arrays:
            value = getattr(record, name)
            if value and None in value:
                _put(record, name, tuple(ZERO_UUID if u is None else u for u in value))

    return fix


def _copy_of(item: Field[Any]) -> Any:
    return dataclass_field(metadata=item.metadata, default=item.default)


def _version_class(cls: type[Record], version: int) -> type[Any]:
    """A class with only the fields that this version of the record has."""
    present = [
        (item.name, item.type, _copy_of(item))
        for item in fields(cls)  # type: ignore[arg-type]
        if item.metadata["since"] <= version
    ]
    namespace = {"__flexible__": True}
    name = f"{cls.__name__}V{version}"
    return make_dataclass(name, present, kw_only=True, slots=True, namespace=namespace)


def general_reader(cls: type[Record], version: int) -> BodyReader:
    """The reader of any record's body, made from its schema."""
    schemas = schema_of(cls)
    fix = _zero_uuid_fixer(schemas)
    whole = all(f.since <= version for f in schemas)
    source: Any = cls if whole else _version_class(cls, version)
    names = [f.name for f in schemas if f.since <= version]

    def read(buffer: Any, position: int) -> tuple[Any, int]:
        record, position = read_entity(source, buffer, position)
        if not whole:
            record = cls(**{name: getattr(record, name) for name in names})
        fix(record)
        return record, position

    return read


def body_reader(cls: type[Record], version: int) -> BodyReader:
    """The reader of a record type in one of its versions. It raises DecodeError, and IndexError
    or struct.error where the bytes end too early."""
    if cls is PartitionRecord:
        return _partition_reader(version)
    if cls is ConfigRecord:
        return _read_config
    if cls is PartitionChangeRecord:
        return _partition_change_reader(version)
    return general_reader(cls, version)
