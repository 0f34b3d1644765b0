"""Nothing is promised before it is durable: a member's files under a script that is cut off by a
power loss, or refused by the disk, at every single operation (docs/testing.md has the list)."""

import asyncio
import dataclasses
import os
import random
from uuid import UUID

import pytest
from raft_rig import Cluster

from raft import snapshot_writer
from raft.config import RaftConfig
from raft.effects import ElectionState
from raft.election_file import ElectionFile
from raft.metadata_log import MetadataLog, describe_fetched
from raft.node import RaftNode
from raft.snapshots import SnapshotStore, view
from raft.synced_offset import SyncedOffset
from raft.voters import OffsetAndEpoch, ReplicaKey, VoterSet
from wire.batch import build_batch, decode_records, iter_headers
from wire.errors import FatalError
from wire.exits import EXIT_METADATA_DISK_FAILED
from world.env import DiskError, DiskFull, SyncFailed
from world.memory import Fenced, Media, MemoryDisk, memory_env
from world.real import RealClock

DIR = "/data/__cluster_metadata-0"
VOTERS = VoterSet.static({1: ("h", 1), 2: ("h", 2)}, "C")
ALONE = VoterSet.static({1: ("h", 1)}, "CONTROLLER")
CI = os.environ.get("CI") == "true"


def config(**rest):
    return RaftConfig(
        node_id=1,
        directory_id=UUID(int=501),
        cluster_id="c",
        voters={1: ("h", 1)},
        segment_bytes=500,
        retention_bytes=1,
        **rest,
    )


def value(offset, epoch):
    return b"%d of epoch %d " % (offset, epoch) * 4


def batch(base, epoch, count):
    return build_batch(
        [(5, None, value(base + i, epoch), ()) for i in range(count)],
        base_offset=base,
        leader_epoch=epoch,
    )


class Operations:
    """Counts what is done to the disk; at number `at` it calls `then`."""

    def __init__(self, media, at=-1, then=None):
        self.count, self.at, self.then = 0, at, then
        media.before_change = self.one

    def one(self, operation, path, position, data):
        self.count += 1
        if self.count == self.at:
            self.then(operation, path)


