"""The simulated network: hosts with listeners, links between them, and what goes wrong there.

Every ordered pair of hosts has a `Link` with a random source of its own: latency and jitter,
bandwidth, cuts, stalls. Connections are made by a handshake over both links; a dead process's
system answers with a reset, a machine without power does not answer at all.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable
from typing import NoReturn

from simulation.loop import NodeLoop
from simulation.stream import Sign, Socket
from simulation.world import World

_BYTES_PER_US = 125  # a gigabit per second
_HICCUP = 0.005
_WINDOWS = (256 * 1024, 256 * 1024, 16 * 1024, 2 * 1024)  # small ones cut messages into pieces
_SYN_RETRY_US = 1_000_000
_SYN_RETRIES = 6
_FIRST_FREE_PORT = 40_000

Factory = Callable[[], asyncio.BaseProtocol]


class Link:
    """One direction between two hosts. `window` is how many bytes a connection may have on its
    way and unread. `blocked_until_us` is when something may get through again, a past time where
    it does now."""

    def __init__(self, world: World, source: str, target: str) -> None:
        self.world = world
        self.chance: random.Random = world.chance(f"link {source} > {target}")
        near = source == target
        self._latency_us = self.chance.randrange(10, 30) if near else self.chance.randrange(50, 400)
        self.window: int = self.chance.choice(_WINDOWS)
        self._near = near
        self._free_us = 0
        self._cut_until_us = 0
        self._stalled_until_us = 0
        self.blocked_until_us = 0
        self._slow_us = 0
        self._slow_until_us = 0

    def arrival_us(self, size: int) -> int:
        """When what is sent now arrives, if nothing holds it up."""
        now_us = self.world.scheduler.now_us
        self._free_us = max(now_us, self._free_us) + size // _BYTES_PER_US
        chance = self.chance.random()
        delay_us = self._latency_us + int(chance * self._latency_us)
        if chance < _HICCUP and not self._near:
            delay_us += self.chance.randrange(1_000, 30_000)
        if self._slow_until_us > now_us:
            delay_us += self.chance.randrange(self._slow_us // 2, self._slow_us + 1)
        return self._free_us + delay_us

    @property
    def cut(self) -> bool:
        """Whether nothing gets through now."""
        return self._cut_until_us > self.world.scheduler.now_us

    @property
    def stalled(self) -> bool:
        """Whether bytes are held back now, though the connections live."""
        return self._stalled_until_us > self.world.scheduler.now_us

    def cut_until(self, until_us: int) -> None:
        self._cut_until_us = until_us
        self.blocked_until_us = max(until_us, self._stalled_until_us)

    def stall_until(self, until_us: int) -> None:
        self._stalled_until_us = until_us
        self.blocked_until_us = max(until_us, self._cut_until_us)

    def slow(self, extra_us: int, until_us: int) -> None:
        self._slow_us, self._slow_until_us = extra_us, until_us


class _BoundSocket:
    """What a server shows of its socket."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address


class Listener(asyncio.AbstractServer):
    """A listening socket of a process."""

    def __init__(self, host: Host, loop: NodeLoop, factory: Factory, port: int) -> None:
        self.host = host
        self.loop = loop
        self.port = port
        self.sockets: tuple[_BoundSocket, ...] = (_BoundSocket((host.name, port)),)
        self._factory = factory

    def accept(self, socket: Socket) -> None:
        """Gives a new connection to the process's protocol; called in the process."""
        if not socket.gone:
            socket.made(self._factory())

    def close(self) -> None:
        self.loop.check_alive()
        if self.host.listeners.get(self.port) is self:
            del self.host.listeners[self.port]
        self.sockets = ()

    async def wait_closed(self) -> None:
        """Nothing to wait for."""

    async def start_serving(self) -> None:
        """It does already."""

    async def serve_forever(self) -> NoReturn:
        await self.loop.create_future()
        raise AssertionError("nobody ends the wait")

    def is_serving(self) -> bool:
        return bool(self.sockets)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = self.loop
        return loop


class Host:
    """A machine's network: its name is its address. `up` is false while it has no power.

    `before_operation` is called before each thing that a process asks of it.
    """

    def __init__(self, network: Network, name: str) -> None:
        self.network = network
        self.name = name
        self.up = True
        self.listeners: dict[int, Listener] = {}
        self.sockets: dict[int, Socket] = {}
        self.before_operation: Callable[[str], None] = _nothing
        self._next_port = _FIRST_FREE_PORT

    def free_port(self) -> int:
        """A port that nobody has had."""
        self._next_port += 1
        return self._next_port

    def listen(self, loop: NodeLoop, factory: Factory, host: str, port: int) -> Listener:
        """OSError where the port is taken or the address isn't ours."""
        self.before_operation("listen")
        if host not in (self.name, "0.0.0.0", "localhost", "127.0.0.1"):
            raise OSError(errno.EADDRNOTAVAIL, f"{host} is not an address of {self.name}")
        port = port or self.free_port()
        if port in self.listeners:
            raise OSError(errno.EADDRINUSE, f"{self.name}:{port} is in use")
        self.listeners[port] = Listener(self, loop, factory, port)
        return self.listeners[port]

    async def connect(self, loop: NodeLoop, factory: Factory, host: str, port: int) -> Socket:
        """OSError where no connection can be had."""
        self.before_operation("connect")
        name = self.name if host in ("localhost", "127.0.0.1") else host
        if name not in self.network.hosts:
            raise OSError(errno.ENOENT, f"no host has the name {host}")
        return await _Dial(self, loop, self.network.hosts[name], port, factory).result

    def process_ended(self, *, power: bool) -> None:
        """All that the process had open is closed, or with `power` forgotten."""
        self.listeners.clear()
        for socket in list(self.sockets.values()):
            socket.process_ended(power=power)


