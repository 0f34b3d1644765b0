"""TCP proxies in a process, between nodes of one machine where it can't give each its network.

    network_proxy.py SEED CLUSTER_DIR CLIENTS MACHINE=PUBLIC_PORT=PORT [...]

Nodes and clients connect to a node's public port; the proxy looks which process the connection
is from (nodes by their process.json; anything else is the clients' machine) and passes bytes on
as the links between the two say. What a cut holds back arrives when it has healed, as with TCP; a
lost packet is a pause for sending it again. Bytes of one connection never overtake each other.
"""

import asyncio
import json
import os
import random
import sys
from contextlib import suppress
from pathlib import Path

import psutil
from network_links import Commands

HOST = "127.0.0.1"
CHUNK_BYTES = 1 << 16
SENT_AGAIN_S = 0.2


class Proxy(Commands):
    """`ports`: (public port, port) by machine."""

    def __init__(self, directory, clients, ports, chance):
        super().__init__()
        self._directory, self._clients = Path(directory), clients
        self._ports, self._chance = ports, chance
        self.changed = asyncio.Event()
        self._serving = {}

    async def run(self):
        """Until standard input ends."""
        ended = asyncio.Event()

        def command():
            self.readable()
            self.changed.set()
            if self.ended:
                ended.set()

        asyncio.get_running_loop().add_reader(0, command)
        for machine, (public, port) in self._ports:
            await asyncio.start_server(self._accepted(machine, port), HOST, public)
        print(json.dumps("ok"), flush=True)
        await ended.wait()

    def _accepted(self, target, port):
        async def accepted(reader, writer):
            opened = None
            # The loop itself holds its tasks only weakly.
            self._serving[asyncio.current_task()] = None
            try:
                source = self._owner(writer.get_extra_info("peername")[1])
                self.counts["connections"] += 1
                await self._through(source, target)
                await self._through(target, source)
                back, opened = await asyncio.open_connection(HOST, port)
                await _first_of(
                    self._pass(source, target, reader, opened),
                    self._pass(target, source, back, writer),
                )
            except OSError:
                self.counts["connections refused or reset"] += 1
            finally:
                del self._serving[asyncio.current_task()]
                for end in (writer, opened):
                    if end is not None:
                        end.transport.abort()

        return accepted

    def _owner(self, port):
        """Whose connection it is that comes from this port."""
        owns = _looks_for(port)
        for record in self._directory.glob("nodes/*/process.json"):
            with suppress(psutil.Error, OSError, ValueError):
                if owns(json.loads(record.read_text())["pid"]):
                    return int(record.parent.name)
        return self._clients

    async def _through(self, source, target):
        """Returns when the link is not cut (any more)."""
        while self.link(source, target).cut:
            self.changed.clear()
            await self.changed.wait()

    async def _pass(self, source, target, reader, writer):
        """Bytes of one direction, each chunk in its time, in their order, until the end."""
        loop = asyncio.get_running_loop()
        row = asyncio.Queue(maxsize=64)

        async def deliver():
            while (item := await row.get()) is not None:
                due, data = item
                await asyncio.sleep(max(0.0, due - loop.time()))
                await self._through(source, target)
                writer.write(data)
                await writer.drain()
            # The end of a connection gets through no cut either.
            await self._through(source, target)

        async def collect():
            while data := await _read(reader):
                link = self.link(source, target)
                wait_s = link.delay_s(self._chance)
                if link.loss and self._chance.random() < link.loss:
                    self.counts["lost"] += 1
                    wait_s += SENT_AGAIN_S
                if link.bytes_per_s:
                    await asyncio.sleep(len(data) / link.bytes_per_s)
                self.counts["carried"] += 1
                await row.put((loop.time() + wait_s, data))
            await row.put(None)

        collecting = asyncio.create_task(collect())
        try:
            await deliver()
        finally:
            collecting.cancel()
            await asyncio.wait([collecting])


def _looks_for(port):
    """A function that tells whether the process of a pid has a connection from this port."""
    table = Path("/proc/net/tcp")
    if not table.exists():
        return lambda pid: any(
            one.laddr.port == port for one in psutil.Process(pid).net_connections("tcp4")
        )
    # Far quicker than asking psutil, and everything waits meanwhile. A row has the local address
    # in its second column and the socket's inode in its tenth.
    rows = [line.split() for line in table.read_text().splitlines() if f":{port:04X} " in line]
    sockets = [f"socket:[{row[9]}]" for row in rows if row[1].endswith(f":{port:04X}")]

    def owns(pid):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):  # closed since
                if os.readlink(entry.path) in sockets:
                    return True
        return False

    return owns


async def _read(reader):
    """The next bytes; nothing at the end, however the connection ended."""
    try:
        return await reader.read(CHUNK_BYTES)
    except ConnectionError:
        return b""


async def _first_of(*works):
    """Returns, or raises, as the first does; ends the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()


if __name__ == "__main__":
    seed, directory, clients, *given = sys.argv[1:]
    places = [tuple(map(int, word.split("="))) for word in given]
    ports = [(machine, (public, port)) for machine, public, port in places]
    asyncio.run(Proxy(directory, int(clients), ports, random.Random(seed)).run())
