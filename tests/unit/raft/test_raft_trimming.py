"""Trimming of a metadata log: broken off, while a snapshot takes the log's place, or of a log that
is damaged and has records that nobody else has yet."""

import asyncio

import pytest
from raft_rig import Cluster, eventually
from test_raft_rotten_fields import flip
from test_raft_rotten_log import HEADER, with_a_late_one, write_snapshot
from test_raft_snapshots import run

from raft.events import LogStartAdvanced
from world.env import DiskFull
from world.real import RealDisk


def test_a_log_that_was_trimmed_as_the_disk_was_full_is_known_to_begin_later(tmp_path, monkeypatch):
    """Who is behind was sent nothing, asked again at once, and so on until another snapshot."""
    rename = RealDisk.rename

    async def tell(cluster):
        leader, late = await with_a_late_one(cluster)
        for _ in range(5):
            await cluster.append(b"z" * 300)
        flip(leader, 2, HEADER + 5, 0x40)

        def full(self, source, target):
            if source.startswith(leader.directory) and target.endswith(".deleted"):
                raise DiskFull(source, "rename", "No space left on device")
            return rename(self, source, target)

        await late.start()
        await eventually(lambda: leader.recorder.lost_snapshots)
        with monkeypatch.context() as patch:
            patch.setattr(RealDisk, "rename", full)
            await write_snapshot(leader)
        node = leader.node
        assert node.core.state.log.start == node.log.log.log_start_offset > 0
        await eventually(lambda: late.node.end_offset >= node.end_offset)
        assert not leader.fatal

    run(tell, Cluster(tmp_path, segment_bytes=600))


@pytest.mark.parametrize("file", [".log", ".index"])
def test_what_a_full_disk_kept_from_being_trimmed_is_trimmed_later(tmp_path, monkeypatch, file):
    """A lonely controller met a segment at its next start that it had forgotten, and a gap."""
    rename = RealDisk.rename

    async def tell(cluster):
        await cluster.start()
        leader = await cluster.leader()
        node = leader.node
        object.__setattr__(node.log.config, "retention_bytes", 0)

        def full(self, source, target):
            if source.endswith(file):
                raise DiskFull(source, "rename", "No space left on device")
            return rename(self, source, target)

        for may_rename in (True, False, True):
            for _ in range(4):
                await cluster.append(b"z" * 300)
            with monkeypatch.context() as patch:
                if not may_rename:
                    patch.setattr(RealDisk, "rename", full)
                await write_snapshot(leader)
        start = node.log.log.log_start_offset
        await cluster.append(b"last")
        await leader.stop()
        await leader.start()
        assert 0 < leader.node.log.log.log_start_offset <= start  # where a segment begins
        assert not leader.node.status()["damaged"]
        await cluster.leader()
        await eventually(lambda: leader.recorder.state[-1:] == [b"last"])

    run(tell, Cluster(tmp_path, voters=1, segment_bytes=600))


def test_retention_while_a_snapshot_takes_the_logs_place(tmp_path, monkeypatch):
    """There are older snapshots then than the one that the log is about to begin behind."""

    async def tell(cluster):
        await cluster.start()
        leader = await cluster.leader()
        late = next(member for member in cluster.up if member is not leader)
        for byte in (b"x", b"y"):
            await cluster.append(byte * 30_000)
            await cluster.caught_up()
            await write_snapshot(late)
        await late.kill()
        for number in range(5):
            await cluster.append(b"%d" % number * 30_000)
        await write_snapshot(leader)
        latest = leader.node.log.snapshots.latest
        leader.node.log._begin_at(latest, 0)
        leader.node.tell(LogStartAdvanced(latest))
        await late.start()
        node, errors, cleaned = late.node, [], asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(lambda _, told: errors.append(told))
        log, snapshots = node.log.log, node.log.snapshots
        restart, settle = log.truncate_and_restart_at, log.settle

        def restart_and_clean(offset):
            restart(offset)
            kept = log.size + snapshots.size - 1  # one snapshot too many
            object.__setattr__(node.log.config, "retention_bytes", kept)

            def clean():
                assert len(snapshots.complete) == 3
                node._cleaning.cancel()
                try:
                    node._clean()
                finally:
                    cleaned.set()

            asyncio.get_running_loop().call_soon(clean)

        async def settle_after_that():
            await cleaned.wait()
            await settle()

        monkeypatch.setattr(log, "truncate_and_restart_at", restart_and_clean)
        monkeypatch.setattr(log, "settle", settle_after_that)
        await eventually(lambda: late.recorder.state == leader.recorder.state)
        assert cleaned.is_set()
        assert not errors
        assert not node._cleaning.cancelled()

    run(tell, Cluster(tmp_path))


