"""The disk of one simulated quorum member: what is durable, and what a crash may take.

Fault budget, per kind: a crash takes any suffix of the unsynced records, and a quorum-state
write under way; damage takes synced records too, a robbery the whole log, and a lost disk
everything, of a minority of every voter set in force.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, NamedTuple

from raft.effects import ElectionState
from raft.log_view import UNKNOWN_END, LogView
from raft.voters import MembershipRecord, OffsetAndEpoch, VoterSet


class Entry(NamedTuple):
    """A record: the epoch it was appended in, and a value no other record has. `joined`: the next
    record is of the same batch, which nothing divides."""

    epoch: int
    value: Any
    joined: bool = False


@dataclass(slots=True)
class Snapshot:
    """A checkpoint file: what the records below its end fold to, a size in bytes, and the voter
    set as of its end."""

    snapshot_id: OffsetAndEpoch
    digest: int
    size: int
    membership: MembershipRecord


class RaftDisk:
    """Survives its node. Offsets are absolute; `entries[0]` is at `start`."""

    def __init__(self, bootstrap: MembershipRecord | None = None) -> None:
        """`bootstrap`: what the snapshot 0-0 says, of a disk formatted with initial voters."""
        self.bootstrap = bootstrap
        self.election = ElectionState()
        self.writing: ElectionState | None = None
        self.start = 0
        self.entries: list[Entry] = []
        self.synced_end = 0
        self.truncations = 0
        self.snapshots: list[Snapshot] = []  # by id
        self.needs_end = 0
        self.robbed = False
        self.part: tuple[OffsetAndEpoch, int, Snapshot] | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.entries)

    def entry(self, offset: int) -> Entry:
        return self.entries[offset - self.start]

    def epoch_before(self, offset: int) -> int:
        """The epoch of the record before `offset`, from the log or the snapshot under it."""
        if offset > self.start:
            return self.entry(offset - 1).epoch
        for snapshot in self.snapshots:
            if snapshot.snapshot_id.offset == offset:
                return snapshot.snapshot_id.epoch
        return 0

    def membership(self) -> list[MembershipRecord]:
        """What newest snapshot and log say of membership, in order."""
        found = [self.bootstrap] if self.bootstrap is not None else []
        start = self.start
        if self.snapshots:
            found = [self.snapshots[-1].membership]
            start = max(start, self.snapshots[-1].snapshot_id.offset)
        entries = self.entries[start - self.start :]
        return found + [e.value for e in entries if isinstance(e.value, MembershipRecord)]

    def voters(self, static: VoterSet) -> VoterSet:
        """The set in force: the latest there is, or the configured one."""
        sets = [record.voters for record in self.membership() if record.voters is not None]
        return sets[-1] if sets else static

    def append(self, base_offset: int, entries: list[Entry]) -> None:
        assert base_offset == self.end, (base_offset, self.end)
        self.entries += entries

    def sync(self, end: int, truncations: int) -> bool:
        """Finish an fsync begun when the log ended at `end`; False if it was cut since."""
        if truncations != self.truncations:
            return False
        self.synced_end = max(self.synced_end, end)
        return True

    def truncate(self, offset: int) -> None:
        del self.entries[offset - self.start :]
        self.synced_end = self.end
        self.truncations += 1

    def restart(self, snapshot_id: OffsetAndEpoch) -> None:
        self.entries = []
        self.start = self.synced_end = snapshot_id.offset
        self.snapshots = [s for s in self.snapshots if s.snapshot_id == snapshot_id]
        self.truncations += 1

    def find(self, snapshot_id: OffsetAndEpoch) -> Snapshot | None:
        return next((s for s in self.snapshots if s.snapshot_id == snapshot_id), None)

    def add(self, snapshot: Snapshot) -> None:
        if self.find(snapshot.snapshot_id) is None:
            self.snapshots.append(snapshot)
            self.snapshots.sort(key=lambda s: s.snapshot_id)

    def trim(self) -> OffsetAndEpoch | None:
        """Drop all but the newest snapshot, and the log before it; its id if that did anything."""
        while len(self.snapshots) > 1:
            self.snapshots.pop(0)
        if not self.snapshots:
            return None
        snapshot_id = self.snapshots[0].snapshot_id
        if not self.start < snapshot_id.offset <= self.end:
            return None
        del self.entries[: snapshot_id.offset - self.start]
        self.start = snapshot_id.offset
        self.synced_end = max(self.synced_end, self.start)
        return snapshot_id

    def crash(self, chance: random.Random, *, keep_all: bool) -> None:
        """The node dies. A killed process leaves all that it wrote, a power cut may not."""
        if self.writing is not None and chance.random() < 0.5:
            self.election = self.writing
        self.writing = None
        self.part = None
        if not keep_all:
            self._cut(chance.randint(self.synced_end, self.end))
        self.truncations += 1

    def _cut(self, end: int) -> None:
        del self.entries[end - self.start :]
        while self.entries and self.entries[-1].joined:
            self.entries.pop()

    def damage(self, chance: random.Random) -> None:
        """Records that were durable are unreadable: the log ends before the first of them."""
        end = chance.randint(self.start, self.synced_end)
        self.needs_end = max(self.needs_end, self.synced_end)
        self._cut(end)
        self.synced_end = self.end

    def rob(self) -> None:
        """The log's directory is gone, with all that is in it."""
        self.needs_end = max(self.needs_end, self.synced_end)
        self.robbed = True
        self.bootstrap = None
        self.start = self.synced_end = 0
        self.entries, self.snapshots = [], []
        self.election = ElectionState()

    def know(self) -> None:
        """What was lost with the directory is back."""
        if self.robbed:
            self.robbed, self.needs_end = False, 0

    def recover(self) -> tuple[LogView, int | None]:
        """What a starting node finds: its log's outline, and the old end if it was damaged, as
        far as it can tell."""
        self.synced_end = self.end
        if self.snapshots and self.snapshots[-1].snapshot_id.offset > self.end:
            self.restart(self.snapshots[-1].snapshot_id)
        needs_end = self.needs_end if self.needs_end > self.end else None
        if self.robbed:
            needs_end = UNKNOWN_END
        elif needs_end is None:
            self.needs_end = 0
        epochs: list[tuple[int, int]] = []
        for index, entry in enumerate(self.entries):
            if not epochs or epochs[-1][0] != entry.epoch:
                epochs.append((entry.epoch, self.start + index))
        return LogView(
            start=self.start,
            end=self.end,
            epochs=epochs,
            earliest_snapshot=self.snapshots[0].snapshot_id if self.snapshots else None,
            latest_snapshot=self.snapshots[-1].snapshot_id if self.snapshots else None,
        ), needs_end
