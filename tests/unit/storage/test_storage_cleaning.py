"""Passes of the cleaner over small logs: what stays, what goes, and when."""

from dataclasses import replace

import pytest
from cleaning_helpers import (
    COMPACTED,
    append,
    batches_of,
    clean_all,
    dirt_of,
    one_pass,
    opened,
    pairs,
    seen,
)
from storage_helpers import run

from world.memory import memory_env


def test_the_newest_record_of_each_key_stays_at_its_offset():
    async def main():
        log = await opened()
        for number in range(40):
            append(log, (f"k{number % 7}", f"v{number}"))
        before = {record.offset: record for record in seen(log)}
        end = log.end_offset
        await clean_all(log)
        assert pairs(log) == [(f"k{n % 7}", f"v{n}") for n in range(33, 40)]
        assert all(before[record.offset] == record for record in seen(log))
        assert (log.end_offset, log.cleaned_to) == (end, end)

    run(main())


def test_the_active_segment_is_never_touched():
    async def main():
        log = await opened()
        while len(log.segments) < 3:
            append(log, ("k", "v" * 30))
        append(log, ("k", "last"))
        active = log.active
        kept = [record for record in seen(log) if record.offset >= active.base_offset]
        done = await one_pass(log)
        assert log.active is active
        assert done.cleaned_to == active.base_offset
        assert [r for r in seen(log) if r.offset >= active.base_offset] == kept
        # The newest of what was cleaned is older than those, but they were not in the map.
        assert len(seen(log)) == len(kept) + 1

    run(main())


def test_nothing_at_or_above_the_stable_offset_is_cleaned():
    async def main():
        log = await opened()
        while len(log.segments) < 5:
            append(log, ("k", "v" * 30))
        bases = list(log.segments)
        whole = seen(log)
        done = await one_pass(log, stable=bases[2] + 1)
        assert done.cleaned_to == bases[2]
        assert [r for r in seen(log) if r.offset >= bases[2]] == [
            r for r in whole if r.offset >= bases[2]
        ]
        assert dirt_of(log, stable=bases[2]).dirty_bytes == 0

    run(main())


def test_a_record_without_a_key_goes():
    async def main():
        log = await opened()
        append(log, ("a", "1"), (None, "x"), ("b", "2"))
        append(log, (None, "y"))
        append(log, ("c", "3"))
        await clean_all(log)
        assert pairs(log) == [("a", "1"), ("b", "2"), ("c", "3")]

    run(main())


def test_a_tombstone_stays_for_the_delete_retention_from_its_first_pass():
    async def main():
        env = memory_env(1)
        log = await opened(env)
        append(log, ("a", "1"), ("b", "2"))
        append(log, ("a", None), ("c", "3"), time=5000)
        append(log, ("d", "4"))
        await clean_all(log)
        assert pairs(log) == [("b", "2"), ("a", None), ("c", "3"), ("d", "4")]
        with_tombstone = batches_of(log)[1][0]
        assert with_tombstone.has_delete_horizon
        assert with_tombstone.base_timestamp == env.clock.wall_ms() + 1_000
        assert [(r.key, r.time) for r in seen(log)][1:3] == [("a", 5000), ("c", 5001)]

        env.clock.advance(999)
        append(log, ("e", "5"))
        await clean_all(log)
        assert ("a", None) in pairs(log)
        env.clock.advance(1)
        append(log, ("f", "6"))
        await clean_all(log)
        assert pairs(log) == [("b", "2"), ("c", "3"), ("d", "4"), ("e", "5"), ("f", "6")]
        assert seen(log)[1].time == 5001

    run(main())


def test_a_tombstone_may_stay_for_ever():
    async def main():
        log = await opened(config=replace(COMPACTED, delete_retention_ms=2**63 - 1))
        append(log, ("a", None), ("b", "1"), time=5000)
        append(log, ("c", "1"))
        await clean_all(log)
        assert [(r.key, r.time) for r in seen(log)] == [("a", 5000), ("b", 5001), ("c", 1000)]
        append(log, ("d", "1"))
        await clean_all(log)
        assert ("a", None) in pairs(log)

    run(main())


def test_a_tombstone_that_a_value_replaces_goes_at_once():
    async def main():
        log = await opened()
        append(log, ("a", None))
        append(log, ("a", "1"))
        await clean_all(log)
        assert pairs(log) == [("a", "1")]

    run(main())


