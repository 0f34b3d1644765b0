"""AllocateProducerIds 0 (KIP-730): blocks of a thousand ids, none ever given twice."""

from __future__ import annotations

from typing import Any

from controller.api import ControllerApi, answer
from controller.cluster import check_broker_epoch
from controller.context import Context, Result
from controller.events import ApiRequest
from metadata.records import ProducerIdsRecord
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError

BLOCK_SIZE = 1_000
_MAX_ID = (1 << 63) - 1


def _handle(context: Context, request: ApiRequest) -> Result:
    entity = request.entity
    broker = check_broker_epoch(context.image, int(entity.broker_id), entity.broker_epoch)
    first = context.image.next_producer_id or 0
    if first > _MAX_ID - BLOCK_SIZE:
        raise KafkaError(ErrorCode.unknown_server_error, "all producer ids are used up")
    record = ProducerIdsRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, next_producer_id=first + BLOCK_SIZE
    )
    reply = answer(
        request,
        error_code=ErrorCode.none,
        producer_id_start=first,
        producer_id_len=BLOCK_SIZE,
    )
    return Result([record], reply)


def _refuse(request: ApiRequest, code: ErrorCode, message: str) -> Any:
    return answer(request, error_code=code, producer_id_start=0, producer_id_len=0)


API = ControllerApi(
    ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, _handle, _refuse, admin=False, forwardable=False
)
