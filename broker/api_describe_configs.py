"""DescribeConfigs: this broker's view; see `metadata.configs.describe`."""

from __future__ import annotations

from typing import Any

from broker.context import BrokerContext
from metadata.configs.describe import MAX_VERSION, MIN_VERSION, describe_configs
from net.handlers import Api, Frame, Request
from wire.apis import ApiKey
from wire.messages import RequestHeader


def apis(context: BrokerContext) -> list[Api]:
    def handle(request: Request) -> Any:
        return _describe(context, request.header, request.entity())

    return [Api(ApiKey.DESCRIBE_CONFIGS, MIN_VERSION, MAX_VERSION, handle)]


async def _describe(context: BrokerContext, header: RequestHeader, asked: Any) -> Frame:
    parts = await describe_configs(
        header, asked, context.image, context.config.given, context.broker_id
    )
    return Frame([*parts])