@pytest.mark.parametrize("codec", range(5))
def test_compressed_batches_keep_their_codec(codec):
    async def main():
        log = await opened()
        append(log, ("a", "1" * 50), ("b", "2" * 50), ("c", "3" * 50), codec=codec)
        append(log, ("b", "4" * 50), ("d", None), codec=codec)
        await clean_all(log)
        assert [header.codec for header, _ in batches_of(log)] == [codec, codec]
        assert [(r.offset, r.key, r.time) for r in seen(log)] == [
            (0, "a", 1000),
            (2, "c", 1002),
            (3, "b", 1000),
            (4, "d", 1001),
        ]

    run(main())


def test_a_batch_keeps_its_frame_but_for_what_follows_from_its_records():
    async def main():
        log = await opened()
        fields = {"producer_id": 9, "producer_epoch": 3, "base_sequence": 70}
        append(log, ("a", "1"), ("b", "2"), ("c", "3"), time=2000, **fields)
        before = batches_of(log)[0][0]
        append(log, ("c", "4"))
        await clean_all(log)
        after = batches_of(log)[0][0]
        assert after == before._replace(
            length=after.length, crc=after.crc, count=2, max_timestamp=2001
        )
        assert after.last_offset == 2

    run(main())


def test_append_time_is_the_time_of_all_that_stays():
    async def main():
        log = await opened()
        append(log, ("a", "1"), ("b", None), ("c", "3"), time=2000, timestamp_type=1)
        append(log, ("c", "4"))
        await clean_all(log)
        assert [(r.key, r.time) for r in seen(log)] == [("a", 2002), ("b", 2002), ("c", 1000)]

    run(main())


def test_the_last_batch_of_a_producer_stays_as_a_header():
    async def main():
        env = memory_env(1)
        log = await opened(env)
        for number in range(4):
            append(log, ("a", f"{number}"), producer_id=9, producer_epoch=1, base_sequence=number)
        append(log, ("a", "new"))
        append(log, ("b", "x"))
        await clean_all(log)
        headers = [header for header, _ in batches_of(log)]
        assert [(h.base_offset, h.count) for h in headers] == [(3, 0), (4, 1), (5, 1)]
        assert (headers[0].base_sequence, headers[0].producer_epoch) == (3, 1)
        assert headers[0].max_timestamp == 1000
        # Who reads the log from its start knows the producer's sequence.
        for name in [n for n in env.disk.list_dir("/p") if n.endswith(".snapshot")]:
            env.disk.remove(f"/p/{name}")
        await log.close(clean=False)
        log = await opened(env, recovery_point=log.end_offset, cleaned_to=log.cleaned_to)
        assert log.producers.get(9).last_sequence == 3
        # Once it is forgotten, nothing is left of it.
        log.producers.expire(2**60, 1)
        append(log, ("b", "y"))
        await clean_all(log)
        assert [h.base_offset for h, _ in batches_of(log)] == [4, 6]

    run(main())


def test_the_last_batch_of_what_was_cleaned_stays_as_a_header():
    async def main():
        env = memory_env(1)
        log = await opened(env)
        append(log, ("a", "1"))
        append(log, (None, "no key"))
        await clean_all(log)
        assert [(h.base_offset, h.count) for h, _ in batches_of(log)] == [(0, 1), (1, 0)]
        append(log, ("a", "2"))
        await clean_all(log)
        assert [(h.base_offset, h.count) for h, _ in batches_of(log)] == [(2, 1)]

    run(main())


def test_a_map_that_is_too_small_takes_several_passes():
    async def main():
        log = await opened()
        for number in range(120):
            append(log, (f"k{number % 40}", f"v{number}"), (f"l{number % 40}", "x"))
        log.roll()
        ends = []
        while dirt_of(log).dirty_bytes:
            done = await one_pass(log, map_bytes=24 * 31, load_factor=0.9)
            assert done.keys <= 28
            ends.append(done.cleaned_to)
        assert len(ends) > 3
        assert ends == sorted(set(ends))
        assert log.cleaned_to == log.end_offset
        assert sorted(pairs(log)) == sorted(
            [(f"k{n % 40}", f"v{n}") for n in range(80, 120)] + [(f"l{n}", "x") for n in range(40)]
        )

    run(main())


def test_segments_that_became_small_are_joined():
    async def main():
        log = await opened()
        number = 0
        while len(log.segments) < 12:
            append(log, (f"k{number % 9}", "v" * 20))
            number += 1
        for _ in range(3):
            append(log, ("z", "v" * 20))
            await clean_all(log)
        assert len(log.segments) <= 4
        # What was known of producers is kept at the beginning of each segment.
        snapshots = [n for n in log.env.disk.list_dir("/p") if n.endswith(".snapshot")]
        assert [int(name[:20]) for name in snapshots] == list(log.segments)[1:]
        assert len(seen(log)) == 10

    run(main())


