"""What both disks promise: one suite, run on the real one and on the one in memory."""

import asyncio
import random
import resource
from collections.abc import Iterator

import pytest

from wire.uuids import is_reserved, to_text
from world.env import Absent, AlreadyLocked, ChanceIds, DiskError, DiskFull, Env
from world.memory import memory_env
from world.real import real_env


@pytest.fixture(params=["real", "memory"])
def place(request, tmp_path) -> Iterator[tuple[Env, str]]:
    if request.param == "real":
        yield real_env(1), str(tmp_path)
    else:
        env = memory_env(1)
        env.disk.make_dirs("/data")
        yield env, "/data"


def test_append_reads_back_and_grows(place):
    env, base = place
    file = env.disk.open(f"{base}/a", create=True)
    assert file.append([b"abc", bytearray(b"de"), memoryview(b"f")]) == 0
    assert file.append([]) == 6
    assert file.append([b"gh"]) == 6
    assert file.size() == 8
    assert file.pread(100, 0) == b"abcdefgh"
    assert file.pread(3, 2) == b"cde"
    assert file.pread(3, 8) == b""
    assert file.pread_nowait(100, 6) == b"gh"
    scratch = bytearray(4)
    assert file.readinto_nowait(scratch, 5) == 3
    assert scratch == b"fgh\0"
    file.close()
    file.close()


def test_more_buffers_than_one_write_takes(place):
    env, base = place
    file = env.disk.open(f"{base}/a", create=True)
    buffers = [bytes([number % 251]) * (number % 7) for number in range(3000)]
    file.append(buffers)
    assert file.pread(1 << 20, 0) == b"".join(buffers)


def test_allocated_space_is_zero_and_not_part_of_the_file_until_reopened(place):
    env, base = place
    file = env.disk.open(f"{base}/a", create=True)
    file.append([b"abc"])
    file.allocate(5000)
    assert file.size() == 3
    assert env.disk.size(f"{base}/a") == 5000
    assert file.append([b"d"]) == 3
    assert file.pread(10, 2) == b"cd" + bytes(8)
    reopened = env.disk.open(f"{base}/a")
    assert reopened.size() == 5000
    file.truncate(file.size())
    assert env.disk.size(f"{base}/a") == 4


def test_truncate_and_pwrite(place):
    env, base = place
    file = env.disk.open(f"{base}/a", create=True)
    file.append([b"abcdef"])
    file.truncate(4)
    file.pwrite(b"XY", 1)
    assert file.pread(10, 0) == b"aXYd"
    file.pwrite(b"Z", 6)
    assert file.size() == 7
    assert file.pread(10, 0) == b"aXYd\0\0Z"


def test_names_are_listed_renamed_and_removed(place):
    env, base = place
    disk = env.disk
    disk.make_dirs(f"{base}/x/y")
    disk.make_dirs(f"{base}/x/y")
    for name in ("b", "a", "c"):
        disk.open(f"{base}/x/{name}", create=True).append([name.encode()])
    assert disk.list_dir(f"{base}/x") == ["a", "b", "c", "y"]
    disk.rename(f"{base}/x/a", f"{base}/x/b")
    assert disk.read_bytes(f"{base}/x/b") == b"a"
    disk.remove(f"{base}/x/c")
    assert disk.list_dir(f"{base}/x") == ["b", "y"]
    assert disk.is_dir(f"{base}/x/y")
    assert not disk.is_dir(f"{base}/x/b")
    assert disk.exists(f"{base}/x/b")
    assert not disk.exists(f"{base}/x/a")
    disk.rename(f"{base}/x", f"{base}/z")
    disk.remove_tree(f"{base}/z")
    disk.remove_tree(f"{base}/z")
    assert not disk.exists(f"{base}/z")


def test_what_is_absent_is_told_from_other_failures(place):
    env, base = place
    disk = env.disk
    for call in (
        lambda: disk.open(f"{base}/no"),
        lambda: disk.read_bytes(f"{base}/no"),
        lambda: disk.remove(f"{base}/no"),
        lambda: disk.rename(f"{base}/no", f"{base}/other"),
        lambda: disk.list_dir(f"{base}/no"),
        lambda: disk.size(f"{base}/no"),
        lambda: disk.mtime_ms(f"{base}/no"),
    ):
        with pytest.raises(Absent):
            call()
    with pytest.raises(Absent):
        asyncio.run(disk.sync_dir(f"{base}/no"))


