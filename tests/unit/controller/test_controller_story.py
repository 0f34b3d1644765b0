"""The life of a cluster as its controller sees it: failures, shutdowns, failovers."""

from uuid import UUID

import pytest
from controller_scene import Scene

from controller.events import ApiRequest, BecameLeader, LostLeadership, Tick
from metadata.image import EMPTY
from metadata.records import (
    NO_LEADER,
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    decode,
)
from wire.apis import ApiKey
from wire.errors import ErrorCode, FatalError


def three_brokers(**config) -> Scene:
    return Scene(**config).lead().start_brokers(1, 2, 3)


ORDERS = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}


# Beginning.


def test_an_empty_log_begins_with_the_bootstrap_records_in_a_transaction():
    scene = Scene().lead()
    assert [type(r) for r in scene.records()] == [
        BeginTransactionRecord,
        FeatureLevelRecord,
        EndTransactionRecord,
    ]
    assert scene.core.image.metadata_version == 25


def test_below_level_13_there_are_no_transactions():
    scene = Scene(level=12).lead()
    assert [type(r) for r in scene.records()] == [FeatureLevelRecord]


def test_a_bootstrap_cut_short_is_aborted_and_done_again():
    scene = Scene(auto_commit=False).lead()
    # The log keeps only the begin of the transaction, committed by the next leader.
    scene.loader.on_batch(1, 1, 0, scene.log[0][2][:2])
    scene.committed_to = scene.end_offset = 3
    scene.log.clear()
    scene.fail_over()
    scene.commit()
    assert [type(r) for r in scene.records()] == [
        AbortTransactionRecord,
        BeginTransactionRecord,
        FeatureLevelRecord,
        EndTransactionRecord,
    ]
    assert scene.loader.image.metadata_version == 25


def test_a_log_without_bootstrap_records_stops_the_node():
    scene = Scene()
    with pytest.raises(FatalError, match="formatted"):
        scene.core.handle(BecameLeader(1, EMPTY, 1), 0)


def test_a_second_activation_writes_nothing():
    scene = three_brokers()
    before = len(scene.records())
    scene.fail_over()
    assert len(scene.records()) == before


def test_an_idle_controller_shows_that_it_lives():
    scene = Scene().lead()
    scene.pass_ms(1_600)
    assert [type(r) for r in scene.records()[3:]] == [NoOpRecord] * 3
    quiet = Scene(max_idle_interval_ms=0).lead()
    quiet.pass_ms(5_000)
    assert len(quiet.records()) == 3


# Brokers come and go.


def test_a_broker_dies_and_others_lead():
    scene = three_brokers()
    assert scene.create_topic("orders", assignments=ORDERS).error_code is ErrorCode.none
    assert [scene.partition("orders", i).leader for i in range(3)] == [1, 2, 3]

    scene.pass_ms(12_000, alive=(2, 3))

    assert scene.core.image.broker(1).fenced
    first = scene.partition("orders", 0)
    assert (first.leader, first.leader_epoch, first.isr) == (2, 1, (2, 3))
    second = scene.partition("orders", 1)
    assert (second.leader, second.leader_epoch, second.isr) == (2, 0, (2, 3))


def test_the_session_ends_exactly_when_it_should():
    scene = three_brokers(session_timeout_ms=3_000, max_idle_interval_ms=0)
    scene.pass_ms(3_000)
    assert not scene.core.image.broker(1).fenced
    assert scene.core.next_deadline_ms() == scene.now_ms + 1
    scene.pass_ms(1)
    assert all(scene.core.image.broker(b).fenced for b in (1, 2, 3))


def test_it_comes_back_and_stays_out_of_the_isr_until_its_leader_says_so():
    scene = three_brokers()
    scene.create_topic("orders", assignments=ORDERS)
    scene.pass_ms(12_000, alive=(2, 3))
    scene.start_broker(1)
    assert not scene.core.image.broker(1).fenced
    assert scene.partition("orders", 0).isr == (2, 3)


