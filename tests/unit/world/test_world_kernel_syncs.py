"""Syncs by the kernel: what it takes and refuses, what it says of the disk, and none at all."""

import asyncio
import ctypes
import errno
import os

import pytest

from world.env import SyncFailed
from world.kernel_syncs import IoEvent, IoRequest, KernelSyncs, kernel_syncs
from world.real import RealDisk

pytestmark = pytest.mark.skipif(kernel_syncs() is None, reason="no io_submit on this system")


class Kernel:
    """The real one, whose results are replaced by `result` where that is set, and which takes
    nothing where `full`."""

    def __init__(self, syncs):
        self.real = syncs._call
        self.submit, self.get_events = syncs._submit, syncs._get_events
        self.result = None
        self.full = False
        self.taken = 0
        syncs._call = self

    def __call__(self, number, *arguments):
        if number == self.submit:
            if self.full:
                return -1
            self.taken += 1
        outcome = self.real(number, *arguments)
        if number == self.get_events and self.result is not None:
            for event in arguments[3][:outcome]:
                event.result = self.result
        return outcome


@pytest.fixture
def kernel():
    return Kernel(syncs := KernelSyncs()), RealDisk(lambda: syncs)


def test_the_kernels_structures_have_their_sizes():
    assert (ctypes.sizeof(IoRequest), ctypes.sizeof(IoEvent)) == (64, 32)


def test_files_and_directories_are_synced_without_a_thread(kernel, tmp_path):
    real, disk = kernel

    async def main():
        file = disk.open(str(tmp_path / "a"), create=True)
        file.append([b"abc"])
        await file.sync()
        await disk.sync_dir(str(tmp_path))
        await asyncio.gather(*(file.sync() for _ in range(3)))

    asyncio.run(main())
    assert real.taken == 5
    assert not disk._sync_threads._threads
    asyncio.run(main())  # another loop
    assert real.taken == 10


def test_a_failing_disk_is_told(kernel, tmp_path):
    real, disk = kernel
    real.result = -errno.EIO
    file = disk.open(str(tmp_path / "a"), create=True)
    with pytest.raises(SyncFailed, match=f"sync .*/a: {os.strerror(errno.EIO)}"):
        asyncio.run(file.sync())


@pytest.mark.parametrize("refusal", ["full", "no such sync"])
def test_what_the_kernel_does_not_take_a_thread_does(kernel, tmp_path, refusal):
    real, disk = kernel
    real.full = refusal == "full"
    real.result = -errno.EINVAL
    file = disk.open(str(tmp_path / "a"), create=True)
    asyncio.run(file.sync())
    assert len(disk._sync_threads._threads) == 1


def test_more_than_fit_are_all_made(tmp_path):
    disk = RealDisk()

    async def main():
        files = [disk.open(str(tmp_path / str(number)), create=True) for number in range(300)]
        for file in files:
            file.append([b"x"])
        await asyncio.gather(*(file.sync() for file in files))

    asyncio.run(main())


def test_a_sync_outlives_its_file_and_its_caller(kernel, tmp_path):
    _, disk = kernel

    async def main():
        file = disk.open(str(tmp_path / "a"), create=True)
        tasks = [asyncio.ensure_future(file.sync()) for _ in range(2)]
        await asyncio.sleep(0)
        file.close()
        tasks[0].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(outcomes[0], asyncio.CancelledError)
        assert outcomes[1] is None

    asyncio.run(main())


def test_what_a_dead_loop_left_hurts_the_next_one_not(kernel, tmp_path):
    _, disk = kernel

    async def leave():
        file = disk.open(str(tmp_path / "a"), create=True)
        file.append([b"x"])
        task = asyncio.ensure_future(file.sync())
        await asyncio.sleep(0)
        task.cancel()

    async def main():
        await disk.open(str(tmp_path / "a")).sync()

    for _ in range(5):
        asyncio.run(leave())
        asyncio.run(main())


def test_threads_do_it_where_there_is_no_such_kernel(tmp_path, monkeypatch):
    def refuse():
        raise OSError(errno.ENOSYS, "io_setup")

    monkeypatch.setattr("world.kernel_syncs.KernelSyncs", refuse)
    assert kernel_syncs() is None
    disk = RealDisk()
    file = disk.open(str(tmp_path / "a"), create=True)
    asyncio.run(file.sync())
    assert len(disk._sync_threads._threads) == 1


def test_a_system_of_another_kind_has_none(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "s390x")
    assert kernel_syncs() is None
    monkeypatch.undo()

    def refuses(number, *arguments):
        return -1

    with pytest.raises(OSError, match="io_setup"):
        KernelSyncs(refuses)
