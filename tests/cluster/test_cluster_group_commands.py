"""`pykraft groups` on real nodes: what it shows is so, and what it changes holds."""

import time
import uuid

import pytest
from clusters import running_cluster
from confluent_kafka import Producer
from group_member import NODE_SETTINGS, Member
from waiting import wait_until

pytestmark = pytest.mark.cluster

PARTITIONS = 3
RECORDS = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with running_cluster(tmp_path_factory.mktemp("group-commands"), 1, 2, NODE_SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster):
    """A topic with as many records in each partition, all produced by the same time."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    with cluster.admin() as admin:
        admin.create_topic(name, PARTITIONS, 2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(name, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    return name


def has_read_all(cluster, group):
    def look():
        partitions = cluster.json("groups", "describe", group)["partitions"]
        return len(partitions) == PARTITIONS and all(one["lag"] == 0 for one in partitions)

    return look


@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_a_groups_life(cluster, topic, protocol):
    group = f"g-{protocol}-{topic}"
    kind = "consumer" if protocol == "consumer" else "classic"
    member = Member("confluent", protocol, cluster.bootstrap, group, topic)
    try:
        wait_until(lambda: len(member.got) == RECORDS, "all records are read")
        wait_until(has_read_all(cluster, group), "all offsets are committed")
        described = cluster.json("groups", "describe", group)
        listed = [one for one in cluster.json("groups", "list") if one["group"] == group]
        refused = [
            cluster.pykraft("groups", "delete", group, code=1),
            cluster.pykraft("groups", "reset", group, "--to", "earliest", code=1),
            cluster.pykraft("groups", "reset", group, "--to", "latest", "--dry-run", code=1),
        ]
    finally:
        member.leave()
    assert (described["type"], described["state"]) == (kind, "Stable")
    assert listed == [
        {
            "group": group,
            "type": kind,
            "protocol": "consumer",
            "state": "Stable",
            "coordinator": described["coordinator"],
        }
    ]
    [about] = described["members"]
    assert about["assigned"] == {topic: list(range(PARTITIONS))}
    assert about["host"] == "/127.0.0.1"
    end = RECORDS // PARTITIONS
    assert described["partitions"] == [
        {
            "topic": topic,
            "partition": index,
            "offset": end,
            "end": end,
            "member": about["id"],
            "lag": 0,
        }
        for index in range(PARTITIONS)
    ]
    for told in refused:
        assert told == f"pykraft: NON_EMPTY_GROUP: {group} has members: end them first\n"

    # It begins where it is told to once more.
    wait_until(lambda: cluster.json("groups", "describe", group)["state"] == "Empty", "it is empty")
    aims = cluster.json("groups", "reset", group, "--topic", f"{topic}:1,2", "--to", "7")
    assert aims == [
        {"topic": topic, "partition": index, "before": end, "offset": 7, "dry_run": False}
        for index in (1, 2)
    ]
    member = Member("confluent", protocol, cluster.bootstrap, group, topic)
    try:
        wait_until(lambda: len(member.got) == 2 * (end - 7), "what is left is read")
        again = sorted((partition, offset) for partition, offset, _ in member.got)
        wait_until(has_read_all(cluster, group), "all offsets are committed again")
    finally:
        member.leave()
    assert again == [(index, offset) for index in (1, 2) for offset in range(7, end)]

    wait_until(lambda: cluster.json("groups", "describe", group)["state"] == "Empty", "it is empty")
    assert cluster.pykraft("groups", "delete", group) == f"group {group} is deleted\n"
    gone = f"pykraft: GROUP_ID_NOT_FOUND: no group is called '{group}'\n"
    assert cluster.pykraft("groups", "delete", group, code=1) == gone
    assert cluster.pykraft("groups", "describe", group, code=1) == gone


def test_where_a_group_may_begin(cluster, topic):
    group, end = f"fresh-{topic}", RECORDS // PARTITIONS

    def reset(*words, code=0):
        if code:
            return cluster.pykraft("groups", "reset", group, *words, code=code)
        return [one["offset"] for one in cluster.json("groups", "reset", group, *words)]

    assert "name the topics" in reset("--to", "earliest", code=1)
    shown = cluster.json("groups", "reset", group, "--to", "latest", "--topic", topic, "--dry-run")
    assert [(one["offset"], one["dry_run"]) for one in shown] == [(end, True)] * PARTITIONS
    assert "no group is called" in cluster.pykraft("groups", "describe", group, code=1)
    assert reset("--to", "latest", "--topic", f"{topic}:0") == [end]
    assert reset("--to", "2001-01-01T00:00:00Z", "--topic", topic) == [0] * PARTITIONS
    tomorrow = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 86_400))
    assert reset("--to", tomorrow) == [end] * PARTITIONS
    every = ", ".join(f"{topic}-{n} has offsets from 0 to {end}" for n in range(PARTITIONS))
    assert f"{every}: {end + 1} is not among them" in reset("--to", str(end + 1), code=1)
    assert f"{topic} has {PARTITIONS} partitions, none is 3" in reset(
        "--to", "0", "--topic", f"{topic}:3", code=1
    )
    assert "no topic is called nothing" in reset("--to", "0", "--topic", "nothing", code=1)
    found = cluster.json("groups", "describe", group)
    assert [one["offset"] for one in found["partitions"]] == [end] * PARTITIONS
    assert found["members"] == []
    # A group of which there are offsets alone.
    assert cluster.pykraft("groups", "describe", group).startswith(f"{group}: classic, Empty, ")


def test_several_groups_at_once(cluster, topic):
    first, second, missing = f"first-{topic}", f"second-{topic}", f"missing-{topic}"
    for group in (first, second):
        cluster.pykraft("groups", "reset", group, "--to", "latest", "--topic", topic)
    alone = [cluster.json("groups", "describe", group) for group in (first, second)]
    assert cluster.json("groups", "describe", first, second, first) == alone
    shown = cluster.pykraft("groups", "describe", first, second)
    assert [one.partition(":")[0] for one in shown.split("\n\n")] == [first, second]
    # What is not there keeps nobody from the others.
    gone = f"pykraft: GROUP_ID_NOT_FOUND: no group is called '{missing}'\n"
    assert cluster.pykraft("groups", "delete", first, missing, second, code=1) == gone
    assert cluster.pykraft("groups", "describe", first, second, code=1) == (
        f"pykraft: GROUP_ID_NOT_FOUND: no group is called '{first}'\n"
        f"pykraft: GROUP_ID_NOT_FOUND: no group is called '{second}'\n"
    )


def test_a_group_without_a_name_is_told_that_it_needs_one(cluster):
    told = "pykraft: INVALID_GROUP_ID: group '': must not be empty\n"
    assert cluster.pykraft("groups", "describe", "", code=1) == told
    assert cluster.pykraft("groups", "reset", "", "--to", "latest", code=1) == told
    assert cluster.pykraft("groups", "delete", "", code=1) == told


def test_a_group_whose_topic_was_deleted_is_there_and_has_nothing_to_go_by(cluster, topic):
    group = f"left-{topic}"
    cluster.pykraft("groups", "reset", group, "--to", "latest", "--topic", topic)
    cluster.pykraft("topics", "delete", topic)
    wait_until(lambda: not cluster.json("groups", "describe", group)["partitions"], "they went")
    assert cluster.pykraft("groups", "reset", group, "--to", "latest", code=1) == (
        f"pykraft: INVALID_REQUEST: {group} has no committed offsets (those of a deleted topic go "
        "with it): name the topics that it is to read\n"
    )
