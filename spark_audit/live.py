"""Reads the directory of a running node, whose retention deletes files that were just listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from spark_audit.files import (
    LISTINGS,
    LogDirectory,
    Segment,
    SnapshotFile,
    deleted_meanwhile,
    open_directory,
)

Result = TypeVar("Result")


def settled(
    path: str,
    read: Callable[[LogDirectory], Result],
    progress: Callable[[str], None] = lambda text: None,
) -> Result:
    """What `read` makes of a directory; where a file of it was deleted meanwhile, the directory is
    listed again and all begins anew. AuditError where that happens each time.

    Whatever `read` raises then is taken for that: a Spark worker's error has lost its class.
    """
    gone = None
    for _ in range(LISTINGS):
        if gone is not None:
            progress(f"{path}: {gone} was deleted meanwhile; beginning anew")
        directory = open_directory(path)
        try:
            return read(directory)
        except Exception:
            gone = gone_from(directory, [*directory.segments, *directory.snapshots])
            if gone is None:
                raise
    raise deleted_meanwhile(path, gone)


def gone_from(directory: LogDirectory, listed: Iterable[Segment | SnapshotFile]) -> str | None:
    """The first of the listed files that the directory no longer has."""
    try:
        there = set(directory.files.names())
    except OSError:  # the directory went, which the next listing says
        there = set()
    return next((file.name for file in listed if file.name not in there), None)
