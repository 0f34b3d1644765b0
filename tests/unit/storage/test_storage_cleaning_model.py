"""Random compacted logs, cleaned again and again, beside a twin that is nothing but a list."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cleaning_helpers import COMPACTED, Seen, batches_of, dirt_of, limits, records_batch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from storage_helpers import run

from storage.cleaning.work import clean
from storage.log import Log
from wire.batch import build_batch, decode_records
from wire.control import encode_end_txn_marker
from world.memory import memory_env

RETENTION_MS = 1_000


@dataclass
class Batch:
    """A batch of the twin: what is left of it."""

    base: int
    last: int
    producer: int
    transactional: bool
    commit: bool | None  # a marker's word, None for data
    aborted: bool
    records: list[Seen]
    horizon: int | None = None


@dataclass
class Twin:
    """What the log should hold, worked out the long way."""

    batches: list[Batch] = field(default_factory=list)
    end: int = 0

    def clean(self, start: int, upto: int, round_end: int, now: int, producers) -> None:
        """Cleans up to `upto`, by the keys from `start` on; `round_end` is where it might have
        gone to, `producers` each one's last data offset."""
        newest = {}
        for batch in self.batches:
            for record in batch.records:
                if start <= record.offset < upto and not batch.aborted and batch.commit is None:
                    newest[record.key] = record.offset
        met: dict[int, None] = {}  # producers of whose open transaction something was met
        kept = []
        for batch in self.batches:
            if batch.base < self._written_before(upto) and not self._clean_batch(
                batch, newest, upto, now, met
            ):
                known = producers.get(batch.producer)
                # A producer of whom only a marker is known is remembered by that.
                is_last = known == batch.last if batch.commit is None else known == -1
                if batch.last + 1 != round_end and not is_last:
                    continue
                batch.records, batch.horizon = [], None
            kept.append(batch)
        self.batches = kept

    def _written_before(self, upto: int) -> int:
        return self.segment_end(upto)

    segment_end = staticmethod(lambda upto: upto)

    def _clean_batch(self, batch, newest, upto, now, met) -> bool:
        """Whether something is left of it."""
        over = batch.horizon is not None and batch.horizon <= now
        if batch.commit is not None:
            needed = met.pop(batch.producer, False) is None
            if not batch.records:
                return False
            if needed:
                return True
            if over:
                return False
            batch.horizon = batch.horizon or now + RETENTION_MS
            return True
        if batch.transactional:
            met[batch.producer] = None
        if batch.aborted:
            return False
        if batch.base >= upto:
            return bool(batch.records)
        batch.records = [
            record
            for record in batch.records
            if record.offset >= upto
            or (
                record.key is not None
                and record.offset >= newest.get(record.key, -1)
                and (record.value is not None or not over)
            )
        ]
        if batch.horizon is None and any(record.value is None for record in batch.records):
            batch.horizon = now + RETENTION_MS
        return bool(batch.records)

    def seen(self) -> list[Seen]:
        return [
            record for batch in self.batches if batch.commit is None for record in batch.records
        ]

    def frames(self) -> list[tuple[int, int, int, int | None]]:
        return [(b.base, b.last, len(b.records), b.horizon) for b in self.batches]


keys = st.sampled_from(["a", "b", "c", "d", "e", "f", None])
values = st.sampled_from(["1", "22" * 10, "333" * 30, None])
given_records = st.lists(st.tuples(keys, values), min_size=1, max_size=5)
steps = st.one_of(
    st.tuples(st.just("plain"), given_records, st.integers(0, 4)),
    st.tuples(st.just("idempotent"), given_records, st.sampled_from([1, 2])),
    st.tuples(
        st.just("transaction"), st.lists(given_records, min_size=1, max_size=3), st.booleans()
    ),
    st.tuples(st.just("roll")),
    st.tuples(st.just("elect")),
    st.tuples(st.just("truncate"), st.integers(1, 9)),
    st.tuples(st.just("clean"), st.sampled_from([24 * 3, 24 * 5, 24 * 7])),
    st.tuples(st.just("clean"), st.just(1 << 16)),
    st.tuples(st.just("wait"), st.sampled_from([1, 500, 1_000])),
    st.tuples(st.just("expire"), st.sampled_from([1, 2, 10])),
    st.tuples(st.just("reopen"), st.sampled_from(["clean", "at the end", "at 0", "active"])),
)


