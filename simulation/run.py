"""One run of a whole cluster in virtual time: a function of its seed."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from asyncio import events
from collections.abc import Callable, Mapping, MutableMapping
from types import TracebackType
from typing import Any, NoReturn

import structlog

from pykraft.node import Node
from simulation.cluster import Cluster, Quorum, specs
from simulation.loop import NodeLoop
from simulation.machine import Machine
from simulation.network import Network
from simulation.world import World
from world.env import Env

EVENTS = (
    "elections",
    "truncations of the metadata log",
    "truncations of partition logs",
    "snapshots fetched",
    "ISR changes",
    "unclean shutdowns",
    "membership changes",
    "cleanings of partition logs",
    "generations of groups",
)
"""Of what `Simulation.coverage` and a trial count, what a run is there to bring about."""

_FIRST_CLIENT = 1_000


class UnexpectedError(Exception):
    """A node's code failed in a way that no node's code may; `machine` says whose."""

    def __init__(self, machine: str, message: str, error: BaseException | None) -> None:
        super().__init__(f"{machine}: {message}: {error!r}")
        self.machine = machine


class Simulation:
    """A cluster in a world of its own; to be closed, or used in `with`.

    Until it is closed the garbage collector is off and log lines go to the story. `on_step` is
    called with the machine after every callback that ran on it, `on_log` with each log line of
    level warning or above (info too while telling): machine's name, level, event, fields. `errors`
    holds what a node's code may never do: an exception that nobody handles or that nobody looked
    at. `coverage` counts faults and events; `network` and `machine` do harm.
    """

    def __init__(
        self,
        seed: int,
        *,
        controllers: int = 3,
        brokers: int = 3,
        properties: Mapping[str, str] | None = None,
        quorum: Quorum = Quorum.STATIC,
        levels: Mapping[str, int] | None = None,
        telling: bool = False,
        dump: list[str] | None = None,
    ) -> None:
        self.seed = seed
        self.world = World(seed, telling=telling, dump=dump)
        self.network = Network(self.world)
        self.errors: list[UnexpectedError] = []
        self.on_log: list[Callable[[str, str, str, Mapping[str, Any]], None]] = []
        self._telling = telling
        self._clients: dict[str, Machine] = {}
        self._collecting = gc.isenabled()
        self._closed = False
        gc.disable()
        self._logs = structlog.get_config() if structlog.is_configured() else None
        structlog.configure(
            processors=[self._log],
            wrapper_class=structlog.make_filtering_bound_logger(20 if telling else 30),
            cache_logger_on_first_use=False,
        )
        nodes = specs(controllers, brokers)
        self.cluster = Cluster(
            self.world,
            self.network,
            nodes,
            properties or {},
            self._unexpected,
            quorum=quorum,
            levels=levels,
        )
        self.cluster.start()

    # -- what is going on --------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """Milliseconds since the world began."""
        return self.world.scheduler.now_ms

    @property
    def steps(self) -> int:
        """Callbacks made in nodes and clients so far."""
        return self.world.scheduler.steps

    @property
    def trace(self) -> str:
        """A hash over all that happened; the same for the same seed, anywhere."""
        return self.world.trace.digest()

    @property
    def story(self) -> list[str]:
        """What happened in words, a line an event; empty unless `telling`."""
        return self.world.story or []

    @property
    def coverage(self) -> dict[str, int]:
        return self.world.coverage

    @property
    def on_step(self) -> list[Callable[[Machine], None]]:
        return self.world.scheduler.on_step

    def machine(self, node_id: int) -> Machine:
        """The machine of a node."""
        return self.cluster.machines[node_id]

    def node(self, node_id: int) -> Node | None:
        """The node that runs now, None where none does."""
        return self.cluster.machines[node_id].node

    @property
    def machines(self) -> list[Machine]:
        """All nodes' machines, controllers first."""
        return list(self.cluster.machines.values())

    @property
    def clients(self) -> list[str]:
        """The names of all clients' machines so far."""
        return list(self._clients)

    # -- making it go on ---------------------------------------------------------------------

    def at(self, ms: int, action: Callable[[], object]) -> None:
        """Has the world do something at a time, in ms since it began; it follows from nothing."""
        self.world.scheduler.at(ms * 1000, action).cause = 0

    def run_until(self, ms: int, *, max_steps: int | None = None) -> bool:
        """Goes on until a time; False where `max_steps` (of the whole run) came first.

        Raises the first of `errors` as soon as there is one.
        """
        return self.world.scheduler.run_until(ms * 1000, max_steps=max_steps)

    def tell(self, who: str, what: str) -> None:
        """Adds a line to the story."""
        self.world.tell(who, what)

    def client_env(self, name: str) -> tuple[NodeLoop, Env]:
        """A client's own machine, without a disk worth the name: its running loop and its world.

        Tasks are given to it with `loop.create_task`; asked again, the name gives the same.
        """
        machine = self._clients.get(name)
        if machine is None:
            number = _FIRST_CLIENT + len(self._clients)
            # All clients' clocks are the world's: what they saw when can be compared.
            machine = self._clients[name] = Machine(
                self.world,
                self.network,
                name,
                number,
                _wait,
                self._unexpected,
                clock_start_ms=0,
            )
            machine.start()
        assert machine.loop is not None
        assert machine.env is not None
        return machine.loop, machine.env

    def close(self) -> None:
        """Ends the world. Nothing of it runs any more, whatever is collected of it when.

        Who runs many calls `gc.collect` when nothing holds on to the last one any more.
        """
        if self._closed:
            return
        self._closed = True
        hook = sys.unraisablehook
        sys.unraisablehook = _ignore
        try:
            with warnings.catch_warnings():
                # Coroutines that never came to run: their world ended first.
                warnings.simplefilter("ignore", RuntimeWarning)
                for machine in (*self.machines, *self._clients.values()):
                    machine.let_go()
                self.network.hosts.clear()
                self.world.scheduler.clear()
        finally:
            sys.unraisablehook = hook
            if self._collecting:
                gc.enable()
            structlog.reset_defaults()
            if self._logs is not None:
                structlog.configure(**self._logs)

    def __enter__(self) -> Simulation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # -- inside ------------------------------------------------------------------------------

    def _unexpected(self, machine: Machine, message: str, error: BaseException | None) -> None:
        found = UnexpectedError(machine.name, message, error)
        self.world.tell(machine.name, f"fails: {found}")
        self.errors.append(found)
        if self.world.scheduler.failure is None:
            self.world.scheduler.failure = found

    def _log(self, logger: Any, level: str, fields: MutableMapping[str, Any]) -> NoReturn:
        """structlog's only processor here."""
        loop = events._get_running_loop()
        name = loop.name if isinstance(loop, NodeLoop) else "world"
        event = str(fields.pop("event", ""))
        self.world.tell(name, lambda: _line(event, fields))
        for call in self.on_log:
            call(name, level, event, fields)
        if fields.get("exc_info") and isinstance(loop, NodeLoop):
            error = fields["exc_info"]
            cause = error if isinstance(error, BaseException) else sys.exc_info()[1]
            self._unexpected(loop.owner, f"logs {event}", cause)
        raise structlog.DropEvent


def _line(event: str, fields: Mapping[str, Any]) -> str:
    shown = (f"{name}={value}" for name, value in fields.items())
    return " ".join([event.replace("_", " "), *shown])


def _ignore(problem: object) -> None:
    """What a dead world's code raises while it is taken apart concerns nobody."""


async def _wait(machine: Machine, env: Env) -> None:
    """A client's process does nothing by itself."""
    await asyncio.get_running_loop().create_future()
