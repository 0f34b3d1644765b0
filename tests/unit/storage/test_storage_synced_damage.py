"""What was synced and is lost or spoiled: told, never cut, and what lies behind it is kept."""

from contextlib import suppress

import pytest
from recovery_helpers import CONTIGUOUS, PATH, filled, reopened
from storage_helpers import batch, read_all, run

from storage.config import LogConfig
from storage.leftovers import sweep
from storage.log import Log
from wire.errors import DamagedFile
from world.memory import Media, memory_env


def test_damage_of_synced_bytes_is_reported_not_cut():
    async def main():
        media = Media()
        log = await filled(media, close=False, flush_at=60)
        base, segment = log.segments.peekitem(-1)
        steps = list(segment.walk(0))
        media.flip(f"{PATH}/{base:020d}.log", steps[2].position + 70)
        log = await reopened(media, recovery_point=180)
        assert log.end_offset == 180
        assert not log.recovery.cut
        assert log.recovery.damage.offset == steps[2].base_offset
        assert log.recovery.damage.position == steps[2].position
        # A broken frame can't be passed: the rest goes, and that is said too.
        media.flip(f"{PATH}/{base:020d}.log", steps[1].position + 8, 0x40)
        log = await reopened(media, recovery_point=180)
        assert log.end_offset == steps[1].base_offset
        assert log.recovery.damage.offset == steps[1].base_offset
        assert log.recovery.cut

    run(main())


def test_a_broken_frame_in_a_trusted_segment_is_found_when_read():
    async def main():
        media = Media()
        await filled(media)
        log = await reopened(media, clean=True)
        base, segment = log.segments.peekitem(1)
        position = list(segment.walk(0))[3].position
        media.flip(f"{PATH}/{base:020d}.log", position + 16)
        log = await reopened(media, clean=True)
        with pytest.raises(DamagedFile) as caught:
            read_all(log, max_bytes=1)
        assert f"{base:020d}.log" in caught.value.path
        found = await log.verify()
        assert [(damage.path, damage.position) for damage in found] == [
            (segment.file.path, position)
        ]

    run(main())


def test_a_log_shorter_than_its_recovery_point_says_so():
    async def main():
        media = Media()
        await filled(media, close=False)
        log = await reopened(media, recovery_point=500)
        assert log.end_offset == 180
        assert log.recovery.damage.offset == 180
        log.append_as_leader([batch(1)], 3)

    run(main())


