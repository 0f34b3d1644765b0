"""The synced offset reaches the disk a second after the log did, beside everything else."""

import asyncio
import dataclasses
import gc
import random
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from raft import hardening
from raft.config import RaftConfig
from raft.hardening import Hardening
from raft.metadata_log import MetadataLog, describe_fetched
from raft.node import RaftNode
from raft.synced_offset import NAME, SyncedOffset
from raft.voters import VoterSet
from wire.batch import build_batch
from wire.exits import EXIT_METADATA_DISK_FAILED
from world.env import SyncFailed
from world.memory import Media, MemoryDisk, memory_env
from world.real import RealClock

DIR = "/data/__cluster_metadata-0"
VOTERS = VoterSet.static({1: ("h", 1), 2: ("h", 2)}, "C")


def config():
    return RaftConfig(node_id=1, directory_id=UUID(int=501), cluster_id="c", voters={1: ("h", 1)})


def fresh():
    media = Media()
    disk = MemoryDisk(media)
    disk.make_dirs("/data")
    asyncio.run(disk.sync_dir("/"))
    return media


class SlowLog:
    """What Hardening needs of a log; a sync ends when the test says so."""

    def __init__(self):
        self.hardened = False
        self.begun = asyncio.Queue()
        self.gate = asyncio.Queue()
        self.syncs = 0

    async def harden(self):
        self.hardened = True
        self.begun.put_nowait(None)
        error = await self.gate.get()
        if error is not None:
            raise error
        self.syncs += 1


def play(story, *, begun=False):
    """With `begun` a first sync is under way."""

    async def main():
        log, errors = SlowLog(), []
        hardened = Hardening(log, errors.append)
        if begun:
            hardened.moved()
            await log.begun.get()
        await story(log, hardened, errors)

    asyncio.run(asyncio.wait_for(main(), 10))


async def ended(hardened):
    while hardened._task is not None:  # noqa: ASYNC110 - a callback of the task sets it
        await asyncio.sleep(0)


def nothing_is_planned(hardened):
    return hardened._timer is None and hardened._task is None


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(hardening, "DELAY_S", 0.001)


def test_moves_share_a_sync_and_a_log_that_rests_has_none(at_once):
    async def story(log, hardened, errors):
        for _ in range(50):
            hardened.moved()
        log.gate.put_nowait(None)
        await log.begun.get()
        await ended(hardened)
        assert log.syncs == 1
        assert nothing_is_planned(hardened)

    play(story)


def test_what_moves_during_a_sync_has_one_of_its_own(at_once):
    async def story(log, hardened, errors):
        log.hardened = False
        hardened.moved()
        log.gate.put_nowait(None)
        log.gate.put_nowait(None)
        await log.begun.get()
        await ended(hardened)
        assert log.syncs == 2
        assert nothing_is_planned(hardened)

    play(story, begun=True)


def test_closing_waits_for_a_sync_and_plans_none(at_once):
    async def story(log, hardened, errors):
        log.hardened = False  # moved meanwhile
        closing = asyncio.ensure_future(hardened.close())
        await asyncio.sleep(0.01)  # as long as it likes
        assert not closing.done()
        log.gate.put_nowait(None)
        await closing
        assert log.syncs == 1
        assert nothing_is_planned(hardened)

    play(story, begun=True)


def test_a_refusal_is_told(at_once):
    async def story(log, hardened, errors):
        log.gate.put_nowait(SyncFailed("p", "sync", "no"))
        await hardened.close()
        assert [str(error) for error in errors] == ["sync p: no"]
        assert nothing_is_planned(hardened)

    play(story, begun=True)


def batch(base, count=3):
    data = build_batch(
        [(5, None, b"%d" % (base + i) * 10, ()) for i in range(count)],
        base_offset=base,
        leader_epoch=1,
    )
    return describe_fetched(memoryview(bytes(data)), base)


