"""What of transactions may go when a log is cleaned. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from wire.batch import BatchHeader, record_bytes
from wire.control import ControlType
from wire.errors import DecodeError
from wire.index_files import AbortedTxn
from wire.records import locate_records
from world.env import Buffer


class MarkerContradicts(Exception):
    """An abort marker of a transaction that the log's `.txnindex` files don't know. `offset` is the
    marker's."""

    def __init__(self, offset: int, producer_id: int) -> None:
        super().__init__(
            f"the marker at offset {offset} aborts a transaction of producer {producer_id} that is "
            "in no .txnindex file"
        )
        self.offset = offset


class Transactions:
    """The transactions met on a walk along a log, from old to new.

    `aborted` are all of the log. Data of an aborted transaction goes; a marker may go when nothing
    of its transaction was met on the way. `kept` gathers the aborted transactions of which
    something is left: readers have to know them.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._to_come = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTxn] = {}  # under way, by producer
        self._aborted_with_data: dict[int, None] = {}
        self._committed: dict[int, None] = {}
        self.kept: list[AbortedTxn] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch, the next on the walk, is of an aborted transaction."""
        if not header.is_transactional:
            return False
        self._begin_upto(header.last_offset)
        producer = header.producer_id
        aborted = self._aborted.get(producer)
        if aborted is not None and header.last_offset < aborted.last_offset:
            self._aborted_with_data[producer] = None
            return True
        self._committed[producer] = None
        return False

    def may_go(self, header: BatchHeader, data: Buffer) -> bool:
        """Whether a control batch, the next on the walk, is no longer needed by any data.

        Raises DecodeError, or MarkerContradicts: what was read on the way is not all committed.
        """
        self._begin_upto(header.last_offset)
        kind = _kind(header, data)
        producer = header.producer_id
        if kind is None:
            return True  # only its header was left
        if kind == ControlType.COMMIT:
            has_data = producer in self._committed
            self._committed.pop(producer, None)
            return not has_data
        if kind != ControlType.ABORT:
            return False
        aborted = self._aborted.pop(producer, None)
        if producer in self._committed:
            raise MarkerContradicts(header.base_offset, producer)
        if producer not in self._aborted_with_data:
            return True
        del self._aborted_with_data[producer]
        assert aborted is not None, producer
        self.kept.append(aborted)
        return False

    def _begin_upto(self, offset: int) -> None:
        while self._to_come and self._to_come[-1].first_offset <= offset:
            begun = self._to_come.pop()
            self._aborted[begun.producer_id] = begun


def _kind(header: BatchHeader, data: Buffer) -> int | None:
    """The type of a control batch's record; None if it has none any more."""
    if not header.count:
        return None
    record = locate_records(record_bytes(data, 0, header), header.count)[0]
    if record.key is None or len(record.key) < 4:
        raise DecodeError(f"control record key {record.key!r}")
    return int.from_bytes(record.key[2:4], "big", signed=True)
