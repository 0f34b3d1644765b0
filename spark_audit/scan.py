"""Reads one slice of a segment and says what is in it; joins slices to segments and a log.

`scan_slice` is what a Spark task runs; its result is small. `join` follows offsets and epochs
from slice to slice as one walk over the whole log would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from metadata.records import UnknownRecord, name_of
from spark_audit.files import Files, LogDirectory
from spark_audit.findings import Finding
from spark_audit.frames import big_endian, padded
from spark_audit.rows import Rows, chunks, sort_rows
from spark_audit.walk import Damage, batch_start, walk
from wire.control import Control
from wire.errors import DecodeError

SLICE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Slice:
    """A stretch of one segment file, cut between batches."""

    files: Files
    name: str
    start: int
    end: int
    base_offset: int  # the segment's, by its name
    whole: bool  # this is all of the file


@dataclass(slots=True)
class Checkpoint:
    """A place where a reader may start: the batch at `position` begins at `offset`."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class Run:
    """Batches of one file that follow each other: from the byte `position` on, the offsets
    `start` to `end` (exclusive)."""

    file: str
    position: int
    start: int
    end: int


@dataclass(slots=True)
class SliceScan:
    """What one slice holds. Offsets are None where there is no sound batch."""

    slice: Slice
    damages: list[Damage] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    batches: int = 0
    records: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    first_offset: int | None = None
    first_position: int | None = None
    first_epoch: int | None = None
    last_epoch: int | None = None
    next_offset: int | None = None
    last_timestamp: int | None = None
    first_timestamp: int | None = None
    epoch_starts: dict[int, int] = field(default_factory=dict)  # epoch -> first offset seen
    marks: list[Checkpoint] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)


MARK_BYTES = 1 << 20
_WINDOWS = (1 << 18, 1 << 22, 1 << 24)  # bytes looked at for a place to cut


def plan(directory: LogDirectory, slice_bytes: int = SLICE_BYTES) -> list[Slice]:
    """Cuts the segments into slices that begin at batches, reading only around the cuts."""
    slices = []
    for segment in directory.segments:
        bounds = cuts(directory.files, segment.name, segment.size, slice_bytes)
        whole = len(bounds) == 2
        for start, end in pairwise(bounds):
            slices.append(
                Slice(directory.files, segment.name, start, end, segment.base_offset, whole)
            )
    return slices


def cuts(files: Files, name: str, size: int, slice_bytes: int) -> list[int]:
    """Where to cut a file of batches, 0 and `size` among them."""
    bounds = [0]
    while size - bounds[-1] > slice_bytes * 3 // 2:
        target = bounds[-1] + slice_bytes
        found = None
        for window in _WINDOWS:
            found = batch_start(files.read(name, target, min(target + window, size)))
            if found is not None:
                break
        if found is None:
            break
        bounds.append(target + found)
    return [*bounds, size]


def scan_slice(piece: Slice) -> SliceScan:
    """Walks, checks and decodes one slice."""
    data = piece.files.read(piece.name, piece.start, piece.end)
    positions, damages = walk(data)
    scan = SliceScan(piece, [_shift(damage, piece.start) for damage in damages])
    _offsets_and_epochs(scan, data, positions)
    for rows in chunks(piece.name, data, positions, piece.start):
        _decode(scan, rows)
    return scan


def _shift(damage: Damage, by: int) -> Damage:
    if not by:
        return damage
    resume = None if damage.resume is None else damage.resume + by
    return replace(damage, position=damage.position + by, resume=resume)


def _offsets_and_epochs(scan: SliceScan, data: bytes, positions: list[int]) -> None:
    """Checks that the batches of one slice follow each other."""
    scan.batches = len(positions)
    if not positions:
        return
    array = padded(data)
    at = np.array(positions, dtype=np.int64)
    base = big_endian(array, at, ">i8")
    following = base + big_endian(array, at + 23, ">i4") + 1
    epoch = big_endian(array, at + 12, ">i4")
    newest = big_endian(array, at + 35, ">i8")
    file, shift = scan.slice.name, scan.slice.start
    breaks = np.flatnonzero(base[1:] != following[:-1]) + 1
    for first, last in pairwise([0, *breaks.tolist(), len(at)]):
        begin, end = int(base[first]), int(following[last - 1])
        scan.runs.append(Run(file, int(at[first]) + shift, begin, end))
    for index in breaks:
        scan.findings.append(
            Finding(
                "offset-gap", file, f"expected offset {following[index - 1]}, found {base[index]}",
                int(at[index]) + shift, int(base[index]), int(epoch[index]), int(newest[index]),
            )
        )  # fmt: skip
    for index in np.flatnonzero(epoch[1:] < epoch[:-1]) + 1:
        scan.findings.append(
            Finding(
                "epoch-regression", file, f"epoch {epoch[index]} after {epoch[index - 1]}",
                int(at[index]) + shift, int(base[index]), int(epoch[index]), int(newest[index]),
            )
        )  # fmt: skip
    epochs, at_first = np.unique(epoch, return_index=True)
    order = np.argsort(at_first)
    scan.epoch_starts = {int(epochs[i]): int(base[at_first[i]]) for i in order}
    scan.first_offset, scan.next_offset = int(base[0]), int(following[-1])
    scan.first_position, scan.first_epoch = int(at[0]) + shift, int(epoch[0])
    scan.last_epoch = int(epoch[-1])
    scan.first_timestamp = int(big_endian(array, at[:1] + 27, ">i8")[0])
    scan.last_timestamp = int(newest[-1])
    marks = np.searchsorted(at, np.arange(0, len(data), MARK_BYTES))
    for index in np.unique(marks[marks < len(at)]):
        scan.marks.append(Checkpoint(int(base[index]), int(at[index]) + shift))


