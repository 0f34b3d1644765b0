"""The controller and three brokers' partition cores under random stops, restarts and lost tails.

One replica at a time may stop without a word and lose any part of its log, until it is back in the
ISR; any number may stop in order (min.insync.replicas 2). Then no acknowledged record is lost, and
nobody leads uncleanly.
"""

import random

from controller_scene import Scene
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from partition_world import IDS, MIN_ISR, World

from broker.partition_events import Assigned
from controller import api_broker_registration, elections
from metadata.records import NO_LEADER
from wire.apis import ApiKey
from wire.errors import ErrorCode

SESSION_MS = 9_000


class ElrWorld(World):
    """The controller is the real one; `lossy` are those whose logs may miss something."""

    def __init__(self):
        super().__init__()
        self.scene = Scene(
            elr=True,
            static={"min.insync.replicas": str(MIN_ISR)},
            session_timeout_ms=SESSION_MS,
            auto_leader_rebalance=False,
            max_idle_interval_ms=0,
            unclean_election_check_interval_ms=0,
        ).lead()
        self.images = []
        self.clean = {}
        self.lossy = []
        self.seen = {"elr elections": 0, "without leader": 0}
        self.scene.start_brokers(*IDS)
        self.scene.create_topic("t", assignments={0: IDS})
        self.note()
        for i in IDS:
            self.alive[i] = self.scene.epochs[i]
            self.boot(i, 0)

    # -- the controller --

    def partition(self, number=-1):
        return self.images[number].partition("t", 0)

    def note(self):
        """Takes down what the controller's log has come to."""
        image = self.scene.loader.image
        if self.images and (image.topics, image.brokers) == self.images[-1][0:2]:
            return
        before = self.partition() if self.images else None
        self.images.append(image)
        now = self.partition()
        assert now.leader_recovery_state == 0, "led uncleanly within the budget"
        if before is not None and now.leader != before.leader:
            self.seen["without leader"] += now.leader == NO_LEADER
            self.seen["elr elections"] += now.leader in before.elr
        self.lossy = [i for i in self.lossy if i not in now.isr or i not in self.alive]

    def image_count(self):
        return len(self.images)

    def assigned(self, number):
        found = self.partition(number)
        return Assigned(
            found.replicas,
            found.isr,
            found.leader,
            found.leader_epoch,
            found.partition_epoch,
            found.leader_recovery_state != 0,
        )

    def eligible(self, number):
        brokers = self.images[number].brokers
        return {i: brokers[i].epoch for i in IDS if brokers[i].active}

    def answer(self, i, proposal):
        key, scene = ApiKey.ALTER_PARTITION, self.scene
        members = tuple(
            scene.part(key, 3, "BrokerState", broker_id=b, broker_epoch=e) for b, e in proposal.isr
        )
        entry = scene.part(
            key,
            3,
            "PartitionData",
            partition_index=0,
            leader_epoch=proposal.leader_epoch,
            new_isr_with_epochs=members,
            leader_recovery_state=0,
            partition_epoch=proposal.partition_epoch,
        )
        topic_id = scene.core.image.topic("t").id
        topic = scene.part(key, 3, "TopicData", topic_id=topic_id, partitions=(entry,))
        reply = scene.ask(key, 3, broker_id=i, broker_epoch=self.alive[i], topics=(topic,))
        assert reply.error_code is ErrorCode.none
        self.note()
        return reply.topics[0].partitions[0].error_code, self.last()

    # -- stops and starts --

    def keep_alive(self):
        for i in self.alive:
            self.scene.heartbeat(i)

    def kill(self, i, lost):
        """Without a word; the last `lost` records are gone."""
        if i not in self.alive or any(other != i for other in self.lossy):
            return
        self.halt(i)
        log = self.brokers[i].log
        del log[max(0, len(log) - lost) :]
        self.clean[i] = False
        self.lossy = [i]

    def stop(self, i):
        """In order: it leads on until its leaderships have moved."""
        if i not in self.alive:
            return
        for _ in range(3):
            if self.scene.heartbeat(i, want_shut_down=True).should_shut_down:
                break
            self.keep_alive_but(i)
            self.note()
        self.note()
        self.halt(i)
        self.clean[i] = True

    def keep_alive_but(self, i):
        for other in self.alive:
            if other != i:
                self.scene.heartbeat(other)

    def expire(self):
        """Who is down is found out."""
        self.scene.pass_ms(SESSION_MS + 100, alive=tuple(self.alive), every_ms=4_000)
        self.note()

    def start(self, i):
        if i in self.alive:
            return
        self.scene.now_ms += SESSION_MS + 1
        self.keep_alive()
        epoch = self.scene.epochs[i] if self.clean[i] else -1
        assert self.scene.register(i, previous_epoch=epoch).error_code is ErrorCode.none
        self.note()
        self.alive[i] = self.scene.epochs[i]
        self.boot(i, len(self.images) - 1)
        self.scene.heartbeat(i)
        self.note()

    def step(self, op, i, n):
        super().step(op, i, n)
        if op == "deliver":
            for _ in range(n):
                self.deliver(i)
        elif op == "kill":
            self.kill(i, (n - 1) * 3)
        elif op == "stop":
            self.stop(i)
        elif op == "start":
            self.start(i)
        elif op == "expire":
            self.expire()

    def heal(self):
        """Everybody runs, and in the end everybody has everything."""
        for i in IDS:
            self.start(i)
        for _ in range(60):
            for i in IDS:
                for op in ("deliver", "deliver", "fetch", "alter", "tick"):
                    self.step(op, i, 4)
        assert sorted(self.partition().isr) == list(IDS)
        assert self.partition().elr == ()
        assert len({tuple(broker.log) for broker in self.brokers.values()}) == 1
        leader = self.brokers[self.partition().leader].core
        assert leader.high_watermark == leader.log_end
        for offset, entry in self.acked.items():
            assert self.brokers[1].log[offset] == entry


