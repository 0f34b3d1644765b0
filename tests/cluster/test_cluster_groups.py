"""Groups of real consumers on real nodes: members and coordinators die, no record is missed."""

import json
import subprocess
import sys
import threading
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from clusters import running_cluster
from commit_judge import Progress
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from group_member import NODE_SETTINGS, Member
from waiting import NotInTime, wait_until

pytestmark = pytest.mark.cluster

GATHERING = Path(__file__).resolve().parents[2] / "scripts" / "benchmarks" / "gathering.py"
PARTITIONS = 6


@pytest.fixture(scope="module")
def one_cluster(tmp_path_factory):
    with running_cluster(tmp_path_factory.mktemp("groups"), 1, 3, NODE_SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def cluster(one_cluster):
    """The cluster with all its nodes, also after a test that failed half-way."""
    if any(one_cluster.process(id_) is None for id_ in one_cluster.ids()):
        one_cluster.up(1, 3)
    return one_cluster


class Writer:
    """Produces numbered records from a thread until it is told to stop."""

    def __init__(self, bootstrap, topic):
        self.count = 0
        self._stop = threading.Event()
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._stop.wait(0.01):
            for _ in range(5):
                self._producer.produce(
                    self._topic, b"%d" % self.count, partition=self.count % PARTITIONS
                )
                self.count += 1
            self._producer.poll(0)

    def stop(self):
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


@contextmanager
def group_of(count, library, protocol, cluster, replicas=3):
    """A group's name, a topic, and members that are ended afterwards."""
    topic = group = f"{library}-{protocol}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS, replicas)], operation_timeout=60)[
        topic
    ].result()
    members = [Member(library, protocol, cluster.bootstrap, group, topic) for _ in range(count)]
    try:
        yield topic, group, members
    finally:
        for member in members:
            with suppress(ValueError):
                member.kill()


def shared_out(members):
    """Whether each partition has one owner, and nobody has more than a fair share."""
    owned = sorted(p for member in members for p in member.owns)
    fair = -(-PARTITIONS // len(members))
    return owned == list(range(PARTITIONS)) and all(len(m.owns) <= fair for m in members)


def wait_until_shared(members, what, timeout_s):
    """Until they are `shared_out`; if not, what each said last is told."""
    try:
        wait_until(lambda: shared_out(members), what, timeout_s)
    except NotInTime as error:
        told = [(m.process.poll(), m.owns, m.said[-3:]) for m in members]
        raise AssertionError(f"{error}; members (code, owns, said): {told!r:.3000}") from error


def consumed(members):
    return {int(value) for member in members for _, _, value in list(member.got)}


def described(cluster, group):
    """By a new client each time: one remembers for minutes who coordinates a group."""

    def describe():
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        return admin.describe_consumer_groups([group])[group].result()

    return wait_until(describe, "the group is described", errors=(KafkaException,))


def committed(bootstrap, group, topic):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        asked = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        return [p.offset for p in consumer.committed(asked, timeout=60)]
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("library", "protocol"),
    [
        pytest.param("confluent", "range", marks=pytest.mark.ci),
        pytest.param("confluent", "cooperative-sticky", marks=pytest.mark.ci),
        ("confluent", "consumer"),
        pytest.param("kafka-python", "classic", marks=pytest.mark.ci),
    ],
)
def test_members_and_coordinators_die_and_no_record_is_missed(cluster, library, protocol):
    with group_of(3, library, protocol, cluster) as (topic, group, members):
        writer = Writer(cluster.bootstrap, topic)
        try:
            wait_until(lambda: shared_out(members), "three members share the partitions", 60)
            wait_until(lambda: len(consumed(members)) > 100, "they consume")
            members[0].kill()
            alive = members[1:]
            wait_until(lambda: shared_out(alive), "two members share what three had", 40)
            coordinator = described(cluster, group).coordinator.id
            cluster.kill(coordinator)
            before = writer.count
            wait_until(
                lambda: len([n for n in consumed(alive) if n > before + 100]) > 100,
                "they go on without the broker that coordinated them",
                60,
            )
            cluster.start(coordinator)
            members.append(Member(library, protocol, cluster.bootstrap, group, topic))
            alive = members[1:]
            wait_until(lambda: shared_out(alive), "a third member gets its share", 60)
        finally:
            writer.stop()
        everything = set(range(writer.count))
        wait_until(lambda: consumed(members) == everything, "all was consumed", 60)
        for member in alive:
            member.leave()
        ends = [len(range(p, writer.count, PARTITIONS)) for p in range(PARTITIONS)]
        # The last word of each, also of commits that a rebalance has refused.
        wait_until(
            lambda: committed(cluster.bootstrap, group, topic) == ends, "all is committed", 30
        )
        assert described(cluster, group).members == []


