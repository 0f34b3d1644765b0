"""What a node says of itself in ApiVersions."""

import asyncio

from net.client import Connection
from wire.apis import ApiKey
from wire.messages import fill, request_class
from world.real import real_env


def finalized_features(address):
    """(feature -> finalised level, the epoch they belong to) as the node at `host:port` says."""

    async def ask():
        host, _, port = address.rpartition(":")
        connection = await Connection.connect(
            real_env(), host, int(port), client_id="test", timeout_ms=5_000
        )
        try:
            request = fill(
                request_class(ApiKey.API_VERSIONS, 3),
                client_software_name="test",
                client_software_version="1",
            )
            return await connection.send(request, 5_000)
        finally:
            connection.close()

    answer = asyncio.run(ask())
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    return levels, answer.finalized_features_epoch
