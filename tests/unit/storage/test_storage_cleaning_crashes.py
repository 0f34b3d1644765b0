"""A pass that is cut off at any of its disk operations, by a kill or a loss of power."""

import contextlib
import os
import random
from dataclasses import replace

import pytest
from cleaning_helpers import COMPACTED, append, dirt_of, limits, seen
from storage_helpers import run

from storage.cleaning.work import LogChanged
from storage.log_dir import CLEANED_OFFSETS, LogDirectory
from wire import checkpoints
from wire.index_files import AbortedTxn, encode_txn_entry
from world.env import DiskError, DiskFull
from world.memory import Media, memory_env

CONFIG = replace(COMPACTED, segment_bytes=350, delete_retention_ms=1_000)
KEY = ("t", 0)
# Of the operations of a pass, which are the last of a life.
EVERY = 1 if os.environ.get("CI") == "true" else 5


class Cut(BaseException):
    """The process ends here."""


async def started(media):
    env = memory_env(3, disk=media.mount())
    directory = await LogDirectory.open(env, "/d")
    return directory, await directory.open_log(*KEY, CONFIG)


async def dirty(media):
    """A log with a clean part, tombstones whose time is over, dirt, and segments to join."""
    directory, log = await started(media)
    for number in range(30):
        append(log, (f"k{number % 6}", f"v{number}"), producer_id=5, **_at(number))
    append(log, ("k0", None), ("k1", None))
    append(log, ("gone", "x"))
    append(log, ("gone", None))
    log.roll()
    file = log.env.disk.open(log.active.path(".txnindex"), create=True)
    file.append([encode_txn_entry(AbortedTxn(99, log.end_offset, log.end_offset, 0))])
    await directory.clean_log(*KEY, dirt_of(log), limits())
    media.clock.advance(1_001)
    for number in range(30, 70):
        append(log, (f"k{number % 4 + 2}", f"v{number}"), producer_id=5, **_at(number))
    append(log, ("k2", None))
    log.roll()
    append(log, ("k3", "active"))
    await directory.flush_all()
    return directory, log


def _at(sequence):
    return {"producer_epoch": 0, "base_sequence": sequence}


async def one_pass(media, cut_at):
    """A pass that ends at operation `cut_at` (None: it doesn't); how many operations it had, and
    what the log had before and has now."""
    directory, log = await dirty(media)
    before, count = seen(log), 0

    def watch(operation, path, position, data):
        nonlocal count
        if count == cut_at:
            raise Cut
        count += 1

    media.before_change = watch
    try:
        await directory.clean_log(*KEY, dirt_of(log), limits())
    finally:
        media.before_change = Media().before_change
    return count, before, seen(log), directory


@pytest.mark.parametrize("end", ["kill", "power"])
def test_whatever_a_crash_leaves_is_sound(end):
    async def main():
        operations, before, after, directory = await one_pass(Media(), None)
        assert operations > 60
        assert set(after) < set(before)
        final = directory.logs[KEY]
        bounds = (final.end_offset, final.epochs.entries(), final.producers.get(5).last_sequence)
        outcomes: dict[int, None] = {}
        for cut_at in range(0, operations, EVERY):
            media = Media()
            with pytest.raises(Cut):
                await one_pass(media, cut_at)
            if end == "power":
                media.lose_power(random.Random(cut_at))
            else:
                media.kill()
            directory, log = await started(media)
            assert log.recovery.cut == []
            assert log.recovery.all_damage == []
            found = seen(log)
            outcomes[len(found)] = None
            # Nothing is there that wasn't, nothing is gone that should stay.
            assert set(after) <= set(found) <= set(before), cut_at
            state = (
                log.end_offset,
                log.epochs.entries(),
                log.producers.get(5).last_sequence,
            )
            assert state == bounds
            _keys_are_right(found, before)
            assert not [n for n in log.env.disk.list_dir("/d/t-0") if n.endswith(LEFT)]
            # The next pass makes of it what the one cut off would have made.
            if dirt_of(log).dirty_bytes:
                await directory.clean_log(*KEY, dirt_of(log), limits())
            assert seen(log) == after, cut_at
            await directory.close()
            directory, log = await started(media)
            assert seen(log) == after
            await directory.close()
        assert len(outcomes) > 3, "segments are replaced one after the other"

    run(main())


LEFT = (".cleaned", ".swap", ".deleted")


def _keys_are_right(found, before):
    """Of each key the newest record counts, and a deleted key has no value at all or its tombstone
    after it."""
    newest = {record.key: record for record in before}
    state = {record.key: record for record in found}
    for key, record in newest.items():
        assert state.get(key) in (record, None)
        assert key in state or record.value is None


@pytest.mark.parametrize("seed", range(20))
def test_two_cuts_one_after_the_other(seed):
    """The second while the first's leftovers are put in order, or in the next pass."""

    async def main():
        chance = random.Random(seed)
        operations, before, after, _ = await one_pass(Media(), None)
        media = Media()
        with pytest.raises(Cut):
            await one_pass(media, chance.randrange(operations))
        media.lose_power(chance)
        left = chance.randrange(60)

        def watch(*operation):
            nonlocal left
            left -= 1
            if left < 0:
                raise Cut

        media.before_change = watch
        with contextlib.suppress(Cut):
            directory, log = await started(media)
            await directory.clean_log(*KEY, dirt_of(log), limits())
        media.before_change = Media().before_change
        media.lose_power(chance)
        directory, log = await started(media)
        found = seen(log)
        assert set(after) <= set(found) <= set(before)
        _keys_are_right(found, before)
        assert log.recovery.cut == []
        await directory.clean_log(*KEY, dirt_of(log), limits())
        assert seen(log) == after

    run(main())