def test_who_comes_later_goes_on_where_the_group_was(cluster):
    with group_of(1, "confluent", "range", cluster) as (topic, group, members):
        writer = Writer(cluster.bootstrap, topic)
        wait_until(lambda: len(consumed(members)) > 100, "it consumes", 60)
        members[0].leave()
        writer.stop()
        at = committed(cluster.bootstrap, group, topic)
        members.append(Member("confluent", "range", cluster.bootstrap, group, topic))
        expected = set(range(writer.count)) - consumed(members[:1])
        wait_until(lambda: consumed(members[1:]) >= expected, "the rest is consumed", 60)
        first = {}
        for partition, offset, _ in members[1].got:
            first.setdefault(partition, offset)
        assert first == {p: max(at[p], 0) for p in first}
        members[1].leave()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.delete_consumer_groups([group])[group].result()
        assert committed(cluster.bootstrap, group, topic) == [-1001] * PARTITIONS


def wait_until_in_sync(cluster, *topics):
    def whole():
        with cluster.admin() as admin:
            described = admin.describe_topics(list(topics), linearizable=True)
        partitions = [p for topic in topics for p in described[topic]["partitions"].values()]
        return all(len(p["isr"]) == len(p["replicas"]) for p in partitions)

    wait_until(whole, f"every replica of {topics} is in the ISR", 90, 0.1)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("library", "protocol"),
    [
        ("confluent", "range"),
        ("confluent", "cooperative-sticky"),
        ("confluent", "consumer"),
        ("kafka-python", "classic"),
    ],
)
def test_every_broker_is_restarted_and_members_go_on_where_they_committed(
    cluster, library, protocol
):
    """One after the other, each when the last one is in sync again, while members come and go."""
    with group_of(3, library, protocol, cluster) as (topic, group, members):
        writer = Writer(cluster.bootstrap, topic)
        alive = list(members)
        try:
            wait_until(lambda: shared_out(alive), "three members share the partitions", 90)
            # Only then is there something to go on from, whichever of them leaves.
            wait_until(
                lambda: len(Progress(members).acknowledged) == PARTITIONS, "each has a commit"
            )
            for broker in cluster.ids("broker"):
                cluster.stop(broker)
                alive.pop(0).leave()
                members.append(Member(library, protocol, cluster.bootstrap, group, topic))
                alive.append(members[-1])
                wait_until_shared(alive, "those who are in share them", 90)
                cluster.start(broker)
                wait_until_in_sync(cluster, topic, "__consumer_offsets")
                wait_until_commits_go_on(members)
        finally:
            writer.stop()
        everything = set(range(writer.count))
        wait_until(lambda: consumed(members) == everything, "all was consumed", 90)
        for member in alive:
            member.leave()
        progress = Progress(members)
        assert progress.problems == []
        assert progress.takeovers >= PARTITIONS
        at = committed(cluster.bootstrap, group, topic)
        lost = {p: (at[p], end) for p, end in progress.acknowledged.items() if at[p] < end}
        assert lost == {}, "acknowledged commits are gone: {partition: (committed, acknowledged)}"


@pytest.mark.parametrize("old", ["range", pytest.param("roundrobin", marks=pytest.mark.ci)])
def test_a_group_changes_the_protocol_and_back_while_it_consumes(cluster, old):
    def kind():
        return described(cluster, group).type.name

    with group_of(2, "confluent", old, cluster) as (topic, group, members):
        writer = Writer(cluster.bootstrap, topic)
        try:
            wait_until(lambda: shared_out(members), "two members share the partitions", 60)
            assert kind() == "CLASSIC"
            newer = Member("confluent", "consumer", cluster.bootstrap, group, topic)
            members.append(newer)
            wait_until(lambda: shared_out(members), "the three share the partitions", 60)
            assert kind() == "CONSUMER"
            members[0].leave()
            wait_until(lambda: shared_out(members[1:]), "one of each shares them", 60)
            before = writer.count
            wait_until(
                lambda: len([n for n in consumed(members) if n > before]) > 100, "they consume"
            )
            newer.leave()
            wait_until(lambda: shared_out(members[1:2]), "the old one has all", 60)
            assert kind() == "CLASSIC"
        finally:
            writer.stop()
        everything = set(range(writer.count))
        wait_until(lambda: consumed(members) == everything, "all was consumed", 60)


