"""The arithmetic of majorities, apart from everything that uses it.

Sources: Raft paper §5.2-5.4; KIP-595 (high watermark, votes). Each function has a naive twin
in tests/unit/raft.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

MAX_EPOCH = 2**31 - 1  # Kafka's epochs are int32
_HIGH_EPOCH = 2**30


class Outcome(Enum):
    """What an election's votes say so far."""

    PENDING = "pending"
    WON = "won"
    LOST = "lost"


def outcome(voter_ids: Iterable[int], votes: Mapping[int, bool]) -> Outcome:
    """Won with a majority of grants, lost when a majority can't be reached any more.

    `votes` may name nodes that aren't voters (the voter set may have moved on): not counted.
    """
    size = granted = refused = 0
    for voter_id in voter_ids:
        size += 1
        vote = votes.get(voter_id)
        if vote is not None:
            granted += vote
            refused += not vote
    majority = size // 2 + 1
    if granted >= majority:
        return Outcome.WON
    if size - refused < majority:
        return Outcome.LOST
    return Outcome.PENDING


def is_leap(own_epoch: int, epoch: int) -> bool:
    """Whether an epoch can't have been reached by elections since `own_epoch`, and lies so high
    that following it would leave too few to elect leaders with.

    No quorum gets to the upper half of the epochs in years, but anybody's one Vote request may
    name an epoch there. Below it a node may be any number of epochs behind; in it one request
    raises the epoch by one, and costs a sync of the disk.
    """
    return epoch > _HIGH_EPOCH and epoch > own_epoch + 1


def replicated_offset(end_offsets: Iterable[int]) -> int:
    """The largest end offset that a majority has reached, given every voter's (-1: unknown)."""
    ordered = sorted(end_offsets, reverse=True)
    return ordered[len(ordered) // 2]


def backoff_ms(position: int, backoff_max_ms: int, voter_count: int) -> int:
    """How long the `position`-th preferred successor waits before it stands (KIP-595).

    The first stands at once; each next one waits twice as long as the one before, so that the
    last of them waits at most `backoff_max_ms`. Position -1 (not on the list) waits longest.
    """
    if position == 0:
        return 0
    if position < 0 or voter_count < 2:
        return backoff_max_ms
    base = max(1, backoff_max_ms >> (voter_count - 1))
    return min(backoff_max_ms, base << (position - 1))
