"""The threads that sync: errors, callers who give up, loops that end, threads that do too."""

import asyncio
import gc
import threading
import weakref

import pytest

from world.env import SyncFailed
from world.real import real_env
from world.sync_threads import SyncThreads


class Handle:
    pass


def sync_threads():
    return [thread for thread in threading.enumerate() if thread.name == "fdatasync"]


def test_what_the_sync_raises_is_the_callers():
    def refuse(handle):
        raise OSError(5, "Input/output error")

    async def main():
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output error"):
                await syncs.run(Handle())

    syncs = SyncThreads(refuse, 1)
    asyncio.run(main())
    assert syncs.threads == 1


def test_a_failing_disk_is_told_with_its_file(tmp_path, monkeypatch):
    def refuse(fd):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("world.real._fdatasync", refuse)
    file = real_env(1).disk.open(str(tmp_path / "a"), create=True)
    with pytest.raises(SyncFailed, match=r"sync .*/a: Input/output error"):
        asyncio.run(file.sync())


def test_there_are_as_many_threads_as_syncs_at_a_time_up_to_the_most():
    together, most = threading.Barrier(3), []

    def meet(handle):
        most.append(len(sync_threads()))
        if handle is not None:
            together.wait(120)  # three at a time, or an error

    async def main():
        await syncs.run(None)
        await syncs.run(None)
        assert syncs.threads == 1
        await asyncio.gather(*(syncs.run(number) for number in range(9)))
        assert syncs.threads == 3

    before = len(sync_threads())
    syncs = SyncThreads(meet, 3)
    asyncio.run(main())
    assert len(most) == 11
    assert max(most) <= before + 3


def test_a_caller_who_gives_up_and_a_loop_that_ends_hurt_nobody_else():
    gate, ended = threading.Event(), []

    def wait(handle):
        assert gate.wait(120)
        ended.append(handle)

    async def give_up():
        task = asyncio.ensure_future(syncs.run("given up"))
        await asyncio.sleep(0)
        task.cancel()

    async def give_up_and_stay():
        await give_up()
        gate.set()
        await syncs.run("next")

    syncs = SyncThreads(wait, 1)
    asyncio.run(give_up())  # its loop is closed when the sync ends
    asyncio.run(give_up_and_stay())
    assert ended == ["given up", "given up", "next"]


def test_a_thread_at_rest_holds_no_handle_and_ends_with_its_owner():
    before = sync_threads()
    handle = Handle()
    held = weakref.ref(handle)
    syncs = SyncThreads(lambda handle: None, 1)
    asyncio.run(syncs.run(handle))
    (thread,) = [one for one in sync_threads() if one not in before]
    del handle
    asyncio.run(syncs.run(Handle()))  # the thread has let go of the first by then
    gc.collect()
    assert held() is None
    del syncs
    gc.collect()
    thread.join(20)
    assert not thread.is_alive()
