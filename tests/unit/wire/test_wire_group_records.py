"""Records of `__consumer_offsets`: round trips, versions, damage."""

import json
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from wire.errors import DecodeError
from wire.group_records import (
    VALUE_OF,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownKey,
    check_offset,
    decode,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    offset_names,
    to_json,
    written_version,
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
@examples(50)
@given(data=st.data())
def test_round_trip(kind, version, data):
    key = data.draw(entities(kind))
    value = data.draw(entities(VALUE_OF[kind], version))
    key_bytes, value_bytes = encode_key(key), encode_value(value, version)
    assert value_bytes[:2] == version.to_bytes(2, "big")
    assert decode(key_bytes, value_bytes) == (key, value)
    assert decode(key_bytes, None) == (key, None)


@pytest.mark.parametrize("version", [3, 4])
@examples(50)
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


# What librdkafka and Java clients of both protocols left behind on a JVM broker 4.4.0, and how its
# dump tool reads that: offsets, two classic groups, two KIP-848 groups with a regular expression,
# a static member, a rack, a classic member among newer ones; deleted members, groups and offsets.
GOLDEN = [
    json.loads(line)
    for line in Path(__file__)
    .with_name("group_records_of_kafka_4_4.jsonl")
    .read_text()
    .splitlines()
]


def without_client_bytes(value):
    """The dump tool reads the members' own bytes, too; here they are left out."""
    members = [
        {name: one[name] for name in one if name not in ("subscription", "assignment")}
        for one in value["members"]
    ]
    return {**value, "members": members}


@pytest.mark.parametrize("row", GOLDEN, ids=range(len(GOLDEN)))
def test_bytes_of_a_jvm_broker(row):
    key_bytes = bytes.fromhex(row["key"])
    value_bytes = None if row["value"] is None else bytes.fromhex(row["value"])
    key, value = decode(key_bytes, value_bytes)
    read = row["read"]
    assert (str(key.VERSION), to_json(key)) == (read["key"]["type"], read["key"]["data"])
    assert encode_key(key) == key_bytes
    if value_bytes is None:
        assert value is read["value"] is None
        return
    version = written_version(value)
    found, theirs = to_json(value, version), read["value"]["data"]
    if isinstance(value, GroupMetadataValue):
        found, theirs = without_client_bytes(found), without_client_bytes(theirs)
    assert (str(version), found) == (read["value"]["version"], theirs)
    assert encode_value(value) == value_bytes


def test_the_jvms_bytes_are_of_every_kind_it_writes():
    seen = {(row["read"]["key"]["type"], row["value"] is None) for row in GOLDEN}
    kinds = {str(kind.VERSION) for kind in KINDS} - {"0"}
    assert {kind for kind, _ in seen} == kinds
    assert {kind for kind, gone in seen if gone} == kinds - {"16"}


def test_a_member_of_the_classic_protocol_is_there():
    members = [
        decode(bytes.fromhex(row["key"]), bytes.fromhex(row["value"]))[1]
        for row in GOLDEN
        if row["value"] and row["read"]["key"]["type"] == "5"
    ]
    classic = [one.classic_member_metadata for one in members if one.classic_member_metadata]
    assert classic
    assert [one.name for one in classic[0].supported_protocols] == ["range", "roundrobin"]


@pytest.mark.parametrize("row", GOLDEN, ids=range(len(GOLDEN)))
def test_damaged_bytes_are_refused(row):
    key = bytes.fromhex(row["key"])
    for end in range(len(key)):
        with pytest.raises(DecodeError, match="key"):
            decode_key(key[:end])
    with pytest.raises(DecodeError, match="1 bytes after it: 00"):
        decode_key(key + b"\0")
    if row["value"] is None:
        return
    value, kind = bytes.fromhex(row["value"]), type(decode_key(key))
    for end in range(len(value)):
        with pytest.raises(DecodeError, match=f"^{kind.NAME} value.*bytes?"):
            decode_value(kind, value[:end])
    with pytest.raises(DecodeError, match="1 bytes after it: 2a"):
        decode_value(kind, value + b"*")


@examples(50)
@given(row=st.sampled_from(GOLDEN), data=st.data())
def test_any_bytes_are_read_or_refused(row, data):
    """Whatever is read says the same when it is written and read again."""
    kind = type(decode_key(bytes.fromhex(row["key"])))
    value = bytearray(bytes.fromhex(row["value"] or "0000"))
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode_value(kind, bytes(value))
    except DecodeError:
        return
    version = int.from_bytes(value[:2], "big")
    assert decode_value(kind, encode_value(found, version)) == found


@examples(50)
@given(
    value=entities(OffsetCommitValue),
    metadata=st.just("") | TEXT,
    place=st.integers(0, 60),
    byte=st.integers(0, 255),
    size=st.integers(0, 60),
)
def test_an_offset_can_be_checked_without_an_object(value, metadata, place, byte, size):
    """Whatever one byte is changed, and wherever the bytes end."""
    plain = bytearray(encode_value(replace(value, metadata=metadata, expire_timestamp=-1)))
    plain[place % len(plain)] = byte
    for raw in (bytes(plain), bytes(plain[:size])):
        assert _refusal(check_offset, raw) == _refusal(partial(decode_value, OffsetCommitKey), raw)


def _refusal(read, raw):
    try:
        read(raw)
    except DecodeError as error:
        return str(error)
    return None


@examples(50)
@given(st.sampled_from(GOLDEN), st.integers(0, 60))
def test_what_an_offsets_key_names_is_found_without_an_object(row, size):
    key = bytes.fromhex(row["key"])
    names = offset_names(key)
    found = decode_key(key)
    if names is None:
        assert not isinstance(found, OffsetCommitKey)
    else:
        assert OffsetCommitKey(*names) == found
    if offset_names(key[:size]) is not None:
        assert isinstance(decode_key(key[:size]), OffsetCommitKey)


def test_an_error_names_place_and_value():
    value = OffsetCommitValue(5, 1, "note", 7)
    damaged = encode_value(value, 3).replace(b"note", b"no\xffe")
    with pytest.raises(
        DecodeError, match="OffsetCommit value version 3: metadata: byte 16: not UTF-8: 6e6fff65"
    ):
        decode_value(OffsetCommitKey, damaged)
    with pytest.raises(DecodeError, match="version 9, 0 to 4 are known"):
        decode_value(OffsetCommitKey, b"\0\x09" + damaged[2:])
    with pytest.raises(
        DecodeError, match=r"OffsetCommit key: topic: byte 5: 29797 bytes announced, 1 left"
    ):
        decode_key(b"\0\1\0\1gtest"[:8])
    with pytest.raises(DecodeError, match="a key of 1 bytes: 07"):
        decode_key(b"\7")


def test_unknown_kinds_are_values_of_their_own():
    body = b"\0\1share"
    for version in (-3, 9, 10, 17, 0x7FFF):
        key = version.to_bytes(2, "big", signed=True) + body
        assert decode(key, b"anything") == (UnknownKey(version, body), None)
        assert encode_key(UnknownKey(version, body)) == key


def test_a_version_refuses_what_it_cannot_hold():
    with pytest.raises(ValueError, match="OffsetCommitValue has no version 5"):
        encode_value(OffsetCommitValue(1), 5)
    # Kafka leaves these out where an older version lacks them, and so do we.
    value = OffsetCommitValue(1, 2, "", 3, 4, UUID(int=5))
    assert decode_value(OffsetCommitKey, encode_value(value, 2)) == OffsetCommitValue(1, -1, "", 3)
    assert written_version(value) == 1
    assert decode_value(OffsetCommitKey, encode_value(value)) == replace(
        value, leader_epoch=-1, topic_id=UUID(int=0)
    )


def test_unknown_tagged_fields_are_passed_over():
    plain = encode_value(OffsetCommitValue(1, 2, "", 3), 4)
    assert plain[-1] == 0
    more = plain[:-1] + b"\2\0\x10" + bytes(15) + b"\7" + b"\5\2ab"
    assert decode_value(OffsetCommitKey, more) == OffsetCommitValue(1, 2, "", 3, -1, UUID(int=7))


def test_an_announced_length_takes_no_memory():
    head = encode_value(
        GroupMetadataValue(protocol_type="", generation=1, protocol=None, leader=None, members=())
    )[:-4]
    with pytest.raises(DecodeError, match="members: byte 20: array of 2147483647 in 0 bytes"):
        decode_value(GroupMetadataKey, head + b"\x7f\xff\xff\xff")
