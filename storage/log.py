"""The log of one partition: append, read, truncate, flush.

Used from one event loop only; methods that aren't coroutines finish at once and touch the
page cache at most. Offsets are exclusive ends unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from uuid import UUID

from sortedcontainers import SortedDict

from storage import names, producer_files, retention, time_lookup
from storage.appending import AppendInfo, Plan, plan_follower, plan_leader, spanning
from storage.config import LogConfig
from storage.cutting import cut_segment
from storage.damage import within
from storage.epochs import LeaderEpochs
from storage.errors import LogIsDamaged, OffsetOutOfRange, full_is_failed
from storage.flushing import Flusher
from storage.loading import Loader, OpenOptions, Recovery, remove_segment_files
from storage.producers import Duplicate, ProducerState
from storage.reading import LogReader, Slice
from storage.scan import Damage, ScanRules, scan_segment
from storage.segment import Segment, create_segment, stored_index
from storage.trash import Trash
from storage.txn_index import AbortedTransactions, cut_aborted
from wire import partition_metadata
from wire.batch import BatchHeader
from wire.control import TxnMarker, read_txn_marker
from wire.errors import DamagedFile, DecodeError, ErrorCode, KafkaError
from world.env import Buffer, Env
from world.slices import run_in_slices

_MAX_SEGMENT = 2**31 - 1


class Log:
    """One partition directory. Made by `Log.open`; `recovery` is what that found and did."""

    def __init__(self, env: Env, config: LogConfig, loader: Loader) -> None:
        self.env = env
        self.config = config
        self.directory = loader.directory
        self.recovery: Recovery = loader.recovery
        self.topic_id: UUID | None = loader.topic_id
        self.epochs = loader.epochs
        self.producers = loader.producers
        self.end_offset = loader.end_offset
        self.trash = Trash(env.disk, config.file_delete_delay_ms)
        self.segments: SortedDict[int, Segment] = SortedDict(
            (segment.base_offset, segment) for segment in loader.segments
        )
        self.active: Segment = loader.segments[-1]
        # Before the first segment only if the first ones were lost.
        self.log_start_offset = self.first_offset if loader.log_start is None else loader.log_start
        # All below has been through the cleaner; no more than what was truncated to since.
        self.cleaned_to = loader.cleaned_to if loader.cleaned_to <= loader.end_offset else 0
        # The places in it that are not sound, or missing, as far as is known; see `recovery` for
        # all that opening it found.
        self.damage = within(loader.recovery.all_damage, 0, self.end_offset)
        self.truncations = 0
        self._leftover_bases = loader.leftover_bases
        self._reader = LogReader(env.disk, self.segments)
        self._aborted = AbortedTransactions(env.disk, loader.directory)
        self._flusher = Flusher(
            env.disk,
            loader.directory,
            self.segments,
            loader.epochs,
            0 if loader.recovery.undecided else loader.end_offset,
            loader.unsynced,
        )
        # Awaited by `settle` if truncation lowered the recovery point, to write it down.
        self.on_lowered_recovery_point: Callable[[], Awaitable[None]] | None = None
        self.closed = False

    @classmethod
    async def open(
        cls,
        env: Env,
        directory: str,
        config: LogConfig,
        *,
        recovery_point: int = 0,
        clean: bool = False,
        log_start_offset: int | None = None,
        strict_before: int | None = None,
        cleaned_to: int = 0,
    ) -> Log:
        """Open a log, made empty (at `log_start_offset` or 0) if its directory has none.

        `clean`: the last stop was clean, the files are trusted. Otherwise all that may be
        past `recovery_point` is read from end to end and an unsound tail is cut. With
        `strict_before` (an offset that was synced) everything is read, and if anything below
        it is unsound or missing nothing is cut: `recovery.damage` tells where, `end_offset`
        is what is sound, and appends raise LogIsDamaged until `truncate_to` or
        `truncate_and_restart_at` is called. Offsets below `cleaned_to` may be missing: the log has
        been compacted so far. Raises DiskError.
        """
        options = OpenOptions(recovery_point, clean, log_start_offset, strict_before, cleaned_to)
        loader = Loader(env, directory, config, options)
        await loader.load()
        log = cls(env, config, loader)
        if log_start_offset is not None and not log.recovery.undecided:
            if log_start_offset > log.end_offset:
                log.truncate_and_restart_at(log_start_offset)
                await log.settle()
            else:
                log.advance_log_start(log_start_offset)
        return log

    @property
    def recovery_point(self) -> int:
        """All below this offset is durable."""
        return self._flusher.recovery_point

    @property
    def first_offset(self) -> int:
        """Where the first segment begins: behind the log's start if the first ones were lost."""
        first: int = self.segments.peekitem(0)[0]
        return first

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the newest batch (or one assigned since); -1 if none."""
        return self.epochs.latest

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        return sum(segment.size for segment in self.segments.values())

    # Appending

    def check_producer(self, header: BatchHeader) -> Duplicate | None:
        """As ProducerState.check: whether a client's batch may be appended now."""
        return self.producers.check(header)

    def append_as_leader(
        self,
        batches: Sequence[Buffer],
        leader_epoch: int,
        *,
        check_producers: bool = False,
        headers: Sequence[BatchHeader] | None = None,
    ) -> AppendInfo:
        """Append whole batches at the next offsets, with one write.

        Offsets and epoch are patched into the buffers. With `check_producers` duplicates and
        batches out of sequence are left out; see AppendInfo.outcomes. What a client sent must
        have passed `storage.validation` before; who has the headers from there gives them along,
        then each buffer is exactly one batch. Raises CorruptBatch, LogIsDamaged,
        RECORD_LIST_TOO_LARGE, DiskFull or DiskError; then nothing is appended.
        """
        self._writable()
        plan = plan_leader(
            batches, self.end_offset, leader_epoch, self.producers, check_producers, headers
        )
        return self._write(plan)

    def append_as_follower(self, data: Buffer) -> AppendInfo | None:
        """Append a leader's batches as they are; None if there is no whole one.

        Raises as `append_as_leader`, and OutOfOrderOffsets if they don't continue this log. An
        empty one may begin within the first of them: its records before `log_start_offset` are
        there then, and aren't read.
        """
        self._writable()
        start, end = self.log_start_offset, self.end_offset
        spans = None
        if start == end and not self.config.contiguous:
            spans = spanning(data, start)
        plan = plan_follower(
            data,
            end if spans is None else spans,
            self.epochs,
            self.producers,
            self.config.contiguous,
        )
        if not plan.placed:
            return None
        if spans is not None:
            self.truncate_and_restart_at(spans)
            self.log_start_offset = start
        return self._write(plan)

    def _writable(self) -> None:
        if self.recovery.undecided:
            damage = self.recovery.damage
            raise LogIsDamaged(f"{self.directory} has damage nobody decided about: {damage}")

    def _write(self, plan: Plan) -> AppendInfo:
        placed = plan.placed
        if not placed:
            return AppendInfo(-1, -1, -1, 0, tuple(plan.outcomes))
        if plan.size > _MAX_SEGMENT:
            raise KafkaError(
                ErrorCode.record_list_too_large, f"{plan.size} bytes don't fit in a segment"
            )
        if self._roll_is_due(plan):
            self.roll()
            if plan.next_offset - 1 - self.active.base_offset > _MAX_SEGMENT:
                self.roll(placed[0].base_offset)
        segment = self.active
        position = segment.file.append(plan.slices)
        if plan.completed:
            self._note_aborted(segment, position, plan)
        if segment.first_timestamp < 0:
            segment.first_timestamp = placed[0].max_timestamp
        segment.changes += 1
        add_index, add_recent = segment.active_index.add, self._reader.recent.add
        base, epoch = segment.base_offset, self.epochs.latest
        for first, last, length, newest, batch_epoch in placed:
            add_index(last - base, position, length, newest)
            add_recent(first, last, position, length)
            if batch_epoch > epoch:
                self.epochs.assign(batch_epoch, first)
                epoch = batch_epoch
            position += length
        self.end_offset = plan.next_offset
        self.producers.commit(plan.producers, plan.next_offset, plan.completed)
        return AppendInfo(
            placed[0].base_offset,
            plan.next_offset - 1,
            plan.max_timestamp,
            plan.size,
            tuple(plan.outcomes),
        )

    def _note_aborted(self, segment: Segment, position: int, plan: Plan) -> None:
        """Writes down which transactions end aborted in what was appended at `position`; without
        that nothing was appended."""
        try:
            path = self._aborted.add(segment, plan.completed)
        except Exception:
            segment.file.truncate(position)
            raise
        if path is not None:
            self._flusher.unsynced_paths.append(path)
            self._flusher.directory_changed = True

    def _roll_is_due(self, plan: Plan) -> bool:
        segment, config = self.active, self.config
        if plan.next_offset - 1 - segment.base_offset > _MAX_SEGMENT:
            return True
        size = segment.file.size()
        if not size:
            return False
        size += plan.size
        if size > config.segment_bytes or size > _MAX_SEGMENT:
            return True
        if segment.active_index.is_full(config.segment_index_bytes):
            return True
        if segment.first_timestamp >= 0 and plan.max_timestamp >= 0:
            age = plan.max_timestamp - segment.first_timestamp
        else:
            age = self.env.clock.wall_ms() - segment.created_ms
        return age > config.longest_segment_ms - config.segment_jitter_ms

    def roll(self, base_offset: int | None = None) -> None:
        """Begin a new segment (at the log's end, or at a later offset that comes next).

        Does nothing if the active one is empty and begins there. Raises DiskFull or
        DiskError; then the active segment goes on.
        """
        old, disk = self.active, self.env.disk
        base = self.end_offset if base_offset is None else base_offset
        if not old.size and old.base_offset == base:
            return
        written = old.freeze(disk)
        self.producers.end_offset = base
        if self.producers.end_offset > old.base_offset:
            written.append(producer_files.write_snapshot(disk, self.directory, self.producers))
        self._start_segment(base)
        old.index = stored_index(disk, self.directory, old.base_offset)
        self._flusher.unsynced_paths += written
        self.end_offset = base

    def _start_segment(self, base_offset: int) -> None:
        disk, config = self.env.disk, self.config
        segment = create_segment(
            disk,
            self.directory,
            base_offset,
            config.index_interval_bytes,
            self.env.clock.wall_ms(),
        )
        if config.preallocate:
            try:
                segment.file.allocate(config.segment_bytes)
            except Exception:
                segment.close()
                disk.remove(segment.path(names.LOG))
                raise
        self.segments[base_offset] = segment
        self.active = segment
        self._reader.forget()
        self._flusher.directory_changed = True

    def assign_leader_epoch(self, epoch: int, start_offset: int) -> None:
        """A leader's epoch begins at this offset, before it wrote anything in it."""
        self.epochs.assign(epoch, start_offset)

    async def set_topic_id(self, topic_id: UUID) -> None:
        """Write `partition.metadata`, durably."""
        path = f"{self.directory}/{names.PARTITION_METADATA}"
        await self.env.disk.replace(path, partition_metadata.encode(topic_id))
        self.topic_id = topic_id

    # Reading

    def read(
        self, offset: int, max_bytes: int, *, upto: int | None = None, min_one: bool = True
    ) -> Slice | None:
        """Where the batches from `offset` on are: whole batches of one segment.

        At most `max_bytes`, except that with `min_one` the first batch is given whatever its
        size. Nothing at or above `upto` (default: the end). None if nothing is there to give.
        Raises OffsetOutOfRange, or DamagedFile if the log is not sound there.
        """
        if not self.log_start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.end_offset)
        # Of a compacted log readers expect no offset, and nobody may delete records up to there.
        if offset < self.first_offset and not self.config.cleanup_compact:
            lost = names.segment_file(self.log_start_offset, names.LOG)
            raise DamagedFile(f"{self.directory}/{lost}", 0, "the first segments are missing")
        limit = self.end_offset if upto is None else min(upto, self.end_offset)
        return self._reader.read(offset, max_bytes, limit, limit == self.end_offset, min_one)

    def aborted_transactions(self, offset: int, upto: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that a read_committed reader of
        the offsets from `offset` to `upto` (exclusive) has to know. Raises DamagedFile."""
        if not self._aborted:
            return []
        number = max(0, self.segments.bisect_right(offset) - 1)
        return self._aborted.overlapping(self.segments.keys()[number], offset, upto)

    def batch_header_at(self, offset: int) -> BatchHeader | None:
        """The header of the first batch that ends at or after `offset`; None past the end."""
        return self._reader.header(offset)

    async def verify(self) -> list[Damage]:
        """Read all segments but the active one from end to end, off the loop; what is unsound.

        Reads hand out bytes without looking into them, so this is how damage is found before
        a reader's own CRC check meets it.
        """
        rules = ScanRules(
            self.config.index_interval_bytes,
            contiguous=self.config.contiguous,
            pass_damage_below=2**63 - 1,
        )
        found: list[Damage] = []
        for segment in list(self.segments.values()):
            if segment is self.active:
                break
            base = segment.base_offset
            scan = await run_in_slices(
                self.env,
                scan_segment(segment.file, base, base, rules, LeaderEpochs(), ProducerState()),
            )
            found += scan.damage
            if scan.problem is not None:
                found.append(scan.problem)
        return found

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record that is not older."""
        return time_lookup.offset_for_timestamp(self, timestamp_ms)

    def max_timestamp_offset(self) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record with the largest timestamp."""
        return time_lookup.max_timestamp_offset(self)

    def rebuild_index(self, segment: Segment) -> None:
        """Derive the indexes of a segment again, which are not right. Raises DiskError."""
        self._reader.rebuild_index(segment)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as in OffsetForLeaderEpoch; (-1, -1) if not known."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    # Cutting

    @full_is_failed()
    def truncate_to(self, offset: int) -> None:
        """Cut off everything at or above `offset` (whole batches: the log may end lower).

        Await `settle` before the next append, or a power loss may bring the old end back.
        An `offset` below the log's start empties it to begin there. Raises DiskError.
        """
        if offset > self.end_offset or (offset == self.end_offset and not self.recovery.undecided):
            return
        if offset < self.log_start_offset:
            self.truncate_and_restart_at(offset)
            return
        if offset < self.first_offset:  # nothing is left; what was lost before it comes again, too
            self.truncate_and_restart_at(self.log_start_offset)
            return
        self._drop_leftovers()
        number = max(0, self.segments.bisect_right(offset) - 1)
        segment: Segment = self.segments.peekitem(number)[1]
        # The newest first, and none forgotten whose files couldn't be taken out: nothing may be
        # appended where some are gone and others not.
        for base in reversed(list(self.segments.keys())[number + 1 :]):
            self._retire(self.segments[base])
            del self.segments[base]
        end, ends_in_gap = self._cut_segment(segment, offset)
        self.active = segment
        if end < self.log_start_offset:  # the batch that was cut spans the start
            self.truncate_and_restart_at(self.log_start_offset)
            return
        self._cut_state(end)
        if ends_in_gap:  # the file would say that it ends before: with the last batch
            self.roll()

    def _cut_segment(self, segment: Segment, offset: int) -> tuple[int, bool]:
        disk, reader = self.env.disk, self._reader
        end, last = cut_segment(disk, self.config, reader, segment, offset, self.end_offset)
        cut = cut_aborted(disk, segment, end)
        if cut is not None:
            self._flusher.unsynced_paths.append(cut)
            self._aborted.changed(segment.base_offset)
        return end, last < end

    def _cut_state(self, end: int) -> None:
        self.end_offset = end
        self.cleaned_to = min(self.cleaned_to, end)
        self.damage = within(self.damage, 0, end)
        self.truncations += 1
        self.recovery.undecided = False
        self._flusher.cut(end)
        self.epochs.truncate_from_end(end)
        self._reader.forget()
        for offset in producer_files.snapshot_offsets(self.env.disk, self.directory):
            if offset > end:
                self.env.disk.remove(
                    f"{self.directory}/{names.segment_file(offset, names.SNAPSHOT)}"
                )
        if not self.producers.truncate(end):
            self._replay_producers(end)

    def _replay_producers(self, end: int) -> None:
        first = self.segments.peekitem(0)[0]
        producer_files.load_newest(self.env.disk, self.directory, end, self.producers, first)
        start = max(0, self.segments.bisect_right(self.producers.end_offset) - 1)
        for segment in list(self.segments.values())[start:]:
            with suppress(DamagedFile):  # the log goes on behind it, as when it was opened
                for position, header in segment.headers_from(0):
                    if header.base_offset >= self.producers.end_offset:
                        self.producers.replay(header, _marker_at(segment, position, header))
        self.producers.end_offset = end

    def _drop_leftovers(self) -> None:
        for base in self._leftover_bases:
            remove_segment_files(self.env, self.directory, base)
        self._leftover_bases = []

    @full_is_failed()
    def truncate_and_restart_at(self, offset: int) -> None:
        """Throw everything away and begin again, empty, at `offset`; then as `truncate_to`."""
        self._drop_leftovers()
        # The newest first: what a crash leaves ends earlier, but begins where it did.
        for segment in reversed(self.segments.values()):
            self._retire(segment)
        self.segments.clear()
        self._start_segment(offset)
        self.log_start_offset = offset
        self.epochs.clear()
        self.producers.load((), offset)
        self.recovery.all_damage.clear()
        self.damage = []
        self._cut_state(offset)

    def _retire(self, segment: Segment, suffixes: Sequence[str] = names.SEGMENT_SUFFIXES) -> None:
        self.trash.retire(segment, self.env.clock.now_ms(), suffixes)
        self._aborted.changed(segment.base_offset)
        self._flusher.directory_changed = True
        self._reader.forget()

    def advance_log_start(self, offset: int) -> None:
        """Nothing below `offset` is to be read any more. Its segments go with the next
        `delete_retired_segments`. Raises OffsetOutOfRange if the log ends before it."""
        if offset > self.end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.end_offset)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.damage = within(self.damage, offset, self.end_offset)

    def delete_retired_segments(self, wall_ms: int, upto: int) -> int:
        """Take out segments that retention no longer wants, none at or above `upto` (the
        high watermark); how many. Files go later, with `delete_due_files`."""
        return retention.delete_retired_segments(self, wall_ms, upto)

    def drop_first_segment(self) -> None:
        """Take out the oldest segment; the next one begins the log. Raises DiskFull: it is still
        there then, to be taken out later."""
        base, segment = self.segments.peekitem(0)
        assert segment is not self.active, base
        self._retire(segment)
        del self.segments[base]
        self.advance_log_start(self.segments.peekitem(0)[0])

    def replace_segments(
        self, old: Sequence[Segment], new: Segment, suffixes: Sequence[str]
    ) -> None:
        """Let `new`, whose files (of the kinds `suffixes`, the log last) are durable under
        `.cleaned` names, take the place of the neighbouring segments `old`, with the base offset of
        the first of them.

        Raises DiskError: what the disk holds is sound at the next start whatever happened, but
        this object may then not be used any more. The directory is still to be synced.
        """
        assert self.active not in old, self.active.base_offset
        assert new.base_offset == old[0].base_offset, new.base_offset
        disk = self.env.disk
        with full_is_failed():
            for suffix in suffixes:
                disk.rename(new.path(suffix) + names.CLEANED, new.path(suffix) + names.SWAP)
            # From old to new, so that none is left without those that replace its records. What
            # is known of producers at the new segment's base is still true.
            for segment in old:
                del self.segments[segment.base_offset]
                kept = [names.SNAPSHOT] if segment is old[0] else []
                self._retire(segment, [s for s in names.SEGMENT_SUFFIXES if s not in kept])
            for suffix in suffixes:
                disk.rename(new.path(suffix) + names.SWAP, new.path(suffix))
        new.file.renamed(new.path(names.LOG))
        self._aborted.changed(new.base_offset)
        self.segments[new.base_offset] = new

    async def delete_due_files(self, now_ms: int) -> int:
        """Remove files taken out longer than file.delete.delay.ms ago; how many."""
        return await self.trash.empty(now_ms, self.env.run_blocking)

    # Durability

    async def flush(self, upto: int | None = None) -> int:
        """Return when all below `upto` (default: the end at the time of the call) is durable;
        the recovery point then. Raises SyncFailed: nothing may be assumed durable then; LogClosed
        where the log was closed meanwhile.

        Calls may overlap; one sync of the file serves all appends made before it.
        """
        if upto is None or upto > self.recovery_point:
            await self._flusher.flush(self.end_offset)
        return self.recovery_point

    @property
    def is_flushed(self) -> bool:
        """Whether all of it is durable, its side files too, and no flush is on its way."""
        return self._flusher.is_done(self.end_offset)

    async def settle(self) -> None:
        """Make what truncation did durable. To be awaited before the next append.

        The lower recovery point is written first: what is appended from here on must not be
        taken for synced after a power loss. Raises DiskError.
        """
        if self._flusher.fell and self.on_lowered_recovery_point is not None:
            with full_is_failed():
                await self.on_lowered_recovery_point()
        self._flusher.fell = False
        await self.flush()

    async def close(self, clean: bool = True) -> None:
        """Give up all files. `clean` leaves them so that they can be trusted: indexes and
        producer snapshot written, all synced. Without it nothing is written."""
        if self.closed:
            return
        if clean and not self.recovery.undecided:
            disk = self.env.disk
            self._flusher.unsynced_paths += self.active.freeze(disk)
            self._flusher.unsynced_paths.append(
                producer_files.write_snapshot(disk, self.directory, self.producers)
            )
            self._flusher.directory_changed = True
            await self.flush()
        self.closed = self._flusher.closed = True
        for segment in self.segments.values():
            segment.close()
        self.trash.close()


def _marker_at(segment: Segment, position: int, header: BatchHeader) -> TxnMarker | None:
    if not header.is_control or header.producer_id < 0:
        return None
    try:
        return read_txn_marker(segment.batch_at(position, header), 0, header)
    except DecodeError as error:
        raise segment.damaged(position, str(error)) from error


__all__ = ["AppendInfo", "Damage", "DamagedFile", "Log", "Recovery", "Slice"]
