"""What a log refuses, how it rolls, keeps time, gives up the old, and shares its syncs."""

import asyncio
import random

import pytest
from storage_helpers import batch, read_all, run

from storage.appending import Appended
from storage.config import LogConfig
from storage.errors import CorruptBatch, OffsetOutOfRange, OutOfOrderOffsets
from storage.log import Log
from storage.producers import Duplicate
from wire.batch import read_header
from wire.errors import ErrorCode, KafkaError
from wire.index_files import decode_offset_entries, decode_time_entries
from world.env import DiskError, DiskFull, SyncFailed
from world.memory import ManualClock, Media, memory_env

PATH = "/log/t-0"
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


async def new_log(config=SMALL, media=None):
    env = memory_env(disk=(media or Media()).mount())
    return await Log.open(env, PATH, config), env


def test_a_new_log_is_empty():
    async def main():
        log, env = await new_log()
        assert (log.log_start_offset, log.end_offset, log.size, log.last_epoch) == (0, 0, 0, -1)
        assert log.read(0, 100) is None
        assert log.offset_for_timestamp(0) is None
        assert log.max_timestamp_offset() is None
        assert log.batch_header_at(0) is None
        assert log.end_offset_for_epoch(0) == (-1, -1)
        with pytest.raises(OffsetOutOfRange):
            log.read(1, 100)
        assert env.disk.list_dir(PATH) == [f"{0:020d}.log"]
        log = await Log.open(env, "/log/u-0", SMALL, log_start_offset=50)
        assert (log.log_start_offset, log.end_offset) == (50, 50)

    run(main())


def test_appending_patches_what_is_writable_and_copies_what_is_not():
    async def main():
        log, _ = await new_log()
        mutable, frozen = batch(2), bytes(batch(3))
        info = log.append_as_leader([mutable, frozen], 4)
        assert (info.base_offset, info.last_offset) == (0, 4)
        assert info.outcomes == (Appended(0, 1), Appended(2, 4))
        assert read_header(mutable).leader_epoch == 4
        assert read_header(frozen).leader_epoch == -1
        assert log.batch_header_at(3).base_offset == 2
        assert log.epochs.entries() == [(4, 0)]
        assert log.append_as_leader([], 4).base_offset == -1

    run(main())


def test_nonsense_is_refused_whole():
    async def main():
        log, _ = await new_log()
        log.append_as_leader([batch(2)], 0)
        good = bytes(batch(2, base_offset=2, leader_epoch=0))
        flipped = bytearray(batch(2, base_offset=4, leader_epoch=0))
        flipped[-1] ^= 1
        with pytest.raises(CorruptBatch):
            log.append_as_leader([good, b"nonsense"], 0)
        with pytest.raises(CorruptBatch):
            log.append_as_leader([good + good[:-1]], 0)
        with pytest.raises(CorruptBatch):
            log.append_as_follower(good + flipped)
        with pytest.raises(CorruptBatch):
            log.append_as_follower(good + bytes(100))
        with pytest.raises(OutOfOrderOffsets):
            log.append_as_follower(good + good)
        assert log.append_as_follower(good[:-1]) is None
        assert log.append_as_follower(b"") is None
        assert log.end_offset == 2
        assert log.append_as_follower(good + bytes(flipped)[:-1]).last_offset == 3

    run(main())


def test_contiguous_logs_take_no_gap_and_no_older_epoch():
    async def main():
        log, _ = await new_log(LogConfig(contiguous=True))
        log.append_as_follower(bytes(batch(2, base_offset=0, leader_epoch=3)))
        with pytest.raises(OutOfOrderOffsets):
            log.append_as_follower(bytes(batch(2, base_offset=3, leader_epoch=3)))
        with pytest.raises(CorruptBatch, match="epoch falls"):
            log.append_as_follower(bytes(batch(2, base_offset=2, leader_epoch=2)))
        other, _ = await new_log()
        other.append_as_follower(bytes(batch(2, base_offset=7, leader_epoch=3)))
        assert other.end_offset == 9
        assert read_header(read_all(other)).base_offset == 7

    run(main())