SPOILED = {"length": 8, "base offset": 6, "last offset": 26, "a record": HEADER + 5}


@pytest.mark.parametrize("byte", [8, 6, 26])
def test_a_damaged_file_is_not_left_while_there_is_more_damage(tmp_path, byte):
    """Behind the place that the index leads to."""

    async def tell(cluster):
        leader, late = await with_a_late_one(cluster)
        node = leader.node
        flip(leader, -1, HEADER + 5, 0x40)
        node.log.log._reader.forget()
        await cluster.append(b"more")
        await late.start()
        await eventually(lambda: leader.recorder.lost_snapshots)
        node.append([b"meanwhile"], node.leader().epoch)
        node._burst.end()
        await write_snapshot(leader)
        await eventually(lambda: late.node.end_offset == node.end_offset)
        for _ in range(3):
            await cluster.append(b"n" * 5_000)
        for value in (b"a", b"b"):
            await cluster.append(value)
        await cluster.caught_up()
        await eventually(lambda: late.node.applied_offset == node.end_offset)
        active = node.log.log.active
        flip(leader, -1, byte, 0x40)
        node.append([b"meanwhile"], node.leader().epoch)
        node._burst.end()
        await write_snapshot(leader)
        await eventually(lambda: late.node.applied_offset == node.end_offset)
        for number in range(3):
            node.append([b"%d" % number], node.leader().epoch)
            node._burst.end()
        node._clean()
        assert node.log.log.active is active
        await eventually(lambda: leader.fatal or late.node.applied_offset == node.end_offset)
        assert not leader.fatal

    run(tell, Cluster(tmp_path))


@pytest.mark.parametrize("voters", [3, 1])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("byte", SPOILED.values(), ids=SPOILED)
def test_a_damaged_file_is_left_once_all_others_get_can_be_found_without_it(
    tmp_path, voters, count, byte
):
    """Until then what was appended just now is known in memory alone, which a new file ends."""

    async def tell(cluster):
        leader, late = await with_a_late_one(cluster)
        node = leader.node
        if count > 1:  # a batch that the index leads to, by its last offset
            await cluster.append(b"n" * 5_000)
            await cluster.append(*[b"q"] * count)
            await cluster.caught_up()
        flip(leader, -1, byte, 0x40)  # the newest batch
        node.log.log._reader.forget()
        await cluster.append(b"more")
        await late.start()
        await eventually(lambda: leader.recorder.lost_snapshots)
        node.append([b"meanwhile"], node.leader().epoch)
        node._burst.end()
        await write_snapshot(leader)
        await eventually(lambda: late.node.end_offset == node.end_offset)
        assert node.log.is_damaged
        active = node.log.log.active
        for number in range(3):
            node.append([b"%d" % number], node.leader().epoch)
            node._burst.end()
        node._clean()
        await eventually(lambda: leader.fatal or late.node.applied_offset == node.end_offset)
        assert not leader.fatal
        assert node.log.log.active is active
        # An index entry leads past the damage.
        for _ in range(3):
            await cluster.append(b"n" * 5_000)
        await eventually(lambda: late.node.applied_offset == node.end_offset)
        await write_snapshot(leader)
        node._clean()
        assert node.log.log.active is not active
        await cluster.append(b"last")
        await eventually(lambda: late.recorder.state == leader.recorder.state)
        assert not leader.fatal

    run(tell, Cluster(tmp_path, voters=voters, observers=int(voters == 1)))
