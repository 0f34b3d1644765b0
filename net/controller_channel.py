"""The way to the active controller: one connection that follows the leadership."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple

from net.client import Connection
from net.errors import ConnectFailed, NetworkError, RequestTimedOut, UnsupportedVersion
from wire.errors import ErrorCode, KafkaError
from wire.messages import millis
from world.env import Env

Build = Callable[[int, Any], Any]

_NOT_THE_ONE = (ErrorCode.not_controller, ErrorCode.not_leader_or_follower)
_CONNECT_TIMEOUT_MS = 5_000
_FIRST_BACKOFF_MS = 20
_LAST_BACKOFF_MS = 500
_LAST_WORD_MS = 500
_ANSWER_WAY_MS = 250
_SILENCE_MS = 400  # of a controller that was asked, until it is taken for gone


class Endpoint(NamedTuple):
    """Where the active controller listens, and since which epoch it is it."""

    node_id: int
    host: str
    port: int
    epoch: int


class ControllerUnreachable(KafkaError):
    """No active controller answered before the caller's time was over: NOT_CONTROLLER, or
    REQUEST_TIMED_OUT where one was asked to the end, so that the request may have effect yet."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.not_controller) -> None:
        super().__init__(code, message)


class ControllerChannel:
    """Requests to whoever is the active controller.

    `endpoint` says who that is, None while nobody is known; `endpoint_changed` must be called when
    its answer changes. One that is elected again counts as another: it may have lost its power
    and know nothing of what it was asked. `retries` counts attempts that had to be repeated.
    """

    def __init__(self, env: Env, endpoint: Callable[[], Endpoint | None], client_id: str) -> None:
        self._env = env
        self._endpoint = endpoint
        self._client_id = client_id
        self._connection: Connection | None = None
        self._target: Endpoint | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._attempted: Endpoint | None = None
        self._changed = asyncio.Event()
        self._left: dict[Connection, asyncio.TimerHandle] = {}
        self._closed = False
        self.retries = 0

    def endpoint_changed(self) -> None:
        """The active controller may be another one now: leave the old, end every backoff.

        What was asked of the old one has a moment left: it may have answered with its last word,
        as one does that was asked to leave the quorum. An attempt to reach the old one ends too:
        a machine that hangs would hold it up for seconds, and a broker that waits for it is
        fenced by the new controller meanwhile.
        """
        now = self._endpoint()
        if self._target is not None and now != self._target:
            connection, self._connection, self._target = self._connection, None, None
            if connection is not None and not self._closed:
                loop = asyncio.get_running_loop()
                self._left[connection] = loop.call_later(
                    _LAST_WORD_MS / 1000, self._end_left, connection
                )
        if self._attempt is not None and now != self._attempted:
            self._attempt.cancel()
            self._attempt = self._attempted = None
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def close(self) -> None:
        """Ends the connection; requests in flight fail."""
        self._closed = True
        if self._attempt is not None:
            self._attempt.cancel()
        self._drop()
        for connection in list(self._left):
            self._left[connection].cancel()
            self._end_left(connection)
        self._changed.set()

    def _end_left(self, connection: Connection) -> None:
        del self._left[connection]
        connection.close()

    async def request(
        self,
        api_key: int,
        build: Build,
        timeout_ms: int,
        *,
        max_version: int | None = None,
        reach_ms: int | None = None,
    ) -> Any:
        """The active controller's answer to the request that `build(version, module)` makes.

        Held and repeated while there is no controller, it can't be reached, or it says that it
        isn't one. Raises ControllerUnreachable after `timeout_ms`, or sooner where there was
        nobody to ask for `reach_ms`; UnsupportedVersion where the controller lacks the API.
        """
        clock = self._env.clock
        began_ms = alone_ms = clock.now_ms()
        deadline_ms = began_ms + timeout_ms
        backoff_ms = _FIRST_BACKOFF_MS
        reason = "no active controller is known"
        code = ErrorCode.not_controller
        while not self._closed:
            now_ms = clock.now_ms()
            left_ms = deadline_ms - now_ms
            if reach_ms is not None:
                left_ms = min(left_ms, alone_ms + reach_ms - now_ms)
            if left_ms <= 0:
                break
            changed = self._changed
            connection = None
            try:
                connection = await self._connected(left_ms)
                if connection is not None:
                    left_ms = max(1, deadline_ms - clock.now_ms())
                    within = _within(build, left_ms)
                    answer = await connection.call(
                        api_key, within, left_ms, max_version=max_version
                    )
                    if not _is_refusal(answer):
                        return answer
                    reason = f"node {self._node()} is not the active controller"
            except UnsupportedVersion:
                raise
            except NetworkError as error:
                reason = str(error)
                if isinstance(error, RequestTimedOut):
                    code = ErrorCode.request_timed_out
                if connection is not None:
                    alone_ms = clock.now_ms()
                    # Others may wait on the same connection, as patiently as they like.
                    if connection is self._connection and connection.silent_ms >= _SILENCE_MS:
                        self._drop()
            self.retries += 1
            pause_ms = backoff_ms * (0.5 + self._env.chance.random() / 2)
            backoff_ms = min(2 * backoff_ms, _LAST_BACKOFF_MS)
            await _wait(changed, min(pause_ms, max(0, deadline_ms - clock.now_ms())))
        waited_ms = clock.now_ms() - began_ms
        if code is ErrorCode.not_controller:
            raise ControllerUnreachable(
                f"no active controller answered within {waited_ms} ms (is a majority of the "
                f"controllers running, with whole logs?): {reason}"
            )
        raise ControllerUnreachable(f"no answer within {waited_ms} ms: {reason}", code)

    async def _connected(self, timeout_ms: int) -> Connection | None:
        """A living connection to the present controller; None if nobody is it.

        Raises NetworkError. Callers that come while one is being made wait for that one.
        """
        target = self._endpoint()
        if target is None:
            self._drop()
            return None
        connection = self._connection
        if connection is not None and not connection.closed and self._target == target:
            return connection
        if self._attempt is None:
            self._drop()
            self._attempted = target
            self._attempt = asyncio.get_running_loop().create_task(
                self._connect(target), name=f"connect-{self._client_id}"
            )
            self._attempt.add_done_callback(_looked_at)
        attempt = self._attempt
        await asyncio.wait([attempt], timeout=timeout_ms / 1000)
        if not attempt.done():
            raise ConnectFailed(f"no connection within {timeout_ms} ms")
        if attempt.cancelled():
            raise ConnectFailed("another controller is active, or the channel was closed")
        attempt.result()
        return self._connection

    async def _connect(self, target: Endpoint) -> None:
        try:
            self._connection = await Connection.connect(
                self._env,
                target.host,
                target.port,
                client_id=self._client_id,
                timeout_ms=_CONNECT_TIMEOUT_MS,
            )
            self._target = target
        finally:
            if self._attempt is asyncio.current_task():
                self._attempt = self._attempted = None

    def _node(self) -> int:
        return -1 if self._target is None else self._target.node_id

    def _drop(self) -> None:
        connection, self._connection, self._target = self._connection, None, None
        if connection is not None:
            connection.close()


