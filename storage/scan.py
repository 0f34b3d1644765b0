"""Reading a segment from end to end after an unclean stop.

Over a file alone, so that it can run in a worker thread, and in slices: it changes nothing but the
epochs and the producer state it is handed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from storage.epochs import LeaderEpochs
from storage.index import ActiveIndex
from storage.producers import CompletedTxn, ProducerState
from wire.batch import HEADER_SIZE, BatchHeader, crc_ok, read_header
from wire.control import read_txn_marker
from wire.errors import BadHeader, DecodeError
from world.env import File
from world.slices import Work

_WINDOW = 1 << 20
# Batches and bytes between two places where a scan may be left: some 20 ms of work.
_SLICE_BATCHES = 4_096
_SLICE_BYTES = 16 << 20
_MAGIC_AT = 16  # in a batch's header


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that should be sound and are not. `offset` is the first that is lost or in doubt,
    `position` the place in the file at `path`."""

    offset: int
    path: str
    position: int
    reason: str


@dataclass(slots=True)
class Scan:
    """What a scan found: sound bytes up to `end`, offsets up to `next_offset` (exclusive).

    `problem` says why it ended before the end of the file (None: it didn't), `damage` lists
    batches of wrong CRC that were passed over. `thinned`: offsets are missing inside, as
    compaction leaves a segment. `completed` are the transactions that ended in what was replayed.
    """

    index: ActiveIndex
    next_offset: int
    end: int = 0
    problem: Damage | None = None
    damage: list[Damage] = field(default_factory=list)
    first_timestamp: int = -1
    thinned: bool = False
    completed: list[CompletedTxn] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ScanRules:
    """How strict a scan is.

    `contiguous`: every batch begins where the last ended and epochs never fall.
    `pass_damage_below`: a batch of wrong CRC wholly below this offset is noted and passed,
    since cutting there would throw away sound data that was synced.
    `stated_epochs`: what the epoch file said, and below which offset a batch must agree: its own
    epoch is not covered by its CRC.
    """

    interval: int
    check_crc: bool = True
    contiguous: bool = False
    pass_damage_below: int = 0
    stated_epochs: tuple[LeaderEpochs, int] | None = None


def scan_segment(
    file: File,
    base_offset: int,
    expected: int,
    rules: ScanRules,
    epochs: LeaderEpochs,
    producers: ProducerState,
) -> Work[Scan]:
    """Walk a segment's batches from its first byte, in slices (see `world.slices`).

    `expected` is the offset that the log before it ends at. Epochs are assigned, and
    producers replayed from their `end_offset` on.
    """
    scan = Scan(ActiveIndex(rules.interval), expected)
    slice_begin, batches = 0, 0
    for position, header, window, at in _frames(file, scan):
        batches += 1
        if batches >= _SLICE_BATCHES or position - slice_begin >= _SLICE_BYTES:
            slice_begin, batches = position, 0
            yield
        reason = _contradiction(header, base_offset, scan.next_offset, rules, epochs)
        if reason is None and rules.check_crc and not crc_ok(window, at, header.length):
            if header.next_offset <= rules.pass_damage_below:
                scan.damage.append(Damage(header.base_offset, file.path, position, "CRC is wrong"))
            else:
                reason = "CRC is wrong"
        replayed = header.base_offset >= producers.end_offset
        marker = None
        if reason is None and replayed and header.is_control and header.producer_id >= 0:
            try:
                marker = read_txn_marker(window, at, header)
            except DecodeError as error:
                reason = str(error)
        if reason is not None:
            scan.problem = Damage(scan.next_offset, file.path, position, reason)
            return scan
        if header.base_offset != scan.next_offset or header.count <= header.last_offset_delta:
            scan.thinned = True
        if position == 0:
            scan.first_timestamp = header.max_timestamp
        relative = header.last_offset - base_offset
        scan.index.add(relative, position, header.length, header.max_timestamp)
        if header.leader_epoch > epochs.latest:
            epochs.assign(header.leader_epoch, header.base_offset)
        if replayed:
            completed = producers.replay(header, marker)
            if completed is not None:
                scan.completed.append(completed)
        scan.next_offset = header.next_offset
        scan.end = position + header.length
    return scan