def _nothing(operation: str) -> None:
    """Nobody listens."""


class _Dial:
    """A connection being made: asks, again if no answer comes, until somebody answers."""

    def __init__(
        self, host: Host, loop: NodeLoop, target: Host, port: int, factory: Factory
    ) -> None:
        self.result: asyncio.Future[Socket] = loop.create_future()
        self._host = host
        self._loop = loop
        self._target = target
        self._port = port
        self._factory = factory
        self._own = (host.name, host.free_port())
        self._there = host.network.link(host.name, target.name)
        self._back = host.network.link(target.name, host.name)
        self._far: Socket | None = None  # the other end, once its system made it
        self._near: Socket | None = None
        self._scheduler = host.network.world.scheduler
        self._ask(0)

    @property
    def _over(self) -> bool:
        return self.result.done() or self._loop.dead

    def _ask(self, attempt: int) -> None:
        if self._over or self._near is not None:
            return
        now_us = self._scheduler.now_us
        if attempt == _SYN_RETRIES:
            self._fail(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
            return
        self._scheduler.at(now_us + (_SYN_RETRY_US << attempt), self._ask, attempt + 1)
        if not self._there.cut:
            self._scheduler.at(self._there.arrival_us(0), self._asked)

    def _asked(self) -> None:
        """The question is at the other host."""
        target = self._target
        if self._over or not target.up or self._back.cut:
            return
        listener = target.listeners.get(self._port)
        if self._far is not None and not self._far.gone:
            self._scheduler.at(self._back.arrival_us(0), self._answered)
        elif listener is None:
            self._host.network.world.count("connections refused")
            self._scheduler.at(self._back.arrival_us(0), self._refused)
        else:
            network = self._host.network
            self._far = Socket(
                target, listener.loop, network.number(), (target.name, self._port), self._own
            )
            self._far.on_open = listener.accept
            target.sockets[self._far.number] = self._far
            self._near = None
            near = Socket(
                self._host, self._loop, network.number(), self._own, (target.name, self._port)
            )
            near.joined(self._far, self._there, self._back)
            self._scheduler.at(self._back.arrival_us(0), self._answered)

    def _refused(self) -> None:
        if self._near is None:
            self._fail(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"))

    def _answered(self) -> None:
        """The answer is here: the connection stands on our side."""
        far = self._far
        assert far is not None
        if self._near is not None or not self._host.up:
            return
        near = far.incoming.sender
        if self._over:
            near.out.sign(Sign.RESET)
            near.gone = True
            return
        self._near = near
        self._host.sockets[near.number] = near
        near.out.sign(Sign.OPEN)
        self._loop.call_from_kernel(self._made)

    def _made(self) -> None:
        near = self._near
        assert near is not None
        if near.gone:
            self._set_failed(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        elif self.result.done():
            near.abort()
        else:
            near.made(self._factory())
            self.result.set_result(near)

    def _fail(self, error: Exception) -> None:
        self._loop.call_from_kernel(self._set_failed, error)

    def _set_failed(self, error: Exception) -> None:
        if not self.result.done():
            self.result.set_exception(error)


class Network:
    """All hosts and links. Faults are one way, from `a` to `b`; times in ms since the world began.

    Hosts are told by name, nodes by id too.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.hosts: dict[str, Host] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._numbers = 0

    def add(self, name: str) -> Host:
        """A new host."""
        assert name not in self.hosts, name
        self.hosts[name] = Host(self, name)
        return self.hosts[name]

    def link(self, a: str | int, b: str | int) -> Link:
        """The link from one host to another."""
        key = host_name(a), host_name(b)
        if key not in self._links:
            self._links[key] = Link(self.world, *key)
        return self._links[key]

    def number(self) -> int:
        """A number for a socket."""
        self._numbers += 1
        return self._numbers

    def cut(self, a: str | int, b: str | int, until_ms: int) -> None:
        """Nothing gets through: bytes wait and are sent again, connections can't be made."""
        self._fault("cut", a, b, until_ms)
        self.link(a, b).cut_until(until_ms * 1000)

    def stall(self, a: str | int, b: str | int, until_ms: int) -> None:
        """Bytes of open connections are held back, for however long; new ones can be made."""
        self._fault("stall", a, b, until_ms)
        self.link(a, b).stall_until(until_ms * 1000)

    def slow(self, a: str | int, b: str | int, extra_ms: int, until_ms: int) -> None:
        """Everything takes up to `extra_ms` longer."""
        self._fault("slow", a, b, until_ms)
        self.link(a, b).slow(extra_ms * 1000, until_ms * 1000)

    def lose(self, a: str | int, b: str | int) -> None:
        """Breaks every connection of the two, with some of what is on its way from `a` to `b`."""
        self._fault("lose", a, b, self.world.scheduler.now_ms)
        source, target = host_name(a), host_name(b)
        error = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        for socket in list(self.hosts[source].sockets.values()):
            if socket.incoming.sender.host.name == target:
                self.world.count("connections lost")
                socket.out.tear()
                socket.out.sign(Sign.RESET)
                socket.lost(error)

    def heal(self) -> None:
        """All links are as they should be."""
        for link in self._links.values():
            link.cut_until(0)
            link.stall_until(0)
            link.slow(0, 0)

    def _fault(self, kind: str, a: str | int, b: str | int, until_ms: int) -> None:
        self.world.count(f"links {kind}")
        self.world.tell(
            "network", lambda: f"{kind} {host_name(a)} > {host_name(b)} until {until_ms / 1000} s"
        )


def host_name(of: str | int) -> str:
    """A node's host by its id; a name is one already."""
    return of if isinstance(of, str) else f"node-{of}"
