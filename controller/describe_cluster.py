"""DescribeCluster 0-2 on the controller listener (KIP-700, KIP-919): the registered controllers.

Any controller answers it, from the committed image.
"""

from __future__ import annotations

from typing import Any

from metadata.image import MetadataImage
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages import fill, millis, response_class, response_module

BROKERS, CONTROLLERS = 1, 2
_NOT_ASKED = -(1 << 31)


def describe_cluster(
    version: int,
    entity: Any,
    image: MetadataImage,
    *,
    cluster_id: str,
    leader_id: int | None,
    listener: str,
) -> Any:
    """The answer. Version 0 can't ask for controllers, so it asks the wrong endpoint."""
    asked = int(getattr(entity, "endpoint_type", BROKERS))
    code, message = ErrorCode.none, None
    if asked == BROKERS:
        code = ErrorCode.mismatched_endpoint_type
        message = "This is a controller: it describes controllers (endpoint type 2), not brokers"
    elif asked != CONTROLLERS:
        code = ErrorCode.unsupported_endpoint_type
        message = f"Endpoint type {asked} is unknown: 1 is brokers, 2 is controllers"
    module = response_module(ApiKey.DESCRIBE_CLUSTER, version)
    nodes = []
    if code is ErrorCode.none:
        for node_id, controller in sorted(image.controllers.items()):
            endpoint = controller.endpoint(listener)
            if endpoint is not None:
                nodes.append(
                    fill(
                        module.DescribeClusterBroker,
                        broker_id=node_id,
                        host=endpoint.host,
                        port=endpoint.port,
                        rack=None,
                        is_fenced=False,
                    )
                )
    return fill(
        response_class(ApiKey.DESCRIBE_CLUSTER, version),
        throttle_time=millis(0),
        error_code=code,
        error_message=message,
        endpoint_type=CONTROLLERS,
        cluster_id=cluster_id,
        controller_id=-1 if leader_id is None else leader_id,
        brokers=tuple(nodes),
        cluster_authorized_operations=_NOT_ASKED,
    )
