"""Reading a partition of `__consumer_offsets` back, for a coordinator that begins."""

from __future__ import annotations

from typing import Any, NamedTuple

from broker.groups.events import NO_PRODUCER
from storage.log import Log
from storage.reading import Slice
from wire.batch import BatchHeader, crc_ok, decode_records, iter_headers
from wire.control import ControlType, decode_control
from wire.errors import BadHeader, DamagedFile, DecodeError
from world.env import Env, File


class Stored(NamedTuple):
    """A record in the log; `producer_id` is NO_PRODUCER outside transactions."""

    offset: int
    key: bytes
    value: bytes | None
    producer_id: int


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    committed: bool


Item = Stored | TransactionMarker


class Part(NamedTuple):
    """Records and markers in the log's order; the next part begins at `next_offset`."""

    items: list[Item]
    next_offset: int
    size: int


class LoadReport:
    """What a broker's partitions load, for one line when none is being loaded any more: a broker
    that starts may lead all of them."""

    def __init__(self, env: Env, log: Any) -> None:
        self._env = env
        self._log = log
        self._loading: dict[int, None] = {}
        self._began_ms = 0
        self._loaded: list[int] = []
        self._records = self._bytes = 0

    def begins(self, partition: int) -> None:
        if not self._loading and not self._loaded:
            self._began_ms = self._env.clock.now_ms()
        self._loading[partition] = None

    def loaded(self, partition: int, records: int, size: int) -> None:
        self._loaded.append(partition)
        self._records += records
        self._bytes += size
        self.ends(partition)

    def ends(self, partition: int) -> None:
        """It is loaded, or can't be for now, or is another broker's."""
        self._loading.pop(partition, None)
        if self._loading or not self._loaded:
            return
        one = {"partition": self._loaded[0]} if len(self._loaded) == 1 else {}
        self._log.info(
            "groups_loaded",
            **one,
            partitions=len(self._loaded),
            records=self._records,
            bytes=self._bytes,
            took_ms=self._env.clock.now_ms() - self._began_ms,
        )
        self._loaded = []
        self._records = self._bytes = 0


async def read_part(env: Env, log: Log, offset: int, end: int, max_bytes: int) -> Part:
    """What lies from `offset` on in one segment, below `end`, in whole batches of together at most
    `max_bytes` (or the first one). It is read and decoded off the loop.

    Raises OffsetOutOfRange where the log begins later, DamagedFile where it isn't sound.
    """
    found = log.read(offset, max_bytes, upto=end)
    if found is None:
        # The cleaner may have left nothing up to the end.
        return Part([], end, 0)
    items = await env.run_blocking(_decode, found, offset)
    return Part(items, found.next_offset, found.length)


def _decode(found: Slice, offset: int) -> list[Item]:
    data = found.file.pread(found.length, found.position)
    items: list[Item] = []
    position = 0
    try:
        for position, header in iter_headers(data):
            if not crc_ok(data, position, header.length):
                raise DecodeError("the CRC is wrong")
            items += _items(data, position, header, offset)
    except BadHeader as error:
        place = found.position + error.position
        raise DamagedFile(found.file.path, place, error.reason) from error
    except DecodeError as error:
        raise _damaged(found.file, found.position + position, error) from error
    return items


def _damaged(file: File, position: int, error: DecodeError) -> DamagedFile:
    return DamagedFile(file.path, position, str(error))


def _items(data: bytes, position: int, header: BatchHeader, offset: int) -> list[Item]:
    records = decode_records(data, position, header)
    if header.is_control:
        controls = [decode_control(record.key, record.value) for record in records]
        return [
            TransactionMarker(header.producer_id, control.type == ControlType.COMMIT)
            for control in controls
            if control.type in (ControlType.ABORT, ControlType.COMMIT)
        ]
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
    # Without a key nothing is said about anything; only an administrator can have written it.
    return [
        Stored(record.offset, record.key, record.value, producer_id)
        for record in records
        if record.key is not None and record.offset >= offset
    ]
