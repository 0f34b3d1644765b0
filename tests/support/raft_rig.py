"""Real RaftNodes over loopback with real disks, for tests."""

import asyncio
import contextlib
import socket
from uuid import UUID

from waiting import PATIENCE

from net.handlers import HandlerTable
from net.server import FeatureView, ListenerConfig, serve
from raft.config import RaftConfig
from raft.node import RaftNode
from world.real import real_env


class Recorder:
    """A listener that keeps all it is told. A snapshot is taken once the `gate`, if any, opens."""

    gate = None

    def __init__(self):
        self.values = []  # (offset, value) of every record applied since the last snapshot
        self.control = []
        self.leaders = []
        self.snapshots = []
        self.lost_snapshots = 0
        self.prepared = []  # (base offset, offset of the next record to be told) at the time

    async def prepare(self, batch):
        self.prepared.append((batch.base_offset, len(self.values) and self.values[-1][0] + 1))
        await asyncio.sleep(0)

    def on_batch(self, batch):
        for index, value in enumerate(batch.values):
            self.values.append((batch.base_offset + index, value))
        self.control += [kind for kind, _ in batch.control]

    async def on_snapshot(self, snapshot):
        if self.gate is not None:
            await self.gate.wait()
        values = [(None, value) async for part in snapshot.slices for value in part]
        self.snapshots.append((snapshot.end_offset, snapshot.epoch))
        self.values = values

    def on_snapshot_lost(self):
        self.lost_snapshots += 1

    def on_leader_change(self, leader):
        self.leaders.append(leader)

    @property
    def state(self):
        return [value for _, value in self.values]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


class Member:
    def __init__(self, cluster, node_id):
        self.cluster = cluster
        self.node_id = node_id
        self.node = None
        self.server = None
        self.recorder = None
        self.fatal = []

    @property
    def directory(self):
        return str(self.cluster.path / f"node-{self.node_id}")

    async def start(self):
        config = RaftConfig(
            node_id=self.node_id,
            directory_id=UUID(int=5000 + self.node_id),
            cluster_id=self.cluster.cluster_id,
            voters=self.cluster.voters,
            observer=self.node_id not in self.cluster.voters,
            **self.cluster.settings,
        )
        self.recorder = Recorder()
        env = real_env(seed=self.node_id)
        self.node = RaftNode(env, config, self.directory, self.recorder, on_fatal=self.fatal.append)
        await self.node.start()
        port = self.cluster.voters.get(self.node_id, (None, 0))[1]
        self.server = await serve(
            env,
            ListenerConfig(name="CONTROLLER", host="127.0.0.1", port=port),
            HandlerTable(self.node.apis()),
            features=FeatureView,
        )

    async def stop(self):
        if self.node is not None:
            node, self.node = self.node, None
            await node.stop()
            await self.server.close()

    async def kill(self):
        node, self.node = self.node, None
        self.server._closing = True
        self.server._listener.close()
        for connection in list(self.server._connections.values()):
            connection.abort()
        await node.kill()
        await self.server.close()


class Cluster:
    """Members 1..n vote, those after them observe. `foreign` voters are left to the test."""

    def __init__(
        self, path, voters=3, observers=0, *, foreign=(), cluster_id="test-cluster", **settings
    ):
        self.path = path
        self.cluster_id = cluster_id
        ports = free_ports(voters)
        self.voters = {i + 1: ("127.0.0.1", port) for i, port in enumerate(ports)}
        self.settings = {
            "election_timeout_ms": 500,
            "fetch_timeout_ms": 1500,
            "election_backoff_max_ms": 200,
            "request_timeout_ms": 1500,
            "fetch_max_wait_ms": 200,
            **settings,
        }
        ids = [i for i in range(1, voters + observers + 1) if i not in foreign]
        self.members = {i: Member(self, i) for i in ids}

    async def start(self):
        for member in self.members.values():
            await member.start()

    async def stop(self):
        for member in self.members.values():
            with contextlib.suppress(TimeoutError):
                await member.stop()

    @property
    def up(self):
        return [member for member in self.members.values() if member.node is not None]

    def __getitem__(self, node_id):
        return self.members[node_id]

    async def leader(self, *, unlike=None, timeout_s=20.0):
        """The member that leads and has told its listener so."""
        found = []

        def ready():
            found[:] = [
                member
                for member in self.up
                if member.node.is_leader
                and member.node_id != unlike
                and member.recorder.leaders
                and member.recorder.leaders[-1].leader_id == member.node_id
            ]
            return bool(found)

        await eventually(ready, timeout_s=timeout_s)
        return found[0]

    async def append(self, *values):
        leader = await self.leader()
        base, last = leader.node.append(list(values), leader.node.leader().epoch)
        await eventually(lambda: leader.node.applied_offset > last)
        return base, last

    async def caught_up(self, timeout_s=20.0):
        """Every member has applied all that the leader has committed."""
        leader = await self.leader()
        target = leader.node.end_offset
        await eventually(
            lambda: all(member.node.applied_offset >= target for member in self.up),
            timeout_s=timeout_s,
            why=lambda: [(m.node_id, m.node.status()) for m in self.up],
        )


async def eventually(condition, *, timeout_s=20.0, why=lambda: ""):
    timeout_s *= PATIENCE
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError(f"not within {timeout_s} s: {why()}")
        await asyncio.sleep(0.005)
