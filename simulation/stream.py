"""Connections as their two ends and what is on its way between them.

A `Pipe` is one direction: bytes leave in the order they were written, take the link's time, and
wait where the link is cut. Each end has a window: what is on its way and unread by the receiver
together is at most that much, the rest waits at the sender, whose protocol is told to pause.
Acknowledgements cost nothing and are never lost.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any
from zlib import crc32

from simulation.loop import NodeLoop

if TYPE_CHECKING:
    from simulation.network import Host, Link

USER_TIMEOUT_US = 20_000_000
_SEGMENT = 64 * 1024
_POLL_US = 200_000
_POLL_MAX_US = 5_000_000


class Sign(Enum):
    """What travels besides bytes."""

    OPEN = 1
    END = 2
    RESET = 3


class _Chunk:
    """What arrives at one time: bytes written in one instant, or a sign."""

    __slots__ = ("arrives_us", "cause", "parts", "sent_us", "sign", "size")

    def __init__(self, sent_us: int, arrives_us: int, cause: int, sign: Sign | None) -> None:
        self.sent_us = sent_us
        self.arrives_us = arrives_us
        self.cause = cause
        self.sign = sign
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> None:
        self.parts.append(data)
        self.size += len(data)


class Pipe:
    """One direction of a connection, from the end that writes to the end that reads."""

    def __init__(self, link: Link, sender: Socket, receiver: Socket) -> None:
        self.link = link
        self.sender = sender
        self.receiver = receiver
        self.closed = False  # nothing more is taken
        self._world = link.world
        self._waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        self._flying: deque[_Chunk] = deque()
        self._flying_bytes = 0
        self._armed = False
        self._held_since_us: int | None = None
        self._held_times = 0

    # What the sender's end does.

    def send(self, data: bytes) -> None:
        """Takes bytes; what the window has no room for waits."""
        if self.closed:
            return
        size = len(data)
        if not self._waiting and size <= min(self._room(), _SEGMENT):
            self._launch(data, None)  # as nearly always: all of it leaves at once
            return
        self._waiting.append(data)
        self.waiting_bytes += size
        self.pump()

    def sign(self, sign: Sign) -> None:
        """Sends a sign behind the bytes; after END and RESET nothing more is taken."""
        if not self.closed:
            self.closed = sign is not Sign.OPEN
            self._launch(None, sign)

    def drop_waiting(self) -> None:
        """Forgets what has not left yet."""
        self._waiting.clear()
        self.waiting_bytes = 0

    def tear(self) -> None:
        """Loses, as the link's chance decides, the last part of what is on its way."""
        kept = self.link.chance.randrange(len(self._flying) + 1)
        while len(self._flying) > kept:
            self._flying_bytes -= self._flying.pop().size

    def _room(self) -> int:
        return self.link.window - self._flying_bytes - self.receiver.unread_bytes

    def pump(self) -> None:
        """Sends what the window has room for."""
        waiting = self._waiting
        while waiting:
            room = self._room()
            if room <= 0:
                self._world.count("windows full")
                return
            data = waiting.popleft()
            size = min(len(data), room, _SEGMENT)
            if size < len(data):
                waiting.appendleft(data[size:])
                data = data[:size]
            self.waiting_bytes -= size
            self._launch(data, None)

    def _launch(self, data: bytes | None, sign: Sign | None) -> None:
        scheduler = self._world.scheduler
        now_us = scheduler.now_us
        last = self._flying[-1] if self._flying else None
        if (
            data is not None
            and last is not None
            and last.sent_us == now_us
            and last.sign is None
            and last.size + len(data) <= _SEGMENT
        ):
            last.add(data)
            self._flying_bytes += len(data)
            return
        arrives_us = self.link.arrival_us(0 if data is None else len(data))
        if last is not None:
            arrives_us = max(arrives_us, last.arrives_us)
        chunk = _Chunk(now_us, arrives_us, scheduler.cause, sign)
        if data is not None:
            chunk.add(data)
            self._flying_bytes += len(data)
        self._flying.append(chunk)
        self._arm()

    # What the link does.

    def _arm(self) -> None:
        if not self._armed and self._flying:
            self._armed = True
            first = self._flying[0]
            handle = self._world.scheduler.at(first.arrives_us, self._arrive)
            handle.cause = first.cause

    def _arrive(self) -> None:
        self._armed = False
        if not self._flying:
            return
        link, receiver, now_us = self.link, self.receiver, self._world.scheduler.now_us
        if link.blocked_until_us > now_us or not receiver.host.up:
            self._hold_up(now_us)
            return
        self._held_since_us = None
        chunk = self._flying[0]
        if chunk.sign is None and link.chance.random() < 0.02 and chunk.size > 1:
            self._split(chunk)
        self._flying.popleft()
        self._flying_bytes -= chunk.size
        trace = self._world.trace
        if chunk.sign is None:
            data = chunk.parts[0] if len(chunk.parts) == 1 else b"".join(chunk.parts)
            trace.add(now_us, receiver.number, len(data), crc32(data))
            receiver.arrived(data)
        else:
            trace.add(now_us, receiver.number, chunk.sign.value)
            receiver.signalled(chunk.sign)
        self._arm()

    def _split(self, chunk: _Chunk) -> None:
        """Leaves the chunk a first part of its bytes; the rest comes a little later."""
        data = b"".join(chunk.parts)
        cut = self.link.chance.randrange(1, len(data))
        later_us = chunk.arrives_us + self.link.chance.randrange(1, 200)
        rest = _Chunk(chunk.sent_us, later_us, chunk.cause, None)
        rest.add(data[cut:])
        chunk.parts, chunk.size = [data[:cut]], cut
        self._flying.insert(1, rest)

    def _hold_up(self, now_us: int) -> None:
        """Nothing gets through now: tries again later, or gives the connection up."""
        if self._held_since_us is None:
            self._held_since_us = now_us
            self._held_times = 0
        since_us = self._held_since_us
        if self._flying[0].sign is Sign.RESET or self.sender.silent:
            # Nobody sends it again: the receiver will have to find out by itself.
            self._flying.clear()
            self._flying_bytes = 0
            return
        if now_us - since_us >= USER_TIMEOUT_US and not self.link.stalled:
            self._flying.clear()
            self._flying_bytes = 0
            self._world.count("connections timed out")
            self.sender.lost(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
            return
        poll_us = min(_POLL_US << min(self._held_times, 10), _POLL_MAX_US)
        self._held_times += 1
        again_us = max(self.link.blocked_until_us, now_us + poll_us) + self.link.chance.randrange(
            1, _POLL_US
        )
        if not self.link.stalled:
            again_us = min(again_us, since_us + USER_TIMEOUT_US)
        self._armed = True
        handle = self._world.scheduler.at(again_us, self._arrive)
        handle.cause = self._flying[0].cause


class Socket(asyncio.Transport):
    """One end of a connection: what the system keeps for a process, and the process's transport.

    `number` is unique in its world. `gone` means that the system has forgotten it.
    """

    def __init__(
        self, host: Host, loop: NodeLoop, number: int, own: tuple[str, int], peer: tuple[str, int]
    ) -> None:
        super().__init__({"peername": peer, "sockname": own})
        self.host = host
        self.number = number
        self.gone = False
        self.silent = False  # the machine lost power: nothing is sent a second time
        self.on_open: Callable[[Socket], None] | None = None  # how a listener takes it
        self.out: Pipe
        self.incoming: Pipe
        self._loop = loop
        self._protocol: Any = None
        self._buffered = False
        self._inbox: deque[bytes] = deque()
        self.unread_bytes = 0
        self._ended = False  # the peer sent END
        self._closing = False
        self._reading = True
        self._read_asked = False
        self._high, self._low = 64 * 1024, 16 * 1024
        self._write_paused = False

    # What the system does.

    def joined(self, other: Socket, there: Link, back: Link) -> None:
        """The two ends are one connection."""
        self.out = other.incoming = Pipe(there, self, other)
        other.out = self.incoming = Pipe(back, other, self)

    def arrived(self, data: bytes) -> None:
        """Bytes are here."""
        if self.gone:
            # The system has no such connection (any more).
            self.out.closed = False
            self.out.sign(Sign.RESET)
        elif not self._closing:
            self._inbox.append(data)
            self.unread_bytes += len(data)
            self._ask_read()

    def signalled(self, sign: Sign) -> None:
        """A sign is here."""
        if self.gone:
            return
        if sign is Sign.RESET:
            self._host_count("connections reset")
            self.lost(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        elif sign is Sign.END:
            self._ended = True
            self._ask_read()
        elif self.on_open is not None:
            self._loop.call_from_kernel(self.on_open, self)

    def _host_count(self, event: str) -> None:
        self.host.network.world.count(event)

    def forget(self) -> None:
        """The system has this connection no more."""
        self.gone = True
        self._closing = True
        self._inbox.clear()
        self.unread_bytes = 0
        self.out.drop_waiting()
        self.host.sockets.pop(self.number, None)

    def lost(self, error: Exception) -> None:
        """The connection broke."""
        if self.gone:
            return
        self.out.closed = True
        self.forget()
        self._loop.call_from_kernel(self._tell_lost, error)

    def process_ended(self, *, power: bool) -> None:
        """The process is no more, or with `power` the whole machine."""
        if self.gone:
            return
        chance = self.out.link.chance
        self.out.drop_waiting()
        if power:
            self.silent = True
            self.out.tear()
        elif self._inbox or chance.random() < 0.5:
            self.out.tear()
            self.out.sign(Sign.RESET)
        else:
            self.out.sign(Sign.END)
        self.out.closed = True
        self.forget()

    def made(self, protocol: asyncio.BaseProtocol) -> None:
        """Gives the connection to a protocol, in its process."""
        self.set_protocol(protocol)
        protocol.connection_made(self)
        self._ask_read()

    def _ask_read(self) -> None:
        if self._read_asked or not self._reading or self._closing or self._protocol is None:
            return
        if self._inbox or self._ended:
            self._read_asked = True
            self._loop.call_from_kernel(self._read)

    def _read(self) -> None:
        self._read_asked = False
        if self._closing or not self._reading:
            return
        try:
            if self._inbox:
                self._read_bytes()
            elif not self._protocol.eof_received():
                self.close()
                return
            else:
                self._ended = False
        except Exception as error:  # noqa: BLE001 - as asyncio: reported, and the connection ends
            self._loop.call_exception_handler(
                {"message": "a protocol failed", "exception": error, "transport": self}
            )
            self.abort()
            return
        self._ask_read()

    def _read_bytes(self) -> None:
        data = self._inbox.popleft()
        if self._buffered:
            buffer = memoryview(self._protocol.get_buffer(-1))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            if size < len(data):
                self._inbox.appendleft(data[size:])
            while size < len(buffer) and self._inbox and size >= len(data):
                # A read takes all that is there.
                more = self._inbox.popleft()
                count = min(len(buffer) - size, len(more))
                buffer[size : size + count] = more[:count]
                size += count
                if count < len(more):
                    self._inbox.appendleft(more[count:])
            del buffer
            self._took(size)
            self._protocol.buffer_updated(size)
        else:
            self._took(len(data))
            self._protocol.data_received(data)

    def _took(self, size: int) -> None:
        self.unread_bytes -= size
        if self.incoming.waiting_bytes:
            self.incoming.pump()
            self.incoming.sender.drained()

    def _tell_lost(self, error: Exception | None) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(error)

    def drained(self) -> None:
        """Less waits than did: a paused protocol may go on, a closing connection may end."""
        if self.gone:
            return
        if self._write_paused and self.out.waiting_bytes <= self._low:
            self._loop.call_from_kernel(self._resume)
        if self._closing and not self.out.waiting_bytes:
            self._end(None)

    def _resume(self) -> None:
        if self._write_paused and self.out.waiting_bytes <= self._low and not self._closing:
            self._write_paused = False
            self._protocol.resume_writing()

    def _end(self, error: Exception | None) -> None:
        """The process has closed it: the system sends what it has, then says so."""
        self.out.sign(Sign.RESET if self._inbox else Sign.END)
        self.forget()
        self._loop.call_from_kernel(self._tell_lost, error)

    # The process's calls.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._touch()
        if self._closing or not len(data):
            return
        self.out.send(bytes(data))
        self._check_high()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def _touch(self) -> None:
        self._loop.check_alive()
        self.host.before_operation("send")

    def _check_high(self) -> None:
        if not self._write_paused and self.out.waiting_bytes > self._high:
            self._write_paused = True
            self._host_count("writers paused")
            self._protocol.pause_writing()

    def close(self) -> None:
        self._loop.check_alive()
        if self._closing:
            return
        self._closing = True
        if not self.out.waiting_bytes:
            self._end(None)

    def abort(self) -> None:
        self._loop.check_alive()
        if self.gone:
            return
        self._closing = True
        self.out.drop_waiting()
        self._end(None)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._ask_read()

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low
        self._check_high()

    def get_write_buffer_size(self) -> int:
        return self.out.waiting_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def can_write_eof(self) -> bool:
        return False
