"""Asks brokers, as a client would, whether they know and serve a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from net.errors import NetworkError
from pykraft.broker_client import LATEST, Broker, BrokerClient
from wire.errors import ErrorCode
from world.real import real_env

_TIMEOUT_MS = 2000


def not_served(topic: str, partitions: int, brokers: Mapping[int, str]) -> str:
    """What is still missing until each of `brokers` (`host:port` by id) knows all `partitions`
    and serves those it leads; empty when nothing is."""
    return asyncio.run(_ask_all(topic, partitions, brokers))


async def _ask_all(topic: str, partitions: int, brokers: Mapping[int, str]) -> str:
    asked = [_ask(id_, brokers[id_], topic, partitions) for id_ in sorted(brokers)]
    return "; ".join(filter(None, await asyncio.gather(*asked)))


async def _ask(id_: int, address: str, topic: str, partitions: int) -> str:
    host, _, port = address.rpartition(":")
    broker = Broker(id_, host, int(port))
    # This one alone: it is to know the topic itself.
    addresses = [(broker.host, broker.port)]
    try:
        async with BrokerClient(real_env(), addresses, _TIMEOUT_MS) as client:
            return await _missing(client, broker, topic, partitions)
    except NetworkError as error:
        return f"broker {id_}: {error}"


async def _missing(client: BrokerClient, broker: Broker, topic: str, partitions: int) -> str:
    leaders = await client.leaders((topic,))
    led = {place: LATEST for place, leader in leaders.items() if leader and leader.id == broker.id}
    known = sum(leader is not None for leader in leaders.values())
    if known < partitions:
        return f"broker {broker.id} knows {known} of {partitions} partitions"
    if not led:
        return ""
    refused = [
        f"{index} ({code.name})"
        for (_, index), (code, _) in (await client.list_offsets(broker, led)).items()
        if code is not ErrorCode.none
    ]
    return f"broker {broker.id} does not serve {', '.join(refused)} yet" if refused else ""
