"""Eligible leader replicas (KIP-966) as the controller keeps them: who may lead after what."""

from datetime import timedelta
from uuid import UUID

import pytest
from controller_scene import Scene

from metadata.features import ELIGIBLE_LEADER_REPLICAS
from metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from metadata.records import (
    NO_LEADER,
    BeginTransactionRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
)
from wire.apis import ApiKey
from wire.errors import ErrorCode

MIN_ISR = "min.insync.replicas"
E = ErrorCode


def started(**config) -> Scene:
    scene = Scene(elr=True, static={MIN_ISR: "2"}, **config).lead().start_brokers(1, 2, 3)
    scene.create_topic("t", assignments={0: (1, 2, 3)})
    return scene


def come_back(scene: Scene, broker: int, *, clean: bool) -> None:
    """The next process of a broker that has stopped, up to its unfencing."""
    epoch = scene.epochs[broker] if clean else -1
    assert scene.register(broker, previous_epoch=epoch).error_code is E.none
    assert not scene.heartbeat(broker).is_fenced


def state(scene: Scene) -> tuple:
    """(leader, ISR, ELR, last known ELR)."""
    found = scene.partition("t")
    return found.leader, found.isr, found.elr, found.last_known_elr


def written(scene: Scene, *kinds: type) -> list:
    return [record for record in scene.records() if isinstance(record, kinds)]


# How it begins.


def test_a_new_cluster_begins_with_one_minimum_for_all_brokers():
    scene = Scene(elr=True, static={MIN_ISR: "2"}).lead()
    kinds = [type(record) for record in scene.records()]
    assert kinds == [
        BeginTransactionRecord,
        FeatureLevelRecord,
        FeatureLevelRecord,
        ConfigRecord,
        EndTransactionRecord,
    ]
    assert scene.core.image.config(BROKER_RESOURCE, "")[MIN_ISR] == "2"


def test_a_running_cluster_gets_one_minimum_with_the_feature():
    scene = Scene().lead().start_brokers(1, 2, 3)
    scene.create_topic("t", assignments={0: (1, 2, 3)}, configs={MIN_ISR: "2"})
    assert scene.set_config(BROKER_RESOURCE, "1", MIN_ISR, "3") is E.none
    scene.stop_broker(2)
    scene.stop_broker(3)
    assert state(scene) == (1, (1,), (), ()), "not kept yet"
    key = ApiKey.UPDATE_FEATURES
    asked = scene.part(
        key,
        2,
        "FeatureUpdateKey",
        feature=ELIGIBLE_LEADER_REPLICAS,
        max_version_level=1,
        upgrade_type=1,
    )
    reply = scene.ask(
        key, 2, feature_updates=(asked,), timeout=timedelta(seconds=1), validate_only=False
    )
    assert reply.error_code is E.none
    assert scene.records()[-3:] == [
        ConfigRecord(resource_type=4, resource_name="", name=MIN_ISR, value="1"),
        ConfigRecord(resource_type=4, resource_name="1", name=MIN_ISR, value=None),
        FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS, feature_level=1),
    ]
    scene.stop_broker(1)
    assert state(scene) == (NO_LEADER, (), (1,), (1,))


# Who leads after what.


def test_all_die_one_by_one_and_the_first_to_die_comes_back_first():
    scene = started()
    for broker in (3, 2, 1):
        scene.stop_broker(broker)
    assert state(scene) == (NO_LEADER, (), (1, 2), (1,))
    come_back(scene, 3, clean=True)
    assert state(scene)[0] == NO_LEADER, "3 left while 1 and 2 went on"
    come_back(scene, 2, clean=True)
    assert state(scene) == (2, (2,), (1,), ())
    assert scene.partition("t").leader_recovery_state == 0


def test_who_died_without_a_word_is_not_eligible():
    scene = started()
    for broker in (3, 2, 1):
        scene.stop_broker(broker)
    come_back(scene, 2, clean=False)
    assert state(scene) == (NO_LEADER, (), (1,), (1,))
    come_back(scene, 1, clean=True)
    assert state(scene) == (1, (1,), (), ())


def test_a_returning_process_is_out_of_the_isr_at_once():
    """Even where its session had not ended and it led."""
    scene = started()
    scene.now_ms += 9_001
    scene.heartbeat(2)
    scene.heartbeat(3)
    assert scene.register(1).error_code is E.none
    assert state(scene) == (2, (2, 3), (), ())
    scene.stop_broker(3)
    assert state(scene) == (2, (2,), (3,), ())
    scene.now_ms += 9_001
    assert scene.register(2, previous_epoch=scene.epochs[2]).error_code is E.none
    assert state(scene) == (NO_LEADER, (), (2, 3), (2,))
    assert scene.register(3, previous_epoch=7).error_code is E.none
    assert state(scene) == (NO_LEADER, (), (2,), (2,)), "the epoch of an earlier process"


def test_the_last_leader_leads_again_once_nobody_is_eligible():
    scene = started()
    for broker in (3, 2, 1):
        scene.stop_broker(broker)
    come_back(scene, 3, clean=False)
    come_back(scene, 2, clean=False)
    assert state(scene) == (NO_LEADER, (), (1,), (1,))
    come_back(scene, 1, clean=False)
    assert state(scene) == (1, (1,), (), ())
    assert scene.partition("t").leader_recovery_state == 1, "it may miss records"


