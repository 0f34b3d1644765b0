"""Idempotent producers of one partition (KIP-98, KIP-360). Pure: no clock, no file.

Kept per producer: its epoch, its last five batches, and the first offset of a transaction it
has open. Sequences run from 0 to 2^31-1 and wrap to 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from sortedcontainers import SortedDict

from wire.batch import BatchHeader
from wire.control import TxnMarker
from wire.errors import ErrorCode, KafkaError

KEPT_BATCHES = 5
SEQUENCE_MASK = 2**31 - 1


class ProducerBatch(NamedTuple):
    """One remembered batch; offsets and sequences inclusive."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class Duplicate(NamedTuple):
    """The batch is in the log already, at these offsets (inclusive)."""

    first_offset: int
    last_offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Producer:
    """What is known of one producer. `open_since` is the first offset of its open transaction,
    -1 if it has none; `coordinator_epoch` that of the last marker and `marker_offset` the place of
    the last one since the state was loaded, each -1 if there was none."""

    producer_id: int
    epoch: int
    batches: tuple[ProducerBatch, ...] = ()
    last_timestamp_ms: int = -1
    coordinator_epoch: int = -1
    open_since: int = -1
    marker_offset: int = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1


class CompletedTxn(NamedTuple):
    """A transaction that ended: its first record's offset, its marker's, and up to where the log
    was stable then."""

    producer_id: int
    first_offset: int
    marker_offset: int
    aborted: bool
    last_stable_offset: int


