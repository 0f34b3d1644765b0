"""Snapshots: written without holding anybody up, never loaded when damaged, fetched again."""

import asyncio
import random
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from raft_rig import Cluster, Recorder, eventually
from structlog.testing import capture_logs

from raft import snapshot_writer
from raft.config import RaftConfig
from raft.effects import WriteSnapshotSlice
from raft.metadata_log import MetadataLog, describe_fetched
from raft.snapshots import SnapshotStore, file_name, view
from raft.voters import OffsetAndEpoch, VoterSet
from wire.batch import build_batch
from wire.errors import FatalError
from wire.exits import EXIT_LOG_DAMAGED, EXIT_METADATA_DISK_FAILED
from world.env import DiskFull
from world.memory import ManualClock, Media, memory_env
from world.real import RealFile

DIR = "/data/__cluster_metadata-0"
ALONE = VoterSet.static({1: ("h", 1)}, "CONTROLLER")
THREE = VoterSet.static({1: ("h", 1), 2: ("h", 2), 3: ("h", 3)}, "CONTROLLER")


def run(scenario, cluster):
    async def main():
        try:
            await scenario(cluster)
        finally:
            await cluster.stop()

    asyncio.run(main())


# Written beside everything else


def test_others_have_their_turn_after_each_slice_and_the_disk_gets_little_at_once():
    unsynced = []

    async def sync(path):
        if path.endswith(".part"):
            unsynced.append(len(media.find(path).content) - sum(unsynced))

    media = Media(wait_for_sync=sync)
    env = memory_env(disk=media.mount())
    env.disk.make_dirs(DIR)
    turns, taken = [], []

    def slices():
        for number in range(300):
            taken.append(number)
            yield [b"x" * 100] * 128

    async def others():
        while True:
            turns.append(len(taken))
            await asyncio.sleep(0)

    async def main():
        task = asyncio.ensure_future(others())
        store = SnapshotStore(env, DIR)
        await snapshot_writer.write(env, store, OffsetAndEpoch(9, 1), 7, slices())
        task.cancel()
        return store

    store = asyncio.run(main())
    steps = [later - earlier for earlier, later in pairwise(turns)]
    assert max(steps) <= 1, "between two turns of others one slice is taken at most"
    assert store.size > 3 << 20
    assert max(unsynced) < 2 << 20


def test_the_writer_leaves_two_thirds_of_the_time_to_others():
    clock = ManualClock()
    env = memory_env(disk=Media(clock).mount(), clock=clock)
    env.disk.make_dirs(DIR)

    def slices():
        for _ in range(10):
            clock.advance(3)  # what a slice takes
            yield [b"x" * 100] * 128

    async def main():
        store, loop = SnapshotStore(env, DIR), asyncio.get_running_loop()
        begun = loop.time()
        await snapshot_writer.write(env, store, OffsetAndEpoch(9, 1), 7, slices())
        return loop.time() - begun

    assert asyncio.run(main()) > 0.95 * 10 * 0.006


# Damage


def directory_with_snapshots():
    """A trimmed log with two snapshots, at 20 and 40, and records up to 50; alone it can be gone
    on with."""
    media = Media()
    env = memory_env(disk=media.mount())

    async def make():
        env.disk.make_dirs("/data")
        await env.disk.sync_dir("/")
        log = MetadataLog(env, config(), "/data")
        await log.open(ALONE)
        for base in range(0, 50, 10):
            records = [(5, None, b"%d" % (base + i), ()) for i in range(10)]
            data = build_batch(records, base_offset=base, leader_epoch=1)
            log.append_fetched(describe_fetched(memoryview(bytes(data)), base))
        log.note_synced(await log.sync())
        for end in (20, 40):
            values = [[b"%d" % n for n in range(end)]]
            wall_ms = env.clock.wall_ms()
            await snapshot_writer.write(env, log.snapshots, OffsetAndEpoch(end, 1), wall_ms, values)
        log.snapshots.drop_before(OffsetAndEpoch(20, 1))
        log.log.advance_log_start(20)
        log.log.delete_retired_segments(wall_ms, 20)
        await log.close(clean=True)

    asyncio.run(make())
    return media


def config():
    return RaftConfig(
        node_id=1,
        directory_id=UUID(int=501),
        cluster_id="c",
        voters={1: ("h", 1)},
        segment_bytes=150,
    )


