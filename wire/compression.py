"""The four codecs as Kafka's clients frame them, with a limit on what comes out.

Snappy: the framing of snappy-java ("xerial"), bare blocks accepted too. LZ4: the frame format
with independent 64 KiB blocks and no content size, which is what Kafka's reader takes.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Any

import cramjam
import lz4.frame

from wire.errors import DecodeError

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
# A bomb's limit where the caller has no better one: far above any max.message.bytes in use.
MAX_DECOMPRESSED = 256 << 20

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEAD = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 << 10
_INT32 = struct.Struct(">i")


def compress(codec: int, data: Any) -> bytes:
    """`data` compressed and framed; codec 0 gives it back. Unknown codecs are the caller's bug."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return gzip.compress(data, compresslevel=6, mtime=0)
    if codec == SNAPPY:
        return _snappy_compress(memoryview(data))
    if codec == LZ4:
        framed: bytes = lz4.frame.compress(
            data,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        return framed
    assert codec == ZSTD, f"no codec {codec}"
    return bytes(cramjam.zstd.compress(data, 3))


def decompress(codec: int, data: Any, limit: int = MAX_DECOMPRESSED) -> bytes:
    """What was compressed; DecodeError if it isn't valid, cut short or larger than `limit`."""
    if codec == NONE:
        if len(data) > limit:
            raise _too_large(codec, limit)
        return bytes(data)
    if not GZIP <= codec <= ZSTD:
        raise DecodeError(f"no compression codec {codec}")
    try:
        out = _DECOMPRESSORS[codec](memoryview(data), limit)
    except (zlib.error, cramjam.DecompressionError, RuntimeError, EOFError) as error:
        raise DecodeError(f"invalid {NAMES[codec]} data: {error}") from error
    if len(out) > limit:
        raise _too_large(codec, limit)
    return out


def _too_large(codec: int, limit: int) -> DecodeError:
    return DecodeError(f"{NAMES[codec]} data decompresses to more than {limit} bytes")


def _gunzip(data: memoryview, limit: int) -> bytes:
    out = bytearray()
    rest = bytes(data)
    while True:  # one round a gzip member; nearly always there is one
        stream = zlib.decompressobj(wbits=31)
        out += stream.decompress(rest, limit + 1 - len(out))
        if len(out) > limit:
            break
        if not stream.eof:
            raise DecodeError("gzip data cut short")
        rest = stream.unused_data
        if not rest:
            break
    return bytes(out)


def _snappy_compress(data: memoryview) -> bytes:
    out = bytearray(_XERIAL_HEAD)
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        out += _INT32.pack(len(block))
        out += block
    return bytes(out)


def _snappy_block(block: memoryview, limit: int) -> bytes:
    # The announced size is allocated, so it's checked first.
    if cramjam.snappy.decompress_raw_len(block) > limit:
        raise _too_large(SNAPPY, limit)
    return bytes(cramjam.snappy.decompress_raw(block))


def _unsnappy(data: memoryview, limit: int) -> bytes:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _snappy_block(data, limit)
    out = bytearray()
    pos = 16
    if len(data) < pos:
        raise DecodeError("snappy data cut short")
    while pos < len(data):
        if len(data) - pos < 4:
            raise DecodeError("snappy data cut short")
        (length,) = _INT32.unpack_from(data, pos)
        pos += 4
        if not 0 <= length <= len(data) - pos:
            raise DecodeError(f"snappy block of {length} bytes with {len(data) - pos} left")
        out += _snappy_block(data[pos : pos + length], limit - len(out))
        pos += length
    return bytes(out)


def _unlz4(data: memoryview, limit: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    out: bytes = stream.decompress(data, max_length=limit + 1)
    if len(out) > limit:
        return out
    if not stream.eof:
        raise DecodeError("lz4 data cut short")
    if stream.unused_data:
        raise DecodeError("bytes after the lz4 frame")
    return out


def _unzstd(data: memoryview, limit: int) -> bytes:
    # Content sizes are optional in frames and Kafka's clients leave them out: guess and grow.
    size = min(limit + 1, max(1 << 16, len(data) * 4))
    while True:
        buffer = bytearray(size)
        try:
            written = cramjam.zstd.decompress_into(data, buffer)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
            if size > limit:
                raise _too_large(ZSTD, limit) from error
            size = min(limit + 1, size * 4)
            continue
        return bytes(memoryview(buffer)[:written])


_DECOMPRESSORS = {GZIP: _gunzip, SNAPPY: _unsnappy, LZ4: _unlz4, ZSTD: _unzstd}
