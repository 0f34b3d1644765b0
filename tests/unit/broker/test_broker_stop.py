"""A broker that is told to stop, while something else goes on: it recovers its logs, which ends at
once; or the cluster changes."""

import asyncio
import dataclasses

from broker_fakes import cluster, until
from test_broker_end_to_end import batch, fetch, produce, values_of

from world.memory import Media


def on_memory(story, partitions):
    """`story` gets a cluster, its broker, which leads all partitions of topic `t`, its disk in
    memory, and the path of the mark of a clean stop."""

    async def main():
        async with cluster("/memory", ()) as c:
            media = c.media[1] = Media()
            broker = await c.start_broker(1)
            c.controller.create_topic("t", partitions)
            await until(lambda: broker.replicas.leaders == partitions)
            (directory,) = broker.store.directories
            await story(c, broker, media, f"{directory.path}/.kafka_cleanshutdown")

    asyncio.run(main())


def test_a_stop_breaks_recovery_off_and_the_next_start_finds_everything():
    async def story(c, broker, media, mark):
        connection = await c.connect(1)
        for index in range(12):
            await produce(connection, "t", index, batch(b"%d" % index))
        await c.kill_broker(1)
        env, reading, read = c.env, [], []

        async def run_blocking(function, *args):
            if len(read) < 2:
                read.append(function)
                return await env.run_blocking(function, *args)
            reading.append(function)
            return await asyncio.Event().wait()

        c.env = dataclasses.replace(env, run_blocking=run_blocking)
        broker = await c.start_broker(1, wait=False)
        await until(lambda: len(reading) == 8)
        assert broker.state == "recovery"
        async with asyncio.timeout(2):
            await c.stop_broker(1)
        assert len(broker.replicas) == 2
        assert len(reading) == 8, "no other is begun"
        assert not media.mount().exists(mark)
        assert c.fatal == []
        c.env = env
        await c.start_broker(1)
        connection = await c.connect(1)
        for index in range(12):
            got = await fetch(connection, "t", index, 0)
            assert values_of(got.records) == [b"%d" % index]
        await c.stop_broker(1)
        assert media.mount().exists(mark)

    on_memory(story, partitions=12)


def test_a_broker_that_is_stopped_before_it_has_registered_keeps_its_clean_mark():
    async def story(c, broker, media, mark):
        await c.stop_broker(1)
        await c.start_broker(1, wait=False)
        async with asyncio.timeout(2):
            await c.stop_broker(1)
        assert b":%d}" % broker.lifecycle.epoch in media.mount().read_bytes(mark)
        again = await c.start_broker(1)
        assert again.store.previous_epoch == broker.lifecycle.epoch

    on_memory(story, partitions=1)


def test_a_topic_deleted_while_its_logs_are_closed_goes_with_the_next_start():
    async def story(c, broker, media, mark):
        connection = await c.connect(1)
        await produce(connection, "t", 0, batch(b"a"))
        (directory,) = broker.store.directories
        close = broker.store.close

        async def close_slowly(epoch):
            c.controller.delete_topic("t")
            await until(lambda: broker.context.image.topic("t") is None)
            await broker.replicas.settled()
            assert directory.partitions() == [("t", 0)]
            await close(epoch)

        broker.store.close = close_slowly
        await c.stop_broker(1)
        assert media.mount().exists(mark)
        broker = await c.start_broker(1)
        (directory,) = broker.store.directories
        assert not directory.partitions()

    on_memory(story, partitions=1)
