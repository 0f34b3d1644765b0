"""A simulated cluster: whole nodes on machines, configured and formatted as a local cluster's."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from metadata.features import DEFAULT_METADATA_VERSION
from metadata.image import METADATA_VERSION
from pykraft.node import Node
from pykraft.node_config import NodeConfig, parse_node_config
from pykraft.node_files import NodeSpec, node_properties
from pykraft.storage_format import format_directories
from simulation.machine import Machine, OnError
from simulation.network import Network, host_name
from simulation.world import World
from wire import uuids
from world.env import ChanceIds, Env

FIRST_CONTROLLER_ID = 101  # brokers are 1, 2, 3, …; with no controllers, brokers have both roles
BROKER_PORT = 9092
CONTROLLER_PORT = 9093
DATA = "/data"


def specs(controllers: int, brokers: int) -> list[NodeSpec]:
    """Who the nodes are and where they listen, controllers first."""
    made = [_spec(FIRST_CONTROLLER_ID + index, ("controller",)) for index in range(controllers)]
    roles = ("broker",) if controllers else ("broker", "controller")
    return made + [_spec(1 + index, roles) for index in range(brokers)]


def _spec(node_id: int, roles: tuple[str, ...]) -> NodeSpec:
    host = host_name(node_id)
    return NodeSpec(
        node_id,
        roles,
        f"{host}:{BROKER_PORT}" if "broker" in roles else None,
        f"{host}:{CONTROLLER_PORT}" if "controller" in roles else None,
        None,  # the doors stay outside
        "127.0.0.1:9094",
    )


class Cluster:
    """The machines of one cluster, formatted; `start` starts a node on each.

    `properties` are added to every node's.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        nodes: Sequence[NodeSpec],
        properties: Mapping[str, str],
        on_error: OnError,
    ) -> None:
        self.nodes = list(nodes)
        self.machines: dict[int, Machine] = {}
        chance = world.chance("identities")
        cluster_id = uuids.to_text(ChanceIds(chance).uuid())
        for spec in nodes:
            config = _config(spec, nodes, properties)
            main = partial(run_node, config)
            machine = Machine(world, network, host_name(spec.id), spec.id, main, on_error)
            self.machines[spec.id] = machine
            _format(machine, spec.id, cluster_id, world)

    def start(self) -> None:
        """Starts every node that doesn't run."""
        for machine in self.machines.values():
            machine.start()


def _config(spec: NodeSpec, nodes: Sequence[NodeSpec], properties: Mapping[str, str]) -> NodeConfig:
    values = node_properties(spec, nodes, Path(DATA))
    return parse_node_config({**values, **properties})


def _format(machine: Machine, node_id: int, cluster_id: str, world: World) -> None:
    chance = world.chance(f"format {node_id}")

    async def run_blocking(*_: object) -> None:
        raise AssertionError("formatting does no blocking work")

    env = Env(
        clock=machine.clock,
        chance=chance,
        ids=ChanceIds(chance),
        disk=machine.disk.mount(),
        run_blocking=run_blocking,
    )

    async def format_it() -> None:
        await format_directories(
            env,
            [DATA],
            node_id=node_id,
            cluster_id=cluster_id,
            levels={METADATA_VERSION: DEFAULT_METADATA_VERSION},
        )
        await env.disk.sync_dir("/")

    _finish_at_once(format_it())


def _finish_at_once(work: Coroutine[Any, Any, None]) -> None:
    """Runs what never really waits: before a process uses the disk, syncs take no time."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")


async def run_node(config: NodeConfig, machine: Machine, env: Env) -> None:
    """A node's process, as pykraft.server runs it: until told to stop, or until it can't go on.

    Raises the FatalError of a node that failed, and what kept it from starting.
    """
    stop = asyncio.Event()
    machine.on_stop = stop.set
    node = machine.node = Node(env, config)
    try:
        await node.start()
        loop = asyncio.get_running_loop()
        waits = [loop.create_task(stop.wait()), loop.create_task(node.failed())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    finally:
        await node.stop()
    if node.failure is not None:
        raise node.failure
