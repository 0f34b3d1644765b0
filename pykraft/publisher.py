"""From the quorum's committed log to images, once per node.

Controller and broker of a combined node, the gRPC door and Watch all see the same image, in the
order in which they subscribed. The publisher also decides when a snapshot is due: after so many
bytes or so long a time (KIP-630), from the image itself, which is a value, while the log moves on.
Reading and writing one are both cut into slices of a few milliseconds, so that nobody waits long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from uuid import UUID

import structlog

from metadata.delta import ImageDelta
from metadata.image import MetadataImage
from metadata.loader import BatchLoad, ImageLoader
from metadata.snapshot import slices_of
from raft.listener import CommittedBatch, LeaderAndEpoch, SnapshotView
from raft.voters import ReplicaKey
from wire.errors import FatalError
from wire.uuids import ZERO
from world.env import Env

ImageSubscriber = Callable[[MetadataImage, ImageDelta], None]
LeaderSubscriber = Callable[[LeaderAndEpoch], None]
BatchSubscriber = Callable[[CommittedBatch], None]

# Records applied at once: some milliseconds of work.
_SLICE = 128
# After so many partitions what they add to the image is taken out of the collector's sight: some
# 10 ms of work, where each is of a topic of its own. Not more often: what is out of its sight and
# comes to refer to itself is never collected.
_SETTLE_PARTITIONS = 1_000


def _voter_keys(voters: tuple[ReplicaKey, ...] | None) -> list[tuple[int, UUID]] | None:
    if voters is None:
        return None
    return [(voter.node_id, voter.directory_id or ZERO) for voter in voters]


class SnapshotStore(Protocol):
    """What the publisher needs of the quorum to keep a snapshot."""

    @property
    def catching_up(self) -> bool:
        """Whether more of the log is known to be committed than was handed on."""
        ...

    async def write_snapshot(
        self, offset: int, epoch: int, last_timestamp_ms: int, slices: Iterable[Sequence[bytes]]
    ) -> bool:
        """Whether it is kept; False where there is one as new, or no room, or no disk any more."""
        ...


class MetadataPublisher:
    """The quorum's listener in this process."""

    def __init__(
        self,
        env: Env,
        *,
        snapshot_bytes: int,
        snapshot_interval_ms: int,
        on_fatal: Callable[[FatalError], None],
    ) -> None:
        self._env = env
        self._snapshot_bytes = snapshot_bytes
        self._snapshot_interval_ms = snapshot_interval_ms
        self._on_fatal = on_fatal
        self._loader = ImageLoader()
        # By base offset, with the partitions in it that `_settle` has counted.
        self._prepared: tuple[int, BatchLoad, int] | None = None
        self._image_subscribers: list[ImageSubscriber] = []
        self._leader_subscribers: list[LeaderSubscriber] = []
        self._batch_subscribers: list[BatchSubscriber] = []
        self._bytes_since_snapshot = 0
        self._snapshot_wanted = False
        self._last_snapshot_ms = env.clock.now_ms()
        self._snapshot_task: asyncio.Task[None] | None = None
        self._unsettled = 0
        self._failed = False
        self._log = structlog.get_logger("metadata")
        self.store: SnapshotStore | None = None
        self.leader = LeaderAndEpoch(None, 0)
        self.snapshots_written = 0
        # Set, and replaced by a fresh one, whenever the committed log has moved.
        self.moved = asyncio.Event()

    @property
    def image(self) -> MetadataImage:
        """The committed image."""
        return self._loader.image

    @property
    def in_transaction(self) -> bool:
        """Whether the committed log ends inside an open metadata transaction."""
        return self._loader.in_transaction

    def subscribe(
        self,
        *,
        image: ImageSubscriber | None = None,
        leader: LeaderSubscriber | None = None,
        batch: BatchSubscriber | None = None,
    ) -> None:
        """Asks to be called with each new image, leader, committed batch."""
        if image is not None:
            self._image_subscribers.append(image)
        if leader is not None:
            self._leader_subscribers.append(leader)
        if batch is not None:
            self._batch_subscribers.append(batch)

    # -- raft.listener.RaftListener -----------------------------------------------------------

    def on_batch(self, batch: CommittedBatch) -> None:
        """One committed batch, in log order."""
        if self._failed:
            return  # an image that lacks a batch must not be seen, however soon the node stops
        prepared, self._prepared = self._prepared, None
        try:
            if prepared is not None and prepared[0] == batch.base_offset:
                _, load, settled = prepared
            else:
                settled = 0
                load = self._loader.start_batch(batch.base_offset, batch.epoch)
                load.add(batch.values, batch.control)
            delta = load.finish(batch.timestamp_ms, batch.last_offset)
        except FatalError as error:
            self._failed = True
            self._on_fatal(error)
            return
        self._publish(delta)
        for subscriber in self._batch_subscribers:
            subscriber(batch)
        self._bytes_since_snapshot += batch.size_bytes
        self._snapshot_if_due()
        self._settle(load.partitions_changed - settled)

    async def prepare(self, batch: CommittedBatch) -> None:
        """Applies the records of a long batch, unseen until `on_batch`.

        Raises FatalError where one can't be applied.
        """
        load = self._loader.start_batch(batch.base_offset, batch.epoch)
        load.add((), batch.control)
        settled = 0
        for start in range(0, len(batch.values), _SLICE):
            load.add(batch.values[start : start + _SLICE])
            before, settled = settled, load.partitions_changed
            self._settle(settled - before)
            await asyncio.sleep(0)  # others first
        self._prepared = batch.base_offset, load, settled

    async def on_snapshot(self, snapshot: SnapshotView) -> None:
        """A snapshot that replaces all there was before; that stays in sight until it is read.

        Raises FatalError where it can't be taken for the cluster's state.
        """
        load = self._loader.start_snapshot(
            snapshot.end_offset, snapshot.epoch, snapshot.timestamp_ms
        )
        async for values in snapshot.slices:
            for start in range(0, len(values), _SLICE):
                part = values[start : start + _SLICE]
                load.add(part)
                self._settle(len(part))
                await asyncio.sleep(0)  # others first
        delta = load.finish(
            kraft_version=snapshot.kraft_version or None, voters=_voter_keys(snapshot.voters)
        )
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = self._env.clock.now_ms()
        self._publish(delta)

    def on_snapshot_lost(self) -> None:
        """The quorum wants a snapshot that is as new as possible."""
        self._snapshot_wanted = True
        self._snapshot_if_due()

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Another leader, or none."""
        self.leader = leader
        for subscriber in self._leader_subscribers:
            subscriber(leader)

    # -- own affairs --------------------------------------------------------------------------

    def _publish(self, delta: ImageDelta) -> None:
        moved, self.moved = self.moved, asyncio.Event()
        moved.set()
        for subscriber in self._image_subscribers:
            subscriber(delta.image, delta)

    def _settle(self, partitions: int) -> None:
        """The image is large and stands for long. If the collector went over all of it again and
        again, everything would stand still for a second at a million partitions."""
        self._unsettled += partitions
        if self._unsettled >= _SETTLE_PARTITIONS:
            self._unsettled = 0
            self._env.settle_memory()

    def _snapshot_if_due(self) -> None:
        waited_ms = self._env.clock.now_ms() - self._last_snapshot_ms
        due = (
            self._snapshot_wanted
            or self._bytes_since_snapshot >= self._snapshot_bytes
            or 0 < self._snapshot_interval_ms <= waited_ms
        )
        busy = self._snapshot_task is not None and not self._snapshot_task.done()
        if not due or busy or self.store is None or self.in_transaction:
            return
        if self.store.catching_up:
            return  # one of the whole will stand for many of parts, and loading is work enough
        self._snapshot_wanted = False
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = self._env.clock.now_ms()
        self._snapshot_task = asyncio.get_running_loop().create_task(
            self._write_snapshot(self.store, self.image), name="metadata-snapshot"
        )

    async def _write_snapshot(self, store: SnapshotStore, image: MetadataImage) -> None:
        end_offset = image.last_offset + 1
        kept = await store.write_snapshot(
            end_offset, image.last_epoch, image.last_timestamp_ms, slices_of(image)
        )
        if kept:
            self.snapshots_written += 1
            self._log.info("snapshot_written", offset=end_offset)

    async def close(self) -> None:
        """Ends a snapshot that is being written; its file is never taken for a whole one."""
        if self._snapshot_task is not None:
            self._snapshot_task.cancel()
            await asyncio.wait([self._snapshot_task])
