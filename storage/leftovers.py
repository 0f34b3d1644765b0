"""Files that an interrupted delete, clean or write left behind, taken in Kafka's order."""

from __future__ import annotations

from collections.abc import Sequence

from storage import names
from storage.damage import DAMAGED
from storage.index import StoredIndex
from storage.names import base_offset_of
from storage.segment import IndexIsWrong, Segment
from wire.batch import BatchHeader
from wire.errors import DamagedFile
from world.env import Absent, Disk

_OWN_TEMPORARY = (names.LEADER_EPOCHS + ".tmp", names.PARTITION_METADATA + ".tmp")


async def make_directory(disk: Disk, path: str) -> None:
    """Make a directory and those above it that are missing, all durably."""
    missing = []
    above = path
    while above and not disk.is_dir(above):
        missing.append(above)
        above = above.rpartition("/")[0]
    if missing:
        disk.make_dirs(path)
    for made in reversed(missing):
        await disk.sync_dir(made.rpartition("/")[0] or ("/" if made.startswith("/") else "."))


def sweep(disk: Disk, directory: str, kept: Sequence[int] = ()) -> list[str]:
    """Remove or finish what was left behind; the paths removed. Indexes without a log stay where
    their base offset is one of `kept`.

    Checkpoint files of the metadata log are left to their owner.
    """
    removed: list[str] = []

    def remove(name: str) -> None:
        path = f"{directory}/{name}"
        disk.remove(path)
        removed.append(path)

    cleaned: list[int] = []
    deleted_logs: list[str] = []
    for name in disk.list_dir(directory):
        if base_offset_of(name, names.LOG + names.DELETED) is not None:
            deleted_logs.append(name)
        elif _is_deleted(name) or name in _OWN_TEMPORARY or name.endswith(DAMAGED + ".tmp"):
            remove(name)
        elif name.endswith(names.CLEANED):
            base = base_offset_of(name, names.LOG + names.CLEANED)
            if base is not None:
                cleaned.append(base)
            remove(name)
    _finish_swaps(disk, directory, min(cleaned, default=None), removed)
    present = disk.list_dir(directory)
    for name in present:
        for suffix in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX):
            base = base_offset_of(name, suffix)
            alone = base is not None and names.segment_file(base, names.LOG) not in present
            if alone and base not in kept:
                remove(name)
    # Last: as long as they are there they tell that no log of these indexes was lost.
    for name in deleted_logs:
        remove(name)
    return removed


def _is_deleted(name: str) -> bool:
    return any(
        base_offset_of(name, suffix + names.DELETED) is not None
        for suffix in names.SEGMENT_SUFFIXES
    )


def _finish_swaps(disk: Disk, directory: str, min_cleaned: int | None, removed: list[str]) -> None:
    """Let finished output of a cleaner (`.swap`) take the place of the segments it replaces."""
    swapped: list[int] = []
    for name in disk.list_dir(directory):
        if not name.endswith(names.SWAP):
            continue
        plain = name[: -len(names.SWAP)]
        bases = [base_offset_of(plain, suffix) for suffix in names.SEGMENT_SUFFIXES]
        base = next((found for found in bases if found is not None), None)
        if base is None or (min_cleaned is not None and base >= min_cleaned):
            disk.remove(f"{directory}/{name}")
            removed.append(f"{directory}/{name}")
        elif plain.endswith(names.LOG):
            swapped.append(base)
    ends = {base: _next_offset(disk, directory, base) for base in swapped}
    for base in [base for base, end in ends.items() if end is None]:
        # Damaged, and what it was to replace is still there: that stays.
        del ends[base]
        for suffix in names.SEGMENT_SUFFIXES:
            path = f"{directory}/{names.segment_file(base, suffix)}{names.SWAP}"
            if disk.exists(path):
                disk.remove(path)
                removed.append(path)
    swapped = list(ends)
    if not swapped:
        return
    end = max(end for end in ends.values() if end is not None)
    for name in disk.list_dir(directory):
        base = base_offset_of(name, names.LOG)
        if base is not None and min(swapped) <= base < end:
            for suffix in names.SEGMENT_SUFFIXES:
                path = f"{directory}/{names.segment_file(base, suffix)}"
                if suffix != names.SNAPSHOT and disk.exists(path):
                    disk.remove(path)
                    removed.append(path)
    for name in disk.list_dir(directory):
        if name.endswith(names.SWAP):
            disk.rename(f"{directory}/{name}", f"{directory}/{name[: -len(names.SWAP)]}")


def _last_header(segment: Segment) -> BatchHeader | None:
    """The header of the last batch, which the index leads to, if there is one that is right."""
    try:
        return segment.last_header()
    except (Absent, IndexIsWrong):
        last = None
        for _, header in segment.headers_from(0):
            last = header
        return last


def _next_offset(disk: Disk, directory: str, base: int) -> int | None:
    """Where the records of a swap file end. None if it is damaged, or empty as a file is that
    never reached the disk, and has not begun to take its place. If it has, it is all there is, and
    as much of it as is sound will be kept."""
    paths = [
        f"{directory}/{names.segment_file(base, suffix)}{names.SWAP}"
        for suffix in (names.LOG, names.INDEX, names.TIME_INDEX)
    ]
    file = disk.open(paths[0])
    segment = Segment(directory, base, file, StoredIndex(disk, *paths[1:]), 0)
    end, sound = base, file.size() > 0
    try:
        last = _last_header(segment)
        end = base if last is None else last.next_offset
    except DamagedFile:
        sound = False
    finally:
        segment.close()
    replaced = disk.exists(f"{directory}/{names.segment_file(base, names.LOG)}")
    return None if replaced and not sound else end
