"""A node's process: what its launcher is told, and when."""

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from types import SimpleNamespace

from pykraft import server
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
