"""A client's records of one partition, checked and made fit for the topic."""

from __future__ import annotations

from typing import Any

from broker.topic_settings import KEEP_CODEC, TopicSettings
from storage.validation import validate_batch
from wire.batch import BatchHeader, build_batch, decode_records, read_header
from wire.errors import DecodeError, ErrorCode, KafkaError

ZSTD = 4
_ZSTD_SINCE = 7


def checked_batch(
    records: Any, settings: TopicSettings, wall_ms: int, version: int
) -> tuple[Any, BatchHeader, int]:
    """The batch to append (writable), its header, and the log append time, -1 where the
    producer's counts.

    `records` is the slice of the request, None where the client sent null. Raises KafkaError.
    """
    if not records:
        raise KafkaError(ErrorCode.invalid_record, "a partition must come with one record batch")
    header = validate_batch(records, settings.log, wall_ms)
    if header.codec == ZSTD and version < _ZSTD_SINCE:
        raise KafkaError(
            ErrorCode.unsupported_compression_type,
            f"zstd needs Produce version {_ZSTD_SINCE}, this is version {version}",
        )
    if header.is_transactional:
        raise KafkaError(
            ErrorCode.invalid_txn_state, "this broker has no transaction coordinator yet"
        )
    append_time_ms = wall_ms if settings.log.log_append_time else -1
    if settings.codec not in (KEEP_CODEC, header.codec):
        records = _recompressed(records, header, settings.codec)
        header = read_header(records)
    return records, header, append_time_ms


def _recompressed(records: Any, header: BatchHeader, codec: int) -> bytearray:
    """The same batch in the topic's codec."""
    try:
        decoded = decode_records(records, 0, header)
    except DecodeError as error:
        raise KafkaError(ErrorCode.corrupt_message, str(error)) from error
    return bytearray(
        build_batch(
            [(r.timestamp, r.key, r.value, r.headers) for r in decoded],
            codec=codec,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            timestamp_type=header.timestamp_type,
        )
    )
