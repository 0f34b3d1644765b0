"""Replays a metadata log into images, from nothing or from a snapshot, and compares snapshots.

One `Replayer` goes through records in the order of the log. Records already applied (a batch
written twice) are passed over; where records are missing it goes on from the earliest snapshot
that covers them, and where there is none it goes on with what there is, and says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metadata.image import EMPTY, MetadataImage
from metadata.records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from metadata.soundness import check, check_transaction
from metadata.state import state_json
from spark_audit import kernels
from spark_audit.changes import FEWEST, Changes, apply_changes, plain_changes
from spark_audit.files import Files, SnapshotFile
from spark_audit.findings import Finding, Tally
from spark_audit.frames import Ints
from spark_audit.rows import Item, Rows, chunks
from spark_audit.snapshots import Snapshot, apply_item, read_snapshot
from spark_audit.walk import walk
from wire.control import Control
from wire.errors import DecodeError

# Records that neither read nor write topics.
_FREE = [
    kind.API_KEY
    for kind in (
        RegisterBrokerRecord, UnregisterBrokerRecord, ConfigRecord, FenceBrokerRecord,
        UnfenceBrokerRecord, DelegationTokenRecord, UserScramCredentialRecord, FeatureLevelRecord,
        ClientQuotaRecord, ProducerIdsRecord, BrokerRegistrationChangeRecord,
        AccessControlEntryRecord, RemoveAccessControlEntryRecord, NoOpRecord,
        ZkMigrationStateRecord, RemoveUserScramCredentialRecord, RemoveDelegationTokenRecord,
        RegisterControllerRecord,
    )
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limit:
    """Which records count: offsets below `offset`, timestamps up to `timestamp` (ms)."""

    offset: int | None = None
    timestamp: int | None = None

    def allows(self, snapshot: Snapshot) -> bool:
        """Whether everything in a snapshot is within the limit."""
        if self.offset is not None and snapshot.file.end_offset > self.offset:
            return False
        if self.timestamp is None or not snapshot.file.end_offset:
            return True
        return snapshot.timestamp is not None and snapshot.timestamp <= self.timestamp


@dataclass(frozen=True, slots=True)
class Compared:
    """A snapshot against the replay at its end offset. `differences` None: never compared."""

    file: str
    records: int
    differences: list[str] | None
    log_timestamp: int | None = None
    log_epoch: int | None = None


@dataclass(slots=True)
class Outcome:
    """Where a replay stands at its end."""

    image: MetadataImage = EMPTY
    last_offset: int | None = None
    last_epoch: int | None = None
    last_timestamp: int | None = None
    from_snapshot: str | None = None
    tally: Tally = field(default_factory=Tally)
    findings: list[Finding] = field(default_factory=list)
    compared: list[Compared] = field(default_factory=list)
    missing: bool = False  # records that no snapshot covers are absent
    open_transaction: bool = False


class Replayer:
    """Applies the records of a log in order; `snapshots` are those that may be used."""

    def __init__(self, snapshots: list[Snapshot], limit: Limit | None = None) -> None:
        self._limit = limit or Limit()
        self._usable = [s for s in snapshots if s.whole and s.framed and self._limit.allows(s)]
        self._to_compare = [s for s in snapshots if s.whole]
        self._compared = 0  # how many of those are behind us
        self._expected = 0
        self._before: MetadataImage | None = None  # the image a metadata transaction began on
        self.outcome = Outcome()
        first = self._usable[0] if self._usable else None
        if first is not None and first.file.end_offset == 0:
            self._load(first)

    def start_at(self, snapshot: Snapshot) -> None:
        """Begins with a snapshot known to be right, at its end offset."""
        self._load(snapshot)
        self.outcome.from_snapshot = None

    def _load(self, snapshot: Snapshot) -> None:
        end = snapshot.file.end_offset
        outcome = self.outcome
        self._skip_comparisons(end)
        outcome.image = snapshot.image
        outcome.from_snapshot = snapshot.file.name
        self._expected = end
        self._before = None
        if end:
            outcome.last_offset, outcome.last_epoch = end - 1, snapshot.file.epoch
            outcome.last_timestamp = snapshot.timestamp

    def _skip_comparisons(self, upto: int) -> None:
        """Passes by the snapshots below or at `upto`: the replay doesn't stand at their ends."""
        while self._compared < len(self._to_compare):
            snapshot = self._to_compare[self._compared]
            if snapshot.file.end_offset > upto:
                return
            self.outcome.compared.append(Compared(snapshot.file.name, snapshot.records, None))
            self._compared += 1

    def _stand(self) -> None:
        """Compares the snapshots that end exactly here; those below can't be compared any more."""
        outcome = self.outcome
        while self._compared < len(self._to_compare):
            snapshot = self._to_compare[self._compared]
            if snapshot.file.end_offset > self._expected:
                return
            differences = None
            if snapshot.file.end_offset == self._expected and not outcome.missing:
                differences = compare(outcome.image, snapshot.image)
            outcome.compared.append(
                Compared(
                    snapshot.file.name, snapshot.records, differences, outcome.last_timestamp,
                    outcome.last_epoch,
                )
            )  # fmt: skip
            self._compared += 1

    def feed(self, rows: Rows) -> None:
        """Applies one chunk of records."""
        offsets, stamps = rows.offset, rows.timestamp
        n = len(rows)
        if not n:
            return
        quiet = _no_ops(rows)
        steady = bool((np.diff(offsets) == 1).all()) and self._limit.timestamp is None
        first = self._expected - int(offsets[0])
        if steady and 0 <= first < n:
            if self._limit.offset is not None:
                n = min(n, max(self._limit.offset - int(offsets[0]), 0))
            if n > first:
                self._feed_steady(rows, np.flatnonzero(~quiet[:n]), first, n)
            return
        for row in range(n):
            offset, stamp = int(offsets[row]), int(stamps[row])
            if self._limit.offset is not None and offset >= self._limit.offset:
                continue
            if self._limit.timestamp is not None and stamp > self._limit.timestamp:
                # It is there, only not asked for; after an election clocks may go back, so that
                # records behind it can count.
                self._expected += offset == self._expected
                continue
            if offset != self._expected and not self._resume(rows, row, offset):
                continue
            self._one(rows, row, bool(quiet[row]))

    def _feed_steady(self, rows: Rows, busy: Ints, first: int, n: int) -> None:
        """Rows first..n, which continue the log without gaps: of the no-op records, only those
        are looked at that a snapshot or the end of the rows stands behind, and changes of leaders
        and ISRs are applied a run at a time."""
        self._stand()
        start = int(rows.offset[0])
        ends = [s.file.end_offset - start - 1 for s in self._to_compare[self._compared :]]
        stops = {end: None for end in ends if first <= end < n}
        stops[n - 1] = None
        changes = plain_changes(rows)
        single = np.setdiff1d(busy, changes.rows, assume_unique=True)
        wanted = np.union1d(single, np.array(list(stops), dtype=np.int64))
        ordered = _ordered(rows)
        done = first
        for row in wanted[wanted >= first].tolist():
            is_change = bool(np.searchsorted(changes.rows, row, "right")) and bool(
                changes.rows[np.searchsorted(changes.rows, row, "right") - 1] == row
            )
            if is_change or ordered[row] or row in stops:
                self._run(rows, changes, done, row + 1 if is_change else row)
                done = row + 1
            self._expected = start + row
            self._one(rows, row, is_change)
            if row in stops:
                self._stand()

    def _run(self, rows: Rows, changes: Changes, start: int, stop: int) -> None:
        """Applies the plain partition changes among rows start..stop."""
        run = changes.between(start, stop)
        if len(run) >= FEWEST:
            image = apply_changes(self.outcome.image, run)
            if image is not None:
                self.outcome.image = image
                return
        for row in run.rows.tolist():
            self._one(rows, row, False)

    def _one(self, rows: Rows, row: int, quiet: bool) -> None:
        self._stand()
        outcome = self.outcome
        offset, epoch = int(rows.offset[row]), int(rows.epoch[row])
        stamp = int(rows.timestamp[row])
        self._expected = offset + 1
        outcome.last_offset, outcome.last_epoch, outcome.last_timestamp = offset, epoch, stamp
        if quiet:
            return
        try:
            item = rows.decode(row)
        except DecodeError:
            return  # the scan reports it
        self._apply(item, offset, epoch, stamp)

    def _apply(self, item: Item, offset: int, epoch: int, stamp: int) -> None:
        outcome = self.outcome
        if isinstance(item, Control):
            outcome.image = apply_item(outcome.image, item)
            return
        record = item.record
        if isinstance(
            record, BeginTransactionRecord | EndTransactionRecord | AbortTransactionRecord
        ):
            self._transaction(record, offset, epoch, stamp)
            return
        for code, detail in check(outcome.image, record):
            if code != "unknown-record":  # the scan reports those, with their place
                outcome.tally.add(code, offset, detail, epoch, stamp)
        outcome.image = outcome.image.apply(record)

    def _transaction(self, record: Any, offset: int, epoch: int, stamp: int) -> None:
        outcome = self.outcome
        for code, detail in check_transaction(self._before is not None, record):
            outcome.tally.add(code, offset, detail, epoch, stamp)
        if isinstance(record, BeginTransactionRecord):
            if self._before is None:
                self._before = outcome.image
            return
        if isinstance(record, AbortTransactionRecord) and self._before is not None:
            outcome.image = self._before
        self._before = None

    def _resume(self, rows: Rows, row: int, offset: int) -> bool:
        """The next record isn't the one expected; says whether to apply it."""
        if offset < self._expected:
            return False
        self._stand()
        snapshot = next((s for s in self._usable if s.file.end_offset >= offset), None)
        if snapshot is None:
            detail = "no snapshot covers the missing records"
            stamp, epoch = int(rows.timestamp[row]), int(rows.epoch[row])
            self.outcome.tally.add("hole", offset, detail, epoch, stamp)
            self.outcome.missing = True
            return True
        if self.outcome.last_offset is None:
            detail = f"log has nothing before offset {offset}"
        else:
            detail = f"log has nothing from offset {self._expected} to {offset - 1}"
        found = Finding("resumed-from-snapshot", snapshot.file.name, detail, None, offset)
        self.outcome.findings.append(found)
        self._load(snapshot)
        self.outcome.missing = False
        return offset == self._expected

    def finish(self) -> Outcome:
        """Ends the replay: the newest snapshot stands where the log ends before it, and an
        unfinished transaction doesn't count."""
        outcome = self.outcome
        self._stand()
        if self._before is not None:
            outcome.open_transaction = True
            offset = outcome.last_offset or 0
            detail = "a transaction without an end; its records are left out"
            outcome.tally.add(
                "open-transaction", offset, detail, outcome.last_epoch, outcome.last_timestamp
            )
            outcome.image, self._before = self._before, None
        newest = self._usable[-1] if self._usable else None
        if newest is not None and newest.file.end_offset > self._expected:
            self._load(newest)
            outcome.missing = False
        for snapshot in self._to_compare[self._compared :]:
            outcome.compared.append(Compared(snapshot.file.name, snapshot.records, None))
        return outcome


