"""What of a metadata log a reader of its history gets to see: what is missing, what is no part.

The CRC of a batch doesn't cover its offset. Behind damage a sound batch may therefore stand at an
offset that isn't its own, which only its neighbours show: offsets rise through a log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from spark_audit.files import LogDirectory, SnapshotFile
from spark_audit.findings import UNREADABLE, Finding
from spark_audit.foreign import refuse_foreign
from spark_audit.scan import Run, finding_of, scan_log
from spark_audit.session import Runner
from spark_audit.walk import walk

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Skipped:
    """Records that are no part of the history: those below offset `below` in the batches of
    `file` from byte `begin` to byte `end` (exclusive; None: to the end of the file)."""

    file: str
    begin: int
    end: int | None
    below: int | None  # None: all


@dataclass(slots=True)
class Coverage:
    """What there is of a log's history. `missing` says in words what there isn't."""

    base: SnapshotFile | None
    start_offset: int | None
    end_offset: int | None
    missing: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return not self.missing

    def to_json(self) -> dict[str, Any]:
        return {
            "complete": self.complete,
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "missing": self.missing,
            "findings": [finding.to_json() for finding in self.findings],
        }


def base_snapshot(directory: LogDirectory) -> SnapshotFile | None:
    """The snapshot that a log continues from: the earliest that covers what is before it. A log
    that begins at offset 0 has one where its quorum was set up with voters of its own."""
    first = directory.segments[0].base_offset if directory.segments else None
    for snapshot in directory.snapshots:
        if first is None or snapshot.end_offset >= first:
            return snapshot if first or not snapshot.end_offset else None
    return None


def coverage(directory: LogDirectory, run: Runner) -> Coverage:
    """Reads the log once to see what is there. AuditError where it is no metadata log."""
    scan = scan_log(directory, run)
    refuse_foreign(directory, scan)
    base = base_snapshot(directory)
    runs = [one for part in scan.slices for one in part.runs]
    kept = in_order(runs)
    found = Coverage(
        base,
        runs[kept[0]].start if kept else None,
        runs[kept[-1]].end if kept else None,
    )
    gaps = ("offset-gap", "segment-gap")
    found.findings = [f for f in scan.findings if f.code in UNREADABLE or f.code in gaps]
    found.skipped = list(_skipped(runs, kept))
    found.missing += _at_start(found)
    found.missing += _between(runs, kept)
    for finding in scan.findings:
        place = f"{finding.file} at byte {finding.position}"
        if finding.code in ("undecodable", "bad-records"):
            found.missing.append(f"{place}: {finding.code}: {finding.detail}")
        elif finding.code in UNREADABLE and _ends_log(finding, directory):
            found.missing.append(f"what follows {place}: {finding.code}: {finding.detail}")
    if base is not None:
        _, damages = walk(directory.files.read(base.name))
        broken = [finding_of(damage, base.name) for damage in damages]
        found.findings += broken
        found.missing += [f"{f.file} at byte {f.position}: {f.code}: {f.detail}" for f in broken]
    return found


def in_order(runs: list[Run]) -> list[int]:
    """The numbers of the runs whose ends rise and that hold the most offsets together: a few
    batches with an offset that isn't theirs stand against all others."""
    ends: list[int] = []  # of the best chains so far, rising, as do their weights
    weights: list[int] = []
    last: list[int] = []  # the chain's last run
    before: list[int] = []
    for number, run in enumerate(runs):
        at = bisect_right(ends, run.end)
        before.append(last[at - 1] if at else -1)
        weight = run.end - run.start + (weights[at - 1] if at else 0)
        stop = at
        while stop < len(ends) and weights[stop] <= weight:
            stop += 1
        start = bisect_left(ends, run.end, 0, at)
        ends[start:stop], weights[start:stop], last[start:stop] = [run.end], [weight], [number]
    kept = []
    number = last[-1] if last else -1
    while number >= 0:
        kept.append(number)
        number = before[number]
    return kept[::-1]


def _skipped(runs: list[Run], kept: list[int]) -> Iterable[Skipped]:
    """The runs that were not kept, and of the others what was there before (a batch that was
    written twice)."""
    chosen = set(kept)
    reached = 0
    for number, run in enumerate(runs):
        following = runs[number + 1] if number + 1 < len(runs) else None
        stop = following.position if following and following.file == run.file else None
        if number not in chosen:
            yield Skipped(run.file, run.position, stop, None)
            continue
        if run.start < reached:
            yield Skipped(run.file, run.position, stop, reached)
        reached = run.end


def _at_start(found: Coverage) -> Iterable[str]:
    if found.start_offset is None:
        yield "every record: the log holds none"
    elif found.start_offset and found.base is None:
        yield f"offsets 0 to {found.start_offset - 1}: no snapshot says what was before"
    elif found.base is not None and found.base.end_offset < found.start_offset:
        yield f"offsets {found.base.end_offset} to {found.start_offset - 1}"


def _between(runs: list[Run], kept: list[int]) -> Iterable[str]:
    reached: int | None = None
    for number in kept:
        run = runs[number]
        if reached is not None and run.start > reached:
            one = run.start - reached == 1
            what = f"offset {reached}" if one else f"offsets {reached} to {run.start - 1}"
            yield f"{what}, before {run.file} at byte {run.position}"
        reached = run.end


def _ends_log(finding: Finding, directory: LogDirectory) -> bool:
    """Whether damage reaches to the end of the log, where no later offset shows what it held.
    Zero bytes there are room that was never written."""
    torn = finding.code != "zero-tail" and "resumes at" not in finding.detail
    return torn and finding.file == directory.segments[-1].name


def summary(found: Coverage) -> str:
    """One line for a person: what is missing."""
    shown = "; ".join(found.missing[:_SHOWN])
    more = len(found.missing) - _SHOWN
    return f"INCOMPLETE, missing: {shown}" + (f"; and {more} more" if more > 0 else "")
