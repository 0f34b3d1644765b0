"""How much one fetch gives: whole batches, and never nothing where there is something."""

import asyncio

import pytest
from broker_fakes import cluster, until
from test_broker_end_to_end import batch, produce, values_of
from test_broker_fetch_sessions import Client

from wire.apis import ErrorCode


def sized(number, size, codec=0):
    """A batch of one record of about `size` bytes that don't compress."""
    noise = bytes((number * 7919 + i * i * 31) % 251 for i in range(size))
    return batch(noise, codec=codec), noise


async def filled(c, client, counts, size=1000, codec=0):
    """Batches in the first partitions of t: as many in each as `counts` says; what they hold."""
    producer = await c.connect(1)
    written = {}
    for index, count in enumerate(counts):
        for number in range(count):
            data, noise = sized(number, size, codec)
            await produce(producer, "t", index, data)
            written.setdefault(index, []).append(noise)
    return written


def with_partitions(tmp_path, count, test, version=13, **properties):
    async def main():
        async with cluster(tmp_path, **properties) as c:
            ids = {"t": c.controller.create_topic("t", count)}
            await until(lambda: c.brokers[1].replicas.leaders == count)
            await test(c, Client(await c.connect(1), version, ids))

    asyncio.run(main())


def held(answers):
    return {
        place[1]: values_of(b"".join(map(bytes, answer.records)))
        for place, answer in answers.items()
    }


@pytest.mark.parametrize(
    ("version", "codec"), [(4, 0), (4, 1), (11, 0), (11, 2), (11, 3), (11, 4), (17, 0), (17, 4)]
)
def test_the_first_batch_comes_whole(tmp_path, version, codec):
    """KIP-74: whatever the limits, even of no bytes, the first batch of the first partition that
    has one is given whole, and nothing besides that doesn't fit."""

    async def test(c, client):
        written = await filled(c, client, (0, 2, 2), size=3000, codec=codec)
        offsets = {("t", index): 0 for index in range(3)}
        for max_bytes, partition_bytes in ((1, 1), (0, 0), (1 << 20, 1), (1, 1 << 20), (3500, 9)):
            response, answers = await client.fetch(
                offsets,
                session_epoch=-1,
                max_bytes=max_bytes,
                partition_bytes=partition_bytes,
                wait_ms=20_000,
            )
            assert response.error_code == ErrorCode.none
            assert held(answers) == {0: [], 1: written[1][:1], 2: []}

    with_partitions(tmp_path, 3, test, version=version)


def test_the_next_partitions_get_what_is_left(tmp_path):
    async def test(c, client):
        written = await filled(c, client, (3, 3, 3))
        size = c.brokers[1].replicas.find("t", None, 0).log.size // 3
        offsets = {("t", index): 0 for index in range(3)}

        async def got(**limits):
            _, answers = await client.fetch(offsets, session_epoch=-1, **limits)
            return {index: len(values) for index, values in held(answers).items()}

        assert await got(max_bytes=size * 4 + 10) == {0: 3, 1: 1, 2: 0}
        assert await got(max_bytes=size * 4 - 10) == {0: 3, 1: 0, 2: 0}
        assert await got(partition_bytes=size * 2) == {0: 2, 1: 2, 2: 2}
        # The first batch's size counts, though it was more than its limit.
        assert await got(max_bytes=size * 2, partition_bytes=size - 1) == {0: 1, 1: 0, 2: 0}
        assert await got() == {0: 3, 1: 3, 2: 3}
        for index in range(3):
            _, answers = await client.fetch({("t", index): 1}, session_epoch=-1, max_bytes=1)
            assert held(answers) == {index: written[index][1:2]}

    with_partitions(tmp_path, 3, test)


def test_the_brokers_limit_holds_for_all(tmp_path):
    async def test(c, client):
        await filled(c, client, (4, 4))
        _, answers = await client.fetch({("t", 0): 0, ("t", 1): 0}, session_epoch=-1)
        assert {i: len(v) for i, v in held(answers).items()} == {0: 1, 1: 0}

    with_partitions(tmp_path, 2, test, fetch_max_bytes=1024)


def test_an_old_client_knows_no_storage_errors(tmp_path):
    async def test(c, client):
        await filled(c, client, (1,))
        c.brokers[1].replicas.find("t", None, 0).failed = True
        for version, error in (
            (5, ErrorCode.not_leader_or_follower),
            (6, ErrorCode.kafka_storage_error),
        ):
            client.version = version
            _, answers = await client.fetch({("t", 0): 0}, session_epoch=-1)
            assert answers["t", 0].error_code == error

    with_partitions(tmp_path, 1, test)
