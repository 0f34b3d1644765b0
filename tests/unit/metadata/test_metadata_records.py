"""Record bytes: round trips at every version, damage, unknown types, the frame."""

import contextlib
import random
import subprocess
import sys
from uuid import UUID

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from metadata_samples import random_entity

from metadata.records import (
    RECORD_TYPES,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnknownRecord,
    decode,
    encode,
    encode_at,
    name_of,
    to_json,
    version_for,
)
from metadata.records.decoders import general_reader
from metadata.records.encoders import body_writer
from metadata.records.schema import schema_of
from wire.errors import DecodeError

ALL = [(cls, version) for cls in RECORD_TYPES for version in range(cls.MAX_VERSION + 1)]
EVERY = pytest.mark.parametrize(
    "cls, version", ALL, ids=[f"{cls.__name__}-{version}" for cls, version in ALL]
)


@EVERY
def test_round_trip(cls, version) -> None:
    rng = random.Random(cls.API_KEY * 100 + version)
    for _ in range(30):
        record = random_entity(cls, version, rng)
        value = encode(record, version)
        for buffer in (value, bytearray(value), memoryview(value)):
            decoded = decode(buffer)
            assert decoded == (cls.API_KEY, version, record)
            assert type(decoded.record) is cls
        assert encode(decoded.record, version) == value


@EVERY
def test_truncated_and_trailing_bytes(cls, version) -> None:
    record = random_entity(cls, version, random.Random(5))
    value = encode(record, version)
    for length in range(min(len(value), 400)):
        with pytest.raises(DecodeError):
            decode(value[:length])
    with pytest.raises(DecodeError, match="1 bytes after it"):
        decode(value + b"\x00")


@EVERY
def test_every_field_survives_away_from_its_default(cls, version) -> None:
    rng = random.Random(11)
    for schema in schema_of(cls):
        if schema.since > version:
            continue
        for _ in range(100):
            record = random_entity(cls, version, rng)
            if getattr(record, schema.name) != schema.default:
                break
        else:
            pytest.fail(f"no sample of {schema.name}")
        found = decode(encode(record, version)).record
        assert getattr(found, schema.name) == getattr(record, schema.name)


@examples(300)
@given(st.sampled_from(ALL), st.binary(max_size=80))
def test_random_bodies_raise_decode_errors_only(kind, body) -> None:
    cls, version = kind
    try:
        record = decode(bytes((1, cls.API_KEY, version)) + body).record
    except DecodeError:
        return
    encode(record, version)


@examples(300)
@given(st.binary(max_size=40))
def test_random_bytes_raise_decode_errors_only(data) -> None:
    with contextlib.suppress(DecodeError):
        decode(data)


@examples(300)
@given(st.integers(0, 2**32), st.data())
def test_flipped_bytes_raise_decode_errors_only(seed, data) -> None:
    rng = random.Random(seed)
    cls, version = rng.choice(ALL)
    value = bytearray(encode(random_entity(cls, version, rng), version))
    for _ in range(rng.randrange(1, 4)):
        value[rng.randrange(len(value))] = rng.randrange(256)
    with contextlib.suppress(DecodeError):
        decode(bytes(value))


HUGE = b"\xff\xff\xff\xff\x0f"