def read_from_committed(bootstrap, group, topic, count):
    """What a new member of the group reads, until that is as many records as said."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    got = []

    def enough():
        got.extend(m.value() for m in consumer.consume(100, 0.5) if m.error() is None)
        return len(got) >= count

    try:
        consumer.subscribe([topic])
        wait_until(enough, f"{count} records are read", 90)
    finally:
        consumer.close()
    return got


def test_a_topic_made_anew_while_its_groups_coordinator_was_dead_is_read_from_its_start(cluster):
    topic = group = f"anew-{uuid.uuid4().hex[:8]}"

    def fill(what):
        with cluster.admin() as admin:
            admin.create_topic(topic, PARTITIONS, 3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        values = [b"%s %d" % (what, number) for number in range(10 * PARTITIONS)]
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        return values

    old = fill(b"old")
    assert sorted(read_from_committed(cluster.bootstrap, group, topic, len(old))) == sorted(old)
    assert committed(cluster.bootstrap, group, topic) == [10] * PARTITIONS
    coordinator = described(cluster, group).coordinator.id
    cluster.kill(coordinator)
    try:
        with cluster.admin() as admin:
            admin.delete_topic(topic)
        new = fill(b"new")
        got = read_from_committed(cluster.bootstrap, group, topic, len(new))
        assert sorted(got) == sorted(new)
    finally:
        cluster.start(coordinator)
    wait_until_in_sync(cluster, topic, "__consumer_offsets")


def offsets_leaders(cluster):
    with cluster.admin() as admin:
        described = admin.describe_topics(["__consumer_offsets"], linearizable=True)
    return {p["leader"] for p in described["__consumer_offsets"]["partitions"].values()}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("library", "protocol"),
    [("confluent", "range"), ("confluent", "consumer"), ("kafka-python", "classic")],
)
def test_a_coordinator_that_stood_still_leaves_nobody_behind(cluster, library, protocol):
    """It stops with its members' requests in hand, others take over, and it goes on."""
    with group_of(3, library, protocol, cluster) as (topic, group, members):
        writer = Writer(cluster.bootstrap, topic)
        try:
            wait_until(lambda: shared_out(members), "three members share the partitions", 90)
            coordinator = described(cluster, group).coordinator.id
            cluster.local.pause([coordinator])
            try:
                wait_until(
                    lambda: coordinator not in offsets_leaders(cluster), "others lead", 60, 0.1
                )
            finally:
                cluster.local.resume([coordinator])
            wait_until_in_sync(cluster, topic, "__consumer_offsets")
            wait_until(lambda: shared_out(members), "the three share them again", 90)
            wait_until_commits_go_on(members)
        finally:
            writer.stop()
        everything = set(range(writer.count))
        wait_until(lambda: consumed(members) == everything, "all was consumed", 90)
        assert Progress(members).problems == []


@pytest.mark.ci
def test_a_group_whose_assignor_keeps_data_stays_classic(cluster):
    """librdkafka's cooperative-sticky writes some into every assignment after the first. JVM Kafka
    refuses members of the newer protocol then, and so the client fails; nobody else notices."""
    with group_of(1, "confluent", "cooperative-sticky", cluster) as (topic, group, members):
        writer = Writer(cluster.bootstrap, topic)
        try:
            wait_until(lambda: shared_out(members), "one has all", 60)
            members.append(
                Member("confluent", "cooperative-sticky", cluster.bootstrap, group, topic)
            )
            wait_until(lambda: shared_out(members), "two share the partitions", 60)
            newer = Member("confluent", "consumer", cluster.bootstrap, group, topic)
            members.append(newer)
            wait_until(  # of any broker: leaders go back to where they are to be now and then
                lambda: [
                    entry
                    for broker in cluster.ids("broker")
                    for entry in cluster.log_entries(broker)
                    if entry["event"] == "group_stays_classic" and entry["group"] == group
                ],
                "the log says why",
                60,
            )
            wait_until_commits_go_on(members)
            assert shared_out(members[:2])
            assert (newer.owns, described(cluster, group).type.name) == ([], "CLASSIC")
        finally:
            writer.stop()


def wait_until_commits_go_on(*groups):
    """Until each group has committed something newer of every partition than it had by now."""
    before = [Progress(members).acknowledged for members in groups]

    def further():
        now = [Progress(members).acknowledged for members in groups]
        partitions = range(PARTITIONS)
        return all(
            n.get(p, 0) > b.get(p, 0) for n, b in zip(now, before, strict=True) for p in partitions
        )

    wait_until(further, "newer commits are acknowledged", 90, 0.2)


