"""Every version that a broker advertises, asked over a connection and decoded by kio."""

import asyncio
from datetime import timedelta

import pytest
from broker_api_rig import WALL_MS, Setup, batch, with_setup
from broker_fakes import CLUSTER_ID, cluster, until

from wire.apis import ApiKey, ErrorCode
from wire.batch import decode_records, iter_headers
from wire.messages import fill


def test_what_is_advertised_is_what_is_tested(tmp_path):
    async def test(s):
        offered = {
            key: s.connection.offers(key) for key in ApiKey if s.connection.offers(key) is not None
        }
        assert offered == {
            ApiKey.PRODUCE: (0, 13),
            ApiKey.FETCH: (4, 18),
            ApiKey.LIST_OFFSETS: (1, 11),
            ApiKey.METADATA: (0, 13),
            ApiKey.OFFSET_COMMIT: (2, 10),
            ApiKey.OFFSET_FETCH: (1, 10),
            ApiKey.FIND_COORDINATOR: (0, 6),
            ApiKey.JOIN_GROUP: (0, 9),
            ApiKey.HEARTBEAT: (0, 4),
            ApiKey.LEAVE_GROUP: (0, 5),
            ApiKey.SYNC_GROUP: (0, 5),
            ApiKey.DESCRIBE_GROUPS: (0, 6),
            ApiKey.LIST_GROUPS: (0, 5),
            ApiKey.API_VERSIONS: (0, 4),
            ApiKey.CREATE_TOPICS: (2, 7),
            ApiKey.DELETE_TOPICS: (1, 6),
            ApiKey.DELETE_RECORDS: (0, 2),
            ApiKey.INIT_PRODUCER_ID: (0, 5),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
            ApiKey.DESCRIBE_CONFIGS: (1, 4),
            ApiKey.ALTER_CONFIGS: (0, 2),
            ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
            ApiKey.CREATE_PARTITIONS: (0, 3),
            ApiKey.DELETE_GROUPS: (0, 2),
            ApiKey.ELECT_LEADERS: (0, 2),
            ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
            ApiKey.OFFSET_DELETE: (0, 0),
            ApiKey.DESCRIBE_QUORUM: (0, 2),
            ApiKey.UPDATE_FEATURES: (0, 2),
            ApiKey.ADD_RAFT_VOTER: (0, 1),
            ApiKey.REMOVE_RAFT_VOTER: (0, 0),
            ApiKey.DESCRIBE_CLUSTER: (0, 2),
            ApiKey.DESCRIBE_PRODUCERS: (0, 0),
            ApiKey.UNREGISTER_BROKER: (0, 0),
            ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
            ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
        }

    with_setup(tmp_path, test)


def test_produce(tmp_path):
    async def test(s):
        end = s.replica.log.end_offset
        for version in range(3, 14):
            answer = await s.produce(version, batch(b"a", b"b"))
            [topic] = answer.responses
            [p] = topic.partition_responses
            assert (p.index, p.error_code, p.base_offset) == (0, ErrorCode.none, end)
            if version >= 5:
                assert p.log_start_offset == 2
            if version >= 13:
                assert topic.topic_id == s.topic_id
            else:
                assert topic.name == "t"
            end += 2
            # A refusal, with everything that it may say. Partition 1 is led by 2, which is gone.
            refused = await s.produce(version, batch(b"a")[:-1] + b"?")
            [p] = refused.responses[0].partition_responses
            assert p.error_code is ErrorCode.corrupt_message
            assert p.base_offset == -1
            if version >= 8:
                assert "CRC" in p.error_message
            nobody = await s.produce(version, batch(b"a"), index=7)
            [p] = nobody.responses[0].partition_responses
            assert p.error_code is ErrorCode.unknown_topic_or_partition
        unknown = await s.produce(13, batch(b"a"), topic_id=s.c.env.ids.uuid())
        assert unknown.responses[0].partition_responses[0].error_code is ErrorCode.unknown_topic_id

    with_setup(tmp_path, test)


