"""Random operations: the image stays sound, a standby that reads the bytes has the same one."""

from datetime import timedelta
from unittest.mock import patch
from uuid import UUID

from controller_scene import Scene
from examples import examples
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controller import core
from controller.configs import MIN_ISR, min_insync_replicas
from controller.events import Tick
from controller.invariants import check_image
from metadata.image import TOPIC_RESOURCE
from metadata.loader import ImageLoader
from metadata.records import NO_LEADER
from wire.apis import ApiKey
from wire.errors import ErrorCode

BROKERS = st.integers(1, 5)
TOPICS = st.sampled_from(["a", "b", "c.d", "c_d"])


class Cluster(RuleBasedStateMachine):
    elr = False
    scene_of = Scene

    def __init__(self) -> None:
        super().__init__()
        self.scene = self.scene_of(
            elr=self.elr,
            static={MIN_ISR: "2"},
            session_timeout_ms=3_000,
            leader_imbalance_check_interval_ms=20_000,
            unclean_election_check_interval_ms=30_000,
            max_idle_interval_ms=10_000,
            max_records_per_batch=40,
        ).lead()
        self.scene.start_brokers(1, 2, 3)
        self.scene.create_topic("a", 4, 3)
        self.scene.create_topic("b", 2, 2, configs={"unclean.leader.election.enable": "true"})

    @rule(
        broker=BROKERS,
        rack=st.sampled_from([None, "r1", "r2"]),
        dirs=st.integers(1, 2),
        clean=st.booleans(),
    )
    def register(self, broker, rack, dirs, clean):
        ids = tuple(UUID(int=1000 + broker * 10 + i) for i in range(dirs))
        previous = self.scene.epochs.get(broker, -1) if clean else -1
        self.scene.register(broker, rack=rack, dirs=ids, previous_epoch=previous)

    @rule(
        broker=BROKERS,
        fence=st.booleans(),
        shut=st.booleans(),
        lag=st.integers(0, 3),
    )
    def heartbeat(self, broker, fence, shut, lag):
        self.scene.heartbeat(
            broker,
            want_fence=fence and shut,
            want_shut_down=shut,
            current_metadata_offset=self.scene.committed_to - 1 - lag,
        )

    @rule(broker=BROKERS)
    def healthy_heartbeat(self, broker):
        self.scene.heartbeat(broker)

    @rule(
        name=TOPICS, partitions=st.integers(1, 6), factor=st.integers(1, 3), unclean=st.booleans()
    )
    def create(self, name, partitions, factor, unclean):
        configs = {"unclean.leader.election.enable": "true"} if unclean else {}
        self.scene.create_topic(name, partitions, factor, configs=configs)

    @rule(name=TOPICS, value=st.sampled_from([None, "1", "2", "3"]))
    def change_the_minimum(self, name, value):
        if self.scene.core.image.topic(name) is not None:
            assert self.scene.set_config(TOPIC_RESOURCE, name, MIN_ISR, value) is ErrorCode.none

    @rule(name=TOPICS, count=st.integers(1, 8))
    def grow(self, name, count):
        key = ApiKey.CREATE_PARTITIONS
        topic = self.scene.part(
            key, 3, "CreatePartitionsTopic", name=name, count=count, assignments=None
        )
        self.scene.ask(key, 3, topics=(topic,), timeout=timedelta(0), validate_only=False)

    @rule(name=TOPICS)
    def delete(self, name):
        self.scene.ask(ApiKey.DELETE_TOPICS, 1, topic_names=(name,), timeout=timedelta(0))

    @rule(name=TOPICS, index=st.integers(0, 5), data=st.data())
    def alter_isr(self, name, index, data):
        scene = self.scene
        topic = scene.core.image.topic(name)
        partition = None if topic is None else topic.partitions.get(index)
        if partition is None or partition.leader == NO_LEADER:
            return
        others = [b for b in partition.replicas if b != partition.leader]
        chosen = data.draw(st.lists(st.sampled_from(others), unique=True)) if others else []
        isr = (partition.leader, *chosen)
        key = ApiKey.ALTER_PARTITION
        entry = scene.part(
            key,
            3,
            "PartitionData",
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=tuple(
                scene.part(key, 3, "BrokerState", broker_id=b, broker_epoch=scene.epochs[b])
                for b in isr
            ),
            leader_recovery_state=0,
            partition_epoch=partition.partition_epoch,
        )
        reply = scene.ask(
            key,
            3,
            broker_id=partition.leader,
            broker_epoch=scene.epochs[partition.leader],
            topics=(scene.part(key, 3, "TopicData", topic_id=topic.id, partitions=(entry,)),),
        )
        if reply.topics and reply.topics[0].partitions[0].error_code is ErrorCode.none:
            assert set(scene.partition(name, index).isr) == set(isr)

    @rule(kind=st.integers(0, 1))
    def elect(self, kind):
        self.scene.ask(
            ApiKey.ELECT_LEADERS,
            2,
            election_type=kind,
            topic_partitions=None,
            timeout=timedelta(0),
        )

    @rule(broker=BROKERS)
    def unregister(self, broker):
        self.scene.ask(ApiKey.UNREGISTER_BROKER, 0, broker_id=broker)

    @rule(broker=BROKERS)
    def producer_ids(self, broker):
        self.scene.ask(
            ApiKey.ALLOCATE_PRODUCER_IDS,
            0,
            broker_id=broker,
            broker_epoch=self.scene.epochs.get(broker, -1),
        )

    @rule(duration_ms=st.sampled_from([100, 1_000, 5_000, 40_000]), alive=st.sets(BROKERS))
    def time_passes(self, duration_ms, alive):
        self.scene.pass_ms(duration_ms, alive=tuple(sorted(alive)), every_ms=1_000)

    @rule()
    def stall(self):
        self.scene.now_ms += 10_000
        self.scene.handle(Tick())

    @rule(same=st.booleans())
    def fail_over(self, same):
        self.scene.fail_over(same=same)

    @precondition(lambda self: self.scene.core.active)
    @rule(name=TOPICS)
    def fail_over_before_the_commit(self, name):
        """What only this controller knew is gone, and the cluster goes on from the commit."""
        scene = self.scene
        scene.auto_commit = False
        topic = scene.new_topic(name, 2, 1)
        token = scene.send(
            ApiKey.CREATE_TOPICS, 7, topics=(topic,), timeout=timedelta(0), validate_only=False
        )
        scene.send(ApiKey.UNREGISTER_BROKER, 0, broker_id=1)
        known = scene.loader.image
        scene.fail_over()
        scene.auto_commit = True
        assert token in scene.replies
        assert scene.core.image.topics == known.topics

    @invariant()
    def sound(self):
        image = self.scene.loader.image
        check_image(image)
        for topic in image.topics_by_name.values():
            minimum = min_insync_replicas(image, self.scene.config, topic.name)
            for partition in topic.partitions.values():
                assert not partition.elr or len(partition.isr) < minimum
                assert self.elr or not (partition.elr or partition.last_known_elr)

    def teardown(self):
        """Any cut of the log into batches replays into the same image."""
        loader = ImageLoader()
        for base, epoch, values in self.scene.log:
            for offset, value in enumerate(values, base):
                loader.on_batch(offset, epoch, 0, [value])
        assert loader.image.topics == self.scene.loader.image.topics
        assert loader.image.brokers == self.scene.loader.image.brokers