class ProducerState:
    """The producers of one log, up to `end_offset` (exclusive).

    Changes of batches that are not written yet go into a `staged` dict, which the owner
    commits once they are; so a failed write leaves no trace.
    """

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        # Open transactions: the producer's id by first offset.
        self._open: SortedDict[int, int] = SortedDict()
        # Those that ended, but whose markers may not be committed yet: the markers' offsets by
        # first offset.
        self._unreplicated: SortedDict[int, int] = SortedDict()
        self._loaded_at = 0
        self.end_offset = 0

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def check(
        self, header: BatchHeader, staged: dict[int, Producer] | None = None
    ) -> Duplicate | None:
        """Whether a client's batch may be appended; its own offsets are not looked at.

        None: append it. Duplicate: it is there already. Raises KafkaError with
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE.
        """
        producer_id = header.producer_id
        known = (staged and staged.get(producer_id)) or self._producers.get(producer_id)
        if known is None:
            return None
        epoch, first, last = header.producer_epoch, header.base_sequence, header.last_sequence
        if epoch < known.epoch:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"producer {producer_id} sent epoch {epoch}, its epoch is {known.epoch}",
            )
        if epoch > known.epoch:
            if first != 0 and known.batches:
                raise _out_of_order(header, "a new epoch starts at sequence 0")
        else:
            for batch in known.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    return Duplicate(batch.first_offset, batch.last_offset, batch.timestamp_ms)
            if known.batches:
                expected = (known.last_sequence + 1) & SEQUENCE_MASK
                if first != expected:
                    raise _out_of_order(header, f"expected sequence {expected}")
        if known.open_since >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"producer {producer_id} wrote outside of the transaction it has open",
            )
        return None

    def stage(
        self,
        header: BatchHeader,
        staged: dict[int, Producer],
        marker: TxnMarker | None = None,
    ) -> CompletedTxn | None:
        """Note a batch that goes into the log at the header's offsets, in `staged`; the
        transaction that ends with it. `marker` is what a control batch says.

        No checks: batches of a leader and those read back from the log are the truth.
        """
        producer_id = header.producer_id
        known = staged.get(producer_id) or self._producers.get(producer_id)
        if known is None or header.producer_epoch != known.epoch:
            known = Producer(
                producer_id,
                header.producer_epoch,
                coordinator_epoch=known.coordinator_epoch if known else -1,
                open_since=known.open_since if known else -1,
                marker_offset=known.marker_offset if known else -1,
            )
        if header.is_control:
            staged[producer_id] = replace(
                known,
                open_since=-1,
                last_timestamp_ms=header.max_timestamp,
                coordinator_epoch=marker.coordinator_epoch if marker else known.coordinator_epoch,
                marker_offset=header.last_offset,
            )
            if marker is None or known.open_since < 0:
                return None
            first_open = self._first_open(staged)
            return CompletedTxn(
                producer_id,
                known.open_since,
                header.last_offset,
                marker.aborted,
                header.next_offset if first_open is None else first_open,
            )
        batch = ProducerBatch(
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
        )
        staged[producer_id] = replace(
            known,
            batches=(*known.batches[-(KEPT_BATCHES - 1) :], batch),
            last_timestamp_ms=header.max_timestamp,
            open_since=known.open_since
            if known.open_since >= 0 or not header.is_transactional
            else header.base_offset,
        )
        return None

    def commit(
        self,
        staged: dict[int, Producer],
        end_offset: int,
        completed: Iterable[CompletedTxn] = (),
    ) -> None:
        """The staged changes hold; the log now ends at `end_offset`."""
        for producer_id, producer in staged.items():
            before = self._producers.get(producer_id)
            was_open = -1 if before is None else before.open_since
            if producer.open_since != was_open:
                self._open.pop(was_open, None)
                if producer.open_since >= 0:
                    self._open[producer.open_since] = producer_id
        self._producers.update(staged)
        for txn in completed:
            self._unreplicated[txn.first_offset] = txn.marker_offset
        self.end_offset = end_offset

    def replay(self, header: BatchHeader, marker: TxnMarker | None = None) -> CompletedTxn | None:
        """Take over one batch as read from the log; the transaction that ends with it."""
        if header.producer_id < 0:
            self.end_offset = header.next_offset
            return None
        staged: dict[int, Producer] = {}
        completed = self.stage(header, staged, marker)
        self.commit(staged, header.next_offset, () if completed is None else (completed,))
        return completed

    def replicated(self, high_watermark: int) -> None:
        """All before this offset is committed, the markers among it."""
        if not self._unreplicated:
            return
        for first_offset, marker_offset in list(self._unreplicated.items()):
            if marker_offset < high_watermark:
                del self._unreplicated[first_offset]

    def _first_open(self, staged: dict[int, Producer]) -> int | None:
        """The first offset of the oldest open transaction, with the staged changes."""
        opened = [p.open_since for p in staged.values() if p.open_since >= 0]
        for first_offset, producer_id in self._open.items():
            if producer_id not in staged:
                opened.append(first_offset)
                break
        return min(opened, default=None)

    def truncate(self, end_offset: int) -> bool:
        """Forget batches at or after `end_offset`; False if that can't be told from what is
        known, so that the state must be replayed."""
        if end_offset < self._loaded_at:
            return False
        kept: dict[int, Producer] = {}
        for producer_id, producer in self._producers.items():
            if producer.marker_offset >= end_offset:
                return False
            if producer.last_offset < end_offset:
                continue
            batches = tuple(b for b in producer.batches if b.last_offset < end_offset)
            if not batches:
                return False
            kept[producer_id] = replace(
                producer,
                batches=batches,
                last_timestamp_ms=batches[-1].timestamp_ms,
                open_since=producer.open_since if producer.open_since < end_offset else -1,
            )
        self._producers.update(kept)
        self._find_open()
        for first_offset in list(self._unreplicated.irange(end_offset)):
            del self._unreplicated[first_offset]
        self.end_offset = end_offset
        return True

    def _find_open(self) -> None:
        self._open.clear()
        for producer in self._producers.values():
            if producer.open_since >= 0:
                self._open[producer.open_since] = producer.producer_id

    def load(self, producers: Iterable[Producer], end_offset: int) -> None:
        """Begin again from a snapshot that covers all before `end_offset`."""
        self._producers = {producer.producer_id: producer for producer in producers}
        self._unreplicated.clear()
        self._find_open()
        self._loaded_at = end_offset
        self.end_offset = end_offset

    def expire(self, wall_ms: int, expiration_ms: int) -> int:
        """Forget producers silent for longer than `expiration_ms`; how many. Those with an
        open transaction stay."""
        old = [
            producer.producer_id
            for producer in self._producers.values()
            if producer.open_since < 0 and wall_ms - producer.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in old:
            del self._producers[producer_id]
        return len(old)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is open, or whose end may not be
        committed yet."""
        if not self._open and not self._unreplicated:
            return None
        firsts: list[int] = [*self._open.keys()[:1], *self._unreplicated.keys()[:1]]
        return min(firsts)


def _out_of_order(header: BatchHeader, rule: str) -> KafkaError:
    return KafkaError(
        ErrorCode.out_of_order_sequence_number,
        f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence "
        f"{header.base_sequence}; {rule}",
    )
