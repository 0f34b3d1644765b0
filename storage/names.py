"""The names of files and directories, as Kafka has them."""

from __future__ import annotations

from wire.numbers import INT32_MAX, whole_number

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT)
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

_MAX_NAME = 255


def segment_file(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def base_offset_of(name: str, suffix: str) -> int | None:
    """The offset in the name of a segment's file with exactly this suffix, else None."""
    digits = name[: -len(suffix)]
    return whole_number(digits) if name.endswith(suffix) and len(digits) == 20 else None


def partition_dir(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_partition_dir(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a live partition directory's name, else None."""
    topic, dash, digits = name.rpartition("-")
    partition = whole_number(digits, INT32_MAX)
    if not dash or not topic or partition is None:
        return None
    if partition_dir(topic, partition) != name:
        return None
    return topic, partition


def marked_dir(topic: str, partition: int, token: str, mark: str) -> str:
    """`<topic>-<partition>.<32 hex digits>-<mark>`; a long topic is cut so that it fits."""
    tail = f"-{partition}.{token}-{mark}"
    return topic[: _MAX_NAME - len(tail)] + tail


def is_marked_dir(name: str, mark: str) -> bool:
    """Whether a directory has been given this mark (`delete`, `stray`, `future`)."""
    stem, dash, end = name.rpartition("-")
    _, dot, token = stem.rpartition(".")
    return bool(dash and dot) and end == mark and len(token) == 32
