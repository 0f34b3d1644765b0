"""The rules of Produce: acks, minimum ISR, sequences, what a topic's settings ask of a batch."""

import asyncio
from datetime import timedelta

import pytest
from broker_fakes import cluster, until
from test_broker_end_to_end import batch, fetch, produce, values_of

from net.client import Connection
from net.errors import ConnectionLost
from wire.apis import ApiKey, ErrorCode
from wire.batch import build_batch, decode_records, iter_headers, read_header
from wire.messages import request_module


async def one_topic(c, replicas=(1,), configs=None):
    c.controller.create_topic("t", 1, replicas, configs)
    await until(lambda: all(len(c.brokers[r].replicas) == 1 for r in replicas))
    return await c.connect(replicas[0])


def on_one_broker(tmp_path, test, configs=None):
    async def main():
        async with cluster(tmp_path) as c:
            await test(c, await one_topic(c, configs=configs))

    asyncio.run(main())


def test_acks_zero_is_silent_and_ends_the_connection_on_an_error(tmp_path):
    async def test(c, connection):
        module = request_module(ApiKey.PRODUCE, 9)

        def send(on, records):
            request = module.ProduceRequest(
                transactional_id=None,
                acks=0,
                timeout=timedelta(seconds=1),
                topic_data=(
                    module.TopicProduceData(
                        name="t",
                        partition_data=(module.PartitionProduceData(index=0, records=records),),
                    ),
                ),
            )
            return asyncio.ensure_future(on.send(request, 3000))

        silent = send(connection, batch(b"a"))
        replica = c.brokers[1].replicas.find("t", None, 0)
        await until(lambda: replica.log.end_offset == 1)
        answer = await produce(connection, "t", 0, batch(b"b"))
        assert answer.base_offset == 1
        assert not silent.done()
        refused = send(connection, batch(b"c")[:-1] + b"?")
        for waiting in (silent, refused):
            with pytest.raises(ConnectionLost):
                await waiting
        assert replica.log.end_offset == 2

    on_one_broker(tmp_path, test)


def test_wrong_acks(tmp_path):
    async def test(c, connection):
        answer = await produce(connection, "t", 0, batch(b"a"), acks=2)
        assert answer.error_code is ErrorCode.invalid_required_acks
        assert "acks is 2" in answer.error_message

    on_one_broker(tmp_path, test)


@pytest.mark.parametrize(
    "records, code",
    [
        (None, ErrorCode.invalid_record),
        (b"", ErrorCode.invalid_record),
        (batch(b"a")[:40], ErrorCode.corrupt_message),
        (batch(b"a") + batch(b"b"), ErrorCode.invalid_record),
        (batch(b"a", base_offset=5), ErrorCode.invalid_record),
        (batch(b"a", control=True), ErrorCode.invalid_record),
        (batch(b"x" * 1_100_000), ErrorCode.message_too_large),
        (
            batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
            ErrorCode.invalid_txn_state,
        ),
    ],
)
def test_bad_records(tmp_path, records, code):
    async def test(c, connection):
        answer = await produce(connection, "t", 0, records)
        assert answer.error_code is code
        assert answer.error_message
        assert (await produce(connection, "t", 0, batch(b"ok"))).base_offset == 0

    on_one_broker(tmp_path, test)


def test_idempotent_producer(tmp_path):
    async def test(c, connection):
        def sequenced(sequence, epoch=0):
            return batch(b"a", b"b", producer_id=7, producer_epoch=epoch, base_sequence=sequence)

        for i in range(8):
            assert (await produce(connection, "t", 0, sequenced(2 * i))).base_offset == 2 * i
        for i in range(3, 8):  # the last five are known
            again = await produce(connection, "t", 0, sequenced(2 * i))
            assert (again.error_code, again.base_offset) == (ErrorCode.none, 2 * i)
        for sequence, epoch, code in (
            (4, 0, ErrorCode.out_of_order_sequence_number),
            (30, 0, ErrorCode.out_of_order_sequence_number),
            (5, 1, ErrorCode.out_of_order_sequence_number),
        ):
            answer = await produce(connection, "t", 0, sequenced(sequence, epoch))
            assert answer.error_code is code
        assert (await produce(connection, "t", 0, sequenced(0, 1))).base_offset == 16
        answer = await produce(connection, "t", 0, sequenced(16, 0))
        assert answer.error_code is ErrorCode.invalid_producer_epoch
        assert c.brokers[1].replicas.find("t", None, 0).log.end_offset == 18

    on_one_broker(tmp_path, test)


