"""Spoiled fields of a leader's metadata log that no CRC covers, or that lead a reader astray."""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest
from raft_rig import Cluster, Recorder, eventually
from structlog.testing import capture_logs
from test_raft_rotten_log import HEADER, batches, heals, with_a_late_one, write_snapshot
from test_raft_snapshots import run

from raft.messages import FetchResponse
from wire.errors import ErrorCode
from world.env import DiskError, DiskFull
from world.real import RealFile

LENGTH, EPOCH, MAGIC, LAST_DELTA = 8, 12, 16, 23


def log_file(member, number=0):
    return sorted((Path(member.directory) / "__cluster_metadata-0").glob("*.log"))[number]


def write(path, place, data):
    with path.open("r+b") as file:
        file.seek(place)
        file.write(data)


def flip(member, batch, byte, mask, segment=0):
    """Change a byte, counted from its beginning, of a batch of the log."""
    path = log_file(member, segment)
    place = batches(path)[batch] + byte
    write(path, place, bytes([path.read_bytes()[place] ^ mask]))


def epoch_at(data, place):
    return int.from_bytes(data[place + EPOCH : place + EPOCH + 4], "big")


def set_epoch(member, old, new, pick):
    """Give one of the batches of an epoch another one."""
    path = log_file(member)
    data = path.read_bytes()
    place = [place for place in batches(path) if epoch_at(data, place) == old][pick]
    write(path, place + EPOCH, new.to_bytes(4, "big"))


def forget(member):
    """As 512 newer batches, or a start: where batches are is looked for in the file."""
    member.node.log.log._reader.forget()


def epochs_of(member):
    return [epoch for epoch, _ in member.node.log.log.epochs.entries()]


async def with_epochs(cluster):
    """The leader of the last of three epochs that have records, and one that is down and lacks
    most of them. Between these epochs lie some without records."""
    await cluster.start()
    leader = await cluster.leader()
    late = next(member for member in cluster.up if member is not leader)
    await cluster.append(b"first")
    await cluster.caught_up()
    await late.kill()
    while len(epochs_of(leader)) < 3 or all(b - a == 1 for a, b in _pairs(epochs_of(leader))):
        for number in range(6):
            await cluster.append(b"%d" % number)
        leader.node.resign()
        await eventually(lambda: not leader.node.is_leader)  # noqa: B023 - awaited here
        leader = await cluster.leader()
    await cluster.append(b"more")
    await cluster.caught_up()
    return leader, late


def _pairs(items):
    return list(pairwise(items))


@pytest.mark.parametrize("where", ["recent", "old"])
@pytest.mark.parametrize("becomes", ["a later one", "the latest", "one without records"])
@pytest.mark.parametrize("pick", [1, 3, -1])
def test_no_batch_goes_out_under_another_epoch(tmp_path, becomes, where, pick):
    async def tell(cluster):
        leader, late = await with_epochs(cluster)
        epochs = epochs_of(leader)
        old, new = epochs[0], epochs[1 if becomes == "a later one" else -1]
        if becomes == "one without records":
            old, new = next((a, a + 1) for a, b in _pairs(epochs) if b > a + 1)
        set_epoch(leader, old, new, pick)
        if where == "old":
            forget(leader)
        await late.start()
        await heals(leader, late)
        known = leader.node.log.log.epochs
        for epoch, offset in late.node.log.log.epochs.entries():
            assert known.epoch_at(offset) == epoch

    run(tell, Cluster(tmp_path))


def test_a_log_with_a_spoiled_epoch_does_not_pass_for_a_newer_one(tmp_path):
    """The disk of one voter alone is spoiled, and one that was down fetches from it. What was
    committed by the others is kept, though the spoiled one is gone then."""

    async def tell(cluster):
        await cluster.start()
        leader = await cluster.leader()
        far = next(member for member in cluster.up if member is not leader)
        other = next(member for member in cluster.up if member not in (leader, far))
        await cluster.append(b"first")
        await cluster.caught_up()
        await far.kill()
        for number in range(15):
            await cluster.append(b"%d" % number)
        await cluster.caught_up()
        state = list(leader.recorder.state)
        await other.stop()
        await eventually(lambda: not leader.node.is_leader)
        epoch = leader.node.leader().epoch
        set_epoch(leader, epochs_of(leader)[0], epoch + 2, 4)
        await far.start()
        await eventually(lambda: leader.node.is_leader)
        await eventually(lambda: far.node.end_offset > 2)
        await leader.kill()
        await other.start()
        new = await cluster.leader(unlike=leader.node_id)
        await cluster.append(b"new")
        await cluster.caught_up()
        assert new.recorder.state == [*state, b"new"]

    run(tell, Cluster(tmp_path))