def test_without_a_live_replica_there_is_no_leader_until_the_last_in_sync_one_is_back():
    scene = three_brokers()
    scene.create_topic("one", assignments={0: (1, 2)})
    scene.pass_ms(12_000, alive=(1, 3))
    scene.pass_ms(12_000, alive=(3,))
    alone = scene.partition("one")
    assert (alone.leader, alone.isr) == (NO_LEADER, (1,))
    scene.start_broker(2)
    assert scene.partition("one").leader == NO_LEADER
    scene.start_broker(1)
    back = scene.partition("one")
    assert (back.leader, back.isr, back.leader_epoch) == (1, (1,), alone.leader_epoch + 1)


def test_an_unclean_leader_only_where_the_topic_allows_it():
    scene = three_brokers(unclean_election_check_interval_ms=60_000)
    scene.create_topic("safe", assignments={0: (1, 2)})
    unclean = {"unclean.leader.election.enable": "true"}
    scene.create_topic("fast", assignments={0: (1, 2)}, configs=unclean)
    scene.pass_ms(12_000, alive=(1, 3))
    scene.pass_ms(12_000, alive=(3,))
    scene.start_broker(2)
    assert scene.partition("safe").leader == NO_LEADER
    fast = scene.partition("fast")
    assert (fast.leader, fast.isr, fast.leader_recovery_state) == (2, (2,), 1)


def test_the_unclean_timer_finds_a_topic_that_was_allowed_later():
    scene = three_brokers(unclean_election_check_interval_ms=60_000)
    scene.create_topic("late", assignments={0: (1, 2)})
    scene.pass_ms(12_000, alive=(1, 3))
    scene.pass_ms(12_000, alive=(3,))
    scene.start_broker(2)
    key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    config = scene.part(
        key,
        1,
        "AlterableConfig",
        name="unclean.leader.election.enable",
        config_operation=0,
        value="true",
    )
    resource = scene.part(
        key, 1, "AlterConfigsResource", resource_type=2, resource_name="late", configs=(config,)
    )
    scene.ask(key, 1, resources=(resource,), validate_only=False)
    assert scene.partition("late").leader == NO_LEADER
    scene.pass_ms(61_000, alive=(2, 3))
    assert scene.partition("late").leader == 2


def test_a_controlled_shutdown_moves_leaders_first():
    scene = three_brokers()
    scene.create_topic("orders", assignments=ORDERS)
    leaving = scene.heartbeat(1, want_shut_down=True)
    assert not leaving.should_shut_down
    assert scene.core.image.broker(1).in_controlled_shutdown
    first = scene.partition("orders", 0)
    assert (first.leader, first.isr) == (2, (2, 3))
    # The others have not read of it yet.
    assert not scene.heartbeat(1, want_shut_down=True).should_shut_down
    scene.heartbeat(2)
    assert not scene.heartbeat(1, want_shut_down=True).should_shut_down
    scene.heartbeat(3)
    assert scene.heartbeat(1, want_shut_down=True).should_shut_down
    assert scene.core.image.broker(1).fenced


def test_a_broker_that_leads_nothing_may_stop_at_once():
    scene = three_brokers()
    reply = scene.heartbeat(2, want_shut_down=True)
    assert reply.should_shut_down
    assert reply.is_fenced
    assert scene.core.image.broker(2).fenced


def test_a_broker_in_controlled_shutdown_gets_no_replicas():
    scene = three_brokers()
    scene.create_topic("x", assignments={0: (1, 2)})
    scene.heartbeat(1, want_shut_down=True)
    scene.create_topic("y", 4, 2)
    assert all(1 not in scene.partition("y", i).replicas for i in range(4))
    assert scene.create_topic("z", 1, 3).error_code is ErrorCode.invalid_replication_factor


