"""BrokerRegistration 0-4 (KIP-631, 858, 966): incarnations, epochs, feature ranges, directories.

A broker epoch is the offset at which its registration begins. The same incarnation that comes
again keeps its epoch and its flags; a new one replaces a registration only if the old process
has no live session or is on its way out. It is out of every ISR then, and unless it names its
predecessor's broker epoch, which that left behind when it closed its logs in order, its copies may
have lost records: it is not eligible to lead what needs them (KIP-966).
"""

from __future__ import annotations

from itertools import chain
from typing import Any
from uuid import UUID

from controller import fencing
from controller.api import ControllerApi, answer, bad_request
from controller.context import Context, Operation
from controller.events import ApiRequest
from metadata.features import DIRECTORY_ASSIGNMENT
from metadata.image import METADATA_VERSION, BrokerRegistration, MetadataImage
from metadata.records import Endpoint, Feature, RegisterBrokerRecord
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from wire.uuids import ZERO, is_reserved, to_text


def _handle(context: Context, request: ApiRequest) -> Operation:
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
    if broker_id in context.transitions:
        raise _duplicate(broker_id, "is being fenced or registered at this moment")
    existing = context.image.broker(broker_id)
    same = existing is not None and existing.incarnation_id == (entity.incarnation_id or ZERO)
    if existing is not None and not same and _alive(context, existing):
        incarnation = to_text(existing.incarnation_id)
        raise _duplicate(broker_id, f"is registered and alive (incarnation {incarnation})")
    if getattr(entity, "is_migrating_zk_broker", False):
        raise bad_request(f"broker {broker_id} is migrating from ZooKeeper, which ended with 3.9")
    if context.metadata_version >= DIRECTORY_ASSIGNMENT:
        _check_directories(context.image, broker_id, _log_dirs(entity))
    record = _record(context, entity, existing if same else None)
    reply = answer(request, error_code=ErrorCode.none, broker_epoch=record.broker_epoch)

    def finish(end_offset: int) -> Any:
        context.heartbeats.register(
            broker_id, record.broker_epoch, fenced=record.fenced, now_ms=context.now_ms
        )
        return reply

    # Before version 3 a broker could not say how its predecessor had ended.
    previous = getattr(entity, "previous_broker_epoch", -1)
    lossy = existing is None or previous != existing.epoch
    leaving = iter(()) if same else fencing.leave_partitions(context, broker_id, lossy=lossy)
    steps = chain(leaving, (record,))
    return Operation(steps, finish, broker=broker_id, out=not same)


def _alive(context: Context, broker: BrokerRegistration) -> bool:
    """Neither on its way out nor silent for longer than its session."""
    return not broker.in_controlled_shutdown and context.heartbeats.has_session(
        broker.id, broker.epoch, context.now_ms
    )


def _duplicate(broker_id: int, state: str) -> KafkaError:
    return KafkaError(
        ErrorCode.duplicate_broker_registration, f"another process with id {broker_id} {state}"
    )


def _record(
    context: Context, entity: Any, present: BrokerRegistration | None
) -> RegisterBrokerRecord:
    """The registration. `present` is that of the same incarnation, whose epoch and state stay."""
    broker_id = int(entity.broker_id)
    with_directories = context.metadata_version >= DIRECTORY_ASSIGNMENT
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=entity.incarnation_id or ZERO,
        broker_epoch=context.next_offset if present is None else present.epoch,
        end_points=tuple(
            Endpoint(
                name=e.name,
                host=e.host,
                port=int(e.port),
                security_protocol=int(e.security_protocol),
            )
            for e in entity.listeners
        ),
        features=_checked_features(context.image, entity, broker_id),
        rack=entity.rack,
        fenced=present is None or present.fenced,
        in_controlled_shutdown=present is not None and present.in_controlled_shutdown,
        log_dirs=_log_dirs(entity) if with_directories else (),
    )


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


def _log_dirs(entity: Any) -> tuple[UUID, ...]:
    # Since version 2.
    return tuple(d or ZERO for d in getattr(entity, "log_dirs", ()))


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
