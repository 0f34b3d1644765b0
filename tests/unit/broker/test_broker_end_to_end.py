"""Brokers in this process, a small controller, requests over real connections."""

import asyncio

from broker_fakes import cluster, until

from wire.apis import ApiKey, ErrorCode
from wire.batch import build_batch, decode_records, iter_headers
from wire.messages import millis


def batch(*values, **kwargs):
    return build_batch(
        [(1_700_000_000_000 + i, None, v, ()) for i, v in enumerate(values)], **kwargs
    )


async def produce(connection, topic, index, records, *, acks=-1, timeout_ms=5000, version=9):
    def build(v, m):
        return m.ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout=millis(timeout_ms),
            topic_data=(
                m.TopicProduceData(
                    name=topic,
                    partition_data=(m.PartitionProduceData(index=index, records=records),),
                ),
            ),
        )

    answer = await connection.call(ApiKey.PRODUCE, build, 10_000, max_version=version)
    return answer.responses[0].partition_responses[0]


async def fetch(connection, topic, index, offset, *, wait_ms=0, min_bytes=1, version=11):
    def build(v, m):
        return m.FetchRequest(
            max_wait=millis(wait_ms),
            min_bytes=min_bytes,
            topics=(
                m.FetchTopic(
                    topic=topic,
                    partitions=(
                        m.FetchPartition(
                            partition=index, fetch_offset=offset, partition_max_bytes=1 << 20
                        ),
                    ),
                ),
            ),
            forgotten_topics_data=(),
        )

    answer = await connection.call(ApiKey.FETCH, build, 10_000, max_version=version)
    return answer.responses[0].partitions[0]


def values_of(records):
    data = bytes(records or b"")
    return [r.value for pos, h in iter_headers(data) for r in decode_records(data, pos, h)]


def test_produce_and_fetch(tmp_path):
    async def main():
        async with cluster(tmp_path) as c:
            c.controller.create_topic("t")
            await until(lambda: len(c.brokers[1].replicas) == 1)
            connection = await c.connect(1)
            answer = await produce(connection, "t", 0, batch(b"a", b"b"))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
            answer = await produce(connection, "t", 0, batch(b"c"), acks=1)
            assert answer.base_offset == 2
            got = await fetch(connection, "t", 0, 0)
            assert values_of(got.records) == [b"a", b"b", b"c"]
            assert got.high_watermark == 3
            waiting = asyncio.ensure_future(fetch(connection, "t", 0, 3, wait_ms=5000))
            await asyncio.sleep(0.05)
            other = await c.connect(1)
            await produce(other, "t", 0, batch(b"d"))
            assert values_of((await waiting).records) == [b"d"]
            got = await fetch(connection, "t", 0, 9)
            assert got.error_code is ErrorCode.offset_out_of_range

    asyncio.run(main())


def test_three_replicas_failover_and_return(tmp_path):
    async def main():
        async with cluster(tmp_path, (1, 2, 3)) as c:
            c.controller.create_topic("t", 1, (1, 2, 3), {"min.insync.replicas": "2"})
            await until(lambda: all(len(b.replicas) == 1 for b in c.brokers.values()))
            connection = await c.connect(1)
            for i in range(20):
                answer = await produce(connection, "t", 0, batch(b"%d" % i))
                assert answer.error_code is ErrorCode.none
            await c.kill_broker(1)
            c.controller.fence(1)
            assert c.controller.image.partition("t", 0).leader == 2
            connection = await c.connect(2)
            await until(lambda: c.brokers[2].replicas.leaders == 1)
            for i in range(20, 30):
                answer = await produce(connection, "t", 0, batch(b"%d" % i))
                assert answer.error_code is ErrorCode.none, answer
            got = await fetch(connection, "t", 0, 0)
            assert values_of(got.records) == [b"%d" % i for i in range(30)]
            await c.start_broker(1)
            await until(lambda: sorted(c.controller.image.partition("t", 0).isr) == [1, 2, 3])
            await until(lambda: c.brokers[2].under_replicated == 0)
            replica = c.brokers[1].replicas.find("t", None, 0)
            await until(lambda: replica.core.high_watermark == 30)

    asyncio.run(main())


def test_a_lagging_follower_leaves_the_isr_and_acks_go_on(tmp_path):
    async def main():
        async with cluster(tmp_path, (1, 2), replica_lag_time_max_ms=400) as c:
            c.controller.create_topic("t", 1, (1, 2))
            await until(lambda: all(len(b.replicas) == 1 for b in c.brokers.values()))
            connection = await c.connect(1)
            await produce(connection, "t", 0, batch(b"a"))
            await c.brokers[2].fetchers.close()
            answer = await produce(connection, "t", 0, batch(b"b"), timeout_ms=8000)
            assert answer.error_code is ErrorCode.none
            assert c.controller.image.partition("t", 0).isr == (1,)
            await until(lambda: c.brokers[1].under_replicated == 1)

    asyncio.run(main())


def test_a_controlled_stop_leaves_a_clean_directory(tmp_path):
    async def main():
        async with cluster(tmp_path) as c:
            c.controller.create_topic("t")
            await until(lambda: len(c.brokers[1].replicas) == 1)
            connection = await c.connect(1)
            await produce(connection, "t", 0, batch(b"a"))
            epoch = c.brokers[1].lifecycle.epoch
            await c.stop_broker(1)
            broker = await c.start_broker(1)
            assert broker.store.previous_epoch == epoch
            await until(lambda: broker.replicas.leaders == 1)
            connection = await c.connect(1)
            assert values_of((await fetch(connection, "t", 0, 0)).records) == [b"a"]

    asyncio.run(main())
