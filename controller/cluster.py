"""Questions about brokers and their replicas, answered from an image alone."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from controller.elections import Acceptable
from controller.placement import UsableBroker
from metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration
from wire.errors import ErrorCode, KafkaError
from wire.uuids import MIGRATING_DIR, UNASSIGNED_DIR


def is_active(image: MetadataImage, broker_id: int) -> bool:
    """Registered, not fenced, not on its way out."""
    broker = image.broker(broker_id)
    return broker is not None and broker.active


def acceptable_leader(
    image: MetadataImage,
    partition: PartitionRegistration,
    *,
    without: int | None = None,
    plus: int | None = None,
) -> Acceptable:
    """The test of who may lead: active brokers whose copy is online.

    `without` counts as inactive and `plus` as active, whatever the image says of them.
    """

    def acceptable(broker_id: int) -> bool:
        if broker_id == without:
            return False
        broker = image.broker(broker_id)
        if broker is None or not (broker_id == plus or broker.active):
            return False
        directory = partition.directory_of(broker_id)
        return directory is None or broker.has_online_dir(directory)

    return acceptable


def usable_brokers(image: MetadataImage) -> list[UsableBroker]:
    """Brokers that new replicas may go to, by id."""
    return [
        UsableBroker(broker.id, broker.rack, broker.fenced)
        for _, broker in sorted(image.brokers.items())
        if not broker.in_controlled_shutdown
    ]


def default_directory(image: MetadataImage, broker_id: int) -> UUID:
    """The directory to write for a new replica: known only if the broker has just one."""
    broker = image.broker(broker_id)
    if broker is None or not broker.log_dirs:
        return MIGRATING_DIR
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED_DIR


def check_broker_epoch(image: MetadataImage, broker_id: int, epoch: int) -> BrokerRegistration:
    """The registration of a broker that knows its own epoch, else STALE_BROKER_EPOCH."""
    broker = image.broker(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.stale_broker_epoch, f"broker {broker_id} is not registered")
    if broker.epoch != epoch:
        raise KafkaError(
            ErrorCode.stale_broker_epoch,
            f"broker {broker_id} gave broker epoch {epoch}, its current one is {broker.epoch}",
        )
    return broker


Entry = tuple[UUID, int, PartitionRegistration]


def partitions_of(image: MetadataImage, broker_id: int) -> Iterator[Entry]:
    """Every partition with a replica on the broker, in a fixed order."""
    for topic, index in image.partitions_of_broker(broker_id):
        yield topic.id, index, topic.partitions[index]


def leaderless(image: MetadataImage) -> Iterator[Entry]:
    """Every partition that has no leader, in a fixed order."""
    for topic, index in image.leaderless_partitions():
        yield topic.id, index, topic.partitions[index]


def leads_any(image: MetadataImage, broker_id: int) -> bool:
    return image.leader_count(broker_id) > 0
