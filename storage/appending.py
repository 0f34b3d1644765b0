"""Checking what is to be appended, before a byte is written. No file is touched here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from storage.epochs import LeaderEpochs
from storage.errors import CorruptBatch, OutOfOrderOffsets
from storage.producers import CompletedTxn, Duplicate, Producer, ProducerState
from wire.batch import HEADER_SIZE, BatchHeader, crc_ok, patch_offsets, read_header
from wire.control import TxnMarker, read_txn_marker
from wire.errors import DecodeError, KafkaError
from world.env import Buffer


class Appended(NamedTuple):
    """A batch that is in the log now, at these offsets (inclusive)."""

    base_offset: int
    last_offset: int


Outcome = Appended | Duplicate | KafkaError


class Placed(NamedTuple):
    """A batch with the offsets (inclusive) that it gets, as far as the log has to know it."""

    base_offset: int
    last_offset: int
    length: int
    max_timestamp: int
    leader_epoch: int


class AppendInfo(NamedTuple):
    """What an append did. `base_offset` to `last_offset` (inclusive) were added, -1 and -1 if
    nothing was; `outcomes` has one entry per batch given, in order."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    size: int
    outcomes: tuple[Outcome, ...]


@dataclass(slots=True)
class Plan:
    """Batches that are fit to be written, with the changes that follow from them."""

    next_offset: int
    slices: list[Buffer] = field(default_factory=list)
    placed: list[Placed] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    producers: dict[int, Producer] = field(default_factory=dict)
    completed: list[CompletedTxn] = field(default_factory=list)
    size: int = 0
    max_timestamp: int = -1

    def take(
        self,
        header: BatchHeader,
        base: int,
        epoch: int,
        state: ProducerState,
        marker: TxnMarker | None,
    ) -> None:
        """Add a batch that goes to offset `base`. Runs for every batch produced: keep it lean."""
        length, newest = header.length, header.max_timestamp
        last = base + header.last_offset_delta
        self.placed.append(Placed(base, last, length, newest, epoch))
        self.outcomes.append(Appended(base, last))
        self.size += length
        self.next_offset = last + 1
        if newest > self.max_timestamp:
            self.max_timestamp = newest
        if header.producer_id >= 0:
            placed = header._replace(base_offset=base)
            completed = state.stage(placed, self.producers, marker)
            if completed is not None:
                self.completed.append(completed)


def plan_leader(
    batches: Sequence[Buffer],
    end_offset: int,
    leader_epoch: int,
    state: ProducerState,
    check_producers: bool,
    headers: Sequence[BatchHeader] | None = None,
) -> Plan:
    """Give each batch the next offsets and the epoch, in place (a read-only buffer is copied).

    With `check_producers` a duplicate or a batch out of sequence is left out, which its
    outcome says; a batch is judged as if those before it were written. With `headers` each
    buffer is one whole batch with that header. Raises CorruptBatch.
    """
    plan = Plan(end_offset)
    for number, buffer in enumerate(batches):
        view = memoryview(buffer).cast("B")
        if view.readonly:
            view = memoryview(bytearray(view))
        position, size = 0, len(view)
        while position < size:
            header = _header(view, position) if headers is None else headers[number]
            if check_producers and header.producer_id >= 0:
                refusal = _refusal(header, state, plan.producers)
                if refusal is not None:
                    plan.outcomes.append(refusal)
                    position += header.length
                    continue
            marker = _marker(view, position, header)
            patch_offsets(view, position, plan.next_offset, leader_epoch)
            plan.take(header, plan.next_offset, leader_epoch, state, marker)
            end = position + header.length
            plan.slices.append(view if end - position == size else view[position:end])
            position = end
    return plan


def _refusal(
    header: BatchHeader, state: ProducerState, staged: dict[int, Producer]
) -> Duplicate | KafkaError | None:
    try:
        return state.check(header, staged)
    except KafkaError as error:
        return error


def spanning(data: Buffer, start: int) -> int | None:
    """Where the first of a leader's batches begins, if it is whole and begins before offset `start`
    but doesn't end there. Raises CorruptBatch."""
    view = memoryview(data).cast("B")
    if len(view) < HEADER_SIZE:
        return None
    header = _header(view, 0, whole=False)
    is_whole = header.length <= len(view)
    return (
        header.base_offset
        if is_whole and header.base_offset < start <= header.last_offset
        else None
    )


def plan_follower(
    data: Buffer, end_offset: int, epochs: LeaderEpochs, state: ProducerState, contiguous: bool
) -> Plan:
    """Take over a leader's batches as they are; a partial one at the end is left out.

    Raises CorruptBatch (nonsense, wrong CRC, an epoch that falls in a contiguous log) or
    OutOfOrderOffsets.
    """
    view = memoryview(data).cast("B")
    plan = Plan(end_offset)
    position, size, epoch = 0, len(view), epochs.latest
    while size - position >= 61:
        header = _header(view, position, whole=False)
        if header.length > size - position:
            break
        if not crc_ok(view, position, header.length):
            raise CorruptBatch(f"batch at offset {header.base_offset}: CRC is wrong")
        offset = header.base_offset
        if offset < plan.next_offset or (contiguous and offset != plan.next_offset):
            raise OutOfOrderOffsets(
                f"batch begins at offset {offset}, the log ends at {plan.next_offset}"
            )
        if contiguous and header.leader_epoch < epoch:
            raise CorruptBatch(
                f"batch at offset {offset}: epoch falls from {epoch} to {header.leader_epoch}"
            )
        epoch = header.leader_epoch
        plan.take(header, offset, epoch, state, _marker(view, position, header))
        position += header.length
    if position:
        plan.slices.append(view[:position])
    return plan


def _marker(view: memoryview, position: int, header: BatchHeader) -> TxnMarker | None:
    if not header.is_control or header.producer_id < 0:
        return None
    try:
        return read_txn_marker(view, position, header)
    except DecodeError as error:
        raise CorruptBatch(f"marker at offset {header.base_offset}: {error}") from error


def _header(view: memoryview, position: int, whole: bool = True) -> BatchHeader:
    try:
        header = read_header(view, position)
    except DecodeError as error:
        raise CorruptBatch(str(error)) from error
    if whole and header.length > len(view) - position:
        raise CorruptBatch(
            f"a batch of {header.length} bytes in a buffer with {len(view) - position} left"
        )
    return header
