"""Snapshot files of the metadata log: `<end offset>-<epoch>.checkpoint` (KIP-630).

A snapshot is complete if its batches are sound and its last record is the footer. It is written
to a `.part` file first, which is synced and renamed; a `.part` is never taken for a snapshot.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from raft.listener import SnapshotView
from raft.voters import OffsetAndEpoch, ReplicaKey
from wire.batch import HEADER_SIZE, BatchHeader, crc_ok, decode_records, decode_values, read_header
from wire.control import ControlType, Voter, decode_control, voters_of
from wire.errors import BadHeader, DecodeError
from world.env import DiskError, Env, File
from world.slices import Work, run_in_slices

SUFFIX = ".checkpoint"
PART = ".part"
DELETED = ".deleted"
DAMAGED = ".damaged"
BOOTSTRAP = OffsetAndEpoch(0, 0)
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_READ_BYTES = 1 << 20
_SLICE_BYTES = 16 << 20  # read at a time, where a whole file is


def file_name(snapshot: OffsetAndEpoch) -> str:
    return f"{snapshot.offset:020d}-{snapshot.epoch:010d}{SUFFIX}"


def parse_name(name: str) -> OffsetAndEpoch | None:
    match = _NAME.fullmatch(name)
    return None if match is None else OffsetAndEpoch(int(match[1]), int(match[2]))


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """What a complete snapshot file says of itself."""

    snapshot: OffsetAndEpoch
    size: int
    timestamp_ms: int
    voters: tuple[Voter, ...] | None
    kraft_version: int


class SnapshotUnusable(Exception):
    """The file is no complete snapshot; the text says where and why."""


def batches(file: File) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch of a file, its CRC checked. Raises SnapshotUnusable where it isn't sound."""
    position, size, next_offset = 0, file.size(), 0
    buffer = b""
    start = 0  # where in the file the buffer begins
    while position < size:
        at = position - start
        if len(buffer) - at < HEADER_SIZE:
            buffer, start, at = file.pread(_READ_BYTES, position), position, 0
        try:
            header = read_header(buffer, at)
        except BadHeader as error:
            raise SnapshotUnusable(f"{file.path}: byte {position}: {error.reason}") from error
        if header.length > size - position:
            raise SnapshotUnusable(f"{file.path}: byte {position}: batch cut short")
        if len(buffer) - at < header.length:
            want = max(_READ_BYTES, header.length)
            buffer, start, at = file.pread(want, position), position, 0
        if not crc_ok(buffer, at, header.length):
            raise SnapshotUnusable(f"{file.path}: byte {position}: CRC doesn't match")
        if header.base_offset != next_offset:
            raise SnapshotUnusable(
                f"{file.path}: byte {position}: batch begins at {header.base_offset}, "
                f"expected {next_offset}"
            )
        yield header, buffer[at : at + header.length]
        next_offset = header.next_offset
        position += header.length


def examine(file: File, snapshot: OffsetAndEpoch) -> Work[SnapshotFacts]:
    """Read a whole file, in slices (see `world.slices`); SnapshotUnusable if it isn't a complete
    snapshot."""
    timestamp_ms, kraft_version = 0, 0
    voters: tuple[Voter, ...] | None = None
    last = -1
    first = True
    read = 0
    for header, data in batches(file):
        last = -1
        read += header.length
        if read >= _SLICE_BYTES:
            read = 0
            yield
        if header.is_control:
            for record in decode_records(data, 0, header):
                control = decode_control(record.key, record.value)
                last = control.type
                if control.type == ControlType.SNAPSHOT_HEADER:
                    timestamp_ms = control.entity.last_contained_log_timestamp
                elif control.type == ControlType.KRAFT_VERSION:
                    kraft_version = control.entity.k_raft_version
                elif control.type == ControlType.KRAFT_VOTERS:
                    voters = voters_of(control.entity)
        if first and last not in (
            ControlType.SNAPSHOT_HEADER,
            ControlType.KRAFT_VERSION,
            ControlType.KRAFT_VOTERS,
        ):
            raise SnapshotUnusable(f"{file.path}: byte 0: no snapshot header")
        first = False
    if last != ControlType.SNAPSHOT_FOOTER:
        raise SnapshotUnusable(f"{file.path}: byte {file.size()}: no footer, it was cut short")
    return SnapshotFacts(snapshot, file.size(), timestamp_ms, voters, kraft_version)


def _next_values(rest: Iterator[tuple[BatchHeader, bytes]]) -> list[bytes] | None:
    """The values of the next batch of data; None at the end."""
    for header, data in rest:
        if not header.is_control:
            return [value or b"" for value in decode_values(data, 0, header)]
    return None


def view(env: Env, file: File, facts: SnapshotFacts) -> SnapshotView:
    """The snapshot for the state machine."""

    async def slices() -> AsyncIterator[list[bytes]]:
        rest = batches(file)
        while (values := await env.run_blocking(_next_values, rest)) is not None:
            yield values

    return SnapshotView(
        facts.snapshot.offset,
        facts.snapshot.epoch,
        facts.timestamp_ms,
        slices(),
        None
        if facts.voters is None
        else tuple(ReplicaKey(voter.voter_id, voter.directory_id) for voter in facts.voters),
        facts.kraft_version,
    )


