"""Followers and long polls: divergence, log starts, limits, wake-ups, deletes."""

import asyncio
from datetime import timedelta

from broker_fakes import cluster, until
from test_broker_end_to_end import batch, fetch, produce, values_of

from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, request_module


def replica_of(c, broker_id, topic="t", index=0):
    return c.brokers[broker_id].replicas.find(topic, None, index)


def cut_off(broker):
    """The broker's fetchers find nobody any more; returns what heals it."""
    fetchers = broker.fetchers
    address = fetchers.address
    fetchers.address = lambda _: None
    for fetcher in fetchers._by_source.values():
        if fetcher._connection is not None:
            fetcher._connection.close()

    def heal():
        fetchers.address = address

    return heal


async def replicated(c, replicas, configs=None):
    c.controller.create_topic("t", 1, replicas, configs)
    await until(lambda: all(len(c.brokers[r].replicas) == 1 for r in replicas))
    return await c.connect(replicas[0])


def content(replica):
    found = []
    offset = replica.log.log_start_offset
    while offset < replica.log.end_offset:
        part = replica.log.read(offset, 1 << 20)
        found += values_of(part.file.pread(part.length, part.position))
        offset = part.next_offset
    return found


def test_logs_that_parted_come_together(tmp_path):
    async def main():
        async with cluster(tmp_path, (1, 2, 3), replica_lag_time_max_ms=60_000) as c:
            first = await replicated(c, (1, 2, 3))
            await produce(first, "t", 0, batch(b"shared"))
            heals = [cut_off(c.brokers[2]), cut_off(c.brokers[3])]
            for i in range(3):
                await produce(first, "t", 0, batch(b"lost-%d" % i), acks=1)
            c.controller.set_leader("t", 0, 2)
            await until(lambda: replica_of(c, 2).core.is_leader)
            second = await c.connect(2)
            await produce(second, "t", 0, batch(b"kept-0"), acks=1)
            # 3 leads for an epoch in which it writes nothing, then 2 again.
            c.controller.set_leader("t", 0, 3)
            c.controller.set_leader("t", 0, 2)
            await until(lambda: replica_of(c, 2).core.leader_epoch == 3)
            await produce(second, "t", 0, batch(b"kept-1"), acks=1)
            for heal in heals:
                heal()
            answer = await produce(second, "t", 0, batch(b"kept-2"))
            assert answer.error_code is ErrorCode.none
            wanted = [b"shared", b"kept-0", b"kept-1", b"kept-2"]
            for broker_id in (1, 2, 3):
                assert content(replica_of(c, broker_id)) == wanted
            assert len({tuple(replica_of(c, b).log.epochs.entries()) for b in (1, 2, 3)}) == 1

    asyncio.run(main())


def test_a_follower_behind_the_log_start_begins_anew(tmp_path):
    async def main():
        async with cluster(tmp_path, (1, 2), replica_lag_time_max_ms=300) as c:
            connection = await replicated(c, (1, 2))
            await produce(connection, "t", 0, batch(b"0"))
            heal = cut_off(c.brokers[2])
            for i in range(1, 6):
                await produce(connection, "t", 0, batch(b"%d" % i), timeout_ms=9000)
            replica_of(c, 1).advance_log_start(4)
            heal()
            await until(lambda: sorted(c.controller.image.partition("t", 0).isr) == [1, 2])
            assert replica_of(c, 2).log.log_start_offset == 4
            assert content(replica_of(c, 2)) == [b"4", b"5"]

    asyncio.run(main())


def test_a_follower_whose_log_begins_behind_the_leaders_end_begins_anew(tmp_path):
    async def main():
        async with cluster(tmp_path, (1, 2), replica_lag_time_max_ms=300) as c:
            connection = await replicated(c, (1, 2))
            for i in range(3):
                await produce(connection, "t", 0, batch(b"%d" % i))
            heal = cut_off(c.brokers[2])
            # As a log start that was written down and records that were not leave it.
            replica_of(c, 2).restart_at(1000)
            heal()
            await produce(connection, "t", 0, batch(b"3"), timeout_ms=9000)
            await until(lambda: content(replica_of(c, 2)) == [b"0", b"1", b"2", b"3"])
            await until(lambda: sorted(c.controller.image.partition("t", 0).isr) == [1, 2])

    asyncio.run(main())


def test_delete_records_waits_for_the_followers(tmp_path):
    async def main():
        async with cluster(tmp_path, (1, 2)) as c:
            connection = await replicated(c, (1, 2))
            for i in range(4):
                await produce(connection, "t", 0, batch(b"%d" % i))

            def request(offset, timeout_ms):
                m = request_module(ApiKey.DELETE_RECORDS, 2)
                partition = m.DeleteRecordsPartition(partition_index=0, offset=offset)
                return m.DeleteRecordsRequest(
                    topics=(m.DeleteRecordsTopic(name="t", partitions=(partition,)),),
                    timeout=timedelta(milliseconds=timeout_ms),
                )

            answer = await connection.send(request(-1, 5000), 9000)
            [p] = answer.topics[0].partitions
            assert (p.error_code, p.low_watermark) == (ErrorCode.none, 4)
            assert replica_of(c, 2).log.log_start_offset == 4
            cut_off(c.brokers[2])
            await produce(connection, "t", 0, batch(b"4"), acks=1)
            replica_of(c, 1).core.high_watermark = 5
            answer = await connection.send(request(5, 100), 9000)
            [p] = answer.topics[0].partitions
            assert (p.error_code, p.low_watermark) == (ErrorCode.request_timed_out, -1)

    asyncio.run(main())


