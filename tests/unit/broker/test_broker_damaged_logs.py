"""Partition logs with damage below what was synced: told at start; begun anew where others have
what is missing, and otherwise kept and read around."""

import asyncio
import random
from itertools import product

import pytest
from broker_fakes import cluster, until
from structlog.testing import capture_logs
from test_broker_end_to_end import batch, fetch, produce, values_of

from storage.cleaning.dirt import Dirt
from storage.cleaning.throttle import Throttle
from storage.cleaning.work import Limits, clean
from storage.config import LogConfig
from storage.log import Log
from wire.apis import ErrorCode
from wire.batch import build_batch
from wire.errors import DamagedFile, KafkaError
from world.env import DiskError
from world.memory import Media, memory_env

RECORDS = [b"%d" % number for number in range(6)]
KEEP = {"log_retention_ms": -1}


def log_of(broker):
    return next(iter(broker.replicas)).log


async def filled(c, replicas, per_segment=1):
    """A topic `t` on these brokers, whose media are in memory, with segments of so many batches."""
    for broker_id in replicas:
        c.media[broker_id] = Media()
        await c.start_broker(broker_id, **KEEP)
    c.controller.create_topic("t", 1, replicas)
    await until(lambda: all(len(c.brokers[b].replicas) == 1 for b in replicas))
    connection = await c.connect(replicas[0])
    for number, value in enumerate(RECORDS, 1):
        assert (await produce(connection, "t", 0, batch(value))).error_code is ErrorCode.none
        if number % per_segment == 0:
            for broker_id in replicas:
                log_of(c.brokers[broker_id]).roll()
    for broker_id in replicas:
        await c.brokers[broker_id].replicas.flush()
    return log_of(c.brokers[replicas[0]]).directory.replace(f"broker-{replicas[0]}", "broker-%d")


async def content(connection):
    found, offset = [], 0
    while len(found) < len(RECORDS):
        got = await fetch(connection, "t", 0, offset)
        assert got.error_code is ErrorCode.none
        values = values_of(got.records)
        if not values:
            break
        found += values
        offset = int(values[-1]) + 1
    return found


def empty(disk, directory):
    disk.open(f"{directory}/{0:020d}.log").truncate(0)


def cut(disk, directory):
    file = disk.open(f"{directory}/{0:020d}.log")
    file.truncate(file.size() - 1)


def remove(disk, directory, base=2):
    disk.remove(f"{directory}/{base:020d}.log")


def remove_first(disk, directory):
    remove(disk, directory, 0)


def remove_first_whole(disk, directory):
    for suffix in ("log", "index", "timeindex"):
        disk.remove(f"{directory}/{0:020d}.{suffix}")


def remove_last(disk, directory):
    for base in (4, 6):
        remove(disk, directory, base)


@pytest.mark.parametrize(
    ("ending", "damage"),
    [
        *product(["stop_broker", "kill_broker"], [empty, cut, remove, remove_first]),
        ("stop_broker", remove_first_whole),  # seen where the log was closed in order
    ],
)
def test_a_replica_that_others_lead_fetches_everything_anew(ending, damage):
    """Kept as it was, it would lead one day, and have the others delete what it lacks."""

    async def main():
        async with cluster("/memory", ()) as c:
            directory = await filled(c, (1, 2), per_segment=2)
            await getattr(c, ending)(2)
            c.controller.fence(2)
            damage(c.media[2].mount(), directory % 2)
            with capture_logs() as logs:
                await c.start_broker(2, **KEEP)
                await until(lambda: sorted(c.controller.image.partition("t", 0).isr) == [1, 2])
            told = [one["event"] for one in logs]
            assert told.index("log_damaged") < told.index("log_begins_anew")
            c.controller.set_leader("t", 0, 2)
            await until(lambda: c.brokers[2].replicas.leaders == 1)
            for broker_id in (1, 2):
                assert c.brokers[broker_id].replicas.delete_retired_segments() == 0
            assert await content(await c.connect(2)) == RECORDS
            # Nothing of it is left to be told of.
            await c.stop_broker(2)
            with capture_logs() as logs:
                await c.start_broker(2, **KEEP)
            assert "log_damaged" not in [one["event"] for one in logs]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("damage", "left"), [(empty, RECORDS[2:]), (cut, RECORDS[:1] + RECORDS[2:])]
)
def test_the_last_replica_keeps_what_it_has_and_so_do_those_that_follow_it(damage, left):
    async def main():
        async with cluster("/memory", ()) as c:
            directory = await filled(c, (1, 2), per_segment=2)
            await c.stop_broker(2)
            c.controller.fence(2)
            await c.stop_broker(1)
            damage(c.media[1].mount(), directory % 1)
            with capture_logs() as logs:
                await c.start_broker(1, **KEEP)
                await until(lambda: c.brokers[1].replicas.leaders == 1)
            told = [one["event"] for one in logs]
            assert "log_damaged" in told
            assert "log_begins_anew" not in told
            assert await content(await c.connect(1)) == left
            # What it lacks is not taken for deleted: whoever has it keeps it.
            assert c.brokers[1].replicas.delete_retired_segments() == 0
            await c.start_broker(2, **KEEP)
            await until(lambda: sorted(c.controller.image.partition("t", 0).isr) == [1, 2])
            assert c.brokers[2].replicas.delete_retired_segments() == 0
            c.controller.set_leader("t", 0, 2)
            await until(lambda: c.brokers[2].replicas.leaders == 1)
            assert await content(await c.connect(2)) == RECORDS

    asyncio.run(main())


