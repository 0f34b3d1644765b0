"""UnregisterBroker 0 (KIP-631): a broker that won't come back is forgotten."""

from __future__ import annotations

from typing import Any

from controller import fencing
from controller.api import ControllerApi, answer
from controller.context import Context, Operation
from controller.events import ApiRequest
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError


def _handle(context: Context, request: ApiRequest) -> Operation:
    broker_id = int(request.entity.broker_id)
    broker = context.image.broker(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.broker_id_not_registered, f"Broker ID {broker_id} is not registered"
        )
    if broker_id in context.transitions:
        raise KafkaError(
            ErrorCode.request_timed_out,
            f"Broker ID {broker_id} is being fenced or registered at this moment: try again later",
        )

    def finish(end_offset: int) -> Any:
        context.heartbeats.remove(broker_id)
        context.registration_offsets.pop(broker_id, None)
        return answer(request, error_code=ErrorCode.none, error_message=None)

    steps = fencing.unregister(context, broker)
    return Operation(steps, finish, broker=broker_id, out=True)


def _refuse(request: ApiRequest, code: ErrorCode, message: str) -> Any:
    return answer(request, error_code=code, error_message=message)


API = ControllerApi(ApiKey.UNREGISTER_BROKER, 0, 0, _handle, _refuse)
