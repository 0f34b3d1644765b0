"""Records of `__consumer_offsets`: round trips, versions, damage."""

from dataclasses import fields
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.group_records import (
    VALUE_OF,
    OffsetCommitKey,
    OffsetCommitValue,
    decode,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from wire.group_records.schema import (
    BYTES,
    INT8,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UUID_TYPE,
    Struct,
    struct_codec,
)

TEXT = st.text(max_size=40)
PLAIN = {
    INT8: st.integers(-(2**7), 2**7 - 1),
    INT32: st.integers(-(2**31), 2**31 - 1),
    INT64: st.integers(-(2**63), 2**63 - 1),
    STRING: TEXT,
    NULLABLE_STRING: st.none() | TEXT,
    BYTES: st.binary(max_size=40),
    UUID_TYPE: st.uuids() | st.just(UUID(int=0)),
}
# `array` makes a type of its own at each call.
ARRAYS = {
    "racks": st.lists(TEXT, max_size=3).map(tuple),
    "subscribed_topic_names": st.lists(TEXT, max_size=3).map(tuple),
    "topics": st.lists(TEXT, max_size=3).map(tuple),
    "partitions": st.lists(PLAIN[INT32], max_size=200).map(tuple),
    "assignment_epochs": st.none() | st.lists(PLAIN[INT32], max_size=3).map(tuple),
}


def strategy_of(item, version):
    kind = item.metadata["kind"]
    if isinstance(kind, Struct):
        inner = entities(kind.cls, version)
        many = st.lists(inner, max_size=3).map(tuple)
        return many if kind.many else st.none() | inner
    return PLAIN[kind] if kind in PLAIN else ARRAYS[item.name]


def entities(cls, version=0):
    """Any object of a class that the version can hold."""
    present = {
        item.name: strategy_of(item, version)
        for item in fields(cls)
        if item.metadata["since"] <= version <= item.metadata["until"]
    }
    return st.builds(cls, **present)


KINDS = sorted(VALUE_OF, key=lambda cls: cls.VERSION)
VERSIONS = [(kind, version) for kind in KINDS for version in range(VALUE_OF[kind].MAX_VERSION + 1)]


@pytest.mark.parametrize("kind,version", VERSIONS, ids=lambda v: getattr(v, "NAME", v))
@given(data=st.data())
def test_round_trip(kind, version, data):
    key = data.draw(entities(kind))
    value = data.draw(entities(VALUE_OF[kind], version))
    key_bytes, value_bytes = encode_key(key), encode_value(value, version)
    assert value_bytes[:2] == version.to_bytes(2, "big")
    assert decode(key_bytes, value_bytes) == (key, value)
    assert decode(key_bytes, None) == (key, None)


@pytest.mark.parametrize("version", [3, 4])
@given(data=st.data())
def test_the_plain_code_of_offsets_is_the_general_one(version, data):
    key = data.draw(entities(OffsetCommitKey))
    value = data.draw(entities(OffsetCommitValue, version))
    general_key, general_value = bytearray(b"\0\1"), bytearray([0, version])
    struct_codec(OffsetCommitKey, 0, False).write(general_key, key)
    struct_codec(OffsetCommitValue, version, version == 4).write(general_value, value)
    assert encode_key(key) == general_key
    assert decode_key(bytes(general_key)) == key
    assert encode_value(value, version) == general_value
    assert decode_value(OffsetCommitKey, bytes(general_value)) == value
    if version == 4:
        assert encode_value(value) == general_value
