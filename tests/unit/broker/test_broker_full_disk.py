"""A full disk costs a broker nothing but the writes that don't fit; a failing one ends it."""

import asyncio

from broker_fakes import cluster, until
from structlog.testing import capture_logs
from test_broker_end_to_end import batch, produce

from wire.apis import ErrorCode
from wire.exits import EXIT_LOG_DIRECTORY_FAILED
from world.memory import Media

OFTEN = {
    "replica_high_watermark_checkpoint_interval_ms": 5,
    "log_flush_offset_checkpoint_interval_ms": 5,
}


def test_a_broker_outlives_a_full_disk():
    async def main():
        async with cluster("/memory", ()) as c:
            media = c.media[1] = Media()
            await c.start_broker(1, **OFTEN)
            c.controller.create_topic("t", 1, (1,))
            await until(lambda: len(c.brokers[1].replicas) == 1)
            connection = await c.connect(1)
            assert (await produce(connection, "t", 0, batch(b"1"))).error_code is ErrorCode.none
            media.faults.space_left = 0
            answer = await produce(connection, "t", 0, batch(b"2"))
            assert answer.error_code is ErrorCode.kafka_storage_error
            # Checkpoints are due meanwhile, and don't fit either.
            with capture_logs() as logs:
                await until(lambda: any(entry["event"] == "disk_full" for entry in logs))
            media.faults.space_left = None
            answer = await produce(connection, "t", 0, batch(b"3"))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 1)
            assert c.fatal == []

    asyncio.run(main())


def test_a_sync_that_fails_ends_the_broker_with_its_code():
    async def main():
        async with cluster("/memory", ()) as c:
            media = c.media[1] = Media()
            await c.start_broker(1, **OFTEN)
            c.controller.create_topic("t", 1, (1,))
            await until(lambda: len(c.brokers[1].replicas) == 1)
            media.faults.failing_syncs = 1
            await produce(await c.connect(1), "t", 0, batch(b"1"))
            await until(lambda: c.fatal)
            assert [error.exit_code for error in c.fatal] == [EXIT_LOG_DIRECTORY_FAILED]
            c.fatal.clear()

    asyncio.run(main())


def test_a_partition_that_a_full_disk_has_no_room_for_is_made_when_it_has():
    async def main():
        async with cluster("/memory", ()) as c:
            media = c.media[1] = Media()
            broker = await c.start_broker(1, replica_lag_time_max_ms=100)
            media.faults.space_left = 0
            with capture_logs() as logs:
                c.controller.create_topic("t", 1, (1,))
                await until(lambda: any(e["event"] == "no_room_for_replica" for e in logs))
            assert len(broker.replicas) == 0
            assert c.fatal == []
            media.faults.space_left = None
            await until(lambda: len(broker.replicas) == 1)
            answer = await produce(await c.connect(1), "t", 0, batch(b"1"))
            assert answer.error_code is ErrorCode.none

    asyncio.run(main())
