"""DescribeCluster 0-2: the brokers of the cluster (KIP-700, KIP-919, fenced ones KIP-1073)."""

from __future__ import annotations

from typing import Any

from broker.cluster_view import (
    ALL_CLUSTER_OPERATIONS,
    NOT_ASKED,
    controller_for_clients,
    nodes,
)
from broker.context import BrokerContext
from net.handlers import Api, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis, response_module

BROKERS = 1
CONTROLLERS = 2


def apis(context: BrokerContext) -> list[Api]:
    return [Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, lambda request: _handle(context, request))]


def _handle(context: BrokerContext, request: Request) -> Any:
    asked = request.entity()
    m: Any = response_module(ApiKey.DESCRIBE_CLUSTER, request.api_version)
    endpoint_type = getattr(asked, "endpoint_type", BROKERS)
    error, message = ErrorCode.none, None
    if endpoint_type == CONTROLLERS:
        error = ErrorCode.mismatched_endpoint_type
        message = "this is a broker's listener: it knows brokers (type 1), not controllers (type 2)"
    elif endpoint_type != BROKERS:
        error = ErrorCode.unsupported_endpoint_type
        message = f"endpoint type {endpoint_type} is unknown; 1 asks for brokers"
    listener = request.connection.listener
    alive = nodes(context.image, listener)
    shown = alive
    if getattr(asked, "include_fenced_brokers", False):
        shown = nodes(context.image, listener, fenced=True)
    if error is not ErrorCode.none:
        shown = []
    return fill(
        m.DescribeClusterResponse,
        throttle_time=millis(0),
        error_code=error,
        error_message=message,
        endpoint_type=BROKERS,
        cluster_id=context.cluster_id,
        controller_id=controller_for_clients(alive, context.broker_id),
        brokers=tuple(
            fill(
                m.DescribeClusterBroker,
                broker_id=n.id,
                host=n.host,
                port=n.port,
                rack=n.rack,
                is_fenced=n.fenced,
            )
            for n in shown
        ),
        cluster_authorized_operations=ALL_CLUSTER_OPERATIONS
        if asked.include_cluster_authorized_operations
        else NOT_ASKED,
    )
