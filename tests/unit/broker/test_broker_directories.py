"""Several log directories, and disks that are full or broken."""

import asyncio

from broker_fakes import cluster, until
from test_broker_end_to_end import batch, fetch, produce, values_of

from wire.apis import ErrorCode
from world.memory import Media


def test_partitions_spread_over_directories_and_the_controller_is_told(tmp_path):
    async def main():
        async with cluster(tmp_path, ()) as c:
            broker = await c.start_broker(1, directories=3)
            topic_id = c.controller.create_topic("t", 6)
            await until(lambda: len(broker.replicas) == 6)
            counts = [len(d.logs) for d in broker.store.directories]
            assert counts == [2, 2, 2]
            await until(lambda: len(c.controller.assigned) == 6)
            where = {
                (d.meta.directory_id, topic_id, index)
                for d in broker.store.directories
                for _, index in d.logs
            }
            assert set(c.controller.assigned) == where
            connection = await c.connect(1)
            for index in range(6):
                await produce(connection, "t", index, batch(b"%d" % index))
            await c.stop_broker(1)
            broker = await c.start_broker(1, directories=3)
            connection = await c.connect(1)
            await until(lambda: broker.replicas.leaders == 6)
            for index in range(6):
                got = await fetch(connection, "t", index, 0)
                assert values_of(got.records) == [b"%d" % index]

    asyncio.run(main())


def test_a_full_disk_stops_acknowledging_and_loses_nothing(tmp_path):
    async def main():
        async with cluster("/memory", ()) as c:
            media = c.media[1] = Media()
            broker = await c.start_broker(1)
            c.controller.create_topic("t")
            await until(lambda: len(broker.replicas) == 1)
            connection = await c.connect(1)
            assert (await produce(connection, "t", 0, batch(b"a"))).error_code is ErrorCode.none
            media.faults.space_left = 30
            answer = await produce(connection, "t", 0, batch(b"b"))
            assert answer.error_code is ErrorCode.kafka_storage_error
            assert values_of((await fetch(connection, "t", 0, 0)).records) == [b"a"]
            media.faults.space_left = None
            answer = await produce(connection, "t", 0, batch(b"c"))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 1)
            assert values_of((await fetch(connection, "t", 0, 0)).records) == [b"a", b"c"]

    asyncio.run(main())
