import asyncio
import contextlib
import struct

import pytest

from net.client import Channel, Connection
from net.errors import ConnectFailed, ConnectionLost, RequestTimedOut, UnsupportedVersion
from net.handlers import NO_RESPONSE, Api, HandlerTable, Later
from net.server import ListenerConfig, serve
from wire.errors import ErrorCode
from wire.messages import (
    decode_body,
    encode_body,
    encode_response,
    fill,
    millis,
    request_class,
    request_module,
    response_class,
    response_module,
)
from world.real import real_env

HEARTBEAT = 12


def answer(number, version=4):
    return fill(
        response_class(HEARTBEAT, version),
        throttle_time=millis(number),
        error_code=ErrorCode.none,
    )


def build(number, member="m"):
    return lambda version, module: fill(
        module.HeartbeatRequest, group_id="g", generation_id=number, member_id=member
    )


def handle(request):
    entity = request.entity()
    kind = entity.member_id
    if kind == "silent":
        return NO_RESPONSE
    if kind == "never":
        return Later()
    if kind == "close":
        asyncio.get_running_loop().call_soon(request.connection.abort)
        return Later()
    return answer(entity.generation_id, request.api_version)


@contextlib.asynccontextmanager
async def listening(low=0, high=4, port=0):
    server = await serve(
        real_env(1),
        ListenerConfig("TEST", "127.0.0.1", port),
        HandlerTable([Api(HEARTBEAT, low, high, handle)]),
    )
    try:
        yield server
    finally:
        await server.close()


async def dial(port, **options):
    return await Connection.connect(
        real_env(1), "127.0.0.1", port, client_id="tester", timeout_ms=2000, **options
    )


def limited(main):
    async def bounded():
        async with asyncio.timeout(20):
            await main()

    asyncio.run(bounded())


def test_calls_in_the_best_common_version():
    async def main():
        async with listening(1, 3) as server:
            connection = await dial(server.port)
            assert connection.version(HEARTBEAT) == 3
            assert connection.version(HEARTBEAT, 2) == 2
            assert connection.offers(HEARTBEAT) == (1, 3)
            got = await asyncio.gather(
                *(connection.call(HEARTBEAT, build(n), 1000) for n in range(50))
            )
            assert [entity.throttle_time for entity in got] == [millis(n) for n in range(50)]
            older = await connection.call(HEARTBEAT, build(3), 1000, max_version=1)
            assert older == answer(3, 1)
            for key, limit, text in (
                (HEARTBEAT, 0, "at most 0, the peer 1-3"),
                (3, None, "the peer none"),
                (999, None, "we speak none"),
            ):
                with pytest.raises(UnsupportedVersion, match=text):
                    connection.version(key, limit)
            connection.close()

    limited(main)


def test_raw_bodies():
    async def main():
        async with listening() as server:
            connection = await dial(server.port)
            entity = build(42)(4, request_module(HEARTBEAT, 4))
            body = encode_body(entity)
            first = connection.send_raw(HEARTBEAT, 4, body)
            second = connection.send_raw(HEARTBEAT, 4, [body[:3], body[3:]], 1000)
            for future in (first, second):
                got = await future
                assert decode_body(response_class(HEARTBEAT, 4), got) == answer(42)
            third = connection.send_raw(HEARTBEAT, 4, body)
            connection.close()
            with pytest.raises(ConnectionLost):
                await third
            with pytest.raises(ConnectionLost):
                await connection.send_raw(HEARTBEAT, 4, body)

    limited(main)


def test_a_lost_connection_fails_all_pending_at_once():
    async def main():
        async with listening() as server:
            told = []
            connection = await dial(server.port, on_close=told.append)
            calls = [
                asyncio.create_task(connection.call(HEARTBEAT, build(n, kind), 60_000))
                for n, kind in enumerate(["never", "never", "close"])
            ]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(result) for result in results] == [ConnectionLost] * 3
            assert connection.closed
            assert len(told) == 1
            assert isinstance(told[0], Exception)
            with pytest.raises(ConnectionLost):
                await connection.call(HEARTBEAT, build(1), 1000)

    limited(main)


def test_the_end_of_the_server_is_seen_at_once():
    async def main():
        ended = asyncio.Event()
        async with listening() as server:
            connection = await dial(server.port, on_close=lambda error: ended.set())
            await connection.call(HEARTBEAT, build(1), 1000)
        await ended.wait()
        assert connection.closed

    limited(main)


def test_our_own_close_is_told_without_an_error():
    async def main():
        async with listening() as server:
            told = []
            connection = await dial(server.port, on_close=told.append)
            connection.close()
            connection.close()
            assert told == [None]

    limited(main)


