"""Finding records by time: segment, time index, headers, then the one batch (KIP-33)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.segment import IndexIsWrong, Segment
from wire.batch import BatchHeader, decode_records
from wire.errors import DecodeError

if TYPE_CHECKING:
    from storage.log import Log

Found = tuple[int, int, int]


def offset_for_timestamp(log: Log, timestamp: int) -> Found | None:
    """(offset, timestamp, leader epoch) of the first record of the log with a timestamp of at
    least `timestamp`; None if there is none. Raises DamagedFile."""
    for segment in log.segments.values():
        if segment.largest_timestamp < timestamp:
            continue
        found = _in_segment(log, segment, timestamp)
        if found is not None:
            return found
    return None


def max_timestamp_offset(log: Log) -> Found | None:
    """The first record that has the largest timestamp of the log; None if it is empty."""
    largest = max(
        (segment.largest_timestamp for segment in log.segments.values() if segment.size),
        default=-1,
    )
    return offset_for_timestamp(log, largest) if largest >= 0 else None


def _in_segment(log: Log, segment: Segment, timestamp: int) -> Found | None:
    for position, header in segment.headers_from(_start(log, segment, timestamp)):
        if header.max_timestamp < timestamp or header.last_offset < log.log_start_offset:
            continue
        found = _in_batch(log, segment, position, header, timestamp)
        if found is not None:
            return found
    return None


def _start(log: Log, segment: Segment, timestamp: int) -> int:
    entry = segment.index.floor_time(timestamp)
    if entry is None:
        return 0
    try:
        step = segment.locate(segment.base_offset + entry[1])
    except IndexIsWrong:
        return 0  # a read repairs the index; here the way from the start is good enough
    return 0 if step is None else step.position


def _in_batch(
    log: Log, segment: Segment, position: int, header: BatchHeader, timestamp: int
) -> Found | None:
    data = segment.batch_at(position, header)
    try:
        records = decode_records(data, 0, header)
    except DecodeError as error:
        raise segment.damaged(position, str(error)) from error
    for record in records:
        if record.timestamp >= timestamp and record.offset >= log.log_start_offset:
            return record.offset, record.timestamp, header.leader_epoch
    return None
