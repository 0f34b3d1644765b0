"""Starts after unclean stops and with damaged files: never a human, never a silent loss."""

import random
from contextlib import suppress
from uuid import UUID

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from storage_helpers import batch, read_all, run

from storage.config import LogConfig
from storage.errors import LogIsDamaged
from storage.leftovers import sweep
from storage.log import Log
from wire.batch import iter_headers, read_header
from wire.errors import DamagedFile
from world.memory import Media, memory_env

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200, retention_ms=-1)
CONTIGUOUS = LogConfig(
    segment_bytes=2000, index_interval_bytes=200, retention_ms=-1, contiguous=True
)
PATH = "/log/t-0"
TOPIC_ID = UUID(int=77)


async def filled(media, batches=60, config=CONFIG, flush_at=None, close=True):
    """A log of several segments, closed cleanly (or left alone)."""
    env = memory_env(disk=media.mount())
    log = await Log.open(env, PATH, config)
    await log.set_topic_id(TOPIC_ID)
    for number in range(batches):
        data = batch(
            3, time=1000 + 10 * number, producer_id=5, producer_epoch=0, base_sequence=3 * number
        )
        log.append_as_leader([data], number // 20)
        if number + 1 == flush_at:
            await log.flush()
    if close:
        await log.close()
    return log


async def reopened(media, config=CONFIG, **options):
    media.kill()
    return await Log.open(memory_env(disk=media.mount()), PATH, config, **options)


def contents(log):
    return (
        read_all(log),
        log.epochs.entries(),
        [log.read(offset, 1)[1:] for offset in range(log.log_start_offset, log.end_offset, 7)],
        [log.offset_for_timestamp(when) for when in range(990, 1620, 13)],
        log.max_timestamp_offset(),
        log.producers.get(5).last_sequence,
    )


DAMAGE = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "cut": lambda data: data[:-3],
    "garbage": lambda data: bytes(random.Random(1).randbytes(len(data) or 40)),
    "zeros": lambda data: bytes(len(data)),
    "longer": lambda data: data + bytes(24),
    "doubled": lambda data: data + data,
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", sorted(DAMAGE))
@pytest.mark.parametrize(
    "suffix", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata"]
)
def test_damaged_side_files_are_derived_again(suffix, damage, clean):
    async def main():
        media = Media()
        await filled(media)
        log = await reopened(media, clean=True)
        assert not log.recovery.rebuilt
        assert len(log.segments) > 3
        expected = contents(log)
        await log.close(clean=False)
        disk = media.mount()
        for name in disk.list_dir(PATH):
            if not name.endswith(suffix):
                continue
            data = DAMAGE[damage](disk.read_bytes(f"{PATH}/{name}"))
            if data is None:
                disk.remove(f"{PATH}/{name}")
            else:
                await disk.replace(f"{PATH}/{name}", data)
        log = await reopened(media, clean=clean, recovery_point=90)
        assert log.end_offset == 180
        assert contents(log) == expected
        assert log.recovery.damage is None
        if suffix == "partition.metadata":
            assert log.topic_id is None
            await log.set_topic_id(TOPIC_ID)
        log.append_as_leader([batch(2)], 9)
        await log.close()
        log = await reopened(media, clean=True)
        assert not log.recovery.rebuilt
        assert not log.recovery.cut
        assert log.end_offset == 182
        assert log.topic_id == TOPIC_ID
        assert read_all(log)[: len(expected[0])] == expected[0]

    run(main())


def test_a_flipped_byte_in_an_offset_index_is_found_and_repaired_when_read():
    async def main():
        media = Media()
        await filled(media)
        log = await reopened(media, clean=True)
        expected = read_all(log)
        name = f"{PATH}/{list(log.segments)[1]:020d}.index"
        for position in range(media.mount().size(name)):
            media.flip(name, position, 0x10)
            log = await reopened(media, clean=True)
            reads = [log.read(offset, 1) for offset in range(0, 180, 5)]
            for offset, found in zip(range(0, 180, 5), reads, strict=True):
                header = read_header(found.file.pread(61, found.position))
                assert header.base_offset <= offset <= header.last_offset
            assert read_all(log, max_bytes=900) == expected
            await log.close()

    run(main())


@examples(150)
@given(
    st.integers(0, 60), st.integers(0, 2**32 - 1), st.sampled_from(["flip", "cut", "grow", "zero"])
)
def test_any_damage_after_the_recovery_point_leaves_the_prefix(flushed, seed, kind):
    """Whatever happens to the tail, the log opens and holds all up to it."""
    chance = random.Random(seed)

    async def main():
        media = Media()
        log = await filled(media, flush_at=flushed, close=False)
        whole = read_all(log)
        safe = log.recovery_point
        segments = [(base, segment.size) for base, segment in log.segments.items() if segment.size]
        # Places past the recovery point, as (file, position).
        before = sum(h.length for _, h in iter_headers(whole) if h.next_offset <= safe)
        places, total = [], 0
        for base, size in segments:
            first = max(0, before - total)
            places += [(base, at) for at in range(first, size)]
            total += size
        if not places:
            return
        base, position = chance.choice(places)
        path = f"{PATH}/{base:020d}.log"
        disk = media.mount()
        file = disk.open(path)
        if kind == "flip":
            media.flip(path, position, 1 << chance.randrange(8))
        elif kind == "cut":
            file.truncate(position)
        elif kind == "grow":
            position = file.append([chance.randbytes(chance.randrange(200))])
        else:
            file.pwrite(bytes(file.size() - position), position)
        log = await reopened(media, recovery_point=safe)
        assert log.end_offset >= safe
        kept = read_all(log)
        assert log.recovery.damage is None
        # All batches before the damaged one are there.
        damaged_at = sum(size for b, size in segments if b < base) + position
        assert whole[:damaged_at].startswith(kept[:damaged_at])
        begun = [at for at, _ in iter_headers(whole) if at <= damaged_at]
        unguarded = kind == "flip" and (damaged_at - begun[-1]) in {*range(8), *range(12, 16)}
        # The CRC covers neither base offset nor leader epoch.
        assert unguarded or whole.startswith(kept)
        complete = [h for at, h in iter_headers(whole) if at + h.length <= damaged_at]
        assert len(kept) >= sum(h.length for h in complete)
        log.append_as_leader([batch(1)], 5)
        await log.flush()
        log = await reopened(media, recovery_point=log.recovery_point)
        assert not log.recovery.cut

    run(main())


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


@pytest.mark.parametrize("what", ["flip", "cut", "missing segment"])
def test_strict_open_decides_nothing(what):
    async def main():
        media = Media()
        log = await filled(media, close=False, flush_at=50, config=CONTIGUOUS)
        whole = read_all(log)
        base, segment = log.segments.peekitem(1)
        step = list(segment.walk(0))[4]
        path = f"{PATH}/{base:020d}.log"
        lost = step.base_offset
        disk = media.mount()
        if what == "flip":
            media.flip(path, step.position + 90)
        elif what == "cut":
            disk.open(path).truncate(step.position + 30)
        else:
            disk.remove(path)
            lost = base
        before = {name: media.mount().size(f"{PATH}/{name}") for name in disk.list_dir(PATH)}
        log = await reopened(media, config=CONTIGUOUS, strict_before=150)
        assert log.recovery.undecided
        assert log.recovery.damage.offset == lost
        assert log.end_offset == lost
        assert whole.startswith(read_all(log))
        with pytest.raises(LogIsDamaged):
            log.append_as_leader([batch(1)], 4)
        with pytest.raises(LogIsDamaged):
            log.append_as_follower(bytes(batch(1)))
        await log.close()
        for name, size in before.items():
            if name.endswith(".log"):
                assert media.mount().size(f"{PATH}/{name}") == size
        # Opened again it still knows; truncation is the decision.
        log = await reopened(media, config=CONTIGUOUS, strict_before=150)
        assert log.recovery.undecided
        log.truncate_to(log.end_offset)
        await log.settle()
        assert log.recovery_point == lost
        log.append_as_leader([batch(3)], 4)
        await log.flush()
        log = await reopened(media, config=CONTIGUOUS, strict_before=lost + 3)
        assert log.recovery.damage is None
        assert log.end_offset == lost + 3

    run(main())


def test_a_synced_log_that_is_not_there_at_all_is_damage():
    async def main():
        log = await reopened(Media(), config=CONTIGUOUS, strict_before=150)
        assert (log.recovery.damage.offset, log.recovery.undecided) == (0, True)
        log = await reopened(Media(), recovery_point=150)
        assert (log.recovery.damage.offset, log.recovery.undecided) == (0, False)
        assert (await reopened(Media(), strict_before=0)).recovery.damage is None

    run(main())


def test_strict_open_cuts_what_was_never_synced():
    async def main():
        media = Media()
        log = await filled(media, close=False, flush_at=50, config=CONTIGUOUS)
        base, segment = log.segments.peekitem(-1)
        last = list(segment.walk(0))[-1]
        media.flip(f"{PATH}/{base:020d}.log", last.position + 80)
        log = await reopened(media, config=CONTIGUOUS, strict_before=150)
        assert log.recovery.damage is None
        assert [cut.position for cut in log.recovery.cut] == [last.position]
        assert log.end_offset == 177
        assert log.recovery_point == 177

    run(main())


def test_strict_open_restarts_at_a_snapshot():
    async def main():
        media = Media()
        log = await filled(media, close=False, flush_at=50, config=CONTIGUOUS)
        media.flip(f"{PATH}/{0:020d}.log", 100)
        log = await reopened(media, config=CONTIGUOUS, strict_before=150)
        assert log.end_offset == 0
        log.truncate_and_restart_at(150)
        await log.settle()
        log.append_as_leader([batch(1)], 4)
        await log.flush()
        await log.close(clean=False)
        log = await reopened(media, config=CONTIGUOUS, strict_before=151)
        assert (log.log_start_offset, log.end_offset) == (150, 151)
        assert log.recovery.damage is None

    run(main())


def test_zero_tail_of_a_preallocated_segment_is_cut():
    async def main():
        media = Media()
        config = LogConfig(segment_bytes=2000, index_interval_bytes=200, preallocate=True)
        log = await filled(media, close=False, config=config)
        whole = read_all(log)
        path = log.active.file.path
        assert media.mount().size(path) == 2000
        log = await reopened(media, config=config)
        assert [cut.reason for cut in log.recovery.cut] == ["zeros"]
        assert read_all(log) == whole
        await log.close()
        assert media.mount().size(path) < 2000

    run(main())


def test_leftovers_of_interrupted_work_are_removed_or_finished():
    async def main():
        media = Media()
        log = await filled(media)
        bases = list(log.segments)
        whole = read_all(await reopened(media, clean=True))
        disk = media.mount()

        def put(name, data=b"x"):
            disk.open(f"{PATH}/{name}", create=True).append([data])

        put(f"{bases[1]:020d}.log.deleted")
        put(f"{bases[2]:020d}.log.cleaned")
        put(f"{999:020d}.index")
        put("leader-epoch-checkpoint.tmp")
        put("00000000000000000003-0000000001.checkpoint.deleted")
        # A cleaner that was done with the first two segments: one file replaces both.
        both = b"".join(disk.read_bytes(f"{PATH}/{base:020d}.log") for base in bases[:2])
        put(f"{0:020d}.log.swap", both)
        log = await reopened(media, clean=True)
        assert read_all(log) == whole
        assert list(log.segments) == [base for base in bases if base != bases[1]]
        names = disk_names = memory_env(disk=media.mount()).disk.list_dir(PATH)
        assert not [name for name in names if name.endswith((".swap", ".cleaned", ".tmp"))]
        assert [name for name in disk_names if name.endswith(".deleted")] == [
            "00000000000000000003-0000000001.checkpoint.deleted"
        ]

    run(main())


@pytest.mark.parametrize("junk", [b"", b"junk", bytes(500)], ids=["empty", "short", "zeros"])
def test_a_damaged_swap_leaves_what_it_was_to_replace(junk):
    async def main():
        media = Media()
        await filled(media)
        log = await reopened(media, clean=True)
        before = contents(log)
        await log.close()
        env = memory_env(disk=media.mount())
        for suffix in ("log", "index"):
            file = env.disk.open(f"{PATH}/{0:020d}.{suffix}.swap", create=True)
            file.append([junk])
            await file.sync()
            file.close()
        await env.disk.sync_dir(PATH)
        log = await reopened(media, clean=True)
        assert contents(log) == before
        assert not [name for name in log.env.disk.list_dir(PATH) if name.endswith(".swap")]

    run(main())


def test_a_swap_that_was_not_finished_is_dropped():
    async def main():
        media = Media()
        await filled(media)
        whole = read_all(await reopened(media, clean=True))
        disk = media.mount()
        for name in (f"{0:020d}.log.swap", f"{0:020d}.log.cleaned"):
            disk.open(f"{PATH}/{name}", create=True).append([b"x"])
        log = await reopened(media, clean=True)
        assert read_all(log) == whole

    run(main())


def test_log_start_beyond_the_end_restarts_the_log():
    async def main():
        media = Media()
        await filled(media)
        log = await reopened(media, clean=True, log_start_offset=400)
        assert (log.log_start_offset, log.end_offset) == (400, 400)
        assert log.epochs.entries() == []

    run(main())


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "entries", ["0 0\n1 60\n", "9999 0\n", "0 0\n1 60\n2 120\n7 150\n"], ids=["old", "new", "other"]
)
def test_epochs_that_are_not_the_logs_are_derived_anew(clean, entries):
    async def main():
        media = Media()
        await filled(media)
        log = await reopened(media, clean=True)
        before = contents(log)
        await log.close()
        data = f"0\n{entries.count(chr(10))}\n{entries}".encode()
        env = memory_env(disk=media.mount())
        await env.disk.replace(f"{PATH}/leader-epoch-checkpoint", data)
        log = await reopened(media, clean=clean, recovery_point=180)
        assert contents(log) == before
        assert f"{PATH}/leader-epoch-checkpoint" in log.recovery.rebuilt
        await log.close()
        log = await reopened(media, clean=True)
        assert contents(log) == before
        assert log.recovery.rebuilt == []

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