def test_duplicates_and_gaps_of_producers_are_told_one_by_one():
    async def main():
        log, _ = await new_log()

        def from_producer(sequence, epoch=0):
            return batch(2, producer_id=3, producer_epoch=epoch, base_sequence=sequence)

        info = log.append_as_leader(
            [from_producer(0), from_producer(2), from_producer(0), from_producer(9), batch(1)],
            1,
            check_producers=True,
        )
        kinds = [type(outcome) for outcome in info.outcomes]
        assert kinds == [Appended, Appended, Duplicate, KafkaError, Appended]
        assert info.outcomes[2][:2] == (0, 1)
        assert info.outcomes[3].code == ErrorCode.out_of_order_sequence_number
        assert log.end_offset == 5
        info = log.append_as_leader([from_producer(2)], 1, check_producers=True)
        assert (info.base_offset, info.outcomes[0][:2]) == (-1, (2, 3))
        assert log.check_producer(read_header(from_producer(4))) is None

    run(main())


def test_segments_roll_by_size_time_index_and_offset():
    async def main():
        log, _ = await new_log()
        for _ in range(30):
            log.append_as_leader([batch(1, size=100)], 0)
        assert all(segment.size <= 1000 for segment in log.segments.values())
        assert len(log.segments) == 6
        log.append_as_leader([batch(1, size=5000)], 0)
        assert log.active.size > 5000

        by_time, _ = await new_log(LogConfig(segment_ms=1000, segment_jitter_ms=100))
        by_time.append_as_leader([batch(1, time=5000)], 0)
        by_time.append_as_leader([batch(1, time=5900)], 0)
        assert len(by_time.segments) == 1
        by_time.append_as_leader([batch(1, time=5901)], 0)
        assert len(by_time.segments) == 2

        by_index, _ = await new_log(LogConfig(index_interval_bytes=1, segment_index_bytes=48))
        for number in range(20):
            by_index.append_as_leader([batch(1, time=1000 + number)], 0)
        assert len(by_index.segments) > 3

        by_offset, _ = await new_log()
        by_offset.append_as_follower(bytes(batch(1, base_offset=10)))
        by_offset.append_as_follower(bytes(batch(1, base_offset=2**31 + 5)))
        by_offset.append_as_follower(bytes(batch(1, base_offset=2**33)))
        assert list(by_offset.segments) == [0, 11, 2**31 + 6, 2**33]
        assert by_offset.batch_header_at(2**32).base_offset == 2**33
        log.roll()
        log.roll()
        assert log.active.base_offset == log.end_offset

    run(main())


def test_index_files_are_what_kafka_writes():
    async def main():
        log, env = await new_log(LogConfig(segment_bytes=100_000, index_interval_bytes=300))
        for number in range(40):
            log.append_as_leader([batch(2, time=1000 + number * 7 % 50)], 0)
        steps = list(log.active.walk(0))
        log.roll()
        name = f"{PATH}/{0:020d}"
        entries = decode_offset_entries(env.disk.read_bytes(name + ".index"), "i")
        by_position = {step.position: step.last_offset for step in steps}
        assert len(entries) > 5
        assert all(by_position[position] == offset for offset, position in entries)
        times = decode_time_entries(env.disk.read_bytes(name + ".timeindex"), "t")
        assert times[-1][0] == log.segments[0].largest_timestamp == 1050
        for timestamp, offset in times:
            header = log.batch_header_at(offset)
            assert (header.last_offset, header.max_timestamp) == (offset, timestamp)
        assert env.disk.exists(f"{PATH}/{80:020d}.snapshot")

    run(main())


