"""A broker whose answers differ from their defaults in as many fields as can be: a rack, a fenced
broker, a leader epoch above 0, a log start above 0, topic ids, overrides."""

import asyncio
from datetime import timedelta

from broker_fakes import cluster, until

from wire.apis import ApiKey
from wire.batch import build_batch
from wire.messages import fill, request_module

WALL_MS = 1_700_000_000_000


def batch(*values, start=WALL_MS, **kwargs):
    return build_batch([(start + i, b"k", v, ()) for i, v in enumerate(values)], **kwargs)


class Setup:
    """Topic `t` on brokers 1 and 2 (2 fenced later), led by 1 in epoch 2."""

    def __init__(self, c):
        self.c = c
        self.connection = None
        self.topic_id = None

    async def prepare(self):
        c = self.c
        self.topic_id = c.controller.create_topic(
            "t", 2, (1, 2), {"retention.ms": "123456789", "min.insync.replicas": "1"}
        )
        await until(lambda: all(len(b.replicas) == 2 for b in c.brokers.values()))
        c.controller.set_leader("t", 0, 2)
        c.controller.set_leader("t", 0, 1)
        replica = c.brokers[1].replicas.find("t", None, 0)
        await until(lambda: replica.core.leader_epoch == 2)
        self.connection = await c.connect(1)
        for i in range(3):
            records = batch(b"x%d" % i, b"y%d" % i, start=WALL_MS + 1000 * i)
            await self.produce(13, records)
        await self.call(
            ApiKey.DELETE_RECORDS,
            2,
            lambda m: m.DeleteRecordsRequest(
                topics=(
                    m.DeleteRecordsTopic(
                        name="t",
                        partitions=(m.DeleteRecordsPartition(partition_index=0, offset=2),),
                    ),
                ),
                timeout=timedelta(seconds=5),
            ),
        )
        await c.stop_broker(2)
        await until(lambda: replica.core.isr == (1,))
        self.replica = replica

    async def call(self, key, version, build):
        entity = build(request_module(key, version))
        assert entity.__version__ == version
        return await self.connection.send(entity, 10_000)

    async def produce(self, version, records, *, acks=-1, index=0, name="t", topic_id=None):
        return await self.call(
            ApiKey.PRODUCE,
            version,
            lambda m: m.ProduceRequest(
                transactional_id=None,
                acks=acks,
                timeout=timedelta(seconds=5),
                topic_data=(
                    fill(
                        m.TopicProduceData,
                        name=name,
                        topic_id=topic_id or self.topic_id,
                        partition_data=(m.PartitionProduceData(index=index, records=records),),
                    ),
                ),
            ),
        )


def with_setup(path, test):
    async def main():
        async with cluster(path, (1, 2), broker_rack="rack-a") as c:
            setup = Setup(c)
            await setup.prepare()
            await test(setup)

    asyncio.run(main())
