"""AlterPartition and ElectLeaders, rule by rule."""

from datetime import timedelta
from uuid import UUID

import pytest
from controller_scene import Scene

from wire.apis import ApiKey
from wire.errors import ErrorCode

E = ErrorCode
KEY = ApiKey.ALTER_PARTITION


@pytest.fixture
def scene() -> Scene:
    scene = Scene().lead().start_brokers(1, 2, 3)
    scene.create_topic("t", assignments={0: (1, 2, 3)})
    return scene


def alter(
    scene: Scene,
    isr=(1, 2),
    *,
    version=3,
    sender=1,
    epoch=None,
    topic=None,
    index=0,
    leader_epoch=0,
    partition_epoch=0,
    state=0,
    epochs=None,
):
    if topic is None:
        topic = scene.core.image.topic("t").id
    known = scene.epochs | (epochs or {})
    data = scene.part(
        KEY,
        version,
        "PartitionData",
        partition_index=index,
        leader_epoch=leader_epoch,
        new_isr=isr,
        new_isr_with_epochs=tuple(
            scene.part(KEY, 3, "BrokerState", broker_id=b, broker_epoch=known.get(b, -1))
            for b in isr
        ),
        leader_recovery_state=state,
        partition_epoch=partition_epoch,
    )
    reply = scene.ask(
        KEY,
        version,
        broker_id=sender,
        broker_epoch=scene.epochs[sender] if epoch is None else epoch,
        topics=(scene.part(KEY, version, "TopicData", topic_id=topic, partitions=(data,)),),
    )
    return reply.topics[0].partitions[0] if reply.topics else reply


@pytest.mark.parametrize("version", [2, 3])
def test_shrink_and_grow(scene, version):
    shrunk = alter(scene, (1, 2), version=version)
    assert shrunk.error_code is E.none
    assert (shrunk.isr, shrunk.leader_id, shrunk.leader_epoch, shrunk.partition_epoch) == (
        (1, 2),
        1,
        0,
        1,
    )
    grown = alter(scene, (1, 2, 3), version=version, partition_epoch=1)
    assert (grown.error_code, grown.isr, grown.partition_epoch) == (E.none, (1, 2, 3), 2)


def test_no_change_is_no_record(scene):
    before = scene.end_offset
    same = alter(scene, (1, 2, 3))
    assert (same.error_code, same.partition_epoch) == (E.none, 0)
    assert scene.end_offset == before


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"topic": UUID(int=99)}, E.unknown_topic_id),
        ({"index": 5}, E.unknown_topic_or_partition),
        ({"leader_epoch": 1}, E.not_controller),
        ({"partition_epoch": 1}, E.not_controller),
        ({"leader_epoch": -1}, E.fenced_leader_epoch),
        ({"sender": 2}, E.invalid_request),
        ({"partition_epoch": -1}, E.invalid_update_version),
        ({"isr": (1, 4)}, E.invalid_request),
        ({"isr": (1, 1)}, E.invalid_request),
        ({"isr": (2, 3)}, E.invalid_request),
        ({"isr": ()}, E.invalid_request),
        ({"isr": (1,), "state": 1}, E.invalid_request),
        ({"isr": (1, 2), "state": 1}, E.invalid_request),
        ({"isr": (1, 2), "state": 7}, E.invalid_request),
        ({"epochs": {2: 999}}, E.ineligible_replica),
    ],
)
def test_refusals(scene, how, code):
    before = scene.end_offset
    assert alter(scene, **how).error_code is code
    assert scene.end_offset == before


def test_a_stale_broker_is_refused_as_a_whole(scene):
    reply = alter(scene, epoch=1)
    assert (reply.error_code, reply.topics) == (E.stale_broker_epoch, ())


def test_fenced_and_leaving_brokers_are_not_eligible(scene):
    scene.pass_ms(12_000, alive=(1, 2))
    partition = scene.partition("t")
    now = {"partition_epoch": partition.partition_epoch}
    assert alter(scene, (1, 2, 3), **now).error_code is E.ineligible_replica
    scene.create_topic("u", assignments={0: (2, 1)})
    scene.heartbeat(2, want_shut_down=True)
    now = {"partition_epoch": scene.partition("t").partition_epoch}
    assert alter(scene, (1, 2), **now).error_code is E.ineligible_replica


def test_version_2_has_no_broker_epochs_to_check(scene):
    assert alter(scene, (1, 2), version=2, epochs={2: 999}).error_code is E.none