class EligibleCluster(Cluster):
    elr = True


class Unhurried(Scene):
    """Nobody waits for more than an answer: what others asked for goes on beside it."""

    def ask(self, key, version, **fields):
        token = self.send(key, version, **fields)
        while token not in self.replies:
            self.handle(Tick())
        return self.answer(token)


class SlicedCluster(Cluster):
    """Operations of many slices, which all else comes between."""

    scene_of = Unhurried

    def __init__(self):
        self.slices = patch.multiple(core, _SLICE=2, _ATOMIC_SLICE=2)
        self.slices.start()
        super().__init__()

    @rule(name=TOPICS, partitions=st.integers(6, 12), factor=st.integers(1, 3))
    def begin_to_create(self, name, partitions, factor):
        topic = self.scene.new_topic(name, partitions, factor)
        self.scene.send(
            ApiKey.CREATE_TOPICS, 7, topics=(topic,), timeout=timedelta(0), validate_only=False
        )

    @rule(name=TOPICS, count=st.integers(4, 16))
    def begin_to_grow(self, name, count):
        key = ApiKey.CREATE_PARTITIONS
        topic = self.scene.part(
            key, 3, "CreatePartitionsTopic", name=name, count=count, assignments=None
        )
        self.scene.send(key, 3, topics=(topic,), timeout=timedelta(0), validate_only=False)

    @rule()
    def one_slice(self):
        self.scene.handle(Tick())

    def teardown(self):
        self.slices.stop()
        self.scene.finish()
        super().teardown()


for machine in (Cluster, EligibleCluster, SlicedCluster):
    machine.TestCase.settings = examples(
        40,
        stateful_step_count=40,
        suppress_health_check=[HealthCheck.too_slow],
    )
TestCluster = Cluster.TestCase
TestEligibleCluster = EligibleCluster.TestCase
TestSlicedCluster = SlicedCluster.TestCase