def test_a_hole_at_the_end_of_what_is_dirty_is_clean():
    async def main():
        log = await opened()
        while len(log.segments) < 4:
            append(log, ("k", "v" * 30))
        await one_pass(log)
        second = log.segments.keys()[1]
        log.cleaned_to = 0  # the checkpoint file was lost
        done = await one_pass(log, stable=second)
        assert done.cleaned_to == second

    run(main())


def test_readers_go_on_with_what_they_hold():
    async def main():
        env = memory_env(1)
        log = await opened(env)
        while len(log.segments) < 4:
            append(log, ("k", "v" * 30))
        held = log.read(0, 1 << 20)
        data = held.file.pread(held.length, held.position)
        await one_pass(log)
        assert held.file.pread(held.length, held.position) == data
        after = log.read(held.next_offset, 1 << 20)
        assert after.first_offset >= held.next_offset
        # Offsets in the hole that was left are answered with what follows.
        assert log.read(0, 1 << 20).first_offset == log.read(1, 1 << 20).first_offset > 1
        env.clock.advance(log.config.file_delete_delay_ms)
        assert await log.delete_due_files(env.clock.now_ms()) == 3
        assert not [n for n in env.disk.list_dir("/p") if n.endswith(".deleted")]

    run(main())


# -- lag, ratio, policies --------------------------------------------------------------------------


def test_the_ratio_decides_and_overdue_dirt_does():
    async def main():
        env = memory_env(1)
        now = env.clock.wall_ms()
        log = await opened(env, replace(COMPACTED, min_cleanable_dirty_ratio=0.4))
        for number in range(20):
            append(log, (f"k{number}", "v" * 20), time=now)
        await clean_all(log)
        append(log, ("k1", "v" * 20), time=now)
        log.roll()
        dirt = dirt_of(log)
        assert 0 < dirt.ratio < 0.4
        assert not dirt.is_due(log.config)
        log.config = replace(log.config, max_compaction_lag_ms=5_000)
        assert not dirt_of(log).overdue
        env.clock.advance(5_001)
        assert dirt_of(log).is_due(log.config)
        await one_pass(log)
        assert not dirt_of(log).overdue

    run(main())


def test_what_is_young_is_not_cleaned():
    async def main():
        env = memory_env(1)
        now = env.clock.wall_ms()
        log = await opened(env, replace(COMPACTED, min_compaction_lag_ms=10_000))
        for age in (20_000, 15_000, 5_000, 1_000):
            append(log, ("k", f"{age}"), time=now - age)
            log.roll()
        dirt = dirt_of(log)
        assert (dirt.start, dirt.end) == (0, 2)
        await one_pass(log)
        assert pairs(log) == [("k", "15000"), ("k", "5000"), ("k", "1000")]
        env.clock.advance(10_000)
        await one_pass(log)
        assert pairs(log) == [("k", "1000")]

    run(main())


def test_a_segment_is_closed_in_time_for_the_longest_lag():
    async def main():
        log = await opened(config=replace(COMPACTED, max_compaction_lag_ms=5_000))
        append(log, ("k", "1"), time=1_000)
        append(log, ("k", "2"), time=6_000)
        assert len(log.segments) == 1
        append(log, ("k", "3"), time=6_001)
        assert len(log.segments) == 2

    run(main())


def test_retention_goes_on_beside_compaction():
    async def main():
        env = memory_env(1)
        now = env.clock.wall_ms()
        both = replace(COMPACTED, cleanup_delete=True, retention_ms=60_000)
        log = await opened(env, both)
        append(log, ("a", "1"), ("b", "2"), time=now)
        log.roll()
        append(log, (None, "x"), time=now)
        log.roll()
        append(log, ("a", "3"), time=now + 50_000)
        await clean_all(log)
        assert pairs(log) == [("b", "2"), ("a", "3")]
        assert log.delete_retired_segments(now + 70_000, log.end_offset) == 0, "joined with newer"
        assert log.delete_retired_segments(now + 120_000, log.end_offset) == 1
        assert pairs(log) == []
        assert log.log_start_offset == log.end_offset

    run(main())


def test_a_segment_of_which_nothing_is_left_does_not_stop_retention():
    async def main():
        env = memory_env(1)
        now = env.clock.wall_ms()
        config = replace(COMPACTED, segment_bytes=100, cleanup_delete=True, retention_ms=60_000)
        log = await opened(env, config)
        append(log, ("a", "1" * 20), time=now)
        append(log, ("a", "2" * 20), time=now)
        append(log, ("b", "3" * 20), time=now + 200_000)
        await clean_all(log)
        assert log.segments.peekitem(0)[1].size == 0
        assert log.delete_retired_segments(now + 100_000, log.end_offset) == 2
        assert pairs(log) == [("b", "3" * 20)]

    run(main())
