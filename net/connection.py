"""One accepted connection: requests in, answers out in the same order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from net.frames import FrameReader
from net.handlers import (
    API_VERSIONS_KEY,
    NO_RESPONSE,
    CloseConnection,
    Frame,
    Later,
    Part,
    Request,
)
from net.outbox import Outbox
from wire.errors import DecodeError, FatalError
from wire.messages import RequestHeader, decode_request_header, encode_response

if TYPE_CHECKING:
    from net.server import Server

MAX_PENDING = 1000
"""Requests of one connection that may wait for their answers before its reading pauses."""

MAX_PER_EVENT = 2000
"""Requests handled before other connections get their turn."""

_FLUSH_AT = 256 * 1024
_SLOW_MS = 20


class _Slot:
    """The place of one answer in the order; `parts` is None until it is there."""

    __slots__ = ("began_ms", "connection", "header", "later", "parts")

    def __init__(self, connection: ServerConnection, header: RequestHeader) -> None:
        self.connection = connection
        self.header = header
        self.began_ms = connection.active_ms
        self.parts: Iterable[Part] | None = None
        self.later: Later | None = None

    def deliver(self, reply: Any) -> None:
        """Takes the reply, or the exception that stands for it."""
        self.connection.settle(self, reply)

    def deliver_future(self, future: asyncio.Future[Any]) -> None:
        """The same from a finished future or task."""
        if future.cancelled():
            self.deliver(CloseConnection("the handler was cancelled"))
            return
        error = future.exception()
        self.deliver(future.result() if error is None else error)


class ServerConnection(asyncio.BufferedProtocol):
    """Kept by the event loop. Handlers may use what is documented here and nothing else.

    `listener` is the listener's name, `peer` the client's address, `software` what the client
    calls itself (name, version), `closed` True once nothing can be sent any more.
    """

    def __init__(self, server: Server, number: int) -> None:
        self.listener = server.config.name
        self.number = number
        self.peer: Any = None
        self.software: tuple[str, str] = ("unknown", "unknown")
        self.closed = False
        self.active_ms = 0
        self._server = server
        self._reader = FrameReader(server.scratch, server.config.max_request_bytes, server.pool)
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None
        self._slots: deque[_Slot] = deque()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._at_read_end: dict[Callable[[], None], None] = {}
        self._on_close: list[Callable[[], None]] = []
        self._reading = False
        self._read_paused = False
        self._flush_asked = False
        self._last_key = -1

    # What handlers may use.

    def at_read_end(self, call: Callable[[], None]) -> None:
        """Has `call` made once after the last request of this read event was handled.

        What several requests of one event need done together (one write for many appends) is
        done there; answers given there still leave in the event's single write.
        """
        self._at_read_end[call] = None

    def on_close(self, call: Callable[[], None]) -> None:
        """Has `call` made when the connection ends; at once if it has."""
        if self.closed:
            call()
        else:
            self._on_close.append(call)

    @property
    def pending(self) -> int:
        """Requests that have no answer yet, or whose answer waits for an earlier one."""
        return len(self._slots)

    @property
    def quiet(self) -> bool:
        """True when no handler is at work for the peer (it may still have to take answers)."""
        return not self._slots

    def close(self, reason: str = "", *, malformed: bool = False) -> None:
        """Ends the connection; answers that were written before still leave.

        A reason makes one log line.
        """
        if self.closed:
            return
        self._end()
        if reason:
            self._server.log_closed(self, reason, malformed=malformed)
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Ends the connection and drops what was not sent."""
        self._end()
        if self._transport is not None:
            self._transport.abort()

    # The event loop's calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        self.peer = transport.get_extra_info("peername")
        self.active_ms = self._server.env.clock.now_ms()
        if not self._server.admit(self):
            self.closed = True
            transport.abort()
            return
        transport.set_write_buffer_limits(high=_FLUSH_AT, low=0)
        server = self._server
        self._outbox = Outbox(
            server.env, transport, server.pool, server.counters, self._broken, self._go_on
        )

    def connection_lost(self, error: Exception | None) -> None:
        self._end()
        if self._outbox is not None:
            self._outbox.close()
        self._server.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, count: int) -> None:
        self._reader.received(count)
        self._server.counters.bytes_in += count
        self._read_event()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        if self._outbox is not None:
            self._outbox.pause()
        self._pace()

    def resume_writing(self) -> None:
        self.active_ms = self._server.env.clock.now_ms()
        if self._outbox is not None:
            self._outbox.resume()

    # Requests.

    def _read_event(self) -> None:
        """Handles the whole frames that are there, then sends what they were answered."""
        if self.closed:
            self._reader.release()
            return
        clock = self._server.env.clock
        began_ms = self.active_ms = clock.now_ms()
        self._reading = True
        try:
            self._handle_frames(began_ms)
        except Exception as error:  # noqa: BLE001 - _event_failed logs it
            self._event_failed(error)
        # Whatever happened: what handlers left for the end of the event still is to be done, and
        # it looks at the bytes that were received.
        if self._at_read_end:
            self._run_read_end()
        try:
            self._reader.keep_rest()
        except Exception as error:  # noqa: BLE001 - _event_failed logs it
            self._event_failed(error)
        self._reading = False
        self._release_if_closed()
        self._flush_slots()
        self._pace()
        took_ms = clock.now_ms() - began_ms
        if took_ms > _SLOW_MS:
            # With more than one request in the event, the last one's key: it gives the direction.
            self._server.log.info(
                "slow_read_event", peer=str(self.peer), api_key=self._last_key, took_ms=took_ms
            )

    def _event_failed(self, error: Exception) -> None:
        """A step of a read event raised: that ends the connection, and it alone."""
        self._flush_slots()
        self._failed(None, error)

    def _handle_frames(self, now_ms: int) -> None:
        next_frame = self._reader.next_frame
        for _ in range(MAX_PER_EVENT):
            frame = next_frame()
            if frame is None:
                return
            self._handle(frame, now_ms)
            del frame
            if self.closed or self._over_limit():
                return

    def _release_if_closed(self) -> None:
        if self.closed:
            self._reader.release()

    def _handle(self, frame: memoryview, now_ms: int) -> None:
        """Answers one request, or gives it a slot.

        Raises DecodeError where header or body make no sense.
        """
        server = self._server
        server.counters.requests += 1
        header, offset = decode_request_header(frame)
        key = self._last_key = header.api_key
        if key == API_VERSIONS_KEY:
            answer, software = server.api_versions.answer(header, frame, offset)
            if software is not None:
                self.software = software
            self._emit(header, (answer,))
            return
        api = server.table.lookup(key)
        if api is None or not api.min_version <= header.api_version <= api.max_version:
            offered = "nothing" if api is None else f"versions {api.min_version}-{api.max_version}"
            raise DecodeError(
                f"API key {key} version {header.api_version}: this listener serves {offered}"
            )
        request = Request(header, frame, offset, self, now_ms, api.max_elements)
        try:
            reply = api.handle(request)
        except DecodeError:
            raise
        except Exception as error:  # noqa: BLE001 - _failed logs it; only this connection ends
            self._failed(header, error)
            return
        if type(reply) is Later:
            if not reply.done:
                slot = self._new_slot(header)
                slot.later = reply
                reply.bind(slot.deliver)
                return
            # Answered before the handler returned: it needs no place to wait in.
            reply = reply.outcome
            if isinstance(reply, Exception):
                self._failed(header, reply)
                return
        elif type(reply) is not Frame and hasattr(reply, "__await__"):
            self._await(request, reply)
            return
        if type(reply) is Frame:
            self._emit(header, reply.parts)
        elif reply is not NO_RESPONSE:
            parts = self._encode(header, reply)
            if parts is not None:
                self._emit(header, parts)

    def _await(self, request: Request, reply: Any) -> None:
        header = request.header
        if asyncio.isfuture(reply):
            # It is the handler's, who may finish it after we are gone: we only look at it.
            reply.add_done_callback(self._new_slot(header).deliver_future)
            return
        request.detach()
        name = f"{self.listener}-{self.number}-{header.api_key}-{header.correlation_id}"
        task = asyncio.get_running_loop().create_task(reply, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        task.add_done_callback(self._new_slot(header).deliver_future)

    def _new_slot(self, header: RequestHeader) -> _Slot:
        slot = _Slot(self, header)
        self._slots.append(slot)
        return slot

    # Answers.

    def settle(self, slot: _Slot, reply: Any) -> None:
        """A pending answer is there: it leaves when all earlier ones have."""
        if self.closed:
            if isinstance(reply, FatalError):
                self._server.fatal(reply)
            return
        if isinstance(reply, Exception):
            self._failed(slot.header, reply)
            return
        if type(reply) is Frame:
            slot.parts = reply.parts
        elif reply is NO_RESPONSE:
            slot.parts = ()
        else:
            slot.parts = self._encode(slot.header, reply)
            if slot.parts is None:
                return
        if slot is not self._slots[0] or self._reading or self._flush_asked:
            return
        if len(self._slots) == 1 and not self._read_paused:
            # Nothing else is to come that could leave in the same write.
            self.active_ms = self._server.env.clock.now_ms()
            self._flush_slots()
            return
        self._flush_asked = True
        self._server.flush_soon(self._flush_and_go_on)

    def _encode(self, header: RequestHeader, entity: Any) -> tuple[bytes] | None:
        """The frame of a response entity; None, and no connection any more, where it is none."""
        key, version, number, _ = header
        try:
            return (encode_response(key, version, number, entity),)
        except Exception as error:  # noqa: BLE001 - _failed logs it; only this connection ends
            self._failed(header, error)
            return None

    def _emit(self, header: RequestHeader, parts: Iterable[Part]) -> None:
        """An answer that is there already: behind the pending ones, or out at the next flush."""
        if self._slots:
            self._new_slot(header).parts = parts
        else:
            assert self._outbox is not None
            self._outbox.add(parts)
            if self._server.config.log_requests:
                self._log_answered(header, self.active_ms)

    def _log_answered(self, header: RequestHeader, began_ms: int) -> None:
        self._server.log.debug(
            "request",
            peer=str(self.peer),
            api_key=header.api_key,
            api_version=header.api_version,
            client_id=header.client_id,
            correlation_id=header.correlation_id,
            latency_ms=self._server.env.clock.now_ms() - began_ms,
        )

    def _flush_and_go_on(self) -> None:
        self._flush_asked = False
        if self.closed:
            return
        self.active_ms = self._server.env.clock.now_ms()
        self._flush_slots()
        self._go_on()

    def _flush_slots(self) -> None:
        slots = self._slots
        outbox = self._outbox
        if outbox is None or self.closed:
            return
        while slots and (parts := slots[0].parts) is not None:
            slot = slots.popleft()
            outbox.add(parts)
            if self._server.config.log_requests:
                self._log_answered(slot.header, slot.began_ms)
        outbox.flush()

    # Pace and end.

    def _over_limit(self) -> bool:
        """True when this event must not handle more: the peer doesn't take what it asked for."""
        if len(self._slots) >= MAX_PENDING:
            return True
        outbox = self._outbox
        assert outbox is not None
        if outbox.waiting_bytes < _FLUSH_AT:
            return False
        outbox.flush()
        return outbox.blocked and outbox.waiting_bytes >= _FLUSH_AT

    def _should_pause(self) -> bool:
        assert self._outbox is not None
        return len(self._slots) >= MAX_PENDING or self._outbox.blocked or self._reader.has_frame

    def _pace(self) -> None:
        """Stops reading while the peer is behind, or while handled frames wait for their turn."""
        transport = self._transport
        if self.closed or self._reading or self._outbox is None or transport is None:
            return
        if self._read_paused or not self._should_pause():
            return
        self._read_paused = True
        transport.pause_reading()
        if not self._outbox.blocked and len(self._slots) < MAX_PENDING:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Resumes what `_pace` stopped, frames that were received already first."""
        if not self._read_paused or self.closed or self._reading or self._outbox is None:
            return
        if self._outbox.blocked or len(self._slots) >= MAX_PENDING:
            return
        self._read_paused = False
        if self._reader.has_frame:
            self._read_event()
        if not self._read_paused and not self.closed and self._transport is not None:
            self._transport.resume_reading()

    def _run_read_end(self) -> None:
        while self._at_read_end:
            calls = list(self._at_read_end)
            self._at_read_end.clear()
            for call in calls:
                try:
                    call()
                except Exception as error:  # noqa: BLE001 - _failed logs it
                    self._failed(None, error)

    def _failed(self, header: RequestHeader | None, error: Exception) -> None:
        """A handler ended with an exception: nothing can be answered, so the connection ends."""
        if isinstance(error, FatalError):
            self._server.fatal(error)
            self.close(error.reason)
        elif isinstance(error, CloseConnection):
            self.close(error.reason)
        elif isinstance(error, DecodeError):
            self.close(f"malformed request: {error}", malformed=True)
        else:
            self._server.handler_failed(self, header, error)
            self.close()

    def _broken(self, reason: str) -> None:
        self.close(f"a response could not be completed: {reason}")

    def _end(self) -> None:
        if self.closed:
            return
        self.closed = True
        waiting = [slot.later for slot in self._slots if slot.later is not None]
        self._slots.clear()
        for later in waiting:
            later.drop()
        for call in self._on_close:
            call()
        self._on_close.clear()
        if not self._reading:
            self._reader.release()

    def cancel_tasks(self) -> None:
        """Cancels the handlers that still run; only when the whole server closes."""
        for task in list(self._tasks):
            task.cancel()
