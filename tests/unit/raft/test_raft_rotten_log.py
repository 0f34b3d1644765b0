"""A leader whose disk has spoiled records of its metadata log while it runs: those who fetch them
notice it first."""

from pathlib import Path

import pytest
from core_rig import Core, log, records
from raft_rig import Cluster, eventually
from structlog.testing import capture_logs
from test_raft_snapshots import run

from raft.effects import ElectionState
from raft.messages import FetchResponse
from raft.metadata_log import describe_fetched
from storage.epochs import LeaderEpochs
from wire.batch import build_batch
from wire.errors import ErrorCode

HEADER = 61


def batches(path):
    """Where each batch of a segment begins."""
    data, position, found = path.read_bytes(), 0, []
    while position + HEADER < len(data) and data[position + 16] == 2:
        found.append(position)
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return found


def spoil(member, byte):
    """Change a byte, counted from its beginning, of a batch in the middle of the log."""
    (path,) = (Path(member.directory) / "__cluster_metadata-0").glob("*.log")
    places = batches(path)
    with path.open("r+b") as file:
        file.seek(places[len(places) // 2] + byte)
        was = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([was[0] ^ 0x40]))


async def write_snapshot(member):
    """One that retention keeps no shorter than others."""
    node = member.node
    end, epoch, now_ms = node.applied_offset, node.leader().epoch, node.env.clock.wall_ms()
    return await node.write_snapshot(end, epoch, now_ms, [list(member.recorder.state)])


def served(member, offset):
    """The records that go out to who asks for those from `offset` on."""
    answers = []
    server = member.node._performer._records_server
    response = FetchResponse(ErrorCode.none, member.node_id, 1, read_from=offset)
    server.serve(response, offset, 10_000, lambda *answer: answers.append(answer))
    ((_, records),) = answers
    return None if records is None else bytes(records.data)


async def heals(leader, late):
    """The late one gets all that is committed, if snapshots are written when they are asked for."""

    def has_all():
        return late.node.applied_offset >= leader.node.high_watermark

    while not has_all():
        asked = leader.recorder.lost_snapshots
        if asked:
            await write_snapshot(leader)
        await eventually(lambda asked=asked: has_all() or leader.recorder.lost_snapshots > asked)
    assert late.recorder.state == leader.recorder.state
    assert not leader.fatal + late.fatal


async def with_a_late_one(cluster):
    """The leader, and one that is down and lacks most of the log."""
    await cluster.start()
    leader = await cluster.leader()
    late = next(member for member in cluster.up if member is not leader)
    await cluster.append(b"first")
    await cluster.caught_up()
    await late.kill()
    for number in range(20):
        await cluster.append(b"%d" % number)
    return leader, late


SPOILED = {"a record": HEADER + 5, "the length of a batch": 8, "its epoch": 15, "its offset": 6}


@pytest.mark.parametrize("snapshot", ["before", "after"])
@pytest.mark.parametrize("byte", SPOILED.values(), ids=SPOILED)
def test_a_snapshot_takes_the_place_of_what_the_disk_has_spoiled(tmp_path, byte, snapshot):
    async def tell(cluster):
        leader, late = await with_a_late_one(cluster)
        if snapshot == "before":
            assert await write_snapshot(leader)
        await cluster.append(b"more")
        spoil(leader, byte)
        with capture_logs() as logs:
            await late.start()
            if snapshot == "after":
                await eventually(lambda: leader.recorder.lost_snapshots)
                assert await write_snapshot(leader)
            await cluster.append(b"last")
            await cluster.caught_up()
        assert late.recorder.state == leader.recorder.state
        assert late.recorder.snapshots
        assert leader.node.is_leader
        assert leader.recorder.lost_snapshots == (snapshot == "after")
        told = [line for line in logs if line["event"] == "metadata_log_damaged"]
        assert [line["replaced_by"] for line in told] == ["a snapshot"]
        await leader.stop()
        await leader.start()  # what is on its disk it finds now, and gets it from the others
        await cluster.append(b"again")
        await cluster.caught_up()
        await eventually(lambda: not leader.node.status()["damaged"])
        assert not any(member.fatal for member in cluster.up)

    run(tell, Cluster(tmp_path))


def test_a_snapshot_that_did_not_come_is_asked_for_again(tmp_path):
    async def tell(cluster):
        leader, late = await with_a_late_one(cluster)
        spoil(leader, SPOILED["a record"])
        await late.start()
        await eventually(lambda: leader.recorder.lost_snapshots > 1)
        assert await write_snapshot(leader)
        await cluster.caught_up()

    run(tell, Cluster(tmp_path))


def test_whoever_asks_from_within_a_batch_finds_no_damage(tmp_path):
    async def tell(cluster):
        await cluster.start()
        leader = await cluster.leader()
        base, last = await cluster.append(b"a", b"b", b"c")
        await cluster.append(b"d")
        for offset in range(base, last + 1):
            assert served(leader, offset)
        assert not leader.node.log.is_damaged
        assert not leader.fatal

    run(tell, Cluster(tmp_path))


def test_an_epoch_that_is_known_nowhere_else_is_no_damage(tmp_path):
    """As where a leader-epoch file was lost, and is written anew from what came later."""

    async def tell(cluster):
        await cluster.start()
        leader = await cluster.leader()
        base, _ = await cluster.append(b"a")
        log = leader.node.log.log
        log.epochs = LeaderEpochs([(log.epochs.latest, base + 1)])
        assert served(leader, base)
        assert not leader.node.log.is_damaged

    run(tell, Cluster(tmp_path))


def test_a_leader_that_cannot_give_what_nobody_else_has_yet_lets_others_lead(tmp_path):
    """Its state machine hasn't had it either, so there is no snapshot to take its place."""

    async def tell(cluster):
        await cluster.start()
        leader = await cluster.leader()
        leader.node.log_damaged(leader.node.applied_offset, "here")
        await eventually(lambda: leader.fatal)
        assert "the metadata log is damaged: here" in str(leader.fatal[0])
        await cluster.leader(unlike=leader.node_id)

    run(tell, Cluster(tmp_path))


# What a follower makes of it


def test_epochs_that_fall_or_lie_in_the_future_end_what_is_sound():
    """A batch's epoch is not covered by its CRC."""
    epochs = (3, 4, 9, 4)
    batches = [
        build_batch([(0, None, b"x", ())], base_offset=offset, leader_epoch=epoch)
        for offset, epoch in enumerate(epochs, 10)
    ]
    data = memoryview(b"".join(map(bytes, batches)))
    for last_epoch, epoch, end in ((0, 9, 13), (3, 8, 12), (3, 3, 11)):
        found = describe_fetched(data, 10, last_epoch=last_epoch, epoch=epoch)
        assert found.end_offset == end
        assert len(found.payload) == sum(map(len, batches[: end - 10]))
    assert describe_fetched(data, 10, last_epoch=4, epoch=9) is None
    assert describe_fetched(data, 10, last_epoch=0, epoch=2) is None


@pytest.mark.parametrize("epochs", [(5, 6, 5), (4, 5), (5, 9), (9, 5)])
def test_epochs_that_cannot_be_leave_the_log_as_it_is(epochs):
    core = Core(log=log((5, 4)), stored=ElectionState(5))
    core.follow(2, 7)
    core.fetched(records=records(4, *((epoch, 1) for epoch in epochs)), high_watermark=4)
    assert core.q.log.end == 4
    core.pass_ms(100)
    core.fetched(records=records(4, (5, 1), (7, 1)), high_watermark=4)
    assert core.q.log.end == 6
