"""Writing a snapshot of our own state: header, data batches, footer (KIP-630)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from raft.snapshots import SnapshotStore
from raft.voters import OffsetAndEpoch
from wire import control
from wire.batch import build_batch
from world.env import Env, File

_BATCH_BYTES = 512 * 1024
_BATCH_RECORDS = 1024


class SnapshotWriter:
    """Appends batches to a part file; offsets are running counters inside the file."""

    def __init__(self, env: Env, part: File, epoch: int) -> None:
        self._env = env
        self._part = part
        self._epoch = epoch
        self._next_offset = 0

    def batch(self, records: list[tuple[bytes | None, bytes]], *, is_control: bool) -> None:
        now_ms = self._env.clock.wall_ms()
        data = build_batch(
            [(now_ms, key, value, ()) for key, value in records],
            base_offset=self._next_offset,
            leader_epoch=self._epoch,
            control=is_control,
        )
        self._part.append([data])
        self._next_offset += len(records)


async def write(
    env: Env,
    store: SnapshotStore,
    snapshot: OffsetAndEpoch,
    last_timestamp_ms: int,
    values: Iterable[bytes],
    *,
    kraft_version: int = 0,
    voters: Iterable[control.Voter] | None = None,
) -> None:
    """Write `values` as a complete, durable snapshot, giving way to others between batches.

    Raises DiskError; then no snapshot of this id exists.
    """
    part = store.new_part(snapshot, "own")
    try:
        writer = SnapshotWriter(env, part, snapshot.epoch)
        head: list[tuple[bytes | None, bytes]] = [control.encode_snapshot_header(last_timestamp_ms)]
        if kraft_version >= 1:
            head.append(control.encode_kraft_version(kraft_version))
            if voters is not None:
                head.append(control.encode_voters(list(voters)))
        writer.batch(head, is_control=True)
        pending: list[tuple[bytes | None, bytes]] = []
        size = 0
        for value in values:
            pending.append((None, value))
            size += len(value)
            if size >= _BATCH_BYTES or len(pending) >= _BATCH_RECORDS:
                writer.batch(pending, is_control=False)
                pending, size = [], 0
                await asyncio.sleep(0)  # others first
        if pending:
            writer.batch(pending, is_control=False)
        writer.batch([control.encode_snapshot_footer()], is_control=True)
    except BaseException:
        store.discard(part)
        raise
    await store.freeze(part, snapshot)
