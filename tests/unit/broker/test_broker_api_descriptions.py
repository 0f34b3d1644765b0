"""Every version of the describing APIs, asked over a connection and decoded by kio."""

from broker_api_rig import batch, with_setup
from broker_fakes import CLUSTER_ID, until

from wire.apis import ApiKey, ErrorCode
from wire.messages import fill


def test_metadata(tmp_path):
    async def test(s):
        await until(lambda: s.c.brokers[1].context.image.broker(2).fenced)
        for version in range(14):

            def request(m, name="t", topic_id=None, version=version):
                return fill(
                    m.MetadataRequest,
                    topics=(fill(m.MetadataRequestTopic, name=name, topic_id=topic_id),),
                    allow_auto_topic_creation=False,
                    include_cluster_authorized_operations=True,
                    include_topic_authorized_operations=True,
                )

            answer = await s.call(ApiKey.METADATA, version, request)
            [node] = answer.brokers
            assert (node.node_id, node.host, node.port) == (1, "127.0.0.1", s.c.servers[1].port)
            [topic] = answer.topics
            assert (topic.name, topic.error_code) == ("t", ErrorCode.none)
            [p, other] = topic.partitions
            assert (p.leader_id, p.partition_index) == (1, 0)
            assert other.partition_index == 1
            assert p.replica_nodes == ((1,) if version == 0 else (1, 2))
            assert p.error_code is (
                ErrorCode.replica_not_available if version == 0 else ErrorCode.none
            )
            assert p.isr_nodes == (1,)
            if version >= 1:
                assert (answer.controller_id, node.rack) == (1, "rack-a")
            if version >= 2:
                assert answer.cluster_id == CLUSTER_ID
            if version >= 5:
                assert p.offline_replicas == (2,)
            if version >= 7:
                assert p.leader_epoch >= 2
            if version >= 8:
                assert topic.topic_authorized_operations == 3576
            if 8 <= version <= 10:
                assert answer.cluster_authorized_operations == 8096
            if version >= 10:
                assert topic.topic_id == s.topic_id
            everything = await s.call(
                ApiKey.METADATA,
                version,
                lambda m, v=version: fill(
                    m.MetadataRequest,
                    topics=() if v == 0 else None,
                    allow_auto_topic_creation=True,
                    include_cluster_authorized_operations=False,
                    include_topic_authorized_operations=False,
                ),
            )
            assert [t.name for t in everything.topics] == ["t"]
            if version >= 1:
                none = await s.call(
                    ApiKey.METADATA,
                    version,
                    lambda m: fill(
                        m.MetadataRequest,
                        topics=(),
                        include_cluster_authorized_operations=False,
                        include_topic_authorized_operations=False,
                    ),
                )
                assert none.topics == ()
            if version >= 12:
                by_id = await s.call(
                    ApiKey.METADATA, version, lambda m: request(m, name=None, topic_id=s.topic_id)
                )
                assert by_id.topics[0].name == "t"
                unknown = s.c.env.ids.uuid()
                by_id = await s.call(
                    ApiKey.METADATA, version, lambda m, u=unknown: request(m, name=None, topic_id=u)
                )
                assert by_id.topics[0].error_code is ErrorCode.unknown_topic_id
                assert (by_id.topics[0].name, by_id.topics[0].topic_id) == (None, unknown)
            bad = await s.call(ApiKey.METADATA, version, lambda m: request(m, name="no/topic"))
            assert bad.topics[0].error_code is ErrorCode.invalid_topic_exception
            absent = await s.call(ApiKey.METADATA, version, lambda m: request(m, name="absent"))
            assert absent.topics[0].error_code is ErrorCode.unknown_topic_or_partition
            if version < 4:  # no way to say that it shall not be created
                await until(lambda: s.c.controller.image.topic("absent") is not None)
                s.c.controller.delete_topic("absent")
                await until(lambda: s.c.brokers[1].context.image.topic("absent") is None)

    with_setup(tmp_path, test)


