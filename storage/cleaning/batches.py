"""Reading a segment's batches for a pass, each of them checked."""

from __future__ import annotations

from collections.abc import Iterator

from storage.segment import Segment
from wire.batch import HEADER_SIZE, BatchHeader, crc_ok, read_header
from wire.errors import BadHeader, DamagedFile
from world.env import Buffer

_WINDOW = 1 << 20


def read_batches(segment: Segment) -> Iterator[tuple[int, BatchHeader, Buffer]]:
    """(position, header, bytes) of each batch of a segment that doesn't grow, in order.

    For a worker thread: nothing but the file is touched. Raises DamagedFile: bytes of a wrong CRC
    must not get a new one.
    """
    file, size = segment.file, segment.size
    window, window_at, position = memoryview(b""), 0, 0
    while position < size:
        at = position - window_at
        if at + HEADER_SIZE > len(window):
            window, window_at, at = memoryview(file.pread(_WINDOW, position)), position, 0
        try:
            header = read_header(window, at)
        except BadHeader as error:
            raise segment.damaged(position, error.reason) from error
        length = header.length
        if position + length > size:
            raise segment.damaged(position, f"a batch of {length} bytes ends past the file")
        if at + length > len(window):
            window = memoryview(file.pread(max(_WINDOW, length), position))
            window_at, at = position, 0
        if not crc_ok(window, at, length):
            raise segment.damaged(position, "CRC is wrong")
        yield position, header, window[at : at + length]
        position += length


def damaged_batch(segment: Segment, position: int, error: Exception) -> DamagedFile:
    """What a batch of sound CRC is whose content makes no sense."""
    return segment.damaged(position, str(error))
