"""RaftNode: dynamic voters' files, DescribeQuorum, failing disks, garbage, many callers."""

import asyncio
import os
from pathlib import Path
from uuid import UUID

import pytest
from raft_rig import Cluster, eventually
from structlog.testing import capture_logs

from net.client import Connection
from raft import snapshot_writer
from raft.snapshots import SnapshotStore
from raft.voters import OffsetAndEpoch
from wire import control, quorum_state
from wire.apis import ApiKey
from wire.errors import ErrorCode, FatalError
from wire.exits import EXIT_BAD_DIRECTORY, EXIT_METADATA_DISK_FAILED
from world.env import DiskFull, SyncFailed
from world.real import real_env


def run(scenario, cluster):
    async def main():
        try:
            await scenario(cluster)
        finally:
            await cluster.stop()

    asyncio.run(main())


async def write_bootstrap(cluster):
    """The snapshot 0-0 of a quorum that was formatted with its initial controllers."""
    voters = [
        control.Voter(
            i, UUID(int=5000 + i), (control.Endpoint("CONTROLLER", host, port),), 0, 1
        )
        for i, (host, port) in cluster.voters.items()
    ]  # fmt: skip
    for member in cluster.members.values():
        directory = f"{member.directory}/__cluster_metadata-0"
        os.makedirs(directory)
        env = real_env(1)
        store = SnapshotStore(env, directory)
        await snapshot_writer.write(
            env, store, OffsetAndEpoch(0, 0), 0, [], kraft_version=1, voters=voters
        )


def test_the_bootstrap_snapshot_names_the_voters(tmp_path):
    async def scenario(cluster):
        await write_bootstrap(cluster)
        await cluster.start()
        leader = await cluster.leader()
        await cluster.append(b"a")
        await cluster.caught_up()
        assert all(member.recorder.snapshots == [] for member in cluster.up)
        voters = leader.node.voters
        assert [voter.key.directory_id for voter in voters] == [
            UUID(int=5001), UUID(int=5002), UUID(int=5003)
        ]  # fmt: skip
        path = Path(leader.directory) / "__cluster_metadata-0/quorum-state"
        state = quorum_state.decode(path.read_bytes(), str(path))
        assert (state.version, state.voted_directory_id) == (
            1, UUID(int=5000 + leader.node_id)
        )  # fmt: skip

    run(scenario, Cluster(tmp_path))


async def ask(cluster, node_id, api_key, build):
    host, port = cluster.voters[node_id]
    connection = await Connection.connect(
        real_env(1), host, port, client_id="test", timeout_ms=2000
    )
    try:
        return await connection.call(api_key, build, 2000)
    finally:
        connection.close()


def describe(topic="__cluster_metadata"):
    def build(version, module):
        part = module.PartitionData(partition_index=0)
        return module.DescribeQuorumRequest(
            topics=(module.TopicData(topic_name=topic, partitions=(part,)),)
        )

    return build