DAMAGES = st.sampled_from(["flip", "cut", "empty", "zeros", "gone", "part", "swap"])


def spoil(media, path, kind, place, other):
    """Damage one snapshot file."""
    disk = media.mount()
    file = disk.open(path)
    size = file.size()
    at = int(place * size)
    if kind == "flip":
        media.flip(path, at, 0x10)
    elif kind == "cut":
        file.truncate(at)
    elif kind == "empty":
        file.truncate(0)
    elif kind == "zeros":
        file.pwrite(bytes(size - at), at)
    elif kind == "gone":
        disk.remove(path)
    elif kind == "part":
        disk.rename(path, path + ".part")
    else:  # another file's bytes behind our own (a whole other file can't be told from ours)
        at = max(at, 1)
        file.truncate(at)
        file.append([disk.read_bytes(other)[at // 2 :]])
    asyncio.run(disk.sync_dir(DIR))


async def state_of(env, log):
    """What a node makes of its directory: the newest snapshot and the log after it."""
    latest = log.snapshots.latest
    values = []
    start = 0
    if latest is not None:
        seen = view(env, log.snapshots.open(latest), log.snapshots.complete[latest])
        values = [value async for part in seen.slices for value in part]
        start = latest.offset
    return values, start


@examples(150)
@given(
    st.sampled_from([(20,), (40,), (20, 40)]),
    DAMAGES,
    st.floats(0, 0.999),
    st.booleans(),
)
def test_a_damaged_snapshot_is_never_loaded(which, kind, place, alone):
    media = directory_with_snapshots()
    paths = {end: f"{DIR}/{file_name(OffsetAndEpoch(end, 1))}" for end in (20, 40)}
    for end in which:
        spoil(media, paths[end], kind, place, paths[20 if end == 40 else 40])
    env = memory_env(disk=media.mount())

    async def look():
        log = MetadataLog(env, config(), "/data")
        try:
            found = await log.open(ALONE if alone else THREE)
        except FatalError as error:
            return None, error
        values, start = await state_of(env, log)
        # Whatever was taken for a snapshot holds exactly what it says it holds.
        assert values == [b"%d" % n for n in range(start)]
        assert log.log.log_start_offset <= start <= log.log.end_offset
        return found, None

    found, error = asyncio.run(look())
    if error is not None:
        assert alone, "with peers it is fetched again"
        assert error.exit_code == EXIT_LOG_DAMAGED
        assert set(which) == {20, 40}, "one that is whole, and the log after it, are enough"
        if kind not in ("gone", "part"):
            assert paths[20] in error.reason
            assert paths[40] in error.reason
    elif found.needs_end is not None:
        assert not alone
        assert found.needs_end == 50
        assert (found.view.start, found.view.end) == (0, 0)
    else:
        assert found.view.end == 50


@pytest.mark.parametrize("damage", ["flip", "empty", "no footer", "part"])
def test_damaged_snapshots_are_fetched_again(tmp_path, damage):
    async def scenario(cluster):
        await cluster.start()
        values = [b"%04d" % i * 10 for i in range(300)]
        for start in range(0, 300, 50):
            await cluster.append(*values[start : start + 50])
            if start in (100, 200):  # the second lets go of the first, and of the log before it
                await cluster.caught_up()
                for member in cluster.up:
                    await write_snapshot(member)
        leader = await cluster.leader()
        assert all(member.node.log_start_offset > 0 for member in cluster.up)
        await cluster.append(b"behind the snapshot")
        await cluster.caught_up()
        voter = next(m for m in cluster.up if m is not leader and m.node_id < 4)
        for member in (voter, cluster[4]):
            await member.stop()
            ruin(member, damage)
            with capture_logs() as logs:
                await member.start()
                await cluster.append(b"while it was away, and after")
                await cluster.caught_up()
            assert member.recorder.state == leader.recorder.state
            assert member.recorder.snapshots, "it was sent one"
            fetched = [e for e in logs if e["event"] == "snapshot_fetched"]
            assert [e["complete"] for e in fetched] == [True]
            assert any(e["event"] == "snapshot_unusable" for e in logs) == (damage != "part")
            # Once it is past its old end it counts again.
            await eventually(lambda member=member: not member.node.status()["damaged"])

    run(
        scenario,
        Cluster(
            tmp_path, observers=1, segment_bytes=4_000, retention_bytes=1,
            fetch_snapshot_max_bytes=3_000,
        ),
    )  # fmt: skip


def ruin(member, damage):
    (path,) = (Path(member.directory) / "__cluster_metadata-0").glob("*.checkpoint")
    data = bytearray(path.read_bytes())
    path.chmod(0o644)
    if damage == "flip":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "no footer":
        path.write_bytes(data[:-30])
    else:
        path.rename(f"{path}.part")


# Downloads


def test_a_download_goes_on_after_lost_connections(tmp_path):
    async def scenario(cluster):
        late = await member_that_needs_a_snapshot(cluster)
        received = []
        performer = late.node._performer
        write_slice = performer._PERFORM[WriteSnapshotSlice]

        def note(_, effect):
            received.append(effect.position)
            write_slice(performer, effect)

        performer._PERFORM = {**performer._PERFORM, WriteSnapshotSlice: note}

        async def cut():
            while not late.recorder.snapshots:
                for peer in list(late.node.peers._peers.values()):
                    if peer.connection is not None:
                        peer.connection.close()
                await asyncio.sleep(0.02)

        await asyncio.wait_for(cut(), 20)
        await cluster.caught_up()
        assert received == sorted(set(received)), "no slice was fetched twice"
        assert len(received) > 5

    run(scenario, small_slices(tmp_path))


async def member_that_needs_a_snapshot(cluster, size=200):
    """Started: the log it has to fetch begins behind what it holds."""
    await cluster.start()
    leader = await cluster.leader()
    late = next(m for m in cluster.up if m is not leader)
    await cluster.append(b"first")
    await cluster.caught_up()
    await late.kill()
    chance = random.Random(1)
    for _ in range(4):
        await cluster.append(*(chance.randbytes(size) for _ in range(50)))
        await write_snapshot(leader)
    assert leader.node.log_start_offset > 0
    await late.start()
    return late


async def write_snapshot(member):
    end, epoch = member.node.applied_offset, member.node.leader().epoch
    assert await member.node.write_snapshot(end, epoch, 5, [list(member.recorder.state)])


def small_slices(tmp_path, **rest):
    return Cluster(
        tmp_path,
        segment_bytes=8_000,
        retention_bytes=1,
        fetch_snapshot_max_bytes=2_000,
        **rest,
    )


def test_slices_that_are_not_in_memory_are_sent_as_the_disk_gives_them(tmp_path, monkeypatch):
    async def scenario(cluster):
        late = await member_that_needs_a_snapshot(cluster)
        leader = await cluster.leader()
        await cluster.caught_up()
        assert late.recorder.state == leader.recorder.state
        assert late.recorder.snapshots

    monkeypatch.setattr(RealFile, "pread_nowait", lambda *_: None)
    run(scenario, small_slices(tmp_path))


def test_a_snapshot_that_is_deleted_while_it_is_fetched_is_followed_by_the_next(tmp_path):
    async def scenario(cluster):
        late = await member_that_needs_a_snapshot(cluster)
        leader = await cluster.leader()
        for number in range(3):
            await cluster_append(leader, b"more %d" % number)
            await write_snapshot(leader)
        await cluster.caught_up()
        assert late.recorder.state == leader.recorder.state
        assert len(list((Path(late.directory) / "__cluster_metadata-0").glob("*.part"))) <= 1

    run(scenario, small_slices(tmp_path))


async def cluster_append(leader, *values):
    _, last = leader.node.append(list(values), leader.node.leader().epoch)
    await eventually(lambda: leader.node.applied_offset > last)


def test_a_download_starts_anew_with_the_next_leader(tmp_path):
    async def scenario(cluster):
        late = await member_that_needs_a_snapshot(cluster, size=2_000)
        leader = await cluster.leader()
        await eventually(lambda: late.node.core.state.download is not None)
        other = next(m for m in cluster.up if m not in (leader, late))
        leader.node.resign()
        await cluster.leader(unlike=leader.node_id)
        await cluster.append(b"of the next leader")
        await cluster.caught_up()
        assert late.recorder.state == other.recorder.state

    run(scenario, small_slices(tmp_path))


def test_a_disk_too_full_for_a_download_stops_the_member_and_leaves_nothing(tmp_path):
    async def scenario(cluster):
        late = await member_that_needs_a_snapshot(cluster, size=2_000)

        new_part = late.node.log.snapshots.new_part

        def small(*args):
            part = new_part(*args)
            append = part.append

            def refuse(buffers):
                if part.size() > 5_000:
                    raise DiskFull(part.path, "append to", "No space left on device")
                return append(buffers)

            return Proxy(part, append=refuse)

        late.node.log.snapshots.new_part = small
        await eventually(lambda: late.fatal)
        assert late.fatal[0].exit_code == EXIT_METADATA_DISK_FAILED
        assert ".checkpoint.part: No space left on device" in late.fatal[0].reason
        await late.stop()
        directory = Path(late.directory) / "__cluster_metadata-0"
        assert list(directory.glob("*.part")) == []
        # With room again it goes on.
        await late.start()
        await cluster.append(b"again")
        await cluster.caught_up()

    run(scenario, small_slices(tmp_path))


class Proxy:
    def __init__(self, inner, **methods):
        self.__dict__.update(methods)
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)


def test_a_leader_whose_snapshot_was_damaged_writes_another(tmp_path):
    async def scenario(cluster):
        late = await member_that_needs_a_snapshot(cluster)
        await late.kill()
        leader = await cluster.leader()
        ruin(leader, "flip")
        with capture_logs() as logs:
            await late.start()
            await eventually(lambda: leader.recorder.lost_snapshots)
            assert leader.node.latest_snapshot_id is None
            await write_snapshot(leader)
            await cluster.caught_up()
        assert late.recorder.state == leader.recorder.state
        assert [e["event"] for e in logs if e["event"].startswith("snapshot")] == [
            "snapshot_unusable",
            "snapshot_fetched",
        ]
        assert leader.recorder.lost_snapshots == 1
        directory = Path(leader.directory) / "__cluster_metadata-0"
        assert len(list(directory.glob("*.checkpoint.damaged"))) == 1

    run(scenario, small_slices(tmp_path))


# Loaded beside everything else


def test_a_node_takes_part_while_it_loads(tmp_path, monkeypatch):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        await cluster.append(*(b"%d" % i for i in range(20)))
        await cluster.caught_up()
        for member in cluster.up:
            await write_snapshot(member)
        await cluster.append(b"in the log")
        await cluster.caught_up()
        slow, other = (m for m in cluster.up if m is not leader)
        await slow.stop()
        await leader.stop()
        gate = asyncio.Event()
        monkeypatch.setattr(Recorder, "gate", gate)
        await slow.start()
        # The two elect one of them, and it commits, before the one has loaded anything.
        await eventually(lambda: any(m.node.is_leader for m in (slow, other)))
        leading = slow if slow.node.is_leader else other
        _, last = leading.node.append([b"while it loads"], leading.node.leader().epoch)
        await eventually(lambda: slow.node.high_watermark > last)
        assert slow.recorder.values == []
        assert slow.node.applied_offset == 0
        assert slow.node_id not in [told.leader_id for told in slow.recorder.leaders]
        loaded = asyncio.ensure_future(slow.node.wait_loaded())
        await asyncio.sleep(0)
        assert not loaded.done()
        gate.set()
        await loaded
        assert slow.recorder.snapshots
        await cluster.append(b"and after")
        await cluster.caught_up()
        assert slow.recorder.state == other.recorder.state
        assert slow.recorder.state == [
            *(b"%d" % i for i in range(20)), b"in the log", b"while it loads", b"and after"
        ]  # fmt: skip

    run(scenario, Cluster(tmp_path))


def test_a_long_log_is_applied_while_others_have_their_turn(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        epoch = leader.node.leader().epoch
        for start in range(0, 6_000, 30):
            leader.node.append([b"%05d" % n * 10 for n in range(start, start + 30)], epoch)
            await asyncio.sleep(0)
        await cluster.caught_up()
        await leader.stop()
        counts = []

        async def others():
            while True:
                counts.append(len(leader.recorder.values))
                await asyncio.sleep(0)

        await leader.start()
        task = asyncio.ensure_future(others())
        await cluster.caught_up()
        task.cancel()
        # The others' last turn may have been before the last records.
        counts.append(len(leader.recorder.values))
        assert counts[-1] == 6_000
        assert max(later - earlier for earlier, later in pairwise(counts)) <= 700

    run(scenario, Cluster(tmp_path, voters=1))