def sound_end(file: File, base_offset: int, position: int, offset: int) -> Work[int]:
    """Where the last sound batch from `position` on ends, wherever it lies in a segment without
    gaps; `offset` if none ends later. In slices (see `world.slices`).

    For what follows a damaged place, where not even the lengths can be trusted, nor, as no CRC
    covers it, what a batch says of its offset. But none has more records than bytes.
    """
    end, size = offset, file.size()
    window, window_at = b"", position
    looked_at = 0
    while size - position >= HEADER_SIZE:
        if position - window_at + HEADER_SIZE > len(window):
            yield
            window, window_at = file.pread(_WINDOW, position), position
        at = window.find(2, position - window_at + _MAGIC_AT) - _MAGIC_AT
        if at < 0:
            position = window_at + len(window) - _MAGIC_AT
            continue
        position = window_at + at
        if at + HEADER_SIZE > len(window):
            continue
        looked_at += 1
        if looked_at % _SLICE_BATCHES == 0:
            yield
        header = _header_at(window, at)
        following = position + 1
        if (
            header is not None
            and position + header.length <= size
            and end < header.next_offset <= base_offset + position + header.length
        ):
            if at + header.length <= len(window):
                sound = crc_ok(window, at, header.length)
            else:
                yield
                sound = crc_ok(file.pread(header.length, position), 0, header.length)
            if sound:
                end, following = header.next_offset, position + header.length
        position = following
    return end


def _header_at(window: bytes, at: int) -> BatchHeader | None:
    try:
        return read_header(window, at)
    except DecodeError:
        return None


def only_zeros(file: File, position: int) -> bool:
    """Whether nothing but zeros follows `position` in the file."""
    return not any(any(file.pread(_WINDOW, at)) for at in range(position, file.size(), _WINDOW))


def _frames(file: File, scan: Scan) -> Iterator[tuple[int, BatchHeader, bytes, int]]:
    """(position, header, window, place in the window) of each whole batch; sets the problem
    and ends where there is none."""
    size = file.size()
    window, window_at, position = b"", 0, 0
    while position < size:
        at = position - window_at
        if at + HEADER_SIZE > len(window):
            window, window_at, at = file.pread(_WINDOW, position), position, 0
        reason = None
        try:
            header = read_header(window, at)
        except BadHeader as error:
            zero = not any(window[at : at + HEADER_SIZE])
            reason = "zeros" if zero else error.reason
        else:
            if position + header.length > size:
                reason = f"a batch of {header.length} bytes ends past the file"
        if reason is not None:
            scan.problem = Damage(scan.next_offset, file.path, position, reason)
            return
        if at + header.length > len(window):
            window = file.pread(max(_WINDOW, header.length), position)
            window_at, at = position, 0
        yield position, header, window, at
        position += header.length


def _contradiction(
    header: BatchHeader,
    base_offset: int,
    expected: int,
    rules: ScanRules,
    epochs: LeaderEpochs,
) -> str | None:
    """Why this batch can't follow what came before; None if it can."""
    offset = header.base_offset
    if offset < expected or (rules.contiguous and offset != expected):
        return f"batch begins at offset {offset}, expected {expected}"
    if header.last_offset - base_offset > 2**31 - 1:
        return f"offset {header.last_offset} is too far from the segment's {base_offset}"
    if rules.contiguous and header.leader_epoch < epochs.latest:
        return f"leader epoch falls from {epochs.latest} to {header.leader_epoch}"
    if rules.stated_epochs is not None and header.next_offset <= rules.stated_epochs[1]:
        stated = rules.stated_epochs[0]
        epoch = stated.epoch_at(offset)
        if epoch not in (-1, header.leader_epoch):
            return f"leader epoch {header.leader_epoch}, the epoch file says {epoch}"
        # Deleted records may precede all that the file knows, but none of a later epoch.
        if epoch == -1 and stated.earliest is not None and header.leader_epoch > stated.earliest[0]:
            return f"leader epoch {header.leader_epoch}, before epoch {stated.earliest[0]}"
    return None
