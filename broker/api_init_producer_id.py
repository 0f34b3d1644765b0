"""InitProducerId 0-5 for producers without a transactional id: a fresh id, epoch 0 (KIP-98).

A transactional id needs the transaction coordinator, which isn't there yet: such a request is told
COORDINATOR_NOT_AVAILABLE, as Kafka does while it has no coordinator.
"""

from __future__ import annotations

from typing import Any

from broker.context import BrokerContext
from net.handlers import Api, Request
from wire.apis import ApiKey, ErrorCode
from wire.errors import KafkaError
from wire.messages import fill, millis, response_module


def apis(context: BrokerContext) -> list[Api]:
    return [Api(ApiKey.INIT_PRODUCER_ID, 0, 5, lambda request: _handle(context, request))]


def _handle(context: BrokerContext, request: Request) -> Any:
    asked = request.entity()
    return _answer(context, asked, request.api_version)


async def _answer(context: BrokerContext, asked: Any, version: int) -> Any:
    error, producer_id, epoch = ErrorCode.none, -1, -1
    if asked.transactional_id is not None:
        error = (
            ErrorCode.coordinator_not_available
            if asked.transactional_id
            else ErrorCode.invalid_request
        )
    else:
        try:
            producer_id = await context.producer_ids.next(context.config.request_timeout_ms)
            epoch = 0
        except KafkaError as refused:
            error = refused.code
    m: Any = response_module(ApiKey.INIT_PRODUCER_ID, version)
    return fill(
        m.InitProducerIdResponse,
        throttle_time=millis(0),
        error_code=error,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
