"""FindCoordinator 0-6: no group and no transaction has a coordinator here yet.

It is served all the same, with Kafka's answer for a coordinator that isn't to be had: librdkafka
takes a broker without this API for one too old for lz4, and would send such batches uncompressed.
"""

from __future__ import annotations

from typing import Any

from broker.context import BrokerContext
from net.handlers import Api, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis, response_module

_BATCHED_FROM = 4
_KEY_TYPES = {0: "group", 1: "transactional id", 2: "share group"}


def apis(context: BrokerContext) -> list[Api]:
    return [Api(ApiKey.FIND_COORDINATOR, 0, 6, _handle)]


def _handle(request: Request) -> Any:
    asked = request.entity()
    m: Any = response_module(ApiKey.FIND_COORDINATOR, request.api_version)
    key_type = getattr(asked, "key_type", 0)
    kind = _KEY_TYPES.get(key_type)
    if kind is None:
        code = ErrorCode.invalid_request
        message = f"key type {key_type} is unknown; 0 is a group, 1 a transactional id"
    else:
        code = ErrorCode.coordinator_not_available
        message = f"this cluster has no coordinator for a {kind}"
    nobody = {"node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": message}
    if request.api_version >= _BATCHED_FROM:
        coordinators = tuple(
            fill(m.Coordinator, key=key, **nobody) for key in asked.coordinator_keys
        )
        return m.FindCoordinatorResponse(throttle_time=millis(0), coordinators=coordinators)
    return fill(m.FindCoordinatorResponse, throttle_time=millis(0), **nobody)
