"""A node's log directory: lock, identity, checkpoints, marker, deletes."""

import asyncio
import dataclasses
import random
from uuid import UUID

import pytest
from storage_helpers import batch, read_all, run

from storage import scan
from storage.config import LogConfig
from storage.log_dir import LogDirectory
from storage.names import is_marked_dir, marked_dir, parse_partition_dir
from wire.errors import DamagedFile
from wire.meta_properties import MetaProperties
from world.env import AlreadyLocked, SyncFailed
from world.memory import ManualClock, Media, memory_env
from world.real import real_env

CONFIG = LogConfig(segment_bytes=500)
TOPIC_ID = UUID(int=500)


def test_names_of_partition_directories():
    assert parse_partition_dir("a-b-12") == ("a-b", 12)
    for name in ("a", "-1", "a-", "a-01", "a-1.deadbeef-delete", "a-٣", "a--1x", "a-4294967296"):
        assert parse_partition_dir(name) is None, name
    token = "0123456789abcdef" * 2
    name = marked_dir("t" * 249, 12, token, "delete")
    assert len(name) == 255
    assert is_marked_dir(name, "delete")
    assert not is_marked_dir(name, "stray")
    assert not is_marked_dir("my.topic-delete", "delete")
    assert marked_dir("topic", 3, token, "stray") == f"topic-3.{token}-stray"


@pytest.mark.parametrize("kind", ["real", "memory"])
def test_life_of_a_directory(kind, tmp_path):
    async def main():
        env = real_env(1) if kind == "real" else memory_env(1)
        path = str(tmp_path / "d") if kind == "real" else "/d"
        directory = await LogDirectory.open(env, path)
        assert directory.meta is None
        assert not directory.was_clean
        with pytest.raises(AlreadyLocked):
            await LogDirectory.open(env, path)
        meta = MetaProperties("cluster", 3, UUID(int=900))
        await directory.write_meta(meta)
        log = await directory.open_log("t", 0, CONFIG, TOPIC_ID)
        other = await directory.open_log("a.b", 11, CONFIG, UUID(int=501))
        assert log.topic_id == TOPIC_ID
        for number in range(20):
            log.append_as_leader([batch(2, time=number)], 1)
        other.append_as_leader([batch(1)], 1)
        whole = read_all(log)
        log.advance_log_start(3)
        await directory.write_high_watermarks({("t", 0): 30, ("a.b", 11): 1})
        await directory.close(broker_epoch=77)

        directory = await LogDirectory.open(env, path)
        assert directory.meta == meta
        assert directory.was_clean
        assert directory.previous_broker_epoch == 77
        assert directory.high_watermarks == {("t", 0): 30, ("a.b", 11): 1}
        assert directory.partitions() == [("a.b", 11), ("t", 0)]
        log = await directory.open_log("t", 0, CONFIG)
        assert (log.topic_id, log.log_start_offset) == (TOPIC_ID, 3)
        assert log.recovery.clean
        assert whole.endswith(read_all(log))
        await directory.open_log("a.b", 11, CONFIG)
        await directory.delete_log("a.b", 11, delay_ms=0)
        assert directory.partitions() == [("t", 0)]
        assert [n for n in env.disk.list_dir(path) if n.endswith("-delete")]
        assert await directory.delete_due(env.clock.now_ms()) == 1
        assert not [n for n in env.disk.list_dir(path) if n.endswith("-delete")]
        stray = await directory.set_stray("t", 0)
        assert env.disk.is_dir(stray)
        assert directory.partitions() == []
        await directory.close(clean=False)

        directory = await LogDirectory.open(env, path)
        assert not directory.was_clean
        assert directory.previous_broker_epoch is None
        await directory.close(clean=False)

    run(main())


def test_power_loss_at_any_time_loses_nothing_flushed():
    async def life(media, chance, expected):
        env = memory_env(chance.getrandbits(32), media.mount())
        directory = await LogDirectory.open(env, "/data/d")
        log = await directory.open_log("t", 0, CONFIG, TOPIC_ID)
        assert log.recovery.damage is None
        assert log.end_offset >= expected["flushed"]
        assert read_all(log).startswith(expected["bytes"])
        assert log.log_start_offset == 0
        for _ in range(chance.randrange(6)):
            action = chance.randrange(6)
            if action < 3:
                log.append_as_leader([batch(chance.randrange(1, 4), size=60)], 1)
            elif action == 3:
                await directory.flush_all()
            elif action == 4:
                await log.flush()
            else:
                end = log.end_offset
                log.truncate_to(max(0, end - chance.randrange(4)))
                await log.settle()
                expected["bytes"] = b""
            if log.recovery_point == log.end_offset:
                expected["flushed"] = log.recovery_point
                expected["bytes"] = read_all(log)
        if chance.random() < 0.3:
            await directory.close()
            expected["flushed"] = log.end_offset
            media.kill()
        else:
            media.lose_power(chance)

    async def main():
        for seed in range(60):
            media, chance = Media(), random.Random(seed)
            expected = {"flushed": 0, "bytes": b""}
            for _ in range(8):
                await life(media, chance, expected)

    run(main())


