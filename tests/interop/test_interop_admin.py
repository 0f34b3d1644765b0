"""The gRPC door before a JVM controller: our translation has to be what Kafka understands."""

import asyncio
from urllib.parse import urlsplit

import jvm_node
import pytest
from admin_rig import Aborted, Context, Rig

from admin.stubs import admin_pb2 as pb
from net.client import Channel
from world.real import real_env

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def controller(tmp_path_factory):
    """Host and port of a JVM node's controller listener."""
    directory = tmp_path_factory.mktemp("jvm")
    properties = jvm_node.combined_properties(directory)
    config = jvm_node.write_properties(directory / "server.properties", properties)
    jvm_node.format_directory(config, "J7fJDbqxQQeTAcl8rdBfeg")
    listeners = [urlsplit(one) for one in properties["listeners"].split(",")]
    with jvm_node.jvm_node(config):
        yield next((one.hostname, one.port) for one in listeners if one.scheme == "controller")


def scenario(controller, steps):
    """Runs `steps(call)`; `call(method, request)` goes through a service before the JVM."""

    async def main():
        rig = Rig()
        channel = Channel(real_env(), *controller, client_id="door")
        object.__setattr__(rig.ports, "controller_call", channel.call)

        async def call(method, request):
            return await getattr(rig.service, method)(request, Context())

        try:
            async with asyncio.timeout(60):
                return await steps(call)
        finally:
            channel.close()

    return asyncio.run(main())


def outcomes(response):
    return [(one.name, one.error.name) for one in response.results]


def test_topics_from_creation_to_deletion(controller):
    async def steps(call):
        topics = [
            pb.NewTopic(
                name="a", partitions=2, replication_factor=1, configs={"retention.ms": "7"}
            ),
            pb.NewTopic(name="b", assignments=[pb.ReplicaAssignment(partition=0, replicas=[1])]),
            pb.NewTopic(name="c"),
            pb.NewTopic(name="d", partitions=1, replication_factor=9),
            pb.NewTopic(name="e", partitions=1, configs={"no.such": "1"}),
            pb.NewTopic(name="bad name!", partitions=1),
            pb.NewTopic(name="f", partitions=-2),
            pb.NewTopic(
                name="g",
                partitions=1,
                assignments=[pb.ReplicaAssignment(partition=0, replicas=[1])],
            ),
        ]
        expected = [
            ("a", ""),
            ("b", ""),
            ("c", ""),
            ("d", "INVALID_REPLICATION_FACTOR"),
            ("e", "INVALID_CONFIG"),
            ("bad name!", "INVALID_TOPIC_EXCEPTION"),
            ("f", "INVALID_PARTITIONS"),
            ("g", "INVALID_REQUEST"),
        ]
        for validate_only in (True, False):
            request = pb.CreateTopicsRequest(topics=topics, validate_only=validate_only)
            created = await call("CreateTopics", request)
            assert outcomes(created) == expected
            assert all(one.error.message for one in created.results[3:])
        assert [len(one.topic_id) for one in created.results[:3]] == [22, 22, 22]
        again = await call("CreateTopics", pb.CreateTopicsRequest(topics=topics[:1]))
        assert outcomes(again) == [("a", "TOPIC_ALREADY_EXISTS")]
        grown = await call(
            "CreatePartitions",
            pb.CreatePartitionsRequest(
                topics=[
                    pb.NewPartitions(name="a", count=4),
                    pb.NewPartitions(
                        name="b", count=2, assignments=[pb.NewPartitionReplicas(replicas=[1])]
                    ),
                    pb.NewPartitions(name="c", count=-1),
                    pb.NewPartitions(name="nope", count=3),
                ]
            ),
        )
        assert outcomes(grown) == [
            ("a", ""),
            ("b", ""),
            ("c", "INVALID_PARTITIONS"),
            ("nope", "UNKNOWN_TOPIC_OR_PARTITION"),
        ]
        deleted = await call("DeleteTopics", pb.DeleteTopicsRequest(names=["a", "nope", "c"]))
        assert outcomes(deleted) == [
            ("a", ""),
            ("nope", "UNKNOWN_TOPIC_OR_PARTITION"),
            ("c", ""),
        ]

    scenario(controller, steps)


def test_configs(controller):
    async def steps(call):
        await call("CreateTopics", pb.CreateTopicsRequest(topics=[pb.NewTopic(name="conf")]))

        def change(kind, name, key, operation, value=""):
            config = pb.AlterConfig(name=key, operation=operation, value=value)
            return pb.ConfigAlteration(type=kind, name=name, configs=[config])

        altered = await call(
            "AlterConfigs",
            pb.AlterConfigsRequest(
                resources=[
                    change(2, "conf", "cleanup.policy", 2, "compact"),
                    change(2, "nope", "retention.ms", 0, "5"),
                    change(4, "", "log.retention.ms", 0, "100000"),
                    change(4, "1", "log.retention.ms", 1),
                ]
            ),
        )
        assert [(one.name, one.error.name) for one in altered.results] == [
            ("conf", ""),
            ("nope", "UNKNOWN_TOPIC_OR_PARTITION"),
            ("", ""),
            ("1", ""),
        ]
        wrong = await call(
            "AlterConfigs",
            pb.AlterConfigsRequest(resources=[change(2, "conf", "retention.ms", 0, "soon")]),
        )
        assert outcomes(wrong) == [("conf", "INVALID_CONFIG")]

    scenario(controller, steps)


def test_elections_quorum_and_brokers(controller):
    async def steps(call):
        await call("CreateTopics", pb.CreateTopicsRequest(topics=[pb.NewTopic(name="led")]))
        for kind in (0, 1):
            request = pb.ElectLeadersRequest(
                type=kind,
                topics=[pb.TopicPartitions(topic="led", partitions=[0, 7])],
            )
            elected = await call("ElectLeaders", request)
            assert [(one.partition, one.error.name) for one in elected.results] == [
                (0, "ELECTION_NOT_NEEDED"),
                (7, "UNKNOWN_TOPIC_OR_PARTITION"),
            ]
        assert await call("ElectLeaders", pb.ElectLeadersRequest()) is not None
        quorum = await call("DescribeQuorum", pb.DescribeQuorumRequest())
        assert (quorum.leader_id, [one.id for one in quorum.voters]) == (1, [1])
        assert quorum.voters[0].lag_ms == 0
        assert quorum.voters[0].end_offset >= quorum.high_watermark > 0
        with pytest.raises(Aborted) as failed:
            await call("UnregisterBroker", pb.UnregisterBrokerRequest(broker_id=77))
        assert failed.value.error.name == "BROKER_ID_NOT_REGISTERED"

    scenario(controller, steps)