@pytest.mark.parametrize("damage", [empty, cut])
def test_who_starts_while_nobody_leads_keeps_what_it_has(damage):
    async def main():
        async with cluster("/memory", ()) as c:
            directory = await filled(c, (1, 2), per_segment=2)
            for broker_id in (2, 1):
                await c.stop_broker(broker_id)
                c.controller.fence(broker_id)
            damage(c.media[2].mount(), directory % 2)
            with capture_logs() as logs:
                await c.start_broker(2, **KEEP)
                assert c.brokers[2].replicas.leaders == 0
                await c.start_broker(1, **KEEP)
                await until(lambda: sorted(c.controller.image.partition("t", 0).isr) == [1, 2])
            told = [one["event"] for one in logs]
            assert ("log_damaged" in told, "log_begins_anew" in told) == (True, False)
            c.controller.set_leader("t", 0, 2)
            await until(lambda: c.brokers[2].replicas.leaders == 1)
            for broker_id in (1, 2):
                assert c.brokers[broker_id].replicas.delete_retired_segments() == 0
            # Others lead at its next start.
            c.controller.set_leader("t", 0, 1)
            await c.stop_broker(2)
            c.controller.fence(2)
            with capture_logs() as logs:
                await c.start_broker(2, **KEEP)
                await until(lambda: sorted(c.controller.image.partition("t", 0).isr) == [1, 2])
            assert "log_begins_anew" in [one["event"] for one in logs]
            c.controller.set_leader("t", 0, 2)
            await until(lambda: c.brokers[2].replicas.leaders == 1)
            assert await content(await c.connect(2)) == RECORDS

    asyncio.run(main())


@pytest.mark.parametrize("ending", ["stop_broker", "kill_broker"])
def test_a_log_whose_beginning_is_lost_begins_where_it_did(ending):
    """Told of a later beginning, the others would delete what they have."""

    async def main():
        async with cluster("/memory", ()) as c:
            directory = await filled(c, (1, 2), per_segment=2)
            for broker_id in (2, 1):
                await getattr(c, ending)(broker_id)
                c.controller.fence(broker_id)
            remove_first(c.media[2].mount(), directory % 2)
            await c.start_broker(2, **KEEP)  # nobody leads
            await c.start_broker(1, **KEEP)
            await until(lambda: sorted(c.controller.image.partition("t", 0).isr) == [1, 2])
            c.controller.set_leader("t", 0, 2)
            await until(lambda: c.brokers[2].replicas.leaders == 1)
            connection = await c.connect(2)
            # The follower is told in the answers to its fetches.
            assert (await produce(connection, "t", 0, batch(b"6"))).error_code is ErrorCode.none
            await until(lambda: log_of(c.brokers[1]).end_offset == len(RECORDS) + 1)
            got = await fetch(connection, "t", 0, 0)
            assert got.error_code is ErrorCode.kafka_storage_error
            assert values_of((await fetch(connection, "t", 0, 2)).records)[0] == b"2"
            for broker_id in (1, 2):
                assert c.brokers[broker_id].replicas.delete_retired_segments() == 0
                assert log_of(c.brokers[broker_id]).log_start_offset == 0
            # Once others lead, it is fetched anew.
            c.controller.set_leader("t", 0, 1)
            await until(lambda: c.brokers[1].replicas.leaders == 1)
            await getattr(c, ending)(2)
            c.controller.fence(2)
            with capture_logs() as logs:
                await c.start_broker(2, **KEEP)
                await until(lambda: sorted(c.controller.image.partition("t", 0).isr) == [1, 2])
            assert "log_begins_anew" in [one["event"] for one in logs]
            assert log_of(c.brokers[2]).read(0, 1 << 20).first_offset == 0

    asyncio.run(main())


