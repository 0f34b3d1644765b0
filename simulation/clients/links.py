"""What all clients share: their machine, connections to nodes, and the cluster as they know it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from net.client import Channel, Connection
from net.errors import ConnectFailed, NetworkError, UnsupportedVersion
from simulation.history import History
from wire.apis import ApiKey
from wire.messages import fill
from world.env import Env

Build = Callable[[int, ModuleType], Any]
Address = tuple[str, int]


class NotSent(Exception):
    """Nothing of the request left: for sure it has no effect."""


class NoAnswer(Exception):
    """The request may have arrived, may arrive yet, or never."""


class Links:
    """One client's connections. `nodes` are the addresses by node id.

    `number` counts connections: what was sent over one arrives in its order.
    """

    def __init__(self, env: Env, name: str, nodes: Mapping[int, Address]) -> None:
        self.env = env
        self.name = name
        self.nodes = dict(nodes)
        self._channels: dict[int, Channel] = {}
        self._connections: list[Connection] = []

    def _channel(self, node_id: int) -> Channel:
        found = self._channels.get(node_id)
        if found is None:
            host, port = self.nodes[node_id]
            found = self._channels[node_id] = Channel(
                self.env,
                host,
                port,
                client_id=self.name,
                connect_timeout_ms=1_500,
                backoff_ms=50,
                backoff_max_ms=500,
            )
        return found

    async def connection(self, node_id: int, timeout_ms: int) -> Connection:
        """An open connection. Raises NotSent."""
        try:
            found = await self._channel(node_id).connection(timeout_ms)
        except ConnectFailed as error:
            raise NotSent(str(error)) from error
        if found not in self._connections:
            self._connections.append(found)
        return found

    def number(self, connection: Connection) -> int:
        """The number of a connection that `connection` gave."""
        return self._connections.index(connection)

    async def call(
        self,
        node_id: int,
        api_key: int,
        build: Build,
        timeout_ms: int,
        *,
        max_version: int | None = None,
    ) -> Any:
        """One attempt at one node. Raises NotSent or NoAnswer."""
        connection = await self.connection(node_id, timeout_ms)
        try:
            return await connection.call(api_key, build, timeout_ms, max_version=max_version)
        except UnsupportedVersion as error:
            raise NotSent(str(error)) from error
        except NetworkError as error:
            raise NoAnswer(str(error)) from error

    def close(self) -> None:
        """Ends all connections."""
        for channel in self._channels.values():
            channel.close()


class Client:
    """The base of all clients: a name, a random source, the common history."""

    def __init__(self, env: Env, name: str, nodes: Mapping[int, Address], history: History) -> None:
        self.env = env
        self.name = name
        self.history = history
        self.links = Links(env, name, nodes)
        self.chance: random.Random = env.chance
        self.stopping = False
        # How many usual pauses it rests between calls.
        self.pace = 1

    @property
    def now_ms(self) -> int:
        return self.env.clock.now_ms()

    async def rest(self, pause_s: float, spread: float, *, most: int = 10) -> None:
        """What comes between calls: `pace` pauses, but `most` of them, each `pause_s` long, give or
        take that part of it."""
        pauses = 0
        while pauses < min(self.pace, most):
            await asyncio.sleep(pause_s * self.chance.uniform(1 - spread, 1 + spread))
            pauses += 1

    def close(self) -> None:
        """Makes no more calls."""
        self.stopping = True
        self.links.close()


async def find_active(client: Client, controllers: Sequence[int]) -> int | None:
    """The active controller as one controller, taken by chance, knows it; None if it doesn't."""
    asked = client.chance.choice(controllers)

    def build(version: int, module: ModuleType) -> Any:
        return fill(
            module.DescribeClusterRequest,
            include_cluster_authorized_operations=False,
            endpoint_type=2,
            include_fenced_brokers=False,
        )

    try:
        answer = await client.links.call(asked, ApiKey.DESCRIBE_CLUSTER, build, 1_000)
    except (NotSent, NoAnswer):
        return None
    found: int = answer.controller_id
    return found if found in controllers else None


class Leaders:
    """Who leads which partition, as some broker said. `ask` refreshes it.

    `epochs` are the newest leader epochs heard of: who says an older one is not believed (KIP-320).
    """

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._topic = topic
        self.leader: dict[int, int] = {}
        self.epochs: dict[int, int] = {}

    def heard_of(self, index: int, epoch: int) -> None:
        """Of a leader epoch, by other means than by asking for the leader."""
        if epoch > self.epochs.get(index, -1):
            self.epochs[index] = epoch
            self.leader.pop(index, None)

    async def ask(self) -> None:
        """Asks one broker by chance; NotSent or NoAnswer where it doesn't answer."""
        client = self._client
        node_id = client.chance.choice(sorted(client.links.nodes))

        def build(version: int, module: ModuleType) -> Any:
            topic = fill(module.MetadataRequestTopic, name=self._topic, topic_id=None)
            return fill(
                module.MetadataRequest,
                topics=(topic,),
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )

        answer = await client.links.call(node_id, ApiKey.METADATA, build, 2_000, max_version=9)
        for topic in answer.topics:
            for partition in topic.partitions:
                index, epoch = partition.partition_index, partition.leader_epoch
                if partition.leader_id >= 0 and epoch >= self.epochs.get(index, -1):
                    self.leader[index], self.epochs[index] = partition.leader_id, epoch
