"""A leader whose disk has spoiled records of its metadata log while it runs: those who fetch them
notice it first."""

from pathlib import Path

import pytest
from raft_rig import Cluster, eventually
from structlog.testing import capture_logs
from test_raft_snapshots import run, write_snapshot

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


@pytest.mark.parametrize("byte", [HEADER + 5, 8], ids=["a record", "the length of a batch"])
def test_a_snapshot_takes_the_place_of_what_the_disk_has_spoiled(tmp_path, byte):
    async def tell(cluster):
        await cluster.start()
        leader = await cluster.leader()
        late = next(member for member in cluster.up if member is not leader)
        await cluster.append(b"first")
        await cluster.caught_up()
        await late.kill()
        for number in range(20):
            await cluster.append(b"%d" % number)
        spoil(leader, byte)
        with capture_logs() as logs:
            await late.start()
            await eventually(lambda: leader.recorder.lost_snapshots)
            await write_snapshot(leader)
            await cluster.append(b"last")
            await cluster.caught_up()
        assert late.recorder.state == leader.recorder.state
        assert late.recorder.snapshots
        assert leader.node.is_leader
        assert leader.recorder.lost_snapshots == 1
        told = [line for line in logs if line["event"] == "metadata_log_damaged"]
        assert [line["replaced_by"] for line in told] == ["a snapshot"]
        await leader.stop()
        with capture_logs() as logs:
            await leader.start()
            await cluster.caught_up()
        assert "metadata_log_damaged" not in [line["event"] for line in logs]

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
