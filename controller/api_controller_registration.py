"""ControllerRegistration 0 (KIP-919): each controller tells its listeners and feature ranges."""

from __future__ import annotations

from typing import Any

from controller.api import ControllerApi, answer
from controller.context import Context, Result
from controller.events import ApiRequest
from metadata.features import CONTROLLER_REGISTRATION
from metadata.records import Endpoint, Feature, RegisterControllerRecord
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from wire.uuids import ZERO


def _handle(context: Context, request: ApiRequest) -> Result:
    entity = request.entity
    if context.metadata_version < CONTROLLER_REGISTRATION:
        raise KafkaError(
            ErrorCode.unsupported_version,
            f"metadata.version {context.metadata_version} has no controller registrations, "
            f"they begin with {CONTROLLER_REGISTRATION}",
        )
    ranges = {f.name: f for f in entity.features}
    for name, level in sorted(context.image.features.items()):
        found = ranges.get(name)
        low, high = (
            (int(found.min_supported_version), int(found.max_supported_version))
            if found is not None
            else (0, 0)
        )
        if not low <= level <= high:
            raise KafkaError(
                ErrorCode.unsupported_version,
                f"controller {entity.controller_id} supports levels {low} to {high} of {name}, "
                f"the cluster runs at {level}",
            )
    record = RegisterControllerRecord(
        controller_id=int(entity.controller_id),
        incarnation_id=entity.incarnation_id or ZERO,
        zk_migration_ready=entity.zk_migration_ready,
        end_points=tuple(
            Endpoint(
                name=e.name,
                host=e.host,
                port=int(e.port),
                security_protocol=int(e.security_protocol),
            )
            for e in entity.listeners
        ),
        features=tuple(
            Feature(
                name=f.name,
                min_supported_version=int(f.min_supported_version),
                max_supported_version=int(f.max_supported_version),
            )
            for f in entity.features
        ),
    )
    return Result([record], answer(request, error_code=ErrorCode.none, error_message=None))


def _refuse(request: ApiRequest, code: ErrorCode, message: str) -> Any:
    return answer(request, error_code=code, error_message=message)


API = ControllerApi(
    ApiKey.CONTROLLER_REGISTRATION, 0, 0, _handle, _refuse, admin=False, forwardable=False
)
