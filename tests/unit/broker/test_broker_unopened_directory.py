"""One of several log directories can't be opened at start: the broker goes on with the others, and
makes nothing anew that may lie in it (KIP-112, KIP-858)."""

import asyncio

from broker_fakes import cluster, until
from test_broker_end_to_end import batch, fetch, produce, values_of

from wire.apis import ApiKey, ErrorCode


async def filled(c):
    """A stopped broker that has a record in each of 6 partitions, in two directories; the
    partitions by directory, and the topic's id."""
    broker = await c.start_broker(1, directories=2)
    topic_id = c.controller.create_topic("t", 6)
    await until(lambda: broker.replicas.leaders == 6)
    connection = await c.connect(1)
    for index in range(6):
        await produce(connection, "t", index, batch(b"%d" % index))
    first, second = (sorted(i for _, i in d.logs) for d in broker.store.directories)
    await c.stop_broker(1)
    return first, second, topic_id


def test_what_may_lie_in_it_is_offline_and_nothing_else(tmp_path):
    async def main():
        async with cluster(tmp_path, ()) as c:
            kept, lost, topic_id = await filled(c)
            broker = await c.start_broker(1, directories=2, failed=[1])
            (directory,) = broker.store.directories
            assert broker.store.directory_ids == (directory.meta.directory_id,)
            assert broker.store.previous_epoch == -1, "not all directories were stopped in order"
            connection = await c.connect(1)
            for index in kept:
                got = await fetch(connection, "t", index, 0)
                assert values_of(got.records) == [b"%d" % index]
            for index in lost:
                answer = await produce(connection, "t", index, batch(b"x"))
                assert answer.error_code is ErrorCode.kafka_storage_error
                answer = await fetch(connection, "t", index, 0)
                assert answer.error_code == ErrorCode.kafka_storage_error
            assert broker.offline == len(lost)
            # Whatever else the controller says of them: their records are there, not here.
            for index in lost:
                c.controller.set_leader("t", index, 1)
            # What is new has never been there.
            c.controller.create_topic("u", 3)
            await until(lambda: sum(t == "u" for t, _ in directory.logs) == 3)
            assert sorted(i for t, i in directory.logs if t == "t") == kept
            assert broker.offline == len(lost)
            # Where a broker has several, the controller is told where they are.
            await until(lambda: {t for _, t, _ in c.controller.assigned} > {topic_id})
            await c.stop_broker(1)
            # Back again, it is taken as it is.
            broker = await c.start_broker(1, directories=2)
            await until(lambda: broker.replicas.leaders == 9)
            connection = await c.connect(1)
            for index in range(6):
                got = await fetch(connection, "t", index, 0)
                assert values_of(got.records) == [b"%d" % index]
            assert broker.offline == 0
            assert c.fatal == []

    asyncio.run(main())


def test_replicas_that_go_are_not_offline_any_more(tmp_path):
    async def main():
        async with cluster(tmp_path, ()) as c:
            _, lost, _ = await filled(c)
            broker = await c.start_broker(1, directories=2, failed=[1])
            await until(lambda: broker.offline == len(lost))
            c.controller.delete_topic("t")
            await until(lambda: broker.offline == 0)

    asyncio.run(main())


def test_a_topic_made_anew_lives_where_the_controller_knows_it(tmp_path):
    """The directory that had failed comes back with the partitions of the old one."""

    async def main():
        async with cluster(tmp_path, ()) as c:
            await filled(c)
            # The first one fails this time, so that it comes before the new one's when it is back.
            broker = await c.start_broker(1, directories=2, failed=[0])
            c.controller.delete_topic("t")
            await until(lambda: len(broker.replicas) == 0)
            c.controller.create_topic("t", 6, directory=broker.store.directory_ids[0])
            await until(lambda: broker.replicas.leaders == 6)
            connection = await c.connect(1)
            for index in range(6):
                await produce(connection, "t", index, batch(b"new-%d" % index))
            await c.stop_broker(1)
            broker = await c.start_broker(1, directories=2)
            old, new = broker.store.directories
            assert (len(old.logs), len(new.logs)) == (0, 6)
            assert old.partitions() == [], "what is left of the old topic is set aside"
            connection = await c.connect(1)
            for index in range(6):
                got = await fetch(connection, "t", index, 0)
                assert values_of(got.records) == [b"new-%d" % index]

    asyncio.run(main())


def test_describe_log_dirs_names_it(tmp_path):
    async def main():
        async with cluster(tmp_path, ()) as c:
            kept, _, _ = await filled(c)
            await c.start_broker(1, directories=2, failed=[1])
            connection = await c.connect(1)
            answer = await connection.call(
                ApiKey.DESCRIBE_LOG_DIRS, lambda v, m: m.DescribeLogDirsRequest(topics=None), 5000
            )
            online, failed = answer.results
            assert online.error_code == ErrorCode.none
            assert [p.partition_index for t in online.topics for p in t.partitions] == kept
            assert failed.error_code == ErrorCode.kafka_storage_error
            assert (failed.log_dir, failed.topics) == (f"{tmp_path}/broker-1-1", ())

    asyncio.run(main())
