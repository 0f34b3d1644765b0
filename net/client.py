"""Connections to other nodes: one TCP connection, and a lasting channel made of many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from struct import Struct
from types import ModuleType
from typing import Any, cast

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from net.errors import (
    ConnectFailed,
    ConnectionLost,
    NetworkError,
    RequestTimedOut,
    UnsupportedVersion,
)
from net.frames import FrameReader
from net.handlers import API_VERSIONS_KEY, API_VERSIONS_MAX
from wire.errors import DecodeError, ErrorCode
from wire.messages import (
    RequestHeader,
    decode_response,
    decode_response_header,
    encode_request,
    fill,
    request_class,
    request_header,
    request_module,
)
from world.env import Env

__all__ = ["Channel", "Connection"]

Build = Callable[[int, ModuleType], Any]
OnClose = Callable[[Exception | None], None]

_SCRATCH_BYTES = 64 * 1024
_MAX_RESPONSE_BYTES = 512 * 1024 * 1024
_SILENCE_MS = 1500
_SIZE = Struct(">i")


@cache
def _known_versions(api_key: int) -> tuple[int, ...]:
    """The request versions that our message classes cover, ascending."""
    try:
        versions = schema_name_map[api_key_map[api_key]]
    except KeyError:
        return ()
    return tuple(sorted(v for v, kinds in versions.items() if EntityType.request in kinds))


def _fail(future: asyncio.Future[memoryview], error: Exception) -> None:
    future.set_exception(error)
    # Looked at even if nobody waits any more, or asyncio reports it as never retrieved.
    future.exception()


def _at(peer: str, reason: object) -> str:
    """The reason with the peer before it, once: some name it already."""
    text = str(reason)
    return text if text.startswith(f"{peer}: ") else f"{peer}: {text}"


class _Pending:
    """One request on its way. `future` is finished early when its time ran out; `bare` says that
    it is to get the answer without its header."""

    __slots__ = ("api_key", "bare", "future", "sent_ms", "timer", "version")

    def __init__(
        self,
        api_key: int,
        version: int,
        future: asyncio.Future[memoryview],
        sent_ms: int,
        bare: bool,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.future = future
        self.bare = bare
        self.sent_ms = sent_ms
        self.timer: asyncio.TimerHandle | None = None


class Connection(asyncio.BufferedProtocol):
    """One connection to a Kafka node, after its ApiVersions.

    Requests may overlap; answers are told apart by correlation id. When the connection ends, all
    pending requests fail with ConnectionLost and `on_close` is called, in the same instant. A
    request that times out fails alone, unless nothing at all came from the peer for 1.5 s of its
    waiting: then the peer counts as gone and the connection ends.
    """

    def __init__(self, env: Env, peer: str, client_id: str, on_close: OnClose | None) -> None:
        self.closed = False
        self.peer = peer
        self._env = env
        self._client_id = client_id
        self._on_close = on_close
        self._reader: FrameReader  # once connected: many attempts get no further
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, _Pending] = {}
        self._next_id = 0
        self._heard_ms = env.clock.now_ms()
        self._ranges: dict[int, tuple[int, int]] = {}
        # By API and limit: what `version` found among the ranges.
        self._versions: dict[tuple[int, int | None], int] = {}
        # Feature -> (lowest, highest) level that the peer supports.
        self.features: dict[str, tuple[int, int]] = {}

    @classmethod
    async def connect(
        cls,
        env: Env,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_ms: int,
        on_close: OnClose | None = None,
    ) -> Connection:
        """Connects and asks for the peer's versions within `timeout_ms`.

        Raises ConnectFailed for whatever went wrong; `on_close` is called only for connections
        that were returned from here.
        """
        peer = f"{host}:{port}"
        connection = cls(env, peer, client_id, None)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await loop.create_connection(lambda: connection, host, port)
                await connection._negotiate(timeout_ms)
        except TimeoutError as error:
            what = "no connection" if connection._transport is None else "no answer to ApiVersions"
            connection._end(None)
            raise ConnectFailed(f"{peer}: {what} within {timeout_ms} ms") from error
        except (OSError, NetworkError, ValueError, OverflowError) as error:
            # The last two: bytes that are no answer, a name or a port that can't be one.
            connection._end(None)
            raise ConnectFailed(_at(peer, error)) from error
        except asyncio.CancelledError:
            connection._end(None)
            raise
        if connection.closed:
            raise ConnectFailed(f"{peer}: the peer closed the connection")
        connection._on_close = on_close
        return connection

    def version(self, api_key: int, max_version: int | None = None) -> int:
        """The highest version of an API that both sides speak, at most `max_version`.

        Raises UnsupportedVersion.
        """
        chosen = self._versions.get((api_key, max_version))
        if chosen is not None:
            return chosen
        low, offered_high = self._ranges.get(api_key, (0, -1))
        high = offered_high if max_version is None else min(offered_high, max_version)
        known = _known_versions(api_key)
        for candidate in reversed(known):
            if low <= candidate <= high:
                self._versions[api_key, max_version] = candidate
                return candidate
        limit = "" if max_version is None else f", at most {max_version}"
        wanted = f"{known[0]}-{known[-1]}{limit}" if known else "none"
        offered = f"{low}-{offered_high}" if api_key in self._ranges else "none"
        raise UnsupportedVersion(api_key, wanted, offered)

    def offers(self, api_key: int) -> tuple[int, int] | None:
        """The peer's range of versions for an API, None if it doesn't serve it."""
        return self._ranges.get(api_key)

    async def send(self, entity: Any, timeout_ms: int) -> Any:
        """Sends a request entity of a version that the caller chose; returns the response entity.

        Raises ConnectionLost or RequestTimedOut.
        """
        api_key, version = int(entity.__api_key__), int(entity.__version__)
        frame = encode_request(self._header(api_key, version), entity)
        answer = await self._submit(api_key, version, [frame], timeout_ms)
        return self._decode(api_key, version, answer)

    async def call(
        self, api_key: int, build: Build, timeout_ms: int, *, max_version: int | None = None
    ) -> Any:
        """Sends what `build(version, message module)` makes for the best common version.

        Returns the response entity. Raises UnsupportedVersion, ConnectionLost, RequestTimedOut.
        """
        version = self.version(api_key, max_version)
        return await self.send(build(version, request_module(api_key, version)), timeout_ms)

    def send_raw(
        self,
        api_key: int,
        version: int,
        body: bytes | list[bytes],
        timeout_ms: int | None = None,
    ) -> asyncio.Future[memoryview]:
        """Sends a body encoded by hand; the future gives the response's body, its own memory.

        It fails with ConnectionLost, or with RequestTimedOut where a time was given.
        """
        pieces = body if isinstance(body, list) else [body]
        head = request_header(self._header(api_key, version))
        size = len(head) + sum(len(piece) for piece in pieces)
        return self._submit(
            api_key, version, [_SIZE.pack(size), head, *pieces], timeout_ms, bare=True
        )

    @property
    def silent_ms(self) -> int:
        """For how long nothing has come from the peer though it was asked; 0 if it wasn't."""
        # Answers come in the order of the requests: the first pending one is the oldest.
        oldest = next(iter(self._pending.values()), None)
        if oldest is None:
            return 0
        return self._env.clock.now_ms() - max(oldest.sent_ms, self._heard_ms)

    def close(self) -> None:
        """Ends the connection: pending requests fail, `on_close` is called with None."""
        self._end(None)

    # The event loop's calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._reader = FrameReader(bytearray(_SCRATCH_BYTES), _MAX_RESPONSE_BYTES)
        if self.closed:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or ConnectionLost(f"{self.peer}: the peer closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, count: int) -> None:
        if self.closed:
            return
        self._heard_ms = self._env.clock.now_ms()
        self._reader.received(count)
        try:
            while (frame := self._reader.next_owned()) is not None:
                self._answered(frame)
            self._reader.keep_rest()
        except DecodeError as error:
            self._end(error)

    def eof_received(self) -> bool:
        self._end(ConnectionLost(f"{self.peer}: the peer closed the connection"))
        return False

    # Inside.

    def _header(self, api_key: int, version: int) -> RequestHeader:
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        return RequestHeader(api_key, version, self._next_id, self._client_id)

    def _submit(
        self,
        api_key: int,
        version: int,
        frame: list[bytes],
        timeout_ms: int | None,
        *,
        bare: bool = False,
    ) -> asyncio.Future[memoryview]:
        """Writes a frame whose header was just made; the future gives the whole answer frame,
        or with `bare` what follows its header."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[memoryview] = loop.create_future()
        if self.closed or self._transport is None:
            _fail(future, ConnectionLost(f"{self.peer}: the connection is closed"))
            return future
        pending = _Pending(api_key, version, future, self._env.clock.now_ms(), bare)
        if timeout_ms is not None:
            pending.timer = loop.call_later(timeout_ms / 1000, self._timed_out, pending, timeout_ms)
        self._pending[self._next_id] = pending
        self._transport.writelines(frame)
        return future

    def _answered(self, frame: memoryview) -> None:
        if len(frame) < _SIZE.size:
            raise DecodeError(f"a response of {len(frame)} bytes")
        number: int = _SIZE.unpack_from(frame)[0]
        pending = self._pending.pop(number, None)
        if pending is None:
            raise DecodeError(f"a response with correlation id {number}, which nobody waits for")
        if pending.timer is not None:
            pending.timer.cancel()
        if pending.future.done():
            return
        if not pending.bare:
            pending.future.set_result(frame)
            return
        try:
            _, offset = decode_response_header(pending.api_key, pending.version, frame)
        except DecodeError as bad:
            _fail(pending.future, ConnectionLost(f"{self.peer}: malformed response: {bad}"))
            raise
        pending.future.set_result(frame[offset:])

    def _timed_out(self, pending: _Pending, timeout_ms: int) -> None:
        # The entry stays: its answer may still come and then has to be recognised.
        if not pending.future.done():
            _fail(
                pending.future,
                RequestTimedOut(
                    f"{self.peer}: no answer to API key {pending.api_key} within {timeout_ms} ms"
                ),
            )
        if self.silent_ms >= _SILENCE_MS:
            self._end(ConnectionLost(f"{self.peer}: silent for over {_SILENCE_MS} ms"))

    def _decode(self, api_key: int, version: int, answer: memoryview) -> Any:
        try:
            return decode_response(api_key, version, answer)[1]
        except DecodeError as error:
            self._end(error)
            raise ConnectionLost(f"{self.peer}: malformed response: {error}") from error

    def _end(self, error: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        if self._transport is not None:
            self._reader.release()
            self._transport.abort()
        pending, self._pending = self._pending, {}
        for entry in pending.values():
            if entry.timer is not None:
                entry.timer.cancel()
            if not entry.future.done():
                reason = error or "closed by us"
                _fail(entry.future, ConnectionLost(_at(self.peer, reason)))
        if self._on_close is not None:
            self._on_close(error)

    async def _negotiate(self, timeout_ms: int) -> None:
        """ApiVersions in our newest version; a peer that is older says which one it has."""
        version = API_VERSIONS_MAX
        for _ in range(2):
            answer = await self._ask_versions(version, timeout_ms)
            if int.from_bytes(answer[4:6], "big") != ErrorCode.unsupported_version:
                entity = self._decode(API_VERSIONS_KEY, version, answer)
                if entity.error_code != ErrorCode.none:
                    raise ConnectFailed(f"ApiVersions was answered {entity.error_code.name}")
                self._ranges = {k.api_key: (k.min_version, k.max_version) for k in entity.api_keys}
                supported = getattr(entity, "supported_features", ())
                self.features = {f.name: (f.min_version, f.max_version) for f in supported}
                return
            entity = self._decode(API_VERSIONS_KEY, 0, answer)
            offered = [k.max_version for k in entity.api_keys if k.api_key == API_VERSIONS_KEY]
            version = min(offered[0] if offered else 0, API_VERSIONS_MAX - 1)
        raise ConnectFailed("the peer accepts no version of ApiVersions")

    async def _ask_versions(self, version: int, timeout_ms: int) -> memoryview:
        entity = fill(
            request_class(API_VERSIONS_KEY, version),
            client_software_name="pykraft",
            client_software_version="1",
        )
        frame = encode_request(self._header(API_VERSIONS_KEY, version), entity)
        return await self._submit(API_VERSIONS_KEY, version, [frame], timeout_ms)


class Channel:
    """A lasting link to one address, which may change; it connects when a call needs it.

    A failed attempt makes the next one wait, twice as long each time up to `backoff_max_ms`, and
    up to a fifth more or less at random. A call fails with ConnectFailed after the first attempt
    that it waited for; what was sent is never sent again: only the caller knows whether it may be.
    Counters: `connects`, `connect_failures`, `disconnects`.
    """

    def __init__(
        self,
        env: Env,
        host: str | None = None,
        port: int | None = None,
        *,
        client_id: str,
        connect_timeout_ms: int = 5000,
        backoff_ms: int = 20,
        backoff_max_ms: int = 1000,
        on_disconnect: OnClose | None = None,
    ) -> None:
        self.connects = 0
        self.connect_failures = 0
        self.disconnects = 0
        self._env = env
        self._address = None if host is None or port is None else (host, port)
        self._client_id = client_id
        self._connect_timeout_ms = connect_timeout_ms
        self._backoff_ms = backoff_ms
        self._backoff_max_ms = backoff_max_ms
        self._on_disconnect = on_disconnect
        self._connection: Connection | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[Connection]] = []
        self._failures = 0
        self._not_before_ms = 0
        self._closed = False

    @property
    def connected(self) -> bool:
        """True while a connection is there."""
        return self._connection is not None and not self._connection.closed

    @property
    def address(self) -> tuple[str, int] | None:
        """Where the link goes, None while that is unknown."""
        return self._address

    def set_address(self, host: str, port: int) -> None:
        """Points the link at another address; an open connection to the old one is closed."""
        if self._address != (host, port):
            self._address = (host, port)
            self._failures = 0
            self._not_before_ms = 0
            self._drop(ConnectFailed("the address changed"))

    def close(self) -> None:
        """Ends the link for good; everything pending fails."""
        self._closed = True
        self._drop(ConnectFailed("the channel is closed"))

    async def connection(self, timeout_ms: int | None = None) -> Connection:
        """The open connection, after connecting if there is none.

        Raises ConnectFailed, also when `timeout_ms` (default: the connect timeout) is over.
        """
        current = self._connection
        if current is not None and not current.closed:
            return current
        if self._closed:
            raise ConnectFailed("the channel is closed")
        if self._address is None:
            raise ConnectFailed("the address is not known yet")
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Connection] = loop.create_future()
        self._waiters.append(waiter)
        if self._attempt is None:
            self._attempt = loop.create_task(self._connect(), name=f"connect-{self._client_id}")
        limit_ms = self._connect_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await waiter
        except TimeoutError as error:
            raise ConnectFailed(f"no connection within {limit_ms} ms") from error

    async def send(self, entity: Any, timeout_ms: int) -> Any:
        """As Connection.send; `timeout_ms` covers the connecting too."""
        connection, left_ms = await self._within(timeout_ms)
        return await connection.send(entity, left_ms)

    async def call(
        self, api_key: int, build: Build, timeout_ms: int, *, max_version: int | None = None
    ) -> Any:
        """As Connection.call; `timeout_ms` covers the connecting too."""
        connection, left_ms = await self._within(timeout_ms)
        return await connection.call(api_key, build, left_ms, max_version=max_version)

    async def _within(self, timeout_ms: int) -> tuple[Connection, int]:
        began_ms = self._env.clock.now_ms()
        connection = await self.connection(timeout_ms)
        left_ms = timeout_ms - (self._env.clock.now_ms() - began_ms)
        return connection, max(left_ms, 1)

    async def _connect(self) -> None:
        address = self._address
        assert address is not None
        try:
            wait_ms = self._not_before_ms - self._env.clock.now_ms()
            if wait_ms > 0:
                await asyncio.sleep(wait_ms / 1000)
            connection = await Connection.connect(
                self._env,
                *address,
                client_id=self._client_id,
                timeout_ms=self._connect_timeout_ms,
                on_close=self._disconnected,
            )
        except ConnectFailed as error:
            self.connect_failures += 1
            base_ms = min(self._backoff_ms << min(self._failures, 20), self._backoff_max_ms)
            self._failures += 1
            spread = self._env.chance.uniform(0.8, 1.2)
            self._not_before_ms = self._env.clock.now_ms() + round(base_ms * spread)
            self._attempt = None
            self._fail_waiters(error)
            return
        self.connects += 1
        self._failures = 0
        self._attempt = None
        self._connection = connection
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(connection)

    def _disconnected(self, error: Exception | None) -> None:
        self._connection = None
        self.disconnects += 1
        if self._on_disconnect is not None:
            self._on_disconnect(error)

    def _drop(self, error: ConnectFailed) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.cancel()
        self._fail_waiters(error)
        if self._connection is not None:
            self._connection.close()

    def _fail_waiters(self, error: ConnectFailed) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
