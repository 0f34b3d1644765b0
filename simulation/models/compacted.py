"""What may be missing from a compacted topic: a record of whose key there is a newer one, and a
tombstone whose time is over.

Everybody who read from a place says what was there and when (`Reading`). `judge` holds that against
what producers were told: every record stays where it is and as it was, and what is missing may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simulation.checks import Violation, require
from simulation.history import Outcome
from simulation.models.records import Place


@dataclass(slots=True)
class Keyed:
    """A record of an idempotent producer at acks=all. `id` names it; a tombstone has no value.
    It was sent for the first time at `sent_ms`; `offset` is where it was acknowledged, or None."""

    id: bytes
    place: Place
    key: bytes
    tombstone: bool
    sent_ms: int
    outcome: Outcome = Outcome.UNKNOWN
    offset: int | None = None

    def __str__(self) -> str:
        kind = "tombstone" if self.tombstone else "value"
        return (
            f"{kind} {self.id!r} of {self.key!r} in {self.place} (sent at {self.sent_ms} ms, "
            f"{self.outcome.value} @{self.offset})"
        )


class Found(NamedTuple):
    """A record as it was read; its value is its id, or None."""

    offset: int
    id: bytes
    key: bytes | None
    value: bytes | None


class Reading(NamedTuple):
    """All that somebody found in [start, end) of a place at `at_ms`.

    `clean_below`: no key may be there twice below.
    """

    who: str
    place: Place
    start: int
    end: int
    at_ms: int
    records: Sequence[Found]
    clean_below: int = 0


def judge(sent: Iterable[Keyed], readings: Sequence[Reading], tombstone_ms: int) -> int:
    """Violation unless what was sent explains all readings; else how often a record was rightly
    found missing. Tombstones have to stay for `tombstone_ms`."""
    by_id = {(record.place, record.id): record for record in sent}
    at: dict[tuple[Place, int], Keyed] = {
        (record.place, record.offset): record
        for record in by_id.values()
        if record.outcome is Outcome.OK and record.offset is not None
    }
    where = {(record.place, record.id): offset for (_, offset), record in at.items()}
    for reading in readings:
        _judge_found(reading, by_id, at, where)
    newer = _newer(at)
    return sum(_judge_missing(reading, at, newer, tombstone_ms) for reading in readings)


def _judge_found(
    reading: Reading,
    by_id: dict[tuple[Place, bytes], Keyed],
    at: dict[tuple[Place, int], Keyed],
    where: dict[tuple[Place, bytes], int],
) -> None:
    last = reading.start - 1
    keys: dict[bytes | None, int] = {}
    for found in reading.records:
        place, where_read = reading.place, f"{reading.who}, {reading.place}: {found}"
        require(last < found.offset < reading.end, "offsets rise", f"{where_read} after {last}")
        last = found.offset
        record = by_id.get((place, found.id))
        if record is None:
            raise Violation("records come from producers", where_read)
        value = None if record.tombstone else record.id
        require(
            (found.key, found.value) == (record.key, value),
            "compaction changes no record",
            f"{where_read}, {record}",
        )
        require(
            at.setdefault((place, found.offset), record) is record
            and where.setdefault((place, found.id), found.offset) == found.offset,
            "an acknowledged record is where it was said to be",
            f"{where_read}, {record}, first @{where.get((place, found.id))}, there was "
            f"{at[place, found.offset]}",
        )
        if found.offset < reading.clean_below:
            first = keys.setdefault(found.key, found.offset)
            require(
                first == found.offset,
                "a clean log has every key once",
                f"{where_read}, also @{first}, clean below {reading.clean_below}",
            )


def _newer(at: dict[tuple[Place, int], Keyed]) -> dict[tuple[Place, int], Keyed]:
    """The next record of the same key, by the place of each that has one."""
    found: dict[tuple[Place, int], Keyed] = {}
    last: dict[tuple[Place, bytes], int] = {}
    for place, offset in sorted(at):
        record = at[place, offset]
        before = last.get((place, record.key))
        if before is not None:
            found[place, before] = record
        last[place, record.key] = offset
    return found


def _judge_missing(
    reading: Reading,
    at: dict[tuple[Place, int], Keyed],
    newer: dict[tuple[Place, int], Keyed],
    tombstone_ms: int,
) -> int:
    there = {found.offset for found in reading.records}
    missing = 0
    for offset in range(reading.start, reading.end):
        record = at.get((reading.place, offset))
        if record is None or offset in there:
            continue
        missing += 1
        replaced = newer.get((reading.place, offset))
        # It may have been sent in time and be seen late, but not the other way round.
        if replaced is not None and replaced.sent_ms <= reading.at_ms:
            continue
        age_ms = reading.at_ms - record.sent_ms
        where = f"{reading.who} at {reading.at_ms} ms: {record} @{offset} is missing"
        if not record.tombstone:
            raise Violation("the newest value of a key is kept", where)
        require(age_ms >= tombstone_ms, "tombstones are kept for their time", where)
    return missing
