"""RaftNode over real sockets and disks: elections, replication, restarts, snapshots."""

import asyncio
import time
from pathlib import Path

import pytest
from raft_rig import Cluster, Recorder, eventually

from raft.node import NotLeader
from wire import quorum_state
from wire.control import ControlType
from wire.errors import FatalError, KafkaError


def run(scenario, cluster):
    async def main():
        try:
            await scenario(cluster)
        finally:
            await cluster.stop()

    asyncio.run(main())


def test_one_voter_leads_at_once(tmp_path):
    async def scenario(cluster):
        began = time.monotonic()
        await cluster.start()
        leader = await cluster.leader()
        assert time.monotonic() - began < 3.0
        assert await cluster.append(b"a", b"b") == (1, 2)
        assert leader.recorder.values == [(1, b"a"), (2, b"b")]
        assert leader.recorder.control == [ControlType.LEADER_CHANGE]
        assert await leader.node.confirm_leadership() == 3
        await leader.stop()
        await cluster[1].start()
        await cluster.leader()
        await cluster.append(b"c")
        assert cluster[1].recorder.state == [b"a", b"b", b"c"]

    run(scenario, Cluster(tmp_path, voters=1))


def test_three_voters_replicate_and_survive_the_leader(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        for i in range(20):
            await cluster.append(b"%d" % i)
        await cluster.caught_up()
        states = [member.recorder.state for member in cluster.up]
        assert states == [[b"%d" % i for i in range(20)]] * 4
        # Every member has the same bytes.
        logs = [
            (cluster.path / f"node-{i}/__cluster_metadata-0/00000000000000000000.log").read_bytes()
            for i in (1, 2, 3)
        ]
        assert logs[0] == logs[1] == logs[2]
        began = time.monotonic()
        await leader.kill()
        follower = await cluster.leader(unlike=leader.node_id)
        assert time.monotonic() - began < 4.0
        assert follower.node.leader().epoch > 1
        await cluster.append(b"after")
        await leader.start()
        await cluster.append(b"back")
        await cluster.caught_up()
        expected = [b"%d" % i for i in range(20)] + [b"after", b"back"]
        assert [member.recorder.state for member in cluster.up] == [expected] * 4

    run(scenario, Cluster(tmp_path, voters=3, observers=1))


def test_all_killed_all_back(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        await cluster.append(b"a")
        await cluster.append(b"b")
        for member in cluster.up:
            await member.kill()
        await cluster.start()
        await cluster.append(b"c")
        await cluster.caught_up()
        assert [m.recorder.state for m in cluster.up] == [[b"a", b"b", b"c"]] * 3

    run(scenario, Cluster(tmp_path))


def test_an_uncommitted_tail_is_cut(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        await cluster.append(b"kept")
        await cluster.caught_up()
        others = [member for member in cluster.up if member is not leader]
        for member in others:
            await member.kill()
        leader.node.append([b"lost 1"], leader.node.leader().epoch)
        leader.node.append([b"lost 2", b"lost 3"], leader.node.leader().epoch)
        await asyncio.sleep(0.05)
        await leader.kill()
        for member in others:
            await member.start()
        await cluster.append(b"new")
        await leader.start()
        await cluster.append(b"newer")
        await cluster.caught_up()
        assert [m.recorder.state for m in cluster.up] == [[b"kept", b"new", b"newer"]] * 3

    run(scenario, Cluster(tmp_path))


def test_a_graceful_stop_hands_over_quickly(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        await cluster.append(b"a")
        await cluster.caught_up()
        began = time.monotonic()
        await leader.stop()
        await cluster.leader(unlike=leader.node_id)
        assert time.monotonic() - began < 2.0
        await cluster.append(b"b")

    run(scenario, Cluster(tmp_path))


def test_a_lagging_member_loads_a_snapshot_in_slices(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        values = [b"%05d" % i * 30 for i in range(400)]
        for start in range(0, 400, 50):
            await cluster.append(*values[start : start + 50])
        leader = await cluster.leader()
        late = next(member for member in cluster.up if member is not leader)
        await cluster.caught_up()
        await late.kill()
        for i in range(3):
            end = leader.node.applied_offset
            await leader.node.write_snapshot(
                end, leader.node.leader().epoch, 1000, [list(leader.recorder.state)]
            )
            values.append(b"more %d" % i)
            await cluster.append(values[-1])
        # Only the newest snapshots are left, and the log begins behind the oldest of them.
        assert leader.node.status()["log_start_offset"] > 400
        await late.start()
        await cluster.caught_up()
        assert late.recorder.snapshots == [tuple(leader.node.latest_snapshot_id)] or (
            late.recorder.snapshots
        )
        assert late.recorder.state == values
        assert late.node.latest_snapshot_id is not None
        # It is loaded at the next start, too.
        await late.stop()
        await late.start()
        await cluster.caught_up()
        assert late.recorder.snapshots
        assert late.recorder.state == values

    run(
        scenario,
        Cluster(
            tmp_path,
            observers=1,
            fetch_snapshot_max_bytes=7_000,
            segment_bytes=16_000,
            retention_bytes=1,
        ),
    )


def test_append_is_the_leaders_alone(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        epoch = leader.node.leader().epoch
        follower = next(member for member in cluster.up if member is not leader)
        with pytest.raises(NotLeader):
            follower.node.append([b"x"], epoch)
        with pytest.raises(NotLeader):
            leader.node.append([b"x"], epoch - 1)
        with pytest.raises(NotLeader):
            await follower.node.confirm_leadership()
        with pytest.raises(KafkaError, match="RECORD_LIST_TOO_LARGE"):
            leader.node.append([b"x" * (9 << 20)], epoch)
        await eventually(lambda: follower.node.leader_endpoint() is not None)
        assert follower.node.leader_endpoint() == (
            leader.node_id, *cluster.voters[leader.node_id], epoch
        )  # fmt: skip

    run(scenario, Cluster(tmp_path))


def test_reads_are_confirmed_by_a_majority(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        _, last = await cluster.append(b"a")
        offsets = await asyncio.gather(*(leader.node.confirm_leadership() for _ in range(50)))
        assert all(offset > last for offset in offsets)
        for member in list(cluster.up):
            if member is not leader:
                await member.kill()
        with pytest.raises(NotLeader):
            await leader.node.confirm_leadership()

    run(scenario, Cluster(tmp_path))


def test_many_appends_share_fsyncs(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        epoch = leader.node.leader().epoch
        before = leader.node.fsyncs
        for i in range(500):
            leader.node.append([b"%d" % i], epoch)
        await cluster.caught_up()
        assert leader.node.fsyncs - before < 100
        assert leader.recorder.state == [b"%d" % i for i in range(500)]

    run(scenario, Cluster(tmp_path))


def test_what_a_leader_appended_last_is_sent_from_memory(tmp_path, monkeypatch):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        await cluster.append(b"a")
        await cluster.caught_up()
        reads = []
        log = leader.node.log.log
        read = type(log).read
        monkeypatch.setattr(
            type(log),
            "read",
            lambda self, *at, **more: reads.append(self) or read(self, *at, **more),
        )
        for number in range(5):
            await cluster.append(b"%d" % number, b"and more")
            await cluster.caught_up()
        assert log not in reads
        assert len(reads) >= 10  # what followers apply
        late = cluster[1 + leader.node_id % 3]
        await late.kill()
        await cluster.append(b"b")
        await cluster.append(b"c")
        await late.start()
        await cluster.caught_up()
        assert log in reads
        ends = [member.node.log.log.active.file for member in cluster.up]
        contents = [file.pread(file.size(), 0) for file in ends]
        assert len(contents[0]) > 500
        assert contents[1:] == contents[:1] * 2

    run(scenario, Cluster(tmp_path))


def test_damage_before_the_synced_offset_stops_a_lonely_node(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        for i in range(5):
            await cluster.append(b"value %d" % i)
        await cluster[1].kill()
        path = tmp_path / "node-1/__cluster_metadata-0/00000000000000000000.log"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(FatalError, match=r"00000000000000000000\.log: byte \d+: offset \d+"):
            await cluster[1].start()
        cluster[1].node = None

    run(scenario, Cluster(tmp_path, voters=1))


def test_a_torn_unsynced_tail_is_cut_without_a_word(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        await cluster.append(b"a")
        await cluster[1].kill()
        path = tmp_path / "node-1/__cluster_metadata-0/00000000000000000000.log"
        whole = path.read_bytes()
        path.write_bytes(whole + whole[-40:-7])
        await cluster[1].start()
        await cluster.append(b"b")
        assert cluster[1].recorder.state == [b"a", b"b"]

    run(scenario, Cluster(tmp_path, voters=1))


def test_a_damaged_voter_takes_no_part_until_it_is_whole_again(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        for i in range(5):
            await cluster.append(b"value %d" % i)
        await cluster.caught_up()
        leader = await cluster.leader()
        victim = next(member for member in cluster.up if member is not leader)
        third = next(m for m in cluster.up if m not in (leader, victim))
        await victim.kill()
        path = tmp_path / f"node-{victim.node_id}/__cluster_metadata-0/00000000000000000000.log"
        data = bytearray(path.read_bytes())
        data[len(data) - 3] ^= 1
        path.write_bytes(data)
        # Alone with the one who has everything, it can neither vote nor be voted for.
        await leader.kill()
        await third.kill()
        await victim.start()
        assert victim.node.status()["damaged"]
        await third.start()
        await asyncio.sleep(1.2)
        assert not any(member.node.is_leader for member in cluster.up)
        await leader.start()
        await cluster.append(b"again")
        await cluster.caught_up()
        assert not victim.node.status()["damaged"]
        assert victim.recorder.state == [b"value %d" % i for i in range(5)] + [b"again"]

    run(scenario, Cluster(tmp_path))


def test_the_quorum_state_file_is_kafkas(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        await cluster.caught_up()
        path = Path(leader.directory) / "__cluster_metadata-0/quorum-state"
        state = quorum_state.decode(path.read_bytes(), str(path))
        assert state.version == 0
        assert state.leader_id == state.voted_id == leader.node_id
        assert state.voters == (1, 2, 3)

    run(scenario, Cluster(tmp_path))


def test_a_member_knows_but_the_past_until_it_has_what_was_committed(tmp_path, monkeypatch):
    """Its log may hold all of it; how much of that is committed it learns from the leader."""

    async def tell(cluster):
        await cluster.start()
        leader = await cluster.leader()
        late = next(member for member in cluster.up if member is not leader)
        for number in range(10):
            await cluster.append(b"%d" % number)
        await cluster.caught_up()
        await late.kill()
        for number in range(10):
            await cluster.append(b"%d" % number)
        end = leader.node.high_watermark
        assert leader.node.is_current
        on_batch = Recorder.on_batch
        seen = []

        def look(recorder, batch):
            on_batch(recorder, batch)
            if recorder is late.recorder:
                seen.append((batch.last_offset + 1, late.node.is_current))

        monkeypatch.setattr(Recorder, "on_batch", look)
        await late.start()
        await eventually(lambda: late.node.is_current)
        assert late.node.committed_told.is_set()
        assert late.node.applied_offset >= end
        before = [current for offset, current in seen if offset < end]
        assert before
        assert not any(before)

    run(tell, Cluster(tmp_path))