def test_a_directory_that_is_gone_is_a_failed_disk_for_who_writes(place):
    env, base = place
    with pytest.raises(Absent, match="No such file or directory"):
        env.disk.open(f"{base}/gone/file", create=True)
    with pytest.raises(Absent, match="No such file or directory"):
        asyncio.run(env.disk.replace(f"{base}/gone/file", b"x"))


def test_replace_and_sync(place):
    env, base = place

    async def main() -> None:
        await env.disk.replace(f"{base}/f", b"one")
        await env.disk.replace(f"{base}/f", b"2")
        file = env.disk.open(f"{base}/f")
        await asyncio.gather(file.sync(), file.sync())
        closing = asyncio.ensure_future(file.sync())
        await asyncio.sleep(0)
        file.close()
        await closing
        assert await env.run_blocking(lambda a, b: a + b, 1, 2) == 3

    asyncio.run(main())
    assert env.disk.read_bytes(f"{base}/f") == b"2"
    assert env.disk.list_dir(base) == ["f"]


def test_closed_files_refuse(place):
    env, base = place
    file = env.disk.open(f"{base}/a", create=True)
    file.close()
    with pytest.raises(DiskError):
        file.append([b"x"])
    with pytest.raises(DiskError):
        file.pread(1, 0)


def test_lock_excludes_until_released(place):
    env, base = place
    lock = env.disk.lock(f"{base}/.lock")
    with pytest.raises(AlreadyLocked):
        env.disk.lock(f"{base}/.lock")
    lock.release()
    env.disk.lock(f"{base}/.lock").release()


def test_real_append_that_fails_half_way_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    import os

    file = real_env().disk.open(str(tmp_path / "a"), create=True)
    file.append([b"abc"])
    real_pwritev = os.pwritev
    calls = []

    def failing(fd, buffers, position, *rest):
        calls.append(position)
        if len(calls) == 1:
            return real_pwritev(fd, [bytes(buffers[0])[:2]], position)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", failing)
    with pytest.raises(DiskError, match="No space left"):
        file.append([b"defg", b"hi"])
    monkeypatch.undo()
    assert len(calls) == 2
    assert file.size() == 3
    assert (tmp_path / "a").read_bytes() == b"abc"
    file.append([b"xyz"])
    assert file.pread(10, 0) == b"abcxyz"


def test_real_reads_fall_back_where_nowait_is_unknown(tmp_path, monkeypatch):
    import os

    env = real_env()
    file = env.disk.open(str(tmp_path / "a"), create=True)
    file.append([b"abcdef"])
    real_preadv = os.preadv

    def unknown(fd, buffers, position, flags=0):
        if flags:
            raise OSError(95, "Operation not supported")
        return real_preadv(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", unknown)
    assert file.pread_nowait(3, 1) == b"bcd"
    assert env.disk.nowait is False
    assert file.pread_nowait(3, 1) == b"bcd"


def test_real_cold_page_is_none(tmp_path, monkeypatch):
    import os

    file = real_env().disk.open(str(tmp_path / "a"), create=True)
    file.append([b"abcdef"])

    def cold(*args):
        raise BlockingIOError(11, "would block")

    monkeypatch.setattr(os, "preadv", cold)
    assert file.pread_nowait(3, 1) is None
    monkeypatch.setattr(os, "preadv", lambda *args: 1)
    assert file.pread_nowait(3, 1) is None


def test_ids_can_be_used_anywhere():
    ids = ChanceIds(random.Random(3))
    drawn = [ids.uuid() for _ in range(3000)]
    assert len(set(drawn)) == 3000
    assert not any(is_reserved(one) or to_text(one).startswith("-") for one in drawn)


def test_too_many_open_files_is_no_failing_disk(tmp_path):
    env = real_env(1)
    env.disk.make_dirs(str(tmp_path / "d"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
        with pytest.raises(DiskFull, match="Too many open files"):
            held.extend(env.disk.open(f"{tmp_path}/d/{n}", create=True) for n in range(100))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for file in held:
            file.close()