def test_produce_names_the_leader_where_it_is_not(tmp_path):
    async def main():
        async with cluster(tmp_path, (1, 2)) as c:
            s = Setup(c)
            s.topic_id = c.controller.create_topic("t", 1, (2, 1))
            await until(lambda: all(len(b.replicas) == 1 for b in c.brokers.values()))
            s.connection = await c.connect(1)
            for version in range(3, 14):
                answer = await s.produce(version, batch(b"a"))
                [p] = answer.responses[0].partition_responses
                assert p.error_code is ErrorCode.not_leader_or_follower
                if version >= 10:
                    assert (p.current_leader.leader_id, p.current_leader.leader_epoch) == (2, 0)
                    [node] = answer.node_endpoints
                    assert (node.node_id, node.host) == (2, "127.0.0.1")
                    assert node.port == c.servers[2].port

    asyncio.run(main())


@pytest.mark.parametrize("isolation", [0, 1])
def test_fetch(tmp_path, isolation):
    async def test(s):
        for version in range(4, 19):

            def request(m, offset=2, epoch=2, last_epoch=-1, version=version, **kwargs):
                return fill(
                    m.FetchRequest,
                    **{
                        "cluster_id": CLUSTER_ID,
                        "replica_id": -1,
                        "max_wait": timedelta(0),
                        "min_bytes": 1,
                        "max_bytes": 1 << 20,
                        "isolation_level": isolation,
                        "session_id": 0,
                        "session_epoch": -1,
                        "topics": (
                            fill(
                                m.FetchTopic,
                                topic="t",
                                topic_id=s.topic_id,
                                partitions=(
                                    fill(
                                        m.FetchPartition,
                                        partition=0,
                                        current_leader_epoch=epoch,
                                        fetch_offset=offset,
                                        last_fetched_epoch=last_epoch,
                                        log_start_offset=-1,
                                        partition_max_bytes=1 << 20,
                                    ),
                                ),
                            ),
                        ),
                        "forgotten_topics_data": (),
                        "rack_id": "rack-b",
                        **kwargs,
                    },
                )

            answer = await s.call(ApiKey.FETCH, version, request)
            [topic] = answer.responses
            [p] = topic.partitions
            assert topic.topic_id == s.topic_id if version >= 13 else topic.topic == "t"
            assert (p.error_code, p.high_watermark, p.last_stable_offset) == (ErrorCode.none, 6, 6)
            if version >= 5:
                assert p.log_start_offset == 2
            if version >= 7:
                assert (answer.error_code, answer.session_id) == (ErrorCode.none, 0)
            assert p.aborted_transactions == (() if isolation else None)
            got = bytes(p.records)
            values = [r.value for pos, h in iter_headers(got) for r in decode_records(got, pos, h)]
            assert values == [b"x1", b"y1", b"x2", b"y2"]

            if version >= 9:
                fenced = await s.call(ApiKey.FETCH, version, lambda m: request(m, epoch=1))
                [p] = fenced.responses[0].partitions
                assert p.error_code is ErrorCode.fenced_leader_epoch
                if 12 <= version < 16:
                    assert p.current_leader.leader_id == -1
                if version >= 16:
                    assert (p.current_leader.leader_id, p.current_leader.leader_epoch) == (1, 2)
                    assert [n.node_id for n in fenced.node_endpoints] == [1]
                    assert fenced.node_endpoints[0].rack == "rack-a"
            if version >= 12:
                parted = await s.call(
                    ApiKey.FETCH, version, lambda m: request(m, offset=6, last_epoch=1)
                )
                [p] = parted.responses[0].partitions
                assert p.error_code is ErrorCode.none
                assert not p.records
                assert (p.diverging_epoch.epoch, p.diverging_epoch.end_offset) == (1, 2)
            if version >= 7:
                lost = await s.call(
                    ApiKey.FETCH, version, lambda m: request(m, session_id=7, session_epoch=3)
                )
                assert lost.error_code is ErrorCode.fetch_session_id_not_found

    with_setup(tmp_path, test)


