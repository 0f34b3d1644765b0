import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from net.frames import BufferPool, FrameReader
from wire.errors import DecodeError


def feed(reader: FrameReader, data: bytes) -> int:
    """Writes as much of `data` as the reader takes at once; returns the count."""
    buffer = reader.get_buffer()
    count = min(len(buffer), len(data))
    buffer[:count] = data[:count]
    reader.received(count)
    return count


def drain(reader: FrameReader, *, owned: bool = False) -> list[bytes]:
    frames = []
    while (frame := reader.next_owned() if owned else reader.next_frame()) is not None:
        frames.append(bytes(frame))
    reader.keep_rest()
    return frames


def framed(frames: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


@given(
    frames=st.lists(st.binary(max_size=300), max_size=20),
    cuts=st.lists(st.integers(1, 400), min_size=1, max_size=30),
    scratch=st.integers(1, 500),
    pooled=st.booleans(),
    owned=st.booleans(),
)
def test_any_cutting_gives_the_same_frames(frames, cuts, scratch, pooled, owned):
    reader = FrameReader(bytearray(scratch), 1000, BufferPool() if pooled else None)
    stream = framed(frames)
    got = []
    position = turn = 0
    while position < len(stream):
        piece = stream[position : position + cuts[turn % len(cuts)]]
        position += feed(reader, piece)
        got += drain(reader, owned=owned)
        turn += 1
    assert got == frames
    assert reader.pending == 0


@given(frames=st.lists(st.binary(max_size=50), min_size=2, max_size=20), stop=st.integers(0, 5))
def test_frames_left_over_when_stopped_early_come_first_later(frames, stop):
    reader = FrameReader(bytearray(4096), 1000, BufferPool())
    feed(reader, framed(frames))
    got = []
    while True:
        for _ in range(stop + 1):
            frame = reader.next_frame()
            if frame is None:
                break
            got.append(bytes(frame))
        reader.keep_rest()
        if not reader.has_frame:
            break
    assert got == frames


def test_byte_by_byte():
    reader = FrameReader(bytearray(64), 1000)
    got = []
    for byte in framed([b"one", b"", b"three"]):
        assert feed(reader, bytes([byte])) == 1
        got += drain(reader)
    assert got == [b"one", b"", b"three"]


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_sizes_out_of_range_are_refused(size):
    reader = FrameReader(bytearray(64), 1000)
    feed(reader, struct.pack(">i", size))
    assert reader.has_frame or size > 0
    with pytest.raises(DecodeError, match=str(size)):
        reader.next_frame()


def test_memory_follows_the_bytes_that_arrived():
    reader = FrameReader(bytearray(1 << 20), 200 << 20, BufferPool())
    feed(reader, struct.pack(">i", 100 << 20) + b"x" * 10)
    drain(reader)
    assert len(reader.get_buffer()) < 32 * 1024
    arrived = 14
    while arrived < 3 << 20:
        arrived += feed(reader, bytes(len(reader.get_buffer())))
        drain(reader)
        assert len(reader.get_buffer()) <= max(2 * arrived, 32 * 1024)


def test_an_owned_frame_survives_what_comes_after():
    reader = FrameReader(bytearray(32), 1000)
    first, second = bytes(range(100)), bytes(100)
    stream = framed([first, second])
    frames = []
    while stream:
        stream = stream[feed(reader, stream) :]
        while (frame := reader.next_owned()) is not None:
            frames.append(frame)
        reader.keep_rest()
    assert [bytes(frame) for frame in frames] == [first, second]
    assert all(frame.readonly for frame in frames)


def test_pool_reuses_buffers_up_to_its_limit():
    pool = BufferPool(limit_bytes=40_000)
    first, second, third = pool.take(10), pool.take(10), pool.take(10)
    for buffer in (first, second, third):
        pool.give(buffer)
    assert pool.take(16_384) is second
    assert pool.take(1) is first
    assert pool.take(1) is not third
    assert len(pool.take(5 << 20)) == 5 << 20
