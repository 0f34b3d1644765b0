"""Producer snapshot files: producers at an offset, written on roll and on clean close.

Only the last batch of each producer survives in Kafka's format.
"""

from __future__ import annotations

from storage.names import SNAPSHOT, base_offset_of, segment_file
from storage.producers import SEQUENCE_MASK, Producer, ProducerBatch, ProducerState
from storage.segment import write_plain
from wire import producer_snapshot
from wire.errors import DamagedFile
from wire.producer_snapshot import ProducerEntry
from world.env import Disk


def write_snapshot(disk: Disk, directory: str, state: ProducerState) -> str:
    """Write the file for the state's end offset; its path, still to be synced."""
    path = f"{directory}/{segment_file(state.end_offset, SNAPSHOT)}"
    write_plain(disk, path, producer_snapshot.encode([_entry(producer) for producer in state]))
    return path


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """The offsets of the snapshot files there, rising."""
    offsets = (base_offset_of(name, SNAPSHOT) for name in disk.list_dir(directory))
    return [offset for offset in offsets if offset is not None]


def load_newest(
    disk: Disk, directory: str, at_most: int, state: ProducerState, first_offset: int
) -> list[str]:
    """Begin `state` from the newest sound snapshot at or below `at_most`.

    Without one, it begins empty at `first_offset`. Damaged files are removed; their paths are
    returned.
    """
    removed = []
    for offset in reversed(snapshot_offsets(disk, directory)):
        if offset > at_most or offset < first_offset:
            continue
        path = f"{directory}/{segment_file(offset, SNAPSHOT)}"
        try:
            entries = producer_snapshot.decode(disk.read_bytes(path), path)
        except DamagedFile:
            disk.remove(path)
            removed.append(path)
            continue
        state.load((_producer(entry) for entry in entries), offset)
        return removed
    state.load((), first_offset)
    return removed


def _entry(producer: Producer) -> ProducerEntry:
    last = producer.batches[-1] if producer.batches else None
    return ProducerEntry(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=last.last_sequence if last else -1,
        last_offset=last.last_offset if last else -1,
        offset_delta=last.last_offset - last.first_offset if last else 0,
        timestamp=producer.last_timestamp_ms,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_first_offset=producer.open_since,
    )


def _producer(entry: ProducerEntry) -> Producer:
    batches: tuple[ProducerBatch, ...] = ()
    if entry.last_offset >= 0:
        batches = (
            ProducerBatch(
                (entry.last_sequence - entry.offset_delta) & SEQUENCE_MASK,
                entry.last_sequence,
                entry.last_offset - entry.offset_delta,
                entry.last_offset,
                entry.timestamp,
            ),
        )
    return Producer(
        entry.producer_id,
        entry.producer_epoch,
        batches,
        entry.timestamp,
        entry.coordinator_epoch,
        entry.current_txn_first_offset,
    )