def test_a_kill_while_segments_are_given_up_is_no_damage():
    """At whatever rename or removal it comes, and without the epochs written since."""

    async def main():
        for stop in range(20):
            media = Media()
            disk = media.mount()
            env = memory_env(1, disk=disk)
            log = await Log.open(env, "/p", LogConfig(file_delete_delay_ms=0))
            for number in range(6):
                log.append_as_leader([bytearray(batch(b"%d" % number))], 1)
                log.roll()
            await log.flush()
            log.advance_log_start(2)
            left = stop

            def counted(call):
                def maybe(*args):
                    nonlocal left
                    if left == 0:
                        raise DiskError("/p", "rename", "killed")
                    left -= 1
                    return call(*args)

                return maybe

            disk.rename, disk.remove = counted(disk.rename), counted(disk.remove)
            killed = False
            try:
                log.delete_retired_segments(0, log.end_offset)
                await log.delete_due_files(env.clock.now_ms() + 1)
            except DiskError:
                killed = True
            media.kill()
            env = memory_env(1, disk=media.mount())
            log = await Log.open(env, "/p", LogConfig(), recovery_point=6)
            assert log.recovery.all_damage == [], stop
            assert log.log_start_offset == min(log.segments)
        assert not killed, "all of it was tried"

    asyncio.run(main())


def test_a_lost_beginning_is_forgotten_when_the_log_begins_behind_it():
    async def main():
        env = memory_env(1)
        log = await Log.open(env, "/p", LogConfig())
        for number in range(6):
            log.append_as_leader([bytearray(batch(b"%d" % number))], 1)
            if number % 2:
                log.roll()
        await log.flush()
        await log.close(clean=False)
        remove_first(env.disk, "/p")
        log = await Log.open(env, "/p", COMPACT, recovery_point=6)
        assert (log.log_start_offset, log.read(0, 1 << 20).first_offset) == (0, 2)
        with pytest.raises(DamagedFile):
            await clean_all(log)
        await log.close(clean=False)
        for in_order in (False, True, False):
            log = await Log.open(env, "/p", LogConfig(), recovery_point=6, clean=in_order)
            assert [one.offset for one in log.recovery.all_damage] == [0]
            assert (log.log_start_offset, log.first_offset) == (0, 2)
            with pytest.raises(DamagedFile):
                log.read(1, 1 << 20)
            await log.close(clean=not in_order)
        log = await Log.open(env, "/p", LogConfig(), recovery_point=6)
        log.advance_log_start(1)
        with pytest.raises(DamagedFile):
            log.read(1, 1 << 20)
        log.advance_log_start(2)
        assert log.damage == []
        await log.close()
        for in_order in (True, False):
            log = await Log.open(env, "/p", LogConfig(), recovery_point=6, clean=in_order)
            assert (log.recovery.all_damage, log.log_start_offset) == ([], 2)
            await log.close()
        assert f"{0:020d}.index" not in env.disk.list_dir("/p")

    asyncio.run(main())


def test_a_log_that_only_ends_too_early_gets_the_rest():
    async def main():
        async with cluster("/memory", ()) as c:
            directory = await filled(c, (1, 2), per_segment=2)
            await c.stop_broker(2)
            c.controller.fence(2)
            remove_last(c.media[2].mount(), directory % 2)
            with capture_logs() as logs:
                await c.start_broker(2, **KEEP)
                await until(lambda: sorted(c.controller.image.partition("t", 0).isr) == [1, 2])
            told = [one["event"] for one in logs]
            assert ("log_damaged" in told, "log_begins_anew" in told) == (True, False)
            c.controller.set_leader("t", 0, 2)
            await until(lambda: c.brokers[2].replicas.leaders == 1)
            assert await content(await c.connect(2)) == RECORDS

    asyncio.run(main())