def test_a_broker_that_has_stopped_is_a_fenced_one_whatever_it_led():
    """Nobody can take the leadership of its only replica, so it was stopped without an answer."""
    scene = three_brokers()
    scene.create_topic("alone", assignments={0: (1,)})
    scene.heartbeat(1, want_shut_down=True)
    scene.pass_ms(12_000, alive=(2, 3))
    gone = scene.core.image.broker(1)
    assert (gone.fenced, gone.in_controlled_shutdown) == (True, True)
    assert scene.create_topic("wide", 1, 3).error_code is ErrorCode.none
    assert sorted(scene.partition("wide").isr) == [2, 3]


def test_a_cluster_of_an_older_level_is_not_led():
    image = EMPTY.apply(FeatureLevelRecord(name="metadata.version", feature_level=5))
    with pytest.raises(FatalError, match=r"3\.3-IV1.*3\.3-IV3"):
        Scene().core.handle(BecameLeader(1, image, 5), 0)


def test_preferred_leaders_get_their_partitions_back():
    scene = three_brokers(leader_imbalance_check_interval_ms=60_000)
    scene.create_topic("orders", assignments=ORDERS)
    scene.pass_ms(12_000, alive=(2, 3))
    scene.start_broker(1)
    rejoin(scene, "orders", (1, 2, 3))
    assert scene.partition("orders", 0).leader == 2
    scene.pass_ms(61_000, alive=(1, 2, 3))
    assert [scene.partition("orders", i).leader for i in range(3)] == [1, 2, 3]


def rejoin(scene: Scene, topic: str, isr: tuple[int, ...]) -> None:
    image = scene.core.image.topic(topic)
    for index, partition in sorted(image.partitions.items()):
        key = ApiKey.ALTER_PARTITION
        data = scene.part(
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
            topics=(scene.part(key, 3, "TopicData", topic_id=image.id, partitions=(data,)),),
        )
        assert reply.topics[0].partitions[0].error_code is ErrorCode.none


def test_a_lost_directory_costs_its_partitions_only():
    scene = Scene().lead()
    first, second = UUID(int=5001), UUID(int=5002)
    scene.start_broker(1, dirs=(first, second))
    scene.start_broker(2)
    scene.create_topic("a", assignments={0: (1, 2), 1: (1, 2)})
    topic = scene.core.image.topic("a")
    key = ApiKey.ASSIGN_REPLICAS_TO_DIRS
    directories = tuple(
        scene.part(
            key,
            0,
            "DirectoryData",
            id_=directory,
            topics=(
                scene.part(
                    key,
                    0,
                    "TopicData",
                    topic_id=topic.id,
                    partitions=(scene.part(key, 0, "PartitionData", partition_index=index),),
                ),
            ),
        )
        for index, directory in enumerate((first, second))
    )
    reply = scene.ask(key, 0, broker_id=1, broker_epoch=scene.epochs[1], directories=directories)
    assert reply.error_code is ErrorCode.none
    assert scene.partition("a", 0).directories[0] == first
    scene.heartbeat(1, offline_log_dirs=(first,))
    assert scene.core.image.broker(1).log_dirs == (second,)
    assert (scene.partition("a", 0).leader, scene.partition("a", 0).isr) == (2, (2,))
    assert scene.partition("a", 1).leader == 1
    # Said again, it changes nothing more.
    before = scene.end_offset
    scene.heartbeat(1, offline_log_dirs=(first,))
    assert scene.end_offset == before


# Nothing is answered before it is committed.


def test_an_answer_waits_for_its_commit():
    scene = three_brokers()
    scene.auto_commit = False
    topic = scene.new_topic("t")
    token = scene.send(ApiKey.CREATE_TOPICS, 7, topics=(topic,), validate_only=False)
    again = scene.send(ApiKey.CREATE_TOPICS, 7, topics=(topic,), validate_only=False)
    assert scene.replies.keys().isdisjoint({token, again})
    scene.commit()
    assert scene.answer(token).topics[0].error_code is ErrorCode.none
    # The second was checked against what was not committed yet, so it too had to wait.
    assert scene.answer(again).topics[0].error_code is ErrorCode.topic_already_exists