def test_a_long_poll_counts_bytes(tmp_path):
    async def main():
        async with cluster(tmp_path, (1, 2)) as c:
            connection = await replicated(c, (1, 2))
            size = len(batch(b"x" * 100))
            readers = [await c.connect(1) for _ in range(20)]
            parked = [
                asyncio.ensure_future(
                    fetch(r, "t", 0, 0, wait_ms=9000, min_bytes=3 * size)
                    if i % 2
                    else fetch(r, "t", 0, 0, wait_ms=9000)
                )
                for i, r in enumerate(readers)
            ]
            await until(lambda: len(replica_of(c, 1).consumers) == 20)
            await produce(connection, "t", 0, batch(b"x" * 100))
            await asyncio.wait(parked[0::2])
            assert not any(p.done() for p in parked[1::2])
            assert len(replica_of(c, 1).consumers) == 10
            for _ in range(2):
                await produce(connection, "t", 0, batch(b"x" * 100))
            done = await asyncio.gather(*parked[1::2])
            assert {len(values_of(p.records)) for p in done} == {3}
            assert len(replica_of(c, 1).consumers) == 0
            late = await fetch(connection, "t", 0, 3, wait_ms=50)
            assert (late.error_code, late.records) == (ErrorCode.none, b"")
            # A consumer that went away leaves nothing behind once it is looked at.
            gone = asyncio.ensure_future(fetch(readers[0], "t", 0, 3, wait_ms=9000))
            await until(lambda: len(replica_of(c, 1).consumers) == 1)
            readers[0].close()
            await asyncio.wait([gone])
            gone.exception()
            await produce(connection, "t", 0, batch(b"y"))
            await until(lambda: len(replica_of(c, 1).consumers) == 0)

    asyncio.run(main())


def test_limits_of_a_fetch_over_many_partitions(tmp_path):
    async def main():
        async with cluster(tmp_path) as c:
            c.controller.create_topic("t", 4)
            await until(lambda: len(c.brokers[1].replicas) == 4)
            connection = await c.connect(1)
            size = len(batch(b"x" * 1000))
            for index in range(4):
                for _ in range(5):
                    await produce(connection, "t", index, batch(b"x" * 1000))

            async def ask(max_bytes, partition_bytes):
                m = request_module(ApiKey.FETCH, 11)
                partitions = tuple(
                    fill(
                        m.FetchPartition,
                        partition=index,
                        fetch_offset=0,
                        partition_max_bytes=partition_bytes,
                    )
                    for index in range(4)
                )
                request = fill(
                    m.FetchRequest,
                    max_wait=timedelta(0),
                    min_bytes=1,
                    max_bytes=max_bytes,
                    topics=(m.FetchTopic(topic="t", partitions=partitions),),
                    forgotten_topics_data=(),
                )
                answer = await connection.send(request, 5000)
                return [len(p.records or b"") // size for p in answer.responses[0].partitions]

            assert await ask(1 << 20, 1 << 20) == [5, 5, 5, 5]
            assert await ask(1 << 20, 2 * size) == [2, 2, 2, 2]
            assert await ask(3 * size, 2 * size) == [2, 1, 0, 0]
            assert await ask(1, 1) == [1, 0, 0, 0], "at least one batch"

    asyncio.run(main())


def test_settings_of_a_topic_change_while_it_runs(tmp_path):
    async def main():
        async with cluster(tmp_path) as c:
            await replicated(c, (1,))
            replica = replica_of(c, 1)
            assert replica.settings.log.retention_ms == 7 * 86_400_000
            from metadata.records import types as t

            c.controller.commit(
                t.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
                t.ConfigRecord(
                    resource_type=4, resource_name="", name="min.insync.replicas", value="2"
                ),
            )
            await until(lambda: replica.log.config.retention_ms == 5)
            assert replica.core.min_isr == 2

    asyncio.run(main())


def test_a_replica_that_moves_away_is_removed(tmp_path):
    async def main():
        async with cluster(tmp_path, (1, 2)) as c:
            from metadata.records import types as t

            await replicated(c, (1, 2))
            topic = c.controller.image.topic("t")
            c.controller.commit(
                t.PartitionChangeRecord(
                    partition_id=0, topic_id=topic.id, replicas=(1,), isr=(1,), leader=1
                )
            )
            await until(lambda: len(c.brokers[2].replicas) == 0)
            await c.brokers[2].replicas.settled()
            names = c.env.disk.list_dir(f"{tmp_path}/broker-2")
            assert "t-0" not in names
            assert any(name.endswith("-delete") for name in names)

    asyncio.run(main())


def test_a_refused_isr_change_is_tried_again(tmp_path):
    async def main():
        async with cluster(tmp_path, (1, 2)) as c:
            connection = await replicated(c, (1, 2))
            await c.kill_broker(2)
            c.controller.fence(2)
            await until(lambda: replica_of(c, 1).core.isr == (1,))
            await produce(connection, "t", 0, batch(b"a"))
            c.controller.refuse_next = [
                ErrorCode.ineligible_replica,
                ErrorCode.unknown_server_error,
                ErrorCode.not_controller,
            ]
            await c.start_broker(2)
            await until(lambda: sorted(c.controller.image.partition("t", 0).isr) == [1, 2])
            assert c.controller.refuse_next == []
            await until(lambda: replica_of(c, 1).core.isr == (1, 2))

    asyncio.run(main())
