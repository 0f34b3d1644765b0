import asyncio
import contextlib
import random
import struct
import time
from dataclasses import dataclass, field

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from net.connection import MAX_PENDING
from net.handlers import (
    NO_RESPONSE,
    Api,
    CloseConnection,
    FileRange,
    Frame,
    HandlerTable,
    Later,
    Request,
)
from net.server import ListenerConfig, Server, serve
from wire.errors import DecodeError, ErrorCode, FatalError
from wire.messages import (
    RequestHeader,
    decode_response,
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
    server: Server
    logs: list[dict]
    fatal: list[FatalError] = field(default_factory=list)

    async def dial(self, **options):
        return await asyncio.open_connection("127.0.0.1", self.server.port, **options)


def run(handle, scenario, *, features=None, **config):
    """Serves `handle` for Heartbeat, runs `scenario(rig)`, closes all."""

    async def main():
        logs: list[dict] = []
        fatal: list[FatalError] = []

        def keep(_, method, event):
            logs.append({**event, "level": method})
            raise structlog.DropEvent

        log = structlog.wrap_logger(None, processors=[keep])
        server = await serve(
            real_env(1),
            ListenerConfig("TEST", "127.0.0.1", 0, **config),
            HandlerTable([Api(HEARTBEAT, 0, VERSION, handle)]),
            on_fatal=fatal.append,
            log=log,
        )
        rig = Rig(server, logs, fatal)
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


def test_a_request_is_answered():
    async def scenario(rig):
        reader, writer = await rig.dial()
        writer.write(beat(7))
        frame = await read_frame(reader)
        assert decode_response(HEARTBEAT, VERSION, frame) == (7, answer(7))
        writer.close()
        assert rig.server.counters.requests == 1
        assert not rig.logs

    run(echo, scenario)


def test_byte_by_byte_and_pipelined():
    async def scenario(rig):
        reader, writer = await rig.dial()
        stream = b"".join(beat(n) for n in range(20))
        for byte in stream:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert [await read_number(reader) for _ in range(20)] == list(range(20))
        writer.write(stream)
        assert [await read_number(reader) for _ in range(20)] == list(range(20))

    run(echo, scenario)


def api_versions(version: int, body: bytes = b"", number: int = 1) -> bytes:
    flexible = b"\x00" if version >= 3 else b""
    head = struct.pack(">hhih", 18, version, number, -1) + flexible
    return struct.pack(">i", len(head) + len(body)) + head + body


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -5),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 0, 3, 1, -1),
        struct.pack(">ihhih", 10, HEARTBEAT, 77, 1, -1),
        struct.pack(">ihhih", 10, HEARTBEAT, 0, 1, -1),
        struct.pack(">ihhih", 10, HEARTBEAT, -1, 1, -1),
        struct.pack(">ihhih", 11, HEARTBEAT, 4, 1, 5) + b"x",
        api_versions(3, b"junk!"),
    ],
    ids=str,
)
def test_garbage_closes_that_connection_alone_with_one_line(garbage):
    async def scenario(rig):
        good_reader, good_writer = await rig.dial()
        good_writer.write(beat(1))
        await read_frame(good_reader)
        reader, writer = await rig.dial()
        # What was right before the garbage is answered.
        writer.write(beat(5) + garbage)
        assert await read_number(reader) == 5
        assert await ended(reader)
        good_writer.write(beat(2))
        assert await read_number(good_reader) == 2
        lines = [line["event"] for line in rig.logs]
        assert lines == ["connection_closed"]
        assert rig.logs[0]["reason"].startswith("malformed request")
        assert rig.server.counters.malformed == 1
        assert rig.server.counters.connections == 1

    run(echo, scenario)