def test_losing_leadership_answers_not_controller_and_forgets():
    scene = three_brokers()
    scene.auto_commit = False
    topic = scene.new_topic("t")
    token = scene.send(ApiKey.CREATE_TOPICS, 7, topics=(topic,), validate_only=False)
    scene.handle(LostLeadership())
    assert scene.answer(token).topics[0].error_code is ErrorCode.not_controller
    assert scene.replies[token].refused is ErrorCode.not_controller
    assert scene.core.image == EMPTY
    late = scene.send(ApiKey.CREATE_TOPICS, 7, topics=(topic,), validate_only=False)
    assert scene.replies[late].refused is ErrorCode.not_controller
    assert scene.core.next_deadline_ms() is None


def test_after_a_failover_what_was_not_committed_can_be_done_again():
    scene = three_brokers()
    scene.create_topic("kept", 2, 3)
    scene.auto_commit = False
    topic = scene.new_topic("lost")
    scene.send(ApiKey.CREATE_TOPICS, 7, topics=(topic,), validate_only=False)
    scene.fail_over()
    scene.auto_commit = True
    assert scene.core.image.topic("lost") is None
    assert scene.core.image.topic("kept") is not None
    assert scene.create_topic("lost").error_code is ErrorCode.none


def test_a_new_active_controller_gives_everyone_a_full_session():
    scene = three_brokers()
    scene.pass_ms(8_500)
    scene.fail_over()
    scene.pass_ms(8_500)
    assert not scene.core.image.broker(1).fenced
    scene.pass_ms(600)
    assert scene.core.image.broker(1).fenced


def test_a_controller_that_was_held_up_does_not_blame_the_brokers():
    scene = three_brokers()
    scene.now_ms += 30_000
    scene.handle(Tick())
    assert not scene.core.image.broker(1).fenced
    for broker in (1, 2, 3):
        scene.heartbeat(broker)
    scene.pass_ms(9_000, alive=(1, 2))
    scene.pass_ms(3_000, alive=(1, 2))
    assert not scene.core.image.broker(1).fenced
    assert scene.core.image.broker(3).fenced


def test_a_caller_is_told_when_its_time_is_over():
    scene = three_brokers()
    scene.auto_commit = False
    topic = scene.new_topic("t")
    fields = {"topics": (topic,), "validate_only": False}
    entity_token = scene.send(ApiKey.CREATE_TOPICS, 7, **fields)
    scene._token += 1
    short = scene._token
    entity = scene.part(ApiKey.CREATE_TOPICS, 7, "CreateTopicsRequest", **fields)
    scene.handle(ApiRequest(short, ApiKey.CREATE_TOPICS, 7, entity, timeout_ms=100))
    scene.pass_ms(99)
    assert short not in scene.replies
    scene.pass_ms(1)
    assert scene.answer(short).topics[0].error_code is ErrorCode.request_timed_out
    assert entity_token not in scene.replies
    scene.commit()
    assert scene.answer(entity_token).topics[0].error_code is ErrorCode.none


def test_admin_work_is_refused_before_heartbeats_are():
    scene = three_brokers(max_pending_admin=2)
    scene.auto_commit = False
    tokens = [
        scene.send(ApiKey.CREATE_TOPICS, 7, topics=(scene.new_topic(f"t{i}"),), validate_only=False)
        for i in range(3)
    ]
    assert scene.answer(tokens[2]).topics[0].error_code is ErrorCode.request_timed_out
    beat = scene.send(
        ApiKey.BROKER_HEARTBEAT,
        0,
        broker_id=1,
        broker_epoch=scene.epochs[1],
        current_metadata_offset=scene.committed_to,
        want_fence=False,
        want_shut_down=False,
    )
    scene.commit()
    assert scene.answer(beat).error_code is ErrorCode.none
    assert scene.answer(tokens[0]).topics[0].error_code is ErrorCode.none


