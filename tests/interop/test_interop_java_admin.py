"""Kafka's administration tools on pykraft: what works is asserted."""

import re

import kafka_jvm
import pytest
import traffic
from waiting import wait_until

pytestmark = pytest.mark.interop

TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
QUORUM = f"{TOOLS}.MetadataQuorumCommand"


VERSIONS = (kafka_jvm.DEFAULT_VERSION, kafka_jvm.NEWEST_VERSION)
CONFIGS = dict(zip(VERSIONS, ("kafka.admin.ConfigCommand", f"{TOOLS}.ConfigCommand"), strict=True))


@pytest.fixture(
    scope="module", params=[pytest.param(VERSIONS[0], marks=pytest.mark.ci), VERSIONS[1]]
)
def tool(shared_cluster, request):
    """Runs a tool's main class with arguments; `until` says when its output is right.

    A tool asks any broker, and a broker learns a moment later than the controller: what is read
    after a change is asked again until it shows.
    """
    with kafka_jvm.Tools(request.param) as tools:

        def run(command, until=None):
            words = command.split()
            words[1:1] = ["--bootstrap-server", shared_cluster.bootstrap]
            if until is None:
                return tools.run(*words)
            return wait_until(
                lambda: (lambda result: until(*result) and result)(tools.run(*words)), command, 20
            )

        run.version = request.param
        yield run


def test_topics(tool):
    name = f"tool-{tool.version}"
    create = f"{TOPICS} --create --topic {name}"
    code, said = tool(f"{create} --partitions 2 --replication-factor 3 --config retention.ms=10000")
    assert code == 0
    assert f"Created topic {name}." in said
    code, said = tool(create)
    assert code == 1
    assert "already exists" in said

    def whole(code, said):
        rows = re.findall(r"Partition: (\d)\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S+)", said)
        return code == 0 and [
            row[0] for row in rows if sorted(row[3].split(",")) == ["1", "2", "3"]
        ] == ["0", "1"]

    code, said = tool(f"{TOPICS} --describe --topic {name}", whole)
    assert re.search(
        r"PartitionCount: 2\s+ReplicationFactor: 3\s+Configs:.*retention.ms=10000", said
    )
    rows = re.findall(r"Leader: ([123])\s+Replicas: (\S+)", said)
    assert [row[0] for row in rows] == [row[1].split(",")[0] for row in rows]

    assert tool(f"{TOPICS} --alter --topic {name} --partitions 4")[0] == 0
    tool(f"{TOPICS} --describe --topic {name}", lambda code, said: "PartitionCount: 4" in said)
    code, said = tool(f"{create}-wide --partitions 1 --replication-factor 4")
    assert code == 1
    assert "replication factor" in said.lower()
    code, said = tool(f"{TOPICS} --list")
    assert code == 0
    assert name in said.split()
    assert tool(f"{TOPICS} --delete --topic {name}")[0] == 0
    tool(
        f"{TOPICS} --describe --topic {name}",
        lambda code, said: code == 1 and "does not exist" in said,
    )


def test_configs(shared_cluster, tool):
    name = f"configured-{tool.version}"
    with shared_cluster.admin() as admin:
        admin.create_topic(name, 1, 3)
    configs = CONFIGS[tool.version]
    alter = f"{configs} --alter --topic {name}"
    describe = f"{configs} --describe --topic {name}"
    # Once the tool knows the topic.
    tool(
        f"{alter} --add-config max.message.bytes=12345,cleanup.policy=[compact,delete]",
        lambda code, said: (code, said) == (0, f"Completed updating config for topic {name}."),
    )
    _, said = tool(describe, lambda code, said: "max.message.bytes=12345" in said)
    assert "DYNAMIC_TOPIC_CONFIG:max.message.bytes=12345" in said
    assert "cleanup.policy=compact,delete" in said
    code, said = tool(f"{alter} --add-config retention.ms=soon")
    assert code == 1
    assert "retention.ms" in said
    assert "soon" in said
    assert tool(f"{alter} --delete-config max.message.bytes")[0] == 0
    _, said = tool(describe, lambda code, said: "max.message.bytes" not in said)
    assert "cleanup.policy=compact,delete" in said
    code, said = tool(f"{configs} --describe --broker 1 --all")
    assert code == 0
    assert "num.partitions=" in said


