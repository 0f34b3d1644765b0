"""How a member gets from what it owns to its target (KIP-848).

                 nothing to give up, all of the target free
              ┌────────────────────────────────────────────────┐
              │                                                ▼
    target ──▶ UNREVOKED ── it has given up ──▶ UNRELEASED ──▶ STABLE at the target's epoch
    changes    keeps its epoch; what it is      is at the target's epoch;
               to give up stays its own         waits for what others have

A member gives up first, and only then moves to the target's epoch. A partition is handed out when
nobody owns it, and one that is being given up is owned, so no partition ever has two owners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from broker.groups.consumer.assignors import Partitions
from broker.groups.consumer.member import NOTHING, Member, MemberState, Owned
from broker.groups.events import TopicPartitions

_NONE: Final[Mapping[int, int]] = {}
OwnedByClient = tuple[TopicPartitions, ...] | None
"""What a member says it owns; None: it doesn't say."""


class Target(NamedTuple):
    """Where a member is to get: what it is to own at `epoch`, restricted to the topics it is
    subscribed to now (`topics`, ids)."""

    epoch: int
    partitions: Partitions
    topics: frozenset[UUID]


class UnknownState(Exception):
    """The member is in a state of a newer broker's, and still owns something."""


def reconcile(
    member: Member,
    target: Target,
    owner: Callable[[UUID, int], str | None],
    said: OwnedByClient,
    subscription_changed: bool,
) -> Member:
    """The member after it said what it owns; the same object if that changes nothing.

    `owner` tells the id of the member that a partition has. A changed subscription makes a member
    give up topics at once, whether there is a new target or not.
    """
    state = member.state
    if state is MemberState.UNKNOWN:
        if said is None or said:
            raise UnknownState
        return _settled(member, target, owner, said)
    waiting = state is MemberState.UNREVOKED and _still_has(said, member.revoking)
    if waiting or (state is MemberState.STABLE and member.epoch == target.epoch):
        return _unsubscribed(member, target.topics, said) if subscription_changed else member
    after = _settled(member, target, owner, said)
    return member if after == member else after


def _still_has(said: OwnedByClient, owned: Owned) -> bool:
    """Whether the member may have any of these partitions still."""
    if said is None:
        return True
    return any(p in owned.get(topic_id, _NONE) for topic_id, those in said for p in those)


def _unsubscribed(member: Member, topics: frozenset[UUID], said: OwnedByClient) -> Member:
    """Gives up the topics that the member does not subscribe to any more."""
    gone = {t: those for t, those in member.assigned.items() if t not in topics}
    if not gone:
        return member
    kept = {t: those for t, those in member.assigned.items() if t in topics}
    revoking = {**member.revoking}
    for topic_id, partitions in gone.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **partitions}
    if _still_has(said, revoking):
        unrevoked = member.but(state=MemberState.UNREVOKED, assigned=kept, revoking=revoking)
        return unrevoked.at(member.epoch)
    return member.but(assigned=kept).at(member.epoch)


def _settled(
    member: Member, target: Target, owner: Callable[[UUID, int], str | None], said: OwnedByClient
) -> Member:
    """Gives up what the target doesn't have; if nothing is left to be given up, takes what the
    target has and nobody else."""
    kept: dict[UUID, Mapping[int, int]] = {}
    revoking: dict[UUID, Mapping[int, int]] = {}
    for topic_id, owned in member.assigned.items():
        wanted = target.partitions.get(topic_id, ()) if topic_id in target.topics else ()
        stays, goes = _divided(owned, wanted)
        if stays:
            kept[topic_id] = stays
        if goes:
            revoking[topic_id] = goes
    if revoking and _still_has(said, revoking):
        return member.but(state=MemberState.UNREVOKED, assigned=kept, revoking=revoking).at(
            member.epoch
        )
    unreleased = False
    for topic_id, wanted in target.partitions.items():
        if topic_id not in target.topics:
            continue
        mine = kept.get(topic_id, _NONE)
        fresh = {}
        for partition in wanted:
            if partition in mine:
                continue
            # What it was giving up itself, and is to have again, is free for it.
            if owner(topic_id, partition) in (None, member.member_id):
                fresh[partition] = target.epoch
            else:
                unreleased = True
        if fresh:
            kept[topic_id] = {**mine, **fresh}
    state = MemberState.UNRELEASED if unreleased else MemberState.STABLE
    return member.but(state=state, assigned=kept, revoking=NOTHING).at(target.epoch)


def _divided(
    owned: Mapping[int, int], wanted: tuple[int, ...]
) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """What of a topic's partitions is wanted, and what isn't."""
    if len(owned) <= len(wanted) and owned.keys() <= set(wanted):
        return owned, _NONE
    target = set(wanted)
    stays = {p: epoch for p, epoch in owned.items() if p in target}
    return stays, {p: epoch for p, epoch in owned.items() if p not in target}
