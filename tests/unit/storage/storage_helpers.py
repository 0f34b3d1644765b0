"""Batches and whole-log reads for the tests of storage."""

from __future__ import annotations

import asyncio
from typing import Any

from storage.log import Log
from wire.batch import build_batch, iter_headers


def batch(count: int = 1, *, size: int = 20, time: int = 1000, step: int = 1, **fields: Any):
    """A writable batch of `count` records with values of `size` bytes."""
    records = [
        (time + number * step, b"k%d" % number, bytes([97 + number % 26]) * size, ())
        for number in range(count)
    ]
    return bytearray(build_batch(records, **fields))


def read_all(log: Log, start: int | None = None, max_bytes: int = 1 << 20) -> bytes:
    """The bytes of the log from `start` (default: its start), by ordinary reads."""
    offset = log.log_start_offset if start is None else start
    parts = []
    while (found := log.read(offset, max_bytes)) is not None:
        assert found.length > 0
        assert found.next_offset > offset
        data = found.file.pread(found.length, found.position)
        assert len(data) == found.length
        headers = [header for _, header in iter_headers(data)]
        assert sum(header.length for header in headers) == found.length
        assert headers[0].base_offset == found.first_offset <= headers[0].last_offset
        assert headers[0].last_offset >= offset
        assert headers[-1].next_offset <= found.next_offset
        parts.append(data)
        offset = found.next_offset
    assert offset == log.end_offset
    return b"".join(parts)


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)
