"""A server and its handlers: requests, answers in order, garbage, faults."""

import asyncio
import random
import struct

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from net_server_rig import (
    HEARTBEAT,
    VERSION,
    answer,
    beat,
    echo,
    ended,
    frame_of,
    read_frame,
    read_number,
    run,
    until,
)

from net.handlers import NO_RESPONSE, CloseConnection, Later
from wire.errors import DecodeError, FatalError
from wire.messages import decode_response


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


@examples(40)
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
        kind = number % 5
        if kind == 0:
            return echo(request)
        if kind == 4:
            at_once = Later()
            at_once.set(echo(request))
            return at_once
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


def test_a_later_that_is_set_at_once_is_an_answer_like_any_other():
    """Behind what waits, in the event's write where nothing does; a frame, an entity or none."""
    first = Later()

    def handle(request):
        number = request.correlation_id
        if number == 0:
            return first
        later = Later()
        if number == 1:
            later.set(NO_RESPONSE)
        elif number == 2:
            later.set(frame_of(request, bytes(7), size=7))
        else:
            later.set(echo(request))
        return later

    async def scenario(rig):
        reader, writer = await rig.dial()
        writer.write(b"".join(beat(n) for n in range(4)))
        await until(lambda: rig.server.counters.requests == 4)
        [connection] = rig.server._connections.values()
        assert connection.pending == 3
        assert rig.server.counters.bytes_out == 0
        first.set(answer(0))
        assert [await read_number(reader) for _ in range(3)] == [0, 2, 3]
        assert connection.pending == 0
        writer.write(b"".join(beat(n) for n in range(1, 4)))
        assert [await read_number(reader) for _ in range(2)] == [2, 3]

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
@pytest.mark.parametrize("mode", ["sync", "async", "later", "later_at_once", "read_end"])
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
        elif mode == "later_at_once":
            later.fail(error)
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