@pytest.mark.parametrize(
    "value",
    [
        b"\x01\x05\x02" + bytes(20) + b"\x01\x00\x05" + HUGE,
        b"\x01\x03\x02" + bytes(20) + HUGE,
        b"\x01\x00\x03" + bytes(29) + HUGE,
        b"\x01\x0e\x00" + HUGE,
        b"\x01\x02\x00" + HUGE,
        b"\x01\x14\x00" + HUGE,
    ],
)
def test_a_huge_announced_length_costs_nothing(value) -> None:
    """In a process of little memory: what is announced must not be allocated."""
    program = (
        "import resource, sys; from metadata.records import decode\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        "try: decode(bytes.fromhex(sys.argv[1]))\n"
        "except ValueError as error: print('refused', error)"
    )
    command = [sys.executable, "-c", program, value.hex()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout.startswith("refused"), done.stderr


def test_unknown_tagged_fields_are_passed_over() -> None:
    tail = b"\x02\x63\x03abc\xc8\x01\x02de"
    assert decode(b"\x01\x14\x00" + tail).record == NoOpRecord()
    change = PartitionChangeRecord(topic_id=UUID(int=0), leader=3)
    body = encode(change, 0)[:-7]  # without its tagged section: count, tag, size, int32
    with_others = body + b"\x03\x01\x04\x00\x00\x00\x03" + tail[1:]
    assert decode(with_others).record == change
    # Tags that a later version gave a meaning have none in an earlier one.
    later = encode(PartitionChangeRecord(eligible_leader_replicas=(1,)), 2)
    assert decode(b"\x01\x05\x00" + later[3:]).record == PartitionChangeRecord()


@pytest.mark.parametrize("cls", [PartitionRecord, PartitionChangeRecord, ConfigRecord])
@examples(300)
@given(seed=st.integers(0, 2**32))
def test_hand_written_decoders_equal_the_general_one(cls, seed) -> None:
    rng = random.Random(seed)
    version = rng.randrange(cls.MAX_VERSION + 1)
    value = bytearray(encode(random_entity(cls, version, rng), version))
    for _ in range(rng.randrange(3)):
        value[rng.randrange(3, len(value))] = rng.randrange(256)
    try:
        expected, end = general_reader(cls, version)(bytes(value), 3)
        assert end == len(value)
    except (DecodeError, AssertionError):
        with pytest.raises(DecodeError):
            decode(bytes(value))
    else:
        assert decode(bytes(value)).record == expected


@pytest.mark.parametrize("cls", [PartitionRecord, PartitionChangeRecord, ConfigRecord])
def test_hand_written_encoders_equal_the_generic_one(cls) -> None:
    rng = random.Random(3)
    for version in range(cls.MAX_VERSION + 1):
        generic = body_writer(cls, version)
        for _ in range(200):
            record = random_entity(cls, version, rng)
            out = bytearray((1, cls.API_KEY, version))
            generic(out, record)
            assert encode(record, version) == bytes(out)


def test_long_arrays_in_hand_written_encoders() -> None:
    for count in (126, 127, 128, 0x3FFE, 0x3FFF, 0x4000):
        record = PartitionChangeRecord(isr=tuple(range(count)))
        assert decode(encode(record, 2)).record == record


def test_unknown_types_and_newer_versions_are_kept() -> None:
    value = b"\x01\x63\x00body"
    assert decode(value) == (99, 0, UnknownRecord(99, 0, b"body"))
    assert encode(UnknownRecord(99, 0, b"body")) == value
    newer = b"\x01\x02\x09newer"
    assert decode(newer) == (2, 9, UnknownRecord(2, 9, b"newer"))
    assert encode(decode(newer).record) == newer
    big = UnknownRecord(300, 1, b"")
    assert decode(encode(big)).record == big
    assert (name_of(99), name_of(2)) == ("Unknown99", "TopicRecord")


@pytest.mark.parametrize(
    "value, reason",
    [
        (b"", "ends inside its frame"),
        (b"\x01\x02", "ends inside its frame"),
        (b"\x00\x02\x00abc", "frame version 0"),
        (b"\x02\x02\x00abc", "frame version 2"),
        (b"\x01\xff\xff\xff\xff\xff\x01", "more than 5 bytes"),
    ],
)
def test_bad_frames(value, reason) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode(value)


def test_a_field_that_the_version_lacks_is_refused() -> None:
    directory = UUID(int=77)
    with pytest.raises(ValueError, match="cannot hold Directories"):
        encode(PartitionRecord(directories=(directory,)), 0)
    with pytest.raises(ValueError, match="cannot hold EligibleLeaderReplicas"):
        encode(PartitionChangeRecord(eligible_leader_replicas=(1,)), 1)
    change = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, log_dirs=(directory,))
    with pytest.raises(ValueError, match="cannot hold LogDirs"):
        encode(change, 1)
    with pytest.raises(ValueError, match="no version 3"):
        encode(PartitionRecord(), 3)


def test_written_versions() -> None:
    assert [version_for(RegisterBrokerRecord, n) for n in (1, 7, 8, 16, 17, 25, 30)] == [
        *(0, 1, 2, 2, 3, 3, 4)
    ]
    assert [version_for(PartitionRecord, n) for n in (1, 16, 17, 22, 23, 25)] == [0, 0, 1, 1, 2, 2]
    assert [version_for(BrokerRegistrationChangeRecord, n) for n in (6, 7, 16, 17, 25, 30)] == [
        *(0, 1, 1, 2, 2, 3)
    ]
    assert version_for(TopicRecord, 25) == 0
    assert encode_at(PartitionChangeRecord(), 17)[2] == 1
    assert encode(PartitionChangeRecord())[2] == 2


def test_known_bytes() -> None:
    record = FeatureLevelRecord(name="metadata.version", feature_level=25)
    assert encode(record) == b"\x01\x0c\x00\x11metadata.version\x00\x19\x00"
    assert encode(NoOpRecord()) == b"\x01\x14\x00\x00"


def test_json_has_kafkas_names() -> None:
    change = PartitionChangeRecord(partition_id=3, topic_id=UUID(int=1), isr=(1,), leader=-1)
    assert to_json(change, 0) == {
        "PartitionId": 3,
        "TopicId": "AAAAAAAAAAAAAAAAAAAAAQ",
        "Isr": [1],
        "Leader": -1,
    }
    config = ConfigRecord(resource_type=2, resource_name="t", name="n", value=None)
    assert to_json(config, 0)["Value"] is None
    assert to_json(UnknownRecord(99, 0, b"ab")) == {"Body": "YWI="}
    assert "IsMigratingZkBroker" not in to_json(
        RegisterBrokerRecord(broker_id=1, broker_epoch=1), 1
    )