@pytest.mark.ci
def test_the_topic_of_offsets_grows_and_is_deleted(tmp_path):
    """As in Kafka: until a broker starts anew, groups stay where they are; without the topic they
    begin anew, and clients of the consumer protocol are told that there is no such group."""
    settings = NODE_SETTINGS | {"offsets.topic.num.partitions": 3}
    with (
        running_cluster(tmp_path, 1, 1, settings) as cluster,
        group_of(2, "confluent", "cooperative-sticky", cluster, 1) as (topic, group, members),
        group_of(1, "confluent", "consumer", cluster, 1) as (other_topic, _, other_members),
    ):
        writers = [Writer(cluster.bootstrap, name) for name in (topic, other_topic)]
        try:
            wait_until_commits_go_on(members, other_members)
            wait_until(lambda: shared_out(members), "two members share the partitions", 60)
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
            grown = admin.create_partitions([NewPartitions("__consumer_offsets", 50)])
            grown["__consumer_offsets"].result(120)
            before = [
                sum("assigned" in line for line in m.said) for m in (*members, *other_members)
            ]
            wait_until_commits_go_on(members, other_members)
            after = [sum("assigned" in line for line in m.said) for m in (*members, *other_members)]
            assert after == before, "partitions changed hands"
            assert Progress(members).problems == Progress(other_members).problems == []
            begun = [len(member.said) for member in members]
            admin.delete_topics(["__consumer_offsets"])["__consumer_offsets"].result(120)
            wait_until(
                lambda: all(
                    any("assigned" in line for line in member.said[n:])
                    for member, n in zip(members, begun, strict=True)
                ),
                "the classic members have joined anew",
                90,
            )
            wait_until(lambda: shared_out(members), "they share the partitions", 60)
            newest = writers[0].count
            wait_until(
                lambda: len([n for n in consumed(members) if n > newest]) > 100, "they go on", 90
            )
            assert len(described(cluster, group).members) == 2
            assert min(committed(cluster.bootstrap, group, topic)) > 0
        finally:
            for writer in writers:
                writer.stop()
        events = {entry["event"] for entry in cluster.log_entries(1)}
        assert "offsets_topic_has_grown" in events
        assert "group_coordinator_crashed" not in events


@contextmanager
def gathered(cluster, protocol, members, partitions):
    """A group whose members all came at once and have their partitions, and the time it took. They
    speak the protocol without being consumers: so many of those would need a machine of their own.
    """
    group = topic = f"many-{protocol}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 3)], operation_timeout=60)[topic].result()
    job = {"bootstrap": cluster.bootstrap, "group": group, "topic": topic, "protocol": protocol}
    job |= {"members": members, "partitions": partitions, "timeout_s": 120}
    process = subprocess.Popen(
        [sys.executable, "-I", str(GATHERING), json.dumps(job)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            said = process.stdout.readline()
            assert said, process.stderr.read()[-3000:]
            yield group, json.loads(said)["settle"]
            process.stdin.close()
            assert process.wait(120) == 0, process.stderr.read()[-3000:]
        finally:
            process.kill()
    admin.delete_topics([topic])[topic].result()


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.ci)])
def test_fifty_members_share_two_hundred_partitions(cluster, protocol, record_property):
    with gathered(cluster, protocol, 50, 200) as (group, settle_s):
        print(f"\n50 members have 200 partitions after {settle_s:.2f} s ({protocol})")
        record_property("settle_s", settle_s)
        found = described(cluster, group)
        assert (found.state.name, found.type.name) == ("STABLE", protocol.upper())
        owned = [[p.partition for p in m.assignment.topic_partitions] for m in found.members]
        assert sorted(map(len, owned)) == [4] * 50
        assert sorted(p for those in owned for p in those) == list(range(200))
    assert described(cluster, group).members == []


@pytest.mark.parametrize(("offset", "is_wrong"), [(1, True), (2, False), (3, False), (4, True)])
def test_who_goes_on_elsewhere_than_committed_is_noticed(offset, is_wrong):
    """2 is acknowledged, of 3 the member never heard; 1 is read again, 3 would be left out by 4."""
    one, two = SimpleNamespace(said=[]), SimpleNamespace(said=[])
    one.said += [{"at": 1, "assigned": [0]}, {"at": 2, "got": [[0, 0, "a"], [0, 1, "b"]]}]
    one.said += [{"at": 3, "committed": [[0, 2]]}, {"at": 4, "got": [[0, 2, "c"]]}]
    two.said += [{"at": 5, "assigned": [0]}, {"at": 6, "got": [[0, offset, "d"]]}]
    progress = Progress([one, two])
    assert bool(progress.problems) == is_wrong
    assert (progress.acknowledged, progress.takeovers) == ({0: 2}, 1)


def test_a_group_has_times_of_its_own_by_the_command_line(cluster):
    setting = ("--set", "consumer.session.timeout.ms=7000")
    shown = cluster.pykraft("configs", "alter", "--group", "patient", *setting)
    assert shown.split("\n")[1].split() == ["consumer.session.timeout.ms", "7000", "GROUP"]
    told = cluster.pykraft("configs", "alter", "--group", "", *setting, code=1)
    assert "INVALID_REQUEST" in told
    gone = ("--delete", "consumer.session.timeout.ms")
    assert "7000" not in cluster.pykraft("configs", "alter", "--group", "patient", *gone)
