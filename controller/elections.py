"""Who leads a partition, and the one record that says what changes (as PartitionChangeBuilder).

Pure functions over a partition's registration. Eligible leader replicas (KIP-966) are not kept
yet, so the last member of an ISR never leaves it: the partition has no leader until it is back.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from metadata.features import NO_EPOCH_BUMP_ON_ISR_SHRINK
from metadata.image import PartitionRegistration
from metadata.records import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERY_RECOVERING,
    RECOVERY_UNCHANGED,
    PartitionChangeRecord,
)
from wire.uuids import UNASSIGNED_DIR

Acceptable = Callable[[int], bool]
_T = TypeVar("_T")


class Election(enum.Enum):
    """PREFERRED moves leadership to the first replica if it may lead; ONLINE keeps a leader that
    may go on; UNCLEAN does as ONLINE and takes any live replica rather than none."""

    PREFERRED = 0
    UNCLEAN = 1
    ONLINE = 2


@dataclass(frozen=True, slots=True)
class Chosen:
    leader: int
    unclean: bool = False


def choose_leader(
    replicas: Sequence[int],
    isr: Sequence[int],
    current: int,
    acceptable: Acceptable,
    election: Election,
) -> Chosen:
    """The leader to have, NO_LEADER if none may lead.

    `acceptable` says whether a broker is active and its copy's directory online; `isr` is the
    ISR that the partition is about to have.
    """

    def may_lead(broker: int) -> bool:
        return broker in isr and acceptable(broker)

    if election is Election.PREFERRED and may_lead(replicas[0]):
        return Chosen(replicas[0])
    if may_lead(current):
        return Chosen(current)
    for broker in replicas:
        if may_lead(broker):
            return Chosen(broker)
    if election is Election.UNCLEAN:
        for broker in replicas:
            if acceptable(broker):
                return Chosen(broker, unclean=True)
    return Chosen(NO_LEADER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a partition should become; None leaves that part as it is."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    recovery_state: int | None = None
    directories: tuple[UUID, ...] | None = None


def change_partition(
    topic_id: UUID,
    index: int,
    partition: PartitionRegistration,
    wanted: Wanted,
    acceptable: Acceptable,
    election: Election,
    metadata_version: int,
) -> PartitionChangeRecord | None:
    """The record that brings the partition to `wanted` with the right leader, None for no change.

    A leader that is named again although it stays is how a new leader epoch is asked for.
    """
    target = _completed(partition, wanted)
    chosen = choose_leader(target.replicas, target.isr, partition.leader, acceptable, election)
    leader = NO_LEADER_CHANGE if chosen.leader == partition.leader else chosen.leader
    isr: tuple[int, ...] | None = None
    recovery_state = target.recovery_state
    if chosen.unclean:
        isr = (chosen.leader,)
        recovery_state = RECOVERY_RECOVERING
    elif target.isr and target.isr != partition.isr:
        isr = target.isr
    if leader == NO_LEADER_CHANGE and _needs_new_epoch(partition, target, metadata_version):
        leader = partition.leader
    replicas = _changed(target.replicas, partition.replicas)
    adding = _changed(target.adding, partition.adding)
    removing = _changed(target.removing, partition.removing)
    directories = _changed(target.directories, partition.directories)
    isr = None if isr is None else _changed(isr, partition.isr)
    if recovery_state == partition.leader_recovery_state:
        recovery_state = RECOVERY_UNCHANGED
    if (
        leader == NO_LEADER_CHANGE
        and recovery_state == RECOVERY_UNCHANGED
        and all(part is None for part in (isr, replicas, adding, removing, directories))
    ):
        return None
    return PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_id,
        isr=isr,
        leader=leader,
        replicas=replicas,
        adding_replicas=adding,
        removing_replicas=removing,
        leader_recovery_state=recovery_state,
        directories=directories,
    )


@dataclass(frozen=True, slots=True)
class _Target:
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    recovery_state: int
    directories: tuple[UUID, ...]


def _completed(partition: PartitionRegistration, wanted: Wanted) -> _Target:
    """`wanted` over what is, with a reassignment ended once its new replicas are in the ISR."""
    isr = partition.isr if wanted.isr is None else wanted.isr
    replicas = partition.replicas if wanted.replicas is None else wanted.replicas
    adding = partition.adding if wanted.adding is None else wanted.adding
    removing = partition.removing if wanted.removing is None else wanted.removing
    if adding or removing:
        kept = tuple(b for b in replicas if b not in removing)
        kept_isr = tuple(b for b in isr if b not in removing)
        if kept and kept_isr and all(b in kept_isr for b in kept):
            isr, replicas, adding, removing = kept_isr, kept, (), ()
    state = wanted.recovery_state
    if state is None:
        state = partition.leader_recovery_state
    directories = wanted.directories
    if directories is None:
        unmoved = replicas == partition.replicas
        directories = partition.directories if unmoved else _directories_for(partition, replicas)
    return _Target(isr, replicas, adding, removing, state, directories)


def _directories_for(
    partition: PartitionRegistration, replicas: tuple[int, ...]
) -> tuple[UUID, ...]:
    if not partition.directories:
        return ()
    return tuple(partition.directory_of(broker) or UNASSIGNED_DIR for broker in replicas)


def _needs_new_epoch(
    partition: PartitionRegistration, target: _Target, metadata_version: int
) -> bool:
    if target.replicas != partition.replicas and any(
        broker not in target.replicas for broker in partition.replicas
    ):
        return True
    shrinks = bool(target.isr) and any(broker not in target.isr for broker in partition.isr)
    return shrinks and metadata_version < NO_EPOCH_BUMP_ON_ISR_SHRINK


def _changed(new: _T, old: _T) -> _T | None:
    return None if new == old else new
