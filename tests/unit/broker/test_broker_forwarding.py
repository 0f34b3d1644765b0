"""What goes on to the active controller: every version, through failovers, and to its end."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest
from broker_fakes import cluster, until

from broker.api_forwarded import apis
from controller.apis import APIS as CONTROLLERS
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, request_module, response_module

T = timedelta(milliseconds=300)
NO_TIME = timedelta(0)


def create_topics(m):
    return fill(
        m.CreateTopicsRequest,
        topics=(
            m.CreatableTopic(
                name="new",
                num_partitions=3,
                replication_factor=1,
                assignments=(),
                configs=(m.CreatableTopicConfig(name="a", value="b"),),
            ),
        ),
        timeout=T,
        validate_only=True,
    )


def delete_topics(m):
    if hasattr(m, "DeleteTopicState"):
        state = m.DeleteTopicState(name="new", topic_id=None)
        return m.DeleteTopicsRequest(topics=(state,), timeout=T)
    return m.DeleteTopicsRequest(topic_names=("new",), timeout=T)


def create_partitions(m):
    topic = m.CreatePartitionsTopic(name="new", count=5, assignments=None)
    return m.CreatePartitionsRequest(topics=(topic,), timeout=T, validate_only=True)


def alter_configs(m):
    resource = m.AlterConfigsResource(
        resource_type=2, resource_name="new", configs=(m.AlterableConfig(name="a", value="b"),)
    )
    return m.AlterConfigsRequest(resources=(resource,), validate_only=True)


def incremental_alter_configs(m):
    resource = m.AlterConfigsResource(
        resource_type=2,
        resource_name="new",
        configs=(m.AlterableConfig(name="a", config_operation=1, value="b"),),
    )
    return m.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=True)


def elect_leaders(m):
    return fill(
        m.ElectLeadersRequest,
        election_type=1,
        topic_partitions=(m.TopicPartitions(topic="new", partitions=(4,)),),
        timeout=T,
    )


def unregister_broker(m):
    return m.UnregisterBrokerRequest(broker_id=9)


def add_raft_voter(m):
    return fill(
        m.AddRaftVoterRequest,
        cluster_id="c",
        timeout=T,
        voter_id=4,
        voter_directory_id=UUID(int=44),
        listeners=(m.Listener(name="C", host="h", port=65535),),
        ack_when_committed=False,
    )


def remove_raft_voter(m):
    return m.RemoveRaftVoterRequest(cluster_id="c", voter_id=4, voter_directory_id=UUID(int=44))


def update_features(m):
    update = fill(
        m.FeatureUpdateKey,
        feature="f",
        max_version_level=3,
        allow_downgrade=True,
        upgrade_type=2,
    )
    return fill(m.UpdateFeaturesRequest, feature_updates=(update,), timeout=T, validate_only=True)


def features_answer(m):
    results = ()
    if hasattr(m, "UpdatableFeatureResult"):
        result = m.UpdatableFeatureResult(
            feature="f", error_code=ErrorCode.none, error_message=None
        )
        results = (result,)
    return fill(
        m.UpdateFeaturesResponse,
        throttle_time=T,
        error_code=ErrorCode.invalid_update_version,
        error_message="because",
        results=results,
    )


def describe_quorum(m):
    return m.DescribeQuorumRequest(
        topics=(m.TopicData(topic_name="q", partitions=(m.PartitionData(partition_index=0),)),)
    )


def config_answer(cls):
    def answer(m):
        return getattr(m, cls)(
            throttle_time=T,
            responses=(
                m.AlterConfigsResourceResponse(
                    error_code=ErrorCode.invalid_config,
                    error_message="because",
                    resource_type=2,
                    resource_name="new",
                ),
            ),
        )

    return answer


ANSWERS = {
    ApiKey.CREATE_TOPICS: lambda m: m.CreateTopicsResponse(
        throttle_time=T,
        topics=(
            fill(
                m.CreatableTopicResult,
                name="new",
                topic_id=None,
                error_code=ErrorCode.invalid_partitions,
                error_message="because",
                num_partitions=3,
                configs=(),
            ),
        ),
    ),
    ApiKey.DELETE_TOPICS: lambda m: m.DeleteTopicsResponse(
        throttle_time=T,
        responses=(
            fill(
                m.DeletableTopicResult,
                name="new",
                topic_id=None,
                error_code=ErrorCode.topic_deletion_disabled,
                error_message="because",
            ),
        ),
    ),
    ApiKey.CREATE_PARTITIONS: lambda m: m.CreatePartitionsResponse(
        throttle_time=T,
        results=(
            m.CreatePartitionsTopicResult(
                name="new", error_code=ErrorCode.invalid_partitions, error_message="because"
            ),
        ),
    ),
    ApiKey.ALTER_CONFIGS: config_answer("AlterConfigsResponse"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: config_answer("IncrementalAlterConfigsResponse"),
    ApiKey.ELECT_LEADERS: lambda m: fill(
        m.ElectLeadersResponse,
        throttle_time=T,
        error_code=ErrorCode.none,
        replica_election_results=(
            m.ReplicaElectionResult(
                topic="new",
                partition_result=(
                    m.PartitionResult(
                        partition_id=4,
                        error_code=ErrorCode.election_not_needed,
                        error_message="because",
                    ),
                ),
            ),
        ),
    ),
    ApiKey.UPDATE_FEATURES: features_answer,
    ApiKey.UNREGISTER_BROKER: lambda m: m.UnregisterBrokerResponse(
        throttle_time=T, error_code=ErrorCode.broker_id_not_registered, error_message="because"
    ),
    ApiKey.ADD_RAFT_VOTER: lambda m: m.AddRaftVoterResponse(
        throttle_time=T, error_code=ErrorCode.duplicate_voter, error_message="because"
    ),
    ApiKey.REMOVE_RAFT_VOTER: lambda m: m.RemoveRaftVoterResponse(
        throttle_time=T, error_code=ErrorCode.voter_not_found, error_message="because"
    ),
}

CASES = [
    (ApiKey.CREATE_TOPICS, range(2, 8), create_topics),
    (ApiKey.DELETE_TOPICS, range(1, 7), delete_topics),
    (ApiKey.CREATE_PARTITIONS, range(4), create_partitions),
    (ApiKey.ALTER_CONFIGS, range(3), alter_configs),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, range(2), incremental_alter_configs),
    (ApiKey.ELECT_LEADERS, range(3), elect_leaders),
    (ApiKey.UPDATE_FEATURES, range(3), update_features),
    (ApiKey.UNREGISTER_BROKER, range(1), unregister_broker),
    (ApiKey.ADD_RAFT_VOTER, range(2), add_raft_voter),
    (ApiKey.REMOVE_RAFT_VOTER, range(1), remove_raft_voter),
]


def test_requests_and_answers_pass_unchanged(tmp_path):
    async def main():
        async with cluster(tmp_path) as c:
            connection = await c.connect(1)
            seen = []

            def controller(header, entity):
                seen.append((header.client_id, entity))
                return ANSWERS[header.api_key](response_module(header.api_key, header.api_version))

            c.controller.forwarded = controller
            for key, versions, build in CASES:
                for version in versions:
                    asked = build(request_module(key, version))
                    answer = await connection.send(asked, 5000)
                    assert seen.pop() == ("test", asked)
                    assert answer == ANSWERS[key](response_module(key, version))

    asyncio.run(main())


def test_a_broker_lets_in_what_the_controller_does():
    forwarded = [api for api in apis(None) if api.key in CONTROLLERS]
    assert len(forwarded) == 8
    for api in forwarded:
        assert api.max_elements == CONTROLLERS[api.key].max_elements, api.key


def test_the_quorum_is_described_by_the_controller(tmp_path):
    async def main():
        async with cluster(tmp_path) as c:
            connection = await c.connect(1)
            for version in range(3):
                asked = describe_quorum(request_module(ApiKey.DESCRIBE_QUORUM, version))
                answer = await connection.send(asked, 5000)
                [topic] = answer.topics
                [partition] = topic.partitions
                assert (topic.topic_name, partition.leader_id) == ("q", 100)
                assert (partition.leader_epoch, partition.high_watermark) == (7, 8)
                assert partition.current_voters[0].log_end_offset == 9

    asyncio.run(main())


def test_without_a_controller_each_is_told_so_in_its_own_form(tmp_path):
    async def main():
        async with cluster(tmp_path, request_timeout_ms=300) as c:
            connection = await c.connect(1)
            c.controller.active = False
            c.brokers[1].controller_changed()
            sends = []
            for key, versions, build in [
                *CASES,
                (ApiKey.DESCRIBE_QUORUM, range(3), describe_quorum),
            ]:
                for version in versions:
                    sends.append(connection.send(build(request_module(key, version)), 20_000))
            answers = await asyncio.gather(*sends)
            for answer in answers:
                assert "request_timed_out" in repr(answer), answer
            c.controller.active = True
            c.brokers[1].controller_changed()

    asyncio.run(main())


def test_a_request_is_held_until_a_controller_is_there(tmp_path):
    async def main():
        async with cluster(tmp_path) as c:
            connection = await c.connect(1)
            c.controller.active = False
            c.brokers[1].controller_changed()
            module = request_module(ApiKey.CREATE_TOPICS, 5)
            asked = fill(
                module.CreateTopicsRequest,
                topics=(
                    module.CreatableTopic(
                        name="held",
                        num_partitions=1,
                        replication_factor=1,
                        assignments=(),
                        configs=(),
                    ),
                ),
                timeout=timedelta(seconds=10),
            )
            waiting = asyncio.ensure_future(connection.send(asked, 20_000))
            await asyncio.sleep(0.15)
            assert not waiting.done()
            c.controller.active = True
            c.brokers[1].controller_changed()
            answer = await waiting
            assert answer.topics[0].error_code is ErrorCode.none
            await until(lambda: len(c.brokers[1].replicas) == 1)

    asyncio.run(main())


@pytest.mark.parametrize("enabled", [True, False])
def test_topics_are_made_on_first_use_if_so_configured(tmp_path, enabled):
    async def main():
        async with cluster(
            tmp_path, auto_create_topics_enable=str(enabled).lower(), num_partitions=2
        ) as c:
            connection = await c.connect(1)
            module = request_module(ApiKey.METADATA, 9)
            asked = module.MetadataRequest(
                topics=(module.MetadataRequestTopic(name="first-use"),),
                allow_auto_topic_creation=True,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
            answer = await connection.send(asked, 5000)
            assert answer.topics[0].error_code is ErrorCode.unknown_topic_or_partition
            if not enabled:
                assert c.brokers[1].creation.asked == 0
                return
            await until(lambda: len(c.brokers[1].replicas) == 2)
            answer = await connection.send(asked, 5000)
            assert answer.topics[0].error_code is ErrorCode.none
            assert len(answer.topics[0].partitions) == 2

    asyncio.run(main())
