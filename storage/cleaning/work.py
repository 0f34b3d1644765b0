"""One pass of the cleaner over one log. Reading and writing go on in slices off the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from storage.cleaning.batches import damaged_batch, read_batches
from storage.cleaning.dirt import Dirt
from storage.cleaning.filtering import LastOfProducer, Rules, clean_batch, records_of
from storage.cleaning.groups import Measure, group_segments
from storage.cleaning.key_map import KeyMap
from storage.cleaning.output import CleanedSegment
from storage.cleaning.throttle import Throttle
from storage.cleaning.transactions import MarkerContradicts, Transactions
from storage.config import MAX_INT32, LogConfig
from storage.names import TXN_INDEX
from storage.segment import Segment
from storage.txn_index import aborted_in
from wire.batch import HEADER_SIZE, BatchHeader, record_bytes
from wire.errors import DamagedFile, DecodeError
from wire.index_files import TIME_ENTRY_SIZE, AbortedTxn
from world.env import Buffer, Disk, DiskError
from world.slices import Work, run_in_slices

if TYPE_CHECKING:
    from storage.log import Log

# Records and bytes between two places where the work may be left: 2 ms or so. A worker that runs
# Python keeps the loop waiting for up to 5 ms each time, unless it is done before.
_SLICE_RECORDS = 500
_SLICE_BYTES = 256 << 10


class LogChanged(Exception):
    """The log was cut, closed or lost segments while a pass was at work; what was left to do was
    not done, and the log is sound."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What passes may take: bytes of the map of keys, the share of it that is used, and a rate of
    reading and writing."""

    map_bytes: int
    load_factor: float
    throttle: Throttle


class Source(NamedTuple):
    """A segment to clean, and where the next one begins."""

    segment: Segment
    next_base: int


@dataclass(slots=True)
class Pass:
    """What a pass did. The log is clean up to `cleaned_to` (exclusive); if the keys of the dirty
    part didn't fit into the map, that is not all of it. Bytes are of the segments it wrote anew,
    before and after."""

    cleaned_to: int
    keys: int = 0
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


class _Meter:
    """Counts work in a slice; read and reset on the loop between slices."""

    __slots__ = ("count", "records")

    def __init__(self) -> None:
        self.count = 0
        self.records = 0

    def add(self, records: int, count: int) -> bool:
        """Note records and bytes; whether it is time for a break."""
        self.records += records
        self.count += count
        return self.records >= _SLICE_RECORDS or self.count >= _SLICE_BYTES


async def clean(log: Log, dirt: Dirt, limits: Limits) -> Pass:
    """Do one pass over a log, whose part before `dirt.end` must be durable, and note in it how far
    it is clean.

    Raises LogChanged, DamagedFile where the log makes no sense, DiskFull or DiskError; then it is
    sound, and as clean as it was or cleaner.
    """
    for damage in log.damage:
        # What is left would pass for whole, and the records that are missing for cleaned away.
        raise DamagedFile(damage.path, damage.position, damage.reason)
    cleaning = _Cleaning(log, dirt, limits)
    try:
        return await cleaning.run()
    except DiskError as error:
        # Files that are closed or gone since somebody took them out are no fault of the disk.
        cleaning.check_whole(error)
        raise


class _Cleaning:
    """A pass at work. What is called in slices touches only files, and what no one else has."""

    def __init__(self, log: Log, dirt: Dirt, limits: Limits) -> None:
        self._log = log
        self._dirt = dirt
        self._limits = limits
        self._config: LogConfig = log.config
        self._disk: Disk = log.env.disk
        self._now_ms = log.env.clock.wall_ms()
        self._truncations = log.truncations
        self._meter = _Meter()
        self._sources = [
            Source(segment, following.base_offset)
            for segment, following in pairwise(log.segments.values())
            if segment.base_offset < dirt.end
        ]
        self._all = list(log.segments.values())
        self._producers = {
            producer.producer_id: LastOfProducer(producer.last_offset, producer.epoch)
            for producer in log.producers
        }

    def check_unchanged(self, cause: Exception | None = None) -> None:
        """Raises LogChanged if what the pass began with holds no more."""
        log = self._log
        if log.closed or log.truncations != self._truncations:
            raise LogChanged(f"{log.directory} was closed or truncated") from cause

    def check_whole(self, cause: Exception | None = None) -> None:
        """As `check_unchanged`, and if a segment that is still to be replaced was taken out."""
        self.check_unchanged(cause)
        for segment, _ in self._sources:
            if self._log.segments.get(segment.base_offset) is not segment:
                raise LogChanged(f"{segment.file.path} is not in the log any more") from cause

    async def _between(self) -> None:
        self.check_unchanged()
        meter = self._meter
        pause_ms = self._limits.throttle.pause_ms(meter.count, self._log.env.clock.now_ms())
        meter.count = meter.records = 0
        if pause_ms >= 1:
            await asyncio.sleep(pause_ms / 1000)
            self.check_unchanged()

    async def run(self) -> Pass:
        log, dirt, limits = self._log, self._dirt, self._limits
        keys = KeyMap(limits.map_bytes, limits.load_factor, dirt.end - dirt.start)
        try:
            reading = self._read_keys(keys)
            map_end, aborted = await run_in_slices(log.env, reading, self._between)
            done = Pass(map_end + 1, len(keys))
            rules = Rules(
                keys,
                map_end,
                dirt.end,
                self._producers,
                self._now_ms,
                self._config.delete_retention_ms,
            )
            transactions = Transactions(aborted)
            for group in self._groups(map_end):
                await self._replace(group, rules, transactions, done)
        finally:
            keys.close()
        self.check_unchanged()
        log.cleaned_to = max(log.cleaned_to, done.cleaned_to)
        return done

    # -- reading -------------------------------------------------------------------------------

    def _read_keys(self, keys: KeyMap) -> Work[tuple[int, list[AbortedTxn]]]:
        """The last offset that the map covers, and all aborted transactions of the log."""
        aborted = []
        for segment in self._all:
            aborted += aborted_in(self._disk, segment)
            yield
        transactions = Transactions(aborted)
        start, map_end = self._dirt.start, self._dirt.start - 1
        for source in self._sources:
            if source.next_base <= start:
                continue
            for position, header, data in read_batches(source.segment):
                try:
                    full_at = _note_keys(header, data, start, keys, transactions)
                except (DecodeError, MarkerContradicts) as error:
                    raise damaged_batch(source.segment, position, error) from error
                if full_at is not None:
                    return max(map_end, full_at - 1), aborted
                map_end = max(map_end, header.last_offset)
                if self._meter.add(header.count, header.length):
                    yield
            map_end = max(map_end, source.next_base - 1)
        return map_end, aborted

    # -- writing -------------------------------------------------------------------------------

    def _groups(self, map_end: int) -> list[Sequence[Source]]:
        sources = [s for s in self._sources if s.segment.base_offset <= map_end]
        # An entry of the index may come with every batch, or every interval if that is longer.
        entries = max(1, self._config.segment_index_bytes // TIME_ENTRY_SIZE - 1)
        interval = max(self._config.index_interval_bytes, HEADER_SIZE)
        most = min(self._config.segment_bytes, entries * interval)
        measures = [Measure(s.segment.base_offset, s.next_base, s.segment.size) for s in sources]
        ends = accumulate(group_segments(measures, most), initial=0)
        return [sources[begin:end] for begin, end in pairwise(ends)]

    async def _replace(
        self, group: Sequence[Source], rules: Rules, transactions: Transactions, done: Pass
    ) -> None:
        log = self._log
        made: list[CleanedSegment] = []
        try:
            writing = self._write(group, rules, transactions, made)
            await run_in_slices(log.env, writing, self._between)
            (cleaned,) = made
            await cleaned.sync()
            self.check_whole()
            old = [source.segment for source in group]
            new = cleaned.into_segment(log.env.clock.wall_ms())
            made.clear()
            # Whatever comes of it they are no sources any more: a disk that fails in the middle of
            # it is no change of the log by others.
            del self._sources[: len(group)]
            log.replace_segments(old, new, cleaned.written)
        finally:
            if made and not log.closed:
                made[0].discard()
        done.segments_before += len(old)
        done.segments_after += 1
        done.bytes_before += sum(segment.size for segment in old)
        done.bytes_after += new.size
        # What a later group drops may be needed by what this one dropped to be still gone.
        await self._disk.sync_dir(log.directory)

    def _write(
        self,
        group: Sequence[Source],
        rules: Rules,
        transactions: Transactions,
        made: list[CleanedSegment],
    ) -> Work[None]:
        """Put what stays of a group into a new segment, which is in `made` from the start."""
        interval = self._config.index_interval_bytes
        base = group[0].segment.base_offset
        cleaned = CleanedSegment(self._disk, self._log.directory, base, interval)
        made.append(cleaned)
        transactions.kept.clear()
        for segment, _ in group:
            for position, header, data in read_batches(segment):
                try:
                    kept = clean_batch(header, data, rules, transactions)
                except (DecodeError, MarkerContradicts) as error:
                    raise damaged_batch(segment, position, error) from error
                length = 0
                if kept is not None:
                    if cleaned.size + kept.header.length > MAX_INT32:
                        raise segment.damaged(position, "what is left is more than 2 GiB")
                    cleaned.add(*kept)
                    length = kept.header.length
                if self._meter.add(header.count, header.length + length):
                    yield
        had_index = any(self._disk.exists(s.segment.path(TXN_INDEX)) for s in group)
        cleaned.finish(transactions.kept, had_index)


def _note_keys(
    header: BatchHeader, data: Buffer, start: int, keys: KeyMap, transactions: Transactions
) -> int | None:
    """Put a batch's keys from offset `start` on into the map; the offset that found it full."""
    if header.is_control:
        transactions.may_go(header, data)
        return None
    if transactions.is_aborted(header) or not header.count:
        return None
    base = header.base_offset
    for record in records_of(header, record_bytes(data, 0, header)):
        offset = base + record.delta
        if record.key is not None and offset >= start and not keys.put(record.key, offset):
            return offset
    return None
