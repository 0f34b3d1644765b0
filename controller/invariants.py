"""What must hold of any image that the controller makes."""

from __future__ import annotations

from controller import eligible_replicas
from metadata.image import MetadataImage, PartitionRegistration
from metadata.records import NO_LEADER


def check_image(image: MetadataImage) -> None:
    """Raises AssertionError that names the partition and the rule."""
    for name, topic in sorted(image.topics_by_name.items()):
        assert image.topics_by_id.get(topic.id) == topic, f"{name}: the two topic maps differ"
        assert sorted(topic.partitions) == list(range(len(topic.partitions))), (
            f"{name}: partition indexes have a gap"
        )
        for index, partition in sorted(topic.partitions.items()):
            _check_partition(image, f"{name}-{index}", partition)
    assert len(image.topics_by_id) == len(image.topics_by_name)


def _check_partition(image: MetadataImage, where: str, partition: PartitionRegistration) -> None:
    replicas, isr = partition.replicas, partition.isr
    assert replicas, f"{where}: no replicas"
    assert len(set(replicas)) == len(replicas), f"{where}: a replica twice: {replicas}"
    assert len(set(isr)) == len(isr), f"{where}: an ISR member twice: {isr}"
    assert all(broker in replicas for broker in isr), f"{where}: ISR {isr} not in {replicas}"
    elr = partition.elr
    assert len(set(elr)) == len(elr), f"{where}: an eligible replica twice: {elr}"
    assert all(broker in replicas for broker in elr), f"{where}: ELR {elr} not in {replicas}"
    assert not any(broker in isr for broker in elr), f"{where}: ELR {elr} and ISR {isr} overlap"
    # Without eligible leader replicas the last in sync stays; with them it may lose its right.
    may_be_empty = eligible_replicas.are_kept(image) or elr or partition.last_known_elr
    assert isr or may_be_empty, f"{where}: nobody is in sync"
    if partition.leader != NO_LEADER:
        assert partition.leader in isr, f"{where}: leader {partition.leader} not in ISR {isr}"
        leader = image.broker(partition.leader)
        assert leader is not None, f"{where}: leader {partition.leader} is not registered"
        assert not leader.fenced, f"{where}: leader {partition.leader} is fenced"
    if len(isr) > 1:
        for broker_id in isr:
            broker = image.broker(broker_id)
            assert broker is not None, f"{where}: ISR member {broker_id} is not registered"
            assert not broker.fenced, f"{where}: fenced {broker_id} is in the ISR with others"


def check_step(before: MetadataImage, after: MetadataImage) -> None:
    """What must hold between an image and a later one of the same log.

    Epochs only rise, and a leader changes only with its epoch.
    """
    for topic_id, topic in after.topics_by_id.items():
        old_topic = before.topics_by_id.get(topic_id)
        if old_topic is None:
            continue
        for index, new in topic.partitions.items():
            old = old_topic.partitions.get(index)
            if old is None or old == new:
                continue
            where = f"{topic.name}-{index}"
            assert new.leader_epoch >= old.leader_epoch, f"{where}: leader epoch went back"
            assert new.partition_epoch > old.partition_epoch, f"{where}: partition epoch stands"
            if new.leader != old.leader:
                assert new.leader_epoch > old.leader_epoch, f"{where}: new leader, old epoch"
    for broker_id, broker in after.brokers.items():
        old_broker = before.broker(broker_id)
        assert old_broker is None or broker.epoch >= old_broker.epoch, (
            f"broker {broker_id}: broker epoch went back"
        )
