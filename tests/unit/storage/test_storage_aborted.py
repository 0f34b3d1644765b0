"""Aborted transactions: the .txnindex files, and what read_committed readers are told from them."""

import asyncio

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from storage.config import LogConfig
from storage.log import Log
from wire.batch import build_batch
from wire.control import encode_end_txn_marker
from wire.errors import DamagedFile
from wire.index_files import AbortedTxn, decode_txn_entries
from world.env import DiskFull
from world.memory import memory_env

SMALL = LogConfig(segment_bytes=700, index_interval_bytes=100)


class Writer:
    """Appends to a log, and remembers what is true of its transactions."""

    def __init__(self, log):
        self.log = log
        self.opened = {}
        self.sequences = {}
        # (producer, first offset, marker's offset, last stable offset)
        self.aborted = []

    def data(self, producer, transactional=True):
        at = self.log.end_offset
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + 1
        self._append(
            [(1000, b"k", b"v" * 20, ())],
            producer_id=producer,
            base_sequence=sequence,
            transactional=transactional,
        )
        if transactional:
            self.opened.setdefault(producer, at)

    def end(self, producer, commit):
        at = self.log.end_offset
        key, value = encode_end_txn_marker(commit, 3)
        self._append(
            [(1000, key, value, ())], producer_id=producer, transactional=True, control=True
        )
        first = self.opened.pop(producer, None)
        if first is not None and not commit:
            stable = min(self.opened.values(), default=at + 1)
            self.aborted.append((producer, first, at, stable))

    def _append(self, records, **fields):
        data = bytearray(build_batch(records, producer_epoch=0, **fields))
        self.log.append_as_leader([data], 0)

    def overlapping(self, offset, upto):
        return [
            (producer, first)
            for producer, first, last, _ in self.aborted
            if last >= offset and first < upto
        ]


async def opened(env, **options):
    return await Log.open(env, "/p", SMALL, **options)


def entries(env, log):
    found = []
    for segment in log.segments.values():
        path = segment.path(".txnindex")
        if env.disk.exists(path):
            found += decode_txn_entries(env.disk.read_bytes(path), path)
    return found


def check(env, log, writer):
    assert entries(env, log) == [AbortedTxn._make(entry) for entry in writer.aborted]
    for offset in range(log.end_offset):
        for upto in range(offset + 1, log.end_offset + 1, 3):
            assert log.aborted_transactions(offset, upto) == writer.overlapping(offset, upto)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.integers(1, 4)),
        st.tuples(st.just("plain"), st.just(9)),
        st.tuples(st.just("commit"), st.integers(1, 4)),
        st.tuples(st.just("abort"), st.integers(1, 4)),
    ),
    max_size=40,
)


def play(writer, actions):
    for action, producer in actions:
        if action in ("data", "plain"):
            writer.data(producer, transactional=action == "data")
        else:
            writer.end(producer, commit=action == "commit")


@examples(60)
@given(steps)
def test_readers_are_told_what_was_aborted(actions):
    async def main():
        env = memory_env(1)
        log = await opened(env)
        writer = Writer(log)
        play(writer, actions)
        check(env, log, writer)
        unstable = log.producers.first_unstable_offset
        log.producers.replicated(log.end_offset)
        assert log.producers.first_unstable_offset == min(writer.opened.values(), default=None)
        assert unstable is None or unstable <= log.end_offset
        for producer in writer.opened:
            assert log.producers.get(producer).open_since == writer.opened[producer]
        await log.close()

    asyncio.run(main())


@examples(40)
@given(steps, st.booleans(), st.integers(0, 40))
def test_the_files_are_derived_again_from_the_log(actions, clean, flushed_after):
    """After an unclean stop, or whatever happened to the files of the part that may be unsynced."""

    async def main():
        env = memory_env(1)
        log = await opened(env)
        writer = Writer(log)
        play(writer, actions[:flushed_after])
        point = await log.flush()
        play(writer, actions[flushed_after:])
        await log.close(clean=clean)
        if not clean:
            base = log.segments.peekitem(max(0, log.segments.bisect_right(point) - 1))[0]
            for name in env.disk.list_dir("/p"):
                if name.endswith(".txnindex") and int(name[:20]) >= base:
                    env.disk.remove(f"/p/{name}")
        again = await opened(env, recovery_point=point, clean=clean)
        check(env, again, writer)
        open_now = {p.producer_id: p.open_since for p in again.producers if p.open_since >= 0}
        assert open_now == writer.opened
        await again.close()

    asyncio.run(main())


@examples(40)
@given(steps, st.integers(0, 40))
def test_what_is_cut_off_is_not_aborted_any_more(actions, cut):
    async def main():
        env = memory_env(1)
        log = await opened(env)
        writer = Writer(log)
        play(writer, actions)
        cut_at = min(cut, log.end_offset)
        log.truncate_to(cut_at)
        await log.settle()
        writer.aborted = [entry for entry in writer.aborted if entry[2] < log.end_offset]
        check(env, log, writer)
        await log.close()

    asyncio.run(main())


def test_a_follower_notes_what_its_leader_sends():
    async def main():
        env, other = memory_env(1), memory_env(2)
        leader = await opened(env)
        writer = Writer(leader)
        play(writer, [("data", 1), ("data", 2), ("abort", 1), ("data", 1), ("abort", 2)])
        part = leader.read(0, 1 << 20)
        follower = await opened(other)
        follower.append_as_follower(part.file.pread(part.length, part.position))
        assert entries(other, follower) == entries(env, leader)
        assert follower.producers.first_unstable_offset == leader.producers.first_unstable_offset
        assert follower.producers.get(2).coordinator_epoch == 3

    asyncio.run(main())


def test_a_full_disk_leaves_neither_marker_nor_entry(monkeypatch):
    async def main():
        env = memory_env(1)
        log = await opened(env)
        writer = Writer(log)
        writer.data(1)
        end, size = log.end_offset, log.active.file.size()
        refused = DiskFull("/p", "append", "no space left")
        monkeypatch.setattr(log._aborted, "add", lambda *_: (_ for _ in ()).throw(refused))
        with pytest.raises(DiskFull):
            writer.end(1, commit=False)
        monkeypatch.undo()
        assert (log.end_offset, log.active.file.size()) == (end, size)
        assert log.producers.get(1).open_since == 0
        writer.end(1, commit=False)
        check(env, log, writer)

    asyncio.run(main())


def test_a_damaged_file_is_derived_again_at_start():
    async def main():
        env = memory_env(1)
        log = await opened(env)
        writer = Writer(log)
        for _ in range(8):
            play(writer, [("data", 1), ("data", 2), ("abort", 1), ("commit", 2)])
        await log.close()
        paths = [f"/p/{n}" for n in env.disk.list_dir("/p") if n.endswith(".txnindex")]
        assert len(paths) > 2
        file = env.disk.open(paths[1])
        file.append([b"half an entry"])
        file.close()
        again = await opened(env, clean=True)
        assert paths[1] in again.recovery.rebuilt
        check(env, again, writer)

    asyncio.run(main())


def test_damage_that_comes_later_is_no_empty_answer():
    async def main():
        env = memory_env(1)
        log = await opened(env)
        writer = Writer(log)
        play(writer, [("data", 1), ("abort", 1)])
        await log.close()
        again = await opened(env, clean=True)
        file = env.disk.open(again.active.path(".txnindex"))
        file.truncate(5)
        file.close()
        with pytest.raises(DamagedFile):
            again.aborted_transactions(0, 1)

    asyncio.run(main())
