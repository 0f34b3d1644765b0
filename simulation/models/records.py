"""What producers sent, consumers saw, and the partitions hold in the end.

Every record's value is sent once; only idempotent producers send it again. So, whatever the
number of acks, a value is in a partition at most once. One consumer's reading is judged as it
happens (`Position`), everything together at the end (`judge`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simulation.checks import Violation, require
from simulation.history import Outcome

ALL = -1


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(slots=True)
class Sent:
    """A record on its way. `number` counts its producer's records; `connection` tells what went
    over one connection (None once it was sent over more than one). `offset` is where it was
    acknowledged, None where nobody told. FAILED means that it was sent once and refused."""

    producer: str
    number: int
    value: bytes
    place: Place
    acks: int
    idempotent: bool
    connection: int | None
    outcome: Outcome = Outcome.UNKNOWN
    offset: int | None = None

    def __str__(self) -> str:
        kind = "idempotent" if self.idempotent else f"acks={self.acks}"
        return f"{self.value!r} of {self.producer} ({kind}, {self.outcome.value} @{self.offset})"


class Seen(NamedTuple):
    """A record as a consumer got it."""

    place: Place
    offset: int
    value: bytes


class Position:
    """Where one consumer stands in one partition, and by which leader epoch it came there, -1 if
    that isn't known. `take` judges what it is given."""

    def __init__(self, consumer: str, place: Place, offset: int = 0, epoch: int = -1) -> None:
        self.consumer, self.place, self.offset, self.epoch = consumer, place, offset, epoch

    def take(self, records: Sequence[tuple[int, bytes]], high_watermark: int) -> list[Seen]:
        """The records of one answer (offset, value), those before the position left out."""
        taken = []
        for offset, value in records:
            if offset < self.offset:
                continue  # the first batch may begin before the position
            require(
                offset == self.offset,
                "a consumer misses no offset",
                f"{self.consumer} {self.place}: {offset} came where {self.offset} was due",
            )
            require(
                offset < high_watermark,
                "consumers read below the high watermark",
                f"{self.consumer} {self.place}: {offset}, the mark is {high_watermark}",
            )
            taken.append(Seen(self.place, offset, value))
            self.offset = offset + 1
        return taken


def judge(
    sent: Iterable[Sent],
    seen: Iterable[Seen],
    final: Mapping[Place, Sequence[tuple[int, bytes]]],
) -> None:
    """Violation unless `final`, each partition's records after all is over, explains the rest."""
    at: dict[tuple[Place, int], bytes] = {}
    where: dict[tuple[Place, bytes], int] = {}
    for place, records in final.items():
        for index, (offset, value) in enumerate(records):
            require(offset == index, "offsets have no holes", f"{place}: {offset} after {index}")
            at[place, offset] = value
            first = where.setdefault((place, value), offset)
            require(
                first == offset,
                "a record is there once",
                f"{place}: {value!r} at {first} and at {offset}",
            )
    sent = list(sent)
    known = {(record.place, record.value) for record in sent}
    for place, value in where:
        require((place, value) in known, "records come from producers", f"{place}: {value!r}")
    for found in seen:
        now = at.get((found.place, found.offset))
        require(
            now == found.value,
            "what a consumer saw stays",
            f"{found.place} @{found.offset}: {found.value!r} was seen, {now!r} is there",
        )
    for record in sent:
        _judge_acknowledged(record, where.get((record.place, record.value)))
    _judge_order(sent, where)


def _judge_acknowledged(record: Sent, offset: int | None) -> None:
    if record.outcome is Outcome.FAILED:
        require(offset is None, "a refused record is not there", f"{record.place}: {record}")
    if record.outcome is not Outcome.OK:
        return
    if offset is None:
        require(record.acks != ALL, "acknowledged records are kept", f"{record.place}: {record}")
    elif record.offset is not None:
        require(
            offset == record.offset,
            "an acknowledged record is where it was said to be",
            f"{record.place}: {record}, found @{offset}",
        )


def _judge_order(sent: list[Sent], where: Mapping[tuple[Place, bytes], int]) -> None:
    """An idempotent producer's records, and those of any on one connection, keep their order."""
    last: dict[tuple[object, ...], tuple[int, Sent]] = {}
    for record in sent:
        offset = where.get((record.place, record.value))
        stream = "producer" if record.idempotent else record.connection
        if offset is None or stream is None:
            continue
        key = (record.place, record.producer, stream)
        before = last.get(key)
        if before is not None and before[0] > offset:
            raise Violation(
                "a producer's order is kept",
                f"{record.place}: {record} @{offset} comes before {before[1]} @{before[0]}",
            )
        last[key] = (offset, record)
