"""What a broker refuses of a client's batch, and with which code."""

import pytest
from cleaning_helpers import forged
from storage_helpers import batch

from storage.config import LogConfig
from storage.validation import InvalidRecords, validate_batch
from wire.batch import build_batch, crc_ok, decode_records, read_header
from wire.errors import ErrorCode, KafkaError
from wire.records import put_varint

NOW = 1_000_000
DEFAULT = LogConfig()


def code_of(data, config=DEFAULT) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        validate_batch(data, config, NOW)
    assert caught.value.message
    return caught.value.code


def edited(at, value, data=None):
    """A batch with some header bytes changed and the CRC made right again."""
    from crc32c import crc32c

    data = data or batch(3, time=NOW)
    data[at : at + len(value)] = value
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return data


def test_sound_batches_pass():
    for data in (
        batch(3, time=NOW),
        batch(1, time=NOW, codec=4),
        batch(2, time=NOW, producer_id=0, producer_epoch=0, base_sequence=0),
        bytes(batch(3, time=NOW + 3_600_000 - 2)),
    ):
        assert validate_batch(data, DEFAULT, NOW) == read_header(data)


def test_each_rule_has_its_code():
    assert code_of(b"") == ErrorCode.corrupt_message
    assert code_of(batch(1)[:60]) == ErrorCode.corrupt_message
    assert code_of(batch(1)[:-1]) == ErrorCode.corrupt_message
    flipped = batch(1)
    flipped[70] ^= 1
    assert code_of(flipped) == ErrorCode.corrupt_message
    assert code_of(batch(1) + batch(1)) == ErrorCode.invalid_record
    assert code_of(edited(16, b"\x01")) == ErrorCode.invalid_record
    assert code_of(edited(0, bytes(7) + b"\x01")) == ErrorCode.invalid_record
    assert code_of(edited(26, b"\x05")) == ErrorCode.invalid_record
    assert code_of(edited(57, bytes(4))) == ErrorCode.invalid_record
    assert code_of(edited(22, b"\x05")) == ErrorCode.unsupported_compression_type
    assert code_of(batch(1, time=NOW, control=True)) == ErrorCode.invalid_record
    assert code_of(batch(1, time=NOW, transactional=True)) == ErrorCode.invalid_record
    assert code_of(batch(1, time=NOW, producer_id=1)) == ErrorCode.invalid_record
    assert code_of(batch(1, time=NOW, producer_id=1, base_sequence=0)) == ErrorCode.invalid_record
    assert code_of(batch(1, time=NOW + 3_600_001)) == ErrorCode.invalid_timestamp


def test_sizes():
    data = batch(10, size=100, time=NOW)
    assert code_of(data, LogConfig(max_message_bytes=len(data) - 1)) == (
        ErrorCode.message_too_large
    )
    assert code_of(data, LogConfig(segment_bytes=len(data) - 1)) == (
        ErrorCode.record_list_too_large
    )
    validate_batch(data, LogConfig(max_message_bytes=len(data), segment_bytes=len(data)), NOW)


def test_compacted_topics_need_keys_and_tell_which_records_lack_one():
    data = bytearray(
        build_batch([(NOW, b"k", b"v", ()), (NOW, None, b"v", ()), (NOW, None, None, ())])
    )
    validate_batch(data, DEFAULT, NOW)
    with pytest.raises(InvalidRecords) as caught:
        validate_batch(data, LogConfig(cleanup_compact=True), NOW)
    assert caught.value.code == ErrorCode.invalid_record
    assert [place for place, _ in caught.value.record_errors] == [1, 2]


@pytest.mark.parametrize("delta", [0, 2, -1])
def test_compacted_topics_need_offsets_as_they_will_be(delta):
    zigzag = (delta << 1) ^ (delta >> 63)

    def edit(raw):
        second = raw[0] // 2 + 1
        return raw[: second + 3] + bytes([zigzag]) + raw[second + 4 :]

    records = [(NOW, b"k", b"v", ()), (NOW, b"k", b"v", ())]
    data = forged(build_batch(records), edit)
    validate_batch(data, DEFAULT, NOW)
    with pytest.raises(InvalidRecords, match="consecutive") as caught:
        validate_batch(data, LogConfig(cleanup_compact=True), NOW)
    assert [place for place, _ in caught.value.record_errors] == [1]


def test_compacted_topics_need_times_of_64_bits():
    raw = bytearray(1)
    put_varint(raw, 2**63 - 1)
    raw += b"\x00\x02k\x02v\x00"
    data = forged(build_batch([(NOW, b"k", b"v", ())]), lambda _: bytes([len(raw) * 2]) + raw)
    validate_batch(data, DEFAULT, NOW)
    assert code_of(data, LogConfig(cleanup_compact=True)) == ErrorCode.invalid_record


def test_timestamps_have_an_oldest_if_configured():
    data = batch(3, time=NOW - 100, step=-1)
    config = LogConfig(timestamp_before_max_ms=101)
    with pytest.raises(InvalidRecords) as caught:
        validate_batch(data, config, NOW)
    assert caught.value.code == ErrorCode.invalid_timestamp
    assert [place for place, _ in caught.value.record_errors] == [2]


def test_log_append_time_is_written_in_place():
    data = batch(3, time=5)
    config = LogConfig(log_append_time=True, timestamp_before_max_ms=1)
    header = validate_batch(data, config, NOW)
    assert (header.timestamp_type, header.max_timestamp) == (1, NOW)
    assert crc_ok(data, 0, len(data))
    assert [record.timestamp for record in decode_records(data, 0, header)] == [NOW] * 3


def test_records_that_contradict_the_header_are_corrupt_where_they_are_read():
    data = edited(57, (2).to_bytes(4, "big"), edited(23, (1).to_bytes(4, "big")))
    assert code_of(data, LogConfig(cleanup_compact=True)) == ErrorCode.corrupt_message
