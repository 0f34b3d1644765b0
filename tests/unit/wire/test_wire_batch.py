from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as PyBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as PyBuilder

from wire import batch
from wire.batch import build_batch, decode_records, decode_values, read_header
from wire.errors import DecodeError
from wire.records import put_varint, read_varint

RECORDS = [
    (1700000000000, b"key", b"value" * 50, (("h", b"x"), ("null", None), ("ünï", b""))),
    (1700000000005, None, b"", ()),
    (1699999999990, b"", None, ()),
    (1700000000001, b"k" * 300, b"v" * 70000, (("a", b"b" * 200),)),
]


def plain(records: list[batch.Record]) -> list[tuple[Any, ...]]:
    return [(r.timestamp, r.key, r.value, r.headers) for r in records]


def full_batch(codec: int = 0) -> bytes:
    return build_batch(
        RECORDS,
        base_offset=1 << 40,
        leader_epoch=7,
        codec=codec,
        producer_id=123456,
        producer_epoch=3,
        base_sequence=0x7FFFFFFE,
        transactional=True,
    )


@pytest.mark.parametrize("codec", range(5))
def test_a_built_batch_reads_back(codec: int) -> None:
    data = full_batch(codec)
    header = read_header(data)
    assert header.length == len(data)
    assert batch.crc_ok(data, 0, len(data))
    assert header.base_offset == 1 << 40
    assert header.next_offset == header.last_offset + 1 == header.base_offset + 4
    assert (header.leader_epoch, header.magic, header.codec, header.count) == (7, 2, codec, 4)
    assert (header.producer_id, header.producer_epoch) == (123456, 3)
    assert header.base_sequence == 0x7FFFFFFE
    assert header.last_sequence == 1  # wraps after 2^31-1
    assert header.is_transactional
    assert not header.is_control
    assert not header.has_delete_horizon
    assert header.timestamp_type == 0
    assert header.base_timestamp == RECORDS[0][0]
    assert header.max_timestamp == RECORDS[1][0]
    records = decode_records(data, 0, header)
    assert plain(records) == RECORDS
    assert [r.offset for r in records] == [header.base_offset + i for i in range(4)]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("position", [0, 13])