def test_two_changes_of_one_partition_in_a_request_build_on_each_other(scene):
    topic = scene.core.image.topic("t").id
    parts = tuple(
        scene.part(
            KEY,
            2,
            "PartitionData",
            partition_index=0,
            leader_epoch=0,
            new_isr=isr,
            leader_recovery_state=0,
            partition_epoch=epoch,
        )
        for epoch, isr in enumerate([(1, 2), (1,), (1, 3)])
    )
    reply = scene.ask(
        KEY,
        2,
        broker_id=1,
        broker_epoch=scene.epochs[1],
        topics=(scene.part(KEY, 2, "TopicData", topic_id=topic, partitions=parts),),
    )
    assert [p.partition_epoch for p in reply.topics[0].partitions] == [1, 2, 3]
    assert scene.partition("t").isr == (1, 3)


def test_an_unclean_leader_reports_that_it_has_recovered():
    scene = Scene().lead().start_brokers(1, 2)
    unclean = {"unclean.leader.election.enable": "true"}
    scene.create_topic("t", assignments={0: (1, 2)}, configs=unclean)
    scene.pass_ms(12_000, alive=(1,))
    scene.pass_ms(12_000)
    scene.start_broker(2)
    at = scene.partition("t")
    assert (at.leader, at.leader_recovery_state) == (2, 1)
    epochs = {"leader_epoch": at.leader_epoch, "partition_epoch": at.partition_epoch}
    scene.start_broker(1)
    assert alter(scene, (1, 2), sender=2, state=1, **epochs).error_code is E.invalid_request
    done = alter(scene, (2,), sender=2, state=0, **epochs)
    assert (done.error_code, done.leader_recovery_state) == (E.none, 0)


# ElectLeaders


def elect(scene: Scene, kind=0, topics=None, *, version=2):
    key = ApiKey.ELECT_LEADERS
    asked = None
    if topics is not None:
        asked = tuple(
            scene.part(key, version, "TopicPartitions", topic=t, partitions=p)
            for t, p in topics.items()
        )
    reply = scene.ask(
        key, version, election_type=kind, topic_partitions=asked, timeout=timedelta(seconds=1)
    )
    return {
        (r.topic, p.partition_id): p.error_code
        for r in reply.replica_election_results
        for p in r.partition_result
    }


@pytest.mark.parametrize("version", [0, 1, 2])
def test_preferred_election(scene, version):
    scene.pass_ms(12_000, alive=(2, 3))
    assert elect(scene, 0, {"t": (0,)}, version=version) == {
        ("t", 0): E.preferred_leader_not_available
    }
    scene.start_broker(1)
    at = scene.partition("t")
    alter(
        scene, (1, 2, 3), sender=2, leader_epoch=at.leader_epoch, partition_epoch=at.partition_epoch
    )
    asked = {"t": (0, 7), "nope": (0,)}
    assert elect(scene, 0, asked, version=version) == {
        ("t", 0): E.none,
        ("t", 7): E.unknown_topic_or_partition,
        ("nope", 0): E.unknown_topic_or_partition,
    }
    assert scene.partition("t").leader == 1
    assert elect(scene, 0, {"t": (0,)}, version=version) == {("t", 0): E.election_not_needed}


def test_asking_for_all_tells_only_of_what_was_needed(scene):
    scene.create_topic("u", 3, 1)
    assert elect(scene) == {}


def test_unclean_election_on_request(scene):
    assert elect(scene, 1, {"t": (0,)}) == {("t", 0): E.election_not_needed}
    scene.pass_ms(12_000, alive=(1,))
    scene.pass_ms(12_000)
    assert elect(scene, 1, {"t": (0,)}) == {("t", 0): E.eligible_leaders_not_available}
    scene.start_broker(3)
    assert elect(scene, 0, {"t": (0,)}) == {("t", 0): E.preferred_leader_not_available}
    assert elect(scene, 1, {"t": (0,)}) == {("t", 0): E.none}
    at = scene.partition("t")
    assert (at.leader, at.isr, at.leader_recovery_state) == (3, (3,), 1)


def test_an_unknown_election_type(scene):
    reply = scene.ask(
        ApiKey.ELECT_LEADERS, 2, election_type=9, topic_partitions=None, timeout=timedelta(0)
    )
    assert reply.error_code is E.invalid_request