@pytest.mark.parametrize("where", ["recent", "old"])
@pytest.mark.parametrize(
    ("byte", "mask"),
    [(6, 0x40), (7, 0x01), (7, 0x02), (7, 0x10), (LAST_DELTA + 3, 0x40), (EPOCH + 3, 0x02)],
    ids=str,
)
def test_no_batch_goes_out_at_another_offset(tmp_path, byte, mask, where):
    async def tell(cluster):
        leader, late = await with_a_late_one(cluster)
        await cluster.append(b"more")
        flip(leader, 12, byte, mask)
        if where == "old":
            forget(leader)
        await late.start()
        await heals(leader, late)

    run(tell, Cluster(tmp_path))


@pytest.mark.parametrize(("byte", "mask"), [(6, 0x40), (7, 0x02)], ids=str)
def test_nor_from_a_segment_that_was_rolled(tmp_path, byte, mask):
    async def tell(cluster):
        leader, late = await with_a_late_one(cluster)
        await cluster.append(b"more")
        flip(leader, 2, byte, mask, segment=1)
        await late.start()
        await heals(leader, late)

    run(tell, Cluster(tmp_path, segment_bytes=600))


def test_an_offset_that_lies_far_ahead_is_not_taken_for_uncommitted(tmp_path):
    async def tell(cluster):
        leader, late = await with_epochs(cluster)
        flip(leader, 3, 6, 0x40)
        forget(leader)
        await late.start()
        await heals(leader, late)

    run(tell, Cluster(tmp_path))


@pytest.mark.parametrize("byte", [6, LAST_DELTA + 3])
def test_damage_before_a_snapshot_may_be_in_the_way_to_what_is_behind_it(tmp_path, byte):
    async def tell(cluster):
        await cluster.start()
        leader = await cluster.leader()
        late = next(member for member in cluster.up if member is not leader)
        for number in range(10):
            await cluster.append(b"%d" % number)
        await cluster.caught_up()
        assert await write_snapshot(leader)
        await cluster.append(b"behind it")
        await cluster.caught_up()
        await late.kill()
        for number in range(10):
            await cluster.append(b"%d" % number)
        flip(leader, 4, byte, 0x40)
        forget(leader)
        await late.start()
        with capture_logs() as logs:
            await heals(leader, late)
        assert len([line for line in logs if line["event"] == "metadata_log_damaged"]) == 1

    run(tell, Cluster(tmp_path))


@pytest.mark.parametrize("length", [HEADER - 13, 3 << 20, 2**31 - 1])
def test_a_length_that_cannot_be_is_no_reason_to_read_that_much(tmp_path, length):
    async def tell(cluster):
        leader, late = await with_a_late_one(cluster)
        for _ in range(4):
            await cluster.append(b"z" * (1 << 20))
        path = log_file(leader)
        write(path, batches(path)[12] + LENGTH, length.to_bytes(4, "big"))
        forget(leader)
        await late.start()
        await heals(leader, late)

    run(tell, Cluster(tmp_path))


# What the disk has to be waited for


def test_what_is_not_in_memory_is_looked_at_too(tmp_path, monkeypatch):
    monkeypatch.setattr(RealFile, "pread_nowait", lambda self, length, position: None)

    async def tell(cluster):
        leader, late = await with_a_late_one(cluster)
        await cluster.append(b"more")
        flip(leader, 12, HEADER + 5, 0x40)
        await late.start()
        await heals(leader, late)

    run(tell, Cluster(tmp_path))


def test_who_cannot_read_its_log_lets_others_lead(tmp_path, monkeypatch):
    async def tell(cluster):
        leader, late = await with_a_late_one(cluster)
        path = str(log_file(leader))
        pread = RealFile.pread

        def read(self, length, position):
            if self.path == path:
                raise DiskError(path, "read", "Input/output error")
            return pread(self, length, position)

        monkeypatch.setattr(RealFile, "pread_nowait", lambda self, length, position: None)
        monkeypatch.setattr(RealFile, "pread", read)
        await late.start()
        await eventually(lambda: leader.fatal)
        assert "Input/output error" in str(leader.fatal[0])
        await leader.kill()
        await cluster.append(b"on")
        await eventually(lambda: late.recorder.state[-1:] == [b"on"])

    run(tell, Cluster(tmp_path))


def test_what_a_later_leader_has_cut_meanwhile_is_not_given(tmp_path, monkeypatch):
    """It was found on the disk before, and is read after."""

    async def tell(cluster):
        leader, _ = await with_a_late_one(cluster)
        monkeypatch.setattr(RealFile, "pread_nowait", lambda self, length, position: None)
        server, log = leader.node._performer._records_server, leader.node.log.log
        answered = asyncio.get_running_loop().create_future()
        response = FetchResponse(ErrorCode.none, leader.node_id, 1, read_from=3)
        server.serve(response, 3, 10_000, lambda *answer: answered.set_result(answer))
        log.truncations += 1
        told, records = await answered
        assert records is None
        assert told.error.name == "not_leader_or_follower"

    run(tell, Cluster(tmp_path))


