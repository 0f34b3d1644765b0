"""Kafka's administration tools on pykraft: what works is asserted."""

import re

import kafka_jvm
import pytest
from clusters import running_cluster

pytestmark = pytest.mark.interop

TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
QUORUM = f"{TOOLS}.MetadataQuorumCommand"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    kafka_jvm.classpath()
    with running_cluster(tmp_path_factory.mktemp("tools"), 3, 3) as cluster:
        yield cluster


def run(cluster, *commands, version=kafka_jvm.DEFAULT_VERSION):
    """Each command is a tool's main class and its arguments, in one string."""
    split = [command.split() for command in commands]
    server = ["--bootstrap-server", cluster.bootstrap]
    return kafka_jvm.run_tools([[one[0], *server, *one[1:]] for one in split], version)


@pytest.mark.parametrize("version", [kafka_jvm.DEFAULT_VERSION, kafka_jvm.NEWEST_VERSION])
def test_topics(cluster, version):
    name = f"tool-{version}"
    made, again, told, grown, wrong, listed, gone, missing = run(
        cluster,
        f"{TOPICS} --create --topic {name} --partitions 2 --replication-factor 3"
        " --config retention.ms=100000",
        f"{TOPICS} --create --topic {name}",
        f"{TOPICS} --describe --topic {name}",
        f"{TOPICS} --alter --topic {name} --partitions 4",
        f"{TOPICS} --create --topic {name}-wide --partitions 1 --replication-factor 4",
        f"{TOPICS} --list",
        f"{TOPICS} --delete --topic {name}",
        f"{TOPICS} --describe --topic {name}",
        version=version,
    )
    assert made == (0, f"Created topic {name}.") or made[1].endswith(f"Created topic {name}.")
    assert again[0] == 1
    assert "already exists" in again[1]
    assert told[0] == 0
    assert re.search(r"PartitionCount: 2\s+ReplicationFactor: 3\s+Configs:.*retention.ms=100000", told[1])
    partitions = re.findall(r"Partition: (\d)\s+Leader: ([123])\s+Replicas: (\S+)\s+Isr: (\S+)", told[1])
    assert [one[0] for one in partitions] == ["0", "1"]
    for _, leader, replicas, isr in partitions:
        assert sorted(replicas.split(",")) == sorted(isr.split(",")) == ["1", "2", "3"]
        assert leader == replicas.split(",")[0]
    assert grown[0] == 0
    assert wrong[0] == 1
    assert "replication factor" in wrong[1].lower()
    assert listed[0] == 0
    assert name in listed[1].split()
    assert gone[0] == 0
    assert missing[0] == 1
    assert "does not exist" in missing[1]


def test_configs(cluster):
    with cluster.admin() as admin:
        admin.create_topic("configured", 1, 3)
    altered, told, refused, removed, after, broker = run(
        cluster,
        f"{CONFIGS} --alter --topic configured --add-config max.message.bytes=12345,cleanup.policy=[compact,delete]",
        f"{CONFIGS} --describe --topic configured",
        f"{CONFIGS} --alter --topic configured --add-config retention.ms=soon",
        f"{CONFIGS} --alter --topic configured --delete-config max.message.bytes",
        f"{CONFIGS} --describe --topic configured",
        f"{CONFIGS} --describe --broker 1 --all",
    )
    assert altered == (0, "Completed updating config for topic configured.")
    assert told[0] == 0
    assert "max.message.bytes=12345" in told[1]
    assert "DYNAMIC_TOPIC_CONFIG:max.message.bytes=12345" in told[1]
    assert "cleanup.policy=compact,delete" in told[1]
    assert refused[0] == 1
    assert "retention.ms" in refused[1]
    assert "soon" in refused[1]
    assert removed[0] == 0
    assert "max.message.bytes" not in after[1]
    assert broker[0] == 0
    assert "num.partitions=" in broker[1]


def test_quorum_and_versions(cluster):
    status, replication, versions = run(
        cluster,
        f"{QUORUM} describe --status",
        f"{QUORUM} describe --replication",
        f"{TOOLS}.BrokerApiVersionsCommand",
    )
    assert status[0] == 0
    facts = dict(re.findall(r"^(\w+):\s+(.*)$", status[1], re.MULTILINE))
    assert facts["ClusterId"] == cluster.local.status()["cluster_id"]
    assert int(facts["LeaderId"]) == cluster.active_controller()
    assert int(facts["HighWatermark"]) > 0
    assert {f'"id": {id_}' for id_ in (101, 102, 103)} <= set(
        re.findall(r'"id": \d+', facts["CurrentVoters"])
    )
    assert replication[0] == 0
    rows = [line.split() for line in replication[1].splitlines()[1:]]
    roles = {int(row[0]): row[-1] for row in rows}
    assert roles.pop(int(facts["LeaderId"])) == "Leader"
    assert sorted(roles.items()) == [
        (id_, "Observer" if id_ < 100 else "Follower") for id_ in sorted(roles)
    ]
    assert set(roles) | {int(facts["LeaderId"])} == {1, 2, 3, 101, 102, 103}
    assert versions[0] == 0
    told = re.findall(r"^(\S+) \(id: (\d) rack: \S+ isFenced: false\) -> \(", versions[1], re.MULTILINE)
    assert sorted(told) == sorted(zip(cluster.bootstrap.split(","), "123", strict=True))
    assert "Produce(0): 0 to 1" in versions[1]
    assert "UNSUPPORTED" in versions[1]  # groups and transactions are not there
