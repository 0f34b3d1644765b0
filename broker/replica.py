"""One partition's replica on this broker: its log, its replication state, and who waits on it.

The core decides, the log holds the bytes, and this carries events from one to the other. All of it
runs on the loop without awaiting, so what a handler sees does not change under it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from broker.cluster_view import is_internal
from broker.log_store import StoredLog
from broker.partition import NO_LEADER, PartitionCore
from broker.partition_events import (
    Appended,
    Assigned,
    Effect,
    Event,
    FollowerFetched,
    HighWatermarkMoved,
    IsrChanged,
    LeaderHighWatermark,
    LogStartMoved,
    ProposeIsr,
    StartFollowing,
    StartLeading,
    StopFollowing,
    Truncated,
)
from broker.topic_settings import TopicSettings
from broker.waits import ParkedFetch, ProduceQueue, UncommittedBytes
from storage.log import AppendInfo, Log
from wire.apis import ErrorCode
from wire.batch import BatchHeader
from world.env import Clock

Propose = Callable[["Replica", ProposeIsr], None]
Follow = Callable[["Replica"], None]


class Replica:
    """See the module's text. `on_propose` sends an ISR proposal, `on_follow` makes the fetchers
    follow whatever `core.leader` is now (nobody where we lead, or nobody does)."""

    __slots__ = (
        "__weakref__",
        "_clock",
        "_on_follow",
        "_on_propose",
        "_uncommitted",
        "consumers",
        "core",
        "failed",
        "followers",
        "index",
        "internal",
        "log",
        "low_watermark_waiters",
        "produces",
        "removed",
        "settings",
        "stored",
        "topic",
        "topic_id",
        "watchers",
    )

    def __init__(
        self,
        topic: str,
        topic_id: UUID,
        index: int,
        stored: StoredLog,
        core: PartitionCore,
        settings: TopicSettings,
        clock: Clock,
        on_propose: Propose,
        on_follow: Follow,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.internal = is_internal(topic)
        self.index = index
        self.stored = stored
        self.log: Log = stored.log
        self.core = core
        self.settings = settings
        # True once the disk refused something: the replica answers KAFKA_STORAGE_ERROR.
        self.failed = False
        # True once the broker has another one of the same name, or none.
        self.removed = False
        self.produces = ProduceQueue()
        # Fetches parked here: consumers see up to the high watermark, followers up to the end.
        self.consumers: dict[ParkedFetch, None] = {}
        self.followers: dict[ParkedFetch, None] = {}
        self.low_watermark_waiters: dict[Callable[[], None], None] = {}
        # Called, in the middle of things, when the high watermark or the role has moved.
        self.watchers: dict[Callable[[], None], None] = {}
        self._uncommitted = UncommittedBytes()
        self._clock = clock
        self._on_propose = on_propose
        self._on_follow = on_follow

    def __repr__(self) -> str:
        return f"<Replica {self.topic}-{self.index} {self.core.role.value}>"

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    # -- told by the image and the controller --------------------------------------------------

    def assigned(self, event: Assigned) -> None:
        """The image's word on this partition."""
        self.tell(event)

    def tell(self, event: Event) -> None:
        """Hands an event to the core and does what it asks for."""
        effects = self.core.handle(event, self._clock.now_ms())
        if effects:
            self._perform(effects)

    def closed(self, error: ErrorCode) -> None:
        """The replica is going away: turns everybody off."""
        self.produces.fail(error)
        self._wake_all()

    # -- the log -------------------------------------------------------------------------------

    def append_as_leader(
        self, batches: Sequence[Any], size: int, headers: Sequence[BatchHeader]
    ) -> AppendInfo:
        """Appends client batches (validated, writable, `size` bytes together, with their headers).

        Raises what the log raises; then nothing was appended.
        """
        core = self.core
        info = self.log.append_as_leader(
            batches, core.leader_epoch, check_producers=True, headers=headers
        )
        if info.last_offset < 0:
            return info
        before = core.high_watermark
        self.tell(Appended(info.last_offset + 1))
        if core.high_watermark <= info.last_offset:
            self._uncommitted.appended(info.last_offset + 1, size)
        elif self.consumers and core.high_watermark > before:
            # All of it was committed at once; the effect above counted it as one byte.
            for parked in list(self.consumers):
                parked.gained(size)
        if self.followers:
            for parked in list(self.followers):
                parked.gained(size)
        return info

    def append_as_follower(self, data: Any) -> None:
        """Appends what the leader sent. Raises what the log raises."""
        info = self.log.append_as_follower(data)
        if info is not None:
            self.tell(Appended(info.last_offset + 1))
            self._uncommitted.appended(info.last_offset + 1, info.size)

    def leader_told(self, high_watermark: int, log_start: int) -> None:
        """The leader's high watermark and log start, from its answer to our fetch."""
        self.tell(LeaderHighWatermark(high_watermark))
        if log_start > self.log.log_start_offset:
            self.advance_log_start(min(log_start, self.core.high_watermark))

    def advance_log_start(self, offset: int) -> None:
        """Records before `offset` are gone (DeleteRecords, retention, the leader's start)."""
        if offset > self.log.log_start_offset:
            self.log.advance_log_start(offset)
        self.log_start_moved()

    def log_start_moved(self) -> None:
        """The log's start may have changed: tells the core."""
        if self.log.log_start_offset != self.core.log_start:
            self.tell(LogStartMoved(self.log.log_start_offset))
            self.check_low_watermark()
            for parked in list(self.followers):
                parked.wake()
            for parked in self.consumers:
                parked.touch()

    def truncate(self, offset: int) -> None:
        """Cuts a follower's log at `offset`; `log.settle()` is to be awaited after it."""
        self.log.truncate_to(offset)
        # An epoch that we led without writing anything is unknown to the others.
        self.log.epochs.truncate_from_end(self.log.end_offset)
        self.tell(Truncated(self.log.end_offset))
        self._uncommitted.clear()
        self._wake_all()

    def restart_at(self, offset: int) -> None:
        """Drops a follower's whole log; it begins anew at `offset`."""
        self.log.truncate_and_restart_at(offset)
        self.tell(Truncated(self.log.end_offset))
        self.tell(LogStartMoved(offset))
        self._uncommitted.clear()
        self._wake_all()

    def last_stable_offset(self) -> int:
        """Up to where a read_committed consumer may read: all transactions before it have ended,
        and their ends are committed."""
        mark, producers = self.core.high_watermark, self.log.producers
        if producers.first_unstable_offset is None:
            return mark
        producers.replicated(mark)
        first_unstable = producers.first_unstable_offset
        return mark if first_unstable is None or first_unstable > mark else first_unstable

    # -- followers -----------------------------------------------------------------------------

    def follower_fetched(
        self, replica_id: int, broker_epoch: int, offset: int, log_start: int
    ) -> None:
        """A follower of ours holds everything before `offset`."""
        self.tell(FollowerFetched(replica_id, broker_epoch, offset, log_start))
        if self.low_watermark_waiters:
            self.check_low_watermark()

    def check_low_watermark(self) -> None:
        """Lets those look again who wait for the low watermark."""
        for look in list(self.low_watermark_waiters):
            look()

    # -- effects -------------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is HighWatermarkMoved:
                self._high_watermark_moved()
            elif isinstance(effect, ProposeIsr):
                self._on_propose(self, effect)
            elif isinstance(effect, StartLeading):
                self._on_follow(self)
                self.log.assign_leader_epoch(effect.leader_epoch, effect.start_offset)
                # Produces of an earlier epoch of ours stay: the log they are in was never cut.
                self._wake_all()
            elif isinstance(effect, StartFollowing | StopFollowing):
                self._role_changed()
                self._on_follow(self)
            elif isinstance(effect, IsrChanged):
                self.check_low_watermark()

    def _high_watermark_moved(self) -> None:
        core = self.core
        if len(self.produces):
            enough = len(core.maximal_isr) >= core.effective_min_isr
            self.produces.committed(
                core.high_watermark,
                ErrorCode.none if enough else ErrorCode.not_enough_replicas_after_append,
            )
        self.log.producers.replicated(core.high_watermark)
        for parked in self.followers:
            parked.touch()
        gained = self._uncommitted.committed(core.high_watermark)
        if self.consumers:
            for parked in list(self.consumers):
                parked.gained(gained)
        for look in self.watchers:
            look()

    def _role_changed(self) -> None:
        self._uncommitted.clear()
        self.produces.fail(ErrorCode.not_leader_or_follower)
        self._wake_all()
        self.check_low_watermark()

    def _wake_all(self) -> None:
        for parked in [*self.consumers, *self.followers]:
            parked.wake()
        for look in self.watchers:
            look()

    @property
    def leader_hint(self) -> tuple[int, int] | None:
        """(leader id, leader epoch) for an answer that says who leads instead (KIP-951)."""
        if self.core.leader == NO_LEADER:
            return None
        return self.core.leader, self.core.leader_epoch