@pytest.mark.parametrize("first", [0, 1])
def test_a_batch_that_a_confused_leader_sends_changes_nothing(first):
    """Wholly before where an empty log begins, or spoiled."""

    async def main():
        env = memory_env(1)
        log = await Log.open(env, "/p", LogConfig(), log_start_offset=1000)
        sent = bytearray(build_batch([(0, None, b"v", ())] * 3, base_offset=999 if first else 0))
        if first:
            sent[-1] ^= 1
        with pytest.raises(KafkaError):
            log.append_as_follower(sent)
        assert (log.log_start_offset, log.end_offset, list(log.segments)) == (1000, 1000, [1000])

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_while_a_log_begins_anew_leaves_its_beginning(seed):
    """It may end earlier then, and what is missing is fetched."""

    async def main():
        media = Media()
        env = memory_env(1, disk=media.mount())
        log = await Log.open(env, "/p", LogConfig())
        for number in range(6):
            log.append_as_leader([bytearray(batch(b"%d" % number))], 1)
            log.roll()
        await log.flush()
        log.truncate_and_restart_at(100)
        media.lose_power(random.Random(seed))
        log = await Log.open(memory_env(1, disk=media.mount()), "/p", LogConfig(), recovery_point=6)
        assert log.log_start_offset in (0, 100)
        if log.log_start_offset == 0:
            assert log.end_offset == 6 or log.recovery.all_damage

    asyncio.run(main())


