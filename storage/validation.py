"""What a broker checks in a batch that a client sent.

Looks at the header and the CRC; single records are decoded only where a rule asks for it
(keys on compacted topics, an oldest allowed timestamp).
"""

from __future__ import annotations

from storage.config import LogConfig
from storage.errors import CorruptBatch
from wire.batch import (
    HEADER_SIZE,
    BatchHeader,
    Record,
    crc_ok,
    decode_records,
    read_header,
    set_log_append_time,
)
from wire.errors import DecodeError, ErrorCode, KafkaError
from world.env import Buffer

_NO_LIMIT = 2**63 - 1
_LAST_CODEC = 4


class InvalidRecords(KafkaError):
    """Single records broke a rule; `record_errors` has (place in the batch, message) of each,
    for the response's RecordErrors."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def validate_batch(data: Buffer, config: LogConfig, wall_ms: int) -> BatchHeader:
    """Check one partition's records of a Produce request: exactly one sound batch.

    Returns its header as sent. On a topic with log append time, the time is written into
    `data` (which must be writable then). Raises KafkaError with the code that Kafka gives.
    """
    size = len(data)
    header = _one_batch(data, size)
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"a batch of {size} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    if size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.record_list_too_large,
            f"a batch of {size} bytes, segment.bytes is {config.segment_bytes}",
        )
    _check_header(header)
    if not crc_ok(data, 0, size):
        raise CorruptBatch("the batch's CRC is wrong")
    _check_records(data, header, config, wall_ms)
    if config.log_append_time:
        set_log_append_time(data, 0, size, wall_ms)
        return read_header(data)
    return header


def _one_batch(data: Buffer, size: int) -> BatchHeader:
    if size >= HEADER_SIZE and data[16] != 2:
        raise KafkaError(
            ErrorCode.invalid_record, f"a batch of magic {data[16]}, only 2 is allowed"
        )
    try:
        header = read_header(data)
    except DecodeError as error:
        raise CorruptBatch(str(error)) from error
    if header.length > size:
        raise CorruptBatch(f"a batch of {header.length} bytes in {size} bytes of records")
    if header.length < size:
        raise KafkaError(
            ErrorCode.invalid_record, "a partition's records must be exactly one batch"
        )
    return header


def _check_header(header: BatchHeader) -> None:
    rule = None
    if header.base_offset != 0:
        rule = f"base offset must be 0, is {header.base_offset}"
    elif header.count != header.last_offset_delta + 1 or header.count == 0:
        rule = f"{header.count} records with a last offset delta of {header.last_offset_delta}"
    elif header.is_control:
        rule = "clients can't write control batches"
    elif header.producer_id >= 0 and header.base_sequence < 0:
        rule = f"producer {header.producer_id} sent no sequence"
    elif header.producer_id >= 0 and header.producer_epoch < 0:
        rule = f"producer {header.producer_id} sent no epoch"
    elif header.is_transactional and header.producer_id < 0:
        rule = "a transactional batch needs a producer id"
    elif header.codec > _LAST_CODEC:
        raise KafkaError(
            ErrorCode.unsupported_compression_type, f"codec {header.codec} is not known"
        )
    if rule is not None:
        raise KafkaError(ErrorCode.invalid_record, rule)


def _check_records(data: Buffer, header: BatchHeader, config: LogConfig, wall_ms: int) -> None:
    newest = wall_ms + config.timestamp_after_max_ms
    oldest = wall_ms - config.timestamp_before_max_ms
    times_matter = not config.log_append_time
    if times_matter and header.max_timestamp > newest:
        raise KafkaError(
            ErrorCode.invalid_timestamp,
            f"timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms "
            f"{config.timestamp_after_max_ms} ahead of {wall_ms}",
        )
    check_oldest = times_matter and config.timestamp_before_max_ms < _NO_LIMIT
    if not (check_oldest or config.cleanup_compact):
        return
    try:
        records = decode_records(data, 0, header)
    except DecodeError as error:
        raise CorruptBatch(str(error)) from error
    if config.cleanup_compact:
        # The cleaner goes by what is said here.
        _refuse(
            ErrorCode.invalid_record,
            "Record offsets in a batch must be consecutive, timestamps of 64 bits",
            [
                place
                for place, record in enumerate(records)
                if record.offset != place or abs(record.timestamp) > _NO_LIMIT
            ],
        )
        _refuse(
            ErrorCode.invalid_record,
            "Compacted topic cannot accept message without key",
            [place for place, record in enumerate(records) if record.key is None],
        )
    if check_oldest:
        _refuse(
            ErrorCode.invalid_timestamp,
            f"timestamp before {oldest}, which message.timestamp.before.max.ms allows",
            _older(records, oldest),
        )


def _older(records: list[Record], oldest: int) -> list[int]:
    return [place for place, record in enumerate(records) if record.timestamp < oldest]


def _refuse(code: ErrorCode, message: str, places: list[int]) -> None:
    if places:
        raise InvalidRecords(code, message, [(place, message) for place in places])
