"""What the two config APIs share: the resource, its existence, and records from new values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple

from controller import eligible_replicas
from controller.configs import MIN_ISR
from controller.context import Context, Result
from controller.events import ApiRequest
from metadata.configs import (
    GROUP,
    TOPIC,
    validate_dynamic_broker_config,
    validate_group_configs,
    validate_topic_configs,
)
from metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from metadata.records import ConfigRecord, Record
from wire.errors import ErrorCode, KafkaError
from wire.hot.alter_configs import ConfigsResponse, ResourceOutcome
from wire.numbers import INT32_MAX, whole_number

_NONE = ErrorCode.none
_MAX_VALUE_LENGTH = 32_767  # Kafka's limit for a string in a record


class Resource(NamedTuple):
    """A thing with configs: type 2 is a topic, 4 a broker ("" for all of them), 32 a group."""

    type: int
    name: str


def check_resource(context: Context, resource: Resource) -> None:
    """KafkaError unless it is of a kind that has configs here, and exists; a group need not."""
    name = resource.name
    if resource.type == TOPIC_RESOURCE:
        if context.image.topic(name) is None:
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition, f"There is no topic named {name!r}"
            )
    elif resource.type == BROKER_RESOURCE:
        _check_broker(context, name)
    elif resource.type == GROUP_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.invalid_request, "There are no configs of all groups")
    else:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Resource type {resource.type} has no configs here: topics ({TOPIC_RESOURCE}), "
            f"brokers ({BROKER_RESOURCE}) and groups ({GROUP_RESOURCE}) have",
        )


def _check_broker(context: Context, name: str) -> None:
    if not name:
        return
    if whole_number(name, INT32_MAX) is None:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Broker name {name!r} is not a broker id, nor empty for the default of all",
        )
    broker_id = int(name)
    image = context.image
    if image.broker(broker_id) is None and broker_id not in image.controllers:
        raise KafkaError(
            ErrorCode.broker_id_not_registered, f"Broker ID {broker_id} is not registered"
        )


def change_records(
    context: Context, resource: Resource, changes: Mapping[str, str | None]
) -> list[Record]:
    """Records that set (or with None remove) these keys, after the outcome has been validated.

    Unchanged values need no record. A broker's are written all the same, as Kafka does.
    """
    kind, name = resource
    if MIN_ISR in changes:
        eligible_replicas.check_change(context.image, kind, name, changes[MIN_ISR])
    current = context.image.config(kind, name)
    in_order = sorted(changes.items())
    for key, value in in_order:
        _check_length(key, value)
    if kind == TOPIC_RESOURCE:
        validate_topic_configs(_outcome(current, in_order, TOPIC))
    elif kind == GROUP_RESOURCE:
        config = context.config
        validate_group_configs(
            _outcome(current, in_order, GROUP), context.image, config.static, config.node_id
        )
    else:
        for key, value in in_order:
            if value is not None or key not in current:
                validate_dynamic_broker_config(key, value)
    return [
        ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
        for key, value in in_order
        if _is_change(kind, current.get(key), value)
    ]


def _check_length(key: str, value: str | None) -> None:
    if value is None or 4 * len(value) <= _MAX_VALUE_LENGTH:
        return
    length = len(value.encode())
    if length > _MAX_VALUE_LENGTH:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"The value of {key!r} has {length} bytes, at most {_MAX_VALUE_LENGTH} are allowed",
        )


def _outcome(
    current: Mapping[str, str], changes: Iterable[tuple[str, str | None]], known: Container[str]
) -> dict[str, str]:
    """What is set when these changes are made, but for what another version left behind and
    nobody touches now, which must not stand in the way."""
    outcome = {key: value for key, value in current.items() if key in known}
    for key, value in changes:
        if value is not None:
            outcome[key] = value
        else:
            outcome.pop(key, None)
    return outcome


def _is_change(kind: int, old: str | None, new: str | None) -> bool:
    if new is None:
        return old is not None
    return new != old or kind == BROKER_RESOURCE


def each_resource(context: Context, request: ApiRequest, change: Any) -> Result:
    """Runs `change(context, resource, asked) -> records` for every resource of the request; each
    fails or succeeds by itself."""
    entity = request.entity
    resources = [resource_of(asked) for asked in entity.resources]
    counts = Counter(resources) if len(resources) > 1 else {}
    records: list[Record] = []
    cleared: list[Record] = []
    results: dict[Resource, ResourceOutcome] = {}
    for resource, asked in zip(resources, entity.resources, strict=True):
        if resource in results:
            continue
        code, message = _NONE, None
        try:
            if counts and counts[resource] > 1:
                raise KafkaError(
                    ErrorCode.invalid_request, f"Resource {resource.name!r} is named more than once"
                )
            check_resource(context, resource)
            found = change(context, resource, asked)
            clearing = eligible_replicas.cleared(context.image, found)
            _check_room(context, len(records) + len(found) + len(cleared) + len(clearing))
            records += found
            cleared += clearing
        except KafkaError as error:
            code, message = error.code, error.message
        results[resource] = ResourceOutcome(code, message, *resource)
    reply = ConfigsResponse(tuple(results.values()))
    return Result([] if entity.validate_only else records + cleared, reply)


def _check_room(context: Context, count: int) -> None:
    limit = context.config.max_records_per_batch
    if count > limit:
        raise KafkaError(
            ErrorCode.policy_violation, f"{count} config changes in a request: at most {limit}"
        )


def resource_of(asked: Any) -> Resource:
    return Resource(int(asked.resource_type), asked.resource_name)


def refuse(request: ApiRequest, code: ErrorCode, message: str) -> Any:
    """The answer that gives every resource the same error."""
    resources: Iterable[Resource] = dict.fromkeys(
        resource_of(asked) for asked in request.entity.resources
    )
    return ConfigsResponse(
        tuple(ResourceOutcome(code, message, *resource) for resource in resources)
    )
