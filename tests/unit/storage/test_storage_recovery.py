"""Starts after unclean stops and with damaged files: never a human, never a silent loss."""

import itertools
import random
from contextlib import suppress

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from recovery_helpers import CONTIGUOUS, PATH, TOPIC_ID, filled, reopened
from storage_helpers import batch, read_all, run

from storage.config import LogConfig
from storage.errors import LogIsDamaged
from wire.batch import iter_headers, read_header
from world.env import DiskError, DiskFull
from world.memory import Media, MemoryDisk, memory_env


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


def full_after(count, *, for_undo):
    """Renames until the disk is full; `for_undo`: it refuses to give names back, too."""
    rename, renames = MemoryDisk.rename, []

    def full(self, source, target):
        renames.append(source)
        if len(renames) > count and (for_undo or target.endswith(".deleted")):
            raise DiskFull(source, "rename", "No space left on device")
        rename(self, source, target)

    return full


@pytest.mark.parametrize("for_undo", [False, True])
@pytest.mark.parametrize("refused", range(5))
def test_a_segment_that_a_full_disk_kept_from_going_goes_later(monkeypatch, refused, for_undo):
    """Whichever of its files it was; none is forgotten, to be met at the next start."""
    media = Media()
    log = run(filled(media, close=False))
    start = list(log.segments)[2]
    log.advance_log_start(start)
    with monkeypatch.context() as patch:
        patch.setattr(MemoryDisk, "rename", full_after(refused, for_undo=for_undo))
        for _ in range(2):
            with suppress(DiskFull):
                log.delete_retired_segments(0, log.end_offset)
    if not for_undo:
        for segment in log.segments.values():
            assert segment.locate(segment.base_offset).base_offset == segment.base_offset
            assert segment.last_header() is not None
    log.delete_retired_segments(0, log.end_offset)
    assert next(iter(log.segments)) == start
    run(log.delete_due_files(1 << 60))
    assert not [name for name in log.env.disk.list_dir(PATH) if name.endswith(".deleted")]
    end = log.end_offset
    run(log.close())
    log = run(reopened(media))
    assert (log.log_start_offset, log.end_offset, log.recovery.damage) == (start, end, None)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("refused", range(9))
def test_a_truncation_that_a_full_disk_broke_off_is_made_again(monkeypatch, refused, restart):
    """What was cut came back with the next start, behind a hole."""
    media = Media()
    log = run(filled(media, close=False))
    cut = 1_000 if restart else list(log.segments)[-3] + 1
    truncate = log.truncate_and_restart_at if restart else log.truncate_to
    with monkeypatch.context() as patch:
        patch.setattr(MemoryDisk, "rename", full_after(refused, for_undo=False))
        told = None
        try:
            truncate(cut)
        except DiskError as error:
            told = error
    # Its directory has failed then: what is appended now might go into a file that is gone.
    assert not isinstance(told, DiskFull)
    truncate(cut)
    run(log.settle())
    for _ in range(3):
        log.append_as_leader([batch()], 50)
    records, end = read_all(log), log.end_offset
    run(log.close())
    log = run(reopened(media, clean=True))
    assert (read_all(log), log.end_offset, log.recovery.damage) == (records, end, None)


def refusing(patch, at):
    """Call number `at` of the disk finds it full; counts the calls."""
    calls = itertools.count()

    def full(operation):
        work = getattr(MemoryDisk, operation)

        def refuse(self, path, *args, **named):
            if next(calls) == at:
                raise DiskFull(path, operation, "Too many open files")
            return work(self, path, *args, **named)

        patch.setattr(MemoryDisk, operation, refuse)

    for operation in ("list_dir", "read_bytes", "rename", "remove", "open"):
        full(operation)
    return calls


@pytest.mark.parametrize("cut", ["the newest segment", "older ones", "all"])
def test_no_refusal_amid_a_truncation_passes_for_one_that_changed_nothing(monkeypatch, cut):
    """Whoever cut goes on with the log after DiskFull, and knows nothing of its new end."""
    for at in itertools.count():
        log = run(filled(Media(), close=False))
        told = None
        with monkeypatch.context() as patch:
            calls = refusing(patch, at)
            try:
                if cut == "all":
                    log.truncate_and_restart_at(50)
                elif cut == "older ones":
                    log.truncate_to(list(log.segments)[-3] + 1)
                else:
                    log.truncate_to(log.end_offset - 3)
            except DiskError as error:
                told = error
        assert not isinstance(told, DiskFull), f"call {at}"
        made = next(calls)
        assert (told is None) == (made <= at), f"call {at}"
        if told is None:
            break
    assert at > 0


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
