"""What eligible leader replicas ask of min.insync.replicas (KIP-966).

They are as good as the rule that nothing is committed with fewer replicas in sync, so controller
and brokers must know one value: it is the topic's, or one that all brokers have in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.configs import MIN_ISR
from metadata.configs import broker_value
from metadata.features import ELIGIBLE_LEADER_REPLICAS
from metadata.image import BROKER_RESOURCE, EMPTY, TOPIC_RESOURCE, MetadataImage
from metadata.records import ClearElrRecord, ConfigRecord, FeatureLevelRecord, Record
from wire.errors import ErrorCode, KafkaError


def are_kept(image: MetadataImage) -> bool:
    """Whether eligible leader replicas are on."""
    return image.features.get(ELIGIBLE_LEADER_REPLICAS, 0) >= 1


def turned_on(records: Iterable[Record]) -> bool:
    """Whether feature levels that are about to be written turn them on."""
    return any(
        isinstance(record, FeatureLevelRecord)
        and record.name == ELIGIBLE_LEADER_REPLICAS
        and record.feature_level >= 1
        for record in records
    )


def one_min_isr(image: MetadataImage, static: Mapping[str, str]) -> list[Record]:
    """What must be written with the level that turns them on: the value of the controller's own
    file for all brokers, unless there is one, and the end of every single broker's."""
    records: list[Record] = []
    if MIN_ISR not in image.config(BROKER_RESOURCE, ""):
        records.append(_config("", str(broker_value(MIN_ISR, EMPTY, static))))
    records += [
        _config(name, None)
        for kind, name in sorted(image.configs)
        if kind == BROKER_RESOURCE and name and MIN_ISR in image.configs[kind, name]
    ]
    return records


def _config(broker: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=BROKER_RESOURCE, resource_name=broker, name=MIN_ISR, value=value
    )


def check_change(image: MetadataImage, kind: int, name: str, value: str | None) -> None:
    """KafkaError if a change of min.insync.replicas would give brokers values of their own."""
    if kind != BROKER_RESOURCE or not are_kept(image):
        return
    if name:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"{MIN_ISR} of broker {name} can't be changed while eligible leader replicas are kept "
            f"({ELIGIBLE_LEADER_REPLICAS}): set it for a topic or for all brokers",
        )
    if value is None:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"{MIN_ISR} of all brokers can't be removed while eligible leader replicas are kept "
            f"({ELIGIBLE_LEADER_REPLICAS}): set another value",
        )


def cleared(image: MetadataImage, records: Iterable[Record]) -> list[Record]:
    """One ClearElrRecord for each changed min.insync.replicas: with another value, who was
    eligible under the old one may not be."""
    if not are_kept(image):
        return []
    return [
        ClearElrRecord(
            topic_name=record.resource_name if record.resource_type == TOPIC_RESOURCE else ""
        )
        for record in records
        if isinstance(record, ConfigRecord) and record.name == MIN_ISR
    ]
