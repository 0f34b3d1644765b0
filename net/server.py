"""A listener: accepts Kafka connections and serves one table of handlers on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from net.api_versions import NO_FEATURES, ApiVersionsAnswers, FeatureView
from net.connection import ServerConnection
from net.counters import Counters
from net.frames import BufferPool
from net.handlers import HandlerTable
from wire.errors import FatalError
from wire.messages import RequestHeader
from world.env import Env

__all__ = ["Counters", "FeatureView", "ListenerConfig", "Server", "serve"]

_SCRATCH_BYTES = 1024 * 1024
_CLOSE_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """One listener as configured.

    `port` 0 takes a free one. `max_request_bytes` is socket.request.max.bytes, `idle_ms`
    connections.max.idle.ms (0 or less: never), `max_connections` max.connections. `log_requests`
    logs every answered request at debug level, with its latency.
    """

    name: str
    host: str
    port: int
    max_request_bytes: int = 100 * 1024 * 1024
    max_connections: int = 2**31 - 1
    idle_ms: int = 600_000
    backlog: int = 1024
    log_requests: bool = False


class Server:
    """An open listener. `port` is the bound port, `counters` what happened so far."""

    def __init__(
        self,
        env: Env,
        config: ListenerConfig,
        table: HandlerTable,
        features: Callable[[], FeatureView],
        on_fatal: Callable[[FatalError], None] | None,
        log: Any,
    ) -> None:
        self.env = env
        self.config = config
        self.table = table
        self.counters = Counters()
        self.api_versions = ApiVersionsAnswers(table, features)
        self.scratch = bytearray(_SCRATCH_BYTES)
        self.pool = BufferPool()
        self.log = log
        self.port = config.port
        self._on_fatal = on_fatal
        self._connections: dict[int, ServerConnection] = {}
        self._to_flush: list[Callable[[], None]] = []
        self._numbers = 0
        self._listener: asyncio.AbstractServer | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._all_gone = asyncio.Event()
        self._closing = False

    async def open(self) -> None:
        """Binds and listens. Raises OSError where the address can't be had."""
        loop = asyncio.get_running_loop()
        config = self.config
        listener = await loop.create_server(
            self._new_connection, config.host, config.port, backlog=config.backlog
        )
        self._listener = listener
        self.port = listener.sockets[0].getsockname()[1]
        self._plan_sweep()

    async def close(self) -> None:
        """Stops listening and ends all connections; answers written before still leave."""
        self._closing = True
        if self._sweep is not None:
            self._sweep.cancel()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections.values()):
            connection.cancel_tasks()
            connection.close()
        try:
            async with asyncio.timeout(_CLOSE_WAIT_S):
                while self._connections:
                    self._all_gone.clear()
                    await self._all_gone.wait()
        except TimeoutError:
            for connection in list(self._connections.values()):
                connection.abort()

    # What connections call.

    def admit(self, connection: ServerConnection) -> bool:
        """Registers an accepted connection; False when there are too many already."""
        if self._closing or len(self._connections) >= self.config.max_connections:
            self.counters.refused += 1
            self.log.warning(
                "connection_refused",
                peer=str(connection.peer),
                reason=f"max.connections is {self.config.max_connections}",
            )
            return False
        self._connections[connection.number] = connection
        self.counters.accepted += 1
        self.counters.connections = len(self._connections)
        return True

    def flush_soon(self, call: Callable[[], None]) -> None:
        """Has `call` made after what runs now, with those of all other connections that have
        answers to send by then: one entry in the loop's queue serves a whole commit."""
        if not self._to_flush:
            asyncio.get_running_loop().call_soon(self._flush_all)
        self._to_flush.append(call)

    def _flush_all(self) -> None:
        calls, self._to_flush = self._to_flush, []
        for call in calls:
            call()

    def forget(self, connection: ServerConnection) -> None:
        """A connection is gone for good."""
        self._connections.pop(connection.number, None)
        self.counters.connections = len(self._connections)
        if not self._connections:
            self._all_gone.set()

    def log_closed(self, connection: ServerConnection, reason: str, *, malformed: bool) -> None:
        """The one line about a connection that we ended."""
        if malformed:
            self.counters.malformed += 1
        self.log.warning("connection_closed", peer=str(connection.peer), reason=reason)

    def handler_failed(
        self, connection: ServerConnection, header: RequestHeader | None, error: Exception
    ) -> None:
        """A handler raised what no handler may raise: our bug, and only this caller's harm."""
        self.counters.handler_errors += 1
        self.log.error(
            "handler_failed",
            peer=str(connection.peer),
            api_key=None if header is None else header.api_key,
            api_version=None if header is None else header.api_version,
            client_id=None if header is None else header.client_id,
            correlation_id=None if header is None else header.correlation_id,
            exc_info=error,
        )

    def fatal(self, error: FatalError) -> None:
        """Passes on what must stop the node."""
        if self._on_fatal is None:
            self.log.error("fatal", reason=error.reason)
        else:
            self._on_fatal(error)

    # Own affairs.

    def _new_connection(self) -> ServerConnection:
        self._numbers += 1
        return ServerConnection(self, self._numbers)

    def _plan_sweep(self) -> None:
        if self.config.idle_ms <= 0:
            return
        period_s = max(0.05, min(self.config.idle_ms / 4000, 60.0))
        self._sweep = asyncio.get_running_loop().call_later(period_s, self._sweep_idle)

    def _sweep_idle(self) -> None:
        limit_ms = self.env.clock.now_ms() - self.config.idle_ms
        for connection in list(self._connections.values()):
            if connection.active_ms <= limit_ms and connection.quiet:
                # Abort, not close: a peer that takes nothing would keep a closing one open.
                self.counters.idle_closed += 1
                connection.abort()
        self._plan_sweep()


async def serve(
    env: Env,
    listener: ListenerConfig,
    table: HandlerTable,
    features: Callable[[], FeatureView] = lambda: NO_FEATURES,
    *,
    on_fatal: Callable[[FatalError], None] | None = None,
    log: Any = None,
) -> Server:
    """Opens a listener and returns it, listening.

    `features` is asked at each ApiVersions request; `on_fatal` gets a FatalError that a handler
    raised. Raises OSError where the address can't be bound.
    """
    if log is None:
        log = structlog.get_logger()
    server = Server(env, listener, table, features, on_fatal, log.bind(listener=listener.name))
    await server.open()
    return server
