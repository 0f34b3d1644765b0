"""The metadata log on disk: `__cluster_metadata-0` with its log, snapshots and synced offset.

Opening it applies the rule that in the metadata log only bytes after the last completed fsync
may be cut: damage before that point is told to the caller (`needs_end`), or is fatal for a node
that has nobody to fetch from.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from raft.config import DIRECTORY, RaftConfig
from raft.log_view import LogView
from raft.messages import FetchedRecords
from raft.snapshots import SnapshotStore, SnapshotUnusable
from raft.synced_offset import SyncedOffset
from raft.voter_history import VoterHistory
from raft.voter_records import read_history, records_in
from raft.voters import MembershipRecord, OffsetAndEpoch, VoterSet
from storage import names
from storage.config import LogConfig
from storage.log import Log
from storage.scan import Damage, sound_end
from wire.batch import crc_ok, iter_headers
from wire.errors import DecodeError, FatalError
from wire.exits import EXIT_LOG_DAMAGED
from wire.uuids import METADATA_TOPIC_ID
from world.env import Env
from world.slices import run_in_slices

logger = structlog.get_logger("raft")


@dataclass(slots=True)
class Opened:
    """A log as found: its outline for the core, the voter sets in it, and the old end if part of
    it is lost."""

    view: LogView
    history: VoterHistory
    needs_end: int | None


class MetadataLog:
    """Owns the files. All writing goes through here."""

    def __init__(self, env: Env, config: RaftConfig, parent: str) -> None:
        self.env = env
        self.config = config
        self._parent = parent
        self.directory = f"{parent}/{DIRECTORY}"
        self.log: Log
        self.snapshots = SnapshotStore(env, self.directory)
        self._synced: SyncedOffset
        self._needs_end = 0  # below it something is lost; the synced offset stays there

    async def open(self, static: VoterSet) -> Opened:
        """Open or create everything. `static`: the configured voters, in force where log and
        snapshots name none.

        Raises FatalError, naming file and offset, if something is lost here and this node is the
        only voter, so that nobody can give it back.
        """
        disk = self.env.disk
        disk.make_dirs(self.directory)
        await disk.sync_dir(self._parent)
        await self.snapshots.load()
        self._synced = SyncedOffset(disk, self.directory)
        synced = self._synced.offset
        self.log = await Log.open(
            self.env,
            self.directory,
            LogConfig(
                segment_bytes=self.config.segment_bytes,
                segment_ms=self.config.segment_ms,
                cleanup_delete=False,
                contiguous=True,
            ),
            strict_before=synced,
        )
        if self.log.topic_id is None:
            await self.log.set_topic_id(METADATA_TOPIC_ID)
        history = await read_history(self.env, self.log, self.snapshots, static)
        found = self.log.log_start_offset, self.log.end_offset
        alone = not self.config.observer and history.voters.ids == (self.config.node_id,)
        needs_end = await self._check_damage(synced, alone=alone)
        needs_end = max(needs_end, await self._check_snapshots(synced, alone=alone))
        if found != (self.log.log_start_offset, self.log.end_offset):
            history = await read_history(self.env, self.log, self.snapshots, static)
        self.snapshots.set_aside()
        await self.log.flush()
        await disk.sync_dir(self.directory)
        self._needs_end = needs_end if needs_end > self.log.end_offset else 0
        self._synced.advance(self.log.end_offset)
        await self._synced.sync()
        log = self.log
        view = LogView(
            start=log.log_start_offset,
            end=log.end_offset,
            epochs=self._epochs(),
            earliest_snapshot=self.snapshots.earliest,
            latest_snapshot=self.snapshots.latest,
        )
        view.check_invariants()
        return Opened(view, history, self._needs_end or None)

    def _epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) of the records that are there."""
        log = self.log
        entries = [
            (epoch, max(start, log.log_start_offset))
            for epoch, start in log.epochs.entries()
            if start < log.end_offset
        ]
        return [
            entry
            for index, entry in enumerate(entries)
            if index + 1 == len(entries) or entries[index + 1][1] > entry[1]
        ]

    async def _check_damage(self, synced: int, *, alone: bool) -> int:
        """Deal with lost records below `synced`; the offset up to which some are missing."""
        damage = self.log.recovery.damage
        if damage is None and self.log.end_offset >= synced:
            return 0
        covered = self.snapshots.latest
        if damage is not None:
            where = (
                f"{damage.path}: byte {damage.position}: offset {damage.offset}: {damage.reason}"
            )
        else:
            where = (
                f"{self.log.active.file.path}: the log ends at offset {self.log.end_offset}, "
                f"but was durable up to offset {synced}"
            )
        # The synced offset may lag behind: what lies sound behind the damage was durable, too.
        reach = synced if damage is None else max(synced, await self._sound_end(damage))
        if alone and (covered is None or covered.offset < reach):
            raise FatalError(
                EXIT_LOG_DAMAGED,
                f"the metadata log is damaged and there is no other voter to fetch from: {where}",
            )
        empty = self.log.end_offset == self.log.log_start_offset
        if empty and covered is not None and covered.offset >= reach:
            # The log was to begin anew behind this snapshot, and that was cut short.
            logger.info("metadata_log_begins_anew", snapshot=covered.offset, durable_to=reach)
        else:
            logger.error("metadata_log_damaged", where=where, durable_to=reach)
        await self._synced.hold(reach)
        self.log.truncate_to(self.log.end_offset)
        await self.log.settle()
        return reach

    async def _sound_end(self, damage: Damage) -> int:
        """Where the last sound batch of the damaged segment, and of those after it, ends."""
        disk, end = self.env.disk, damage.offset
        for name in disk.list_dir(self.directory):
            base = names.base_offset_of(name, names.LOG)
            path = f"{self.directory}/{name}"
            if base is not None and (path == damage.path or base > damage.offset):
                # Not the damaged batch itself: its offsets are not covered by its CRC.
                begin = damage.position + 1 if path == damage.path else 0
                file = disk.open(path)
                try:
                    end = await run_in_slices(self.env, sound_end(file, begin, end))
                finally:
                    file.close()
        return end

    async def _check_snapshots(self, synced: int, *, alone: bool) -> int:
        """The log must begin at or before its oldest snapshot's end, and not end before the
        newest's; the offset up to which something is missing."""
        for path, reason in self.snapshots.unusable.items():
            logger.error("snapshot_unusable", path=path, reason=reason)
        log = self.log
        start = log.log_start_offset
        if start > 0 and not any(s.offset >= start for s in self.snapshots.complete):
            if alone:
                raise FatalError(
                    EXIT_LOG_DAMAGED,
                    f"{self.directory}: the log begins at offset {start} and no usable snapshot "
                    f"covers what was before it"
                    + "".join(f"; {p}: {reason}" for p, reason in self.snapshots.unusable.items()),
                )
            missing = max(synced, log.end_offset)
            await self._synced.hold(missing)
            log.truncate_and_restart_at(0)
            await log.settle()
            return missing
        for snapshot in [s for s in self.snapshots.complete if s.offset < start]:
            later = next(s for s in self.snapshots.complete if s.offset >= start)
            self.snapshots.drop_before(later)
            logger.info("snapshot_below_log_removed", offset=snapshot.offset)
            break
        latest = self.snapshots.latest
        is_empty = log.log_start_offset == log.end_offset
        if latest is not None and (
            latest.offset > log.end_offset or (latest.epoch > log.last_epoch and not is_empty)
        ):
            log.truncate_and_restart_at(latest.offset)
            await log.settle()
            self.snapshots.drop_before(latest)
        return 0

    # Writing

    def append_own(self, batch: bytearray, epoch: int) -> None:
        """Append a batch that carries its final offsets already."""
        self.log.append_as_leader([batch], epoch)

    def append_fetched(self, records: FetchedRecords) -> None:
        self.log.append_as_follower(records.payload)

    async def sync(self) -> int:
        """Make durable what is appended; the end offset that is durable then."""
        return await self.log.flush()

    def note_synced(self, end_offset: int) -> None:
        """Write down that all below `end_offset` is durable, unless part of it is lost."""
        if end_offset >= self._needs_end:
            self._needs_end = 0
            self._synced.advance(end_offset)

    @property
    def hardened(self) -> bool:
        """Whether what was written down as durable would outlive a power loss itself."""
        return self._synced.synced

    async def harden(self) -> None:
        """Make that so. Raises SyncFailed."""
        await self._synced.sync()

    async def truncate(self, offset: int) -> None:
        """Cut the log, durably."""
        if not self._needs_end:
            await self._synced.lower(offset)
        self.log.truncate_to(offset)
        await self.log.settle()

    async def restart_at(self, snapshot: OffsetAndEpoch) -> None:
        """Drop the whole log, durably, and go on behind a snapshot that is complete."""
        if not self._needs_end:
            await self._synced.lower(snapshot.offset)
        self.log.truncate_and_restart_at(snapshot.offset)
        await self.log.settle()
        self.snapshots.drop_before(snapshot)
        self.note_synced(snapshot.offset)
        await self._synced.sync()

    def trim(self) -> OffsetAndEpoch | None:
        """Drop old snapshots and the log before the oldest one kept, as retention says.

        At least one snapshot stays. The id of the oldest kept if the log begins there now.
        """
        wall_ms = self.env.clock.wall_ms()
        config, log, snapshots = self.config, self.log, self.snapshots
        begins: OffsetAndEpoch | None = None
        while len(snapshots.complete) > 1:
            oldest, following = list(snapshots.complete)[:2]
            too_big = log.size + snapshots.size > config.retention_bytes
            age_ms = wall_ms - snapshots.complete[oldest].timestamp_ms
            if (not too_big and age_ms <= config.retention_ms) or following.offset > log.end_offset:
                break
            snapshots.drop_before(following)
            log.advance_log_start(following.offset)
            log.delete_retired_segments(wall_ms, following.offset)
            begins = following
        return begins

    async def close(self, *, clean: bool) -> None:
        await self.log.close(clean)
        if clean:
            self.note_synced(self.log.recovery_point)
            await self._synced.sync()
        self._synced.close()
        self.snapshots.close()


def describe_fetched(data: memoryview, base_offset: int) -> FetchedRecords | None:
    """The outline of fetched batches, up to the first that isn't sound; None if none is."""
    end_offset = base_offset
    length = 0
    epochs: list[tuple[int, int]] = []
    membership: list[MembershipRecord] = []
    try:
        for position, header in iter_headers(data):
            if header.base_offset != end_offset or not crc_ok(data, position, header.length):
                break
            membership += records_in(data, position, header)
            if not epochs or epochs[-1][0] != header.leader_epoch:
                epochs.append((header.leader_epoch, header.base_offset))
            end_offset = header.next_offset
            length = position + header.length
    except DecodeError:
        pass  # what came before it is sound
    if end_offset == base_offset:
        return None
    outline = FetchedRecords(base_offset, end_offset, tuple(epochs), data[:length])
    return outline._replace(membership=tuple(membership)) if membership else outline


__all__ = ["MetadataLog", "Opened", "SnapshotUnusable", "describe_fetched"]
