"""The table of handlers that a listener serves, and what passes between it and a handler.

A handler is a plain function from a request to a reply, called inside the read event that
brought the request. A reply that isn't there yet is a `Later` (cheapest), a future, or a
coroutine, which then runs as one task. Answers leave in the order of the requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from wire.messages import RequestHeader, request_class
from wire.reader import MAX_ELEMENTS, read_entity

if TYPE_CHECKING:
    from net.connection import ServerConnection
    from world.env import File

API_VERSIONS_KEY = 18
API_VERSIONS_MAX = 4
_COPIED_UP_TO = 64 * 1024


class CloseConnection(Exception):
    """Raised by a handler for what Kafka answers with a closed connection; logged in one line."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class FileRange(NamedTuple):
    """`length` bytes of `file` from `position`, sent from the page cache as the peer takes them.

    The file must stay open until the frame was sent or the connection closed.
    """

    file: File
    position: int
    length: int


Part: TypeAlias = "bytes | memoryview | FileRange"


class Frame:
    """A complete response frame, size prefix and header included, in pieces that leave in order.

    A memoryview among the parts must not change until it was sent.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts


class _NoResponse:
    """The one value that says that the protocol wants no answer (Produce with acks=0)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NO_RESPONSE"


NO_RESPONSE = _NoResponse()


class Later:
    """A reply that will be given by a plain call of `set` or `fail`, once, on the loop.

    It costs a tenth of a task: use it where many requests wait at once (acks=all, long polls).
    `on_dropped` is called where the connection ends before there is a reply: whoever keeps the
    request waiting for as long as the client asked lets go of it then.
    """

    __slots__ = ("_deliver", "_outcome", "on_dropped")

    def __init__(self) -> None:
        self._deliver: Callable[[Any], None] | None = None
        self._outcome: Any = None
        self.on_dropped: Callable[[], None] | None = None

    @property
    def done(self) -> bool:
        """True once a reply or an error was given."""
        return self._outcome is not None

    @property
    def outcome(self) -> Any:
        """The reply or the error that was given."""
        return self._outcome

    def set(self, reply: Any) -> None:
        """Gives the reply: a response entity, a `Frame` or NO_RESPONSE."""
        assert self._outcome is None, "a Later is answered once"
        self._outcome = reply
        # Neither reference outlives its use: the connection's place of the answer refers to us.
        deliver, self._deliver, self.on_dropped = self._deliver, None, None
        if deliver is not None:
            deliver(reply)

    def fail(self, error: Exception) -> None:
        """Ends the request as if its handler had raised `error`."""
        self.set(error)

    def drop(self) -> None:
        """Called by the connection when it ends: nobody takes the reply any more."""
        call, self._deliver, self.on_dropped = self.on_dropped, None, None
        if self._outcome is None and call is not None:
            call()

    def bind(self, deliver: Callable[[Any], None]) -> None:
        """Called by the connection: `deliver` gets the reply, at once if it is there already."""
        if self._outcome is not None:
            deliver(self._outcome)
        else:
            self._deliver = deliver


def decode_tolerant(
    header: RequestHeader, frame: memoryview, offset: int, max_elements: int
) -> Any:
    """The request entity at `offset`; bytes after it are ignored, as Kafka ignores them.

    librdkafka counts on that: its Metadata request for all topics, versions 9 and above, has
    three bytes too many. Raises DecodeError, also for more than `max_elements` array elements and
    tagged fields.
    """
    cls = request_class(header.api_key, header.api_version)
    # Cutting values out of bytes takes half as long as out of a view; a large frame isn't doubled.
    buffer = bytes(frame) if len(frame) <= _COPIED_UP_TO else frame.toreadonly()
    entity, _ = read_entity(cls, buffer, offset, max_elements)
    return entity


class Request:
    """One request as a handler sees it.

    The bytes behind `body` and `writable_body` are valid until the handler has returned and the
    calls asked for with `connection.at_read_end` were made; who keeps a request longer calls
    `detach` first. A coroutine's request is detached already.
    """

    __slots__ = (
        "_frame",
        "_offset",
        "api_key",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "header",
        "max_elements",
        "received_ms",
    )

    def __init__(
        self,
        header: RequestHeader,
        frame: memoryview,
        offset: int,
        connection: ServerConnection,
        received_ms: int,
        max_elements: int = MAX_ELEMENTS,
    ) -> None:
        self.header = header
        self.api_key = header.api_key
        self.api_version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.connection = connection
        self.received_ms = received_ms
        self.max_elements = max_elements
        self._frame = frame
        self._offset = offset

    @property
    def body(self) -> memoryview:
        """The bytes after the request header, read-only."""
        return self._frame[self._offset :].toreadonly()

    @property
    def writable_body(self) -> memoryview:
        """The same bytes, writable where they are the receive buffer (offsets patched in place)."""
        return self._frame[self._offset :]

    @property
    def size(self) -> int:
        """Bytes of the frame, header included, size prefix not."""
        return len(self._frame)

    def detach(self) -> None:
        """Copies the frame out of the receive buffer, so that the request may be kept.

        The connection does it for every coroutine, whose first step runs after the read event.
        """
        self._frame = memoryview(bytearray(self._frame))

    def entity(self) -> Any:
        """The body decoded: a copy that may be kept.

        Raises DecodeError; a handler lets it pass, and the connection is closed.
        """
        return decode_tolerant(self.header, self._frame, self._offset, self.max_elements)


Reply: TypeAlias = Any
"""A response entity, a `Frame`, or NO_RESPONSE."""

Handler: TypeAlias = "Callable[[Request], Reply | Later | Awaitable[Reply]]"


@dataclass(frozen=True, slots=True)
class Api:
    """One API that a listener serves, with the range of versions that really work.

    `advertised_min` is what ApiVersions says instead of `min_version`: librdkafka looks for
    Produce 0 there, as Kafka advertises though it refuses it (KAFKA-18659). `max_elements` is how
    many array elements and tagged fields a request may hold in all: what decoding, and serving,
    that many costs is how long one request may hold up everybody else on the loop. A handler that
    decodes by hand passes `request.max_elements` on.
    """

    key: int
    min_version: int
    max_version: int
    handle: Handler
    advertised_min: int | None = None
    max_elements: int = MAX_ELEMENTS

    def __post_init__(self) -> None:
        assert 0 <= self.min_version <= self.max_version, f"API key {self.key}: empty range"


class HandlerTable:
    """All APIs of a listener by key. ApiVersions is made from it and needs no entry."""

    __slots__ = ("_by_key",)

    def __init__(self, apis: Iterable[Api] = ()) -> None:
        self._by_key: dict[int, Api] = {}
        for api in apis:
            if api.key == API_VERSIONS_KEY:
                raise ValueError("ApiVersions is answered by the listener itself")
            if api.key in self._by_key:
                raise ValueError(f"API key {api.key} has two handlers")
            self._by_key[api.key] = api

    def __add__(self, other: HandlerTable) -> HandlerTable:
        """Both tables as one; a key in both raises ValueError."""
        return HandlerTable([*self._by_key.values(), *other._by_key.values()])

    def lookup(self, key: int) -> Api | None:
        """The entry for an API key, None where this listener doesn't serve it."""
        return self._by_key.get(key)

    def versions(self) -> list[tuple[int, int, int]]:
        """What ApiVersions advertises, itself included: (key, min, max), by key."""
        rows = [(API_VERSIONS_KEY, 0, API_VERSIONS_MAX)]
        for api in self._by_key.values():
            low = api.min_version if api.advertised_min is None else api.advertised_min
            rows.append((api.key, low, api.max_version))
        return sorted(rows)
