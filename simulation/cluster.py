"""A simulated cluster: whole nodes on machines, configured and formatted as a local cluster's."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from metadata.features import new_cluster_levels
from pykraft.node import Node
from pykraft.node_config import NodeConfig, parse_node_config
from pykraft.node_files import NodeSpec, node_properties
from pykraft.storage_format import format_directories
from raft.voters import MAX_KRAFT_VERSION, ReplicaKey, Voter, VoterSet
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


class Quorum(Enum):
    """How a quorum begins; all but the first have voters that may change (kraft.version 1)."""

    STATIC = "voters by configuration"
    INITIAL = "all are initial voters"
    ADDED = "one stands alone, and an operator adds the others"
    JOINING = "one stands alone, and the others join by themselves, whenever they don't vote"


class Cluster:
    """The machines of one cluster, formatted; `start` starts a node on each.

    `properties` are added to every node's; `levels` are those of features beside metadata.version.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        nodes: Sequence[NodeSpec],
        properties: Mapping[str, str],
        on_error: OnError,
        *,
        quorum: Quorum = Quorum.STATIC,
        levels: Mapping[str, int] | None = None,
    ) -> None:
        self.nodes = list(nodes)
        self.quorum = quorum
        self.machines: dict[int, Machine] = {}
        self.cluster_id = ""
        self._world = world
        self._levels = {**new_cluster_levels(), **(levels or {})}
        ids = ChanceIds(world.chance("identities"))
        self.cluster_id = uuids.to_text(ids.uuid())
        controllers = [spec for spec in nodes if spec.controller]
        first = {
            Quorum.STATIC: [],
            Quorum.INITIAL: controllers,
            Quorum.ADDED: controllers[:1],
            Quorum.JOINING: controllers[:1],
        }[quorum]
        voters = VoterSet(_voter(spec, ids) for spec in first)
        for spec in nodes:
            config = _config(spec, nodes, properties, quorum)
            main = partial(run_node, config)
            machine = Machine(world, network, host_name(spec.id), spec.id, main, on_error)
            self.machines[spec.id] = machine
            self._format(machine, voters if spec in first else None)

    def start(self) -> None:
        """Starts every node that doesn't run."""
        for machine in self.machines.values():
            self._world.scheduler.cause = 0
            machine.start()

    def replace_disk(self, node_id: int) -> None:
        """A new, formatted disk for a machine that is down; a voter's, who is none any more."""
        machine = self.machines[node_id]
        assert not machine.running, machine.name
        self._world.tell(machine.name, "gets a new disk")
        machine.disk.wipe()
        self._format(machine, None)

    def _format(self, machine: Machine, voters: VoterSet | None) -> None:
        chance = self._world.chance(f"format {machine.number} {machine.lives}")

        async def run_blocking(*_: object) -> None:
            raise AssertionError("formatting does no blocking work")

        env = Env(
            clock=machine.clock,
            chance=chance,
            ids=ChanceIds(chance),
            disk=machine.disk.mount(),
            run_blocking=run_blocking,
        )
        _finish_at_once(
            format_directories(
                env,
                [DATA],
                node_id=machine.number,
                cluster_id=self.cluster_id,
                levels=self._levels,
                metadata_directory=DATA,
                voters=voters,
            )
        )


def _voter(spec: NodeSpec, ids: ChanceIds) -> Voter:
    endpoints = {"CONTROLLER": (host_name(spec.id), CONTROLLER_PORT)}
    return Voter(ReplicaKey(spec.id, ids.uuid()), endpoints, 0, MAX_KRAFT_VERSION)


def _config(
    spec: NodeSpec, nodes: Sequence[NodeSpec], properties: Mapping[str, str], quorum: Quorum
) -> NodeConfig:
    values = node_properties(spec, nodes, Path(DATA))
    if quorum is not Quorum.STATIC:
        del values["controller.quorum.voters"]
        servers = [node.controller for node in nodes if node.controller]
        values["controller.quorum.bootstrap.servers"] = ",".join(servers)
    if quorum is Quorum.JOINING and spec.controller:
        values["controller.quorum.auto.join.enable"] = "true"
    return parse_node_config({**values, **properties})


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
        if await node.start_unless(stop):
            loop = asyncio.get_running_loop()
            waits = [loop.create_task(stop.wait()), loop.create_task(node.failed())]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
    finally:
        await node.stop()
    if node.failure is not None:
        raise node.failure