def test_a_synced_log_that_is_not_there_at_all_is_damage():
    async def main():
        log = await reopened(Media(), config=CONTIGUOUS, strict_before=150)
        assert (log.recovery.damage.offset, log.recovery.undecided) == (0, True)
        log = await reopened(Media(), recovery_point=150)
        assert (log.recovery.damage.offset, log.recovery.undecided) == (0, False)
        assert (await reopened(Media(), strict_before=0)).recovery.damage is None

    run(main())


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("harm", ["emptied", "removed", "cut"])
def test_a_synced_segment_in_the_middle_that_is_gone_is_told(clean, harm):
    async def main():
        env = memory_env(1)
        log = await Log.open(env, "/p", LogConfig(segment_bytes=300))
        while len(log.segments) < 5:
            log.append_as_leader([batch(2), batch(1)], 1)
        point, bases = log.end_offset, list(log.segments)
        await log.close()
        path = f"/p/{bases[2]:020d}.log"
        whole = env.disk.size(path)
        if harm == "removed":
            env.disk.remove(path)
        else:
            env.disk.open(path).truncate(0 if harm == "emptied" else whole // 2)
        options = {"clean": True} if clean else {"recovery_point": point}
        log = await Log.open(env, "/p", LogConfig(segment_bytes=300), **options)
        (told,) = log.recovery.all_damage
        assert bases[1] < told.offset < bases[3]
        if harm != "cut":  # cut within a batch, the place of that is told
            assert f"to {bases[3] - 1} are missing" in told.reason
        assert log.end_offset == point, "what follows is still there"
        assert not log.recovery.undecided
        # Compaction leaves such holes too: where it is on, there is nothing to tell, but that a
        # batch is cut, or that an empty segment has indexes of batches.
        await log.close()
        compacted = LogConfig(segment_bytes=300, cleanup_compact=True)
        log = await Log.open(env, "/p", compacted, clean=True)
        assert bool(log.recovery.all_damage) == (harm != "removed")

    run(main())


@pytest.mark.parametrize("clean", [True, False])
def test_what_compaction_left_out_is_not_missing_where_the_policy_has_changed(clean):
    """A replica has it from its leader: nothing here says that it was compacted."""

    async def main():
        env = memory_env(1)
        log = await Log.open(env, "/p", LogConfig())
        for base in (0, 10, 20):
            for offset in (base, base + 4):
                log.append_as_follower(batch(1, base_offset=offset, leader_epoch=1))
            log.roll()
        point = log.end_offset
        await log.close()
        options = {"clean": True} if clean else {"recovery_point": point}
        log = await Log.open(env, "/p", LogConfig(), **options)
        assert (log.recovery.all_damage, log.end_offset) == ([], point)

    run(main())


async def three_segments(env, batches=20):
    log = await Log.open(env, "/p", LogConfig())
    for number in range(3 * batches):
        log.append_as_leader([bytearray(batch(1, base_offset=0))], 0)
        if number % batches == batches - 1 and number < 3 * batches - 1:
            log.roll()
    await log.flush()
    return log


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("where", [25, 40, 45])
def test_synced_bytes_behind_damage_stay_on_the_disk(clean, where):
    """Behind the damage of an older segment the log goes on; from the newest it is cut, and the
    rest is kept under another name."""

    async def main():
        env = memory_env(1)
        log = await three_segments(env)
        await log.close(clean=clean)
        base = where // 20 * 20
        path = f"/p/{base:020d}.log"
        file = env.disk.open(path)
        position = file.size() // 20 * (where - base)
        file.pwrite(b"\x12", position + 16)  # the magic
        tail = file.pread(file.size(), position)
        if clean:  # or nobody looks at the newest
            env.disk.remove(f"/p/{40:020d}.index")
        log = await Log.open(env, "/p", LogConfig(), recovery_point=60, clean=clean)
        (told,) = log.recovery.all_damage
        if where == 25:
            assert (told.offset, log.end_offset) == (25, 60)
            assert file.pread(file.size(), position) == tail
            assert log.read(24, 1 << 20).next_offset == 25
            assert log.read(25, 1 << 20).first_offset == 40
        else:
            assert (told.offset, log.end_offset) == (where, where)
            kept = f"{path}.{position}.damaged"
            assert env.disk.read_bytes(kept) == tail
            assert kept in told.reason
        assert log.append_as_leader([bytearray(batch(1))], 1).base_offset == log.end_offset - 1
        end = log.end_offset
        await log.close()
        log = await Log.open(env, "/p", LogConfig(), clean=True)
        assert log.end_offset == end
        # It is told of as long as it lies within the log.
        assert [one.offset for one in log.recovery.all_damage] == ([25] if where == 25 else [])

    run(main())


def test_segments_behind_a_lost_one_stay_where_the_log_was_to_be_read_again():
    """The recovery point was written long ago: what lies behind it was read, and removed."""

    async def main():
        env = memory_env(1)
        log = await three_segments(env)
        await log.close(clean=False)
        env.disk.open(f"/p/{0:020d}.log").truncate(0)
        log = await Log.open(env, "/p", LogConfig(), recovery_point=15)
        assert (log.end_offset, list(log.segments)) == (60, [0, 20, 40])
        assert [one.offset for one in log.recovery.all_damage] == [0]

    run(main())


def test_zeros_at_the_end_are_not_kept():
    async def main():
        env = memory_env(1)
        log = await three_segments(env)
        await log.close(clean=False)
        file = env.disk.open(f"/p/{40:020d}.log")
        file.append([bytes(1000)])
        log = await Log.open(env, "/p", LogConfig(), recovery_point=100)
        assert log.end_offset == 60
        assert not [name for name in env.disk.list_dir("/p") if "damaged" in name]

    run(main())


@pytest.mark.parametrize("bad", [20, 29, 30, 31])
@pytest.mark.parametrize("at_open", [True, False])
def test_a_truncation_that_meets_damage_cuts_before_it(bad, at_open):
    """What was sound behind it is fetched again, as all that a truncation takes."""

    async def main():
        env = memory_env(1)
        config = LogConfig(index_interval_bytes=100)
        log = await Log.open(env, "/p", config)
        for number in range(60):
            log.append_as_leader([batch(1)], 1)
            if number % 20 == 19:
                log.roll()
        await log.close()

        def spoil():
            file = env.disk.open(f"/p/{20:020d}.log")
            file.pwrite(b"\xff", file.size() // 20 * (bad - 20) + 16)

        if at_open:
            spoil()
        log = await Log.open(env, "/p", config, clean=True)
        if not at_open:
            spoil()
        log.truncate_to(31)
        await log.settle()
        # A damaged batch far before the cut isn't met: the index leads past it.
        assert log.end_offset in (bad, 31)
        assert list(log.segments) == [0, 20]
        assert log.append_as_leader([batch(1)], 2).base_offset == log.end_offset - 1
        end = log.end_offset
        await log.close()
        log = await Log.open(env, "/p", config, clean=True)
        assert (log.end_offset, log.active.base_offset) == (end, 20)

    run(main())


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("indexes", ["kept", "emptied"])
def test_a_first_segment_that_no_cleaner_emptied_is_not_given_up(clean, indexes):
    """Its followers would give theirs up, too. With its indexes emptied as well, nothing tells that
    it had records; it stays nevertheless, until its time has come."""

    async def main():
        env = memory_env(1)
        config = LogConfig(cleanup_compact=True, cleanup_delete=True, retention_ms=10**9)
        log = await Log.open(env, "/p", config)
        for _ in range(3):
            log.append_as_leader([batch(2, time=env.clock.wall_ms())], 1)
            log.roll()
        await log.close()
        suffixes = [".log"] if indexes == "kept" else [".log", ".index", ".timeindex"]
        for suffix in suffixes:
            env.disk.open(f"/p/{0:020d}{suffix}").truncate(0)
        for _ in range(2):
            log = await Log.open(env, "/p", config, clean=clean, recovery_point=6)
            assert bool(log.recovery.all_damage) == bool(log.damage) == (indexes == "kept")
            assert log.read(0, 1 << 20).first_offset == 2, "readers go on behind it"
            assert log.delete_retired_segments(env.clock.wall_ms(), log.end_offset) == 0
            assert (log.log_start_offset, log.end_offset) == (0, 6)
            await log.close()

    run(main())


@pytest.mark.parametrize("removals", range(6))
def test_a_sweep_that_is_broken_off_leaves_nothing_that_looks_like_a_lost_beginning(removals):
    """A kill amid retiring a segment, and one in the start after that."""

    class Killed(Exception):
        pass

    async def main():
        env = memory_env(1)
        log = await three_segments(env)
        await log.close(clean=False)
        env.disk.rename(f"/p/{0:020d}.log", f"/p/{0:020d}.log.deleted")
        disk, done = env.disk, []

        class Breaking:
            def __getattr__(self, name):
                return getattr(disk, name)

            def remove(self, path):
                if len(done) == removals:
                    raise Killed
                done.append(path)
                disk.remove(path)

        with suppress(Killed):
            sweep(Breaking(), "/p")
        log = await Log.open(env, "/p", LogConfig(), recovery_point=60)
        assert log.recovery.damage is None
        assert log.log_start_offset == 20

    run(main())


def test_what_was_kept_before_a_start_was_broken_off_is_not_kept_again():
    async def main():
        env = memory_env(1)
        log = await three_segments(env)
        await log.close(clean=False)
        path = f"/p/{40:020d}.log"
        file = env.disk.open(path)
        position = file.size() // 4
        file.pwrite(b"\x12", position + 16)  # the magic
        kept = env.disk.open(f"{path}.{position}.damaged", create=True)
        kept.append([file.pread(file.size(), position)])
        env.disk.open(f"{path}.7.damaged.tmp", create=True).append([b"x"])
        log = await Log.open(env, "/p", LogConfig(), recovery_point=60)
        assert log.end_offset == 45
        left = [name for name in env.disk.list_dir("/p") if "damaged" in name]
        assert left == [f"{40:020d}.log.{position}.damaged"]

    run(main())
