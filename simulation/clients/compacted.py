"""Clients of a compacted topic. Judged by `simulation.models.compacted`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from simulation.checks import require
from simulation.checks.media import peek
from simulation.clients.links import Address
from simulation.clients.records import Consumer, IsLeader, Producer
from simulation.history import History
from simulation.models.compacted import Found, Keyed, Reading
from simulation.models.records import ALL, Place, Position, Sent
from storage.log import Log
from wire.batch import Record, decode_records, iter_headers
from wire.records import RecordTuple
from world.env import Env

_KEYS = 12
_TOMBSTONES = 0.25
_ID = "id"
_PAUSE_S = 5.0


class KeyedProducer(Producer):
    """An idempotent producer of values and tombstones of few keys a partition; each record has its
    name in a header, too."""

    def __init__(
        self,
        env: Env,
        name: str,
        brokers: Mapping[int, Address],
        history: History,
        topic: str,
        partitions: int,
        *,
        every_ms: int,
        is_leader: IsLeader,
    ) -> None:
        super().__init__(
            env,
            name,
            brokers,
            history,
            topic,
            partitions,
            acks=ALL,
            idempotent=True,
            every_ms=every_ms,
            is_leader=is_leader,
        )
        self._keyed: dict[int, Keyed] = {}

    @property
    def keyed(self) -> list[Keyed]:
        """All that was sent, with what became of it."""
        for record in self.sent:
            keyed = self._keyed[record.number]
            keyed.outcome, keyed.offset = record.outcome, record.offset
        return list(self._keyed.values())

    def _next(self, index: int) -> Sent:
        record = super()._next(index)
        # Some keys are written often, some hardly ever: these outlive many passes.
        number = min(self.chance.randrange(_KEYS), self.chance.randrange(_KEYS))
        self._keyed[record.number] = Keyed(
            record.value,
            record.place,
            b"key-%d" % number,
            self.chance.random() < _TOMBSTONES,
            self.now_ms,
        )
        return record

    def _content(self, record: Sent) -> RecordTuple:
        keyed = self._keyed[record.number]
        value = None if keyed.tombstone else keyed.id
        return self.env.clock.wall_ms(), keyed.key, value, ((_ID, keyed.id),)


class CompactedReader(Consumer):
    """Reads a compacted topic from the start to its end again and again."""

    def __init__(
        self,
        env: Env,
        name: str,
        brokers: Mapping[int, Address],
        history: History,
        topic: str,
        partitions: int,
    ) -> None:
        super().__init__(env, name, brokers, history, topic, partitions)
        self.readings: list[Reading] = []

    async def run(self) -> None:
        while not self.stopping:
            await self.read_all()
            await self.rest(_PAUSE_S, 0.5)

    async def read_all(self) -> None:
        """One reading from the start to the high watermark, unless it is closed meanwhile."""
        for position in self.positions:
            position.offset = 0
        await asyncio.gather(*[self._follow(position, once=True) for position in self.positions])

    def _take(self, position: Position, data: bytes, mark: int) -> None:
        end, records = position.offset, []
        for at, header in iter_headers(data):
            end = header.next_offset
            records += [found(record) for record in decode_records(data, at, header)]
        records = [record for record in records if record.offset >= position.offset]
        require(
            end <= mark,
            "consumers read below the high watermark",
            f"{self.name} {position.place}: up to {end}, the mark is {mark}",
        )
        reading = Reading(self.name, position.place, position.offset, end, self.now_ms, records)
        if end > position.offset:
            self.readings.append(reading)
            position.offset = end


def read_replica(who: str, place: Place, log: Log, now_ms: int) -> Reading:
    """What a live broker's log of the topic holds, read past its node."""
    records: list[Found] = []
    for segment in log.segments.values():
        data = peek(segment.file, segment.size, 0)
        for at, header in iter_headers(data):
            records += [found(record) for record in decode_records(data, at, header)]
    start, end = log.log_start_offset, log.end_offset
    return Reading(who, place, start, end, now_ms, records, log.cleaned_to)


def found(record: Record) -> Found:
    """A record of the topic as the model takes it."""
    names = [value for name, value in record.headers if name == _ID]
    return Found(record.offset, names[0] or b"" if names else b"", record.key, record.value)
