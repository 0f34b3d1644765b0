"""What a partition's replication state is told, and what it asks for in return.

Everything here is an immutable value. Offsets are exclusive ends unless said otherwise, times are
milliseconds of the monotonic clock, epochs are Kafka's leader, partition and broker epochs.
"""

from collections.abc import Mapping
from typing import NamedTuple

from wire.apis import ErrorCode

UNKNOWN_OFFSET = -1
"""The log end offset of a replica that has not fetched since this leader's epoch began."""


class Assigned(NamedTuple):
    """The metadata image says this about the partition."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    recovering: bool
    """The leader came from an unclean election and has not said yet that it recovered."""


class Appended(NamedTuple):
    """Our own log now ends at `log_end` (as leader or as follower)."""

    log_end: int


class Truncated(NamedTuple):
    """Our own log was cut: it ends at `log_end`."""

    log_end: int


class LogStartMoved(NamedTuple):
    """Our own log now begins at `log_start`."""

    log_start: int


class FollowerFetched(NamedTuple):
    """A replica asked for `fetch_offset`, which says that it holds all before it."""

    replica_id: int
    broker_epoch: int
    fetch_offset: int
    log_start: int


class LeaderHighWatermark(NamedTuple):
    """The leader we follow told its high watermark."""

    high_watermark: int


class EligibleBrokers(NamedTuple):
    """Brokers that may be in an ISR (registered, unfenced, not shutting down) and their epochs."""

    epochs: Mapping[int, int]


class MinIsr(NamedTuple):
    """The topic's min.insync.replicas."""

    replicas: int


class AlterPartitionAnswered(NamedTuple):
    """The controller's word on proposal `token`; the other fields count only without an error."""

    token: int
    error: ErrorCode
    isr: tuple[int, ...] = ()
    leader_epoch: int = -1
    partition_epoch: int = -1


class Tick(NamedTuple):
    """Time to look for replicas that lag."""


Event = (
    Assigned
    | Appended
    | Truncated
    | LogStartMoved
    | FollowerFetched
    | LeaderHighWatermark
    | EligibleBrokers
    | MinIsr
    | AlterPartitionAnswered
    | Tick
)


class StartLeading(NamedTuple):
    """We lead from now on: note (leader_epoch, start_offset) in the log's epoch cache."""

    leader_epoch: int
    start_offset: int


class StartFollowing(NamedTuple):
    """Fetch from `leader`; whoever waits on us as the leader must be turned away."""

    leader: int
    leader_epoch: int


class StopFollowing(NamedTuple):
    """The partition has no leader: fetch from nobody."""

    leader_epoch: int


class HighWatermarkMoved(NamedTuple):
    """The high watermark rose to this offset."""

    high_watermark: int


class ProposeIsr(NamedTuple):
    """Ask the controller (AlterPartition) for this ISR."""

    token: int
    isr: tuple[tuple[int, int], ...]
    """(broker id, broker epoch or -1 where unknown), in ISR order."""
    leader_epoch: int
    partition_epoch: int


class IsrChanged(NamedTuple):
    """The committed ISR is now this."""

    isr: tuple[int, ...]
    shrunk: bool


Effect = (
    StartLeading | StartFollowing | StopFollowing | HighWatermarkMoved | ProposeIsr | IsrChanged
)
