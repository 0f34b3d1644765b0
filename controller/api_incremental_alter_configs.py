"""IncrementalAlterConfigs 0-1 (KIP-339): set, delete, append to and subtract from lists."""

from __future__ import annotations

from typing import Any

from controller.api import ControllerApi
from controller.config_changes import Resource, change_records, each_resource, refuse
from controller.configs import default_text, is_list
from controller.context import Context, Result
from controller.events import ApiRequest
from metadata.records import Record
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError

SET, DELETE, APPEND, SUBTRACT = range(4)


def _handle(context: Context, request: ApiRequest) -> Result:
    return each_resource(context, request, _change)


def _change(context: Context, resource: Resource, asked: Any) -> list[Record]:
    changes: dict[str, str | None] = {}
    for config in asked.configs:
        if config.name in changes:
            raise KafkaError(
                ErrorCode.invalid_request, f"Config {config.name!r} is named more than once"
            )
        changes[config.name] = _new_value(context, resource, config)
    return change_records(context, resource, changes)


def _new_value(context: Context, resource: Resource, config: Any) -> str | None:
    name, operation, value = config.name, int(config.config_operation), config.value
    if operation == DELETE:
        return None
    if operation not in (SET, APPEND, SUBTRACT):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Operation {operation} on {name!r} is unknown: 0 sets, 1 deletes, 2 appends, "
            "3 subtracts",
        )
    if value is None:
        raise KafkaError(
            ErrorCode.invalid_request, f"Config {name!r} has no value: only a delete has none"
        )
    if operation == SET:
        return str(value)
    if not is_list(resource.type, name):
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Config {name!r} is not a list: nothing can be appended to it or taken from it",
        )
    current = context.image.config(resource.type, resource.name).get(name)
    items = _items(default_text(resource.type, name) if current is None else current)
    given = _items(value)
    if operation == APPEND:
        items += [item for item in dict.fromkeys(given) if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)


def _items(text: str | None) -> list[str]:
    return [item.strip() for item in (text or "").split(",") if item.strip()]


API = ControllerApi(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, _handle, refuse)
