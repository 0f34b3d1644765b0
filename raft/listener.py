"""What the quorum tells the state machine above it: committed batches, snapshots, leaders.

All calls come on the event loop, in the order of the log, one after the other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from raft.voters import ReplicaKey


class LeaderAndEpoch(NamedTuple):
    """The leader, None while unknown, of an epoch."""

    leader_id: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """One batch below the high watermark.

    `values` of its records, as they are in the log, or `control` (type, decoded body) if it is a
    control batch; never both. `timestamp_ms` is the largest in it (Unix time).
    """

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    values: list[bytes]
    control: list[tuple[int, Any]]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """A whole snapshot. `slices` gives the values of its records, a batch at a time, read and
    checked off the loop; it can be read once, and raises SnapshotUnusable or DiskError. `voters`
    and `kraft_version` None, 0 if the snapshot holds none (static voters)."""

    end_offset: int
    epoch: int
    timestamp_ms: int
    slices: AsyncIterator[list[bytes]]
    voters: tuple[ReplicaKey, ...] | None
    kraft_version: int


class RaftListener(Protocol):
    """The state machine."""

    def on_batch(self, batch: CommittedBatch) -> None:
        """The next committed batch."""
        ...

    async def prepare(self, batch: CommittedBatch) -> None:
        """This batch of many records is told next, unless a snapshot is: what it takes can be done
        now, a slice at a time, with others' turn in between. Until `on_batch` nobody sees it."""
        ...

    async def on_snapshot(self, snapshot: SnapshotView) -> None:
        """This state replaces everything told before. Nothing else is told until it returns, but
        others have their turn: a large one takes seconds. What it raises stops the node."""
        ...

    def on_snapshot_lost(self) -> None:
        """A snapshot that others need turned out damaged: write one of the present state soon."""
        ...

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Another leader or epoch. Told of this node only when everything that earlier leaders
        committed has been told, so that it can decide at once."""
        ...
