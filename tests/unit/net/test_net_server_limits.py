"""What a server allows a connection: requests, time, bytes; and how many of them there may be."""

import asyncio
import struct
import time

import pytest
from net_server_rig import (
    HEARTBEAT,
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

from net.connection import MAX_PENDING
from net.handlers import Api, HandlerTable, Later


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
        await until(lambda: rig.slow)
        assert rig.slow[0]["api_key"] == HEARTBEAT
        assert rig.slow[0]["took_ms"] >= 25

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
