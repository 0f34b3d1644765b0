"""Replays a whole log, its stretches between snapshots in parallel where that is sound."""

from __future__ import annotations

from itertools import pairwise

from spark_audit.files import LogDirectory, SnapshotFile
from spark_audit.findings import Tally
from spark_audit.replay import Limit, Outcome, Stretch, replay
from spark_audit.scan import LogScan
from spark_audit.session import Runner
from spark_audit.snapshots import Snapshot

STRETCH_BYTES = 8 << 20  # shorter stretches aren't worth a task of their own

Place = tuple[int, int]  # number of the segment, byte position in it


def replay_log(
    directory: LogDirectory,
    scan: LogScan,
    snapshots: list[Snapshot],
    run: Runner,
    limit: Limit,
) -> Outcome:
    """The outcome of replaying the log up to `limit`.

    A stretch may start from a snapshot only because the stretch before it proves that snapshot
    right; where one is not, the log is replayed again in one piece.
    """
    whole = _whole(directory, snapshots, limit)
    if limit != Limit() or not _continuous(scan):
        return _run_one(run, whole)
    stretches = _stretches(directory, scan, snapshots)
    if len(stretches) < 2:
        return _run_one(run, whole)
    outcomes: list[Outcome] = run(replay, stretches)
    if not _proven(stretches, outcomes):
        return _run_one(run, whole)
    return _joined(outcomes)


def _run_one(run: Runner, stretch: Stretch) -> Outcome:
    outcome: Outcome = run(replay, [stretch])[0]
    return outcome


def _whole(directory: LogDirectory, snapshots: list[Snapshot], limit: Limit) -> Stretch:
    pieces = tuple((segment.name, ((0, segment.size),)) for segment in directory.segments)
    return Stretch(directory.files, pieces, tuple(s.file for s in snapshots), None, limit)


def _continuous(scan: LogScan) -> bool:
    """Whether each record follows the one before: then an offset has one place in the log."""
    broken = {"offset-gap", "segment-gap", "bad-records", "count-mismatch", "undecodable"}
    return not scan.unreadable and not any(f.code in broken for f in scan.findings)


def _stretches(directory: LogDirectory, scan: LogScan, snapshots: list[Snapshot]) -> list[Stretch]:
    """Cuts the log at sound snapshots inside it, some megabytes apart."""
    names = [segment.name for segment in directory.segments]
    marks = [
        (mark.offset, (names.index(one.slice.name), mark.position))
        for one in scan.slices
        for mark in one.marks
    ]
    if not marks or scan.start_offset or scan.end_offset is None:
        return []  # a log without its beginning starts from a snapshot that nothing proves
    sizes = [segment.size for segment in directory.segments]
    cuts: list[tuple[SnapshotFile, Place]] = []
    last: Place = (0, 0)
    for snapshot in snapshots:
        end = snapshot.file.end_offset
        if not 0 < end < scan.end_offset or not snapshot.whole or not snapshot.framed:
            continue
        place = max(at for offset, at in marks if offset <= end)
        if _distance(sizes, last, place) >= STRETCH_BYTES:
            cuts.append((snapshot.file, place))
            last = place
    files = [s.file for s in snapshots]
    found = []
    edges = [(None, (0, 0)), *cuts, (None, (len(sizes) - 1, sizes[-1]))]
    for (start, begin), (stop, finish) in pairwise(edges):
        lowest = -1 if start is None else start.end_offset
        highest = stop.end_offset if stop else None
        mine = [
            f for f in files
            if lowest < f.end_offset and (highest is None or f.end_offset <= highest)
        ]  # fmt: skip
        upto = _next_mark(marks, finish) if stop else finish
        pieces = _pieces(names, sizes, begin, upto)
        limit = Limit(offset=highest)
        found.append(Stretch(directory.files, pieces, tuple(mine), start, limit))
    return found


def _distance(sizes: list[int], begin: Place, end: Place) -> int:
    between = sum(sizes[begin[0] : end[0]])
    return between - begin[1] + end[1]


def _next_mark(marks: list[tuple[int, Place]], place: Place) -> Place:
    """The first mark behind the one at `place`: everything between belongs to that one."""
    later = [at for _, at in marks if at > place]
    if later:
        return min(later)
    return (place[0], -1)  # to the end of that segment, which is the last


def _pieces(
    names: list[str], sizes: list[int], begin: Place, end: Place
) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
    pieces = []
    for number in range(begin[0], end[0] + 1):
        start = begin[1] if number == begin[0] else 0
        stop = end[1] if number == end[0] and end[1] >= 0 else sizes[number]
        if stop > start:
            pieces.append((names[number], ((start, stop),)))
    return tuple(pieces)


def _proven(stretches: list[Stretch], outcomes: list[Outcome]) -> bool:
    """Whether every stretch ended in the very state that the next one started from."""
    for stretch, outcome in zip(stretches, outcomes, strict=True):
        if outcome.missing or outcome.findings:
            return False
        if stretch.limit.offset is None:
            continue
        if outcome.open_transaction or outcome.last_offset != stretch.limit.offset - 1:
            return False
        last = outcome.compared[-1] if outcome.compared else None
        if last is None or last.file != stretch.snapshots[-1].name or last.differences != []:
            return False
    return True


def _joined(outcomes: list[Outcome]) -> Outcome:
    end = outcomes[-1]
    tally = Tally()
    for outcome in outcomes:
        tally.merge(outcome.tally)
    end.tally = tally
    end.compared = [one for outcome in outcomes for one in outcome.compared]
    end.from_snapshot = outcomes[0].from_snapshot
    return end
