"""The metadata log on disk: `__cluster_metadata-0` with its log, snapshots and synced offset.

Opening it applies the rule that in the metadata log only bytes after the last completed fsync
may be cut: damage before that point is told to the caller (`needs_end`), or is fatal for a node
that has nobody to fetch from. So is a log that can't be all there, by what else is on the disk.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from raft import synced_offset
from raft.config import DIRECTORY, RaftConfig
from raft.effects import ElectionState
from raft.log_view import UNKNOWN_END, LogView
from raft.messages import NO_LEADER, FetchedRecords
from raft.quorum import MAX_EPOCH
from raft.snapshots import SUFFIX, SnapshotStore, SnapshotUnusable
from raft.synced_offset import SyncedOffset
from raft.voter_history import VoterHistory
from raft.voter_records import read_history, records_in
from raft.voters import MembershipRecord, OffsetAndEpoch, VoterSet
from storage import names
from storage.config import LogConfig
from storage.damage import keep_segment
from storage.log import Log
from storage.scan import Damage, sound_end
from wire import partition_metadata
from wire.batch import crc_ok, iter_headers
from wire.errors import DamagedFile, DecodeError, FatalError
from wire.exits import EXIT_LOG_DAMAGED
from wire.uuids import METADATA_TOPIC_ID
from world.env import Disk, DiskFull, Env
from world.slices import run_in_slices

logger = structlog.get_logger("raft")

_NOTHING_STORED = ElectionState()


async def make_place(disk: Disk, directory: str) -> None:
    """Make the directory of a log that is to begin, durably but for its name. It is never empty:
    one that is was emptied."""
    disk.make_dirs(directory)
    data = partition_metadata.encode(METADATA_TOPIC_ID)
    await disk.replace(f"{directory}/{names.PARTITION_METADATA}", data)


@dataclass(slots=True)
class Opened:
    """A log as found: its outline for the core, the voter sets in it, and the old end, or
    UNKNOWN_END, if part of it is lost."""

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
        self._doubt: str | None = None  # why it is unknown how far the log was durable
        self._is_bare = False
        self._damaged_at: int | None = None  # found while it runs

    async def open(self, static: VoterSet, stored: ElectionState = _NOTHING_STORED) -> Opened:
        """Open or create everything. `static`: the configured voters, in force where log and
        snapshots name none. `stored`: what quorum-state says; it may know more than the log does.

        Raises FatalError, naming file and offset, if something is lost here and no other voter is
        known, so that nobody can give it back.
        """
        disk = self.env.disk
        if not self.config.observer:
            self._look_whether_bare()
        disk.make_dirs(self.directory)
        await disk.sync_dir(self._parent)
        await self.snapshots.load()
        synced = await self._durable_end()
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
        alone = self._knows_no_other(history, stored)
        needs_end = await self._check_damage(synced, alone=alone)
        needs_end = max(needs_end, await self._check_snapshots(synced, alone=alone))
        if found != (self.log.log_start_offset, self.log.end_offset):
            history = await read_history(self.env, self.log, self.snapshots, static)
        view = self._view()
        needs_end = max(needs_end, await self._check_others(stored, history, view, alone=alone))
        self.snapshots.set_aside()
        await self.log.flush()
        await disk.sync_dir(self.directory)
        self._needs_end = needs_end if needs_end > self.log.end_offset else 0
        self._synced.advance(self.log.end_offset)
        await self._synced.sync()
        return Opened(view, history, self._needs_end or None)

    def _look_whether_bare(self) -> None:
        """A voter whose log went with its directory, or all of it that counts, has forgotten what
        it promised. One of static voters may be new, formatted by another tool; who gets the voters
        from a log has had something of one when it was told that it is a voter."""
        disk = self.env.disk
        left = disk.list_dir(self.directory) if disk.exists(self.directory) else []
        self._is_bare = not any(
            name in (names.PARTITION_METADATA, synced_offset.NAME)
            or name.endswith((names.LOG, SUFFIX))
            for name in left
        )
        if not self._is_bare:
            return
        then = "it has to be replaced"
        if not self.config.voters:
            then = (
                "it takes part again once it has all that its leader has, and a majority follows "
                "that one"
            )
            self._doubt = f"{self.directory}: there is nothing in it"
        logger.warning(
            "metadata_log_begins_empty",
            directory=self.directory,
            reason="there is nothing, not even what `pykraft storage format` leaves; if this node "
            f"was a voter before, its log is lost, and so is what it promised: {then}",
        )

    async def _durable_end(self) -> int:
        """Open the synced offset; how far the log was durable.

        Where it doesn't say, or isn't there (another's directory, a backup), what is sound was
        durable, wherever it lies: only at the log's very end may something be torn.
        """
        if not synced_offset.exists(self.env.disk, self.directory):
            # Doubted from the file's first moment on: this start may be cut short.
            end = UNKNOWN_END if self._doubt is not None else await self._sound_end(0)
            await synced_offset.create(self.env.disk, self.directory, end)
        self._synced = synced = SyncedOffset(self.env.disk, self.directory)
        if synced.is_known:
            return synced.offset
        if self._doubt is not None:
            pass  # since just now
        elif not synced.is_readable:
            self._doubt = (
                f"{synced.path} has no sound slot, so it isn't known how far the log was durable "
                "(without the file, all that is sound in the log is taken for all that was there)"
            )
        else:
            self._doubt = f"{self.directory}: found so at an earlier start, and not whole since"
        return await self._sound_end(0)

    def _knows_no_other(self, history: VoterHistory, stored: ElectionState) -> bool:
        """Whether this is a voter that nobody can give anything back. What is left of the log may
        be of a time when it was alone, so that doesn't say it by itself; where nothing is left,
        the voters may know of this one."""
        others = [place for place in self.config.bootstrap if place != self.config.own_address]
        only = history.voters.ids == (self.config.node_id,)
        if not history.voters.ids:
            only = not self._is_bare and self._other_named_in(stored) is None
        return only and not others and not self.config.observer

    def _other_named_in(self, stored: ElectionState) -> int | None:
        """Another node that we followed or voted for."""
        named = [stored.leader_id, NO_LEADER if stored.voted is None else stored.voted.node_id]
        return next((i for i in named if i not in (NO_LEADER, self.config.node_id)), None)

    def _view(self) -> LogView:
        log = self.log
        view = LogView(
            start=log.log_start_offset,
            end=log.end_offset,
            epochs=self._epochs(),
            earliest_snapshot=self.snapshots.earliest,
            latest_snapshot=self.snapshots.latest,
        )
        view.check_invariants()
        return view

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
        reach = synced
        if damage is not None:
            reach = max(reach, await self._sound_end(damage.offset, damage))
        if alone and (covered is None or covered.offset < reach):
            raise _lost(where)
        if self._ends_at_a_segment(damage) and covered is not None and covered.offset >= reach:
            # The log was to begin anew behind this snapshot, and that was cut short: its newest
            # segments go first.
            logger.info("metadata_log_begins_anew", snapshot=covered.offset, durable_to=reach)
        else:
            logger.error("metadata_log_damaged", where=where, durable_to=reach)
        await self._hold(reach)
        self.log.truncate_to(self.log.end_offset)
        await self.log.settle()
        return reach

    def _ends_at_a_segment(self, damage: Damage | None) -> bool:
        """Whether nothing is wrong with the segments that are there, if any."""
        if damage is None or self.log.end_offset == self.log.log_start_offset:
            return True
        last = self.log.active.file
        return damage.path == last.path and damage.position == last.size()

    async def _check_others(
        self, stored: ElectionState, history: VoterHistory, view: LogView, *, alone: bool
    ) -> int:
        """UNKNOWN_END if other files say that the log is not all that was there, and nothing says
        how much that was; else 0."""
        own_id = self.config.node_id
        other = self._other_named_in(stored)
        if self.config.observer:
            return 0  # it promises nothing
        reason = self._doubt
        if (
            reason is None
            and other is not None
            and history.voters_offset is not None
            and history.voters.ids == (own_id,)
            and stored.epoch > view.last_epoch
        ):
            # A voter that was alone at first is so again in what is left of its log: it could
            # elect itself, and lead all others astray.
            reason = (
                f"{self.directory}/quorum-state names node {other} in epoch {stored.epoch}, but "
                f"the log, which ends at offset {view.end} in epoch {view.last_epoch}, has no "
                f"voter but {own_id}"
            )
        if reason is None:
            return 0
        if alone:
            raise _lost(reason)
        if not self._is_bare:
            logger.error("metadata_log_damaged", where=reason, durable_to="unknown")
        await self._synced.hold(UNKNOWN_END)
        return UNKNOWN_END

    async def _hold(self, old_end: int) -> None:
        """Have it remembered, durably, that records below the old end are missing."""
        await self._synced.hold(old_end if self._doubt is None else UNKNOWN_END)

    async def _sound_end(self, end: int, damage: Damage | None = None) -> int:
        """Where the last sound batch of the log ends, or of what follows the damaged place; `end`
        if none ends later."""
        disk = self.env.disk
        for name in disk.list_dir(self.directory):
            base = names.base_offset_of(name, names.LOG)
            path = f"{self.directory}/{name}"
            if base is not None and (damage is None or path == damage.path or base > damage.offset):
                # Not the damaged batch itself: its offsets are not covered by its CRC.
                begin = damage.position + 1 if damage and path == damage.path else 0
                file = disk.open(path)
                try:
                    end = await run_in_slices(self.env, sound_end(file, base, begin, end))
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
            where = f"{self.directory}: the log begins at offset {start}, no snapshot covers less"
            logger.error("metadata_log_damaged", where=where, durable_to=missing)
            await self._hold(missing)
            for base, segment in reversed(log.segments.items()):  # a crash leaves what begins here
                problem = Damage(base, segment.file.path, 0, "it begins behind what is missing")
                kept = keep_segment(self.env, self.directory, base, problem)
                logger.warning("segment_kept", path=kept.path, reason=kept.reason)
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

    def note_synced(self, end_offset: int, *, whole: bool = False) -> None:
        """Write down that all below `end_offset` is durable, unless part of it is lost. `whole`:
        none is any more, if it wasn't known how much that was."""
        if whole and self._needs_end == UNKNOWN_END:
            self._needs_end = 0
            self._synced.know(end_offset)
            logger.info("metadata_log_whole", end=end_offset)
        elif end_offset >= self._needs_end:
            if self._needs_end:
                logger.info("metadata_log_whole", end=end_offset)
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
        self._damaged_at = None
        await self.log.settle()
        self.snapshots.drop_before(snapshot)
        self.note_synced(snapshot.offset)
        await self._synced.sync()

    def note_damage(self, offset: int) -> bool:
        """The batch at `offset` is unsound: the log is to begin behind it, as soon as a snapshot is
        there that ends there. Whether that is news."""
        is_news = self._damaged_at is None or self._damaged_at < offset
        if is_news:
            self._damaged_at = offset
        return is_news

    @property
    def is_damaged(self) -> bool:
        """Whether damage that was noted is still in one of its files."""
        return self._damaged_at is not None

    def trim(self, *, leave_damaged: bool = False) -> None:
        """Drop old snapshots and the log before the oldest one kept, as retention says (-1 sets no
        limit), and before a newer one where the log is damaged; `leave_damaged`: what is appended
        from now on isn't to share a file with the damage.

        At least one snapshot stays. Raises DiskFull, which may come when the log begins later
        already, and DiskError.
        """
        wall_ms = self.env.clock.wall_ms()
        config, log, snapshots = self.config, self.log, self.snapshots
        while len(snapshots.complete) > 1:
            oldest, following = list(snapshots.complete)[:2]
            too_big = 0 <= config.retention_bytes < log.size + snapshots.size
            age_ms = wall_ms - snapshots.complete[oldest].timestamp_ms
            too_old = 0 <= config.retention_ms < age_ms
            if not (too_big or too_old) or following.offset > log.end_offset:
                break
            self._begin_at(following, wall_ms)
        latest = snapshots.latest
        damaged_at = self._damaged_at
        if damaged_at is not None and latest is not None:
            if damaged_at < latest.offset <= log.end_offset:
                self._begin_at(latest, wall_ms)
                if damaged_at >= log.active.base_offset and (
                    latest.offset == log.end_offset
                    or (leave_damaged and self._is_found_by_index(latest.offset, damaged_at))
                ):
                    self._leave_file(latest, wall_ms)
            if damaged_at < log.first_offset:
                self._damaged_at = None

    def _is_found_by_index(self, offset: int, damaged_at: int) -> bool:
        """Whether the way to `offset` on the disk begins behind the damage."""
        segment = self.log.active
        entry = segment.index.floor_offset(offset - segment.base_offset)
        if entry is None:
            return False
        try:
            header = segment.header_at(entry[1])
            # It has the last offset of its batch.
            last_offset = segment.base_offset + entry[0]
            if not damaged_at < header.base_offset <= header.last_offset == last_offset:
                return False
            follows = header.base_offset
            for step in segment.walk(entry[1]):
                if step.base_offset != follows:
                    return False
                if follows == offset:
                    return True
                follows = step.last_offset + 1
            return follows == offset
        except DamagedFile:  # there is more of it
            return False

    def _leave_file(self, snapshot: OffsetAndEpoch, wall_ms: int) -> None:
        """The next start would meet the damage in the active file; that can go once a snapshot
        holds all that is in it, or the index leads past the damage: records that were appended
        just now can be read beside it for as long as it is known in memory where they are, which a
        new file ends."""
        try:
            self.log.roll()
        except DiskFull as error:
            logger.error("segment_not_rolled", reason=str(error))
        self.log.delete_retired_segments(wall_ms, snapshot.offset)

    def _begin_at(self, snapshot: OffsetAndEpoch, wall_ms: int) -> None:
        self.snapshots.drop_before(snapshot)
        self.log.advance_log_start(snapshot.offset)
        self.log.delete_retired_segments(wall_ms, snapshot.offset)

    async def close(self, *, clean: bool) -> None:
        await self.log.close(clean)
        if clean:
            self.note_synced(self.log.recovery_point)
            await self._synced.sync()
        self._synced.close()
        self.snapshots.close()


def _lost(where: str) -> FatalError:
    return FatalError(
        EXIT_LOG_DAMAGED,
        "the metadata log is damaged and there is no other voter to fetch from (its voters, and "
        f"controller.quorum.bootstrap.servers, name none): {where}",
    )


def describe_fetched(
    data: memoryview, base_offset: int, *, last_epoch: int = 0, epoch: int = MAX_EPOCH
) -> FetchedRecords | None:
    """The outline of fetched batches, up to the first that isn't sound; None if none is. They
    follow a record of `last_epoch`, and there is none of an epoch later than `epoch`."""
    end_offset = base_offset
    length = 0
    epochs: list[tuple[int, int]] = []
    membership: list[MembershipRecord] = []
    try:
        for position, header in iter_headers(data):
            if header.base_offset != end_offset or not crc_ok(data, position, header.length):
                break
            if not last_epoch <= header.leader_epoch <= epoch:  # the CRC doesn't cover it
                break
            last_epoch = header.leader_epoch
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


__all__ = ["MetadataLog", "Opened", "SnapshotUnusable", "describe_fetched", "make_place"]
