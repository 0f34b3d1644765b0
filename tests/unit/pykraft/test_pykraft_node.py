"""A node in one process and in memory: its start, what it is asked, its stop."""

import asyncio
from types import SimpleNamespace

from pykraft.node import Node
from pykraft.node_config import parse_node_config
from world.memory import memory_env

CONFIG = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:1",
    "log.dirs": "/data",
}


def test_a_linearizable_read_waits_for_a_long_batch_on_its_way_into_the_image():
    async def main():
        node = Node(memory_env(), parse_node_config(CONFIG))

        async def confirm():
            return 5_000

        node.raft = SimpleNamespace(confirm_leadership=confirm, applied_offset=10)
        node.controller = SimpleNamespace(active=True)
        read = asyncio.ensure_future(node.confirm_read())

        async def move_on(offset):
            node.raft.applied_offset = offset
            moved, node.publisher.moved = node.publisher.moved, asyncio.Event()
            moved.set()
            for _ in range(5):
                await asyncio.sleep(0)

        await move_on(10)
        assert not read.done()
        await move_on(4_999)
        assert not read.done()
        await move_on(5_000)
        assert read.result() == 5_000

    asyncio.run(main())
