"""Damage below what was synced: how it is recognized, and where bytes go that a log can't use.

Synced bytes are never destroyed when a log is opened: what no longer fits in a log is kept under a
name that no log takes for its own, for the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from storage import names
from storage.epochs import LeaderEpochs
from storage.scan import Damage, only_zeros
from storage.segment import Segment
from wire.index_files import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from world.env import Absent, Disk, Env, File

DAMAGED = ".damaged"
_CHUNK = 1 << 20


def within(found: Sequence[Damage], start: int, end: int) -> list[Damage]:
    """What of the damage lies in the log from `start` to `end`: before the one it is deleted
    anyway, from the other on whatever is appended takes its place."""
    return [damage for damage in found if start <= damage.offset < end]


def missing_beginning(
    listed: Sequence[str], epochs: LeaderEpochs, log_start: int, clean: bool
) -> tuple[int, list[int]] | None:
    """(where the log began, bases of segments whose indexes were left behind) if the first
    segments of a directory with these files are gone; None if nothing says so.

    Whoever retires them moves the beginning of the first epoch along: where the log was closed in
    order, that tells where the log began. After a kill it may be old. But who retires a segment
    renames its log first, so that indexes with no trace of their log are not left by that.
    """
    bases = _bases(listed, names.LOG)
    if not bases or epochs.earliest is None:
        return None
    start = max(epochs.earliest[1], log_start)
    if start >= min(bases):
        return None
    # Of a cleaner that was broken off, `sweep` knows what belongs together.
    if any(name.endswith((names.CLEANED, names.SWAP)) for name in listed):
        return (start, []) if clean else None
    known = dict.fromkeys([*bases, *_bases(listed, names.LOG + names.DELETED)])
    time_indexes = dict.fromkeys(_bases(listed, names.TIME_INDEX))
    left = [
        base
        for base in _bases(listed, names.INDEX)
        if base in time_indexes and base not in known and start <= base < min(bases)
    ]
    return (start, left) if clean or left else None


def _bases(listed: Sequence[str], suffix: str) -> list[int]:
    found = (names.base_offset_of(name, suffix) for name in listed)
    return [base for base in found if base is not None]


def was_emptied(disk: Disk, segment: Segment) -> bool:
    """Whether an empty segment has had batches: its indexes say so. The cleaner leaves empty ones
    with a segment of which nothing remains, and zeros are what a crashed JVM preallocated."""
    if segment.file.size():
        return False
    return any(
        _has_entry(disk, segment.path(suffix), size)
        for suffix, size in (
            (names.INDEX, OFFSET_ENTRY_SIZE),
            (names.TIME_INDEX, TIME_ENTRY_SIZE),
        )
    )


def _has_entry(disk: Disk, path: str, entry_size: int) -> bool:
    try:
        file = disk.open(path)
    except Absent:
        return False
    try:
        return file.size() >= entry_size and any(file.pread(entry_size, 0))
    finally:
        file.close()


async def keep_tail(env: Env, segment: Segment, position: int, problem: Damage) -> Damage:
    """Copy what follows `position` in a segment that is to be cut there, durably; the damage, with
    where that is. Nothing is copied if there are only zeros. Raises DiskFull or DiskError."""
    if await env.run_blocking(only_zeros, segment.file, position):
        return problem
    disk = env.disk
    target = f"{segment.file.path}.{position}{DAMAGED}"
    if disk.exists(target):
        # By a start that was broken off before it cut: another copy would be one too many.
        if await env.run_blocking(_ends_as, disk, target, segment.file, position):
            return _with_kept(problem, target)
        target = _free_name(disk, segment.file.path, position)
    copy = disk.open(target + ".tmp", create=True)
    try:
        copy.truncate(0)
        for at in range(position, segment.file.size(), _CHUNK):
            copy.append([await env.run_blocking(segment.file.pread, _CHUNK, at)])
        await copy.sync()
    finally:
        copy.close()
    disk.rename(target + ".tmp", target)
    await disk.sync_dir(segment.directory)
    return _with_kept(problem, target)


def _ends_as(disk: Disk, path: str, file: File, position: int) -> bool:
    """Whether a file at `path` holds what follows `position` in another."""
    copy = disk.open(path)
    try:
        length = copy.size()
        return length == file.size() - position and all(
            copy.pread(_CHUNK, at) == file.pread(_CHUNK, position + at)
            for at in range(0, length, _CHUNK)
        )
    finally:
        copy.close()


def keep_segment(env: Env, directory: str, base_offset: int, problem: Damage) -> Damage:
    """Rename the log file of a segment that can't stay in the log; the damage, with its name."""
    path = f"{directory}/{names.segment_file(base_offset, names.LOG)}"
    target = _free_name(env.disk, path, 0)
    env.disk.rename(path, target)
    return _with_kept(problem, target)


def _with_kept(problem: Damage, target: str) -> Damage:
    return replace(problem, reason=f"{problem.reason}; kept in {target}")


def _free_name(disk: Disk, path: str, position: int) -> str:
    stem, number = f"{path}.{position}", 0
    name = stem + DAMAGED
    while disk.exists(name):
        number += 1
        name = f"{stem}.{number}{DAMAGED}"
    return name
