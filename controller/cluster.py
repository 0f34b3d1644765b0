"""Questions about brokers and their replicas, answered from the active controller's state."""

from __future__ import annotations

from uuid import UUID

from controller.context import Context
from controller.elections import Acceptable
from controller.placement import UsableBroker
from metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration
from wire.errors import ErrorCode, KafkaError
from wire.uuids import MIGRATING_DIR, UNASSIGNED_DIR


def acceptable_leader(context: Context, partition: PartitionRegistration) -> Acceptable:
    """The test of who may lead: active brokers whose copy is online."""

    def acceptable(broker_id: int) -> bool:
        if not context.is_active(broker_id):
            return False
        directory = partition.directory_of(broker_id)
        broker = context.image.broker(broker_id)
        return directory is None or (broker is not None and broker.has_online_dir(directory))

    return acceptable


def usable_brokers(context: Context) -> list[UsableBroker]:
    """Brokers that new replicas may go to, by id: all but those that are just stopping. One that
    has stopped is a fenced one."""
    return [
        UsableBroker(broker.id, broker.rack, not context.is_active(broker.id))
        for _, broker in sorted(context.image.brokers.items())
        if broker.fenced or not broker.in_controlled_shutdown
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


def leads_any(image: MetadataImage, broker_id: int) -> bool:
    return image.leader_count(broker_id) > 0
