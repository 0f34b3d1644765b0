from __future__ import annotations

import contextlib
import gzip
import random
import struct

import aiokafka.codec as aio
import cramjam
import kafka.codec as pykafka
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress
from wire.errors import DecodeError

SAMPLES = [
    b"",
    b"x",
    b"abc" * 5000,
    random.Random(1).randbytes(200_000),
    bytes(300_000) + random.Random(2).randbytes(70_000),
]
ENCODERS = {
    GZIP: [aio.gzip_encode, pykafka.gzip_encode],
    SNAPPY: [aio.snappy_encode, lambda data: aio.snappy_encode(data, xerial_compatible=False)],
    LZ4: [aio.lz4_encode, pykafka.lz4_encode],
    ZSTD: [aio.zstd_encode],
}
DECODERS = {
    GZIP: [aio.gzip_decode, pykafka.gzip_decode],
    SNAPPY: [aio.snappy_decode],
    LZ4: [aio.lz4_decode, pykafka.lz4_decode],
    ZSTD: [aio.zstd_decode],
}


@pytest.mark.parametrize("sample", range(len(SAMPLES)))
@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_codecs_agree_with_the_clients(codec: int, sample: int) -> None:
    data = SAMPLES[sample]
    packed = compress(codec, memoryview(data))
    assert decompress(codec, packed, len(data)) == data
    for decode in DECODERS.get(codec, []):
        if data or codec != SNAPPY:  # aiokafka can't read an empty xerial stream
            assert bytes(decode(packed)) == data
    for encode in ENCODERS.get(codec, []):
        assert decompress(codec, memoryview(bytes(encode(data))), 1 << 20) == data


def test_the_framings_are_kafkas() -> None:
    snappy = compress(SNAPPY, bytes(70_000))
    assert snappy[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    blocks, position = 0, 16
    while position < len(snappy):
        position += 4 + struct.unpack_from(">i", snappy, position)[0]
        blocks += 1
    assert blocks == 3  # 32 KiB each
    frame = compress(LZ4, bytes(200_000))
    info = lz4.frame.get_frame_info(frame)
    assert not info["block_linked"]
    assert not info["content_size"]
    assert not info["content_checksum"]
    assert info["block_size"] == 64 << 10
    assert compress(GZIP, b"x")[:2] == b"\x1f\x8b"
    assert compress(ZSTD, b"x")[:4] == b"\x28\xb5\x2f\xfd"


def test_any_valid_lz4_frame_is_read() -> None:
    data = SAMPLES[4]
    for linked in (False, True):
        for size in (lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB):
            frame = lz4.frame.compress(
                data,
                block_linked=linked,
                block_size=size,
                content_checksum=True,
                block_checksum=True,
                store_size=True,
            )
            assert decompress(LZ4, frame, 1 << 20) == data


def test_gzip_of_several_members_and_zstd_of_several_frames() -> None:
    assert decompress(GZIP, gzip.compress(b"ab") + gzip.compress(b"cd"), 10) == b"abcd"
    frames = bytes(cramjam.zstd.compress(b"ab")) + bytes(cramjam.zstd.compress(b"cd"))
    assert decompress(ZSTD, frames, 10) == b"abcd"


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_what_comes_out_is_limited(codec: int) -> None:
    bomb = compress(codec, bytes(5_000_000))
    assert len(decompress(codec, bomb, 5_000_000)) == 5_000_000
    for limit in (0, 1, 4_999_999):
        with pytest.raises(DecodeError, match=f"more than {limit} bytes|more than"):
            decompress(codec, bomb, limit)


def test_an_announced_snappy_size_is_not_allocated() -> None:
    for data in (
        b"\xff\xff\xff\xff\x0fabc",
        compress(SNAPPY, b"") + b"\0\0\0\x08\xff\xff\xff\xff\x0fabc",
    ):
        with pytest.raises(DecodeError, match="more than"):
            decompress(SNAPPY, data, 1 << 20)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_data_cut_anywhere_is_refused(codec: int) -> None:
    packed = compress(codec, random.Random(3).randbytes(100) + bytes(500))
    boundaries = {16} if codec == SNAPPY else set()
    for length in range(len(packed)):
        if length not in boundaries:  # a xerial stream has no end mark
            with pytest.raises(DecodeError):
                decompress(codec, packed[:length], 10_000)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_trailing_bytes_are_refused(codec: int) -> None:
    with pytest.raises(DecodeError):
        decompress(codec, compress(codec, b"data") + b"junk", 1000)


@given(st.integers(1, 9), st.binary(max_size=100))
def test_random_bytes_only_ever_raise_decode_errors(codec: int, data: bytes) -> None:
    with contextlib.suppress(DecodeError):
        decompress(codec, data, 1 << 16)
    with contextlib.suppress(DecodeError):
        decompress(SNAPPY, b"\x82SNAPPY\x00" + bytes(8) + data, 1 << 16)
    with contextlib.suppress(DecodeError):
        decompress(LZ4, b"\x04\x22\x4d\x18" + data, 1 << 16)
    with contextlib.suppress(DecodeError):
        decompress(ZSTD, b"\x28\xb5\x2f\xfd" + data, 1 << 16)
    with contextlib.suppress(DecodeError):
        decompress(GZIP, b"\x1f\x8b\x08\x00" + data, 1 << 16)


@given(st.integers(1, 4), st.binary(max_size=2000))
def test_any_data_reads_back(codec: int, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


def test_unknown_codecs_are_named() -> None:
    with pytest.raises(DecodeError, match="codec 5"):
        decompress(5, b"", 1)