class World:
    """The log and its twin, driven by the same steps."""

    def __init__(self) -> None:
        self.env = memory_env(1)
        self.twin = Twin()
        self.sequences: dict[int, int] = {}
        self.forgotten: dict[int, None] = {}
        self.epoch = 1
        # What was ever written and not cut off, and all below was committed at the last pass.
        self.written: list[Seen] = []
        self.committed = 0
        self.config = replace(COMPACTED, segment_bytes=400, delete_retention_ms=RETENTION_MS)

    async def open(self, **options) -> None:
        self.log = await Log.open(self.env, "/p", self.config, **options)

    def _append(self, records, producer=-1, transactional=False, aborted=False, **more) -> None:
        fields = dict(more)
        if producer >= 0:
            self.forgotten.pop(producer, None)
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + len(records)
            fields |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        data = records_batch(*records, transactional=transactional, **fields)
        base = self.log.append_as_leader([data], self.epoch).base_offset
        seen = [Seen(base + n, 1000 + n, key, value) for n, (key, value) in enumerate(records)]
        self.twin.batches.append(
            Batch(base, base + len(records) - 1, producer, transactional, None, aborted, seen)
        )
        if not aborted:
            self.written += seen

    def _transaction(self, parts, commit) -> None:
        producer = 10
        for records in parts:
            self._append(records, producer, transactional=True, aborted=not commit)
        key, value = encode_end_txn_marker(commit, 0)
        fields = {"producer_id": producer, "producer_epoch": 0}
        data = build_batch([(1000, key, value, ())], transactional=True, control=True, **fields)
        at = self.log.append_as_leader([bytearray(data)], self.epoch).base_offset
        self.twin.batches.append(
            Batch(at, at, producer, True, commit, False, [Seen(at, 0, "", "")])
        )

    async def _clean(self, map_bytes) -> None:
        log = self.log
        dirt = dirt_of(log)
        if not dirt.dirty_bytes:
            return
        await log.flush(dirt.end)
        bases = list(log.segments)
        producers = {p.producer_id: p.last_offset for p in log.producers}
        now = self.env.clock.wall_ms()
        self.committed = log.end_offset
        done = await clean(log, dirt, limits(map_bytes))
        # Whole segments are written again, also where the map ended in the middle of one.
        self.twin.segment_end = lambda upto: min(base for base in bases if base >= upto)
        self.twin.clean(dirt.start, done.cleaned_to, dirt.end, now, producers)

    async def step(self, kind, *args) -> None:
        if kind == "plain":
            self._append(args[0], codec=args[1])
        elif kind == "idempotent":
            self._append(args[0], args[1])
        elif kind == "transaction":
            self._transaction(*args)
        elif kind == "roll":
            self.log.roll()
        elif kind == "truncate":
            await self._truncate(*args)
        elif kind == "elect":
            self.epoch += 1
        elif kind == "clean":
            await self._clean(*args)
        elif kind == "wait":
            self.env.clock.advance(args[0])
        elif kind == "expire":
            self.log.producers._producers.pop(args[0], None)
            self.sequences.pop(args[0], None)
            self.forgotten[args[0]] = None
        else:
            await self._reopen(*args)

    async def _truncate(self, count) -> None:
        """As a follower does: nothing that was committed goes."""
        await self.log.flush()
        offset = max(self.log.end_offset - count, self.committed)
        # No transaction stays open: of those that are, nothing may be cleaned.
        open_since = None
        for batch in self.twin.batches:
            if batch.last < offset and batch.transactional:
                first = batch.base if open_since is None else open_since
                open_since = first if batch.commit is None else None
        self.log.truncate_to(offset if open_since is None else open_since)
        await self.log.settle()
        end = self.log.end_offset
        cut = [b for b in self.twin.batches if b.base >= end]
        self.twin.batches = [b for b in self.twin.batches if b.base < end]
        self.written = [record for record in self.written if record.offset < end]
        # Producers go on where the log ends now.
        for batch in cut:
            known = self.log.producers.get(batch.producer)
            self.sequences[batch.producer] = known.last_sequence + 1 if known else 0

    async def _reopen(self, how) -> None:
        """Stops cleanly, or starts with a recovery point at the end, at 0 or at what grows."""
        log, clean_stop = self.log, how == "clean"
        # Without its snapshot a forgotten producer may be met again in the log.
        producers = {
            p.producer_id: p.last_sequence
            for p in log.producers
            if p.producer_id not in self.forgotten
        }
        epochs, end = log.epochs.entries(), log.end_offset
        if not clean_stop:
            await log.flush()
        await log.close(clean_stop)
        point = {"at 0": 0, "active": log.active.base_offset}.get(how, log.recovery_point)
        await self.open(clean=clean_stop, recovery_point=point, cleaned_to=log.cleaned_to)
        assert self.log.recovery.all_damage == []
        assert self.log.recovery.cut == []
        assert (self.log.end_offset, self.log.epochs.entries()) == (end, epochs)
        found = {p.producer_id: p.last_sequence for p in self.log.producers}
        assert {p: s for p, s in found.items() if p in producers} == producers

    def check(self) -> None:
        found = []
        frames = []
        for header, data in batches_of(self.log):
            horizon = header.base_timestamp if header.has_delete_horizon else None
            frames.append((header.base_offset, header.last_offset, header.count, horizon))
            if not header.is_control:
                found += [
                    Seen(r.offset, r.timestamp, r.key and r.key.decode(), r.value)
                    for r in decode_records(data, 0, header)
                ]
        assert [
            f._replace(value=f.value if f.value is None else f.value.decode()) for f in found
        ] == (self.twin.seen())
        assert frames == self.twin.frames()


@examples(150)
@given(st.lists(steps, max_size=40))
def test_a_cleaned_log_is_its_twin(story):
    async def main():
        world = World()
        await world.open()
        for step in [*story, ("roll",), ("clean", 1 << 16), ("reopen", "clean")]:
            await world.step(*step)
            world.check()
        # Who reads it from the start knows of every key what was written last.
        state = {record.key: record for record in world.twin.seen()}
        newest = {record.key: record for record in world.written if record.key is not None}
        for key, last in newest.items():
            assert state.get(key, last) == last
            assert key in state or last.value is None

    run(main())