def test_list_offsets(tmp_path):
    async def test(s):
        for version in range(1, 12):
            asked = {-1: 6, -2: 2, WALL_MS + 1000: 2, WALL_MS + 2001: 5, WALL_MS + 9999: -1}
            if version >= 7:
                asked[-3] = 5
            if version >= 8:
                asked[-4] = 2
            if version >= 9:
                asked[-5] = -1
            if version >= 11:
                asked[-6] = -1
            for timestamp, offset in asked.items():

                def request(m, timestamp=timestamp):
                    return fill(
                        m.ListOffsetsRequest,
                        replica_id=-1,
                        isolation_level=1,
                        topics=(
                            m.ListOffsetsTopic(
                                name="t",
                                partitions=(
                                    fill(
                                        m.ListOffsetsPartition,
                                        partition_index=0,
                                        current_leader_epoch=2,
                                        timestamp=timestamp,
                                    ),
                                ),
                            ),
                        ),
                        timeout=timedelta(seconds=1),
                    )

                answer = await s.call(ApiKey.LIST_OFFSETS, version, request)
                [p] = answer.topics[0].partitions
                assert (p.error_code, p.offset) == (ErrorCode.none, offset), timestamp
                if version >= 4 and offset >= 0:
                    assert p.leader_epoch == 2, timestamp
                if timestamp > 0 and offset >= 0:
                    assert p.timestamp == timestamp

    with_setup(tmp_path, test)


def test_offset_for_leader_epoch(tmp_path):
    async def test(s):
        for version in range(2, 5):
            for epoch, expected in ((2, (2, 6)), (1, (1, 2)), (9, (-1, -1))):
                answer = await s.call(
                    ApiKey.OFFSET_FOR_LEADER_EPOCH,
                    version,
                    lambda m, epoch=epoch: fill(
                        m.OffsetForLeaderEpochRequest,
                        replica_id=-1,
                        topics=(
                            m.OffsetForLeaderTopic(
                                topic="t",
                                partitions=(
                                    m.OffsetForLeaderPartition(
                                        partition=0, current_leader_epoch=2, leader_epoch=epoch
                                    ),
                                ),
                            ),
                        ),
                    ),
                )
                [p] = answer.topics[0].partitions
                assert p.error_code is ErrorCode.none
                assert (p.leader_epoch, p.end_offset) == expected

    with_setup(tmp_path, test)


def test_delete_records(tmp_path):
    async def test(s):
        for version in range(3):

            def request(m, offset, index=0):
                return m.DeleteRecordsRequest(
                    topics=(
                        m.DeleteRecordsTopic(
                            name="t",
                            partitions=(
                                m.DeleteRecordsPartition(partition_index=index, offset=offset),
                            ),
                        ),
                    ),
                    timeout=timedelta(seconds=2),
                )

            answer = await s.call(ApiKey.DELETE_RECORDS, version, lambda m: request(m, 3))
            [p] = answer.topics[0].partitions
            assert (p.error_code, p.low_watermark) == (ErrorCode.none, 3)
            answer = await s.call(ApiKey.DELETE_RECORDS, version, lambda m: request(m, 99))
            [p] = answer.topics[0].partitions
            assert (p.error_code, p.low_watermark) == (ErrorCode.offset_out_of_range, -1)
            answer = await s.call(ApiKey.DELETE_RECORDS, version, lambda m: request(m, 1, 9))
            [p] = answer.topics[0].partitions
            assert p.error_code is ErrorCode.unknown_topic_or_partition

    with_setup(tmp_path, test)


def test_init_producer_id(tmp_path):
    async def test(s):
        seen = []
        for version in range(6):
            for transactional_id in (None, "tx"):
                answer = await s.call(
                    ApiKey.INIT_PRODUCER_ID,
                    version,
                    lambda m, t=transactional_id: fill(
                        m.InitProducerIdRequest,
                        transactional_id=t,
                        transaction_timeout=timedelta(seconds=60),
                        producer_id=5,
                        producer_epoch=6,
                    ),
                )
                if transactional_id is None:
                    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.none, 0)
                    seen.append(answer.producer_id)
                else:
                    assert answer.error_code is ErrorCode.coordinator_not_available
                    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        for _ in range(30):
            answer = await s.call(
                ApiKey.INIT_PRODUCER_ID,
                5,
                lambda m: m.InitProducerIdRequest(
                    transactional_id=None, transaction_timeout=timedelta(seconds=60)
                ),
            )
            seen.append(answer.producer_id)
        assert len(set(seen)) == len(seen), "each id once"
        assert seen == sorted(seen)

    with_setup(tmp_path, test)
