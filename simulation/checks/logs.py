"""Logs of several nodes held against each other, batch by batch, as they grow and are cut.

A `LogMirror` follows one node's log by its bytes. A `LogFacts` is what all mirrors of one
replicated log must agree on: by induction over appends, logs that agree on (offset, epoch)
agree before it (Raft paper §5.3, log matching), and what was committed once stays.

Of a compacted log batches are told apart by their offsets and epochs alone, and any below the
active segment may be gone: each replica is cleaned for itself, at its own time. What their records
were is judged by `simulation.models.compacted`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from simulation.checks import Violation, require
from storage.log import Log
from wire.batch import HEADER_SIZE, read_header

Peek = Callable[[Any, int, int], bytes]
"""(file, length, position): bytes of an open file, read past the world it lies in."""


class Batch(NamedTuple):
    """One batch and where it lies; offsets are [base, next)."""

    base: int
    next: int
    epoch: int
    crc: int
    segment: int
    position: int

    @property
    def id(self) -> tuple[int, int, int, int]:
        """What equal batches have in common, wherever they lie."""
        return self.base, self.next, self.epoch, self.crc

    def __str__(self) -> str:
        return f"[{self.base},{self.next}) epoch {self.epoch} crc {self.crc:08x}"


class LogMirror:
    """The batches of one node's log, from `start` on. `update` brings it up to date.

    Batches that the cleaner takes out or writes anew stay as they were first seen; below
    `thin_below` some may be missing from the beginning.
    """

    def __init__(self, log: Log, peek: Peek) -> None:
        self.log = log
        self.batches: list[Batch] = []
        self.start = log.log_start_offset
        self.end = 0
        self.compacted = log.config.cleanup_compact
        self._peek = peek

    @property
    def thin_below(self) -> int:
        """Where the active segment of a compacted log begins, 0 of another."""
        return self.log.active.base_offset if self.compacted else 0

    def update(self) -> tuple[bool, list[tuple[Batch | None, Batch]]]:
        """Whether something was cut off since the last call, and (batch before, batch) of what
        was appended. The batch before the first one is None."""
        log, batches = self.log, self.batches
        self.start = log.log_start_offset
        cut = False
        while batches and not self._is_there(batches[-1]):
            batches.pop()
            cut = True
        drop = bisect_right(batches, self.start, key=_next)
        if drop > 1_000 or drop == len(batches):
            del batches[:drop]  # seldom: it costs the length of the list
        fresh: list[tuple[Batch | None, Batch]] = []
        before = batches[-1] if batches else None
        for batch in self._behind(before):
            if self.compacted:
                batch = batch._replace(crc=0)
            fresh.append((before, batch))
            batches.append(batch)
            before = batch
        self.end = log.end_offset
        return cut, fresh

    def _is_there(self, batch: Batch) -> bool:
        if batch.next <= self.thin_below:
            return batch.next <= self.log.end_offset
        segment = self.log.segments.get(batch.segment)
        if segment is None:
            # Retired from the front: its batches are as they were, until they are dropped.
            return batch.next <= self.log.log_start_offset
        if batch.next > self.log.end_offset or batch.position + HEADER_SIZE > segment.size:
            return False
        header = read_header(self._peek(segment.file, HEADER_SIZE, batch.position))
        return (header.base_offset, header.leader_epoch, header.crc) == (
            batch.base,
            batch.epoch,
            header.crc if self.compacted else batch.crc,
        )

    def _behind(self, last: Batch | None) -> Iterable[Batch]:
        """The batches of the log that follow `last`; all of them where that is None."""
        cleaned = last is not None and last.next <= self.thin_below
        for base, segment in self.log.segments.items():
            position = 0
            if cleaned:
                # Its place may be another by now; what follows began a segment.
                if last is not None and base < last.next:
                    continue
            elif last is not None:
                if base < last.segment:
                    continue
                if base == last.segment:
                    head = self._peek(segment.file, HEADER_SIZE, last.position)
                    position = last.position + read_header(head).length
            while position + HEADER_SIZE <= segment.size:
                header = read_header(self._peek(segment.file, HEADER_SIZE, position))
                if header.next_offset > self.log.end_offset:
                    return
                yield Batch(
                    header.base_offset,
                    header.next_offset,
                    header.leader_epoch,
                    header.crc,
                    base,
                    position,
                )
                position += header.length

    def ending_at_or_before(self, offset: int) -> Batch | None:
        """The last batch that ends at or before `offset`, None where none is left."""
        index = bisect_right(self.batches, offset, key=_next)
        return self.batches[index - 1] if index else None

    def find(self, base: int) -> Batch | None:
        """The batch that begins at `base`."""
        index = bisect_left(self.batches, base, key=_base)
        if index < len(self.batches) and self.batches[index].base == base:
            return self.batches[index]
        return None

    def between(self, start: int, end: int) -> list[Batch]:
        """The batches that end in (start, end]."""
        first = bisect_right(self.batches, start, key=_next)
        return self.batches[first : bisect_right(self.batches, end, key=_next)]


class LogFacts:
    """What all replicas of one log must agree on. `name` says which log in violations."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.leaders: dict[int, int] = {}
        self.committed: list[Batch] = []
        self.committed_in: list[int] = []  # the leader's epoch when it was
        self._placed: dict[tuple[int, int], tuple[int, int]] = {}
        self._before: dict[tuple[int, int], tuple[int, int, int, int]] = {}

    @property
    def committed_end(self) -> int:
        """All below it is committed."""
        return self.committed[-1].next if self.committed else 0

    def appended(self, node_id: int, before: Batch | None, batch: Batch) -> None:
        """A node has `batch` now, behind `before` (None: it doesn't have what was before)."""
        key = (batch.base, batch.epoch)
        content = (batch.next, batch.crc)
        first = self._placed.setdefault(key, content)
        if first != content:
            raise Violation("log matching", f"{self.name}, node {node_id}, {batch}, {first}")
        # Only of a compacted log is the CRC left out, and the batch before may be another there.
        if before is not None and (batch.crc or before.next == batch.base):
            before_id = before.id
            known = self._before.setdefault(key, before_id)
            if known != before_id:
                raise Violation(
                    "log matching",
                    f"{self.name}, node {node_id}: before {batch} is {before}, elsewhere {known}",
                )

    def leads(self, node_id: int, epoch: int, mirror: LogMirror) -> None:
        """A node leads in `epoch`: alone, and with all that was committed in earlier ones."""
        first = self.leaders.setdefault(epoch, node_id)
        require(
            first == node_id, "one leader per epoch", self.name, f"epoch {epoch}", first, node_id
        )
        count = bisect_left(self.committed_in, epoch)
        if count:
            self._holds(node_id, epoch, mirror, self.committed[count - 1])

    def _holds(self, node_id: int, epoch: int, mirror: LogMirror, last: Batch) -> None:
        if last.next <= mirror.start:
            return  # in its snapshot
        held = mirror.find(last.base)
        if held is None and last.next <= mirror.thin_below:
            return
        if held is None or held.id != last.id:
            raise Violation(
                "a leader has all that was committed",
                f"{self.name}: node {node_id}, leader of epoch {epoch}, has {held} and ends at "
                f"{mirror.end}; committed is {last}",
            )

    def commits(self, node_id: int, epoch: int, mirror: LogMirror, start: int, end: int) -> None:
        """A node's high watermark went from `start` to `end`, in this epoch of its leader."""
        require(
            end <= mirror.end,
            "the high watermark is within the log",
            self.name,
            f"node {node_id}: {end}, the log ends at {mirror.end}",
        )
        for batch in mirror.between(start, end):
            if batch.base >= self.committed_end:
                self.committed.append(batch)
                # Never less than before, so that it can be searched.
                before = self.committed_in[-1] if self.committed_in else epoch
                self.committed_in.append(max(epoch, before))
                continue
            index = bisect_right(self.committed, batch.base, key=_base)
            known = self.committed[index - 1] if index else None
            if known is None or known.id != batch.id:
                raise Violation(
                    "committed never changes",
                    f"{self.name}, node {node_id}: {batch} is below its high watermark {end}, "
                    f"{known} is committed",
                )


def _base(batch: Batch) -> int:
    return batch.base


def _next(batch: Batch) -> int:
    return batch.next