class SnapshotStore:
    """The snapshots of one directory: complete ones, and one that is being fetched."""

    def __init__(self, env: Env, directory: str) -> None:
        self._env = env
        self._disk = env.disk
        self._directory = directory
        self.complete: dict[OffsetAndEpoch, SnapshotFacts] = {}  # by id, oldest first
        self.bootstrap: SnapshotFacts | None = None
        # Files at start that look like snapshots and aren't complete: path and reason.
        self.unusable: dict[str, str] = {}
        self._files: dict[OffsetAndEpoch, File] = {}
        self._dropped: list[str] = []

    async def load(self) -> None:
        """Find what is there; every file is read whole, off the loop.

        Half-written files go; unusable ones are noted and left alone.
        """
        for name in self._disk.list_dir(self._directory):
            path = f"{self._directory}/{name}"
            if name.endswith((SUFFIX + PART, SUFFIX + DELETED)):
                self._disk.remove(path)
                continue
            snapshot = parse_name(name)
            if snapshot is None:
                continue
            file = self._disk.open(path)
            try:
                facts = await run_in_slices(self._env, examine(file, snapshot))
            except (SnapshotUnusable, DecodeError) as error:
                self.unusable[path] = str(error)
            else:
                if snapshot == BOOTSTRAP:
                    self.bootstrap = facts
                else:
                    self.complete[snapshot] = facts
            finally:
                file.close()

    def set_aside(self) -> None:
        """Give what is unusable names that nobody takes for a snapshot's."""
        for path in self.unusable:
            self._disk.rename(path, path + DAMAGED)

    @property
    def earliest(self) -> OffsetAndEpoch | None:
        return next(iter(self.complete), None)

    @property
    def latest(self) -> OffsetAndEpoch | None:
        return next(reversed(self.complete), None)

    @property
    def size(self) -> int:
        """Bytes in all complete snapshots."""
        return sum(facts.size for facts in self.complete.values())

    def path(self, snapshot: OffsetAndEpoch) -> str:
        return f"{self._directory}/{file_name(snapshot)}"

    def open(self, snapshot: OffsetAndEpoch) -> File | None:
        """A complete snapshot's file; it stays open until the snapshot goes."""
        if snapshot not in self.complete:
            return None
        file = self._files.get(snapshot)
        if file is None:
            file = self._files[snapshot] = self._disk.open(self.path(snapshot))
        return file

    async def read(self, file: File, position: int, length: int) -> bytes:
        """Bytes of a complete snapshot, however long the disk takes. Raises DiskError."""
        data: bytes = await self._env.run_blocking(file.pread, length, position)
        return data

    async def verify(self, snapshot: OffsetAndEpoch) -> None:
        """Read a complete snapshot through again, off the loop. If it isn't what it was any more
        it is set aside and SnapshotUnusable says why. Raises DiskError if that is refused."""
        file = self.open(snapshot)
        assert file is not None, snapshot
        try:
            await run_in_slices(self._env, examine(file, snapshot))
        except (SnapshotUnusable, DecodeError, DiskError) as error:
            if snapshot not in self.complete:
                return  # dropped meanwhile, and closed with that
            path = self.path(snapshot)
            self._disk.rename(path, path + DAMAGED)
            self._forget(snapshot)
            raise SnapshotUnusable(str(error)) from error

    def _forget(self, snapshot: OffsetAndEpoch) -> None:
        del self.complete[snapshot]
        file = self._files.pop(snapshot, None)
        if file is not None:
            file.close()

    def new_part(self, snapshot: OffsetAndEpoch, mark: str) -> File:
        """A new, empty file to write a snapshot to."""
        path = f"{self._directory}/{file_name(snapshot)[: -len(SUFFIX)]}-{mark}{SUFFIX}{PART}"
        if self._disk.exists(path):
            self._disk.remove(path)
        return self._disk.open(path, create=True)

    async def freeze(self, part: File, snapshot: OffsetAndEpoch) -> SnapshotFacts:
        """Check a finished part, make it durable and give it its name.

        SnapshotUnusable if it isn't complete, DiskError if the disk refuses; the part is gone then.
        It is closed either way.
        """
        try:
            facts = await run_in_slices(self._env, examine(part, snapshot))
            await part.sync()
            part.close()
            self._disk.rename(part.path, self.path(snapshot))
            await self._disk.sync_dir(self._directory)
        except DecodeError as error:
            self.discard(part)
            raise SnapshotUnusable(str(error)) from error
        except (SnapshotUnusable, DiskError):
            self.discard(part)
            raise
        self.complete[snapshot] = facts
        self.complete = dict(sorted(self.complete.items()))
        return facts

    def discard(self, part: File) -> None:
        """Close and remove a part."""
        part.close()
        if self._disk.exists(part.path):
            self._disk.remove(part.path)

    def drop_before(self, snapshot: OffsetAndEpoch) -> None:
        """Take all older snapshots out of use; `remove_dropped` frees their space."""
        for old in [old for old in self.complete if old < snapshot]:
            self._disk.rename(self.path(old), self.path(old) + DELETED)
            self._dropped.append(self.path(old) + DELETED)
            self._forget(old)

    async def remove_dropped(self) -> None:
        """Remove the files of dropped snapshots, off the loop: a large one takes long."""
        dropped, self._dropped = self._dropped, []
        for path in dropped:
            await self._env.run_blocking(self._disk.remove, path)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
