"""RaftNode with changing voters: real nodes, sockets and disks."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest
from raft_rig import Cluster, Member, Recorder, eventually, free_ports
from structlog.testing import capture_logs

from net.client import Connection
from net.handlers import HandlerTable
from net.server import FeatureView, ListenerConfig, serve
from raft.config import RaftConfig
from raft.metadata_log import make_place
from raft.node import RaftNode
from raft.voters import ReplicaKey
from wire import quorum_state
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from wire.messages import fill, millis
from world.real import real_env

E = ErrorCode
FEATURES = FeatureView({"kraft.version": (0, 1)}, {}, -1)


class Controller(Member):
    """A member that finds the quorum through the others' listeners and may become a voter."""

    def __init__(self, cluster, node_id):
        super().__init__(cluster, node_id)
        self.port = cluster.voters[node_id][1] if node_id in cluster.voters else free_ports(1)[0]
        self.disk = 0

    @property
    def directory(self):
        return f"{super().directory}-{self.disk}"

    @property
    def key(self):
        return ReplicaKey(self.node_id, UUID(int=5000 + 100 * self.disk + self.node_id))

    async def start(self, **more):
        config = RaftConfig(
            node_id=self.node_id,
            directory_id=self.key.directory_id,
            cluster_id=self.cluster.cluster_id,
            voters=self.cluster.static,
            advertised=("127.0.0.1", self.port),
            **{"bootstrap": tuple(self.cluster.voters.values())} | self.cluster.settings | more,
        )
        self.recorder = Recorder()
        env = real_env(seed=self.node_id)
        if not Path(self.directory).exists():  # a new disk, formatted
            await make_place(env.disk, f"{self.directory}/__cluster_metadata-0")
        self.node = RaftNode(env, config, self.directory, self.recorder, on_fatal=self.fatal.append)
        await self.node.start()
        listener = ListenerConfig(name="CONTROLLER", host="127.0.0.1", port=self.port)
        table = HandlerTable(self.node.apis())
        self.server = await serve(env, listener, table, features=lambda: FEATURES)


def scene(path, tell, *, static=True):
    """Three voters of a static quorum, and controller 4, which is none."""

    async def main():
        cluster = Cluster(path)
        cluster.static = cluster.voters if static else {}
        cluster.members = {i: Controller(cluster, i) for i in (1, 2, 3, 4)}
        try:
            await tell(cluster)
        finally:
            await cluster.stop()

    asyncio.run(main())


async def upgraded(cluster):
    """The leader, after kraft.version was raised to 1 everywhere."""
    for node_id in (1, 2, 3):
        await cluster[node_id].start()
    leader = await cluster.leader()
    role = leader.node.core.state.role
    await eventually(lambda: all(voter.max_kraft_version == 1 for voter in role.told_voters))
    await leader.node.upgrade_kraft_version(1, validate_only=True)
    assert leader.node.kraft_version == 0
    await leader.node.upgrade_kraft_version(1, validate_only=False)
    await eventually(lambda: all(member.node.kraft_version == 1 for member in cluster.up))
    return leader


async def ask(cluster, api_key, voter, leader=None):
    """(error, message) of AddRaftVoter or RemoveRaftVoter for a controller."""
    leader = leader or await cluster.leader()
    connection = await Connection.connect(
        real_env(1), "127.0.0.1", leader.port, client_id="test", timeout_ms=2000
    )

    def build(version, module):
        name = "AddRaftVoterRequest" if api_key == ApiKey.ADD_RAFT_VOTER else (
            "RemoveRaftVoterRequest"
        )  # fmt: skip
        listener = getattr(module, "Listener", None)
        return fill(
            getattr(module, name),
            cluster_id=cluster.cluster_id,
            timeout=millis(3000),
            voter_id=voter.node_id,
            voter_directory_id=voter.key.directory_id,
            listeners=()
            if listener is None
            else (listener(name="CONTROLLER", host="127.0.0.1", port=voter.port),),
            ack_when_committed=True,
        )

    try:
        answer = await connection.call(api_key, build, 5000)
    finally:
        connection.close()
    return answer.error_code, answer.error_message


def quorum_state_of(member):
    path = Path(member.directory) / "__cluster_metadata-0/quorum-state"
    return quorum_state.decode(path.read_bytes(), str(path))


def test_static_voters_are_written_into_the_log_and_stay_there(tmp_path):
    async def tell(cluster):
        await upgraded(cluster)
        await cluster.append(b"a")
        await cluster.caught_up()
        for member in cluster.up:
            assert [voter.key for voter in member.node.voters] == [
                cluster[i].key for i in (1, 2, 3)
            ]
        await cluster.stop()
        with capture_logs() as logs:
            await cluster[1].start()
            cluster.static = {}  # whoever has the log needs no configured voters any more
            for node_id in (2, 3):
                await cluster[node_id].start()
        warned = [e["reason"] for e in logs if e["event"] == "static_voters_ignored"]
        assert len(warned) == 1, "who has some left is told what to put in their place"
        assert "set controller.quorum.bootstrap.servers" in warned[0]
        leader = await cluster.leader()
        assert leader.node.voters.ids == (1, 2, 3)
        state = quorum_state_of(leader)
        assert (state.version, state.voted_directory_id) == (1, leader.key.directory_id)

    scene(tmp_path, tell)