def test_describe_quorum(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        await cluster.append(b"a", b"b")
        await cluster.caught_up()
        await eventually(
            lambda: all(p.end_offset == 3 for p in leader.node.core.state.role.voters.values())
        )
        answer = await ask(cluster, leader.node_id, ApiKey.DESCRIBE_QUORUM, describe())
        (part,) = answer.topics[0].partitions
        assert (part.error_code, part.leader_id, part.high_watermark) == (
            ErrorCode.none, leader.node_id, 3
        )  # fmt: skip
        assert {(v.replica_id, v.log_end_offset) for v in part.current_voters} == {
            (1, 3), (2, 3), (3, 3)
        }  # fmt: skip
        now = leader.node.env.clock.wall_ms()
        for voter in part.current_voters:
            assert now - 5_000 < voter.last_fetch_timestamp <= now
            assert now - 5_000 < voter.last_caught_up_timestamp <= now
            assert voter.replica_directory_id == UUID(int=5000 + voter.replica_id)
        assert [(o.replica_id, o.log_end_offset) for o in part.observers] == [(4, 3)]
        assert {(n.node_id, n.listeners[0].port) for n in answer.nodes} == {
            (i, port) for i, (_, port) in cluster.voters.items()
        }
        other = next(m for m in cluster.up if m is not leader and m.node_id < 4)
        answer = await ask(cluster, other.node_id, ApiKey.DESCRIBE_QUORUM, describe())
        (part,) = answer.topics[0].partitions
        assert part.error_code == ErrorCode.not_leader_or_follower
        answer = await ask(cluster, leader.node_id, ApiKey.DESCRIBE_QUORUM, describe("other"))
        (part,) = answer.topics[0].partitions
        assert part.error_code == ErrorCode.unknown_topic_or_partition

    run(scenario, Cluster(tmp_path, observers=1))


@pytest.mark.parametrize("failure", [DiskFull, SyncFailed])
def test_a_failing_disk_makes_a_node_step_aside(tmp_path, failure):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        await cluster.append(b"a")
        await cluster.caught_up()
        log = leader.node.log.log

        def refuse(*args, **rest):
            raise failure(log.directory, "write", "no space left")

        async def refuse_sync(*args, **rest):
            refuse()

        if failure is DiskFull:
            leader.node.log.log.append_as_leader = refuse
        else:
            leader.node.log.log.flush = refuse_sync
        leader.node.append([b"lost"], leader.node.leader().epoch)
        await eventually(lambda: leader.fatal)
        assert leader.fatal[0].exit_code == EXIT_METADATA_DISK_FAILED
        assert "no space left" in leader.fatal[0].reason
        assert b"lost" not in leader.recorder.state
        await leader.kill()
        await cluster.append(b"b")
        assert all(m.recorder.state[-1] == b"b" for m in [await cluster.leader()])

    run(scenario, Cluster(tmp_path))


def test_a_full_disk_at_a_vote_gives_no_vote(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        await cluster.caught_up()
        follower = next(m for m in cluster.up if m is not leader)

        async def refuse(path, data):
            raise DiskFull(path, "write", "no space left")

        disk = follower.node.env.disk
        follower.node.election_file._disk = type(
            "FullDisk", (), {"replace": staticmethod(refuse), "exists": disk.exists}
        )()
        await leader.kill()
        await eventually(lambda: follower.fatal)
        await follower.kill()

    run(scenario, Cluster(tmp_path))


def test_garbage_hurts_nobody_else(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        host, port = cluster.voters[leader.node_id]
        for data in (
            os.urandom(200),
            b"\x7f\xff\xff\xff",
            b"\x00\x00\x00\x10\x00\x34\x00\x02" + b"\xff" * 12,
            b"\x00\x00\x00\x30\x00\x01\x00\x11" + os.urandom(44),
        ):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(data)
            await writer.drain()
            writer.write_eof()
            await reader.read()
            writer.close()
        await cluster.append(b"still here")
        assert (await cluster.leader()) is leader

    run(scenario, Cluster(tmp_path))


def test_a_stranger_of_another_cluster_is_told_so(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        epoch = leader.node.leader().epoch

        def build(version, module):
            part = module.PartitionData(
                partition_index=0, replica_epoch=epoch + 5, replica_id=2,
                replica_directory_id=None, voter_directory_id=None, last_offset_epoch=0,
                last_offset=0, pre_vote=False,
            )  # fmt: skip
            return module.VoteRequest(
                cluster_id="another",
                voter_id=-1,
                topics=(module.TopicData(topic_name="__cluster_metadata", partitions=(part,)),),
            )

        answer = await ask(cluster, leader.node_id, ApiKey.VOTE, build)
        assert answer.error_code == ErrorCode.inconsistent_cluster_id
        assert leader.node.leader().epoch == epoch

    run(scenario, Cluster(tmp_path))


def test_a_member_of_another_cluster_stops_once_a_majority_says_so(tmp_path):
    async def scenario(cluster):
        for node_id in (1, 2):
            await cluster[node_id].start()
        await cluster.leader()
        cluster.cluster_id = "another"
        for node_id in (3, 4):
            with capture_logs() as logs:
                await cluster[node_id].start()
                await eventually(lambda node_id=node_id: cluster[node_id].fatal)
            [error] = cluster[node_id].fatal
            assert error.exit_code == EXIT_BAD_DIRECTORY
            assert "is of cluster another, but voters 1, 2 are of another one" in error.reason
            refused = [e["peer"] for e in logs if e["event"] == "raft_request_refused"]
            assert len(refused) == len(set(refused)), "one line for each who refuses"

    run(scenario, Cluster(tmp_path, observers=1))


def test_one_other_voter_is_enough_where_there_are_two(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        await cluster.append(b"a")
        leader = await cluster.leader()
        follower = next(m for m in cluster.up if m is not leader)
        await follower.kill()
        cluster.cluster_id = "another"
        await follower.start()
        await eventually(lambda: follower.fatal)
        [error] = follower.fatal
        assert error.exit_code == EXIT_BAD_DIRECTORY
        other = 3 - follower.node_id
        assert f"but voters {other} are of another one" in error.reason
        assert not cluster[other].fatal

    run(scenario, Cluster(tmp_path, voters=2))


def test_a_damaged_quorum_state_stops_who_votes_and_nobody_else(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        await cluster.append(b"a")
        await cluster.caught_up()
        for node_id in (3, 4):
            await cluster[node_id].kill()
            path = Path(cluster[node_id].directory) / "__cluster_metadata-0" / "quorum-state"
            path.write_bytes(b"{no")
        with pytest.raises(FatalError, match="quorum-state: byte 1"):
            await cluster[3].start()
        cluster[3].node = None
        await cluster[4].start()
        await cluster.append(b"b")
        await cluster.caught_up()
        assert cluster[4].recorder.state[-1] == b"b"

    run(scenario, Cluster(tmp_path, observers=1))


def test_one_voter_of_another_cluster_stops_nobody_else(tmp_path):
    async def scenario(cluster):
        cluster.cluster_id = "another"
        await cluster[1].start()
        cluster.cluster_id = "test-cluster"
        for node_id in (2, 3):
            await cluster[node_id].start()
        await cluster.leader()
        await eventually(lambda: cluster[1].fatal)
        assert cluster[2].fatal == cluster[3].fatal == []

    run(scenario, Cluster(tmp_path))


def test_a_voter_whose_connections_flap_deposes_nobody(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        await cluster.append(b"a")
        await cluster.caught_up()
        epoch = leader.node.leader().epoch
        follower = next(m for m in cluster.up if m is not leader)
        for _ in range(15):
            for peer in list(follower.node.peers._peers.values()):
                if peer.connection is not None:
                    peer.connection.close()
            await asyncio.sleep(0.04)
        await cluster.append(b"b")
        await cluster.caught_up()
        assert (await cluster.leader()) is leader
        assert {member.node.leader().epoch for member in cluster.up} == {epoch}

    run(scenario, Cluster(tmp_path))


def test_resign_hands_leadership_over(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        await cluster.append(b"a")
        await cluster.caught_up()
        leader.node.resign()
        other = await cluster.leader(unlike=leader.node_id, timeout_s=10)
        await cluster.append(b"b")
        await cluster.caught_up()
        assert other.recorder.state == [b"a", b"b"]
        assert leader.recorder.leaders[-1].leader_id == other.node_id

    run(scenario, Cluster(tmp_path))


def test_a_long_log_is_applied_in_slices_at_start(tmp_path):
    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()
        values = [b"%06d" % i * 60 for i in range(6_000)]
        for start in range(0, len(values), 200):
            leader.node.append(values[start : start + 200], leader.node.leader().epoch)
        await cluster.caught_up()
        await leader.stop()
        await leader.start()
        await cluster.caught_up()
        assert leader.recorder.state == values

    run(scenario, Cluster(tmp_path, voters=1, segment_bytes=300_000))


def test_a_batch_of_many_records_is_prepared_before_it_is_told(tmp_path):
    """From memory where it was appended, read back elsewhere and after a restart; a shorter one is
    told at once."""

    async def scenario(cluster):
        await cluster.start()
        leader = await cluster.leader()

        async def append(count, mark):
            values = [b"%s%05d" % (mark, number) for number in range(count)]
            base, last = leader.node.append(values, leader.node.leader().epoch)
            await cluster.caught_up()
            assert last - base == count - 1
            return base, values

        _, short = await append(1_024, b"short")
        assert all(member.recorder.prepared == [] for member in cluster.members.values())
        base, long = await append(5_000, b"long")
        _, after = await append(3, b"after")
        for member in cluster.members.values():
            assert member.recorder.prepared == [(base, base)]
            assert member.recorder.state == short + long + after
        follower = next(m for m in cluster.members.values() if m is not leader)
        await follower.stop()
        await follower.start()
        await cluster.caught_up()
        assert follower.recorder.prepared == [(base, base)]
        assert follower.recorder.state == short + long + after

    run(scenario, Cluster(tmp_path))
