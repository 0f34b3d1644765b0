"""Linearizable reads as the gRPC door answers them, which itself lies outside the simulation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from simulation.clients.admin import CONFIG, Read
from simulation.clients.links import NoAnswer, NotSent
from simulation.run import Simulation
from wire.uuids import to_text


def active_controllers(simulation: Simulation, controllers: Iterable[int]) -> list[int]:
    """Those that take themselves for it."""
    nodes = {number: simulation.node(number) for number in controllers}
    return [
        number
        for number, node in nodes.items()
        if node is not None and node.controller is not None and node.controller.active
    ]


def not_voting(simulation: Simulation, controllers: Iterable[int]) -> list[int]:
    """Controllers that are missing in the voter set of one that runs."""
    sets = [
        node.raft.core.state.voters
        for node in map(simulation.node, controllers)
        if node is not None and node.raft is not None and node.raft.status()
    ]
    return [number for number in controllers if not all(voters.get(number) for voters in sets)]


def door(simulation: Simulation, controllers: Sequence[int], client: str) -> Read:
    """For one client: an active controller confirms its majority, then its committed image is
    read. NotSent where none is active, NoAnswer where it can't confirm."""
    loop, env = simulation.client_env(client)

    async def read(name: str) -> tuple[str, str | None] | None:
        await asyncio.sleep(env.chance.uniform(0.0002, 0.003))
        active = active_controllers(simulation, controllers)
        if not active:
            raise NotSent("nobody is active")
        machine = simulation.machine(env.chance.choice(active))
        node = machine.node
        assert machine.loop is not None
        assert node is not None
        answer: asyncio.Future[Any] = loop.create_future()

        async def confirmed() -> tuple[str, str | None] | None:
            await node.confirm_read()
            topic = node.image.topic(name)
            if topic is None:
                return None
            return to_text(topic.id), node.image.topic_config(name).get(CONFIG)

        def ask() -> None:
            task = asyncio.get_running_loop().create_task(confirmed(), name="door")
            task.add_done_callback(done)

        def done(task: asyncio.Task[Any]) -> None:
            error = None if task.cancelled() else task.exception()
            result = None if error is not None or task.cancelled() else task.result()
            loop.call_from_kernel(deliver, error, result)

        def deliver(error: BaseException | None, result: Any) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(NoAnswer(str(error)))
            else:
                answer.set_result(result)

        machine.loop.call_from_kernel(ask)
        found: tuple[str, str | None] | None = await answer
        return found

    return read
