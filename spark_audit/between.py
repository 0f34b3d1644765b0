"""Compares the logs of a cluster's nodes, batch by batch.

Raft promises that logs which agree on an offset and its epoch agree on everything before it.
So a batch with the same offset and epoch but other bytes means damage or a broken quorum, while
tails of different epochs only mean that one node holds records that were never committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from spark_audit.files import LogDirectory
from spark_audit.findings import Finding
from spark_audit.frames import Ints, big_endian, padded
from spark_audit.scan import Slice, plan
from spark_audit.session import Runner
from spark_audit.walk import walk


@dataclass(slots=True)
class Prints:
    """One log's batches in the order of their offsets: CRCs stand for their content."""

    base: Ints
    following: Ints
    epoch: Ints
    crc: Ints

    def __len__(self) -> int:
        return len(self.base)


def prints_of_slice(piece: Slice) -> Prints:
    """What a Spark task returns of one slice."""
    data = piece.files.read(piece.name, piece.start, piece.end)
    positions, _ = walk(data)
    array = padded(data)
    at = np.array(positions, dtype=np.int64)
    base = big_endian(array, at, ">i8")
    following = base + big_endian(array, at + 23, ">i4") + 1
    return Prints(
        base, following, big_endian(array, at + 12, ">i4"), big_endian(array, at + 17, ">u4")
    )


def prints_of(directory: LogDirectory, run: Runner) -> Prints:
    """All batches of a log; of several at one offset, the first."""
    parts: list[Prints] = run(prints_of_slice, plan(directory))
    columns = [
        np.concatenate([getattr(part, name) for part in parts] or [np.zeros(0, dtype=np.int64)])
        for name in ("base", "following", "epoch", "crc")
    ]
    _, first = np.unique(columns[0], return_index=True)
    return Prints(*(column[first] for column in columns))


@dataclass(slots=True)
class Agreement:
    """How far two logs agree. `differs_at` is the first offset where they don't, if any."""

    end_offset: int | None = None
    end_epoch: int | None = None
    differs_at: int | None = None
    epochs: tuple[int, int] | None = None
    diverged: bool = False


def agreement(one: Prints, other: Prints) -> Agreement:
    """Compares the batches that begin at the same offsets, and looks for overlaps that don't."""
    base, mine, theirs = np.intersect1d(
        one.base, other.base, assume_unique=True, return_indices=True
    )
    found = Agreement()
    same_epoch = one.epoch[mine] == other.epoch[theirs]
    same = same_epoch & (one.crc[mine] == other.crc[theirs])
    different = np.flatnonzero(~same)
    agreed = int(different[0]) if len(different) else len(base)
    overlap = _overlap(one, other)
    if agreed < len(base):
        found.differs_at = int(base[agreed])
        found.epochs = (int(one.epoch[mine[agreed]]), int(other.epoch[theirs[agreed]]))
        # The same offset and epoch with other bytes, or agreement after disagreement.
        found.diverged = bool(same_epoch[agreed:].any())
    if overlap is not None and (found.differs_at is None or overlap[0] < found.differs_at):
        found.differs_at, found.epochs = overlap[0], overlap[1:]
        found.diverged = found.diverged or overlap[1] == overlap[2]
        agreed = int(np.searchsorted(base, overlap[0]))
    if agreed:
        last = mine[agreed - 1]
        found.end_offset = int(one.following[last])
        found.end_epoch = int(one.epoch[last])
    return found


def _overlap(one: Prints, other: Prints) -> tuple[int, int, int] | None:
    """The first batch of one log that begins inside a batch of the other: its offset, and the
    epochs in `one` and `other`."""
    found = []
    for inner, outer, swapped in ((one, other, False), (other, one, True)):
        if not len(inner) or not len(outer):
            continue
        before = np.searchsorted(outer.base, inner.base, side="right") - 1
        inside = (before >= 0) & (outer.base[before] < inner.base)
        inside &= outer.following[before] > inner.base
        for index in np.flatnonzero(inside)[:1]:
            epochs = int(inner.epoch[index]), int(outer.epoch[before[index]])
            found.append((int(inner.base[index]), *(epochs[::-1] if swapped else epochs)))
    return min(found, default=None)


def compare_logs(
    logs: Sequence[tuple[LogDirectory, Prints]],
) -> tuple[list[dict[str, Any]], list[tuple[int, Finding]]]:
    """The `between` part of the document, and (number of the directory, finding) for it."""
    entries: list[dict[str, Any]] = []
    findings: list[tuple[int, Finding]] = []
    for (i, (a, one)), (_, (b, other)) in combinations(enumerate(logs), 2):
        entry: dict[str, Any] = {
            "a": a.path,
            "b": b.path,
            "common_end_offset": None,
            "common_end_epoch": None,
            "diverged": False,
            "detail": "",
        }
        entries.append(entry)
        if a.cluster_id and b.cluster_id and a.cluster_id != b.cluster_id:
            entry["detail"] = f"not compared: cluster {a.cluster_id} and cluster {b.cluster_id}"
            continue
        found = agreement(one, other)
        entry["common_end_offset"] = found.end_offset
        entry["common_end_epoch"] = found.end_epoch
        entry["diverged"] = found.diverged
        entry["detail"] = _detail(found, one, other)
        if found.diverged:
            detail = f"{a.path} and {b.path}: {entry['detail']}"
            place = found.differs_at
            findings.append((i, Finding("diverged", "log", detail, None, place)))
    return entries, findings


def _detail(found: Agreement, one: Prints, other: Prints) -> str:
    if not len(one) or not len(other):
        return "nothing to compare: a log is empty"
    if found.differs_at is not None and found.epochs is not None:
        epochs = found.epochs
        if found.diverged:
            return (
                f"different batches at offset {found.differs_at} (epochs {epochs[0]}, {epochs[1]})"
            )
        return (
            f"tails of epochs {epochs[0]} and {epochs[1]} from offset {found.differs_at} on:"
            " the one of the lower epoch was not committed"
        )
    if found.end_offset is None:
        return "the logs have no offsets in common"
    ends = int(one.following[-1]), int(other.following[-1])
    if ends[0] == ends[1]:
        return "equal to the end"
    longer = "b" if ends[1] > ends[0] else "a"
    return f"{longer} has {abs(ends[0] - ends[1])} offsets more"
