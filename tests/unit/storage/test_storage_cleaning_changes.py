"""What comes in between while a log is cleaned: damage, truncation, a full disk."""

from dataclasses import replace

import pytest
from cleaning_helpers import (
    COMPACTED,
    append,
    clean_all,
    dirt_of,
    forged,
    limits,
    one_pass,
    opened,
    pairs,
    records_batch,
    seen,
)
from storage_helpers import run

from storage.cleaning.work import LogChanged, clean
from storage.log import Log
from wire.errors import DamagedFile
from world.env import DiskFull
from world.memory import memory_env


def test_damage_is_told_and_nothing_is_replaced():
    async def main():
        env = memory_env(1)
        log = await opened(env)
        while len(log.segments) < 3:
            append(log, ("k", "v" * 30))
        env.disk.media.flip(log.segments.peekitem(1)[1].file.path, 90)
        await log.flush()
        names = env.disk.list_dir("/p")
        with pytest.raises(DamagedFile, match="CRC is wrong"):
            await one_pass(log)
        assert env.disk.list_dir("/p") == names
        assert log.cleaned_to == 0

    run(main())


@pytest.mark.parametrize("delta", [b"\xfe\xff\x07", b"\x00"], ids=["far", "twice"])
def test_a_record_that_lies_about_its_place_makes_no_other_go(delta):
    async def main():
        log = await opened()
        append(log, ("k", "1"))
        before = seen(log)

        def edit(raw):
            second = raw[0] // 2 + 1
            rest = raw[second + 4 :]
            length = raw[second] // 2 - 1 + len(delta)
            head = bytes([length * 2]) + raw[second + 1 : second + 3]
            return raw[:second] + head + delta + rest

        lie = forged(records_batch(("x", "1"), ("k", "2")), edit)
        log.append_as_leader([lie], 1)
        append(log, ("k", "3"))
        log.roll()
        with pytest.raises(DamagedFile, match="offset delta"):
            await one_pass(log)
        assert seen(log)[0] == before[0]

    run(main())


@pytest.mark.parametrize("happens", ["truncated", "closed", "retired"])
def test_a_log_that_changes_meanwhile_is_left_alone(happens):
    async def main():
        env = memory_env(1)
        log = await opened(env)
        while len(log.segments) < 6:
            append(log, ("k", "v" * 30))
        bases = list(log.segments)
        dirt = dirt_of(log)
        whole = seen(log)

        async def sync(path):
            if path.endswith(".log.cleaned"):
                if happens == "truncated":
                    log.truncate_to(bases[4])
                elif happens == "closed":
                    await log.close(clean=False)
                else:
                    log.drop_first_segment()

        env.disk.media.wait_for_sync = sync
        with pytest.raises(LogChanged):
            await clean(log, dirt, limits())
        env.disk.media.wait_for_sync = None
        if happens == "closed":
            log = await opened(env, recovery_point=log.end_offset)
            assert seen(log) == whole
        else:
            assert not [n for n in env.disk.list_dir("/p") if ".cleaned" in n or ".swap" in n]
            assert set(seen(log)) < set(whole)
            assert log.cleaned_to == 0
        # Nothing hinders the next pass.
        await one_pass(log)
        assert log.cleaned_to == log.active.base_offset

    run(main())


def test_truncation_below_makes_it_dirty_again():
    async def main():
        log = await opened()
        while len(log.segments) < 6:
            append(log, ("k", "v" * 30))
        await one_pass(log)
        base = log.active.base_offset
        assert log.cleaned_to == base
        log.truncate_to(base - 1)
        assert log.cleaned_to == log.end_offset <= base - 1

    run(main())


def test_a_full_disk_leaves_the_log_as_it_was():
    async def main():
        env = memory_env(1)
        log = await opened(env)
        while len(log.segments) < 4:
            append(log, (f"k{log.end_offset}", "v" * 30))
        await log.flush()
        names, whole = env.disk.list_dir("/p"), seen(log)
        env.disk.media.faults.space_left = 500
        with pytest.raises(DiskFull):
            await one_pass(log)
        assert env.disk.list_dir("/p") == names
        assert seen(log) == whole
        env.disk.media.faults.space_left = None
        await one_pass(log)

    run(main())


def test_a_follower_takes_a_cleaned_log():
    async def main():
        leader = await opened()
        for number in range(60):
            append(leader, (f"k{number % 5}", f"v{number}"))
        await clean_all(leader)
        append(leader, ("last", "x"))
        follower = await Log.open(memory_env(2), "/f", COMPACTED)
        while follower.end_offset < leader.end_offset:
            part = leader.read(follower.end_offset, 200)
            follower.append_as_follower(part.file.pread(part.length, part.position))
        assert seen(follower) == seen(leader)
        follower.roll()
        await one_pass(follower)
        assert seen(follower) == seen(leader)

    run(main())


def test_a_large_batch_is_read_whole():
    async def main():
        config = replace(COMPACTED, segment_bytes=8 << 20)
        log = await opened(config=config)
        large = "x" * (3 << 20)
        log.append_as_leader([records_batch(("a", large), ("b", "1"))], 1)
        append(log, ("b", "2"))
        await clean_all(log)
        assert pairs(log) == [("a", large), ("b", "2")]

    run(main())