def test_a_compacted_topic_wants_keys(tmp_path):
    async def test(c, connection):
        records = build_batch([(1, b"k", b"v", ()), (2, None, b"v", ())])
        answer = await produce(connection, "t", 0, records)
        assert answer.error_code is ErrorCode.invalid_record
        assert [e.batch_index for e in answer.record_errors] == [1]
        assert answer.record_errors[0].batch_index_error_message
        assert (
            await produce(connection, "t", 0, build_batch([(1, b"k", None, ())]))
        ).base_offset == 0

    on_one_broker(tmp_path, test, {"cleanup.policy": "compact"})


def test_log_append_time(tmp_path):
    async def test(c, connection):
        before = c.env.clock.wall_ms()
        answer = await produce(connection, "t", 0, batch(b"a", b"b"))
        stamp = round(answer.log_append_time.timestamp() * 1000)
        assert stamp >= before
        got = bytes((await fetch(connection, "t", 0, 0)).records)
        header = read_header(got)
        assert (header.timestamp_type, header.max_timestamp) == (1, stamp)
        assert [r.timestamp for r in decode_records(got, 0, header)] == [stamp, stamp]

    on_one_broker(tmp_path, test, {"message.timestamp.type": "LogAppendTime"})


def test_a_topics_codec_wins(tmp_path):
    async def test(c, connection):
        await produce(
            connection,
            "t",
            0,
            batch(b"a" * 500, codec=1, base_sequence=3, producer_id=4, producer_epoch=5),
        )
        await produce(connection, "t", 0, batch(b"b", codec=3))
        got = bytes((await fetch(connection, "t", 0, 0)).records)
        headers = [h for _, h in iter_headers(got)]
        assert [h.codec for h in headers] == [3, 3]
        assert (headers[0].producer_id, headers[0].producer_epoch, headers[0].base_sequence) == (
            4,
            5,
            3,
        )
        assert values_of(got) == [b"a" * 500, b"b"]

    on_one_broker(tmp_path, test, {"compression.type": "lz4"})


def test_internal_topics_belong_to_the_brokers(tmp_path):
    async def main():
        async with cluster(tmp_path) as c:
            c.controller.create_topic("__consumer_offsets")
            await until(lambda: len(c.brokers[1].replicas) == 1)
            connection = await c.connect(1)
            answer = await produce(connection, "__consumer_offsets", 0, batch(b"a"))
            assert answer.error_code is ErrorCode.invalid_topic_exception
            admin = await Connection.connect(
                c.env,
                "127.0.0.1",
                c.servers[1].port,
                client_id="__admin_client",
                timeout_ms=5000,
            )
            answer = await produce(admin, "__consumer_offsets", 0, batch(b"a"))
            assert answer.error_code is ErrorCode.none

    asyncio.run(main())


def test_min_insync_replicas(tmp_path):
    async def main():
        async with cluster(tmp_path, (1, 2)) as c:
            connection = await one_topic(c, (1, 2), {"min.insync.replicas": "2"})
            assert (await produce(connection, "t", 0, batch(b"a"))).error_code is ErrorCode.none
            await c.kill_broker(2)
            c.controller.fence(2)
            replica = c.brokers[1].replicas.find("t", None, 0)
            await until(lambda: replica.core.isr == (1,))
            answer = await produce(connection, "t", 0, batch(b"b"))
            assert answer.error_code is ErrorCode.not_enough_replicas
            assert replica.log.end_offset == 1
            answer = await produce(connection, "t", 0, batch(b"c"), acks=1)
            assert answer.error_code is ErrorCode.none
            assert (await fetch(connection, "t", 0, 1)).records in (None, b"")
            assert replica.core.high_watermark == 1
            assert c.brokers[1].replicas.under_min_isr == 1

    asyncio.run(main())


