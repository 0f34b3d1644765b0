"""UnregisterBroker 0 (KIP-631): a broker that won't come back is forgotten."""

from __future__ import annotations

from typing import Any

from controller import fencing
from controller.api import ControllerApi, answer
from controller.context import Context, Result
from controller.events import ApiRequest
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError


def _handle(context: Context, request: ApiRequest) -> Result:
    broker_id = int(request.entity.broker_id)
    broker = context.image.broker(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.broker_id_not_registered, f"Broker ID {broker_id} is not registered"
        )
    records = fencing.unregister(context, broker)
    context.heartbeats.remove(broker_id)
    context.registration_offsets.pop(broker_id, None)
    reply = answer(request, error_code=ErrorCode.none, error_message=None)
    return Result(records, reply, atomic=False)


def _refuse(request: ApiRequest, code: ErrorCode, message: str) -> Any:
    return answer(request, error_code=code, error_message=message)


API = ControllerApi(ApiKey.UNREGISTER_BROKER, 0, 0, _handle, _refuse)