class Member:
    """Promises, and the files behind them. `epochs[offset]` is the epoch of the record that was
    last appended there; below `durable` it is promised to be there."""

    def __init__(self, media, chance):
        self.media, self.chance = media, chance
        self.start, self.epochs, self.durable = 0, {}, 0
        self.covered = 0  # what the synced offset said when it was last made durable, or less
        self.past = {}  # offset -> every epoch ever appended there
        self.epoch = 1
        self.voted = self.voting = ElectionState()
        self.snapshot = None
        self.batches = [0]  # where batches begin

    @property
    def end(self):
        return max(self.epochs, default=self.start - 1) + 1

    async def open(self):
        """After a crash too: everything promised is there, and nothing is called damaged."""
        self.env = memory_env(disk=self.media.mount())
        if self.covered:
            assert SyncedOffset(self.env.disk, DIR).offset >= self.covered, "it has fallen back"
        self.log = MetadataLog(self.env, config(), "/data")
        found = await self.log.open(ALONE)
        assert found.needs_end is None
        self.covered = found.view.end
        view_ = found.view
        assert view_.end >= self.durable, "synced records are lost"
        assert view_.start == 0 or view_.latest_snapshot is not None
        if self.snapshot is not None:
            assert view_.latest_snapshot >= self.snapshot, "a snapshot said to be written is lost"
        self.take_over(view_)
        await self.check_snapshot(view_)
        self.file = ElectionFile(self.env.disk, DIR)
        stored = self.file.load()
        assert stored in (self.voted, self.voting), "a vote is forgotten"
        self.voted = self.voting = stored

    def take_over(self, view_):
        found, begins = {}, []
        for segment in self.log.log.segments.values():
            data = segment.file.pread(segment.size, 0)
            for position, header in iter_headers(data):
                begins.append(header.base_offset)
                for record in decode_records(data, position, header):
                    found[record.offset] = header.leader_epoch
                    assert record.value == value(record.offset, header.leader_epoch)
        assert sorted(found) == list(range(view_.start, view_.end)) or not found
        for offset, epoch in found.items():
            if offset < self.durable:
                assert epoch == self.epochs.get(offset, epoch), offset
            else:
                assert epoch in self.past[offset], "a record that nobody appended"
        self.start, self.epochs, self.batches = view_.start, found, [*begins, view_.end]
        self.durable = view_.end
        self.epoch = max(self.epoch, view_.last_epoch)

    async def check_snapshot(self, view_):
        self.snapshot = view_.latest_snapshot
        if self.snapshot is not None:
            store = self.log.snapshots
            seen = view(self.env, store.open(self.snapshot), store.complete[self.snapshot])
            state = [one async for part in seen.slices for one in part]
            assert state == [b"the state at %d" % self.snapshot.offset] * 3

    async def step(self):
        kinds = ["append"] * 12 + ["sync"] * 8 + ["vote"] * 2
        kinds += ["harden", "write_snapshot", "trim", "truncate", "download"]
        await getattr(self, self.chance.choice(kinds))()

    async def append(self):
        self.epoch += self.chance.random() < 0.2
        count, base = self.chance.randint(1, 3), self.end
        for offset in range(base, base + count):
            self.epochs[offset] = self.epoch
            self.past.setdefault(offset, {})[self.epoch] = None
        self.batches = [b for b in self.batches if b < base] + [base, base + count]
        data = memoryview(bytes(batch(base, self.epoch, count)))
        self.log.append_fetched(describe_fetched(data, base))

    async def sync(self):
        end = await self.log.sync()
        self.log.note_synced(end)
        self.durable = max(self.durable, end)

    async def harden(self):
        covered = self.durable
        await self.log.harden()
        self.covered = covered

    async def vote(self):
        key = ReplicaKey(self.chance.randint(1, 3))
        self.voting = ElectionState(self.voted.epoch + 1, -1, key)
        await self.file.save(self.voting, VOTERS, 0)
        self.voted = self.voting

    async def truncate(self):
        """A leader of a newer epoch has us cut what isn't committed."""
        floor = max(self.start, 0 if self.snapshot is None else self.snapshot.offset)
        offset = self.chance.choice([b for b in self.batches if b >= floor] or [self.end])
        self.durable, self.covered = min(self.durable, offset), min(self.covered, offset)
        self.epoch += 1
        await self.log.truncate(offset)
        self.epochs = {o: e for o, e in self.epochs.items() if o < offset}
        self.batches = [b for b in self.batches if b <= offset]

    async def write_snapshot(self):
        at = [b for b in self.batches if self.start < b <= self.durable]
        if at:
            offset = self.chance.choice(at)
            snapshot = OffsetAndEpoch(offset, self.epochs[offset - 1])
            if self.snapshot is None or snapshot > self.snapshot:
                await snapshot_at(self.env, self.log.snapshots, snapshot)
                self.snapshot = snapshot

    async def trim(self):
        self.log.trim()
        self.start = self.log.log.log_start_offset
        self.epochs = {o: e for o, e in self.epochs.items() if o >= self.start}

    async def download(self):
        """A leader that is far ahead sends its snapshot, which then stands for our log."""
        self.epoch += 1
        snapshot = OffsetAndEpoch(self.end + 7, self.epoch)
        leaders = memory_env()
        leaders.disk.make_dirs("/x")
        store = SnapshotStore(leaders, "/x")
        await snapshot_at(leaders, store, snapshot)
        data = leaders.disk.read_bytes(store.path(snapshot))
        part = self.log.snapshots.new_part(snapshot, "from-2")
        for at in range(0, len(data), 100):
            part.append([data[at : at + 100]])
        await self.log.snapshots.freeze(part, snapshot)
        await self.log.restart_at(snapshot)
        self.snapshot, self.start, self.epochs = snapshot, snapshot.offset, {}
        self.durable, self.batches = snapshot.offset, [snapshot.offset]
        self.covered = snapshot.offset


async def snapshot_at(env, store, snapshot):
    slices = [[b"the state at %d" % snapshot.offset]] * 3
    await snapshot_writer.write(env, store, snapshot, 7, slices)


async def script(member, steps):
    await member.open()
    for _ in range(steps):
        await member.step()
    await member.log.close(clean=True)


def fresh():
    media = Media()
    disk = MemoryDisk(media)
    disk.make_dirs("/data")
    asyncio.run(disk.sync_dir("/"))
    return media


def run_script(seed, at):
    """The script of a seed up to disk operation `at`, at which the power goes; then twice more,
    from what is left. The number of operations of the first part if it wasn't reached."""
    media, chance = fresh(), random.Random(seed)
    member = Member(media, chance)

    def power_loss(operation, path):
        media.lose_power(random.Random(seed * 100_003 + at))
        raise Fenced(path)

    operations = Operations(media, at, power_loss)
    try:
        asyncio.run(script(member, 50))
    except Fenced:
        for _ in range(2):
            asyncio.run(script(member, 8))
        return None
    return operations.count


