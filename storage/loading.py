"""Opening a log directory: which files belong to it, and what must be rebuilt or cut.

After a clean stop the files are trusted. After any other, every segment that may hold bytes
which were not synced is read from end to end; what follows the first unsound byte is cut.
Whatever can be derived from the log (indexes, epochs, producer snapshots) is derived again if
it is damaged or missing. Bytes that were synced and are damaged nevertheless are reported.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from storage import damage, names, producer_files
from storage.config import LogConfig
from storage.epochs import LeaderEpochs
from storage.index import ActiveIndex, plausible
from storage.leftovers import make_directory, sweep
from storage.producers import ProducerState
from storage.scan import Damage, Scan, ScanRules, only_zeros, scan_segment
from storage.segment import (
    IndexIsWrong,
    Segment,
    create_segment,
    rebuild_tail,
    stored_index,
)
from storage.txn_index import aborted_entries, aborted_in, cut_aborted, write_aborted
from wire import checkpoints, partition_metadata
from wire.errors import DamagedFile
from world.env import Absent, Env
from world.slices import run_in_slices

_NO_LIMIT = 2**63 - 1
_ZERO_TAIL = 64


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes of a file that were cut off, or the whole file (`position` 0) that was removed."""

    path: str
    position: int
    length: int
    reason: str


@dataclass(slots=True)
class Recovery:
    """What opening a log found and did.

    `damage` is the first place where bytes that were synced are not sound; `all_damage` has
    every one. `cut` lists what was taken off the unsynced end, `rebuilt` files that were
    derived anew, `removed` files that had no use. If `undecided` is set, the log ends at the
    damage and takes no appends until it is truncated: nothing was cut.
    """

    clean: bool
    scanned_bytes: int = 0
    all_damage: list[Damage] = field(default_factory=list)
    cut: list[Cut] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    undecided: bool = False

    @property
    def damage(self) -> Damage | None:
        return self.all_damage[0] if self.all_damage else None


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """How to open: see `storage.log.Log.open`."""

    recovery_point: int = 0
    clean: bool = False
    log_start_offset: int | None = None
    strict_before: int | None = None
    cleaned_to: int = 0