def test_nor_what_was_trimmed_and_closed_meanwhile(tmp_path, monkeypatch):
    async def tell(cluster):
        leader, _ = await with_a_late_one(cluster)
        monkeypatch.setattr(RealFile, "pread_nowait", lambda self, length, position: None)
        server, log = leader.node._performer._records_server, leader.node.log.log
        answered = asyncio.get_running_loop().create_future()
        response = FetchResponse(ErrorCode.none, leader.node_id, 1, read_from=3)

        def pread(self, length, position):
            log.log_start_offset = 4
            raise ValueError("the file is closed")

        with monkeypatch.context() as patch:
            patch.setattr(RealFile, "pread", pread)
            server.serve(response, 3, 10_000, lambda *answer: answered.set_result(answer))
            told, records = await answered
        log.log_start_offset = 0
        assert records is None
        assert told is response, "it leads on"
        assert not leader.fatal

    run(tell, Cluster(tmp_path))


def test_a_full_disk_does_not_end_a_leader_that_only_reads(tmp_path, monkeypatch):
    """An index leads to a damaged batch, so it is made again, for which there is no room."""

    async def tell(cluster):
        leader, late = await with_a_late_one(cluster)
        for _ in range(30):
            await cluster.append(b"y" * 600)
        segment = leader.node.log.log.segments.peekitem(0)[1]
        place = segment.index.floor_offset(segment.base_offset + 40)[1]
        assert place
        write(Path(segment.file.path), place + MAGIC, b"\x07")
        full = []

        def write_plain(disk, path, data):
            full.append(path)
            raise DiskFull(path, "write", "no space")

        with monkeypatch.context() as patch:
            patch.setattr("storage.segment.write_plain", write_plain)
            await late.start()
            await eventually(lambda: full)
        await heals(leader, late)

    run(tell, Cluster(tmp_path, segment_bytes=12_000))


# What comes of it


@pytest.mark.parametrize("more", [0, 3])
def test_a_lonely_controller_whose_damage_was_replaced_starts_again(tmp_path, more):
    """The file with the damage is gone by then."""

    async def tell(cluster):
        await cluster.start()
        leader, late = await cluster.leader(), cluster[2]
        await cluster.append(b"first")
        await cluster.caught_up()
        await late.kill()
        for number in range(20):
            await cluster.append(b"%d" % number)
        flip(leader, 9, HEADER + 5, 0x40)
        await late.start()
        await heals(leader, late)
        for number in range(more):
            await cluster.append(b"%d" % number)
        await cluster.caught_up()
        state = list(late.recorder.state)
        await leader.stop()
        await leader.start()
        await cluster.append(b"again")
        await cluster.caught_up()
        assert leader.recorder.state == [*state, b"again"]

    run(tell, Cluster(tmp_path, voters=1, observers=1))


def test_a_file_that_has_newer_records_goes_when_a_snapshot_has_them_too(tmp_path):
    """Though there are always some that are newer than the snapshot."""

    async def tell(cluster):
        leader, late = await with_a_late_one(cluster)
        flip(leader, 9, HEADER + 5, 0x40)
        trim = leader.node.log.trim

        def trim_under_load(**options):
            leader.node.append([b"meanwhile"], leader.node.leader().epoch)
            leader.node._burst.end()
            return trim(**options)

        leader.node.log.trim = trim_under_load
        await late.start()
        await heals(leader, late)
        path = log_file(leader)
        assert leader.node.log.is_damaged
        for _ in range(3):  # an index entry leads past the damage
            await cluster.append(b"n" * 5_000)
        await cluster.caught_up()
        await write_snapshot(leader)
        asked = leader.recorder.lost_snapshots
        leader.node._clean()  # as once a minute
        assert leader.recorder.lost_snapshots > asked
        assert leader.node.log.is_damaged
        await cluster.append(b"more")
        await cluster.caught_up()
        await write_snapshot(leader)
        assert not leader.node.log.is_damaged
        assert log_file(leader) != path
        assert not leader.fatal

    run(tell, Cluster(tmp_path))


def test_damage_below_a_snapshot_that_is_being_loaded_ends_nobody(tmp_path):
    """A new leader's state machine has nothing until then."""

    async def tell(cluster):
        leader, late = await with_a_late_one(cluster)
        await cluster.caught_up()
        for member in cluster.up:
            assert await write_snapshot(member)
        await cluster.append(b"more")
        await cluster.caught_up()
        ids = [member.node_id for member in cluster.up]
        Recorder.gate = asyncio.Event()
        try:
            for node_id in ids:
                await cluster[node_id].stop()
            for node_id in ids:
                await cluster[node_id].start()
            await eventually(lambda: any(member.node.is_leader for member in cluster.up))
            leader = next(member for member in cluster.up if member.node.is_leader)
            flip(leader, 12, HEADER + 5, 0x40)
            with capture_logs() as logs:
                await late.start()
                await eventually(
                    lambda: any(line["event"] == "metadata_log_damaged" for line in logs)
                )
            assert not leader.fatal
        finally:
            Recorder.gate.set()
            Recorder.gate = None
        await cluster.caught_up()

    run(tell, Cluster(tmp_path))
