"""What happens to partitions when a broker goes, comes or leaves in order (KIP-631, 858, 966).

A broker may hold any number of partitions, so most of these are steps (`controller.context`):
each partition is decided by itself, on the image of its moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from controller.context import Context, Steps
from controller.elections import Election, Wanted
from controller.partition_changes import TopicTerms, decide, terms_of
from metadata.image import BrokerRegistration, PartitionRegistration, TopicImage
from metadata.records import BrokerRegistrationChangeRecord, Record, UnregisterBrokerRecord
from metadata.records.types import FENCE, UNFENCE
from metadata.topics import PartitionSet, in_order


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
    terms = TopicTerms(context)
    for topic, index, partition in _current(context, context.image.topics.leaderless):
        if broker.id in partition.replicas:
            yield decide(context, topic, index, Wanted(), terms.of(topic.name))
        else:
            yield None


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
    terms = TopicTerms(context)
    held = context.image.topics.held_by(broker_id)
    for topic, index, partition in _current(context, held):
        concerned = broker_id in partition.isr or broker_id == partition.leader
        if concerned or ((for_good or lossy) and broker_id in partition.elr):
            isr = tuple(b for b in partition.isr if b != broker_id)
            wanted = Wanted(isr=isr, not_eligible=not_eligible)
            yield decide(context, topic, index, wanted, terms.of(topic.name))
        else:
            yield None


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
    terms = TopicTerms(context)
    held = context.image.topics.held_by(broker_id)
    for topic, index, partition in _current(context, held):
        concerned = broker_id in partition.isr or broker_id == partition.leader
        if concerned and partition.directory_of(broker_id) in offline:
            wanted = Wanted(isr=tuple(b for b in partition.isr if b != broker_id))
            yield decide(context, topic, index, wanted, terms.of(topic.name))
        else:
            yield None


def elect_leaderless(context: Context) -> Steps:
    """Tries an unclean election where there is no leader and the topic allows one."""
    terms = TopicTerms(context)
    for topic, index, _ in _current(context, context.image.topics.leaderless):
        if terms.of(topic.name).election is Election.UNCLEAN:
            yield decide(context, topic, index, Wanted(), terms.of(topic.name))
        else:
            yield None


@dataclass(frozen=True, slots=True)
class PreferredSlice:
    """What a search found in the first `topics` of its names: records to append, and how many
    partitions were off their preferred leader."""

    records: list[Record]
    topics: int
    imbalanced: int


def elect_preferred(
    context: Context, names: Sequence[str], max_records: int, max_partitions: int
) -> PreferredSlice:
    """Gives leadership back to preferred leaders that may have it, topic by topic.

    It stops behind the topic that reaches a limit, so that a large cluster is gone through in
    slices of milliseconds.
    """
    found: list[Record] = []
    seen = imbalanced = 0
    for done, name in enumerate(names, 1):
        topic = context.image.topic(name)
        if topic is None:
            continue
        terms = None
        for index, partition in sorted(topic.partitions.items()):
            seen += 1
            if partition.leader == partition.preferred_leader:
                continue
            imbalanced += 1
            if terms is None:
                terms = terms_of(context, name, Election.PREFERRED)
            record = decide(context, topic, index, Wanted(), terms)
            if record is not None:
                found.append(record)
        if len(found) >= max_records or seen >= max_partitions:
            return PreferredSlice(found, done, imbalanced)
    return PreferredSlice(found, len(names), imbalanced)


def _current(
    context: Context, held: PartitionSet
) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
    """Those of an older image's partitions that are still there, as they are at their turn. (The
    older image itself is not held on to: to free it at the end would take long.)"""
    for topic_id, index in in_order(held):
        topic = context.image.topics_by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.get(index)
        if topic is not None and partition is not None:
            yield topic, index, partition
