"""Real nodes killed and stopped at random while records and snapshots are written."""

import asyncio
import random
import time

import pytest
from raft_rig import Cluster

from raft.node import NotLeader


class Soak:
    def __init__(self, cluster, seed, seconds):
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.until = time.monotonic() + seconds
        self.acknowledged = []
        self.number = 0
        self.kills = 0
        self.snapshots = 0
        self.watchers = []

    async def clients(self):
        while time.monotonic() < self.until:
            for member in self.cluster.up:
                if member.node.is_leader:
                    self._append(member)
            await asyncio.sleep(self.chance.random() * 0.01)

    def _append(self, member):
        self.number += 1
        values = [b"%d.%d " % (self.number, i) for i in range(self.chance.randint(1, 4))]
        node, epoch = member.node, member.node.leader().epoch
        try:
            _, last = node.append(values, epoch)
        except NotLeader:
            return
        self.watchers.append(asyncio.ensure_future(self._watch(node, epoch, last, values)))

    async def _watch(self, node, epoch, last, values):
        for _ in range(400):
            if node.stopped or node.leader().epoch != epoch:
                return
            if node.is_leader and node.applied_offset > last:
                self.acknowledged += values
                return
            await asyncio.sleep(0.005)

    async def snapshotters(self):
        while time.monotonic() < self.until:
            await asyncio.sleep(self.chance.random() * 0.3)
            up = [m for m in self.cluster.up if m.node.status()]
            if not up:
                continue
            member = self.chance.choice(up)
            node, offset = member.node, member.node.applied_offset
            log = node.core.state.log
            if offset > log.start:
                state = list(member.recorder.state)
                await node.write_snapshot(offset, log.epoch_at(offset), 5, [state])
                self.snapshots += 1

    async def killers(self):
        while time.monotonic() < self.until:
            await asyncio.sleep(self.chance.random() * 0.6)
            up = self.cluster.up
            leaders = [member for member in up if member.node.is_leader]
            member = self.chance.choice(leaders if self.chance.random() < 0.5 and leaders else up)
            self.kills += 1
            await (member.kill() if self.chance.random() < 0.7 else member.stop())
            await asyncio.sleep(self.chance.random() * 0.4)
            await member.start()


@pytest.mark.ci
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_acknowledged_is_lost(tmp_path, seed):
    async def main():
        complaints = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        cluster = Cluster(
            tmp_path, observers=1, segment_bytes=20_000, retention_bytes=1,
            fetch_snapshot_max_bytes=3_000, fetch_max_bytes=5_000,
        )  # fmt: skip
        await cluster.start()
        soak = Soak(cluster, seed, seconds=6)
        await asyncio.gather(soak.clients(), soak.snapshotters(), soak.killers())
        await asyncio.gather(*soak.watchers)
        await cluster.append(b"end")
        await cluster.caught_up()
        states = [member.recorder.state for member in cluster.up]
        assert all(state == states[0] for state in states)
        assert len(set(states[0])) == len(states[0]), "nothing twice"
        held = set(states[0])
        assert not [value for value in soak.acknowledged if value not in held]
        assert soak.kills >= 5
        assert soak.snapshots >= 5
        assert not any(member.fatal for member in cluster.members.values())
        await cluster.stop()
        assert not complaints, complaints[:3]

    asyncio.run(main())