def test_voters_come_and_go(tmp_path):
    async def tell(cluster):
        await upgraded(cluster)
        four = cluster[4]
        cluster.static = {}
        await four.start()
        await eventually(lambda: four.node.voters.ids == (1, 2, 3))
        assert await ask(cluster, ApiKey.ADD_RAFT_VOTER, four) == (E.none, None)
        error, message = await ask(cluster, ApiKey.ADD_RAFT_VOTER, four)
        assert (error, "node 4" in message) == (E.duplicate_voter, True)
        leader = await cluster.leader()
        assert await ask(cluster, ApiKey.REMOVE_RAFT_VOTER, leader) == (E.none, None)
        other = await cluster.leader(unlike=leader.node_id)
        assert leader.key not in [voter.key for voter in other.node.voters]
        await cluster.append(b"goes on")
        await cluster.caught_up()
        assert (await ask(cluster, ApiKey.ADD_RAFT_VOTER, four, leader))[0] == (
            E.not_leader_or_follower
        )

    scene(tmp_path, tell)


def test_no_healthy_voter_is_removed_a_moment_after_another_has_died(tmp_path):
    async def tell(cluster):
        leader = await upgraded(cluster)
        dead, healthy = [member for member in cluster.up if member is not leader]
        await cluster.caught_up()
        await dead.kill()
        error, message = await ask(cluster, ApiKey.REMOVE_RAFT_VOTER, healthy, leader)
        assert error == E.request_timed_out
        assert f"node {dead.node_id} with directory id" in message
        assert leader.node.voters.ids == (1, 2, 3)
        assert await ask(cluster, ApiKey.REMOVE_RAFT_VOTER, dead, leader) == (E.none, None)
        assert await ask(cluster, ApiKey.REMOVE_RAFT_VOTER, healthy, leader) == (E.none, None)

    scene(tmp_path, tell)


def test_a_snapshot_has_the_voters_for_who_comes_later(tmp_path):
    async def tell(cluster):
        leader = await upgraded(cluster)
        await cluster.append(*[b"x" * 100] * 5)
        node = leader.node
        end = node.applied_offset
        await node.write_snapshot(end, node.leader().epoch, 1, [leader.recorder.state])
        facts = node.log.snapshots.complete[node.latest_snapshot_id]
        assert (facts.kraft_version, len(facts.voters)) == (1, 3)
        four = cluster[4]
        cluster.static = {}
        await four.start()
        await eventually(lambda: four.recorder.snapshots == [(end, node.leader().epoch)])
        assert four.node.voters == node.voters
        assert four.node.kraft_version == 1
        await four.stop()
        await four.start()
        assert four.node.voters == node.voters

    scene(tmp_path, tell)


def test_a_lost_disk_is_noticed_and_replaced(tmp_path):
    async def tell(cluster):
        leader = await upgraded(cluster)
        lost = next(member for member in cluster.up if member is not leader)
        old = lost.key
        await lost.stop()
        lost.disk += 1
        cluster.static = {}
        await lost.start(auto_join=True)
        await eventually(
            lambda: lost.key in [voter.key for voter in leader.node.voters], timeout_s=30
        )
        assert old not in [voter.key for voter in leader.node.voters]
        await cluster.append(b"goes on")
        await cluster.caught_up()

    scene(tmp_path, tell)


def test_an_empty_disk_that_was_to_begin_a_quorum_moves_nobody(tmp_path):
    """Its configuration still names it as the only voter, so it elects itself; it hides once a
    member of the quorum that there is speaks to it, however often it is started."""

    async def tell(cluster):
        leader = await upgraded(cluster)
        lost = next(member for member in cluster.up if member is not leader)
        await lost.stop()
        epoch = leader.node.leader().epoch
        lost.disk += 1
        cluster.static = {lost.node_id: cluster.voters[lost.node_id]}
        for life in range(1, 6):
            await lost.start(bootstrap=())
            await eventually(lambda: lost.node.core.state.told == (-1, -1))
            assert lost.node.is_leader
            assert lost.node.leader().epoch >= life
            await lost.stop()
        await cluster.append(b"goes on")
        assert leader.node.is_leader
        assert leader.node.leader().epoch == epoch
        # And when the quorum has to elect while it leads, by now in a later epoch.
        await lost.start(bootstrap=())
        await eventually(lambda: lost.node.core.state.told == (-1, -1))
        assert lost.node.leader().epoch > epoch
        members = [member for member in cluster.up if member is not lost]
        await leader.stop()
        await leader.start()
        await eventually(lambda: any(member.node.is_leader for member in members))
        (elected,) = [member for member in members if member.node.is_leader]
        await eventually(lambda: all(m.node.leader() == elected.node.leader() for m in members))
        assert lost.node.is_leader
        assert [member.fatal for member in cluster.up] == [[]] * len(cluster.up)

    scene(tmp_path, tell)


def test_a_voter_that_moved_is_found_again(tmp_path):
    async def tell(cluster):
        leader = await upgraded(cluster)
        moved = next(member for member in cluster.up if member is not leader)
        await moved.stop()
        moved.port = free_ports(1)[0]
        cluster.static = {}
        await moved.start()
        place = ("127.0.0.1", moved.port)
        await eventually(lambda: leader.node.voters.address(moved.node_id, "CONTROLLER") == place)
        await leader.stop()
        await cluster.leader(unlike=leader.node_id)

    scene(tmp_path, tell)


@pytest.mark.parametrize("level", [0, 2])
def test_refusals_of_an_upgrade_are_kafkas(tmp_path, level):
    async def tell(cluster):
        leader = await upgraded(cluster)
        for validate_only in (True, False):
            with pytest.raises(KafkaError) as caught:
                await leader.node.upgrade_kraft_version(level, validate_only=validate_only)
            assert caught.value.code is E.invalid_update_version
        other = next(member for member in cluster.up if member is not leader)
        with pytest.raises(KafkaError) as caught:
            await other.node.upgrade_kraft_version(1, validate_only=False)
        assert caught.value.code is E.not_leader_or_follower

    scene(tmp_path, tell)