def test_a_timeout_fails_its_own_request_alone():
    async def main():
        async with listening() as server:
            connection = await dial(server.port)
            with pytest.raises(RequestTimedOut, match="50 ms"):
                await connection.call(HEARTBEAT, build(1, "silent"), 50)
            assert not connection.closed
            assert await connection.call(HEARTBEAT, build(2), 1000) == answer(2)

    limited(main)


def test_a_late_answer_is_dropped():
    async def main():
        release = asyncio.Event()

        async def slow(request):
            entity = request.entity()
            if entity.generation_id == 1:
                await release.wait()
            return answer(entity.generation_id)

        env = real_env(1)
        table = HandlerTable([Api(HEARTBEAT, 0, 4, slow)])
        server = await serve(env, ListenerConfig("T", "127.0.0.1", 0), table)
        connection = await dial(server.port)
        with pytest.raises(RequestTimedOut):
            await connection.call(HEARTBEAT, build(1), 30)
        pending = asyncio.create_task(connection.call(HEARTBEAT, build(2), 1000))
        await asyncio.sleep(0)
        release.set()
        assert await pending == answer(2)
        await server.close()

    limited(main)


def test_a_silent_peer_counts_as_gone():
    async def main():
        async with listening() as server:
            told = []
            connection = await dial(server.port, on_close=told.append)
            with pytest.raises(RequestTimedOut):
                await connection.call(HEARTBEAT, build(1, "never"), 1600)
            assert connection.closed
            assert "silent" in str(told[0])

    limited(main)


