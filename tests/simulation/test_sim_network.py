"""The simulated network: order, windows, cuts, resets, deaths."""

import asyncio

import pytest

from simulation.machine import Machine
from simulation.network import Network
from simulation.world import World


class Recorder(asyncio.Protocol):
    """Keeps what happens on one connection."""

    def __init__(self):
        self.data = b""
        self.lost = []
        self.ended = False
        self.transport = None
        self.pauses = 0

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data

    def eof_received(self):
        self.ended = True

    def connection_lost(self, error):
        self.lost.append(error)

    def pause_writing(self):
        self.pauses += 1

    def resume_writing(self):
        self.pauses -= 1


class Buffered(asyncio.BufferedProtocol):
    """Reads into a small buffer of its own."""

    def __init__(self):
        self.buffer = bytearray(7)
        self.data = b""

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return memoryview(self.buffer)

    def buffer_updated(self, count):
        self.data += self.buffer[:count]

    def connection_lost(self, error):
        pass


async def idle(machine, env):
    await asyncio.get_running_loop().create_future()


MADE = []


@pytest.fixture(autouse=True)
def let_go():
    """Ends the worlds that a test made, as Simulation.close does."""
    yield
    for pair in MADE:
        pair.a.let_go()
        pair.b.let_go()
    MADE.clear()


class Pair:
    """Two machines, `a` listening on port 1; `connect` makes a connection from `b`."""

    def __init__(self, seed=1):
        MADE.append(self)
        self.world = World(seed)
        self.network = Network(self.world)
        self.errors = []
        self.a = self.machine("a", 1)
        self.b = self.machine("b", 2)
        self.accepted = []
        self.listen()

    def machine(self, name, number):
        def on_error(machine, message, error):
            self.errors.append((machine.name, message, error))

        machine = Machine(self.world, self.network, name, number, idle, on_error)
        machine.start()
        return machine

    def listen(self, factory=Recorder):
        def make():
            self.accepted.append(factory())
            return self.accepted[-1]

        self.a.loop.create_task(self.a.loop.create_server(make, "a", 1))
        self.run(1)

    def run(self, ms):
        scheduler = self.world.scheduler
        scheduler.run_until(scheduler.now_us + ms * 1000)

    def connect(self, factory=Recorder, host="a", port=1):
        return self.b.loop.create_task(self.b.loop.create_connection(factory, host, port))

    def connected(self):
        task = self.connect()
        self.run(50)
        _, client = task.result()
        return client, self.accepted[-1]

    def call(self, machine, function, *args):
        machine.loop.call_soon(function, *args)


@pytest.mark.parametrize("seed", range(20))
def test_bytes_arrive_whole_and_in_order(seed):
    pair = Pair(seed)
    client, server = pair.connected()
    sent = {"there": b"", "back": b""}
    chance = pair.world.chance("test")

    def write(protocol, key):
        data = chance.randbytes(chance.choice((1, 10, 5_000, 100_000)))
        sent[key] += data
        protocol.transport.write(memoryview(data))

    for _ in range(30):
        pair.call(pair.b, write, client, "there")
        pair.call(pair.a, write, server, "back")
        pair.run(chance.randrange(3))
    pair.run(5_000)
    assert server.data == sent["there"]
    assert client.data == sent["back"]
    assert client.transport.get_write_buffer_size() == 0


def test_a_buffered_protocol_gets_all_in_pieces():
    pair = Pair()
    pair.a.loop.create_task(pair.a.loop.create_server(lambda: buffered, "a", 2))
    buffered = Buffered()
    task = pair.connect(port=2)
    pair.run(50)
    pair.call(pair.b, task.result()[0].writelines, [b"0123456789", b"abcdefghij"])
    pair.run(50)
    assert buffered.data == b"0123456789abcdefghij"


def test_nobody_there_refuses_and_no_such_host_fails():
    pair = Pair()
    refused, unknown = pair.connect(port=9), pair.connect(host="x")
    pair.run(50)
    assert isinstance(refused.exception(), ConnectionRefusedError)
    assert isinstance(unknown.exception(), OSError)


def test_a_port_is_taken_once():
    pair = Pair()
    again = pair.a.loop.create_task(pair.a.loop.create_server(Recorder, "a", 1))
    free = pair.a.loop.create_task(pair.a.loop.create_server(Recorder, "a", 0))
    pair.run(1)
    assert isinstance(again.exception(), OSError)
    assert free.result().sockets[0].getsockname()[1] > 1


def test_close_sends_what_was_written_then_ends():
    pair = Pair()
    client, server = pair.connected()

    size = pair.network.link("b", "a").window + 5

    def last():
        client.transport.write(b"x" * size)
        client.transport.close()

    pair.call(pair.b, last)
    pair.run(200)
    assert len(server.data) == size
    assert server.ended
    assert (client.lost, server.lost) == ([None], [None])


def test_a_reader_who_stops_makes_the_writer_pause():
    pair = Pair()
    client, server = pair.connected()
    pair.call(pair.a, server.transport.pause_reading)
    pair.run(1)
    window = pair.network.link("b", "a").window
    pair.call(pair.b, client.transport.write, b"x" * (window + 300_000))
    pair.run(100)
    assert client.pauses == 1
    assert client.transport.get_write_buffer_size() == 300_000
    assert server.data == b""
    pair.call(pair.a, server.transport.resume_reading)
    pair.run(100)
    assert client.pauses == 0
    assert len(server.data) == window + 300_000