def _ordered(rows: Rows) -> Any:
    """Which rows must keep their order with partition changes: those that touch topics, open or
    close transactions, or are not known."""
    found = rows.kinds()
    free = found.known & np.isin(found.api_key, _FREE)
    return ~(free | rows.control)


def _no_ops(rows: Rows) -> Any:
    """Which rows are NoOpRecords, the bulk of an idle cluster's log."""
    found = rows.kinds()
    mask = found.known & (found.api_key == kernels.NO_OP) & (found.version == 0)
    which = np.flatnonzero(mask)
    end = rows.value_position[which] + rows.value_length[which]
    mask[which] = kernels.no_op(rows.data, found.body[which], end)
    return mask


def compare(replayed: MetadataImage, snapshot: MetadataImage) -> list[str]:
    """The differences between a replay's state and a snapshot's, as `/path: one != other`."""
    return list(_differences("", state_json(replayed), state_json(snapshot)))


def _differences(path: str, one: Any, other: Any) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            if key not in other:
                yield f"{path}/{key}: {json.dumps(one[key])} is not in the snapshot"
            elif key not in one:
                yield f"{path}/{key}: {json.dumps(other[key])} is in the snapshot alone"
            else:
                yield from _differences(f"{path}/{key}", one[key], other[key])
    elif one != other:
        yield f"{path}: {json.dumps(one)} != {json.dumps(other)}"


def feed_file(replayer: Replayer, files: Files, name: str, pieces: list[tuple[int, int]]) -> None:
    """Feeds stretches of one segment file to a replay."""
    for start, end in pieces:
        data = files.read(name, start, end)
        positions, _ = walk(data)
        for rows in chunks(name, data, positions, start):
            replayer.feed(rows)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the log to replay. `pieces`: (file, [(start, end)…]) in order; it starts from
    `start_from` (or from nothing) and takes the records that `limit` allows."""

    files: Files
    pieces: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
    snapshots: tuple[SnapshotFile, ...]
    start_from: SnapshotFile | None = None
    limit: Limit = Limit()


def replay(stretch: Stretch, progress: Callable[[int], None] | None = None) -> Outcome:
    """What a Spark task (or a caller) runs for one stretch."""
    loaded = [read_snapshot(stretch.files, file) for file in stretch.snapshots]
    replayer = Replayer(loaded, stretch.limit)
    if stretch.start_from is not None:
        replayer.start_at(read_snapshot(stretch.files, stretch.start_from))
    for name, pieces in stretch.pieces:
        feed_file(replayer, stretch.files, name, list(pieces))
        if progress is not None:
            progress(sum(end - start for start, end in pieces))
    return replayer.finish()
