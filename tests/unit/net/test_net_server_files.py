"""Answers that are ranges of files, warm or cold, to those who read and those who don't."""

import random
import struct

import pytest
from net_server_rig import beat, echo, ended, frame_of, read_frame, run, until

from net.handlers import FileRange


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
