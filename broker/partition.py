"""The replication state of one partition on one broker: roles, ISR, high watermark.

Pure: `handle(event, now_ms)` answers with effects and touches nothing else. Kafka's protocol is
described in KIP-101 (leader epochs), KIP-497 (AlterPartition), KIP-841 and KIP-903 (who may join an
ISR) and KIP-966 (the high watermark stands still under min.insync.replicas).

                  Assigned(leader = self)
    OUTSIDE  ─────────────────────────────▶  LEADER ─┐ a greater leader epoch: leads anew
       │                                      ▲  │   ◀┘
       │ Assigned(leader ≠ self)              │  │ Assigned(leader ≠ self)
       └──────────────────────────▶  FOLLOWER ┘◀─┘

One AlterPartition is in flight at a time. Until it is answered both outcomes are possible, so a
replica being added counts for the high watermark already, and one being removed counts still.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from broker.partition_events import (
    UNKNOWN_OFFSET,
    AlterPartitionAnswered,
    Appended,
    Assigned,
    Effect,
    EligibleBrokers,
    Event,
    FollowerFetched,
    HighWatermarkMoved,
    IsrChanged,
    LeaderHighWatermark,
    LogStartMoved,
    MinIsr,
    ProposeIsr,
    StartFollowing,
    StartLeading,
    StopFollowing,
    Tick,
    Truncated,
)
from wire.apis import ErrorCode

NEVER_MS = -(1 << 62)
NO_LEADER = -1

# After these the controller's state is known to differ from ours: only its metadata can tell how.
_WAIT_FOR_METADATA = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.invalid_update_version,
        ErrorCode.invalid_request,
        ErrorCode.new_leader_elected,
    }
)
_REFUSED = frozenset({ErrorCode.ineligible_replica, ErrorCode.operation_not_attempted})


class Role(Enum):
    """What this broker is to the partition."""

    OUTSIDE = "outside"
    LEADER = "leader"
    FOLLOWER = "follower"


class RemoteReplica:
    """What the leader knows of one other replica."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "fetch_ms",
        "leader_end_at_fetch",
        "log_end",
        "log_start",
    )

    def __init__(self, caught_up_ms: int) -> None:
        self.log_end = UNKNOWN_OFFSET
        self.log_start = UNKNOWN_OFFSET
        self.broker_epoch: int | None = None
        # The last moment at which it held all that the leader then had.
        self.caught_up_ms = caught_up_ms
        # The previous fetch: when, and where the leader's log ended then. A fetch from at least
        # that offset proves that the replica had caught up at that moment.
        self.fetch_ms = NEVER_MS
        self.leader_end_at_fetch = UNKNOWN_OFFSET

    def fetched(self, offset: int, leader_end: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif self.leader_end_at_fetch != UNKNOWN_OFFSET and offset >= self.leader_end_at_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.fetch_ms)
        self.log_end = offset
        self.leader_end_at_fetch = leader_end
        self.fetch_ms = now_ms

    def put_out(self) -> None:
        """The controller took it out of the ISR, though it had caught up a moment ago: its disk
        failed, or its process. Only what it fetches from now on says that it is in sync."""
        self.caught_up_ms = self.fetch_ms = NEVER_MS
        self.leader_end_at_fetch = UNKNOWN_OFFSET

    def in_sync(self, leader_end: int, now_ms: int, lag_max_ms: int) -> bool:
        return self.log_end == leader_end or now_ms - self.caught_up_ms <= lag_max_ms


class Pending:
    """An AlterPartition in flight: `proposed` is what we asked for."""

    __slots__ = ("proposed", "token")

    def __init__(self, token: int, proposed: tuple[int, ...]) -> None:
        self.token = token
        self.proposed = proposed


