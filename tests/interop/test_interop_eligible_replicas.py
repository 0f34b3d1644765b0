"""Eligible leader replicas beside a JVM controller: the same story, the same records (KIP-966)."""

import random
import re
import time

import clusters
import kafka_jvm
import pytest
from controller_scene import Scene
from jvm_controller import jvm_controller
from waiting import wait_until

from metadata.features import ELIGIBLE_LEADER_REPLICAS
from metadata.image import BROKER_RESOURCE, METADATA_VERSION, TOPIC_RESOURCE
from metadata.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from metadata.records.types import FENCE, UNFENCE
from wire.errors import ErrorCode

pytestmark = pytest.mark.interop

TOOLS = "org.apache.kafka.tools"
MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
BROKERS = (1, 2, 3, 4, 5)
# The third topic may lose records.
TOPICS = {
    "a": {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)},
    "b": {0: (1, 2, 5, 4), 1: (4, 3, 1, 5), 2: (5, 4, 1, 2)},
    "c": {0: (4, 2), 1: (5, 1)},
}
FAR_AHEAD = 1 << 40
SESSION_MS = 1_000
STEPS = 200


class Pair:
    """A JVM controller and ours, told the same by the same brokers; `steps` for whom it fails."""

    def __init__(self, jvm, seed):
        self.jvm = jvm
        self.ours = Scene(
            elr=True,
            auto_leader_rebalance=False,
            session_timeout_ms=SESSION_MS,
            static={MIN_ISR: "2"},
        ).lead()
        self.chance = random.Random(seed)
        self.steps = []
        self.topic_ids = {}

    def begin(self):
        def is_active():
            return self.jvm.register(BROKERS[0]).error_code is ErrorCode.none

        wait_until(is_active, "an active JVM controller", 30)
        self.ours.register(BROKERS[0])
        for broker in BROKERS[1:]:
            self.both("register", broker)
        for broker in BROKERS:
            self.beat(broker)
        for name, assignments in TOPICS.items():
            configs = {UNCLEAN: "true"} if name == "c" else {}
            made = self.both("create_topic", name, assignments=assignments, configs=configs)
            assert [topic.error_code for topic in made] == [ErrorCode.none] * 2
            self.topic_ids[name] = [topic.topic_id for topic in made]

    def both(self, method, *arguments, **options):
        self.steps.append((method, arguments, options))
        return [getattr(one, method)(*arguments, **options) for one in (self.jvm, self.ours)]

    def same(self, answers):
        assert answers[0] == answers[1], (answers, self.steps[-8:])

    def beat(self, broker, **wants):
        answers = self.both("heartbeat", broker, current_metadata_offset=FAR_AHEAD, **wants)
        self.same([(one.error_code, one.is_fenced, one.should_shut_down) for one in answers])

    def keep_alive(self):
        for broker in BROKERS:
            found = self.ours.core.image.broker(broker)
            if found is not None and not found.fenced:
                self.beat(broker, want_shut_down=found.in_controlled_shutdown)

    def come_back(self, broker):
        """The next process of a fenced broker, once the old one's session is over."""
        told = [-1, -1]
        if self.chance.random() < 0.5:
            told = [one.epochs[broker] for one in (self.jvm, self.ours)]
        self.steps.append(("come back", broker, told))
        self.ours.now_ms += 2 * SESSION_MS
        assert self.ours.register(broker, previous_epoch=told[1]).error_code is ErrorCode.none
        while True:
            answer = self.jvm.register(broker, previous_epoch=told[0])
            if answer.error_code is not ErrorCode.duplicate_broker_registration:
                break
            self.keep_alive()
            time.sleep(0.05)
        assert answer.error_code is ErrorCode.none

    def alter_isr(self, name, index):
        """A leader reports a random ISR."""
        leader = self.ours.partition(name, index).leader
        others = [b for b in TOPICS[name][index] if b != leader]
        isr = (leader, *self.chance.sample(others, self.chance.randint(0, len(others))))
        self.steps.append(("alter isr", name, index, isr))
        answers = []
        for one, image, topic_id in zip(
            (self.jvm, self.ours),
            (self.jvm.image, self.ours.core.image),
            self.topic_ids[name],
            strict=True,
        ):
            found = image.partition(name, index)
            epochs = (found.leader_epoch, found.partition_epoch)
            answers.append(one.alter_isr(topic_id, index, leader, epochs, isr))
        self.same([one.error_code for one in answers])

    def step(self):
        self.keep_alive()
        chance = self.chance
        what = chance.choice(("stop", "stop", "back", "back", "back", "isr", "isr", "isr", "other"))
        broker = chance.choice(BROKERS)
        name = chance.choice(tuple(TOPICS))
        index = chance.choice(tuple(TOPICS[name]))
        found = self.ours.core.image.broker(broker)
        alive = found is not None and not found.fenced
        if what == "stop" and alive:
            if chance.random() < 0.3:
                self.beat(broker, want_shut_down=True)
            else:
                self.beat(broker, want_fence=True, want_shut_down=chance.random() < 0.5)
        elif what == "back" and not alive:
            if found is None or found.in_controlled_shutdown or chance.random() < 0.5:
                self.come_back(broker)
            else:
                self.beat(broker)
        elif what == "isr" and self.ours.partition(name, index).leader >= 0:
            self.alter_isr(name, index)
        elif what == "other":
            self.other(broker, name, index, registered=found is not None)

    def other(self, broker, name, index, *, registered):
        chance = self.chance
        what = chance.choice(("elect", "topic", "all", "one", "unregister"))
        value = chance.choice((None, "1", "2", "3"))
        if what == "elect":
            self.same(self.both("elect", name, index, unclean=chance.random() < 0.5))
        elif what == "topic":
            self.same(self.both("set_config", TOPIC_RESOURCE, name, MIN_ISR, value))
        elif what == "all":
            self.same(self.both("set_config", BROKER_RESOURCE, "", MIN_ISR, value))
        elif what == "one" and registered:
            self.same(self.both("set_config", BROKER_RESOURCE, str(broker), MIN_ISR, value))
        elif what == "unregister" and registered and chance.random() < 0.3:
            self.same([answer.error_code for answer in self.both("unregister", broker)])


