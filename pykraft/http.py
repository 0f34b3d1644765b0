"""The metrics listener: just enough HTTP/1.1 to answer GET for a few fixed paths.

A web framework would cost every node more memory and start time than the rest of this room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

REQUEST_BYTES_MAX = 8192
REQUEST_TIME_S = 10.0
CONNECTIONS_MAX = 64
"""Scrapers need few. Each open connection takes one of the files that the node may have open."""
REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a path answers: HTTP status, content type, body."""

    status: int
    content_type: str
    body: bytes


Routes = Mapping[str, Callable[[], Answer]]


class _Connection(asyncio.Protocol):
    """One request, one answer, then closed; closed too if that takes longer than it may.

    `others` are the open connections of the listener.
    """

    def __init__(self, routes: Routes, others: dict[_Connection, None], time_s: float) -> None:
        self._routes = routes
        self._others = others
        self._time_s = time_s
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes, but all they promise.
        self._transport = cast("asyncio.Transport", transport)
        if len(self._others) >= CONNECTIONS_MAX:
            self._transport.abort()
            return
        self._others[self] = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._time_s, self._transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._others.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if b"\r\n\r\n" in self._received:
            self._answer(self._route(self._received.split(b"\r\n", 1)[0]))
        elif len(self._received) > REQUEST_BYTES_MAX:
            self._answer(Answer(400, "text/plain", b"request too long\n"))

    def _route(self, request_line: bytes) -> Answer:
        words = request_line.decode("latin-1").split(" ")
        if len(words) != 3:
            return Answer(400, "text/plain", b"not an HTTP request\n")
        method, target, _ = words
        if method != "GET":
            return Answer(405, "text/plain", b"only GET is served here\n")
        route = self._routes.get(target.split("?", 1)[0])
        if route is None:
            paths = ", ".join(sorted(self._routes))
            return Answer(404, "text/plain", f"served here: {paths}\n".encode())
        return route()

    def _answer(self, answer: Answer) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        head = (
            f"HTTP/1.1 {answer.status} {REASONS[answer.status]}\r\n"
            f"Content-Type: {answer.content_type}\r\n"
            f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
        )
        transport.write(head.encode() + answer.body)
        transport.close()


async def serve_http(
    host: str, port: int, routes: Routes, *, request_time_s: float = REQUEST_TIME_S
) -> asyncio.Server:
    """Listens on host:port (0: any free port) and answers GETs from `routes`.

    A connection has `request_time_s` for everything, and only so many may be open at once: one
    that says nothing costs the node nothing for long.
    """
    loop = asyncio.get_running_loop()
    open_now: dict[_Connection, None] = {}
    return await loop.create_server(
        lambda: _Connection(routes, open_now, request_time_s), host, port
    )