@pytest.mark.parametrize("happens", ["truncated", "closed"])
def test_a_log_that_changes_while_it_is_made_durable_is_left_alone(happens):
    async def main():
        media = Media()
        directory, log = await dirty(media)
        append(log, ("k5", "not on the disk"))
        dirt = dirt_of(log)
        log.roll()

        async def sync(path):
            media.wait_for_sync = None
            if happens == "truncated":
                log.truncate_to(dirt.end - 2)
            else:
                await directory.set_stray(*KEY)

        media.wait_for_sync = sync
        # Until it is rolled, the recovery point is in the segment that grows.
        dirt = replace(dirt, end=log.end_offset)
        with pytest.raises(LogChanged):
            await directory.clean_log(*KEY, dirt, limits())

    run(main())


def test_how_far_it_is_clean_is_written_in_kafkas_way():
    async def main():
        media = Media()
        _, _, _, directory = await one_pass(media, None)
        path = f"/d/{CLEANED_OFFSETS}"
        end = directory.logs[KEY].active.base_offset
        data = media.mount().read_bytes(path)
        assert data == f"0\n1\nt 0 {end}\n".encode()
        assert checkpoints.decode_offsets(data, path) == {KEY: end}

    run(main())


@pytest.mark.parametrize("seed", range(8))
def test_what_a_pass_did_is_there_after_a_loss_of_power(seed):
    async def main():
        media = Media()
        _, _, after, _ = await one_pass(media, None)
        media.lose_power(random.Random(seed))
        _, log = await started(media)
        assert seen(log) == after
        assert not dirt_of(log).dirty_bytes

    run(main())


@pytest.mark.parametrize("seed", range(8))
def test_no_record_goes_for_a_newer_one_that_can_be_lost(seed):
    async def main():
        media = Media()
        directory, log = await started(media)
        append(log, ("a", "old"), ("b", "1"))
        await directory.flush_all()
        append(log, ("a", "new"))
        log.roll()
        await directory.clean_log(*KEY, dirt_of(log), limits())
        media.lose_power(random.Random(seed))
        _, log = await started(media)
        assert [(record.key, record.value) for record in seen(log)] == [("b", "1"), ("a", "new")]

    run(main())


def test_a_hole_that_cleaning_left_is_no_torn_end():
    """The process ends before it could write down how far the log is clean."""

    async def main():
        media = Media()
        directory, log = await started(media)
        while len(log.segments) < 6:
            append(log, ("a", "x" * 30))

        def watch(operation, path, position, data):
            if CLEANED_OFFSETS in path:
                raise Cut

        media.before_change = watch
        with pytest.raises(Cut):
            await directory.clean_log(*KEY, dirt_of(log), limits())
        media.before_change = Media().before_change
        end, found = log.end_offset, seen(log)
        media.kill()
        _, log = await started(media)
        assert (log.cleaned_to, log.recovery.cut) == (0, [])
        assert (log.end_offset, seen(log)) == (end, found)

    run(main())


def test_a_truncated_log_is_dirty_again_after_a_loss_of_power():
    async def main():
        media = Media()
        _, _, _, directory = await one_pass(media, None)
        log = directory.logs[KEY]
        cut = log.cleaned_to - 3
        log.truncate_to(cut)
        await log.settle()
        for number in range(20):
            append(log, ("k9", "new"), producer_id=6, **_at(number))
        await log.flush()
        media.lose_power(random.Random(1))
        directory, log = await started(media)
        assert 0 < log.cleaned_to <= cut
        assert ("k9", "new") in [(record.key, record.value) for record in seen(log)]

    run(main())


@pytest.mark.parametrize("end", ["kill", "power"])
def test_a_disk_that_fails_as_segments_change_places_is_told_as_that(end):
    """Not as a change of the log by others: a log that lacks some of them would be gone on with."""

    async def main():
        _, before, after, _ = await one_pass(Media(), None)
        refused = 0
        while True:
            media = Media()
            directory, log = await dirty(media)
            renames = 0

            def watch(operation, path, position, data, at=refused):
                nonlocal renames
                if operation == "rename" and "checkpoint" not in path:
                    renames += 1
                    if renames > at:
                        raise DiskFull(path, operation, "No space left on device")

            media.before_change = watch
            try:
                await directory.clean_log(*KEY, dirt_of(log), limits())
                break
            except LogChanged as error:
                raise AssertionError(refused) from error
            except DiskError:
                refused += 1
            finally:
                media.before_change = Media().before_change
            if end == "power":
                media.lose_power(random.Random(refused))
            else:
                media.kill()
            _, log = await started(media)
            assert log.recovery.all_damage == []
            assert set(after) <= set(seen(log)) <= set(before)
        assert refused > 5

    run(main())


def test_a_topic_made_again_is_not_clean():
    async def main():
        media = Media()
        _, _, _, directory = await one_pass(media, None)
        await directory.delete_log(*KEY, 0)
        log = await directory.open_log(*KEY, CONFIG)
        assert log.cleaned_to == 0
        while log.end_offset < 200:
            append(log, ("a", "1"))
        log.roll()
        await log.flush()
        media.kill()
        directory, log = await started(media)
        assert log.cleaned_to == 0
        assert dirt_of(log).dirty_bytes > 0

    run(main())
