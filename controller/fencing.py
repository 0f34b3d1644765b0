"""Records for a broker that goes, comes or leaves in order (KIP-631, KIP-858).

Each function takes an image and answers with records; every affected partition is found by the
image's index of replicas by broker.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from controller.cluster import Entry, acceptable_leader, leaderless, partitions_of
from controller.configs import unclean_election_enabled
from controller.context import Context
from controller.elections import Election, Wanted, change_partition
from metadata.image import BrokerRegistration, MetadataImage
from metadata.records import (
    BrokerRegistrationChangeRecord,
    Record,
    UnregisterBrokerRecord,
)

# Values of BrokerRegistrationChangeRecord.fenced.
_FENCE = 1
_UNFENCE = -1


def fence(context: Context, broker: BrokerRegistration) -> list[Record]:
    """Its leaderships and ISR places go to others, then it is fenced."""
    records = leave_partitions(context, broker.id)
    records.append(
        BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, fenced=_FENCE
        )
    )
    return records


def unfence(context: Context, broker: BrokerRegistration) -> list[Record]:
    """It is active again, and leads what nobody leads and it may lead."""
    records: list[Record] = [
        BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, fenced=_UNFENCE
        )
    ]
    waiting = (entry for entry in leaderless(context.image) if broker.id in entry[2].replicas)
    return records + _updates(context, waiting, plus=broker.id)


def begin_controlled_shutdown(context: Context, broker: BrokerRegistration) -> list[Record]:
    """Leaders move away before the broker stops."""
    records: list[Record] = []
    if not broker.in_controlled_shutdown:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=1
            )
        )
    return records + leave_partitions(context, broker.id)


def unregister(context: Context, broker: BrokerRegistration) -> list[Record]:
    """The broker is forgotten; its replicas stay named in the partitions."""
    records = leave_partitions(context, broker.id)
    records.append(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))
    return records


def leave_partitions(context: Context, broker_id: int) -> list[Record]:
    """Takes a broker out of every ISR that has another member, and out of every leadership."""
    concerned = (
        entry
        for entry in partitions_of(context.image, broker_id)
        if broker_id in entry[2].isr or entry[2].leader == broker_id
    )
    return _updates(context, concerned, without=broker_id)


def lose_directories(
    context: Context, broker: BrokerRegistration, offline: Iterable[UUID]
) -> list[Record]:
    """The broker says that these log directories failed: its copies there are gone for now."""
    lost = [d for d in offline if d in broker.log_dirs]
    if not lost:
        return []
    remaining = tuple(d for d in broker.log_dirs if d not in lost)
    records: list[Record] = []
    if remaining:
        # The record can't say "none are left": a broker without directories stops by itself.
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=remaining
            )
        )
    concerned = [
        entry
        for entry in partitions_of(context.image, broker.id)
        if entry[2].directory_of(broker.id) in lost
        and (broker.id in entry[2].isr or entry[2].leader == broker.id)
    ]
    return records + _updates(context, concerned, without=broker.id)


def elect_leaderless(context: Context, limit: int) -> list[Record]:
    """Tries an unclean election where there is no leader and the topic allows one."""
    allowed: dict[UUID, bool] = {}

    def concerned() -> Iterator[Entry]:
        for entry in leaderless(context.image):
            topic_id = entry[0]
            if topic_id not in allowed:
                allowed[topic_id] = election_for(context, topic_id) is Election.UNCLEAN
            if allowed[topic_id]:
                yield entry

    return list(itertools.islice(_changes(context, concerned()), limit))


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
    image = context.image
    found: list[Record] = []
    seen = imbalanced = 0
    for done, name in enumerate(names, 1):
        topic = image.topic(name)
        if topic is None:
            continue
        for index, partition in sorted(topic.partitions.items()):
            seen += 1
            if partition.leader == partition.preferred_leader:
                continue
            imbalanced += 1
            record = change_partition(
                topic.id,
                index,
                partition,
                Wanted(),
                acceptable_leader(image, partition),
                Election.PREFERRED,
                context.metadata_version,
            )
            if record is not None:
                found.append(record)
        if len(found) >= max_records or seen >= max_partitions:
            return PreferredSlice(found, done, imbalanced)
    return PreferredSlice(found, len(names), imbalanced)


def _updates(
    context: Context,
    entries: Iterable[Entry],
    *,
    without: int | None = None,
    plus: int | None = None,
) -> list[Record]:
    return list(_changes(context, entries, without=without, plus=plus))


def _changes(
    context: Context,
    entries: Iterable[Entry],
    *,
    without: int | None = None,
    plus: int | None = None,
) -> Iterator[Record]:
    # A broker's partitions come topic by topic: the config is looked up once for each.
    elections: dict[UUID, Election] = {}
    for topic_id, index, partition in entries:
        if topic_id not in elections:
            elections[topic_id] = election_for(context, topic_id)
        record = change_partition(
            topic_id,
            index,
            partition,
            Wanted(isr=tuple(b for b in partition.isr if b != without)),
            acceptable_leader(context.image, partition, without=without, plus=plus),
            elections[topic_id],
            context.metadata_version,
        )
        if record is not None:
            yield record


def election_for(context: Context, topic_id: UUID) -> Election:
    """The election a topic's config allows when nobody asked for a particular one."""
    image: MetadataImage = context.image
    name = image.topics_by_id[topic_id].name
    allowed = unclean_election_enabled(image, context.config, name)
    return Election.UNCLEAN if allowed else Election.ONLINE
