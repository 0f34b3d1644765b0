"""A server on loopback whose handlers the test gives, and the bytes of a small request."""

import asyncio
import contextlib
import struct
from dataclasses import dataclass, field

import structlog

from net.handlers import Api, Frame, HandlerTable, Request
from net.server import ListenerConfig, Server, serve
from wire.errors import ErrorCode, FatalError
from wire.messages import (
    RequestHeader,
    encode_request,
    fill,
    millis,
    request_class,
    response_class,
    response_header,
)
from world.real import real_env

HEARTBEAT = 12
VERSION = 4


def beat(number: int, member: str = "m", version: int = VERSION) -> bytes:
    entity = fill(
        request_class(HEARTBEAT, version), group_id="g", generation_id=number, member_id=member
    )
    return encode_request(RequestHeader(HEARTBEAT, version, number, "tester"), entity)


def answer(throttle_ms: int = 0) -> object:
    return fill(
        response_class(HEARTBEAT, VERSION),
        throttle_time=millis(throttle_ms),
        error_code=ErrorCode.none,
    )


def frame_of(request: Request, *body: object, size: int) -> Frame:
    head = response_header(request.api_key, request.api_version, request.correlation_id)
    return Frame([struct.pack(">i", len(head) + size) + head, *body])


@dataclass
class Rig:
    """`slow` are the log lines about slow turns of the loop: on a busy machine any may be."""

    server: Server
    logs: list[dict]
    slow: list[dict]
    fatal: list[FatalError] = field(default_factory=list)

    async def dial(self, **options):
        return await asyncio.open_connection("127.0.0.1", self.server.port, **options)


def run(handle, scenario, *, features=None, **config):
    """Serves `handle` for Heartbeat, runs `scenario(rig)`, closes all."""

    async def main():
        logs: list[dict] = []
        slow: list[dict] = []
        fatal: list[FatalError] = []

        def keep(_, method, event):
            kept = slow if event["event"] == "slow_read_event" else logs
            kept.append({**event, "level": method})
            raise structlog.DropEvent

        log = structlog.wrap_logger(None, processors=[keep])
        server = await serve(
            real_env(1),
            ListenerConfig("TEST", "127.0.0.1", 0, **config),
            HandlerTable([Api(HEARTBEAT, 0, VERSION, handle)]),
            on_fatal=fatal.append,
            log=log,
        )
        rig = Rig(server, logs, slow, fatal)
        try:
            async with asyncio.timeout(20):
                return await scenario(rig)
        finally:
            await server.close()
            assert server.counters.connections == 0

    return asyncio.run(main())


async def read_frame(reader) -> bytes:
    size = struct.unpack(">i", await reader.readexactly(4))[0]
    return await reader.readexactly(size)


async def read_number(reader) -> int:
    return struct.unpack_from(">i", await read_frame(reader))[0]


async def ended(reader) -> bool:
    """True when the peer ends the connection; what it still sends is dropped."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(65536):
            pass
    return True


async def until(check) -> None:
    for _ in range(5000):
        if check():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came true")


def echo(request):
    return answer(request.entity().generation_id)