def test_what_a_limit_hides_is_not_counted_when_the_log_is_cut_there():
    async def main():
        env = memory_env(1)
        log = await Log.open(env, "/p", LogConfig())
        for number in range(8):
            log.append_as_leader([bytearray(batch(b"%d" % number))], 1)
            if number % 4 == 3:
                log.roll()
        await log.close()
        file = env.disk.open(f"/p/{4:020d}.log")
        file.pwrite(b"\xff", file.size() // 4 + 16)  # the magic of its second batch
        log = await Log.open(env, "/p", LogConfig(), clean=True)
        assert log.recovery.all_damage
        log.truncate_to(7)
        assert log.end_offset == 5
        log.append_as_leader([bytearray(batch(b"again"))], 2)
        assert values_of(part_of(log, 4)) == [b"4", b"again"]

    asyncio.run(main())


def part_of(log, offset):
    part = log.read(offset, 1 << 20)
    return part.file.pread(part.length, part.position)


def test_a_replica_can_begin_within_a_batch():
    """As records were deleted up to the middle of it: the leader sends it whole."""

    async def main():
        async with cluster("/memory", ()) as c:
            for broker_id in (1, 2):
                c.media[broker_id] = Media()
                await c.start_broker(broker_id, **KEEP)
            c.controller.create_topic("t", 1, (1, 2))
            await until(lambda: all(len(c.brokers[b].replicas) == 1 for b in (1, 2)))
            connection = await c.connect(1)
            await produce(connection, "t", 0, batch(*RECORDS))
            next(iter(c.brokers[1].replicas)).advance_log_start(4)
            await c.stop_broker(2)
            c.controller.fence(2)
            await produce(connection, "t", 0, batch(b"6"))
            disk = c.media[2].mount()
            for name in list(disk.list_dir("/memory/broker-2/t-0")):
                disk.remove(f"/memory/broker-2/t-0/{name}")
            for _ in range(2):  # and once more on what it has then
                await c.start_broker(2, **KEEP)
                await until(lambda: sorted(c.controller.image.partition("t", 0).isr) == [1, 2])
                log = log_of(c.brokers[2])
                assert (log.log_start_offset, log.end_offset) == (4, len(RECORDS) + 1)
                assert log.read(4, 1 << 20).first_offset == 0
                c.controller.set_leader("t", 0, 1)
                await c.stop_broker(2)
                c.controller.fence(2)

    asyncio.run(main())


@pytest.mark.parametrize("damage", [cut, remove])
def test_the_cleaner_leaves_a_log_with_damage_alone(damage):
    """It would make a whole segment of what is left, and nobody could tell any more."""

    async def main():
        env = memory_env(1)
        config = LogConfig(cleanup_compact=True, cleanup_delete=False)
        log = await Log.open(env, "/p", config)
        for number in range(6):
            log.append_as_leader([bytearray(batch(b"%d" % number))], 1)
            if number % 2:
                log.roll()
        await log.close()
        damage(env.disk, "/p")
        options = config if damage is cut else LogConfig()
        log = await Log.open(env, "/p", options, clean=True)
        log.config = config
        with pytest.raises(DamagedFile):
            await clean(log, Dirt(0, 4, 0, 0, overdue=True), Limits(4 << 20, 0.9, Throttle(1e300)))

    asyncio.run(main())


COMPACT = LogConfig(cleanup_compact=True, cleanup_delete=False)


async def clean_all(log):
    limits = Limits(4 << 20, 0.9, Throttle(1e300))
    return await clean(log, Dirt(0, log.end_offset, 0, 0, overdue=True), limits)


def of_key(number):
    return bytearray(build_batch([(0, b"k%d" % number, b"v", ())], base_offset=number))


@pytest.mark.parametrize("damage", [remove_last, cut])
def test_the_cleaner_works_on_a_log_that_has_fetched_what_was_damaged(damage):
    """What only ends too early has no hole, and a truncation takes holes along."""

    async def main():
        env = memory_env(1)
        log = await Log.open(env, "/p", COMPACT)
        for number in range(6):
            log.append_as_leader([of_key(number)], 0)
            if number % 2:
                log.roll()
        await log.close()
        damage(env.disk, "/p")
        log = await Log.open(env, "/p", COMPACT, recovery_point=6)
        assert log.recovery.all_damage
        if damage is cut:
            assert log.damage
            log.truncate_to(1)
            await log.settle()
        assert log.damage == []
        for number in range(log.end_offset, 8):
            log.append_as_follower(of_key(number))
        log.roll()
        await log.flush()
        await clean_all(log)

    asyncio.run(main())


@pytest.mark.parametrize("clean", [True, False])
def test_a_compacted_log_that_is_cut_in_a_gap_ends_there_at_the_next_start_too(clean):
    """It ended with its last batch, was told to be shorter than what was synced, and would have
    given offsets to other records than before."""

    async def main():
        env = memory_env(1)
        log = await Log.open(env, "/p", COMPACT)
        for number in (0, 1, 20):
            log.append_as_follower(of_key(number))
        await log.flush()
        log.truncate_to(10)
        await log.settle()
        assert (log.end_offset, log.recovery_point) == (10, 10)
        await log.close(clean=clean)
        log = await Log.open(env, "/p", COMPACT, clean=clean, recovery_point=10)
        assert (log.end_offset, log.recovery.all_damage) == (10, [])
        assert log.append_as_leader([of_key(0)], 1).base_offset == 10

    asyncio.run(main())


def test_records_before_a_damaged_batch_can_be_read():
    async def main():
        async with cluster("/memory", ()) as c:
            directory = await filled(c, (1,), per_segment=3)
            await c.stop_broker(1)
            file = c.media[1].mount().open(f"{directory % 1}/{0:020d}.log")
            length = file.size() // 3
            file.pwrite(b"\xff", length + 16)  # the magic of the second batch
            await c.start_broker(1, **KEEP)
            await until(lambda: c.brokers[1].replicas.leaders == 1)
            connection = await c.connect(1)
            got = await fetch(connection, "t", 0, 0)
            assert (got.error_code, values_of(got.records)) == (ErrorCode.none, RECORDS[:1])
            assert values_of((await fetch(connection, "t", 0, 3)).records) == RECORDS[3:]

    asyncio.run(main())


def test_damage_found_at_start_is_told(tmp_path):
    """A synced segment in the middle is gone: readers skip the hole, and the log says so."""

    async def main():
        async with cluster("/memory", ()) as c:
            media = c.media[1] = Media()
            broker = await c.start_broker(1)
            c.controller.create_topic("t", 1)
            await until(lambda: broker.replicas.leaders == 1)
            connection = await c.connect(1)
            log = next(iter(broker.replicas)).log
            for number in range(6):
                await produce(connection, "t", 0, batch(b"%d" % number))
                log.roll()
            await c.stop_broker(1)
            disk = media.mount()
            disk.remove(f"{log.directory}/{2:020d}.log")
            asked = disk.open(f"{log.directory}/{4:020d}.log")
            asked.truncate(0)
            with capture_logs() as logs:
                broker = await c.start_broker(1)
                await until(lambda: broker.replicas.leaders == 1)
            told = [e["reason"] for e in logs if e["event"] == "log_damaged"]
            assert told == [
                "the records from offset 2 to 2 are missing",
                "the records from offset 4 to 4 are missing",
            ]
            got = await fetch(await c.connect(1), "t", 0, 2)
            assert values_of(got.records) == [b"3"]

    asyncio.run(main())
