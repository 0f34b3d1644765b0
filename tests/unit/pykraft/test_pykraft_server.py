"""A node's process: what its launcher is told, and when."""

import asyncio
import os
import signal
import socket
from contextlib import asynccontextmanager, suppress
from threading import Event, Thread
from types import SimpleNamespace

import pytest

from pykraft import server
from pykraft.node_config import Address
from pykraft.ports import free_ports
from world.memory import memory_env


class OnceReady:
    """Ready for a moment, and then not for a while: the leader that it followed is lost."""

    def __init__(self, env, config):
        self.config = config
        self.failure = None
        self.ready = False
        self.connections_max = 0

    async def start_unless(self, stop):
        return True

    async def stop(self): ...

    async def failed(self):
        await asyncio.Event().wait()

    async def wait_ready(self):
        assert not self.ready

    def addresses(self):
        return {}


@asynccontextmanager
async def no_doors(node):
    yield {}


async def no_places(config): ...


def test_a_launcher_is_told_of_a_node_that_was_ready_though_it_isnt_now(monkeypatch):
    monkeypatch.setattr(server, "Node", OnceReady)
    monkeypatch.setattr(server, "open_doors", no_doors)
    monkeypatch.setattr(server, "_check_free", no_places)
    reading, writing = os.pipe()
    config = SimpleNamespace(broker_listeners=(), controller_listener="here")

    async def run():
        loop = asyncio.get_running_loop()
        loop.add_reader(reading, os.kill, os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(10):
            return await server._serve(memory_env(), config, writing, False)

    assert asyncio.run(run()) == signal.SIGTERM
    assert os.read(reading, 100) == b"ready\n"
    os.close(reading)


def connect_all_the_time(port, made, stop):
    while not stop.is_set():
        with suppress(OSError):
            made.append(socket.create_connection(("127.0.0.1", port), 5))


def test_who_connects_while_a_node_looks_for_its_addresses_is_not_left_waiting():
    """It was accepted by a listener that serves nothing, and waited for its answer for ever."""
    [port] = free_ports(1)
    taken = SimpleNamespace(bind=Address("127.0.0.1", port))
    config = SimpleNamespace(
        broker_listeners=[taken],
        controller_listener=None,
        admin=Address("localhost", 0),
        metrics=Address("localhost", 0),
    )
    made, stop = [], Event()
    client = Thread(target=connect_all_the_time, args=(port, made, stop))
    client.start()
    try:

        async def look():
            async with asyncio.timeout(60):
                while not made:
                    await server._check_free(config)

        asyncio.run(look())
    finally:
        stop.set()
        client.join()
    for connection in made:
        with connection, suppress(ConnectionResetError):
            assert connection.recv(1) == b""


def test_an_address_is_held_while_the_others_are_looked_at():
    [port] = free_ports(1)
    place = SimpleNamespace(bind=Address("127.0.0.1", port))
    other = SimpleNamespace(bind=Address("localhost", port))
    config = SimpleNamespace(
        broker_listeners=[place],
        controller_listener=other,
        admin=None,
        metrics=Address("localhost", 0),
    )
    with pytest.raises(OSError, match=rf"localhost:{port} can't be listened on: Address already"):
        asyncio.run(server._check_free(config))
    socket.create_server(("127.0.0.1", port)).close()