def told(records):
    """(the changes of each partition in order, everything else in order), in terms that two
    clusters have in common.

    A JVM controller fences who is fenced already, and changes a partition twice where a broker that
    goes is in two of its lists; neither says anything.
    """
    names = {}
    changes = {}
    rest = []
    fenced = {}
    for record in records:
        if isinstance(record, TopicRecord):
            names[record.topic_id] = record.name
        elif isinstance(record, PartitionChangeRecord):
            mine = changes.setdefault((names[record.topic_id], record.partition_id), [])
            change = (
                record.isr,
                record.leader,
                record.leader_recovery_state,
                record.eligible_leader_replicas,
                record.last_known_elr,
                record.replicas,
            )
            if mine[-1:] != [change]:
                mine.append(change)
        elif isinstance(record, ClearElrRecord | ConfigRecord):
            rest.append(record)
        elif isinstance(record, RegisterBrokerRecord):
            fenced[record.broker_id] = True
            rest.append(("registered", record.broker_id, record.fenced))
        elif isinstance(record, BrokerRegistrationChangeRecord):
            again = record.fenced == FENCE and fenced[record.broker_id]
            if record.fenced in (FENCE, UNFENCE):
                fenced[record.broker_id] = record.fenced == FENCE
            if not again:
                rest.append((record.broker_id, record.fenced, record.in_controlled_shutdown))
    return changes, rest


@pytest.mark.ci
@pytest.mark.parametrize("version", [kafka_jvm.NEWEST_VERSION])
def test_the_same_story_makes_the_same_records(version, tmp_path):
    levels = {
        METADATA_VERSION: 25,
        ELIGIBLE_LEADER_REPLICAS: 1,
        "group.version": 0,
        "transaction.version": 0,
    }
    properties = {"broker_session_timeout_ms": SESSION_MS, "min_insync_replicas": 2}
    with jvm_controller(tmp_path, version, levels, **properties) as jvm:
        pair = Pair(jvm, seed=1)
        pair.begin()
        for _ in range(STEPS):
            pair.step()
        theirs, ours = told(jvm.records()), told(pair.ours.records())
        assert ours == theirs
    everything = [change for changes in ours[0].values() for change in changes]
    assert sum(bool(elr) for _, _, _, elr, _, _ in everything) > 10
    assert sum(bool(last) for _, _, _, _, last, _ in everything) > 5
    assert any(isinstance(one, ClearElrRecord) for one in ours[1])


@pytest.mark.ci
def test_kafkas_tools_turn_it_on_and_show_who_is_eligible(tmp_path):
    settings = {MIN_ISR: 2}
    with (
        clusters.running_cluster(tmp_path, 1, 2, settings) as cluster,
        kafka_jvm.Tools(kafka_jvm.NEWEST_VERSION) as tools,
    ):

        def run(tool, *words):
            server = ("--bootstrap-server", f"localhost:{cluster.node(1).broker.split(':')[1]}")
            code, said = tools.run(f"{TOOLS}.{tool}", *server, *words)
            assert code == 0, said
            return said

        run("FeatureCommand", "upgrade", "--feature", f"{ELIGIBLE_LEADER_REPLICAS}=1")
        asked = ("--entity-type", "brokers", "--entity-default", "--describe")
        wait_until(lambda: f"{MIN_ISR}=2" in run("ConfigCommand", *asked), "one minimum", 20)
        run("TopicCommand", "--create", "--topic", "t", "--replica-assignment", "1:2")
        cluster.kill(2)

        def shown():
            said = run("TopicCommand", "--describe", "--topic", "t")
            return re.search(r"Leader: 1\s.*Isr: 1\s+Elr: 2\s+LastKnownElr:\s*$", said, re.M)

        wait_until(shown, "broker 2 is eligible", 30)