@settings(max_examples=40, deadline=None)
@given(st.binary(min_size=1, max_size=200))
def test_random_bytes_hurt_nobody(data):
    async def scenario(rig):
        reader, writer = await rig.dial()
        writer.write(data)
        writer.write_eof()
        assert await ended(reader)
        good_reader, good_writer = await rig.dial()
        good_writer.write(beat(2))
        assert await read_number(good_reader) == 2
        assert rig.server.counters.handler_errors == 0

    run(echo, scenario)


def test_bytes_after_the_request_are_ignored_as_kafka_ignores_them():
    async def scenario(rig):
        reader, writer = await rig.dial()
        frame = beat(6)[4:] + b"\x01\x00\x00"
        writer.write(struct.pack(">i", len(frame)) + frame)
        assert decode_response(HEARTBEAT, VERSION, await read_frame(reader)) == (6, answer(6))

    run(echo, scenario)


def test_half_a_frame_then_end():
    async def scenario(rig):
        reader, writer = await rig.dial()
        writer.write(beat(1)[:-3])
        writer.write_eof()
        assert await ended(reader)
        assert rig.server.counters.requests == 0

    run(echo, scenario)


def test_answers_leave_in_order_though_handlers_end_out_of_order():
    laters: dict[int, Later] = {}
    futures: dict[int, asyncio.Future] = {}
    order = list(range(60))
    random.Random(5).shuffle(order)

    def handle(request):
        number = request.correlation_id
        kind = number % 4
        if kind == 0:
            return echo(request)
        if kind == 1:
            laters[number] = Later()
            return laters[number]
        futures[number] = asyncio.get_running_loop().create_future()
        if kind == 2:
            return futures[number]
        return slow(request)

    async def slow(request):
        await futures[request.correlation_id]
        return echo(request)

    async def scenario(rig):
        reader, writer = await rig.dial()
        writer.write(b"".join(beat(n) for n in range(60)))
        await until(lambda: rig.server.counters.requests == 60)
        for number in order:
            if number in laters:
                laters[number].set(answer(number))
            elif number in futures:
                futures[number].set_result(answer(number))
            await asyncio.sleep(0)
        for number in range(60):
            assert decode_response(HEARTBEAT, VERSION, await read_frame(reader)) == (
                number,
                answer(number),
            )

    run(handle, scenario)


def test_a_coroutine_may_read_its_request_late():
    gate: list[asyncio.Event] = []

    async def handle(request):
        await gate[0].wait()
        return answer(request.entity().generation_id)

    async def scenario(rig):
        gate.append(asyncio.Event())
        reader, writer = await rig.dial()
        for number in range(5):
            writer.write(beat(number, "m" * 50))
            await asyncio.sleep(0.005)
        gate[0].set()
        for number in range(5):
            frame = await read_frame(reader)
            assert decode_response(HEARTBEAT, VERSION, frame) == (number, answer(number))

    run(handle, scenario)


def test_calls_at_read_end_come_once_and_their_answers_leave_with_the_event():
    calls: list[int] = []
    waiting: list[Later] = []

    def finish():
        calls.append(len(waiting))
        for later in waiting:
            later.set(answer(1))
        waiting.clear()

    def handle(request):
        request.connection.at_read_end(finish)
        waiting.append(Later())
        return waiting[-1]

    async def scenario(rig):
        reader, writer = await rig.dial()
        writer.write(b"".join(beat(n) for n in range(10)))
        assert [await read_number(reader) for _ in range(10)] == list(range(10))
        assert sum(calls) == 10
        assert len(calls) <= 2

    run(handle, scenario)


@pytest.mark.parametrize("end", [b"\xff\xff\xff\xff", beat(2, "bad"), beat(2, "close")])
def test_calls_at_read_end_come_though_the_connection_ended(end):
    """What was accepted (an append whose answer nobody may want) is never left half done."""
    seen: list[bytes] = []
    bodies: list[memoryview] = []

    def handle(request):
        member = request.entity().member_id
        if member == "bad":
            raise RuntimeError("boom")
        if member == "close":
            raise CloseConnection("on purpose")
        bodies.append(request.body)
        request.connection.at_read_end(lambda: seen.extend(bytes(body) for body in bodies))
        return NO_RESPONSE

    async def scenario(rig):
        reader, writer = await rig.dial()
        writer.write(beat(1, "good") + end)
        assert await ended(reader)
        assert len(seen) == 1
        assert b"good" in seen[0]

    run(handle, scenario)