def _decode(scan: SliceScan, rows: Rows) -> None:
    """Counts the records of a chunk by type and finds those that can't be read."""
    scan.findings += rows.problems
    scan.records += len(rows)
    kinds = rows.kinds()
    by_kernel = sort_rows(rows, kinds)
    counts = scan.counts

    def count(name: str, times: int = 1) -> None:
        if times:
            counts[name] = counts.get(name, 0) + times

    for api_key, version, which, _ in by_kernel.kernel:
        count(f"{name_of(api_key)}:{version}", len(which))
    for row in by_kernel.rest.tolist():
        try:
            item = rows.decode(row)
        except DecodeError as error:
            scan.findings.append(rows.finding("undecodable", row, str(error)))
            if kinds.known[row]:
                count(f"{name_of(int(kinds.api_key[row]))}:{int(kinds.version[row])}")
            continue
        if isinstance(item, Control):
            count(f"{item.name}:{item.version}")
            continue
        name = name_of(item.api_key)
        count(f"{name}:{item.version}")
        if isinstance(item.record, UnknownRecord):
            scan.findings.append(rows.finding("unknown-record", row, f"{name} v{item.version}"))
    for row in np.flatnonzero((rows.key_length >= 0) & ~rows.control).tolist():
        detail = f"a key of {rows.key_length[row]} bytes"
        scan.findings.append(rows.finding("unexpected-key", row, detail))


@dataclass(slots=True)
class LogScan:
    """All slices of a log, joined."""

    slices: list[SliceScan]
    findings: list[Finding]
    counts: dict[str, int]
    batches: int
    records: int
    start_offset: int | None
    end_offset: int | None
    last_epoch: int | None
    last_timestamp: int | None
    epoch_starts: dict[int, int]

    @property
    def unreadable(self) -> bool:
        return any(scan.damages for scan in self.slices)


def scan_log(
    directory: LogDirectory,
    run: Callable[[Callable[[Slice], SliceScan], Sequence[Slice]], list[SliceScan]],
    slice_bytes: int = SLICE_BYTES,
) -> LogScan:
    """Scans a directory's segments through `run`, which maps a function over tasks.

    A file whose slices show damage is scanned again in one piece, since where a reader resumes
    after damage must not depend on the cuts.
    """
    scans = run(scan_slice, plan(directory, slice_bytes))
    damaged = [s.slice.name for s in scans if s.damages and not s.slice.whole]
    again = list(dict.fromkeys(damaged))
    if again:
        wholes = [
            Slice(directory.files, segment.name, 0, segment.size, segment.base_offset, True)
            for segment in directory.segments
            if segment.name in again
        ]
        scans = [s for s in scans if s.slice.name not in again] + run(scan_slice, wholes)
        scans.sort(key=lambda s: (s.slice.base_offset, s.slice.start))
    return join(scans)


def join(scans: list[SliceScan]) -> LogScan:
    """Follows offsets and epochs across slices and segments, in their order."""
    findings: list[Finding] = []
    counts: dict[str, int] = {}
    starts: dict[int, int] = {}
    expected: int | None = None
    epoch: int | None = None
    file = None
    for scan in scans:
        mine = [finding_of(damage, scan.slice.name) for damage in scan.damages]
        if scan.slice.name != file:
            file = scan.slice.name
            expected = _enter_segment(scan, expected, mine)
        if scan.first_offset is not None:
            if expected is not None and scan.first_offset != expected:
                detail = f"expected offset {expected}, found {scan.first_offset}"
                mine.append(_at_start("offset-gap", scan, detail))
            expected = scan.next_offset
        if scan.first_epoch is not None:
            if epoch is not None and scan.first_epoch < epoch:
                mine.append(
                    _at_start("epoch-regression", scan, f"epoch {scan.first_epoch} after {epoch}")
                )
            epoch = scan.last_epoch
        findings += sorted([*mine, *scan.findings], key=lambda found: found.position or 0)
        for name, times in scan.counts.items():
            counts[name] = counts.get(name, 0) + times
        for each, offset in scan.epoch_starts.items():
            starts.setdefault(each, offset)
    filled = [scan for scan in scans if scan.batches]
    return LogScan(
        slices=scans,
        findings=findings,
        counts=dict(sorted(counts.items())),
        batches=sum(scan.batches for scan in scans),
        records=sum(scan.records for scan in scans),
        start_offset=filled[0].first_offset if filled else None,
        end_offset=filled[-1].next_offset if filled else None,
        last_epoch=max(starts) if starts else None,
        last_timestamp=filled[-1].last_timestamp if filled else None,
        epoch_starts=starts,
    )


def finding_of(damage: Damage, file: str) -> Finding:
    """The finding for a stretch of damage."""
    return Finding(
        damage.code, file, damage.detail, damage.position, damage.offset, damage.epoch, None
    )


def _at_start(code: str, scan: SliceScan, detail: str) -> Finding:
    return Finding(
        code, scan.slice.name, detail, scan.first_position, scan.first_offset, scan.first_epoch,
        scan.first_timestamp,
    )  # fmt: skip


def _enter_segment(scan: SliceScan, expected: int | None, mine: list[Finding]) -> int | None:
    """A segment must begin where the one before it ended, and where its name says."""
    base = scan.slice.base_offset
    if expected is not None and base != expected:
        detail = f"the log before it ends at offset {expected}, this segment begins at {base}"
        mine.append(Finding("segment-gap", scan.slice.name, detail, 0, base))
    return base
