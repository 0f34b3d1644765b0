"""Consumer groups of clients in several languages, on nodes that die.

One story for each library and protocol: three members share six partitions; one is killed, one
leaves, the broker that coordinates the group is killed; no record is missed, and what was
committed is not read again by members that come later.
"""

import os
import uuid

import pytest
import traffic
from foreign_clients import ForeignClient
from group_member import NODE_SETTINGS
from waiting import wait_until

from pykraft.testing import Cluster

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1_200)]

CI = os.environ.get("CI") == "true"
PARTITIONS = 6
COUNT = 3000 if CI else 600
WAIT_S = 90
ci = pytest.mark.ci
STORIES = [
    pytest.param("franz-go", "cooperative-sticky", id="franz-go", marks=ci),
    pytest.param("franz-go", "range", id="franz-go-range", marks=ci),
    pytest.param("franz-go", "consumer", id="franz-go-consumer", marks=ci),
    pytest.param("sarama", "range", id="sarama", marks=ci),
    pytest.param("sarama", "sticky", id="sarama-sticky", marks=ci),
    pytest.param("kafkajs", "range", id="kafkajs", marks=ci),
    pytest.param("aiokafka", "range", id="aiokafka", marks=ci),
    pytest.param("aiokafka", "sticky", id="aiokafka-sticky", marks=ci),
]
# KafkaJS has no static membership.
STATIC = [
    pytest.param("franz-go", "cooperative-sticky", id="franz-go"),
    pytest.param("sarama", "range", id="sarama", marks=ci),
    pytest.param("aiokafka", "range", id="aiokafka", marks=ci),
]


@pytest.fixture(scope="module")
def one_cluster():
    with Cluster(brokers=3, controllers=1, properties=NODE_SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def cluster(one_cluster):
    """All nodes run, also after a test that failed half-way."""
    one_cluster.heal()
    return one_cluster


class Group:
    """A topic that is written to, and members of one library that read it."""

    def __init__(self, cluster, library, protocol):
        self.cluster, self.protocol = cluster, protocol
        self.client = ForeignClient(library)
        self.name = f"{library}-{protocol}-{uuid.uuid4().hex[:8]}"
        self.topic = cluster.create_topic(self.name, partitions=PARTITIONS, replication_factor=3)
        self.members = []
        self.written = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self.members:
            if member.process.poll() is None:
                member.kill()

    def join(self, count, *, instances=None):
        """Adds members; returns when all members share the partitions."""
        joined = [
            self.client.member(
                self.cluster.bootstrap_servers, self.name, self.topic, self.protocol, instance
            )
            for instance in (instances or ["-"] * count)
        ]
        self.members += joined
        self.wait_until_shared()
        return joined

    def alive(self):
        return [member for member in self.members if member.process.poll() is None]

    def wait_until_shared(self):
        """Until every partition has one owner and every member has its share."""

        def shared():
            owned = [member.owns for member in self.alive()]
            whole = sorted(p for owns in owned for p in owns) == list(range(PARTITIONS))
            return whole and all(owned) and (max(map(len, owned)) - min(map(len, owned)) <= 1)

        self._wait(shared, "the partitions are shared")

    def write(self, count=COUNT):
        """Writes, and waits until the group has had all that was ever written."""
        settings = {"enable.idempotence": True}
        traffic.confluent_produce(
            self.cluster.bootstrap_servers,
            self.topic,
            count,
            partitions=PARTITIONS,
            start=self.written,
            **settings,
        )
        self.written += count
        self._wait(lambda: len(self.seen()) == self.written, "all records came")
        assert self.seen() == {traffic.value(i).decode() for i in range(self.written)}

    def seen(self):
        return {value for member in self.members for _, _, value in list(member.got)}

    def _wait(self, condition, what):
        try:
            wait_until(condition, what, WAIT_S)
        except AssertionError as error:
            told = [
                (member.process.poll(), member.owns, len(member.got), member.errors[-5:])
                for member in self.members
            ]
            raise AssertionError(f"{error}; members (code, owns, had, errors): {told}") from error


def coordinator(cluster, group):
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    (future,) = admin.describe_consumer_groups([group], request_timeout=20).values()
    return future.result(120).coordinator.id


@pytest.mark.parametrize(("library", "protocol"), STORIES)
def test_a_group_whose_members_and_coordinator_die(cluster, library, protocol):
    with Group(cluster, library, protocol) as group:
        one, two, three = group.join(3)
        group.write()
        one.kill()
        group.wait_until_shared()
        group.write()
        two.leave()
        group.wait_until_shared()
        group.join(1)
        group.write()
        cluster.kill(coordinator(cluster, group.name))
        group.write()
        cluster.heal()
        cluster.wait_until_in_sync(group.topic)
        group.wait_until_shared()
        for member in group.alive():
            member.leave()
        # All was read and all committed: those who come now get what comes now.
        before = group.written
        (late,) = group.join(1)
        group.write()
        old = {traffic.value(i).decode() for i in range(before)}
        again = {value for _, _, value in late.got} & old
        assert not again, f"{len(again)} records were read again after they were committed"
        assert three.got


@pytest.mark.parametrize(("library", "protocol"), STATIC)
def test_a_static_member_comes_back_to_its_partitions(cluster, library, protocol):
    """Killed and started again within its session: nobody else's partitions move."""
    with Group(cluster, library, protocol) as group:
        one, two, three = group.join(3, instances=["a", "b", "c"])
        group.write()
        mine, others = one.owns, [two.owns, three.owns]
        one.kill()
        (back,) = group.join(1, instances=["a"])
        assert back.owns == mine
        assert [two.owns, three.owns] == others
        group.write()


@pytest.mark.ci
def test_a_killed_static_member_of_the_newer_protocol_waits_for_its_id(cluster):
    """It is another's until its session is over (KIP-848), or until that one says that it leaves
    for a while: franz-go 1.22 says so without its instance id, which is refused, as Kafka does."""
    with Group(cluster, "franz-go", "consumer") as group:
        one, two, three = group.join(3, instances=["a", "b", "c"])
        group.write()
        others = [two.owns, three.owns]
        one.kill()
        assert [two.owns, three.owns] == others
        group.join(1, instances=["a"])
        group.write()
