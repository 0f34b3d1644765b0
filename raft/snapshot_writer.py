"""Writing a snapshot of our own state: header, data batches, footer (KIP-630)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from raft.snapshots import SnapshotStore
from raft.voters import OffsetAndEpoch
from wire import control
from wire.batch import build_batch
from world.env import Env, File

_BATCH_BYTES = 512 * 1024
_BATCH_RECORDS = 1024
# So much is written between two syncs: a whole snapshot synced at once would keep the disk, and
# with it the commits, busy for long.
_SYNC_BYTES = 1 << 20
# Writing takes one part in so many of the time, of the loop's as well as of a processor's: who
# waits for a commit, which passes several nodes, mostly finds them free.
_SHARE = 3


class SnapshotWriter:
    """Appends batches to a part file; offsets are running counters inside the file."""

    def __init__(self, env: Env, part: File, epoch: int) -> None:
        self._env = env
        self._part = part
        self._epoch = epoch
        self._resumed_ms = env.clock.now_ms()
        self._next_offset = 0
        self._synced = 0
        self._pending: list[tuple[bytes | None, bytes]] = []
        self._pending_bytes = 0

    def add(self, values: Sequence[bytes]) -> None:
        """Append values, in as many batches as they fill; some may wait for the next call."""
        for value in values:
            self._pending.append((None, value))
            self._pending_bytes += len(value)
            if self._pending_bytes >= _BATCH_BYTES or len(self._pending) >= _BATCH_RECORDS:
                self.finish_batch()

    def finish_batch(self) -> None:
        """Append what waits."""
        if self._pending:
            pending, self._pending, self._pending_bytes = self._pending, [], 0
            self._append(pending, is_control=False)

    def control(self, records: list[tuple[bytes | None, bytes]]) -> None:
        """Append a control batch, behind what waits."""
        self.finish_batch()
        self._append(records, is_control=True)

    def _append(self, records: list[tuple[bytes | None, bytes]], *, is_control: bool) -> None:
        now_ms = self._env.clock.wall_ms()
        data = build_batch(
            [(now_ms, key, value, ()) for key, value in records],
            base_offset=self._next_offset,
            leader_epoch=self._epoch,
            control=is_control,
        )
        self._part.append([data])
        self._next_offset += len(records)

    async def give_way(self) -> None:
        """Let others have their turn, and the disk take what there is."""
        worked_ms = self._env.clock.now_ms() - self._resumed_ms
        if self._part.size() - self._synced >= _SYNC_BYTES:
            self._synced = self._part.size()
            await self._part.sync()
        await asyncio.sleep(worked_ms * (_SHARE - 1) / 1000)
        self._resumed_ms = self._env.clock.now_ms()


async def write(
    env: Env,
    store: SnapshotStore,
    snapshot: OffsetAndEpoch,
    last_timestamp_ms: int,
    slices: Iterable[Sequence[bytes]],
    *,
    kraft_version: int = 0,
    voters: Iterable[control.Voter] | None = None,
) -> None:
    """Write the values of all `slices` as a complete, durable snapshot; others have their turn
    after each slice.

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
        writer.control(head)
        for values in slices:
            writer.add(values)
            await writer.give_way()
        writer.control([control.encode_snapshot_footer()])
    except BaseException:
        store.discard(part)
        raise
    await store.freeze(part, snapshot)
