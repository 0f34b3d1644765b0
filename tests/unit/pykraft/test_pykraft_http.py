"""The metrics listener against whatever connects to it."""

import asyncio
from contextlib import suppress

import pytest

from pykraft.http import CONNECTIONS_MAX, REQUEST_BYTES_MAX, Answer, serve_http

ROUTES = {
    "/metrics": lambda: Answer(200, "text/plain", b"one 1\n"),
    "/readyz": lambda: Answer(503, "application/json", b"{}"),
}


def ask(*chunks, routes=ROUTES):
    """What comes back until the server closes the connection."""

    async def main():
        server = await serve_http("127.0.0.1", 0, routes)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for chunk in chunks:
                writer.write(chunk)
                await writer.drain()
                await asyncio.sleep(0)
            async with asyncio.timeout(10):
                return await reader.read()
        finally:
            writer.close()
            server.close()

    return asyncio.run(main())


def status(answer):
    assert answer.startswith(b"HTTP/1.1 ")
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize("path", ["/metrics", "/metrics?name=x"])
def test_a_path_is_answered_whole(path):
    answer = ask(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, body = answer.split(b"\r\n\r\n", 1)
    assert status(answer) == 200
    assert body == b"one 1\n"
    assert b"Content-Length: 6" in head
    assert b"Connection: close" in head


def test_a_request_may_come_in_pieces():
    assert status(ask(b"GET /me", b"trics HTTP/1.0\r\n", b"\r\n")) == 200


def test_not_ready_says_so():
    assert status(ask(b"GET /readyz HTTP/1.1\r\n\r\n")) == 503


def test_an_unknown_path_is_told_which_there_are():
    answer = ask(b"GET /admin HTTP/1.1\r\n\r\n")
    assert status(answer) == 404
    assert answer.endswith(b"served here: /metrics, /readyz\n")


def test_only_get():
    assert status(ask(b"POST /metrics HTTP/1.1\r\n\r\n")) == 405


@pytest.mark.parametrize(
    "garbage",
    [
        b"\r\n\r\n",
        b"hello\r\n\r\n",
        bytes(range(256)) + b"\r\n\r\n",
        b"\x00\x00\x00\x10 a b c\r\n\r\n",
    ],
)
def test_garbage_is_a_bad_request(garbage):
    assert status(ask(garbage)) == 400


def test_a_request_that_does_not_end_is_cut_off():
    assert status(ask(b"GET /metrics HTTP/1.1\r\nX: ", b"x" * (REQUEST_BYTES_MAX + 1))) == 400


def test_what_comes_after_the_answer_is_ignored():
    answer = ask(b"GET /metrics HTTP/1.1\r\n\r\nGET /readyz HTTP/1.1\r\n\r\n")
    assert answer.count(b"HTTP/1.1") == 1


def test_a_peer_that_says_nothing_holds_nobody_up():
    async def main():
        server = await serve_http("127.0.0.1", 0, ROUTES)
        port = server.sockets[0].getsockname()[1]
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        silent.write(b"GET /met")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(10):
            answer = await reader.read()
        for one in (silent, writer):
            one.close()
        server.close()
        return answer

    assert status(asyncio.run(main())) == 200


def test_silent_peers_take_few_places_and_not_for_long():
    async def main():
        server = await serve_http("127.0.0.1", 0, ROUTES, request_time_s=0.3)
        port = server.sockets[0].getsockname()[1]
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        refused = 0
        async with asyncio.timeout(20):
            for reader, writer in silent:
                writer.write(b"GET /met")
                with suppress(ConnectionError):
                    assert await reader.read() == b""
                refused += 1
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            answer = await reader.read()
        for _, one in [*silent, (reader, writer)]:
            one.close()
        server.close()
        return refused, answer

    refused, answer = asyncio.run(main())
    assert refused == 200
    assert status(answer) == 200


def test_places_are_given_back_at_once():
    async def main():
        server = await serve_http("127.0.0.1", 0, ROUTES, request_time_s=60)
        port = server.sockets[0].getsockname()[1]
        for _ in range(2 * CONNECTIONS_MAX):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert status(await reader.read()) == 200
            writer.close()
        server.close()

    asyncio.run(main())
