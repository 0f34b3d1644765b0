"""Power loss, kills and faults of the disk in memory."""

import asyncio
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from world.env import DiskError, DiskFull, SyncFailed
from world.memory import Fenced, Media, MemoryDisk, memory_env


def test_synced_bytes_survive_and_the_rest_is_lost_kept_or_torn():
    fates = Counter()
    for seed in range(300):
        disk = MemoryDisk()
        file = disk.open("/a", create=True)
        file.append([b"s" * 700])

        async def sync(file=file, disk=disk):
            await file.sync()
            await disk.sync_dir("/")

        asyncio.run(sync())
        file.append([b"u" * 3000])
        after = disk.crash(random.Random(seed))
        data = after.read_bytes("/a")
        assert data[:700] == b"s" * 700
        tail = data[700:]
        if not tail:
            fates["lost"] += 1
        elif tail == b"u" * 3000:
            fates["kept"] += 1
        else:
            assert len(tail) <= 3000
            fates["torn"] += 1
    assert set(fates) == {"lost", "kept", "torn"}
    assert min(fates.values()) > 30


def test_a_rename_is_never_seen_half_and_a_directory_sync_keeps_it():
    seen = Counter()
    for seed in range(60):
        disk = MemoryDisk()

        async def begin(disk=disk):
            await disk.replace("/f", b"old")

        asyncio.run(begin())
        file = disk.open("/f.tmp", create=True)
        file.append([b"new"])
        asyncio.run(file.sync())
        disk.rename("/f.tmp", "/f")
        after = disk.crash(random.Random(seed))
        seen[after.read_bytes("/f"), after.exists("/f.tmp")] += 1
    assert set(seen) == {(b"old", False), (b"old", True), (b"new", False)}


def test_a_kill_keeps_writes_but_not_as_durable():
    media = Media()
    disk = media.mount()
    file = disk.open("/a", create=True)
    file.append([b"abc"])
    media.kill()
    disk = media.mount()
    assert disk.read_bytes("/a") == b"abc"
    lengths = set()
    for seed in range(20):
        media = Media()
        disk = media.mount()
        disk.open("/a", create=True).append([b"abc"])
        media.kill()
        disk = media.mount()
        after = disk.crash(random.Random(seed))
        lengths.add(len(after.read_bytes("/a")) if after.exists("/a") else -1)
    assert {-1, 0, 3} <= lengths


def test_a_dead_process_touches_nothing():
    disk = MemoryDisk()
    file = disk.open("/a", create=True)
    lock = disk.lock("/.lock")
    disk.media.kill()
    with pytest.raises(Fenced):
        file.append([b"x"])
    with pytest.raises(Fenced):
        disk.exists("/a")
    disk.media.mount().lock("/.lock").release()
    assert lock is not None


def test_a_sync_covers_what_was_written_before_it_began():
    async def main():
        gate = asyncio.Event()

        async def wait(path):
            await gate.wait()

        media = Media(wait_for_sync=wait)
        disk = media.mount()
        file = disk.open("/a", create=True)
        file.append([b"a"])
        first = asyncio.ensure_future(file.sync())
        await asyncio.sleep(0)
        file.append([b"b"])
        second = asyncio.ensure_future(file.sync())
        await asyncio.sleep(0)
        file.append([b"c"])
        gate.set()
        await asyncio.gather(first, second, disk.sync_dir("/"))
        assert bytes(media.find("/a").durable) == b"ab"

    asyncio.run(main())


def test_faults_are_typed_and_leave_things_as_they_were():
    env = memory_env()
    faults = env.disk.media.faults
    file = env.disk.open("/a", create=True)
    file.append([b"abc"])
    faults.space_left = 2
    with pytest.raises(DiskFull):
        file.append([b"defg"])
    assert file.pread(10, 0) == b"abc"
    faults.space_left = None
    faults.failing_reads = 1
    with pytest.raises(DiskError):
        file.pread(1, 0)
    faults.cold = True
    assert file.pread_nowait(1, 0) is None
    assert file.readinto_nowait(bytearray(1), 0) is None
    faults.cold = False
    faults.failing_syncs = 1
    with pytest.raises(SyncFailed):
        asyncio.run(file.sync())
    asyncio.run(file.sync())
    assert bytes(env.disk.media.find("/a").durable) == b""  # the failed sync lost it for good
    env.disk.media.flip("/a", 1)
    assert file.pread(3, 0) == b"acc"


def test_every_other_page_may_be_in_the_cache():
    env = memory_env()
    env.disk.media.faults.patchy = True
    file = env.disk.open("/a", create=True)
    data = bytes(range(256)) * 48  # three pages
    file.append([data])
    for position, length in ((0, 4_096), (1_000, 500), (8_192, 5_000), (20_000, 1)):
        assert file.pread_nowait(length, position) == data[position : position + length]
    for position, length in ((0, 4_097), (4_000, 100), (4_096, 1), (0, len(data))):
        assert file.pread_nowait(length, position) is None
    buffer = bytearray(8_192)
    assert file.readinto_nowait(buffer, 1_000) is None
    assert file.readinto_nowait(buffer, 8_200) == 4_088
    assert buffer[:4_088] == data[8_200:]
    assert file.pread(len(data), 0) == data


@given(
    st.integers(), st.lists(st.tuples(st.sampled_from("wts"), st.integers(0, 3000)), max_size=12)
)
def test_a_crash_never_touches_what_was_synced(seed, steps):
    disk = MemoryDisk()
    file = disk.open("/a", create=True)
    asyncio.run(disk.sync_dir("/"))
    safe = b""
    for step, number in steps:
        if step == "w":
            file.append([bytes([number % 255 + 1]) * number])
        elif step == "t":
            file.truncate(min(number, file.size()))
            safe = safe[: file.size()]
        else:
            asyncio.run(file.sync())
            safe = file.pread(1 << 20, 0)
    data = disk.crash(random.Random(seed)).read_bytes("/a")
    assert data[: len(safe)] == safe