def test_a_cut_holds_bytes_back_one_way_and_they_arrive_after_it():
    pair = Pair()
    client, server = pair.connected()
    pair.network.cut("b", "a", pair.world.scheduler.now_ms + 3_000)
    pair.call(pair.b, client.transport.write, b"held")
    pair.call(pair.a, server.transport.write, b"through")
    pair.run(2_900)
    assert (server.data, client.data) == (b"", b"through")
    pair.run(6_000)
    assert server.data == b"held"
    assert server.lost == client.lost == []


def test_a_long_cut_ends_the_sender_and_leaves_the_other_half_open():
    pair = Pair()
    client, server = pair.connected()
    pair.network.cut("b", "a", pair.world.scheduler.now_ms + 60_000)
    pair.call(pair.b, client.transport.write, b"never")
    pair.run(30_000)
    assert isinstance(client.lost[0], TimeoutError)
    assert server.lost == []
    # What the other half sends is answered with a reset, once that gets through.
    pair.network.heal()
    pair.call(pair.a, server.transport.write, b"anyone?")
    pair.run(1_000)
    assert isinstance(server.lost[0], ConnectionResetError)


def test_a_stall_outlasts_every_timeout():
    pair = Pair()
    client, server = pair.connected()
    pair.network.stall("b", "a", pair.world.scheduler.now_ms + 90_000)
    pair.call(pair.b, client.transport.write, b"slow")
    pair.run(89_000)
    assert (server.data, client.lost) == (b"", [])
    pair.run(7_000)
    assert server.data == b"slow"


def test_connecting_through_a_cut_succeeds_after_it():
    pair = Pair()
    pair.network.cut("a", "b", pair.world.scheduler.now_ms + 2_000)
    task = pair.connect()
    pair.run(1_900)
    assert not task.done()
    pair.run(2_000)
    assert task.result()
    assert len(pair.accepted) == 1


def test_lose_resets_both_ends():
    pair = Pair()
    client, server = pair.connected()
    pair.network.lose("b", "a")
    pair.run(50)
    assert isinstance(client.lost[0], ConnectionResetError)
    assert isinstance(server.lost[0], ConnectionResetError)


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_process_is_noticed_at_once(seed):
    pair = Pair(seed)
    client, server = pair.connected()
    pair.call(pair.a, server.transport.write, b"last words")
    pair.run(0)
    pair.a.kill()
    pair.run(100)
    assert len(client.lost) == 1
    assert client.data in (b"", b"last words")
    refused = pair.connect()
    pair.run(50)
    assert isinstance(refused.exception(), ConnectionRefusedError)
    assert server.lost == []


def test_a_machine_without_power_is_silent_and_resets_when_it_is_back():
    pair = Pair()
    client, _ = pair.connected()
    task = pair.connect()
    pair.run(50)
    idle_client = task.result()[1]
    pair.a.kill(power=True)
    pair.call(pair.b, client.transport.write, b"hello?")
    dialling = pair.connect()
    pair.run(5_000)
    assert client.lost == idle_client.lost == []
    assert not dialling.done()
    pair.a.start()
    pair.run(7_000)
    assert isinstance(client.lost[0], ConnectionResetError)
    assert idle_client.lost == []  # nobody told it
    assert isinstance(dialling.exception(), ConnectionRefusedError)


def test_a_machine_that_stays_dark_is_given_up():
    pair = Pair()
    client, _ = pair.connected()
    pair.a.kill(power=True)
    pair.call(pair.b, client.transport.write, b"hello?")
    pair.run(25_000)
    assert isinstance(client.lost[0], TimeoutError)


def test_a_paused_process_is_connected_to_and_reads_later():
    pair = Pair()
    pair.a.pause(1_000)
    task = pair.connect()
    pair.run(50)
    client = task.result()[1]
    pair.call(pair.b, client.transport.write, b"waiting")
    pair.run(500)
    assert pair.accepted == []
    pair.run(1_000)
    assert pair.accepted[0].data == b"waiting"


def test_a_process_dies_at_the_operation_told():
    pair = Pair()
    client, server = pair.connected()
    pair.b.kill(ops=2)

    def write_three():
        for part in (b"1", b"2", b"3"):
            client.transport.write(part)

    pair.call(pair.b, write_three)
    pair.run(100)
    assert not pair.b.running
    assert server.data in (b"12", b"")
    assert len(server.lost) == 1
    assert pair.errors == []


def test_names_of_machines_are_addresses():
    pair = Pair()
    client, server = pair.connected()
    assert server.transport.get_extra_info("sockname") == ("a", 1)
    assert server.transport.get_extra_info("peername")[0] == "b"
    assert client.transport.get_extra_info("peername") == ("a", 1)


def test_streams_work_too():
    pair = Pair()
    seen = []

    async def serve(reader, writer):
        seen.append(await reader.readline())
        writer.write(b"pong\n")
        await writer.drain()
        writer.close()

    async def main():
        server = await asyncio.start_server(serve, "a", 7)
        async with server:
            await asyncio.sleep(1)

    async def client():
        reader, writer = await asyncio.open_connection("a", 7)
        writer.write(b"ping\n")
        await writer.drain()
        return await reader.read()

    pair.a.loop.create_task(main())
    pair.run(10)
    task = pair.b.loop.create_task(client())
    pair.run(500)
    assert (seen, task.result()) == ([b"ping\n"], b"pong\n")