def test_acks_all_times_out_and_keeps_the_data(tmp_path):
    async def main():
        async with cluster(tmp_path, (1, 2)) as c:
            connection = await one_topic(c, (1, 2))
            await produce(connection, "t", 0, batch(b"a"))
            await c.brokers[2].fetchers.close()
            answer = await produce(connection, "t", 0, batch(b"b"), timeout_ms=50)
            assert answer.error_code is ErrorCode.request_timed_out
            assert c.brokers[1].replicas.find("t", None, 0).log.end_offset == 2

    asyncio.run(main())


def test_a_waiting_produce_is_told_that_leadership_went(tmp_path):
    async def main():
        async with cluster(tmp_path, (1, 2)) as c:
            connection = await one_topic(c, (1, 2))
            await produce(connection, "t", 0, batch(b"a"))
            await c.brokers[2].fetchers.close()
            waiting = asyncio.ensure_future(
                produce(connection, "t", 0, batch(b"b"), timeout_ms=9000, version=12)
            )
            replica = c.brokers[1].replicas.find("t", None, 0)
            await until(lambda: replica.log.end_offset == 2)
            c.controller.set_leader("t", 0, 2, (2,))
            answer = await waiting
            assert answer.error_code is ErrorCode.not_leader_or_follower
            assert answer.current_leader.leader_id == 2

    asyncio.run(main())


def test_a_deleted_topic_answers_and_its_name_can_be_used_again(tmp_path):
    async def test(c, connection):
        await produce(connection, "t", 0, batch(b"a"))
        parked = asyncio.ensure_future(fetch(connection, "t", 0, 1, wait_ms=9000))
        await asyncio.sleep(0.05)
        c.controller.delete_topic("t")
        assert (await parked).error_code is ErrorCode.unknown_topic_or_partition
        answer = await produce(connection, "t", 0, batch(b"b"))
        assert answer.error_code is ErrorCode.unknown_topic_or_partition
        c.controller.create_topic("t")
        c.controller.create_topic("u")
        await until(lambda: len(c.brokers[1].replicas) == 2)
        assert (await produce(connection, "t", 0, batch(b"c"))).base_offset == 0
        assert values_of((await fetch(connection, "t", 0, 0)).records) == [b"c"]

    on_one_broker(tmp_path, test)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_produce_waits_for_the_log_that_is_being_opened(tmp_path, acks):
    async def main():
        async with cluster(tmp_path) as c:
            connection = await c.connect(1)
            store = c.brokers[1].store
            original = store.open

            async def slow(*args, **more):
                await asyncio.sleep(0.2)
                return await original(*args, **more)

            store.open = slow
            c.controller.create_topic("t")
            await until(lambda: c.brokers[1].context.image.topic("t") is not None)
            assert len(c.brokers[1].replicas) == 0
            sends = [
                asyncio.ensure_future(produce(connection, "t", 0, batch(b"%d" % i), acks=acks))
                for i in range(5)
            ]
            if acks == 0:
                await until(lambda: len(c.brokers[1].replicas) == 1)
                replica = c.brokers[1].replicas.find("t", None, 0)
                await until(lambda: replica.log.end_offset == 5)
                for send in sends:
                    send.cancel()
            else:
                answers = await asyncio.gather(*sends)
                assert [a.base_offset for a in answers] == [0, 1, 2, 3, 4]
            got = await fetch(connection, "t", 0, 0)
            assert values_of(got.records) == [b"%d" % i for i in range(5)]

    asyncio.run(main())