def test_damaged_checkpoints_count_as_absent():
    async def main():
        media = Media()
        env = memory_env(disk=media.mount())
        directory = await LogDirectory.open(env, "/d")
        log = await directory.open_log("t", 0, CONFIG, TOPIC_ID)
        log.append_as_leader([batch(3)], 0)
        whole = read_all(log)
        await directory.close()
        for name in (
            "recovery-point-offset-checkpoint",
            "log-start-offset-checkpoint",
            "replication-offset-checkpoint",
        ):
            await media.mount().replace(f"/d/{name}", b"0\n7\nnonsense")
        directory = await LogDirectory.open(memory_env(disk=media.mount()), "/d")
        assert len(directory.damaged) == 3
        log = await directory.open_log("t", 0, CONFIG)
        assert read_all(log) == whole
        await directory.close()
        await media.mount().replace("/d/meta.properties", b"version=1\nnode.id=x\n")
        with pytest.raises(DamagedFile):
            await LogDirectory.open(memory_env(disk=media.mount()), "/d")
        # The lock was given back.
        await media.mount().replace("/d/meta.properties", b"")
        media.mount().remove("/d/meta.properties")
        await LogDirectory.open(memory_env(disk=media.mount()), "/d")

    run(main())


def test_only_the_first_opening_after_a_clean_stop_is_trusted():
    async def main():
        media = Media(ManualClock())
        env = memory_env(disk=media.mount())
        directory = await LogDirectory.open(env, "/d")
        await directory.open_log("t", 0, CONFIG, TOPIC_ID)
        await directory.close()
        directory = await LogDirectory.open(env, "/d")
        log = await directory.open_log("t", 0, CONFIG)
        assert log.recovery.clean
        log.append_as_leader([batch(1)], 0)
        await log.close(clean=False)
        del directory.logs["t", 0]
        log = await directory.open_log("t", 0, CONFIG)
        assert not log.recovery.clean
        assert log.end_offset == 1
        # A new incarnation of a topic that was here before begins with nothing.
        log.append_as_leader([batch(5)], 0)
        log.advance_log_start(3)
        await directory.flush_all()
        await directory.write_high_watermarks({("t", 0): 6})
        await directory.delete_log("t", 0, delay_ms=10)
        log = await directory.open_log("t", 0, CONFIG, UUID(int=600))
        assert (log.end_offset, log.topic_id) == (0, UUID(int=600))
        assert log.recovery.damage is None
        assert await directory.delete_due(env.clock.now_ms()) == 0
        # Nothing on the disk speaks of the old one any more.
        for name in ("recovery-point", "log-start", "replication"):
            data = env.disk.read_bytes(f"/d/{name}-offset-checkpoint")
            assert data == b"0\n0\n"
        # What waits for its delete at a stop goes at the next start.
        await directory.close()
        directory = await LogDirectory.open(env, "/d")
        assert await directory.delete_due(env.clock.now_ms()) == 1

    run(main())


def test_logs_are_made_durable_some_at_a_time_and_one_that_fails_stops_no_other():
    """A file system takes the syncs of several files together."""

    async def main():
        under_way, most = [0], [0]
        broken = []

        async def sync(path):
            if not path.endswith(".log"):
                return
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
            await asyncio.sleep(0)
            under_way[0] -= 1
            if path in broken:
                raise SyncFailed(path, "sync", "Input/output error")

        media = Media(wait_for_sync=sync)
        directory = await LogDirectory.open(memory_env(1, disk=media.mount()), "/d")
        logs = [await directory.open_log("t", n, CONFIG, TOPIC_ID) for n in range(40)]
        for log in logs:
            log.append_as_leader([batch(1)], 1)
        await directory.flush_all()
        assert most[0] == 8
        assert [log.recovery_point for log in logs] == [1] * 40
        for log in logs:
            log.append_as_leader([batch(1)], 1)
        broken.append(logs[3].active.file.path)
        with pytest.raises(SyncFailed):
            await directory.close(broker_epoch=7)
        assert [n for n, log in enumerate(logs) if log.recovery_point < 2] == [3]
        assert not media.mount().exists("/d/.kafka_cleanshutdown")

    run(main())


