"""Admin clients of Python libraries on pykraft: what works is asserted."""

import pytest
from waiting import wait_until

pytestmark = pytest.mark.clients


def test_confluent_admin_client(shared_cluster):
    from confluent_kafka import KafkaException, TopicCollection, TopicPartition
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewPartitions,
        NewTopic,
        OffsetSpec,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap, "log_level": 0})

    def result(futures):
        (future,) = futures.values()
        return future.result(120)

    name = "by-confluent"
    described = result({0: admin.describe_cluster()})
    assert described.cluster_id == shared_cluster.local.status()["cluster_id"]
    assert sorted(node.id for node in described.nodes) == [1, 2, 3]

    new = NewTopic(name, 2, 3, config={"retention.ms": "100000"})
    result(admin.create_topics([new], validate_only=True))
    result(admin.create_topics([new]))
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        result(admin.create_topics([new]))
    with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR"):
        result(admin.create_topics([NewTopic(f"{name}-wide", 1, 4)]))
    with pytest.raises(KafkaException, match="no spaces"):
        result(admin.create_topics([NewTopic("no spaces", 1, 1)]))

    def whole(count):
        told = result(admin.describe_topics(TopicCollection([name])))
        return len(told.partitions) == count and all(len(p.isr) == 3 for p in told.partitions)

    wait_until(lambda: whole(2), "the topic is whole", 20, errors=(KafkaException,))
    result(admin.create_partitions([NewPartitions(name, 4)]))
    wait_until(lambda: whole(4), "more partitions are whole", 20)

    resource = ConfigResource(
        ResourceType.TOPIC,
        name,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "12345", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    result(admin.incremental_alter_configs([resource]))
    asked = ConfigResource(ResourceType.TOPIC, name)
    configs = wait_until(
        lambda: (
            (told := result(admin.describe_configs([asked])))["max.message.bytes"].value == "12345"
            and told
        ),
        "the configuration is there",
        20,
    )
    assert configs["retention.ms"].value == "604800000"
    assert configs["retention.ms"].is_default
    broker = result(admin.describe_configs([ConfigResource(ResourceType.BROKER, "2")]))
    assert broker["node.id"].value == "2"
    assert broker["node.id"].is_read_only

    place = TopicPartition(name, 0)
    assert result(admin.list_offsets({place: OffsetSpec.latest()})).offset == 0
    result(admin.delete_topics([name]))
    wait_until(lambda: name not in admin.list_topics(timeout=5).topics, "the topic is gone", 20)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        result(admin.delete_topics([name]))


def test_kafka_python_admin_client(shared_cluster):
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
    from kafka.errors import TopicAlreadyExistsError

    name = "by-kafka-python"
    admin = KafkaAdminClient(bootstrap_servers=shared_cluster.bootstrap.split(","))
    try:
        told = admin.describe_cluster()
        assert told["cluster_id"] == shared_cluster.local.status()["cluster_id"]
        assert sorted(
            broker.get("broker_id", broker.get("node_id")) for broker in told["brokers"]
        ) == [1, 2, 3]
        admin.create_topics([NewTopic(name, 2, 3)])
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics([NewTopic(name, 2, 3)])
        wait_until(lambda: name in admin.list_topics(), "the topic is listed", 20)
        (topic,) = admin.describe_topics([name])
        assert len(topic["partitions"]) == 2
        resource = ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "5000"})
        admin.alter_configs([resource])
        asked = ConfigResource(ConfigResourceType.TOPIC, name)
        wait_until(lambda: "5000" in str(admin.describe_configs([asked])), "the configuration", 20)
        admin.delete_topics([name])
        wait_until(lambda: name not in admin.list_topics(), "the topic is gone", 20)
    finally:
        admin.close()
