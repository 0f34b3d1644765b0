"""Controllers on a real quorum: three nodes, real disks, the active one goes away."""

import asyncio
import socket
from contextlib import AsyncExitStack
from datetime import timedelta
from uuid import UUID

from controller.config import ControllerConfig
from controller.shell import ControllerShell
from metadata.image import METADATA_VERSION
from metadata.loader import ImageLoader
from metadata.records import (
    BeginTransactionRecord,
    FeatureLevelRecord,
    TopicRecord,
    encode,
)
from net.client import Connection
from net.handlers import HandlerTable
from net.server import FeatureView, ListenerConfig, serve
from raft.config import RaftConfig
from raft.node import RaftNode
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages import request_module
from world.real import real_env

E = ErrorCode


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


class Node:
    """A controller process in small: quorum member, image loader, shell, listener."""

    def __init__(self, path, node_id, voters):
        self.directory = str(path / f"node-{node_id}")
        self.node_id = node_id
        self.voters = voters
        self.loader = ImageLoader()
        self.moved = asyncio.Event()

    async def start(self):
        self.env = real_env(seed=self.node_id)
        config = RaftConfig(
            node_id=self.node_id,
            directory_id=UUID(int=5000 + self.node_id),
            cluster_id="c",
            voters=self.voters,
            election_timeout_ms=300,
            fetch_timeout_ms=700,
            election_backoff_max_ms=200,
            request_timeout_ms=700,
            fetch_max_wait_ms=200,
        )
        self.fatal = []
        self.raft = RaftNode(self.env, config, self.directory, self, on_fatal=self.fatal.append)
        self.shell = ControllerShell(
            self.env,
            self.raft,
            ControllerConfig(node_id=self.node_id, cluster_id="c", session_timeout_ms=60_000),
            bootstrap=[FeatureLevelRecord(name=METADATA_VERSION, feature_level=25)],
        )
        await self.raft.start()
        self.server = await serve(
            self.env,
            ListenerConfig("CONTROLLER", *self.voters[self.node_id]),
            HandlerTable([*self.raft.apis(), *self.shell.apis()]),
            features=FeatureView,
        )
        if hasattr(self.raft, "join"):
            self.raft.join()

    async def stop(self):
        self.shell.stop()
        await self.raft.stop()
        await self.server.close()
        assert not self.fatal

    async def prepare(self, batch):
        raise AssertionError("no batch is long in these tests")

    def on_batch(self, batch):
        self.loader.on_batch(
            batch.base_offset,
            batch.epoch,
            batch.timestamp_ms,
            batch.values,
            batch.control,
            batch.last_offset,
        )
        self.shell.on_image(self.loader.image, in_transaction=self.loader.in_transaction)
        self.shell.on_committed(batch.last_offset + 1)
        self.moved.set()

    async def on_snapshot(self, snapshot):
        raise AssertionError("no snapshot is due in these tests")

    def on_snapshot_lost(self):
        raise AssertionError("no snapshot is damaged in these tests")

    def on_leader_change(self, leader):
        self.shell.on_leader_change(leader.leader_id, leader.epoch)
        self.moved.set()

    async def until(self, condition):
        while not condition():
            self.moved.clear()
            await self.moved.wait()


async def active(nodes):
    """The active controller, once there is one that has its bootstrap records committed."""
    while True:
        for node in nodes:
            if node.shell.active and node.loader.image.features:
                return node
        waits = [asyncio.ensure_future(node.moved.wait()) for node in nodes]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for node, wait in zip(nodes, waits, strict=True):
            node.moved.clear()
            wait.cancel()


async def register(client, broker):
    module = request_module(ApiKey.BROKER_REGISTRATION, 4)
    reply = await client.send(
        module.BrokerRegistrationRequest(
            broker_id=broker,
            cluster_id="c",
            incarnation_id=UUID(int=7000 + broker),
            listeners=(),
            features=(
                module.Feature(
                    name=METADATA_VERSION, min_supported_version=1, max_supported_version=25
                ),
            ),
            rack=None,
            log_dirs=(UUID(int=1000 + broker),),
        ),
        5_000,
    )
    assert reply.error_code is E.none
    module = request_module(ApiKey.BROKER_HEARTBEAT, 0)
    beat = await client.send(
        module.BrokerHeartbeatRequest(
            broker_id=broker,
            broker_epoch=reply.broker_epoch,
            current_metadata_offset=1 << 40,
            want_fence=False,
            want_shut_down=False,
        ),
        5_000,
    )
    assert not beat.is_fenced


