"""Metadata log directories made for tests: segments and snapshots, sound unless told otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from metadata_samples import History

from metadata.image import EMPTY, MetadataImage
from metadata.records import NoOpRecord, Record, encode
from metadata.snapshot import values_of
from wire.batch import build_batch
from wire.control import encode_leader_change, encode_snapshot_footer, encode_snapshot_header

START_MS = 1_700_000_000_000
META = "version=1\ncluster.id=Some-Cluster-Id-000000\nnode.id=7\n"


class LogWriter:
    """Writes one node's `__cluster_metadata-0`; a batch takes one millisecond."""

    def __init__(self, parent: Path) -> None:
        self.directory = parent / "__cluster_metadata-0"
        self.directory.mkdir(parents=True, exist_ok=True)
        (parent / "meta.properties").write_text(META)
        self.offset = 0
        self.epoch = 1
        self.time_ms = START_MS
        self._segment: Path | None = None
        self.positions: list[int] = []  # of all batches in the segment being written
        self.roll()

    @property
    def segment(self) -> Path:
        assert self._segment is not None
        return self._segment

    def roll(self) -> None:
        self._segment = self.directory / f"{self.offset:020d}.log"
        self._segment.touch()
        self.positions = []

    def raw(self, data: bytes, records: int = 0) -> None:
        """Appends bytes as they are; `records` offsets count as used."""
        with self.segment.open("ab") as file:
            self.positions.append(file.tell())
            file.write(data)
        self.offset += records

    def values(self, values: Sequence[bytes | None], *, codec: int = 0, key: Any = None) -> None:
        """One batch of values."""
        self.time_ms += 1
        batch = build_batch(
            [(self.time_ms, key, value, ()) for value in values],
            base_offset=self.offset,
            leader_epoch=self.epoch,
            codec=codec,
        )
        self.raw(batch, len(values))

    def batch(self, *records: Record, codec: int = 0) -> None:
        self.values([encode(record) for record in records], codec=codec)

    def leader_change(self, leader: int, epoch: int) -> None:
        self.epoch = epoch
        self.control(encode_leader_change(leader, [1, 2, 3], [leader]))

    def control(self, *pairs: tuple[bytes, bytes]) -> None:
        """One batch of control records, each a key and a value."""
        self.time_ms += 1
        batch = build_batch(
            [(self.time_ms, key, value, ()) for key, value in pairs],
            base_offset=self.offset,
            leader_epoch=self.epoch,
            control=True,
        )
        self.raw(batch, len(pairs))

    def snapshot(self, image: MetadataImage, *, time_ms: int | None = None) -> Path:
        """A snapshot of an image at the present end of the log."""
        name = f"{self.offset:020d}-{self.epoch:010d}.checkpoint"
        path = self.directory / name
        path.write_bytes(snapshot_bytes(values_of(image), self.epoch, time_ms or self.time_ms))
        return path


class Node:
    """Writes a metadata log and, as a running node does, trims it at every snapshot."""

    def __init__(self, parent: Path) -> None:
        self.log, self.made = LogWriter(parent), History(3)
        self.image = EMPTY
        self.trims = 0
        for _ in range(3):
            self.write()

    def write(self) -> None:
        for _ in range(10):
            records = self.made.take(3)
            self.log.batch(*records, NoOpRecord())
            for record in records:
                self.image = self.image.apply(record)
        self.log.snapshot(self.image)
        self.log.roll()
        self.log.batch(NoOpRecord())

    def trim(self) -> None:
        """A new snapshot, then the oldest goes, and the log before the one that is now."""
        self.trims += 1
        self.write()
        folder = self.log.directory
        oldest, following = sorted(folder.glob("*.checkpoint"))[:2]
        oldest.rename(f"{oldest}.deleted")
        for segment in sorted(folder.glob("*.log"))[:-1]:
            if segment.name < following.name:
                segment.rename(f"{segment}.deleted")


def snapshot_bytes(values: Iterable[bytes], epoch: int, time_ms: int) -> bytes:
    """A whole `.checkpoint` file around the values of an image."""
    data = b""
    offset = 0

    def add(records: list[Any], control: bool) -> None:
        nonlocal data, offset
        data += build_batch(records, base_offset=offset, leader_epoch=epoch, control=control)
        offset += len(records)

    add([(time_ms, *encode_snapshot_header(time_ms), ())], True)
    listed = [(time_ms, None, value, ()) for value in values]
    for start in range(0, len(listed), 100):
        add(listed[start : start + 100], False)
    add([(time_ms, *encode_snapshot_footer(), ())], True)
    return data