def _within(build: Build, left_ms: int) -> Build:
    """As `build`, for a request that is waited for `left_ms`. Where it says itself how long it may
    take, it says less: the answer that tells why it took so long must arrive in time too."""

    def build_within(version: int, module: Any) -> Any:
        entity = build(version, module)
        if not hasattr(entity, "timeout"):
            return entity
        most = millis(left_ms - min(left_ms // 10, _ANSWER_WAY_MS))
        return replace(entity, timeout=min(entity.timeout, most))

    return build_within


def _looked_at(attempt: asyncio.Task[None]) -> None:
    """An attempt that fails after everybody's time was over concerns nobody any more."""
    if not attempt.cancelled():
        attempt.exception()


def _is_refusal(answer: Any) -> bool:
    """Whether the answer says NOT_CONTROLLER, or the quorum's NOT_LEADER_OR_FOLLOWER: as a whole,
    or NOT_CONTROLLER of its first item where it has no error of the whole (a standby says so of
    every item)."""
    if hasattr(answer, "error_code") or not is_dataclass(answer):
        return getattr(answer, "error_code", None) in _NOT_THE_ONE
    for field in fields(answer):
        items = getattr(answer, field.name)
        if isinstance(items, tuple) and items:
            return getattr(items[0], "error_code", None) is ErrorCode.not_controller
    return False


async def _wait(event: asyncio.Event, pause_ms: float) -> None:
    """Until the event or the pause is over."""
    try:
        async with asyncio.timeout(pause_ms / 1000):
            await event.wait()
    except TimeoutError:
        return