async def create(client, name):
    module = request_module(ApiKey.CREATE_TOPICS, 7)
    topic = module.CreatableTopic(
        name=name, num_partitions=3, replication_factor=1, assignments=(), configs=()
    )
    request = module.CreateTopicsRequest(
        topics=(topic,), timeout=timedelta(seconds=5), validate_only=False
    )
    return (await client.send(request, 6_000)).topics[0]


async def connect(node):
    host, port = node.voters[node.node_id]
    return await Connection.connect(node.env, host, port, client_id="t", timeout_ms=5_000)


def test_a_topic_survives_its_controller(tmp_path):
    async def main():
        voters = {i + 1: ("127.0.0.1", port) for i, port in enumerate(free_ports(3))}
        nodes = [Node(tmp_path, node_id, voters) for node_id in voters]
        async with asyncio.timeout(60), AsyncExitStack() as stack:
            for node in nodes:
                await node.start()
                stack.push_async_callback(node.stop)
            first = await active(nodes)
            client = await connect(first)
            await register(client, 1)
            assert (await create(client, "before")).error_code is E.none
            client.close()
            first.raft.resign()
            others = [node for node in nodes if node is not first]
            second = await active(others)
            client = await connect(second)
            assert (await create(client, "before")).error_code is E.topic_already_exists
            assert (await create(client, "after")).error_code is E.none
            client.close()
            for node in nodes:
                await node.until(lambda n=node: n.loader.image.topic("after") is not None)
            assert nodes[0].loader.image.topics == nodes[1].loader.image.topics
            assert nodes[0].loader.image.brokers == nodes[2].loader.image.brokers

    asyncio.run(main())


def test_a_transaction_that_its_controller_left_open_is_aborted_by_the_next(tmp_path):
    """KIP-868. What it held is in no image; the name that it took is free."""

    async def main():
        voters = {i + 1: ("127.0.0.1", port) for i, port in enumerate(free_ports(3))}
        nodes = [Node(tmp_path, node_id, voters) for node_id in voters]
        async with asyncio.timeout(60), AsyncExitStack() as stack:
            for node in nodes:
                await node.start()
                stack.push_async_callback(node.stop)
            first = await active(nodes)
            client = await connect(first)
            await register(client, 1)
            client.close()
            half = [BeginTransactionRecord(name="x"), TopicRecord(name="t", topic_id=UUID(int=77))]
            first.raft.append([encode(record) for record in half], first.raft.leader().epoch)
            for node in nodes:
                await node.until(lambda n=node: n.loader.in_transaction)
                assert node.loader.image.topic("t") is None
            first.raft.resign()
            second = await active([node for node in nodes if node is not first])
            client = await connect(second)
            assert (await create(client, "t")).error_code is E.none
            client.close()
            for node in nodes:
                await node.until(lambda n=node: n.loader.image.topic("t") is not None)
                assert not node.loader.in_transaction
                assert node.loader.image.topic_by_id(UUID(int=77)) is None

    asyncio.run(main())


def test_a_lone_controller_finds_its_cluster_again(tmp_path):
    async def life(story):
        voters = {1: ("127.0.0.1", free_ports(1)[0])}
        node = Node(tmp_path, 1, voters)
        async with asyncio.timeout(30):
            await node.start()
            try:
                await active([node])
                client = await connect(node)
                await story(node, client)
                client.close()
            finally:
                await node.stop()

    async def first(node, client):
        await register(client, 1)
        assert (await create(client, "t")).error_code is E.none
        assert node.shell.core.image.topics == node.loader.image.topics

    async def second(node, client):
        await node.until(lambda: node.loader.image.topic("t") is not None)
        assert node.shell.core.image.topics == node.loader.image.topics
        assert (await create(client, "t")).error_code is E.topic_already_exists
        assert (await create(client, "u")).error_code is E.none

    asyncio.run(life(first))
    asyncio.run(life(second))
