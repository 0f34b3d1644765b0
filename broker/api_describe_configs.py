"""DescribeConfigs: this broker's view; see `metadata.configs.describe`."""

from __future__ import annotations

from typing import Any

from broker.context import BrokerContext
from metadata.configs.describe import MAX_VERSION, MIN_VERSION, describe_configs
from net.handlers import Api, Request
from wire.apis import ApiKey


def apis(context: BrokerContext) -> list[Api]:
    def handle(request: Request) -> Any:
        return describe_configs(
            request.api_version,
            request.entity(),
            context.image,
            context.config.given,
            context.broker_id,
        )

    return [Api(ApiKey.DESCRIBE_CONFIGS, MIN_VERSION, MAX_VERSION, handle)]
