"""What is left of one batch when a log is cleaned. Pure: bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from storage.cleaning.key_map import KeyMap
from storage.cleaning.transactions import Transactions
from storage.config import MAX_INT64
from wire.batch import CODEC_MASK, DELETE_HORIZON, BatchHeader, record_bytes, with_records
from wire.errors import DecodeError
from wire.records import PlacedRecord, locate_records, with_timestamp_delta
from world.env import Buffer


class LastOfProducer(NamedTuple):
    """The end of a producer's data, -1 if only a marker of `epoch` tells of it."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides about records and batches in one pass.

    `newest` has the newest offset of each key up to `map_end` (inclusive); later records stay.
    `round_end` (exclusive) is where the part that may be cleaned ends: its last batch stays, if
    only as a header, so that offsets and leader epochs don't end before. `producers` are those that
    are not expired, by id. Times are wall clock milliseconds.
    """

    newest: KeyMap
    map_end: int
    round_end: int
    producers: Mapping[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int

    @property
    def horizon_ms(self) -> int:
        """When what is met for the first time may go."""
        return min(self.now_ms + self.delete_retention_ms, MAX_INT64)


class Kept(NamedTuple):
    """What goes into the new segment: a batch, and its header once more."""

    header: BatchHeader
    data: Buffer


def clean_batch(
    header: BatchHeader, data: Buffer, rules: Rules, transactions: Transactions
) -> Kept | None:
    """What stays of the batch in `data` (exactly one, of sound CRC); None for nothing.

    Batches are to be given in order. Base offset, last offset, producer, sequence and leader epoch
    stay as they are. Tombstones and markers that are met for the first time get the time after
    which they may go. Raises DecodeError, or MarkerContradicts.
    """
    marker_may_go = False
    if header.is_control:
        marker_may_go = transactions.may_go(header, data)
        drop = marker_may_go and _horizon_is_over(header, rules.now_ms)
    else:
        drop = transactions.is_aborted(header)
    if drop or not header.count:
        return _header_only(header) if _header_stays(header, rules) else None
    if header.is_control:
        return _with_horizon(header, data, rules) if marker_may_go else Kept(header, data)
    if header.base_offset > rules.map_end:
        return Kept(header, data)
    return _clean_data(header, data, rules)


def records_of(header: BatchHeader, raw: bytes) -> list[PlacedRecord]:
    """The records in a batch's uncompressed bytes. DecodeError if their offsets aren't within it,
    rising: what a client wrote there must not make records of others go."""
    records = locate_records(raw, header.count)
    before = -1
    for record in records:
        if not before < record.delta <= header.last_offset_delta:
            raise DecodeError(f"a record of offset delta {record.delta} after {before}")
        before = record.delta
    return records


def _horizon_is_over(header: BatchHeader, now_ms: int) -> bool:
    return header.has_delete_horizon and header.base_timestamp <= now_ms


def _header_stays(header: BatchHeader, rules: Rules) -> bool:
    if header.next_offset == rules.round_end:
        return True
    last = rules.producers.get(header.producer_id)
    if last is None or header.producer_id < 0:
        return False
    if last.offset >= 0:
        return header.last_offset == last.offset
    return header.is_control and header.producer_epoch == last.epoch


def _header_only(header: BatchHeader) -> Kept:
    """The batch without its records, from which a reader still learns where its producer is."""
    bare = header._replace(
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON), base_timestamp=-1, count=0
    )
    return Kept(*with_records(bare, b""))


def _clean_data(header: BatchHeader, data: Buffer, rules: Rules) -> Kept | None:
    raw = record_bytes(data, 0, header)
    records = records_of(header, raw)
    stay = _newest_only(records, header.base_offset, rules)
    if _horizon_is_over(header, rules.now_ms):
        base, end = header.base_offset, rules.map_end
        stay = [record for record in stay if record.has_value or base + record.delta > end]
    if not stay:
        return _header_only(header) if _header_stays(header, rules) else None
    if not header.has_delete_horizon and not all(record.has_value for record in stay):
        return _restamped(header, raw, stay, rules.horizon_ms)
    if len(stay) == len(records):
        return Kept(header, data)
    body = b"".join([raw[record.start : record.end] for record in stay])
    return _rebuilt(header, body, stay)


def _newest_only(records: list[PlacedRecord], base: int, rules: Rules) -> list[PlacedRecord]:
    """The records that no newer one of the same key replaces. One without a key replaces nothing
    and is found by nobody: it goes, too."""
    end = rules.map_end - base
    keyed = [record for record in records if record.key is not None]
    offsets = rules.newest.newest([record.key for record in keyed if record.key is not None])
    if len(keyed) == len(records) and records[-1].delta <= end:
        return [
            record
            for record, newest in zip(records, offsets, strict=True)
            if base + record.delta >= newest
        ]
    found = dict(zip([record.delta for record in keyed], offsets, strict=True))
    return [
        record
        for record in records
        if record.delta > end
        or (record.key is not None and base + record.delta >= found[record.delta])
    ]


def _with_horizon(header: BatchHeader, data: Buffer, rules: Rules) -> Kept:
    if header.has_delete_horizon:
        return Kept(header, data)
    raw = record_bytes(data, 0, header)
    records = locate_records(raw, header.count)
    return _restamped(header, raw, records, rules.horizon_ms)


def _restamped(header: BatchHeader, raw: bytes, stay: list[PlacedRecord], horizon_ms: int) -> Kept:
    """With the time after which tombstones may go as base timestamp, which the records' own times
    are told against from now on."""
    shift = header.base_timestamp - horizon_ms
    body = b"".join(
        [with_timestamp_delta(raw, record, record.timestamp_delta + shift) for record in stay]
    )
    kept = [r._replace(timestamp_delta=r.timestamp_delta + shift) for r in stay]
    stamped = header._replace(
        attributes=header.attributes | DELETE_HORIZON, base_timestamp=horizon_ms
    )
    return _rebuilt(stamped, body, kept)


def _rebuilt(header: BatchHeader, body: bytes, stay: list[PlacedRecord]) -> Kept:
    """A batch of the records that stay. Its largest timestamp is theirs, but for append time, which
    is the whole batch's."""
    largest = header.max_timestamp
    if header.timestamp_type == 0:
        largest = header.base_timestamp + max(record.timestamp_delta for record in stay)
        if not -MAX_INT64 <= largest <= MAX_INT64:
            raise DecodeError(f"a record of timestamp {largest}")
    return Kept(*with_records(header._replace(count=len(stay), max_timestamp=largest), body))