def test_describe_configs(tmp_path):
    async def test(s):
        for version in range(1, 5):

            def request(m, kind=2, name="t", keys=("retention.ms", "segment.bytes")):
                return fill(
                    m.DescribeConfigsRequest,
                    resources=(
                        m.DescribeConfigsResource(
                            resource_type=kind, resource_name=name, configuration_keys=keys
                        ),
                    ),
                    include_synonyms=True,
                    include_documentation=True,
                )

            answer = await s.call(ApiKey.DESCRIBE_CONFIGS, version, request)
            [result] = answer.results
            assert (result.error_code, result.resource_name) == (ErrorCode.none, "t")
            found = {c.name: c for c in result.configs}
            assert sorted(found) == ["retention.ms", "segment.bytes"]
            assert (found["retention.ms"].value, found["retention.ms"].config_source) == (
                "123456789",
                1,
            )
            assert (found["segment.bytes"].value, found["segment.bytes"].config_source) == (
                "1048576",
                4,
            )
            assert found["segment.bytes"].synonyms[0].name == "log.segment.bytes"
            if version >= 3:
                assert found["retention.ms"].config_type == 5
                assert found["retention.ms"].documentation
            broker = await s.call(
                ApiKey.DESCRIBE_CONFIGS, version, lambda m: request(m, 4, "1", None)
            )
            values = {c.name: c.value for c in broker.results[0].configs}
            assert values["node.id"] == "1"
            group = await s.call(
                ApiKey.DESCRIBE_CONFIGS, version, lambda m: request(m, 32, "any", None)
            )
            values = {c.name: (c.value, c.read_only) for c in group.results[0].configs}
            assert values["consumer.session.timeout.ms"] == ("45000", False)
            assert len(values) == 3
            for kind, name, error in (
                (2, "absent", ErrorCode.unknown_topic_or_partition),
                (2, "no/name", ErrorCode.invalid_topic_exception),
                (4, "77", ErrorCode.invalid_request),
                (32, "", ErrorCode.invalid_request),
                (99, "x", ErrorCode.invalid_request),
            ):
                bad = await s.call(
                    ApiKey.DESCRIBE_CONFIGS, version, lambda m, k=kind, n=name: request(m, k, n)
                )
                assert bad.results[0].error_code is error
                assert bad.results[0].error_message

    with_setup(tmp_path, test)


def test_describe_log_dirs_producers_and_cluster(tmp_path):
    async def test(s):
        for version in range(1, 5):
            for topics in (None, True):
                answer = await s.call(
                    ApiKey.DESCRIBE_LOG_DIRS,
                    version,
                    lambda m, topics=topics: m.DescribeLogDirsRequest(
                        topics=topics
                        and (fill(m.DescribableLogDirTopic, topic="t", partitions=(0,)),)
                    ),
                )
                [result] = answer.results
                assert result.log_dir.endswith("broker-1")
                [topic] = result.topics
                assert topic.name == "t"
                assert len(topic.partitions) == (2 if topics is None else 1)
                assert topic.partitions[0].partition_size == s.replica.log.size > 0
        records = batch(b"p", producer_id=77, producer_epoch=3, base_sequence=0)
        await s.produce(9, records)
        answer = await s.call(
            ApiKey.DESCRIBE_PRODUCERS,
            0,
            lambda m: m.DescribeProducersRequest(
                topics=(m.TopicRequest(name="t", partition_indexes=(0, 9)),)
            ),
        )
        [p, absent] = answer.topics[0].partitions
        [producer] = p.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 3, 0)
        assert absent.error_code is ErrorCode.unknown_topic_or_partition
        for version in range(3):
            answer = await s.call(
                ApiKey.DESCRIBE_CLUSTER,
                version,
                lambda m: fill(
                    m.DescribeClusterRequest,
                    include_cluster_authorized_operations=True,
                    endpoint_type=1,
                    include_fenced_brokers=True,
                ),
            )
            assert (answer.error_code, answer.cluster_id) == (ErrorCode.none, CLUSTER_ID)
            assert answer.cluster_authorized_operations == 8096
            assert answer.controller_id == 1
            ids = [(b.broker_id, b.rack) for b in answer.brokers]
            assert ids == [(1, "rack-a")] + ([(2, "rack-a")] if version >= 2 else [])
            if version >= 1:
                wrong = await s.call(
                    ApiKey.DESCRIBE_CLUSTER,
                    version,
                    lambda m: fill(
                        m.DescribeClusterRequest,
                        include_cluster_authorized_operations=False,
                        endpoint_type=2,
                        include_fenced_brokers=False,
                    ),
                )
                assert wrong.error_code is ErrorCode.mismatched_endpoint_type

    with_setup(tmp_path, test)


def test_describe_topic_partitions_by_pages(tmp_path):
    async def test(s):
        def request(m, cursor=None, limit=1):
            return m.DescribeTopicPartitionsRequest(
                topics=(m.TopicRequest(name="t"), m.TopicRequest(name="absent")),
                response_partition_limit=limit,
                cursor=cursor,
            )

        first = await s.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
        absent, topic = first.topics
        assert absent.error_code is ErrorCode.unknown_topic_or_partition
        assert (topic.name, topic.topic_id) == ("t", s.topic_id)
        [p] = topic.partitions
        assert (p.partition_index, p.leader_id, p.replica_nodes) == (0, 1, (1, 2))
        assert (p.eligible_leader_replicas, p.offline_replicas) == ((), (2,))
        cursor = first.next_cursor
        assert (cursor.topic_name, cursor.partition_index) == ("t", 1)
        second = await s.call(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            lambda m: request(m, m.Cursor(topic_name="t", partition_index=1), 10),
        )
        assert [p.partition_index for p in second.topics[0].partitions] == [1]
        assert second.next_cursor is None

    with_setup(tmp_path, test)