@pytest.mark.parametrize("seed", range(12 if CI else 1))
def test_promises_outlive_a_power_loss_at_any_operation(seed):
    count = run_script(seed, -1)
    assert count > 60
    for at in range(1, count + 1):
        try:
            assert run_script(seed, at) is None
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, operation {at} of {count}: {error}") from error


# A disk that refuses


class Recorder:
    """The state machine: the values it was told of."""

    def __init__(self):
        self.values = []

    async def prepare(self, batch):
        raise AssertionError("no batch is long in these tests")

    def on_batch(self, batch):
        self.values += batch.values

    async def on_snapshot(self, snapshot):
        self.values = [value async for part in snapshot.slices for value in part]

    def on_snapshot_lost(self):
        raise AssertionError("no snapshot is damaged in these tests")

    def on_leader_change(self, leader):
        pass


async def until(condition):
    while not condition():  # noqa: ASYNC110 - the rig has no event to wait for
        await asyncio.sleep(0.001)


async def lonely_node(media, recorder, fatal):
    """A quorum of one that appends, writes snapshots and stops; its node."""
    env = dataclasses.replace(memory_env(disk=media.mount()), clock=RealClock())
    node = RaftNode(env, config(), "/data", recorder, on_fatal=fatal.append)
    try:
        await node.start()
        for number in range(6):
            await until(lambda: node.is_leader or fatal)
            if fatal:
                return node
            _, last = node.append([b"value %d " % number * 20] * 3, node.leader().epoch)
            await until(lambda last=last: node.applied_offset > last or fatal)
            if number % 2 and not fatal:
                epoch, values = node.leader().epoch, list(recorder.values)
                await node.write_snapshot(node.applied_offset, epoch, 5, [values])
    except FatalError as error:
        fatal.append(error)
    except DiskError:
        assert node.stopped, "only a node that has said why it fails may be refused without a word"
    return node


async def stop(node):
    """The error that a stop ended with, if it did."""
    try:
        await node.stop()
    except DiskError as error:
        await node.kill()  # as the process would end
        return error
    return None


def run_refused(at, error, lasting):
    """Whether the node's disk was asked `at` times, the last time in vain."""
    media, fatal, recorder, refused = fresh(), [], Recorder(), []

    def refuse(operation, path):
        refused.append(operation)
        if lasting:
            operations.at += 1
        kind = SyncFailed if error is DiskError and operation.startswith("sync") else error
        raise kind(path, operation, "refused")

    operations = Operations(media, at, refuse)

    async def main():
        node = await lonely_node(media, recorder, fatal)
        if fatal:
            assert [e.exit_code for e in fatal] == [EXIT_METADATA_DISK_FAILED]
            assert "refused" in fatal[0].reason
            assert node.stopped or not node._started
        return await stop(node)

    raised = asyncio.run(main())
    if refused and error is DiskError:
        assert fatal or raised, "what failed must be heard of"
    # What it said was committed is there after the power is lost, on a disk that works again.
    operations.at = -1
    media.lose_power(random.Random(at))
    after, fatal_after = Recorder(), []

    async def again():
        await stop(await lonely_node(media, after, fatal_after))

    asyncio.run(again())
    assert fatal_after == []
    assert after.values[: len(recorder.values)] == recorder.values
    return bool(refused)


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("error", [DiskFull, DiskError])
def test_a_node_whose_disk_refuses_steps_aside_before_it_lies(error, lasting):
    at = 1
    while run_refused(at, error, lasting):
        at += 1 if CI else 3
    assert at > 40


def test_those_who_wait_for_a_member_that_fails_know_at_once(tmp_path):
    """Its process may need a while to end; the others don't wait for that."""

    async def main():
        cluster = Cluster(tmp_path, fetch_timeout_ms=20_000, request_timeout_ms=20_000)
        await cluster.start()
        try:
            leader = await cluster.leader()
            await cluster.append(b"a")
            await cluster.caught_up()
            log = leader.node.log.log

            def refuse(*args, **rest):
                raise DiskFull(log.directory, "append to", "no space left")

            log.append_as_leader = refuse
            leader.node.append([b"lost"], leader.node.leader().epoch)
            await until(lambda: leader.fatal)
            assert leader.node.stopped
            # It is still there, and says nothing. Nobody's patience has run out yet.
            began = asyncio.get_running_loop().time()
            await cluster.leader(unlike=leader.node_id)
            assert asyncio.get_running_loop().time() - began < 5
            await leader.kill()
            await cluster.append(b"b")
        finally:
            await cluster.stop()

    asyncio.run(main())