def test_configs_of_groups(tool):
    name, configs = f"configured-{tool.version}", CONFIGS[tool.version]
    alter = f"{configs} --alter --group {name}"
    # Without --all the older tool asks for ListConfigResources, which isn't there.
    describe = f"{configs} --describe --group {name} --all"
    code, said = tool(f"{alter} --add-config consumer.session.timeout.ms=50000")
    assert (code, said) == (0, f"Completed updating config for group {name}.")
    own = "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000"
    tool(describe, lambda code, said: code == 0 and own in said)
    code, said = tool(f"{alter} --add-config consumer.session.timeout.ms=1")
    assert code == 1
    assert "InvalidConfigurationException" in said
    assert tool(f"{alter} --delete-config consumer.session.timeout.ms")[0] == 0
    tool(describe, lambda code, said: "consumer.session.timeout.ms=45000" in said)


def test_quorum_and_versions(shared_cluster, tool):
    code, said = tool(f"{QUORUM} describe --status")
    assert code == 0
    facts = dict(re.findall(r"^(\w+):\s+(.*)$", said, re.MULTILINE))
    leader = int(facts["LeaderId"])
    assert facts["ClusterId"] == shared_cluster.local.status()["cluster_id"]
    assert leader == shared_cluster.active_controller()
    assert int(facts["HighWatermark"]) > 0
    voters = re.findall(r'"id": (\d+)', facts["CurrentVoters"])
    assert sorted(voters) == ["101", "102", "103"]

    code, said = tool(f"{QUORUM} describe --replication")
    assert code == 0
    roles = {int(row[0]): row[-1] for row in (line.split() for line in said.splitlines()[1:])}
    assert roles == {
        id_: "Leader" if id_ == leader else "Observer" if id_ < 100 else "Follower"
        for id_ in shared_cluster.ids()
    }

    code, said = tool(f"{TOOLS}.BrokerApiVersionsCommand")
    assert code == 0
    told = re.findall(r"^(\S+) \(id: (\d) rack: \S+ isFenced: false\) -> \(", said, re.MULTILINE)
    assert sorted(told) == sorted(zip(shared_cluster.bootstrap.split(","), "123", strict=True))
    assert "Produce(0): 0 to 1" in said
    assert "JoinGroup(11): 0 to 9" in said
    assert "AddPartitionsToTxn(24): UNSUPPORTED" in said


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups(tool, shared_cluster, protocol):
    topic = group = f"group-{protocol}-{tool.version}"
    assert tool(f"{TOPICS} --create --topic {topic} --partitions 2 --replication-factor 3")[0] == 0
    traffic.wait_for_leaders(shared_cluster.bootstrap, topic, 2)
    traffic.confluent_produce(shared_cluster.bootstrap, topic, 100, partitions=2)
    # The tool's own name for what it hands on to its consumer has changed.
    option = "--consumer" if tool.version == kafka_jvm.DEFAULT_VERSION else "--command"
    consume = f"{TOOLS}.consumer.ConsoleConsumer --topic {topic} --group {group} --from-beginning"
    consume += f" --max-messages 100 --timeout-ms 60000 {option}-property group.protocol={protocol}"
    code, said = tool(consume)
    assert code == 0
    assert "Processed a total of 100 messages" in said

    groups = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    code, said = tool(f"{groups} --describe --group {group}")
    rows = re.findall(rf"^{group}\s+{topic}\s+(\d)\s+(\d+)\s+(\d+)\s+(\d+)\s", said, re.MULTILINE)
    assert sorted(rows) == [("0", "50", "50", "0"), ("1", "50", "50", "0")]
    ours = shared_cluster.json("groups", "describe", group)
    columns = ("partition", "offset", "end", "lag")
    assert [tuple(str(one[column]) for column in columns) for one in ours["partitions"]] == sorted(
        rows
    )
    assert (ours["type"], ours["state"]) == (protocol, "Empty")
    code, said = tool(f"{groups} --list --state")
    assert re.search(rf"^{group}\s+Empty$", said, re.MULTILINE)
    code, said = tool(f"{groups} --list --type {protocol}")
    assert re.search(rf"^{group}\s+{protocol.title()}\s*$", said, re.MULTILINE)
    reset = f"{groups} --reset-offsets --group {group} --topic {topic}:1 --to-offset 7 --execute"
    assert tool(reset)[0] == 0
    code, said = tool(f"{groups} --delete-offsets --group {group} --topic {topic}:0")
    assert "Successful" in said
    code, said = tool(f"{groups} --describe --group {group} --offsets")
    rows = re.findall(rf"^{group}\s+{topic}\s+(\d)\s+(\S+)\s+(\d+)\s+(\S+)\s", said, re.MULTILINE)
    assert ("1", "7", "50", "43") in rows
    code, said = tool(f"{groups} --delete --group {group}")
    assert f"('{group}') was successful" in said