@pytest.mark.parametrize("sync_number", range(1, 9))
def test_a_log_that_is_deleted_while_all_are_made_durable_is_no_failure_of_the_disk(sync_number):
    async def main():
        syncs, deleted = [], []
        media = Media()
        directory = await LogDirectory.open(memory_env(1, disk=media.mount()), "/d")
        logs = [await directory.open_log("t", n, CONFIG, TOPIC_ID) for n in range(2)]
        for log in logs:
            for epoch in (1, 2, 3):
                log.append_as_leader([batch(1)], epoch)
                log.roll()

        async def sync(path):
            syncs.append(path)
            if "t-0" in path and len([p for p in syncs if "t-0" in p]) == sync_number:
                await directory.delete_log("t", 0, 0)
                deleted.append(path)

        media.wait_for_sync = sync
        await directory.flush_all()
        assert deleted
        assert logs[1].recovery_point == 3
        assert not media.mount().exists("/d/t-0")

    run(main())


def test_who_only_looked_leaves_a_directory_as_clean_as_it_was():
    """A start that is given up, or that another directory makes fail, costs no recovery."""

    async def main():
        media = Media()
        directory = await LogDirectory.open(memory_env(disk=media.mount()), "/d")
        await directory.open_log("t", 0, CONFIG, TOPIC_ID)
        await directory.close(broker_epoch=7)
        for end in ("release", "kill", "power"):
            directory = await LogDirectory.open(memory_env(disk=media.mount()), "/d")
            assert (directory.was_clean, directory.previous_broker_epoch) == (True, 7)
            if end == "release":
                directory.release()
            elif end == "kill":
                media.kill()
            else:
                media.lose_power(random.Random(1))
        # But from the first touch on it is not: before the log is opened, and durably.
        directory = await LogDirectory.open(memory_env(disk=media.mount()), "/d")
        await directory.open_log("t", 0, CONFIG)
        media.lose_power(random.Random(1))
        directory = await LogDirectory.open(memory_env(disk=media.mount()), "/d")
        assert not directory.was_clean

    run(main())


def test_a_stop_before_all_is_recovered_leaves_no_mark_and_keeps_what_was():
    async def main():
        media = Media()
        directory = await LogDirectory.open(memory_env(disk=media.mount()), "/d")
        for number in range(2):
            log = await directory.open_log("t", number, CONFIG, TOPIC_ID)
            for _ in range(8):
                log.append_as_leader([batch(3, size=60)], 1)
        await directory.close(clean=False)
        # Both must be read, and one is.
        directory = await LogDirectory.open(memory_env(disk=media.mount()), "/d")
        log = await directory.open_log("t", 0, CONFIG)
        assert log.recovery.scanned_bytes > 0
        await directory.close(broker_epoch=8)
        directory = await LogDirectory.open(memory_env(disk=media.mount()), "/d")
        assert not directory.was_clean
        assert directory.previous_broker_epoch is None
        again = await directory.open_log("t", 0, CONFIG)
        assert again.recovery.scanned_bytes < log.recovery.scanned_bytes / 4, "the last segment"
        other = await directory.open_log("t", 1, CONFIG)
        assert (again.end_offset, other.end_offset) == (24, 24)
        await directory.close(broker_epoch=9)
        directory = await LogDirectory.open(memory_env(disk=media.mount()), "/d")
        assert (directory.was_clean, directory.previous_broker_epoch) == (True, 9)
        # One of two is enough where nothing had to be recovered.
        await directory.open_log("t", 1, CONFIG)
        await directory.close(broker_epoch=10)
        assert (await LogDirectory.open(memory_env(disk=media.mount()), "/d")).was_clean

    run(main())