def test_a_broker_with_many_partitions_is_fenced_in_several_batches():
    scene = three_brokers(max_records_per_batch=100)
    for name in ("a", "b", "c"):
        scene.create_topic(name, assignments=dict.fromkeys(range(90), (1, 2)))
    before = len(scene.log)
    scene.pass_ms(9_001, alive=(2, 3))
    scene.finish()
    batches = [v for _, _, v in scene.log[before:] if len(v) > 1]
    assert max(len(b) for b in batches) == 100
    assert sum(len(b) for b in batches) == 271
    changed = [r for r in scene.records() if isinstance(r, PartitionChangeRecord)]
    assert len(changed) == 270


def test_an_overloaded_controller_still_finds_the_dead():
    scene = three_brokers()
    for _ in range(40):
        scene.now_ms += 1_500
        scene.handle(Tick())
        scene.heartbeat(2)
    assert scene.core.image.broker(1).fenced
    assert not scene.core.image.broker(2).fenced


def test_a_large_cluster_is_rebalanced_in_slices():
    scene = three_brokers(leader_imbalance_check_interval_ms=60_000, max_elections_per_round=10)
    for name in "abc":
        scene.create_topic(name, assignments=dict.fromkeys(range(8), (1, 2)))
    scene.pass_ms(12_000, alive=(2, 3))
    scene.start_broker(1)
    for name in "abc":
        rejoin(scene, name, (1, 2))
    scene.pass_ms(60_000, alive=(1, 2, 3))
    assert {scene.partition(n, i).leader for n in "abc" for i in range(8)} == {1}
    assert scene.core.preferred_imbalance == 24
    scene.pass_ms(60_000, alive=(1, 2, 3))
    assert scene.core.preferred_imbalance == 0


def test_atomic_records_of_too_many_bytes_are_refused():
    scene = three_brokers(max_batch_bytes=2_000)
    before = scene.end_offset
    image = scene.core.image
    result = scene.create_topic("t", 100, 3)
    assert result.error_code is ErrorCode.policy_violation
    assert "2000" in result.error_message
    assert (scene.end_offset, scene.core.image) == (before, image)


def test_other_records_are_split_by_their_bytes_too():
    scene = three_brokers(max_batch_bytes=2_000)
    for name in "abcd":
        scene.create_topic(name, assignments=dict.fromkeys(range(12), (1, 2)))
    before = len(scene.log)
    scene.pass_ms(9_001, alive=(2, 3))
    scene.finish()
    batches = [v for _, _, v in scene.log[before:] if len(v) > 1]
    assert sum(map(len, batches)) == 49
    assert len(batches) > 1
    assert all(sum(map(len, b)) <= 2_000 for b in batches)


def test_records_have_the_versions_that_kafka_writes():
    scene = Scene().lead()
    scene.start_broker(1, dirs=(UUID(int=801), UUID(int=802)))
    scene.start_broker(2)
    scene.create_topic("t", assignments={0: (1, 2)})
    scene.heartbeat(1, offline_log_dirs=(UUID(int=801),))
    scene.heartbeat(1, want_shut_down=True)
    scene.pass_ms(9_001)
    found = {}
    for _, _, values in scene.log:
        for value in values:
            record = decode(value)
            if isinstance(record.record, BrokerRegistrationChangeRecord):
                change = record.record
                kind = (change.fenced, change.in_controlled_shutdown, bool(change.log_dirs))
                found[kind] = record.version
            else:
                found[type(record.record)] = record.version
    assert found[-1, 0, False] == found[1, 0, False] == 0
    assert found[0, 1, False] == 1
    assert found[0, 0, True] == 2
    assert (found[RegisterBrokerRecord], found[PartitionRecord]) == (3, 2)
    assert found[PartitionChangeRecord] == 2
