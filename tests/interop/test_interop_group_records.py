"""Records of `__consumer_offsets` that we wrote, as JVM Kafka's dump tool reads them."""

import json
import random
import re
from dataclasses import fields
from uuid import UUID

import kafka_jvm
import pytest
from dump_tool import dump

from wire.batch import build_batch
from wire.group_records import VALUE_OF, encode_key, encode_value, to_json
from wire.group_records.schema import (
    BYTES,
    INT8,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UUID_TYPE,
    Struct,
)

pytestmark = pytest.mark.interop

ROUNDS = 20
LINE = re.compile(r"^\| offset: (\d+) .*? key: (\{.*?\}\}) payload: (.*)$", re.MULTILINE)
TEXTS = ("", "group", "süß", "a longer name, " * 12)


def sample(kind, name, chance, version):
    """Something that a field of this type can hold; clients' own bytes are left empty, which the
    dump tool doesn't read as a subscription."""
    if isinstance(kind, Struct):
        if not kind.many:
            return chance.choice((None, sample_of(kind.cls, chance, version)))
        return tuple(sample_of(kind.cls, chance, version) for _ in range(chance.randrange(3)))
    if kind in (STRING, NULLABLE_STRING):
        return chance.choice((*TEXTS, None) if kind == NULLABLE_STRING else TEXTS)
    if kind == BYTES:
        return chance.randbytes(5) if name == "metadata" else b""
    if kind == UUID_TYPE:
        return UUID(bytes=chance.randbytes(16))
    bits = {INT8: 8, INT32: 32, INT64: 64}.get(kind)
    if bits is not None:
        return chance.randrange(-(1 << bits - 1), 1 << bits - 1)
    count = chance.randrange(4)
    if name in ("partitions", "assignment_epochs"):
        return tuple(chance.randrange(1 << 31) for _ in range(count))
    return tuple(chance.choice(TEXTS) for _ in range(count))


def sample_of(cls, chance, version):
    """An object of the class with every field that the version has drawn."""
    present = [
        item for item in fields(cls) if item.metadata["since"] <= version <= item.metadata["until"]
    ]
    return cls(
        **{item.name: sample(item.metadata["kind"], item.name, chance, version) for item in present}
    )


def written(chance):
    """Keys, values and versions: of each kind in each version, and tombstones. The legacy kind
    has only its first version in this tool."""
    for kind, value_class in VALUE_OF.items():
        newest = value_class.MAX_VERSION if kind.VERSION else 0
        for version in range(newest + 1):
            for _ in range(ROUNDS):
                yield sample_of(kind, chance, 0), sample_of(value_class, chance, version), version
        yield sample_of(kind, chance, 0), None, None


def test_the_dump_tool_reads_the_same(tmp_path):
    rows = list(written(random.Random(8)))
    records = [
        (1_700_000_000_000, encode_key(key), value and encode_value(value, version), ())
        for key, value, version in rows
    ]
    folder = tmp_path / "__consumer_offsets-0"
    folder.mkdir()
    path = folder / "00000000000000000000.log"
    path.write_bytes(build_batch(records))
    read = LINE.findall(dump(kafka_jvm.NEWEST_VERSION, [path], "--offsets-decoder"))
    assert [int(offset) for offset, _, _ in read] == list(range(len(rows)))
    for (key, value, version), (_, their_key, their_value) in zip(rows, read, strict=True):
        assert json.loads(their_key) == {"type": str(key.VERSION), "data": to_json(key)}
        if value is None:
            assert their_value == "<DELETE>"
            continue
        ours = {"version": str(version), "data": to_json(value, version)}
        assert json.loads(their_value) == ours