def left_by_a_power_loss(seed, *, wait):
    """A log of 9 records, of which the synced offset once said 3 durably, then 9; the power goes
    before or after that is synced, too. Then the last batch is damaged: what the disk says, and
    what opening finds."""
    media = fresh()
    env = memory_env(disk=media.mount())

    async def work():
        log = MetadataLog(env, config(), "/data")
        await log.open(VOTERS)
        for base in (0, 3, 6):
            log.append_fetched(batch(base))
            log.note_synced(await log.sync())
            if base == 0 or (wait and base == 6):
                await log.harden()

    asyncio.run(work())
    media.lose_power(random.Random(seed))
    path = f"{DIR}/00000000000000000000.log"
    media.flip(path, media.mount().size(path) - 5)
    env = memory_env(disk=media.mount())
    said = SyncedOffset(env.disk, DIR).offset
    return said, asyncio.run(MetadataLog(env, config(), "/data").open(VOTERS))


def test_damage_of_what_was_durable_for_a_second_is_noticed_after_a_power_loss():
    for seed in range(30):
        said, opened = left_by_a_power_loss(seed, wait=True)
        assert (said, opened.view.end, opened.needs_end) == (9, 6, 9)


def test_the_last_second_may_be_taken_for_a_torn_tail_but_nothing_before_it():
    found = [left_by_a_power_loss(seed, wait=False) for seed in range(30)]
    assert {said for said, _ in found} == {3, 6, 9}
    for said, opened in found:
        assert (opened.view.end, opened.needs_end) == (6, 9 if said == 9 else None)


class Recorder:
    def __init__(self):
        self.leading = asyncio.Event()

    def on_batch(self, batch):
        pass

    def on_leader_change(self, leader):
        self.leading.set()


async def started(media, on_fatal=lambda error: None):
    """A node that is alone, once it leads; and its world."""
    env = dataclasses.replace(memory_env(disk=media.mount()), clock=RealClock())
    recorder = Recorder()
    node = RaftNode(env, config(), "/data", recorder, on_fatal=on_fatal)
    await node.start()
    await asyncio.wait_for(recorder.leading.wait(), 10)
    return node, env


@pytest.mark.parametrize("fails", [False, True])
def test_a_node_hardens_what_it_appends_or_stops_if_it_can_not(at_once, fails):
    media, fatal, syncs = fresh(), [], []
    told = asyncio.Event()

    def count(operation, path, position, data):
        if operation == "sync" and path.endswith(NAME):
            syncs.append(path)
            if fails and len(syncs) == 2:  # the first was at start
                raise SyncFailed(path, operation, "refused")
            if len(syncs) > 1:
                told.set()

    def on_fatal(error):
        fatal.append(error)
        told.set()

    async def main():
        media.before_change = count
        node, _ = await started(media, on_fatal)  # it says that it leads in its log
        await asyncio.wait_for(told.wait(), 10)
        assert node.stopped == fails
        await node.stop()

    asyncio.run(main())
    assert [(error.exit_code, NAME in error.reason) for error in fatal] == (
        [(EXIT_METADATA_DISK_FAILED, True)] if fails else []
    )


@pytest.mark.parametrize("of", [".log", NAME])
def test_a_sync_that_fails_at_the_stop_is_told_and_leaves_no_clean_end(at_once, of):
    """Trying again would succeed: the kernel has dropped what it could not write."""
    media = fresh()

    async def main():
        mishaps = []
        asyncio.get_running_loop().set_exception_handler(lambda _, about: mishaps.append(about))
        begun, go_on = asyncio.Event(), asyncio.Event()
        node, env = await started(media)

        async def wait(path):
            if path.endswith(of):
                begun.set()
                await go_on.wait()

        media.wait_for_sync = wait
        node.append([b"x" * 100], node.core.state.epoch)
        await asyncio.wait_for(begun.wait(), 10)
        node._halt()
        stopping = asyncio.ensure_future(node._close(clean=True))
        media.wait_for_sync = None
        media.faults.failing_syncs = 1
        go_on.set()
        await asyncio.wait_for(stopping, 10)
        del node, stopping
        gc.collect()
        assert mishaps == []
        return SyncedOffset(env.disk, DIR).offset

    with capture_logs() as told:
        said = asyncio.run(main())
    (failure,) = [entry for entry in told if entry["event"] == "failed_while_stopping"]
    assert "Input/output error" in failure["error"]
    found = asyncio.run(MetadataLog(memory_env(disk=media.mount()), config(), "/data").open(VOTERS))
    assert found.needs_end is None
    assert said <= found.view.end
