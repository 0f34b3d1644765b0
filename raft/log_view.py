"""What the quorum core knows of the log: where it starts, ends, and where its epochs begin.

The view is the log as it will be once every effect emitted so far has been carried out; the
shell carries them out in order, so a message never tells of a log that isn't there.

    log start          synced end         end
        |--- durable ------|--- appended ---|
        epochs: [(epoch, start offset)], both strictly rising

`synced_end` is the only figure that counts towards a majority.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from raft.voters import OffsetAndEpoch


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class Valid(NamedTuple):
    """The fetch position is on our log: records follow."""


class Diverging(NamedTuple):
    """The fetcher's log leaves ours at or before this end of an epoch."""

    end: OffsetAndEpoch


class NeedsSnapshot(NamedTuple):
    """The records asked for are gone: load this snapshot first."""

    snapshot: OffsetAndEpoch


Position = Valid | Diverging | NeedsSnapshot
_VALID = Valid()


UNKNOWN_END = 2**63 - 1
"""As a log's old end: something is missing, nobody knows how much."""


class LogView:
    """The log's outline. Invariants: start <= synced_end <= end; epochs strictly rising."""

    __slots__ = (
        "earliest_snapshot",
        "end",
        "epochs",
        "latest_snapshot",
        "start",
        "synced_end",
        "truncations",
    )

    def __init__(
        self,
        *,
        start: int = 0,
        end: int = 0,
        epochs: Sequence[tuple[int, int]] = (),
        earliest_snapshot: OffsetAndEpoch | None = None,
        latest_snapshot: OffsetAndEpoch | None = None,
    ) -> None:
        """A log as found at start: all of it is durable (the shell has synced what it kept)."""
        self.start = start
        self.end = end
        self.synced_end = end
        self.epochs = [EpochStart(*entry) for entry in epochs]
        self.earliest_snapshot = earliest_snapshot
        self.latest_snapshot = latest_snapshot
        # Counts truncations and restarts, so that a sync begun before one isn't credited after.
        self.truncations = 0

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot when the log holds none."""
        if self.epochs:
            return self.epochs[-1].epoch
        return 0 if self.latest_snapshot is None else self.latest_snapshot.epoch

    @property
    def last(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end, self.last_epoch)

    def append(self, epoch: int, base_offset: int, end_offset: int) -> None:
        """Note records of one epoch, appended at the end."""
        assert base_offset == self.end, (base_offset, self.end)
        assert end_offset > base_offset, (base_offset, end_offset)
        assert epoch >= self.last_epoch, (epoch, self.last_epoch)
        if not self.epochs or self.epochs[-1].epoch < epoch:
            self.epochs.append(EpochStart(epoch, base_offset))
        self.end = end_offset

    def synced(self, end_offset: int, truncations: int) -> bool:
        """Note a finished fsync of all below `end_offset`; False if it tells nothing new."""
        if truncations != self.truncations or end_offset <= self.synced_end:
            return False
        assert end_offset <= self.end, (end_offset, self.end)
        self.synced_end = end_offset
        return True

    def truncate(self, offset: int) -> None:
        """Drop everything at and after `offset`."""
        assert self.start <= offset <= self.end, (self.start, offset, self.end)
        while self.epochs and self.epochs[-1].start_offset >= offset:
            self.epochs.pop()
        # A truncation is durable before anything that follows it, with what it leaves.
        self.end = self.synced_end = offset
        self.truncations += 1

    def restart_at(self, snapshot: OffsetAndEpoch) -> None:
        """Drop the whole log and go on behind `snapshot`, now the only one."""
        self.epochs.clear()
        self.start = self.end = self.synced_end = snapshot.offset
        self.earliest_snapshot = self.latest_snapshot = snapshot
        self.truncations += 1

    def add_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        if self.latest_snapshot is None or snapshot > self.latest_snapshot:
            self.latest_snapshot = snapshot
        if self.earliest_snapshot is None:
            self.earliest_snapshot = snapshot

    def advance_start(self, earliest_snapshot: OffsetAndEpoch) -> None:
        """The log now begins where `earliest_snapshot`, the oldest one kept, ends."""
        offset = earliest_snapshot.offset
        assert self.start <= offset <= self.end, (self.start, offset, self.end)
        self.start = offset
        self.synced_end = max(self.synced_end, offset)  # the snapshot is durable
        self.earliest_snapshot = earliest_snapshot
        kept: EpochStart | None = None
        while self.epochs and self.epochs[0].start_offset <= offset:
            kept = self.epochs.pop(0)
        # An empty log has no epochs of its own: its last epoch is then the snapshot's.
        if kept is not None and offset < self.end:
            self.epochs.insert(0, EpochStart(kept.epoch, offset))

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Where `epoch`, or the last one before it, ended here (KIP-595).

        An epoch above all of ours ends at the log's end; below all of ours, at the earliest
        snapshot (or at the start of an untrimmed log).
        """
        end = self.end
        for entry in reversed(self.epochs):
            if entry.epoch <= epoch:
                return OffsetAndEpoch(end, entry.epoch)
            end = entry.start_offset
        snapshot = self.earliest_snapshot
        if not self.epochs and (snapshot is None or epoch >= snapshot.epoch):
            return self.last
        if snapshot is not None and snapshot.offset <= self.start:
            return snapshot
        return OffsetAndEpoch(self.start, 0)

    def epoch_at(self, offset: int) -> int:
        """The epoch of the last record before `offset`, for `start <= offset <= end`."""
        assert self.start <= offset <= self.end, (self.start, offset, self.end)
        for entry in reversed(self.epochs):
            if entry.start_offset < offset:
                return entry.epoch
        if self.earliest_snapshot is not None and self.earliest_snapshot.offset == offset:
            return self.earliest_snapshot.epoch
        return self.epochs[0].epoch if self.epochs and offset > 0 else 0

    def check_position(self, offset: int, epoch: int) -> Position:
        """What a fetcher whose log ends at (`offset`, `epoch`) has to be told (KIP-595, 630)."""
        latest = self.latest_snapshot
        if offset == 0 and latest is not None and latest.offset > 0:
            return NeedsSnapshot(latest)
        if offset == 0 and self.start == 0:
            return _VALID
        earliest = self.earliest_snapshot
        if (
            earliest is not None
            and latest is not None
            and latest.offset > 0
            and (
                offset < self.start
                or (offset == self.start and epoch != earliest.epoch)
                or epoch < earliest.epoch
            )
        ):
            return NeedsSnapshot(latest)
        end = self.end_of_epoch(epoch)
        if end.epoch != epoch or end.offset < offset:
            return Diverging(end)
        own = next((e for e in reversed(self.epochs) if e.start_offset < offset), None)
        if own is not None and own.epoch != epoch and offset > self.start:
            # Its last record never was of the epoch that it says: no CRC covers that.
            return Diverging(self.end_of_epoch(own.epoch))
        return _VALID

    def truncation_point(self, leader_end: OffsetAndEpoch) -> int:
        """Where to cut our log when the leader says that it left ours by `leader_end`."""
        if leader_end.epoch == 0:
            return min(leader_end.offset, self.end)
        own = self.end_of_epoch(leader_end.epoch)
        if own.epoch == leader_end.epoch:
            return min(own.offset, leader_end.offset)
        return own.offset

    def check_invariants(self) -> None:
        assert 0 <= self.start <= self.synced_end <= self.end, self.describe()
        for earlier, later in zip(self.epochs, self.epochs[1:], strict=False):
            assert earlier.epoch < later.epoch, self.describe()
            assert earlier.start_offset < later.start_offset, self.describe()
        if self.start > 0:
            assert self.earliest_snapshot is not None, self.describe()
            assert self.earliest_snapshot.offset >= self.start, self.describe()

    def describe(self) -> str:
        return (
            f"log [{self.start}, {self.end}) synced {self.synced_end} epochs {self.epochs} "
            f"snapshots {self.earliest_snapshot}..{self.latest_snapshot}"
        )