def test_times_are_looked_up_exactly():
    async def main():
        log, _ = await new_log()
        records = []
        for number in range(60):
            count = number % 3 + 1
            time = 1000 + (number * 37) % 400
            log.append_as_leader([batch(count, time=time, step=-2)], number // 30)
            records += [time - 2 * at for at in range(count)]
        assert len(log.segments) > 4
        for start in (0, 17):
            log.advance_log_start(start)
            for wanted in range(980, 1420, 3):
                found = log.offset_for_timestamp(wanted)
                expected = next(
                    (o for o, when in enumerate(records) if o >= start and when >= wanted), None
                )
                assert (found and found[0]) == expected
                if found is not None:
                    assert found[1] == records[expected]
                    assert found[2] == log.epochs.epoch_at(found[0])
        assert log.max_timestamp_offset()[:2] == (records.index(max(records)), max(records))

    run(main())


def test_retention_by_time_size_and_log_start():
    async def main():
        media = Media(ManualClock(wall_ms=10_000))
        config = LogConfig(segment_bytes=1000, retention_ms=5000, file_delete_delay_ms=50)
        log, env = await new_log(config, media)
        for number in range(40):
            log.append_as_leader([batch(1, size=100, time=1000 + 100 * number)], 0)
        bases = list(log.segments)
        assert log.delete_retired_segments(6000, 40) == 0
        reader = log.read(0, 10_000)
        # The first segment's newest record is at 1000 + 100 * (bases[1] - 1).
        newest = 1000 + 100 * (bases[1] - 1)
        assert log.delete_retired_segments(newest + 5000, 40) == 0
        assert log.delete_retired_segments(newest + 5001, bases[1] - 1) == 0
        assert log.delete_retired_segments(newest + 5001, 40) == 1
        assert log.log_start_offset == bases[1]
        assert len(reader.file.pread(reader.length, reader.position)) == reader.length
        assert f"{0:020d}.log.deleted" in env.disk.list_dir(PATH)
        assert await log.delete_due_files(49) == 0
        assert await log.delete_due_files(50) == 1
        assert not [name for name in env.disk.list_dir(PATH) if name.endswith(".deleted")]

        log.config = LogConfig(segment_bytes=1000, retention_ms=-1, retention_bytes=2500)
        assert log.delete_retired_segments(0, 40) > 0
        first = log.segments.peekitem(0)[1]
        assert log.size - first.size < 2500 <= log.size

        log.config = LogConfig(cleanup_delete=False, cleanup_compact=True, retention_ms=0)
        assert log.delete_retired_segments(10**9, 40) == 0
        second = list(log.segments)[1]
        log.advance_log_start(second + 1)
        assert log.delete_retired_segments(10**9, 40) == 1
        assert next(iter(log.segments)) == second
        with pytest.raises(OffsetOutOfRange):
            log.read(0, 10)
        with pytest.raises(OffsetOutOfRange):
            log.advance_log_start(41)

        log.config = LogConfig(retention_ms=0)
        log.delete_retired_segments(10**9, 40)
        assert (log.log_start_offset, log.end_offset, log.size) == (40, 40, 0)
        assert log.delete_retired_segments(10**9, 40) == 0

    run(main())


def test_a_full_disk_refuses_cleanly_and_reads_go_on():
    async def main():
        log, env = await new_log()
        for _ in range(6):
            log.append_as_leader([batch(1, size=100)], 0)
        whole = read_all(log)
        faults = env.disk.media.faults
        for space in range(0, 400, 20):
            faults.space_left = space
            with pytest.raises(DiskFull):
                log.append_as_leader([batch(1, size=600, producer_id=1, base_sequence=0)], 7)
            assert read_all(log) == whole
            assert log.last_epoch == 0
            assert log.producers.get(1) is None
        faults.space_left = None
        log.append_as_leader([batch(1, size=600)], 7)
        await log.close()
        log = await Log.open(env, PATH, SMALL, clean=True)
        assert not log.recovery.rebuilt
        assert read_all(log).startswith(whole)
        assert log.end_offset == 7

    run(main())


def test_one_sync_serves_many_and_covers_only_what_came_before():
    async def main():
        gate = asyncio.Event()
        gate.set()

        async def wait(path):
            await gate.wait()

        media = Media(wait_for_sync=wait)
        log, _ = await new_log(media=media)
        log.append_as_leader([batch(1)], 0)
        gate.clear()
        first = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        log.append_as_leader([batch(1)], 0)
        second = asyncio.ensure_future(log.flush())
        for _ in range(20):
            log.append_as_leader([batch(1, size=100)], 0)  # rolls while they wait
        third = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        log.truncate_to(12)
        gate.set()
        assert await first == 1
        assert await second >= 2
        assert await third == 12
        assert log.recovery_point == 12
        await log.settle()
        assert await log.flush(upto=5) == 12

    run(main())


def test_a_failed_sync_promises_nothing():
    async def main():
        log, env = await new_log()
        log.append_as_leader([batch(1)], 0)
        env.disk.media.faults.failing_syncs = 1
        with pytest.raises(SyncFailed):
            await log.flush()
        assert log.recovery_point == 0

    run(main())


def test_the_recovery_point_is_lowered_before_a_truncation_settles():
    async def main():
        log, _ = await new_log()
        log.append_as_leader([batch(5), batch(5)], 0)
        await log.flush()
        told = []

        async def lowered():
            told.append(log.recovery_point)

        log.on_lowered_recovery_point = lowered
        log.truncate_to(7)
        assert log.end_offset == 5
        await log.settle()
        await log.settle()
        assert told == [5]
        log.truncate_to(9)
        assert log.end_offset == 5

    run(main())


def test_a_log_whose_lower_recovery_point_finds_no_room_has_failed():
    """Gone on with, what came next was taken for synced after a power loss."""

    async def main():
        log, _ = await new_log()
        log.append_as_leader([batch(5), batch(5)], 0)
        await log.flush()

        async def full():
            raise DiskFull("/a/recovery-point-offset-checkpoint.tmp", "write", "No space left")

        log.on_lowered_recovery_point = full
        log.truncate_to(7)
        with pytest.raises(DiskError) as told:
            await log.settle()
        assert not isinstance(told.value, DiskFull)

    run(main())


@pytest.mark.parametrize("clean", [True, False])
def test_a_new_log_survives_a_power_loss_after_its_first_flush(clean):
    async def main():
        for seed in range(20):
            media = Media()
            env = memory_env(disk=media.mount())
            log = await Log.open(env, "/a/b/c/t-0", SMALL, clean=clean)
            log.append_as_leader([batch(3)], 0)
            await log.flush()
            media.lose_power(random.Random(seed))
            log = await Log.open(memory_env(disk=media.mount()), "/a/b/c/t-0", SMALL)
            assert log.end_offset == 3

    run(main())


def test_a_trimmed_segment_stays_trimmed():
    """The zeros of preallocation must not come back behind the recovery point."""

    async def main():
        config = LogConfig(segment_bytes=2000, preallocate=True)
        for seed in range(30):
            log, env = await new_log(config)
            log.append_as_leader([batch(3)], 0)
            await log.flush()
            log.roll()
            log.append_as_leader([batch(3)], 0)
            await log.flush()
            whole = read_all(log)
            env.disk.media.lose_power(random.Random(seed))
            env = memory_env(disk=env.disk.media.mount())
            log = await Log.open(env, PATH, config, recovery_point=6)
            assert read_all(log) == whole

    run(main())


def test_a_read_error_is_typed():
    async def main():
        log, env = await new_log()
        for _ in range(600):
            log.append_as_leader([batch(1)], 0)
        env.disk.media.faults.failing_reads = 1
        with pytest.raises(DiskError):
            log.read(0, 100)
        assert log.read(0, 100).next_offset == 1

    run(main())


def zeros(data):
    return bytes(len(data))


def last_zero(data):
    return data[:-12] + bytes(12)


def one_bit_cleared(data):
    return bytes([*data[:-9], data[-9] & (data[-9] - 1), *data[-8:]])


def shorter(data):
    return data[:-12]


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("entries", [1, 5])
@pytest.mark.parametrize("harm", [zeros, last_zero, one_bit_cleared, shorter])
def test_a_damaged_time_index_deletes_nothing(harm, entries, running):
    """The followers would delete it, too."""

    async def main():
        env = memory_env()
        now = env.clock.wall_ms() + 10**9
        config = LogConfig(retention_ms=1000, index_interval_bytes=1)
        log = await Log.open(env, "/p", config)
        for number in range(entries):
            log.append_as_leader([batch(time=now + 200 * number)], 0)
        log.roll()
        log.append_as_leader([batch(time=now + 2000)], 0)
        if not running:
            await log.close()
        index = env.disk.open(f"/p/{0:020d}.timeindex")
        good = index.pread(index.size(), 0)
        assert len(good) == 12 * max(1, entries - 1)
        index.truncate(0)
        index.append([harm(good)])
        if not running:
            log = await Log.open(env, "/p", config, clean=True)
        newest = now + 200 * (entries - 1)
        assert log.delete_retired_segments(newest + 999, log.end_offset) == 0
        assert log.log_start_offset == 0
        assert log.delete_retired_segments(newest + 1001, log.end_offset) == 1

    asyncio.run(main())


def test_a_segment_with_damage_goes_when_its_file_is_old():
    async def main():
        env = memory_env()
        now = env.clock.wall_ms()
        log = await Log.open(env, "/p", LogConfig(retention_ms=1000))
        log.append_as_leader([batch(time=0)], 0)
        log.roll()
        log.segments[0].file.pwrite(b"\xff", 16)
        mtime = env.disk.mtime_ms(f"/p/{0:020d}.log")
        assert abs(mtime - now) < 1000
        assert log.delete_retired_segments(mtime + 999, log.end_offset) == 0
        assert log.delete_retired_segments(mtime + 1001, log.end_offset) == 1

    asyncio.run(main())
