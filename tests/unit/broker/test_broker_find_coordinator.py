"""FindCoordinator: who coordinates a group, in every version; nobody does transactions yet."""

import asyncio

import pytest
from broker_fakes import cluster, until

from broker.group_partition import OFFSETS_TOPIC
from net.errors import ConnectionLost
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, request_module

NOBODY = ErrorCode.coordinator_not_available


async def ask(connection, version, keys, key_type=0):
    """[(error, node id, port, message)] by key."""
    m = request_module(ApiKey.FIND_COORDINATOR, version)
    if version >= 4:
        entity = m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
        answer = await connection.send(entity, 10_000)
        assert tuple(one.key for one in answer.coordinators) == keys
        found = answer.coordinators
    else:
        found = []
        for key in keys:
            entity = fill(m.FindCoordinatorRequest, key=key, key_type=key_type)
            found.append(await connection.send(entity, 10_000))
    return [
        (one.error_code, one.node_id, one.port, getattr(one, "error_message", None))
        for one in found
    ]


@pytest.mark.parametrize("version", range(7))
def test_a_group_brings_the_topic_about_and_is_where_its_partition_is_led(tmp_path, version):
    async def main():
        async with cluster(tmp_path, (1, 2), offsets_topic_replication_factor=2) as c:
            connection = await c.connect(1)
            [(error, node_id, port, message)] = await ask(connection, version, ("a",))
            assert (error, node_id, port) == (NOBODY, -1, -1)
            if version >= 1:
                assert message == "the topic of offsets is being created"
            await until(lambda: c.brokers[1].context.image.topic(OFFSETS_TOPIC))
            image = c.controller.image
            assert len(image.topic(OFFSETS_TOPIC).partitions) == 50
            found = await ask(connection, version, ("a", "b"))
            # The hashes of "a" and "b" are 97 and 98.
            leaders = [image.partition(OFFSETS_TOPIC, index).leader for index in (47, 48)]
            assert sorted(leaders) == [1, 2]
            ports = [c.servers[leader].port for leader in leaders]
            assert [(error, node_id, port) for error, node_id, port, _ in found] == [
                (ErrorCode.none, leader, port) for leader, port in zip(leaders, ports, strict=True)
            ]
            c.controller.set_leader(OFFSETS_TOPIC, 47, -1)
            await until(lambda: c.brokers[1].context.image.partition(OFFSETS_TOPIC, 47).leader < 0)
            [(error, *_), (other, *_)] = await ask(connection, version, ("a", "b"))
            assert (error, other) == (NOBODY, ErrorCode.none)

    asyncio.run(main())


def test_other_kinds_of_keys(tmp_path):
    async def main():
        async with cluster(tmp_path) as c:
            connection = await c.connect(1)
            for version in range(1, 7):
                [(error, _, _, message)] = await ask(connection, version, ("t",), 1)
                assert (error, message[-18:]) == (NOBODY, "a transactional id")
                [(error, _, _, message)] = await ask(connection, version, ("t",), 9)
                assert error is ErrorCode.invalid_request
                assert "9" in message
                [(error, node_id, _, _)] = await ask(connection, version, ("x" * 32_001,))
                assert (error, node_id) == (ErrorCode.invalid_request, -1)
            assert c.controller.image.topic(OFFSETS_TOPIC) is None

    asyncio.run(main())


def test_more_keys_than_can_be_looked_for_close_the_connection(tmp_path):
    async def main():
        async with cluster(tmp_path) as c:
            connection = await c.connect(1)
            assert len(await ask(connection, 6, ("k" * 30_000,) * 60)) == 60
            with pytest.raises(ConnectionLost):
                await ask(connection, 6, ("k" * 30_000,) * 80)

    asyncio.run(main())