class PartitionCore:
    """Replication state of one partition; see the module's text.

    `log_end` and `high_watermark` are where our own log ends and what of it is committed;
    `lag_max_ms` is replica.lag.time.max.ms.
    """

    def __init__(
        self,
        broker_id: int,
        *,
        lag_max_ms: int,
        min_isr: int = 1,
        log_start: int = 0,
        log_end: int = 0,
        high_watermark: int = 0,
    ) -> None:
        self.broker_id = broker_id
        self.lag_max_ms = lag_max_ms
        self.min_isr = min_isr
        self.log_start = log_start
        self.log_end = log_end
        # A checkpointed high watermark may lie outside what recovery left of the log.
        self.high_watermark = max(log_start, min(high_watermark, log_end))
        self.role = Role.OUTSIDE
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.epoch_start = 0
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.pending: Pending | None = None
        self.remotes: dict[int, RemoteReplica] = {}
        self.eligible: Mapping[int, int] = {}
        self._tokens = 0

    # -- the door ----------------------------------------------------------------------------

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Takes one event in; answers with what must now be done, in order."""
        return _HANDLERS[type(event)](self, event, now_ms)

    # -- what others may ask -----------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The committed ISR and whoever a proposal in flight adds to it."""
        if self.pending is None:
            return self.isr
        return self.isr + tuple(r for r in self.pending.proposed if r not in self.isr)

    @property
    def effective_min_isr(self) -> int:
        return min(self.min_isr, len(self.replicas)) if self.replicas else self.min_isr

    @property
    def under_replicated(self) -> bool:
        return self.role is Role.LEADER and len(self.isr) < len(self.replicas)

    @property
    def under_min_isr(self) -> bool:
        return len(self.isr) < self.effective_min_isr

    @property
    def has_new_epoch_hw(self) -> bool:
        """False while a new leader does not know yet how far earlier leaders had committed."""
        return self.high_watermark >= self.epoch_start

    def check_epoch(self, current_leader_epoch: int, *, leader_only: bool) -> ErrorCode:
        """What a request that names the leader epoch it believes in (-1: none) must be told."""
        if current_leader_epoch >= 0:
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.fenced_leader_epoch
            if current_leader_epoch > self.leader_epoch:
                return ErrorCode.unknown_leader_epoch
        if leader_only and self.role is not Role.LEADER:
            return ErrorCode.not_leader_or_follower
        return ErrorCode.none

    def check_follower(
        self, replica_id: int, broker_epoch: int, current_leader_epoch: int
    ) -> ErrorCode:
        """Whether `replica_id` may fetch from us as a replica (after `check_epoch`)."""
        remote = self.remotes.get(replica_id)
        if remote is None:
            if current_leader_epoch >= 0:
                return ErrorCode.unknown_leader_epoch
            return ErrorCode.not_leader_or_follower
        if self._stale(replica_id, remote, broker_epoch):
            return ErrorCode.not_leader_or_follower
        return ErrorCode.none

    def _stale(self, replica: int, remote: RemoteReplica, broker_epoch: int) -> bool:
        """Whether a fetch with this epoch (-1: it gave none) is of a process that has a successor:
        one has fetched already, or has registered."""
        fetched = -1 if remote.broker_epoch is None else remote.broker_epoch
        return -1 < broker_epoch < max(fetched, self.eligible.get(replica, -1))

    def low_watermark(self) -> int:
        """The smallest log start among us and the replicas that are alive."""
        starts = [
            remote.log_start for replica, remote in self.remotes.items() if replica in self.eligible
        ]
        return min([self.log_start, *starts])

    def check_invariants(self) -> None:
        """Raises AssertionError if this state cannot be."""
        assert self.high_watermark <= self.log_end, "the high watermark is above the log"
        assert self.log_start <= self.log_end, "the log begins behind its end"
        assert len(dict.fromkeys(self.isr)) == len(self.isr), "a replica is twice in the ISR"
        assert all(r in self.replicas for r in self.isr), "the ISR holds a stranger"
        if self.role is Role.LEADER:
            assert self.leader == self.broker_id
            assert self.broker_id in self.isr, "the leader is outside its ISR"
            assert list(self.remotes) == [r for r in self.replicas if r != self.broker_id]
            assert self.epoch_start <= self.log_end
            assert all(r.log_end <= self.log_end for r in self.remotes.values())
        else:
            assert self.pending is None, "a follower proposes an ISR"
            assert not self.remotes
        if self.pending is not None:
            assert self.broker_id in self.pending.proposed
            assert all(r in self.replicas for r in self.pending.proposed)

    # -- roles -------------------------------------------------------------------------------

    def _assigned(self, event: Assigned, now_ms: int) -> list[Effect]:
        if event.partition_epoch < self.partition_epoch or event.leader_epoch < self.leader_epoch:
            return []
        new_epoch = event.leader_epoch > self.leader_epoch
        if not new_epoch and event.partition_epoch == self.partition_epoch:
            return []
        self.partition_epoch = event.partition_epoch
        self.leader_epoch = event.leader_epoch
        self.leader = event.leader
        self.replicas = event.replicas
        if event.leader == self.broker_id:
            return self._lead(event.isr, new_epoch, now_ms)
        return self._follow(new_epoch)

    def _lead(self, isr: tuple[int, ...], new_epoch: bool, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        shrunk = len(isr) < len(self.isr)
        changed = isr != self.isr
        for replica in self.isr:
            if replica not in isr and replica in self.remotes:
                self.remotes[replica].put_out()
        self.isr = isr
        self.pending = None
        if new_epoch or self.role is not Role.LEADER:
            self.role = Role.LEADER
            self.epoch_start = self.log_end
            self.remotes = {}
            effects.append(StartLeading(self.leader_epoch, self.epoch_start))
        known = self.remotes
        self.remotes = {}
        for replica in self.replicas:
            if replica != self.broker_id:
                remote = known.get(replica)
                if remote is None:
                    remote = RemoteReplica(now_ms if replica in isr else NEVER_MS)
                self.remotes[replica] = remote
        if changed:
            effects.append(IsrChanged(isr, shrunk))
        self._raise_high_watermark(now_ms, effects)
        return effects

    def _follow(self, new_epoch: bool) -> list[Effect]:
        was_leader = self.role is Role.LEADER
        self.role = Role.FOLLOWER
        self.isr = ()
        self.pending = None
        self.remotes = {}
        if not (new_epoch or was_leader):
            return []
        if self.leader == NO_LEADER:
            return [StopFollowing(self.leader_epoch)]
        return [StartFollowing(self.leader, self.leader_epoch)]

    # -- our own log -------------------------------------------------------------------------

    def _appended(self, event: Appended, now_ms: int) -> list[Effect]:
        assert event.log_end >= self.log_end, "an append moved the log end back"
        self.log_end = event.log_end
        effects: list[Effect] = []
        if self.role is Role.LEADER:
            self._raise_high_watermark(now_ms, effects)
        return effects

    def _truncated(self, event: Truncated, now_ms: int) -> list[Effect]:
        assert self.role is not Role.LEADER, "a leader never truncates"
        self.log_end = event.log_end
        self.log_start = min(self.log_start, event.log_end)
        # Only an unclean election makes a follower cut what was committed.
        self.high_watermark = min(self.high_watermark, event.log_end)
        return []

    def _log_start_moved(self, event: LogStartMoved, now_ms: int) -> list[Effect]:
        self.log_start = event.log_start
        self.log_end = max(self.log_end, event.log_start)
        if self.high_watermark < event.log_start:
            self.high_watermark = event.log_start
            return [HighWatermarkMoved(event.log_start)]
        return []

    def _leader_high_watermark(self, event: LeaderHighWatermark, now_ms: int) -> list[Effect]:
        if self.role is not Role.FOLLOWER:
            return []
        candidate = min(event.high_watermark, self.log_end)
        if candidate <= self.high_watermark:
            return []
        self.high_watermark = candidate
        return [HighWatermarkMoved(candidate)]

    # -- followers ---------------------------------------------------------------------------

    def _follower_fetched(self, event: FollowerFetched, now_ms: int) -> list[Effect]:
        remote = self.remotes.get(event.replica_id)
        if remote is None or event.fetch_offset > self.log_end:
            return []
        if self._stale(event.replica_id, remote, event.broker_epoch):
            return []
        known = (remote.log_end, remote.broker_epoch)
        remote.broker_epoch = event.broker_epoch
        remote.log_start = event.log_start
        remote.fetched(event.fetch_offset, self.log_end, now_ms)
        effects: list[Effect] = []
        if self._may_join(event.replica_id, remote):
            self._propose((*self.isr, event.replica_id), effects)
        if effects or known != (remote.log_end, remote.broker_epoch):
            self._raise_high_watermark(now_ms, effects)
        return effects

    def _may_join(self, replica: int, remote: RemoteReplica) -> bool:
        return (
            self.pending is None
            and replica not in self.isr
            and remote.log_end >= self.high_watermark
            and remote.log_end >= self.epoch_start
            and self._eligible(replica, remote)
        )

    def _eligible(self, replica: int, remote: RemoteReplica) -> bool:
        registered = self.eligible.get(replica)
        if registered is None or remote.broker_epoch is None:
            return False
        return remote.broker_epoch in (-1, registered)

    def _eligible_brokers(self, event: EligibleBrokers, now_ms: int) -> list[Effect]:
        self.eligible = event.epochs
        effects: list[Effect] = []
        if self.role is Role.LEADER:
            self._raise_high_watermark(now_ms, effects)
        return effects

    def _min_isr(self, event: MinIsr, now_ms: int) -> list[Effect]:
        self.min_isr = event.replicas
        effects: list[Effect] = []
        if self.role is Role.LEADER:
            self._raise_high_watermark(now_ms, effects)
        return effects

    def _raise_high_watermark(self, now_ms: int, effects: list[Effect]) -> None:
        if self.under_min_isr:
            return
        candidate = self.log_end
        if self.remotes:
            maximal = self.maximal_isr
            for replica, remote in self.remotes.items():
                if remote.log_end < candidate and (
                    replica in maximal
                    # It is about to join: were the mark above its end, it could not.
                    or (
                        remote.in_sync(self.log_end, now_ms, self.lag_max_ms)
                        and self._eligible(replica, remote)
                    )
                ):
                    candidate = remote.log_end
        if candidate > self.high_watermark:
            self.high_watermark = candidate
            effects.append(HighWatermarkMoved(candidate))

    # -- the ISR -----------------------------------------------------------------------------

    def _tick(self, event: Tick, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        if self.role is not Role.LEADER:
            return effects
        if self.pending is None:
            kept = tuple(
                r
                for r in self.isr
                if r == self.broker_id
                or self.remotes[r].in_sync(self.log_end, now_ms, self.lag_max_ms)
            )
            if kept != self.isr:
                self._propose(kept, effects)
        # A replica that only held the mark back by being nearly in sync may have fallen behind.
        self._raise_high_watermark(now_ms, effects)
        return effects

    def _propose(self, isr: tuple[int, ...], effects: list[Effect]) -> None:
        self._tokens += 1
        self.pending = Pending(self._tokens, isr)
        effects.append(self._proposal(self.pending))

    def _proposal(self, pending: Pending) -> ProposeIsr:
        members = tuple((r, self._known_epoch(r)) for r in pending.proposed)
        return ProposeIsr(pending.token, members, self.leader_epoch, self.partition_epoch)

    def _known_epoch(self, replica: int) -> int:
        if replica == self.broker_id:
            return self.eligible.get(replica, -1)
        epoch = self.remotes[replica].broker_epoch
        return -1 if epoch is None else epoch

    def _alter_partition_answered(self, event: AlterPartitionAnswered, now_ms: int) -> list[Effect]:
        pending = self.pending
        if pending is None or pending.token != event.token:
            return []
        effects: list[Effect] = []
        if event.error in _WAIT_FOR_METADATA:
            return effects
        if event.error in _REFUSED:
            self.pending = None
            self._raise_high_watermark(now_ms, effects)
            return effects
        if event.error is not ErrorCode.none:
            effects.append(self._proposal(pending))
            return effects
        if event.leader_epoch != self.leader_epoch or event.partition_epoch < self.partition_epoch:
            return effects
        if any(r not in self.replicas for r in event.isr):
            return effects  # a reassignment ended meanwhile: its metadata is on the way
        if any(r not in event.isr for r in self.isr):
            # Who left may be eligible to lead, by a min.insync.replicas that we don't know yet: the
            # high watermark waits for the metadata that this was decided on.
            return effects
        if event.isr != self.isr:
            effects.append(IsrChanged(event.isr, len(event.isr) < len(self.isr)))
        self.isr = event.isr
        self.partition_epoch = event.partition_epoch
        self.pending = None
        self._raise_high_watermark(now_ms, effects)
        return effects


_HANDLERS: dict[type, Callable[[PartitionCore, Any, int], list[Effect]]] = {
    Assigned: PartitionCore._assigned,
    Appended: PartitionCore._appended,
    Truncated: PartitionCore._truncated,
    LogStartMoved: PartitionCore._log_start_moved,
    FollowerFetched: PartitionCore._follower_fetched,
    LeaderHighWatermark: PartitionCore._leader_high_watermark,
    EligibleBrokers: PartitionCore._eligible_brokers,
    MinIsr: PartitionCore._min_isr,
    AlterPartitionAnswered: PartitionCore._alter_partition_answered,
    Tick: PartitionCore._tick,
}