OPS = ["append"] * 5 + ["fetch"] * 20 + ["deliver"] * 15 + ["alter"] * 8 + ["start"] * 5
OPS += ["tick", "checkpoint", "kill", "stop", "expire"]
STEPS = st.lists(
    st.tuples(st.sampled_from(OPS), st.sampled_from(IDS), st.integers(1, 5)), max_size=120
)


@examples(40)
@given(STEPS)
def test_no_acknowledged_record_is_lost(steps):
    world = ElrWorld()
    for step in steps:
        world.step(*step)
    world.heal()


def drive(seed, steps=1_200):
    chance = random.Random(seed)
    world = ElrWorld()
    for _ in range(steps):
        world.step(chance.choice(OPS), chance.choice(IDS), chance.randint(1, 5))
    world.heal()
    return world


def test_random_histories_get_somewhere():
    worlds = [drive(seed) for seed in range(15)]
    assert sum(len(world.acked) for world in worlds) > 300
    assert sum(world.seen["elr elections"] for world in worlds) > 30
    assert sum(world.seen["without leader"] for world in worlds) > 10


# Broken on purpose: the histories above must show it.


def caught(seeds=40):
    for seed in range(seeds):
        try:
            drive(seed)
        except AssertionError:
            return True
    return False


def test_a_controller_that_believes_everybody_ended_well(monkeypatch):
    real = api_broker_registration.fencing.leave_partitions

    def believing(context, broker_id, *, for_good=False, lossy=False):
        return real(context, broker_id, for_good=for_good)

    monkeypatch.setattr(api_broker_registration.fencing, "leave_partitions", believing)
    assert caught()


def test_eligibility_that_outlives_a_full_isr(monkeypatch):
    def kept(partition, target, not_eligible, terms):
        return tuple(
            b
            for b in sorted({*partition.elr, *partition.isr})
            if b not in target.isr and b not in not_eligible
        )

    monkeypatch.setattr(elections, "_eligible", kept)
    assert caught()


def test_a_high_watermark_that_moves_with_too_few_in_sync(monkeypatch):
    monkeypatch.setattr("broker.partition.PartitionCore.under_min_isr", property(lambda _: False))
    assert caught()