class Loader:
    """Opens one directory; `load` fills the fields, which the log then takes over."""

    def __init__(self, env: Env, directory: str, config: LogConfig, options: OpenOptions) -> None:
        self._env = env
        self._disk = env.disk
        self._config = config
        self._options = options
        self.directory = directory
        self.recovery = Recovery(options.clean)
        self.segments: list[Segment] = []
        self.leftover_bases: list[int] = []
        self.epochs = LeaderEpochs()
        self.producers = ProducerState()
        self.topic_id: UUID | None = None
        self.end_offset = 0
        self.log_start: int | None = None  # if not where the first segment begins
        self._strict = options.strict_before is not None
        # Everything below this offset was synced; where the log was closed in order, all that it
        # had then, which is told apart.
        self._synced = self._durable = options.recovery_point
        if options.strict_before is not None:
            self._synced = self._durable = options.strict_before
        elif options.clean:
            self._synced = _NO_LIMIT
        self._stated_epochs: tuple[LeaderEpochs, int] | None = None
        self.unsynced: list[str] = []
        self.cleaned_to = options.cleaned_to

    async def load(self) -> None:
        """Do it all. Raises DiskError."""
        disk, directory = self._disk, self.directory
        await make_directory(disk, directory)
        epochs_known = self._read_epochs()
        beginning = None if self._strict else self._missing_beginning()
        kept = [] if beginning is None else beginning[1]
        self.recovery.removed += sweep(disk, directory, kept)
        self._read_topic_id()
        bases = self._bases()
        if not bases:
            self.epochs = LeaderEpochs()
            bases = [self._options.log_start_offset or 0]
            create_segment(disk, directory, bases[0], 0, 0).close()
            await disk.sync_dir(directory)
            # Nothing to trust or to distrust; a new partition shall cost few syncs.
            self.segments = [self._open_segment(bases[0])]
            self.segments[0].index = ActiveIndex(self._config.index_interval_bytes)
            self.end_offset = bases[0]
            self.producers.load((), bases[0])
            self.epochs.dirty = True
            self._check_length()
            return
        if self._strict and epochs_known:
            self._stated_epochs = (LeaderEpochs(self.epochs.entries()), self._synced)
        first_scanned = self._first_scanned(bases)
        if not epochs_known:
            self.recovery.rebuilt.append(self._path(names.LEADER_EPOCHS))
            await self._rebuild_epochs(bases[:first_scanned])
        elif first_scanned < len(bases):
            # Of what was compacted, not all epochs have a batch left; it was synced before.
            self.epochs.truncate_from_end(max(bases[first_scanned], self.cleaned_to))
        if beginning is not None:
            self._note_beginning(beginning[0], bases[0])
        for position in range(first_scanned):
            await self._trust(bases, position)
        await self._check_aborted()
        await self._check_epochs()
        if first_scanned < len(bases):
            await self._scan_rest(bases, first_scanned)
        else:
            await self._replay_producers(self.end_offset, self.producers)
        if not self.recovery.all_damage:
            self._check_length()
        await self._settle()

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def _bases(self) -> list[int]:
        found = (
            names.base_offset_of(name, names.LOG) for name in self._disk.list_dir(self.directory)
        )
        return [base for base in found if base is not None]

    def _first_scanned(self, bases: list[int]) -> int:
        """Where in `bases` reading from end to end begins; len(bases) if nowhere."""
        if self._strict:
            return 0
        if self._options.clean:
            return len(bases)
        below = [base for base in bases if base <= self._options.recovery_point]
        return max(0, len(below) - 1)

    def _read_topic_id(self) -> None:
        path = self._path(names.PARTITION_METADATA)
        try:
            self.topic_id = partition_metadata.decode(self._disk.read_bytes(path), path)
        except Absent:
            return
        except DamagedFile:
            # The owner knows the topic's id and writes it again.
            self._disk.remove(path)
            self.recovery.removed.append(path)

    def _read_epochs(self) -> bool:
        path = self._path(names.LEADER_EPOCHS)
        try:
            self.epochs = LeaderEpochs(checkpoints.decode_epochs(self._disk.read_bytes(path), path))
        except (Absent, DamagedFile):
            self.epochs = LeaderEpochs()
            self.epochs.dirty = True
            return False
        return True

    async def _rebuild_epochs(self, bases: list[int]) -> None:
        rules = ScanRules(self._config.index_interval_bytes, check_crc=False)
        for base in bases:
            await self._read_segment(base, base, rules, ProducerState())

    async def _check_epochs(self) -> None:
        """The newest epoch in the trusted part must be that of its last batch: a file that says
        otherwise is not this log's, or not of its present, and who believes it never agrees with
        a leader on where their logs part."""
        epoch = self._last_batch_epoch()
        if epoch is not None:
            self.epochs.truncate_from_end(self.end_offset)
        if epoch is None or epoch == self.epochs.latest:
            return
        self.epochs = LeaderEpochs()
        await self._rebuild_epochs([segment.base_offset for segment in self.segments])
        self.epochs.dirty = True
        self.recovery.rebuilt.append(self._path(names.LEADER_EPOCHS))

    async def _check_aborted(self) -> None:
        """What the trusted part's damaged files said of aborted transactions is in the log, too."""
        for segment in self.segments:
            try:
                aborted_in(self._disk, segment)
            except DamagedFile:
                producers = ProducerState()
                base = segment.base_offset
                await self._replay_producers(base, producers)
                self._write_aborted(segment, await self._look_through(base, producers))

    def _last_batch_epoch(self) -> int | None:
        """None if there is no batch, or only deleted ones, or damage where it should be."""
        for segment in reversed(self.segments):
            try:
                last = segment.last_header()
            except DamagedFile:
                return None
            if last is not None:
                deleted = last.last_offset < (self._options.log_start_offset or 0)
                return None if deleted else last.leader_epoch
        return None

    async def _read_segment(
        self, base: int, expected: int, rules: ScanRules, producers: ProducerState
    ) -> Scan:
        file = self._disk.open(self._path(names.segment_file(base, names.LOG)))
        try:
            scan = await run_in_slices(
                self._env, scan_segment(file, base, expected, rules, self.epochs, producers)
            )
        finally:
            file.close()
        return scan

    async def _look_through(self, base: int, producers: ProducerState | None = None) -> Scan:
        """A scan that checks no CRC and leaves the epochs as they are."""
        rules = ScanRules(self._config.index_interval_bytes, check_crc=False)
        epochs, self.epochs = self.epochs, LeaderEpochs()
        try:
            seen = ProducerState() if producers is None else producers
            return await self._read_segment(base, base, rules, seen)
        finally:
            self.epochs = epochs

    async def _trust(self, bases: list[int], position: int) -> None:
        """Take over a segment as it is; only its indexes may have to be rebuilt."""
        base = bases[position]
        segment = self._open_segment(base)
        self.segments.append(segment)
        index, time_index = segment.path(names.INDEX), segment.path(names.TIME_INDEX)
        sound = plausible(self._disk, index, time_index, segment.size)
        if position < len(bases) - 1:
            if not self._options.clean and await self._trim_zeros(segment, bases[position + 1]):
                sound = plausible(self._disk, index, time_index, segment.size)
            if damage.was_emptied(self._disk, segment):
                self._note_emptied(segment, bases[position + 1])
            elif not sound:
                await self._rebuild_index(segment)
            await self._check_reach(segment, bases[position + 1])
            self.end_offset = bases[position + 1]
            return
        active = ActiveIndex(self._config.index_interval_bytes)
        try:
            sound = sound and active.load(
                self._disk.read_bytes(index), self._disk.read_bytes(time_index)
            )
            if sound:
                segment.index = active
                self.end_offset = rebuild_tail(segment)
        except DamagedFile:
            sound = False
        if not sound:
            self.segments.pop().close()
            await self._scan_rest(bases, position)
            return
        if segment.size:
            with suppress(DamagedFile):  # met by who reads it; what lies behind is good
                segment.first_timestamp = segment.header_at(0).max_timestamp

    def _missing_beginning(self) -> tuple[int, list[int]] | None:
        return damage.missing_beginning(
            self._disk.list_dir(self.directory),
            self.epochs,
            self._options.log_start_offset or 0,
            self._options.clean,
        )

    def _note_beginning(self, start: int, first_base: int) -> None:
        """The first segments are gone. The log begins where it did: followers would delete what
        they have, and the next start could not tell."""
        if start < first_base:
            path = self._path(names.segment_file(start, names.LOG))
            reason = f"the records from offset {start} to {first_base - 1} are missing"
            self.recovery.all_damage.append(Damage(start, path, 0, reason))
            self.log_start = start

    def _note_emptied(self, segment: Segment, next_base: int) -> None:
        """Its indexes say that it was no cleaner that emptied a segment; they stay as they are, so
        that the next start sees it, too."""
        base = segment.base_offset
        if next_base > (self._options.log_start_offset or 0):
            reason = f"the records from offset {base} to {next_base - 1} are missing"
            self.recovery.all_damage.append(Damage(base, segment.file.path, 0, reason))

    async def _check_reach(self, segment: Segment, next_base: int) -> None:
        """Note it if a segment ends before the one that follows it begins.

        Both were synced in full, so somebody has emptied, cut or removed a file since. Compaction
        leaves such holes too: where it is on, or has been at work, nothing can be said. Readers go
        on behind them.
        """
        path = segment.file.path
        if next_base <= (self._options.log_start_offset or 0):
            return
        if path in [found.path for found in self.recovery.all_damage] and not segment.size:
            return
        try:
            try:
                last = segment.last_header()
            except IndexIsWrong:
                await self._rebuild_index(segment)
                last = segment.last_header()
        except DamagedFile as error:
            segment.limit = error.position
            if error.path not in [found.path for found in self.recovery.all_damage]:
                sound = await self._look_through(segment.base_offset)
                self.recovery.all_damage.append(
                    Damage(sound.next_offset, error.path, error.position, error.reason)
                )
            return
        if self._config.cleanup_compact or next_base <= self.cleaned_to:
            return
        end = segment.base_offset if last is None else last.next_offset
        if end < next_base and not await self._is_thinned(segment):
            reason = f"the records from offset {end} to {next_base - 1} are missing"
            self.recovery.all_damage.append(Damage(end, path, segment.size, reason))

    async def _is_thinned(self, segment: Segment) -> bool:
        """Whether offsets are missing inside: the topic, or the leader that this was fetched from,
        was compacted before its policy changed."""
        return (await self._look_through(segment.base_offset)).thinned

    async def _trim_zeros(self, segment: Segment, next_base: int) -> bool:
        """Whether zeros were cut off a segment that another follows.

        A preallocated segment is trimmed when the next one begins; if all in it was synced
        before, a power loss can bring its zeros back without reaching below the recovery point.
        """
        size = segment.file.size()
        if size == 0 or any(segment.file.pread(_ZERO_TAIL, max(0, size - _ZERO_TAIL))):
            return False
        scan = await self._look_through(segment.base_offset)
        if scan.problem is None or scan.next_offset > next_base:
            return False
        if not await self._env.run_blocking(only_zeros, segment.file, scan.end):
            return False
        segment.file.truncate(scan.end)
        self.recovery.cut.append(Cut(segment.file.path, scan.end, size - scan.end, "zeros"))
        return True

    def _open_segment(self, base: int) -> Segment:
        file = self._disk.open(self._path(names.segment_file(base, names.LOG)))
        index = stored_index(self._disk, self.directory, base)
        return Segment(self.directory, base, file, index, self._env.clock.wall_ms())

    async def _rebuild_index(self, segment: Segment) -> None:
        scan = await self._look_through(segment.base_offset)
        if scan.problem is not None:
            self.recovery.all_damage.append(scan.problem)
        self.recovery.scanned_bytes += scan.end
        self._freeze(segment, scan.index)
        self.recovery.rebuilt.append(segment.path(names.INDEX))

    def _freeze(self, segment: Segment, index: ActiveIndex) -> None:
        segment.index = index
        self.unsynced += segment.freeze(self._disk)
        segment.index = stored_index(self._disk, self.directory, segment.base_offset)

    async def _scan_rest(self, bases: list[int], first: int) -> None:
        """Read the segments from `first` on from end to end."""
        self.end_offset = bases[first]
        await self._replay_producers(bases[first], self.producers)
        rules = ScanRules(
            self._config.index_interval_bytes,
            contiguous=self._config.contiguous,
            pass_damage_below=0 if self._strict else self._synced,
            stated_epochs=self._stated_epochs,
        )
        thinned = False
        for number in range(first, len(bases)):
            base = bases[number]
            if number > first:
                problem = self._misplaced(base, thinned)
                if problem is not None and not self._passes(problem, base):
                    await self._stop_at(problem, None, bases[number:])
                    return
                self._freeze(self.segments[-1], self.segments[-1].active_index)
            segment = self._open_segment(base)
            expected = max(base, self.end_offset)
            scan = await self._read_segment(base, expected, rules, self.producers)
            self._write_aborted(segment, scan)
            thinned = scan.thinned
            segment.index = scan.index
            segment.first_timestamp = scan.first_timestamp
            self.segments.append(segment)
            self.end_offset = scan.next_offset
            self.recovery.scanned_bytes += scan.end
            self.recovery.all_damage += scan.damage
            if scan.problem is not None:
                later = bases[number + 1 :]
                if not later or not self._passes(scan.problem, later[0]):
                    await self._stop_at(scan.problem, scan.end, later)
                    return
                segment.limit = scan.end
                self.end_offset = later[0]

    def _write_aborted(self, segment: Segment, scan: Scan) -> None:
        path = write_aborted(self._disk, segment, aborted_entries(scan.completed))
        if path is not None:
            self.unsynced.append(path)
            self.recovery.rebuilt.append(path)

    def _misplaced(self, base: int, thinned: bool) -> Damage | None:
        """Why a segment of this base can't follow the one before, which ends lower.

        A power loss can take the end of a segment and leave the next one. Only where
        compaction has been at work may offsets be missing in between.
        """
        end = self.end_offset
        compacted = thinned or base <= self.cleaned_to
        if base == end or (base > end and compacted and not self._config.contiguous):
            return None
        path = self._path(names.segment_file(base, names.LOG))
        return Damage(end, path, 0, f"segment begins at offset {base}, expected {end}")

    def _check_length(self) -> None:
        if self.end_offset >= self._durable:
            return
        path = self.segments[-1].file.path
        reason = f"the log ends at offset {self.end_offset}, {self._durable} were synced"
        self.recovery.all_damage.append(
            Damage(self.end_offset, path, self.segments[-1].size, reason)
        )
        self.recovery.undecided = self._strict

    def _passes(self, problem: Damage, base: int) -> bool:
        """Whether the log goes on at `base` behind a problem, as behind any damaged segment: it
        lies below what was synced, and what follows it was not torn off by a crash."""
        if self._strict or self._config.contiguous:
            return False
        if not problem.offset < min(self._synced, base):
            return False
        self.recovery.all_damage.append(problem)
        return True

    async def _stop_at(self, problem: Damage, end: int | None, later: list[int]) -> None:
        """The log's sound part ends here: cut, or leave it to the owner. What was synced is cut,
        too, so that the log can go on, and kept elsewhere."""
        was_synced = problem.offset < self._synced
        if was_synced and self._strict:
            self.recovery.all_damage.append(problem)
            self.recovery.undecided = True
            self.leftover_bases = later
            if end is not None:
                self.segments[-1].limit = end
            return
        told = problem
        if end is not None:
            segment = self.segments[-1]
            if was_synced:
                told = await damage.keep_tail(self._env, segment, end, told)
            length = segment.file.size() - end
            self.recovery.cut.append(Cut(segment.file.path, end, length, problem.reason))
            segment.file.truncate(end)
        for base in later:
            path = self._path(names.segment_file(base, names.LOG))
            length = self._disk.size(path)
            self.recovery.cut.append(Cut(path, 0, length, "after the end of the sound log"))
            if was_synced:
                told = damage.keep_segment(self._env, self.directory, base, told)
            remove_segment_files(self._env, self.directory, base)
        if was_synced:
            self.recovery.all_damage.append(told)

    async def _replay_producers(self, upto: int, producers: ProducerState) -> None:
        """Producers as of `upto`: the newest snapshot, then the headers that follow it."""
        bases = self._bases()
        first = bases[0]
        self.recovery.removed += producer_files.load_newest(
            self._disk, self.directory, upto, producers, first
        )
        if producers.end_offset >= upto:
            return
        rules = ScanRules(self._config.index_interval_bytes, check_crc=False)
        epochs, self.epochs = self.epochs, LeaderEpochs()
        for base, next_base in zip(bases, [*bases[1:], _NO_LIMIT], strict=True):
            if next_base > producers.end_offset and base < upto:
                await self._read_segment(base, base, rules, producers)
        self.epochs = epochs
        producers.end_offset = max(producers.end_offset, upto)

    async def _settle(self) -> None:
        """Make durable what was done, so that it counts as synced from now on."""
        end = self.end_offset
        self.epochs.truncate_from_end(end)
        if self.log_start is None:
            self.epochs.truncate_from_start(self.segments[0].base_offset)
        self.producers.end_offset = max(self.producers.end_offset, end)
        if self.recovery.undecided:
            return
        self._drop_snapshots()
        cut = cut_aborted(self._disk, self.segments[-1], end) if self.recovery.cut else None
        if cut is not None:
            self.unsynced.append(cut)
        for segment in self.segments:
            segment.synced_changes = segment.changes
        if self._options.clean and not self.recovery.rebuilt and not self.recovery.cut:
            return
        for segment in self.segments:
            await segment.file.sync()
        for path in self.unsynced:
            file = self._disk.open(path)
            await file.sync()
            file.close()
        self.unsynced = []
        if self.epochs.dirty:
            data = checkpoints.encode_epochs(self.epochs.entries())
            await self._disk.replace(self._path(names.LEADER_EPOCHS), data)
            self.epochs.dirty = False
        await self._disk.sync_dir(self.directory)

    def _drop_snapshots(self) -> None:
        """Remove producer snapshots that are of no segment, or past the end."""
        of_segments = dict.fromkeys(segment.base_offset for segment in self.segments)
        offsets = producer_files.snapshot_offsets(self._disk, self.directory)
        for offset in offsets:
            if offset > self.end_offset or (offset not in of_segments and offset != offsets[-1]):
                path = self._path(names.segment_file(offset, names.SNAPSHOT))
                self._disk.remove(path)
                self.recovery.removed.append(path)


def remove_segment_files(env: Env, directory: str, base_offset: int) -> None:
    """Remove a segment's files at once; the log file last, so that none is left without it."""
    for suffix in reversed(names.SEGMENT_SUFFIXES):
        path = f"{directory}/{names.segment_file(base_offset, suffix)}"
        if env.disk.exists(path):
            env.disk.remove(path)