def test_aiokafka_reads_our_batches(codec: int, position: int) -> None:
    data = full_batch(codec)
    theirs = AioBatch(bytearray(data))
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.base_offset) == (123456, 1 << 40)
    got = [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert got == RECORDS
    padded = b"\xff" * position + data
    assert plain(decode_records(padded, position, read_header(padded, position))) == RECORDS


@pytest.mark.parametrize("codec", range(5))
def test_we_read_aiokafkas_batches(codec: int) -> None:
    builder = AioBuilder(2, codec, True, 99, 4, 5, 1 << 20)
    for i, (timestamp, key, value, headers) in enumerate(RECORDS):
        assert builder.append(i, timestamp, key, value, list(headers)) is not None
    data = bytes(builder.build())
    header = read_header(data)
    assert header.codec == codec
    assert batch.crc_ok(data, 0, header.length)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (99, 4, 5)
    assert plain(decode_records(data, 0, header)) == RECORDS


@pytest.mark.parametrize("codec", [0, 1, 3])
def test_kafka_python_and_we_read_each_other(codec: int) -> None:
    theirs = PyBatch(full_batch(codec))
    assert theirs.validate_crc()
    assert [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == RECORDS
    builder = PyBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for i, (timestamp, key, value, headers) in enumerate(RECORDS):
        assert builder.append(i, timestamp, key, value, list(headers)) is not None
    data = bytes(builder.build())
    assert batch.crc_ok(data, 0, len(data))
    assert plain(decode_records(data, 0, read_header(data))) == RECORDS


def test_uncompressed_bytes_are_those_of_other_builders() -> None:
    builder = PyBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for i, (timestamp, key, value, headers) in enumerate(RECORDS):
        builder.append(i, timestamp, key, value, list(headers))
    theirs = bytes(builder.build())
    # The leader epoch of a client's batch has no meaning; kafka-python writes its own.
    epoch = read_header(theirs).leader_epoch
    assert build_batch(RECORDS, leader_epoch=epoch) == theirs


def test_offsets_are_patched_without_touching_the_crc() -> None:
    data = bytearray(b"\x00" * 5 + build_batch(RECORDS))
    before = read_header(data, 5)
    batch.patch_offsets(memoryview(data), 5, 1 << 41, 12)
    after = read_header(data, 5)
    assert after == before._replace(base_offset=1 << 41, leader_epoch=12)
    assert batch.crc_ok(data, 5, after.length)
    assert decode_records(data, 5, after)[1].offset == (1 << 41) + 1


@pytest.mark.parametrize("codec", [0, 4])
def test_log_append_time_replaces_every_records_time(codec: int) -> None:
    data = bytearray(b"\x00" * 3 + build_batch(RECORDS, codec=codec))
    length = len(data) - 3
    batch.set_log_append_time(memoryview(data), 3, length, 1800000000000)
    header = read_header(data, 3)
    assert header.timestamp_type == 1
    assert header.codec == codec
    assert batch.crc_ok(data, 3, length)
    assert {r.timestamp for r in decode_records(data, 3, header)} == {1800000000000}
    assert AioBatch(bytearray(data[3:])).validate_crc()
    built = build_batch(RECORDS, timestamp_type=1)
    assert {r.timestamp for r in decode_records(built, 0, read_header(built))} == {
        max(r[0] for r in RECORDS)
    }


def test_headers_are_walked_up_to_a_partial_batch() -> None:
    batches = [build_batch(RECORDS[i:], base_offset=i * 10) for i in range(3)]
    data = b"".join(batches)
    found = list(batch.iter_headers(data))
    assert [header.base_offset for _, header in found] == [0, 10, 20]
    assert [pos for pos, _ in found] == [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    for cut in (1, 60, 61, len(batches[2]) - 1):
        assert len(list(batch.iter_headers(memoryview(data), 0, len(data) - cut))) == 2
    assert len(list(batch.iter_headers(data, len(batches[0])))) == 2
    with pytest.raises(DecodeError, match="magic 0"):
        list(batch.iter_headers(data + bytes(61)))


@pytest.mark.parametrize(
    "position,value",
    [
        (0, b"\xff"),
        (8, struct.pack(">i", 48)),
        (8, b"\xff"),
        (16, b"\x01"),
        (23, b"\x80"),
        (57, b"\x80"),
    ],
)
def test_impossible_headers_are_refused(position: int, value: bytes) -> None:
    data = bytearray(build_batch(RECORDS))
    data[position : position + len(value)] = value
    with pytest.raises(DecodeError):
        read_header(data)


def test_short_headers_are_refused() -> None:
    data = build_batch(RECORDS)
    for length in range(61):
        with pytest.raises(DecodeError):
            read_header(data[:length])
    assert read_header(data[:61]).length == len(data)
    with pytest.raises(DecodeError):
        read_header(data, len(data) - 60)


def test_a_flipped_bit_fails_the_crc() -> None:
    data = build_batch(RECORDS[:2])
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 0x10
        covered = not (position < 17)
        assert batch.crc_ok(broken, 0, len(broken)) != covered, position


@pytest.mark.parametrize("codec", range(5))
def test_records_that_contradict_the_header_are_refused(codec: int) -> None:
    data = build_batch(RECORDS, codec=codec)
    header = read_header(data)
    for count in (0, 3, 5, 1 << 30):
        with pytest.raises(DecodeError):
            decode_records(data, 0, header._replace(count=count))
    for cut in range(1, header.length - 61, 1 + header.length // 100):
        with pytest.raises(DecodeError):
            decode_records(data[:-cut], 0, header)
        with pytest.raises(DecodeError):
            decode_records(data[:-cut], 0, header._replace(length=header.length - cut))
    for codec_bits in (5, 6, 7):
        with pytest.raises(DecodeError):
            decode_records(data, 0, header._replace(attributes=codec_bits))
    with pytest.raises(DecodeError):
        decode_records(data, 9, header)


def test_an_empty_batch_as_compaction_leaves_it() -> None:
    data = bytearray(build_batch(RECORDS)[:61])
    struct.pack_into(">i", data, 8, 49)
    struct.pack_into(">i", data, 57, 0)
    header = read_header(data)
    assert decode_records(data, 0, header) == []
    assert header.next_offset == 4


def test_header_keys_that_are_not_utf8_keep_their_bytes() -> None:
    data = build_batch([(0, None, None, (("\udcff", b"1"),))])
    assert b"\xff" in data[61:]
    (record,) = decode_records(data, 0, read_header(data))
    assert build_batch([record[1:]]) == data


_bytes = st.none() | st.binary(max_size=40)
_records = st.lists(
    st.tuples(
        st.integers(0, 2**45),
        _bytes,
        _bytes,
        st.lists(st.tuples(st.text(max_size=5), _bytes), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


@given(_records, st.integers(0, 4), st.integers(0, 2**60))
def test_any_records_read_back(records: list[Any], codec: int, base_offset: int) -> None:
    data = build_batch(records, codec=codec, base_offset=base_offset)
    assert batch.crc_ok(data, 0, len(data))
    assert plain(decode_records(data, 0, read_header(data))) == records


def values_as_records_have_them(data: bytes, header: batch.BatchHeader) -> None:
    """The values alone are those of the records, and are refused where these are."""
    try:
        expected = [record.value for record in decode_records(data, 0, header)]
    except DecodeError:
        with pytest.raises(DecodeError):
            decode_values(data, 0, header)
    else:
        assert decode_values(data, 0, header) == expected


@given(_records, st.integers(0, 4))
def test_values_read_back_alone(records: list[Any], codec: int) -> None:
    data = build_batch(records, codec=codec)
    values_as_records_have_them(data, read_header(data))


_bare = st.sampled_from([None, b"", b"v", bytes(63), bytes(64), bytes(8191), bytes(8192)])


@given(st.lists(_bare, min_size=1, max_size=100), st.data())
def test_values_of_records_without_keys_read_back_alone(
    values: list[bytes | None], data: st.DataObject
) -> None:
    altered = bytearray(build_batch([(7, None, value, ()) for value in values]))
    header = read_header(altered)
    values_as_records_have_them(bytes(altered), header)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(61, min(len(altered) - 1, 90)))
        altered[at] = data.draw(st.integers(0, 255))
    values_as_records_have_them(bytes(altered), header)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_read_back(value: int) -> None:
    out = bytearray()
    put_varint(out, value)
    assert read_varint(bytes(out), 0) == (value, len(out))


@given(st.integers(0, 7), st.integers(0, 10), st.binary(max_size=100))
def test_random_records_only_ever_raise_decode_errors(codec: int, count: int, data: bytes) -> None:
    header = read_header(build_batch(RECORDS[:1]))
    header = header._replace(attributes=codec, count=count, length=61 + len(data))
    with contextlib.suppress(DecodeError):
        decode_records(bytes(61) + data, 0, header)
    values_as_records_have_them(bytes(61) + data, header)
    with contextlib.suppress(DecodeError):
        list(batch.iter_headers(data))


@given(st.integers(0, 4), st.data())
def test_altered_batches_only_ever_raise_decode_errors(codec: int, data: st.DataObject) -> None:
    altered = bytearray(build_batch(RECORDS[:3], codec=codec))
    for _ in range(data.draw(st.integers(1, 3))):
        altered[data.draw(st.integers(0, len(altered) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError):
        decode_records(bytes(altered), 0, read_header(altered))
