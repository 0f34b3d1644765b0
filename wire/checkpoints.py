"""Kafka's text checkpoint files: version 0, the count, one entry a line.

Offset checkpoints hold `topic partition offset` (recovery points, high watermarks, log start
offsets, cleaner offsets); the leader-epoch file of a partition holds `epoch start-offset`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wire.errors import DamagedFile
from wire.numbers import integer

TopicPartition = tuple[str, int]


def _encode(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()


def _entries(data: bytes, path: str, width: int) -> list[tuple[int, list[str]]]:
    """Byte position and words of each entry."""
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise DamagedFile(path, error.start, "not UTF-8") from error
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 2:
        raise DamagedFile(path, 0, "no version and count")
    if lines[0].strip() != "0":
        raise DamagedFile(path, 0, f"version {lines[0]!r}, only 0 is supported")
    position = len(lines[0]) + 1
    count = _integer(lines[1].strip(), path, position)
    if count != len(lines) - 2:
        raise DamagedFile(path, position, f"says {count} entries, has {len(lines) - 2}")
    position += len(lines[1]) + 1
    entries = []
    for line in lines[2:]:
        words = line.split()
        if len(words) != width:
            raise DamagedFile(path, position, f"malformed line {line!r}")
        entries.append((position, words))
        position += len(line.encode()) + 1
    return entries


def _integer(text: str, path: str, position: int) -> int:
    number = integer(text)
    if number is None:
        raise DamagedFile(path, position, f"{text!r} is not a number")
    return number


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """An offset checkpoint, sorted by topic and partition."""
    return _encode([f"{t} {p} {offset}" for (t, p), offset in sorted(offsets.items())])


def decode_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    """Offset by (topic, partition); DamagedFile on nonsense, a duplicate or a negative number."""
    offsets: dict[TopicPartition, int] = {}
    for position, (topic, partition_text, offset_text) in _entries(data, path, 3):
        key = (topic, _integer(partition_text, path, position))
        offset = _integer(offset_text, path, position)
        if key in offsets or key[1] < 0 or offset < 0:
            raise DamagedFile(path, position, f"impossible entry for {topic}-{partition_text}")
        offsets[key] = offset
    return offsets


def encode_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """A leader-epoch file of (epoch, start offset), oldest first."""
    return _encode([f"{epoch} {start}" for epoch, start in epochs])


def decode_epochs(data: bytes, path: str) -> list[tuple[int, int]]:
    """(epoch, start offset), oldest first; DamagedFile on nonsense or if either ever falls."""
    epochs: list[tuple[int, int]] = []
    for position, (epoch_text, start_text) in _entries(data, path, 2):
        epoch = _integer(epoch_text, path, position)
        start = _integer(start_text, path, position)
        last_epoch, last_start = epochs[-1] if epochs else (-1, 0)
        if epoch <= last_epoch or start < last_start:
            raise DamagedFile(path, position, f"epoch {epoch} at {start} after {epochs[-1:]}")
        epochs.append((epoch, start))
    return epochs