def test_an_old_registration_request_says_nothing_of_its_predecessor():
    scene = started()
    for broker in (3, 2, 1):
        scene.stop_broker(broker)
    assert scene.register(2, version=2).error_code is E.none
    assert state(scene) == (NO_LEADER, (), (1,), (1,))


def test_joining_the_isr_ends_the_waiting():
    scene = started()
    scene.stop_broker(3)
    scene.stop_broker(2)
    assert state(scene) == (1, (1,), (2,), ())
    come_back(scene, 3, clean=True)
    topic = scene.core.image.topic("t")
    before = scene.partition("t")
    epochs = (before.leader_epoch, before.partition_epoch)
    assert scene.alter_isr(topic.id, 0, 1, epochs, (1, 3)).error_code is E.none
    assert state(scene) == (1, (1, 3), (), ())


def test_leaving_in_order_keeps_the_right_to_lead():
    scene = started()
    scene.stop_broker(3)
    scene.stop_broker(2)
    assert not scene.heartbeat(1, want_shut_down=True).should_shut_down
    assert state(scene) == (NO_LEADER, (), (1, 2), (1,))
    assert scene.heartbeat(1, want_shut_down=True).should_shut_down
    come_back(scene, 1, clean=True)
    assert state(scene) == (1, (1,), (2,), ())


def test_an_unregistered_broker_returns_as_a_stranger():
    scene = started()
    for broker in (3, 2, 1):
        scene.stop_broker(broker)
    assert scene.unregister(2).error_code is E.none
    assert state(scene) == (NO_LEADER, (), (1, 2), (1,)), "as in Kafka it stays named"
    come_back(scene, 2, clean=True)
    assert state(scene) == (NO_LEADER, (), (1,), (1,))


def test_a_copy_in_a_directory_that_is_gone_begins_anew():
    scene = Scene(elr=True, static={MIN_ISR: "2"}).lead()
    old, new = UUID(int=1001), UUID(int=1501)
    scene.start_brokers(1, 2, 3)
    scene.create_topic("t", assignments={0: (1, 2, 3)})
    for broker in (3, 2, 1):
        scene.stop_broker(broker)
    assert scene.partition("t").directory_of(1) == old
    epoch = scene.epochs[1]
    assert scene.register(1, dirs=(new,), previous_epoch=epoch).error_code is E.none
    scene.heartbeat(1)
    assert state(scene) == (NO_LEADER, (), (1, 2), (1,)), "its copy is not to be had"
    key = ApiKey.ASSIGN_REPLICAS_TO_DIRS
    topic = scene.part(
        key,
        0,
        "TopicData",
        topic_id=scene.core.image.topic("t").id,
        partitions=(scene.part(key, 0, "PartitionData", partition_index=0),),
    )
    directory = scene.part(key, 0, "DirectoryData", id_=new, topics=(topic,))
    scene.ask(key, 0, broker_id=1, broker_epoch=scene.epochs[1], directories=(directory,))
    assert state(scene) == (NO_LEADER, (), (2,), (1,))


# min.insync.replicas.


def test_another_minimum_ends_all_eligibility():
    scene = started()
    scene.create_topic("u", assignments={0: (1, 2, 3)})
    scene.stop_broker(3)
    scene.stop_broker(2)
    assert scene.set_config(TOPIC_RESOURCE, "u", MIN_ISR, "3") is E.none
    assert scene.records()[-1] == ClearElrRecord(topic_name="u")
    assert scene.partition("u").elr == ()
    assert scene.partition("t").elr == (2,)
    assert scene.set_config(TOPIC_RESOURCE, "u", MIN_ISR, "3") is E.none
    assert len(written(scene, ClearElrRecord)) == 1, "no change"
    assert scene.set_config(BROKER_RESOURCE, "", MIN_ISR, "1") is E.none
    assert scene.records()[-1] == ClearElrRecord(topic_name="")
    assert scene.partition("t").elr == ()
    assert scene.set_config(TOPIC_RESOURCE, "t", "retention.ms", "5000") is E.none
    assert len(written(scene, ClearElrRecord)) == 2


@pytest.mark.parametrize(
    ("broker", "value", "code"),
    [
        ("1", "1", E.invalid_config),
        ("1", None, E.invalid_config),
        ("", None, E.invalid_config),
        ("", "3", E.none),
    ],
)
def test_brokers_have_one_minimum(broker, value, code):
    scene = started()
    before = scene.end_offset
    assert scene.set_config(BROKER_RESOURCE, broker, MIN_ISR, value) is code
    assert (scene.end_offset > before) is (code is E.none)


def test_without_the_feature_brokers_may_differ_and_nothing_is_cleared():
    scene = Scene().lead().start_brokers(1)
    assert scene.set_config(BROKER_RESOURCE, "1", MIN_ISR, "2") is E.none
    assert scene.set_config(BROKER_RESOURCE, "1", MIN_ISR, None) is E.none
    assert not written(scene, ClearElrRecord, PartitionChangeRecord)


def test_a_topic_of_its_own_minimum():
    scene = started()
    scene.create_topic("lax", assignments={0: (1, 2, 3)}, configs={MIN_ISR: "1"})
    for broker in (3, 2):
        scene.stop_broker(broker)
    assert scene.partition("lax").elr == ()
    scene.stop_broker(1)
    assert scene.partition("lax").elr == (1,)
