"""What happens to partitions when a broker goes, comes or leaves in order (KIP-631, 858, 966).

A broker may hold any number of partitions, so most of these are steps (`controller.context`):
each partition is decided by itself, on the image of its moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from controller.context import Context, Steps
from controller.elections import Election, Terms, Wanted
from controller.partition_changes import TopicTerms, decide, terms_of
from metadata.image import BrokerRegistration, PartitionRegistration, TopicImage
from metadata.maps import AT_ONCE, in_order
from metadata.records import BrokerRegistrationChangeRecord, Record, UnregisterBrokerRecord
from metadata.records.types import FENCE, UNFENCE
from metadata.topics import PartitionSet, partitions_in_order


def fence(context: Context, broker: BrokerRegistration) -> Steps:
    """Its leaderships and ISR places go to others, then it is fenced.

    In this order another controller, taking over in the middle, finds a broker to be fenced.
    """
    yield from leave_partitions(context, broker.id)
    yield BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE
    )


def unfence(context: Context, broker: BrokerRegistration) -> Steps:
    """It is active again, and leads what nobody leads and it may lead."""
    yield BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE
    )

    def want(partition: PartitionRegistration, _: Terms) -> Wanted | None:
        return Wanted() if broker.id in partition.replicas else None

    yield from _decide_each(context, context.image.topics.leaderless, want)


def begin_controlled_shutdown(context: Context, broker: BrokerRegistration) -> Steps:
    """Leaders move away before the broker stops."""
    if not broker.in_controlled_shutdown:
        yield BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=1
        )
    yield from leave_partitions(context, broker.id)


def unregister(context: Context, broker: BrokerRegistration) -> Steps:
    """The broker is forgotten; its replicas stay named in the partitions."""
    yield from leave_partitions(context, broker.id, for_good=True)
    yield UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)


def leave_partitions(
    context: Context, broker_id: int, *, for_good: bool = False, lossy: bool = False
) -> Steps:
    """Takes an inactive broker out of every ISR and leadership.

    `for_good` has partitions that may wait for it looked at, too; `lossy` says that its copies may
    have lost records, so that it is not eligible to lead any more either.
    """
    not_eligible = (broker_id,) if lossy else ()

    def want(partition: PartitionRegistration, _: Terms) -> Wanted | None:
        concerned = broker_id in partition.isr or broker_id == partition.leader
        if not concerned and not ((for_good or lossy) and broker_id in partition.elr):
            return None
        isr = tuple(b for b in partition.isr if b != broker_id)
        return Wanted(isr=isr, not_eligible=not_eligible)

    yield from _decide_each(context, context.image.topics.held_by(broker_id), want)


def lose_directories(context: Context, broker_id: int, offline: Sequence[UUID]) -> Steps:
    """The broker says that these log directories failed: its copies there are gone for now."""
    broker = context.image.broker(broker_id)
    assert broker is not None
    remaining = tuple(d for d in broker.log_dirs if d not in offline)
    if remaining:
        # The record can't say "none are left": a broker without directories stops by itself.
        yield BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=broker.epoch, log_dirs=remaining
        )

    def want(partition: PartitionRegistration, _: Terms) -> Wanted | None:
        concerned = broker_id in partition.isr or broker_id == partition.leader
        if not concerned or partition.directory_of(broker_id) not in offline:
            return None
        return Wanted(isr=tuple(b for b in partition.isr if b != broker_id))

    yield from _decide_each(context, context.image.topics.held_by(broker_id), want)


def elect_leaderless(context: Context) -> Steps:
    """Tries an unclean election where there is no leader and the topic allows one."""

    def want(_: PartitionRegistration, terms: Terms) -> Wanted | None:
        return Wanted() if terms.election is Election.UNCLEAN else None

    yield from _decide_each(context, context.image.topics.leaderless, want)


@dataclass(frozen=True, slots=True)
class PreferredSlice:
    """What a part of the search came to: records to append, how many partitions were off their
    preferred leader, and whether there may be more of it."""

    records: list[Record]
    imbalanced: int
    more: bool


class PreferredSearch:
    """Gives leadership back to preferred leaders that may have it, topic by topic; a large cluster
    is gone through in slices of milliseconds."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._names = in_order(context.image.topics_by_name)

    def slice(self, max_records: int, max_seen: int) -> PreferredSlice:
        """Goes on behind the topic that reaches a limit; partitions are seen, and names that are
        put in order first."""
        records: list[Record] = []
        seen = imbalanced = 0
        for name in self._names:
            topic = None if name is None else self._context.image.topic(name)
            if name is None:
                seen += AT_ONCE
            elif topic is not None:
                seen += len(topic.partitions)
                imbalanced += self._look_at(topic, records)
            if len(records) >= max_records or seen >= max_seen:
                return PreferredSlice(records, imbalanced, more=True)
        return PreferredSlice(records, imbalanced, more=False)

    def _look_at(self, topic: TopicImage, records: list[Record]) -> int:
        """Adds the elections that a topic needs; how many of its partitions are off."""
        imbalanced = 0
        terms = None
        for index, partition in sorted(topic.partitions.items()):
            if partition.leader == partition.preferred_leader:
                continue
            imbalanced += 1
            if terms is None:
                terms = terms_of(self._context, topic.name, Election.PREFERRED)
            record = decide(self._context, topic, index, Wanted(), terms)
            if record is not None:
                records.append(record)
        return imbalanced


def _decide_each(
    context: Context,
    held: PartitionSet,
    want: Callable[[PartitionRegistration, Terms], Wanted | None],
) -> Steps:
    """Decides on those of an older image's partitions that are still there, as they are at their
    turn, by what `want` says of each; None is for leaving it alone. (The older image itself is not
    held on to: to free it at the end would take long.)"""
    topic_terms = TopicTerms(context)
    for found in partitions_in_order(held):
        if found is None:
            yield None
            continue
        topic_id, index = found
        topic = context.image.topics_by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.get(index)
        if topic is None or partition is None:
            yield None
            continue
        terms = topic_terms.of(topic.name)
        wanted = want(partition, terms)
        yield None if wanted is None else decide(context, topic, index, wanted, terms)