def test_features_that_fail_end_that_connection_alone():
    async def scenario(rig):
        def broken():
            raise RuntimeError("no image yet")

        rig.server.api_versions._features = broken
        reader, writer = await rig.dial()
        writer.write(beat(1) + api_versions(0))
        assert await read_number(reader) == 1
        assert await ended(reader)
        assert [line["event"] for line in rig.logs] == ["handler_failed"]

    run(echo, scenario)


def test_a_handlers_future_is_its_own():
    futures: list[asyncio.Future] = []

    def handle(request):
        futures.append(asyncio.get_running_loop().create_future())
        return futures[0]

    async def scenario(rig):
        _, writer = await rig.dial()
        writer.write(beat(1))
        await until(lambda: futures)
        await rig.server.close()
        futures[0].set_result(answer())

    run(handle, scenario)


def test_no_response_leaves_no_gap():
    def handle(request):
        return NO_RESPONSE if request.correlation_id % 2 else echo(request)

    async def scenario(rig):
        reader, writer = await rig.dial()
        writer.write(b"".join(beat(n) for n in range(6)))
        assert [await read_number(reader) for _ in range(3)] == [0, 2, 4]

    run(handle, scenario)


@pytest.mark.parametrize(
    ("error", "event", "counted"),
    [
        (RuntimeError("boom"), "handler_failed", 1),
        (AssertionError("bug"), "handler_failed", 1),
        (CloseConnection("as Kafka does"), "connection_closed", 0),
        (DecodeError("nonsense"), "connection_closed", 0),
        (FatalError(70, "disk gone"), "connection_closed", 0),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("mode", ["sync", "async", "later", "read_end"])
def test_an_exception_in_a_handler_ends_its_connection(error, event, counted, mode):
    def handle(request):
        if request.entity().member_id != "bad":
            return echo(request)
        if mode == "sync":
            raise error
        if mode == "async":
            return fail()
        later = Later()
        if mode == "later":
            asyncio.get_running_loop().call_soon(later.fail, error)
        else:
            request.connection.at_read_end(throw)
        return later

    def throw():
        raise error

    async def fail():
        await asyncio.sleep(0)
        raise error

    async def scenario(rig):
        good_reader, good_writer = await rig.dial()
        reader, writer = await rig.dial()
        writer.write(beat(1, "bad"))
        assert await ended(reader)
        good_writer.write(beat(2))
        assert await read_number(good_reader) == 2
        assert [line["event"] for line in rig.logs] == [event]
        assert rig.server.counters.handler_errors == counted
        assert rig.fatal == ([error] if isinstance(error, FatalError) else [])

    run(handle, scenario)


def test_an_answer_that_cannot_be_encoded_ends_the_connection():
    async def scenario(rig):
        reader, writer = await rig.dial()
        writer.write(beat(1))
        assert await ended(reader)
        assert rig.server.counters.handler_errors == 1

    run(lambda request: "no entity", scenario)


class MemoryFile:
    """Enough of world's File for ranges; `cold` makes the next reads miss the page cache."""

    path = "/log/0.log"

    def __init__(self, data: bytes):
        self.data = data
        self.cold = 0
        self.blocking = 0

    def readinto_nowait(self, buffer, position):
        if self.cold:
            self.cold -= 1
            return None
        data = self.data[position : position + len(buffer)]
        buffer[: len(data)] = data
        return len(data)

    def pread(self, length, position):
        self.blocking += 1
        return self.data[position : position + length]


@pytest.mark.parametrize("cold", [0, 1, 3])
def test_file_ranges_are_sent_in_order_warm_or_cold(cold):
    data = random.Random(1).randbytes(5_000_000)
    file = MemoryFile(data)

    def handle(request):
        if request.correlation_id % 2:
            return echo(request)
        file.cold = cold
        parts = (FileRange(file, 10, 3_000_000), b"--", FileRange(file, 0, 7))
        return frame_of(request, *parts, size=3_000_009)

    async def scenario(rig):
        reader, writer = await rig.dial(limit=1 << 23)
        writer.write(beat(0) + beat(1) + beat(2) + beat(3))
        for number in range(4):
            frame = await read_frame(reader)
            assert frame[:4] == struct.pack(">i", number)
            if number % 2 == 0:
                assert frame[5:] == data[10:3_000_010] + b"--" + data[:7]
        assert (file.blocking > 0) == (cold > 0)

    run(handle, scenario)


@pytest.mark.parametrize("cold", [0, 1])
def test_a_range_that_cannot_be_kept_ends_the_connection(cold):
    file = MemoryFile(b"short")

    def handle(request):
        file.cold = cold
        return frame_of(request, FileRange(file, 0, 50), size=50)

    async def scenario(rig):
        reader, writer = await rig.dial()
        writer.write(beat(1))
        assert await ended(reader)
        assert "/log/0.log" in rig.logs[0]["reason"]

    run(handle, scenario)


def test_many_who_read_nothing_hold_little_and_get_all_when_they_read():
    data = random.Random(2).randbytes(20_000_000)
    file = MemoryFile(data)

    def handle(request):
        return frame_of(request, FileRange(file, 0, len(data)), size=len(data))

    async def scenario(rig):
        pairs = [await rig.dial(limit=1024) for _ in range(80)]
        for _, writer in pairs:
            writer.write(beat(1))
        counters = rig.server.counters
        await until(lambda: counters.blocked == 80)
        held = [
            connection._transport.get_write_buffer_size()
            for connection in rig.server._connections.values()
        ]
        assert sum(held) < 34 * 1_300_000 + 46 * 400_000
        last, _ = pairs[-1]
        head = await last.readexactly(len(last._buffer) or 4)
        body = await last.readexactly(len(data) + 9 - len(head))
        assert (head + body)[-1000:] == data[-1000:]
        for _, writer in pairs:
            writer.transport.abort()
        await until(lambda: counters.blocked == 0)

    run(handle, scenario)


def test_a_slow_reader_stops_the_handling_of_its_requests():
    handled = 0

    def handle(request):
        nonlocal handled
        handled += 1
        return frame_of(request, bytes(100_000), size=100_000)

    async def scenario(rig):
        reader, writer = await rig.dial(limit=1024)
        writer.write(b"".join(beat(n) for n in range(3000)))
        seen = -1
        while handled != seen:
            seen = handled
            await asyncio.sleep(0.1)
        # Socket buffers and the two stream buffers hold some; the rest was never asked for.
        assert handled < 300
        for number in range(3000):
            assert await read_number(reader) == number
        assert handled == 3000

    run(handle, scenario)


def test_many_pending_requests_stop_the_reading():
    waiting: list[Later] = []

    def handle(request):
        waiting.append(Later())
        return waiting[-1]

    async def scenario(rig):
        reader, writer = await rig.dial()
        total = MAX_PENDING * 3
        writer.write(b"".join(beat(n) for n in range(total)))
        await asyncio.sleep(0.2)
        assert len(waiting) == MAX_PENDING
        for number in range(total):
            if number == len(waiting):
                await asyncio.sleep(0.01)
            waiting[number].set(answer(number))
            if number % 100 == 0:
                await asyncio.sleep(0)
        assert [await read_number(reader) for _ in range(total)] == list(range(total))

    run(handle, scenario)


def test_more_requests_than_one_turn_handles():
    async def scenario(rig):
        reader, writer = await rig.dial()
        writer.write(b"".join(beat(n) for n in range(9000)))
        assert [await read_number(reader) for _ in range(9000)] == list(range(9000))

    run(echo, scenario)


def test_idle_connections_are_closed_and_busy_ones_are_not():
    waiting: list[Later] = []

    def handle(request):
        if request.correlation_id == 1:
            waiting.append(Later())
            return waiting[0]
        return echo(request)

    async def scenario(rig):
        idle, _ = await rig.dial()
        half, half_writer = await rig.dial()
        half_writer.write(beat(3)[:-1])
        busy, busy_writer = await rig.dial()
        busy_writer.write(beat(1))
        assert await ended(idle)
        assert await ended(half)
        assert rig.server.counters.idle_closed == 2
        waiting[0].set(answer())
        assert await read_number(busy) == 1

    run(handle, scenario, idle_ms=150)


def test_connections_above_the_limit_are_refused():
    async def scenario(rig):
        first, first_writer = await rig.dial()
        first_writer.write(beat(1))
        await read_frame(first)
        second, _ = await rig.dial()
        assert await ended(second)
        assert rig.server.counters.refused == 1
        first_writer.write(beat(2))
        assert await read_number(first) == 2

    run(echo, scenario, max_connections=1)


def test_on_close_is_told_and_late_answers_are_dropped():
    told: list[str] = []
    waiting: list[Later] = []

    def handle(request):
        request.connection.on_close(lambda: told.append("closed"))
        waiting.append(Later())
        return waiting[-1]

    async def scenario(rig):
        _, writer = await rig.dial()
        writer.write(beat(1))
        await until(lambda: waiting)
        writer.transport.abort()
        await until(lambda: told)
        waiting[0].set(answer())
        await asyncio.sleep(0.01)
        assert told == ["closed"]

    run(handle, scenario)


def test_whoever_keeps_a_request_waiting_is_told_when_its_connection_ends():
    told: list[int] = []
    waiting: list[Later] = []

    def handle(request):
        later = Later()
        later.on_dropped = lambda: told.append(request.correlation_id)
        waiting.append(later)
        return later

    async def scenario(rig):
        reader, writer = await rig.dial()
        for number in (1, 2, 3):
            writer.write(beat(number))
        await until(lambda: len(waiting) == 3)
        waiting[0].set(answer())
        await read_frame(reader)
        writer.transport.abort()
        await until(lambda: len(told) == 2)
        assert told == [2, 3]

    run(handle, scenario)


def test_a_handler_that_holds_up_the_loop_is_named():
    def handle(request):
        time.sleep(0.03)
        return echo(request)

    async def scenario(rig):
        reader, writer = await rig.dial()
        writer.write(beat(1))
        await read_frame(reader)
        await until(lambda: rig.logs)
        assert rig.logs[0]["event"] == "slow_read_event"
        assert rig.logs[0]["api_key"] == HEARTBEAT
        assert rig.logs[0]["took_ms"] >= 25

    run(handle, scenario)


def test_announced_sizes_cost_no_memory():
    async def scenario(rig):
        pairs = [await rig.dial() for _ in range(50)]
        for _, writer in pairs:
            writer.write(struct.pack(">i", 100_000_000) + bytes(10))
        await until(lambda: rig.server.counters.bytes_in == 50 * 14)
        held = sum(len(c._reader._view) for c in rig.server._connections.values())
        assert held <= 50 * 16384

    run(echo, scenario)


def test_the_table_refuses_doubles():
    api = Api(HEARTBEAT, 0, 4, echo)
    with pytest.raises(ValueError, match="12"):
        HandlerTable([api]) + HandlerTable([api])
    with pytest.raises(ValueError, match="ApiVersions"):
        HandlerTable([Api(18, 0, 4, echo)])
    table = HandlerTable([api]) + HandlerTable([Api(0, 3, 9, echo, advertised_min=0)])
    assert table.versions() == [(0, 0, 9), (12, 0, 4), (18, 0, 4)]
