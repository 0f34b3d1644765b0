"""AlterConfigs 0-2: the old way, which replaces all of a resource's configs at once."""

from __future__ import annotations

from typing import Any

from controller.api import ControllerApi
from controller.config_changes import Resource, change_records, each_resource, refuse
from controller.context import Context, Result
from controller.events import ApiRequest
from metadata.records import Record
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError


def _handle(context: Context, request: ApiRequest) -> Result:
    return each_resource(context, request, _replace)


def _replace(context: Context, resource: Resource, asked: Any) -> list[Record]:
    # What isn't named is removed.
    changes: dict[str, str | None] = dict.fromkeys(
        context.image.config(resource.type, resource.name)
    )
    named: dict[str, None] = {}
    for config in asked.configs:
        if config.name in named:
            raise KafkaError(
                ErrorCode.invalid_request, f"Config {config.name!r} is named more than once"
            )
        named[config.name] = None
        if config.value is None:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"Config {config.name!r} has no value: leave it out to remove it",
            )
        changes[config.name] = config.value
    return change_records(context, resource, changes)


API = ControllerApi(ApiKey.ALTER_CONFIGS, 0, 2, _handle, refuse)