def test_a_recovery_is_broken_off_between_two_slices(monkeypatch):
    monkeypatch.setattr(scan, "_SLICE_BATCHES", 10)

    async def main():
        media = Media()
        directory = await LogDirectory.open(memory_env(disk=media.mount()), "/d")
        log = await directory.open_log("t", 0, LogConfig(), TOPIC_ID)
        for _ in range(100):
            log.append_as_leader([batch(1)], 1)
        whole = read_all(log)
        await directory.close(clean=False)
        calls, enough = [], asyncio.Event()

        async def run_blocking(function, *args):
            calls.append(function)
            if len(calls) == 4:
                enough.set()
            await asyncio.sleep(0)
            return function(*args)

        env = dataclasses.replace(memory_env(disk=media.mount()), run_blocking=run_blocking)
        directory = await LogDirectory.open(env, "/d")
        opening = asyncio.ensure_future(directory.open_log("t", 0, LogConfig()))
        await enough.wait()
        directory.stop_recovery()
        await asyncio.wait([opening])
        assert opening.cancelled()
        assert len(calls) < 6
        assert directory.logs == {}
        await directory.close(broker_epoch=8)
        directory = await LogDirectory.open(env, "/d")
        assert not directory.was_clean
        calls.clear()
        log = await directory.open_log("t", 0, LogConfig())
        assert len(calls) >= 10
        assert read_all(log) == whole

    run(main())


@pytest.mark.parametrize("cut_short", ["before the files", "between the files"])
def test_what_checkpoints_say_of_a_log_that_is_gone_is_about_no_later_one(cut_short):
    """A topic is deleted, the broker killed before the checkpoints are written once more, and the
    topic made anew: its records are no old topic's deleted ones."""

    async def main():
        media = Media()
        env = memory_env(disk=media.mount())
        directory = await LogDirectory.open(env, "/d")
        log = await directory.open_log("t", 0, CONFIG, TOPIC_ID)
        log.append_as_leader([batch(10)], 0)
        log.advance_log_start(5)
        log.cleaned_to = 7
        await directory.flush_all()
        await directory.write_cleaned_offsets()
        await directory.write_high_watermarks({("t", 0): 10})
        await directory.delete_log("t", 0, delay_ms=10)
        if cut_short == "between the files":
            await directory.write_recovery_points()
        media.kill()
        for _ in range(2):
            directory = await LogDirectory.open(memory_env(disk=media.mount()), "/d")
            assert directory.high_watermarks == {}
            log = await directory.open_log("t", 0, CONFIG, UUID(int=600))
            assert log.recovery.damage is None
            assert (log.log_start_offset, log.cleaned_to) == (0, 0)
            if not log.end_offset:
                log.append_as_leader([batch(3)], 0)
                whole = read_all(log)
            assert read_all(log) == whole
            media.kill()
        for name in ("recovery-point", "log-start", "replication", "cleaner"):
            data = media.mount().read_bytes(f"/d/{name}-offset-checkpoint")
            assert data == b"0\n0\n", name

    run(main())


def test_a_log_that_is_taken_out_while_the_files_are_written_is_taken_out_of_them_too(monkeypatch):
    async def main():
        media = Media()
        env = memory_env(disk=media.mount())
        directory = await LogDirectory.open(env, "/d")
        for topic in ("t", "u"):
            log = await directory.open_log(topic, 0, CONFIG, TOPIC_ID)
            log.append_as_leader([batch(10)], 0)
        await directory.flush_all()
        await directory.delete_log("t", 0, delay_ms=10)
        write_last = directory.write_high_watermarks

        async def meanwhile(offsets):
            await directory.delete_log("u", 0, delay_ms=10)
            await write_last(offsets)

        monkeypatch.setattr(directory, "write_high_watermarks", meanwhile)
        await directory.open_log("t", 0, CONFIG, UUID(int=600))
        monkeypatch.undo()
        log = await directory.open_log("u", 0, CONFIG, UUID(int=601))
        media.kill()
        directory = await LogDirectory.open(memory_env(disk=media.mount()), "/d")
        log = await directory.open_log("u", 0, CONFIG)
        assert log.recovery.damage is None

    run(main())


def test_a_directory_that_is_gone_while_checkpoints_name_it_is_remembered():
    async def main():
        media = Media()
        directory = await LogDirectory.open(memory_env(disk=media.mount()), "/d")
        log = await directory.open_log("t", 0, CONFIG, TOPIC_ID)
        log.append_as_leader([batch(10)], 0)
        await directory.close()
        disk = media.mount()
        disk.remove_tree("/d/t-0")
        directory = await LogDirectory.open(memory_env(disk=disk), "/d")
        assert directory.absent == {("t", 0): 10}
        log = await directory.open_log("t", 0, CONFIG, TOPIC_ID)
        assert log.recovery.damage is None

    run(main())
