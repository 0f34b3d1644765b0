"""Compacted logs for the tests of the cleaner: keys and values as text, read back the same way."""

from __future__ import annotations

from typing import Any, NamedTuple

from storage_helpers import read_all

from storage.cleaning.dirt import Dirt, measure
from storage.cleaning.throttle import Throttle
from storage.cleaning.work import Limits, Pass, clean
from storage.config import LogConfig
from storage.log import Log
from wire.batch import (
    BatchHeader,
    build_batch,
    crc_ok,
    decode_records,
    iter_headers,
    read_header,
    record_bytes,
    with_records,
)
from world.env import Env
from world.memory import memory_env

COMPACTED = LogConfig(
    segment_bytes=600,
    index_interval_bytes=100,
    cleanup_compact=True,
    cleanup_delete=False,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1_000,
)


class Seen(NamedTuple):
    """A record as read back."""

    offset: int
    time: int
    key: str | None
    value: str | None


async def opened(env: Env | None = None, config: LogConfig = COMPACTED, **options: Any) -> Log:
    return await Log.open(env or memory_env(1), "/p", config, **options)


def records_batch(*pairs: tuple[str | None, str | None], time: int = 1000, **fields: Any):
    """A writable batch of (key, value); a value of None is a tombstone."""
    records = [
        (time + n, k if k is None else k.encode(), v if v is None else v.encode(), ())
        for n, (k, v) in enumerate(pairs)
    ]
    return bytearray(build_batch(records, **fields))


def forged(batch: Any, edit: Any) -> bytearray:
    """The batch with `edit(records' bytes)` for its records, and a sound CRC."""
    header = read_header(batch)
    return bytearray(with_records(header, edit(record_bytes(batch, 0, header)))[1])


def append(log: Log, *pairs: tuple[str | None, str | None], time: int = 1000, **fields: Any) -> int:
    """Append one batch; its base offset."""
    return log.append_as_leader([records_batch(*pairs, time=time, **fields)], 1).base_offset


def batches_of(log: Log) -> list[tuple[BatchHeader, bytes]]:
    """All batches, each with a sound CRC, offsets rising."""
    data = read_all(log)
    found = []
    end = -1
    for position, header in iter_headers(data):
        assert crc_ok(data, position, header.length)
        assert header.base_offset > end, "offsets rise"
        end = header.last_offset
        found.append((header, data[position : position + header.length]))
    return found


def seen(log: Log) -> list[Seen]:
    """All data records."""
    return [
        Seen(
            record.offset,
            record.timestamp,
            None if record.key is None else record.key.decode(),
            None if record.value is None else record.value.decode(),
        )
        for header, data in batches_of(log)
        if not header.is_control
        for record in decode_records(data, 0, header)
    ]


def pairs(log: Log) -> list[tuple[str | None, str | None]]:
    return [(record.key, record.value) for record in seen(log)]


def limits(map_bytes: int = 1 << 20, load_factor: float = 0.9) -> Limits:
    return Limits(map_bytes, load_factor, Throttle(1e300))


def dirt_of(log: Log, stable: int | None = None) -> Dirt:
    return measure(log, log.end_offset if stable is None else stable, log.env.clock.wall_ms())


async def one_pass(log: Log, stable: int | None = None, **more: Any) -> Pass:
    """A pass over all but the active segment."""
    dirt = dirt_of(log, stable)
    await log.flush(dirt.end)
    return await clean(log, dirt, limits(**more))


async def clean_all(log: Log) -> None:
    """Begins a new segment, so that all of the log may be cleaned, and cleans it."""
    log.roll()
    await one_pass(log)
