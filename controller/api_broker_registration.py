"""BrokerRegistration 0-4 (KIP-631, KIP-858): incarnations, epochs, feature ranges, directories.

A broker epoch is the offset at which its registration begins. The same incarnation that comes
again keeps its epoch and its flags; a new one replaces a registration only if the old process
has no live session or is on its way out. As in Kafka 4.x an unclean stop leaves the ISR alone
(only eligible leader replicas would suffer).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from controller import fencing
from controller.api import ControllerApi, answer, bad_request
from controller.context import Context, Result
from controller.events import ApiRequest
from metadata.features import DIRECTORY_ASSIGNMENT
from metadata.image import METADATA_VERSION, BrokerRegistration, MetadataImage
from metadata.records import Endpoint, Feature, Record, RegisterBrokerRecord
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from wire.uuids import ZERO, is_reserved, to_text


def _handle(context: Context, request: ApiRequest) -> Result:
    entity = request.entity
    broker_id = int(entity.broker_id)
    if entity.cluster_id != context.config.cluster_id:
        raise KafkaError(
            ErrorCode.inconsistent_cluster_id,
            f"broker {broker_id} is of cluster {entity.cluster_id!r}, "
            f"this is {context.config.cluster_id!r}",
        )
    if broker_id < 0:
        raise bad_request(f"broker id {broker_id} is negative")
    incarnation: UUID = entity.incarnation_id or ZERO
    existing = context.image.broker(broker_id)
    same = existing is not None and existing.incarnation_id == incarnation
    if (
        existing is not None
        and not same
        and not existing.in_controlled_shutdown
        and context.heartbeats.has_session(broker_id, existing.epoch, context.now_ms)
    ):
        raise KafkaError(
            ErrorCode.duplicate_broker_registration,
            f"another process with id {broker_id} is registered and alive "
            f"(incarnation {to_text(existing.incarnation_id)})",
        )
    if getattr(entity, "is_migrating_zk_broker", False):
        raise bad_request(f"broker {broker_id} is migrating from ZooKeeper, which ended with 3.9")
    log_dirs = tuple(d or ZERO for d in getattr(entity, "log_dirs", ()))
    if context.metadata_version >= DIRECTORY_ASSIGNMENT:
        _check_directories(context.image, broker_id, log_dirs)
    features = _checked_features(context.image, entity, broker_id)
    epoch = existing.epoch if existing is not None and same else context.next_offset
    record = RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=incarnation,
        broker_epoch=epoch,
        end_points=tuple(
            Endpoint(
                name=e.name,
                host=e.host,
                port=int(e.port),
                security_protocol=int(e.security_protocol),
            )
            for e in entity.listeners
        ),
        features=features,
        rack=entity.rack,
        fenced=existing.fenced if existing is not None and same else True,
        in_controlled_shutdown=existing.in_controlled_shutdown
        if existing is not None and same
        else False,
        log_dirs=log_dirs if context.metadata_version >= DIRECTORY_ASSIGNMENT else (),
    )
    records: list[Record] = []
    if existing is not None and not same and not existing.fenced:
        # The old process is gone but not fenced yet: nothing may be led by a fenced broker.
        records = fencing.leave_partitions(context, broker_id)
    records.append(record)
    context.heartbeats.register(broker_id, epoch, fenced=record.fenced, now_ms=context.now_ms)
    reply = answer(request, error_code=ErrorCode.none, broker_epoch=epoch)
    return Result(records, reply, atomic=False)


def _checked_features(image: MetadataImage, entity: Any, broker_id: int) -> tuple[Feature, ...]:
    """The broker's ranges, which must hold every finalized level.

    A broker that names no metadata.version is of the time before there was one: level 1.
    """
    ranges = {
        f.name: (int(f.min_supported_version), int(f.max_supported_version))
        for f in entity.features
    }
    ranges.setdefault(METADATA_VERSION, (1, 1))
    for name, level in sorted(image.features.items()):
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high:
            raise KafkaError(
                ErrorCode.unsupported_version,
                f"broker {broker_id} supports levels {low} to {high} of {name}, "
                f"the cluster runs at {level}",
            )
    return tuple(
        Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in sorted(ranges.items())
    )


def _check_directories(image: MetadataImage, broker_id: int, log_dirs: tuple[UUID, ...]) -> None:
    def invalid(message: str) -> KafkaError:
        return KafkaError(ErrorCode.invalid_registration, f"broker {broker_id}: {message}")

    if not log_dirs:
        raise invalid("no log directory is named, at least one is needed")
    for position, directory in enumerate(log_dirs):
        if is_reserved(directory):
            raise invalid(f"log directory id {to_text(directory)} is reserved")
        if directory in log_dirs[:position]:
            raise invalid(f"log directory id {to_text(directory)} is named twice")
    for _, other in sorted(image.brokers.items()):
        if other.id != broker_id:
            _check_not_owned(other, log_dirs, invalid)


def _check_not_owned(other: BrokerRegistration, log_dirs: tuple[UUID, ...], invalid: Any) -> None:
    for directory in log_dirs:
        if directory in other.log_dirs:
            raise invalid(
                f"log directory id {to_text(directory)} belongs to broker {other.id} already"
            )


def _refuse(request: ApiRequest, code: ErrorCode, message: str) -> Any:
    return answer(request, error_code=code, broker_epoch=-1)


API = ControllerApi(
    ApiKey.BROKER_REGISTRATION, 0, 4, _handle, _refuse, admin=False, forwardable=False
)