async def fake_peer(script):
    """A listener that answers each connection with `script(reader, writer)`."""

    async def serve_one(reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await script(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def next_frame(reader):
    size = struct.unpack(">i", await reader.readexactly(4))[0]
    return await reader.readexactly(size)


def versions_entity(version, code, rows):
    module = response_module(18, version)
    keys = tuple(
        fill(module.ApiVersion, api_key=k, min_version=a, max_version=b) for k, a, b in rows
    )
    return fill(
        response_class(18, version), error_code=code, api_keys=keys, throttle_time=millis(0)
    )


@pytest.mark.parametrize(("rows", "retry"), [([(18, 0, 3)], 3), ([], 0), ([(18, 0, 1)], 1)])
def test_older_peers_are_asked_again_in_their_version(rows, retry):
    asked = []

    async def script(reader, writer):
        while True:
            frame = await next_frame(reader)
            key, version, number = struct.unpack_from(">hhi", frame)
            asked.append((key, version))
            if version == 4:
                entity = versions_entity(0, ErrorCode.unsupported_version, rows)
                writer.write(encode_response(18, 0, number, entity))
            else:
                entity = versions_entity(version, ErrorCode.none, [(18, 0, 3), (12, 0, 2)])
                writer.write(encode_response(18, version, number, entity))

    async def main():
        server, port = await fake_peer(script)
        connection = await dial(port)
        assert asked == [(18, 4), (18, retry)]
        assert connection.version(HEARTBEAT) == 2
        connection.close()
        server.close()

    limited(main)


async def _closes(reader, writer):
    await next_frame(reader)


async def _answers_garbage(reader, writer):
    await next_frame(reader)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await reader.read()


async def _wrong_number(reader, writer):
    await next_frame(reader)
    writer.write(struct.pack(">iihi", 10, 12345, 0, 0))
    await reader.read()


async def _refuses_all(reader, writer):
    while True:
        number = struct.unpack_from(">hhi", await next_frame(reader))[2]
        entity = versions_entity(0, ErrorCode.unsupported_version, [(18, 0, 4)])
        writer.write(encode_response(18, 0, number, entity))


async def _error(reader, writer):
    number = struct.unpack_from(">hhi", await next_frame(reader))[2]
    writer.write(encode_response(18, 4, number, versions_entity(4, ErrorCode.invalid_request, [])))
    await reader.read()


@pytest.mark.parametrize("script", [_closes, _answers_garbage, _wrong_number, _refuses_all, _error])
def test_peers_that_are_no_kafka(script):
    async def main():
        server, port = await fake_peer(script)
        told = []
        with pytest.raises(ConnectFailed, match=str(port)):
            await dial(port, on_close=told.append)
        assert told == []
        server.close()

    limited(main)


def test_a_peer_that_closes_is_named_once():
    async def main():
        server, port = await fake_peer(_closes)
        with pytest.raises(ConnectFailed, match=f"^127.0.0.1:{port}: [^:]*$"):
            await dial(port)
        server.close()

    limited(main)


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", 99999), ("127.0.0.1", -1), ("a" * 70 + ".x", 1), ("", 1)]
)
def test_addresses_that_cannot_be(host, port):
    async def main():
        channel = Channel(real_env(1), host, port, client_id="t", backoff_ms=1)
        for _ in range(2):
            with pytest.raises(ConnectFailed):
                await channel.call(HEARTBEAT, build(1), 3000)
        assert channel.connect_failures == 2

    limited(main)


def test_a_peer_that_says_nothing():
    async def main():
        async def script(reader, writer):
            await reader.read()

        server, port = await fake_peer(script)
        told = f"^127.0.0.1:{port}: no answer to ApiVersions within 100 ms$"
        with pytest.raises(ConnectFailed, match=told):
            await Connection.connect(real_env(1), "127.0.0.1", port, client_id="t", timeout_ms=100)
        server.close()

    limited(main)


def test_a_malformed_response_ends_the_connection():
    async def script(reader, writer):
        number = struct.unpack_from(">hhi", await next_frame(reader))[2]
        entity = versions_entity(4, ErrorCode.none, [(18, 0, 4), (12, 0, 4)])
        writer.write(encode_response(18, 4, number, entity))
        number = struct.unpack_from(">hhi", await next_frame(reader))[2]
        writer.write(struct.pack(">iib", 5, number, 0))
        await reader.read()

    async def main():
        server, port = await fake_peer(script)
        connection = await dial(port)
        with pytest.raises(ConnectionLost, match="malformed"):
            await connection.call(HEARTBEAT, build(1), 1000)
        assert connection.closed
        server.close()

    limited(main)


def free_port():
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_a_channel_connects_once_for_many_and_again_after_a_loss():
    async def main():
        port = free_port()
        lost = []
        channel = Channel(
            real_env(1), "127.0.0.1", port, client_id="t", backoff_ms=5, on_disconnect=lost.append
        )
        with pytest.raises(ConnectFailed):
            await channel.call(HEARTBEAT, build(1), 500)
        async with listening(port=port) as server:
            got = await asyncio.gather(*(channel.call(HEARTBEAT, build(n), 500) for n in range(9)))
            assert got == [answer(n) for n in range(9)]
            assert channel.connects == 1
            assert server.counters.accepted == 1
            assert channel.connected
            entity = fill(request_class(HEARTBEAT, 2), group_id="g", generation_id=5, member_id="m")
            assert await channel.send(entity, 500) == answer(5, 2)
            with pytest.raises(ConnectionLost):
                await channel.call(HEARTBEAT, build(1, "close"), 500)
            assert len(lost) == 1
            assert await channel.call(HEARTBEAT, build(7), 500) == answer(7)
            assert (channel.connects, channel.disconnects, channel.connect_failures) == (2, 1, 1)
        channel.close()
        with pytest.raises(ConnectFailed, match="closed"):
            await channel.call(HEARTBEAT, build(1), 500)

    limited(main)


def test_a_channel_backs_off():
    async def main():
        channel = Channel(
            real_env(1), "127.0.0.1", free_port(), client_id="t", backoff_ms=20, backoff_max_ms=80
        )
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(5):
            with pytest.raises(ConnectFailed):
                await channel.call(HEARTBEAT, build(1), 5000)
        # 20 + 40 + 80 + 80 ms between the five attempts, a fifth less at most.
        assert loop.time() - began >= 0.8 * 0.220 - 0.01
        assert channel.connect_failures == 5
        with pytest.raises(ConnectFailed, match="5 ms"):
            await channel.call(HEARTBEAT, build(1), 5)
        channel.close()

    limited(main)


def test_a_channel_follows_its_address():
    async def main():
        channel = Channel(real_env(1), client_id="t")
        with pytest.raises(ConnectFailed, match="not known"):
            await channel.call(HEARTBEAT, build(1), 500)
        async with listening() as first, listening() as second:
            channel.set_address("127.0.0.1", first.port)
            assert await channel.call(HEARTBEAT, build(1), 500) == answer(1)
            waiting = asyncio.create_task(channel.call(HEARTBEAT, build(1, "never"), 5000))
            await asyncio.sleep(0.01)
            channel.set_address("127.0.0.1", first.port)
            assert channel.connected
            channel.set_address("127.0.0.1", second.port)
            with pytest.raises(ConnectionLost):
                await waiting
            assert await channel.call(HEARTBEAT, build(2), 500) == answer(2)
            assert channel.address == ("127.0.0.1", second.port)
            assert (first.counters.accepted, second.counters.accepted) == (1, 1)
        channel.close()

    limited(main)
