"""Asks brokers, as a client would, whether they know and serve a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from net.client import Connection
from net.errors import NetworkError
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages import fill
from world.real import real_env

_CLIENT = "pykraft-testing"
_TIMEOUT_MS = 2000
_LATEST = -1


def not_served(topic: str, partitions: int, brokers: Mapping[int, str]) -> str:
    """What is still missing until each of `brokers` (`host:port` by id) knows all `partitions`
    and serves those it leads; empty when nothing is."""
    return asyncio.run(_ask_all(topic, partitions, brokers))


async def _ask_all(topic: str, partitions: int, brokers: Mapping[int, str]) -> str:
    asked = [_ask(id_, brokers[id_], topic, partitions) for id_ in sorted(brokers)]
    return "; ".join(filter(None, await asyncio.gather(*asked)))


async def _ask(id_: int, address: str, topic: str, partitions: int) -> str:
    host, _, port = address.rpartition(":")
    try:
        connection = await Connection.connect(
            real_env(), host, int(port), client_id=_CLIENT, timeout_ms=_TIMEOUT_MS
        )
        try:
            return await _missing(id_, connection, topic, partitions)
        finally:
            connection.close()
    except NetworkError as error:
        return f"broker {id_}: {error}"


async def _missing(id_: int, connection: Connection, topic: str, partitions: int) -> str:
    def ask_metadata(_: int, module: ModuleType) -> Any:
        named = fill(module.MetadataRequestTopic, name=topic, topic_id=None)
        return fill(
            module.MetadataRequest,
            topics=(named,),
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

    answer = await connection.call(ApiKey.METADATA, ask_metadata, _TIMEOUT_MS, max_version=9)
    told = answer.topics[0]
    known = [one for one in told.partitions if one.error_code is ErrorCode.none]
    if len(known) < partitions:
        return f"broker {id_} knows {len(known)} of {partitions} partitions"
    led = [one.partition_index for one in known if one.leader_id == id_]
    if not led:
        return ""

    def ask_offsets(_: int, module: ModuleType) -> Any:
        places = tuple(
            fill(module.ListOffsetsPartition, partition_index=index, timestamp=_LATEST)
            for index in led
        )
        named = fill(module.ListOffsetsTopic, name=topic, partitions=places)
        return fill(module.ListOffsetsRequest, replica_id=-1, isolation_level=0, topics=(named,))

    answer = await connection.call(ApiKey.LIST_OFFSETS, ask_offsets, _TIMEOUT_MS, max_version=7)
    refused = [
        f"{one.partition_index} ({one.error_code.name})"
        for one in answer.topics[0].partitions
        if one.error_code is not ErrorCode.none
    ]
    return f"broker {id_} does not serve {', '.join(refused)} yet" if refused else ""
