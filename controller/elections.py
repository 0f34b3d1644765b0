"""Who leads a partition, who is eligible to, and the one record that says what changes.

Pure functions over a partition's registration, after Kafka's PartitionChangeBuilder and KIP-966.
With eligible leader replicas kept, a replica that leaves an ISR of fewer than min.insync.replicas
members is remembered: the high watermark stood still from then on, so it has every record that was
ever committed, until it says or shows that it lost some. The ISR may be empty then. Without them
the last member of an ISR never leaves it.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What decides a partition's fate beside its own state.

    `min_isr` is the topic's min.insync.replicas in force; `keep_elr` says whether eligible leader
    replicas are kept (eligible.leader.replicas.version 1).
    """

    election: Election
    metadata_version: int
    min_isr: int = 1
    keep_elr: bool = False


@dataclass(frozen=True, slots=True)
class Chosen:
    leader: int
    unclean: bool = False


def choose_leader(
    replicas: Sequence[int],
    isr: Sequence[int],
    elr: Sequence[int],
    current: int,
    acceptable: Acceptable,
    election: Election,
    last_known: int = NO_LEADER,
) -> Chosen:
    """The leader to have, NO_LEADER if none may lead.

    `acceptable` says whether a broker is active and its copy's directory online; `isr` and `elr`
    are what the partition is about to have. `last_known` is the leader to take, though it may miss
    records, where neither has a member any more; NO_LEADER if there is none to fall back on.
    """
    candidates = isr or elr

    def may_lead(broker: int) -> bool:
        return broker in candidates and acceptable(broker)

    if election is Election.PREFERRED and may_lead(replicas[0]):
        return Chosen(replicas[0])
    if may_lead(current):
        return Chosen(current)
    for broker in replicas:
        if may_lead(broker):
            return Chosen(broker)
    if not candidates and last_known != NO_LEADER and acceptable(last_known):
        return Chosen(last_known, unclean=True)
    if election is Election.UNCLEAN:
        for broker in replicas:
            if acceptable(broker):
                return Chosen(broker, unclean=True)
    return Chosen(NO_LEADER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a partition should become; None leaves that part as it is.

    `not_eligible` are replicas that may have lost records: they are not (or no longer) eligible.
    """

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    recovery_state: int | None = None
    directories: tuple[UUID, ...] | None = None
    not_eligible: tuple[int, ...] = ()


def change_partition(
    topic_id: UUID,
    index: int,
    partition: PartitionRegistration,
    wanted: Wanted,
    acceptable: Acceptable,
    terms: Terms,
) -> PartitionChangeRecord | None:
    """The record that brings the partition to `wanted` with the right leader, None for no change.

    A leader that is named again although it stays is how a new leader epoch is asked for.
    """
    target = _completed(partition, wanted)
    elr = _eligible(partition, target, wanted.not_eligible, terms)
    chosen = choose_leader(
        target.replicas,
        target.isr,
        elr,
        partition.leader,
        acceptable,
        terms.election,
        _last_known_leader(partition, terms),
    )
    isr, recovery_state = target.isr, target.recovery_state
    if chosen.unclean:
        isr, elr = (chosen.leader,), ()
        recovery_state = RECOVERY_RECOVERING
    elif chosen.leader != NO_LEADER and not isr:
        isr, elr = (chosen.leader,), tuple(b for b in elr if b != chosen.leader)
    elif not isr and not terms.keep_elr:
        isr = partition.isr  # its last member stays
    leader = NO_LEADER_CHANGE if chosen.leader == partition.leader else chosen.leader
    if leader == NO_LEADER_CHANGE and _needs_new_epoch(partition, target, isr, terms):
        leader = partition.leader
    change = PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_id,
        isr=_changed(isr, partition.isr),
        leader=leader,
        replicas=_changed(target.replicas, partition.replicas),
        adding_replicas=_changed(target.adding, partition.adding),
        removing_replicas=_changed(target.removing, partition.removing),
        leader_recovery_state=RECOVERY_UNCHANGED
        if recovery_state == partition.leader_recovery_state
        else recovery_state,
        directories=_changed(target.directories, partition.directories),
        eligible_leader_replicas=_changed(elr, partition.elr),
        last_known_elr=_changed(
            _last_known(partition, isr, chosen.leader, terms), partition.last_known_elr
        ),
    )
    return change if _says_anything(change) else None


def _says_anything(change: PartitionChangeRecord) -> bool:
    parts = (
        change.isr,
        change.replicas,
        change.adding_replicas,
        change.removing_replicas,
        change.directories,
        change.eligible_leader_replicas,
        change.last_known_elr,
    )
    return (
        change.leader != NO_LEADER_CHANGE
        or change.leader_recovery_state != RECOVERY_UNCHANGED
        or any(part is not None for part in parts)
    )


def _eligible(
    partition: PartitionRegistration,
    target: _Target,
    not_eligible: Sequence[int],
    terms: Terms,
) -> tuple[int, ...]:
    """The eligible leader replicas beside the target ISR, by id."""
    if not terms.keep_elr:
        # What was kept before the feature was turned off holds as long as nobody leads: the high
        # watermark can't have moved since.
        return () if partition.isr else partition.elr
    if len(target.isr) >= min(terms.min_isr, len(target.replicas)):
        return ()
    return tuple(
        broker
        for broker in sorted(dict.fromkeys(partition.elr + partition.isr))
        if broker in target.replicas and broker not in target.isr and broker not in not_eligible
    )


def _last_known_leader(partition: PartitionRegistration, terms: Terms) -> int:
    """Whom to fall back on once nobody is eligible. More than one is not ours to choose from."""
    if not terms.keep_elr or len(partition.last_known_elr) != 1:
        return NO_LEADER
    return partition.last_known_elr[0]


def _last_known(
    partition: PartitionRegistration, isr: tuple[int, ...], leader: int, terms: Terms
) -> tuple[int, ...]:
    """The last leader, as long as there is none: as in Kafka the LastKnownElr holds just that.

    Where several brokers leave at once the leader may be gone before the ISR is empty. Kafka takes
    one after the other, so that whoever is in sync last was the leader once: it counts as that.
    """
    if not terms.keep_elr:
        return partition.last_known_elr
    if leader != NO_LEADER:
        return ()
    if not isr and partition.leader != NO_LEADER:
        return (partition.leader,)
    if not isr and partition.isr:
        return partition.isr[-1:]
    return partition.last_known_elr


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
    partition: PartitionRegistration, target: _Target, isr: tuple[int, ...], terms: Terms
) -> bool:
    if any(broker not in target.replicas for broker in partition.replicas):
        return True
    shrinks = any(broker not in isr for broker in partition.isr)
    return shrinks and terms.metadata_version < NO_EPOCH_BUMP_ON_ISR_SHRINK


def _changed(new: _T, old: _T) -> _T | None:
    return None if new == old else new
