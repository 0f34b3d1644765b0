"""Registration, heartbeats, producer ids, controllers, unregistering."""

from uuid import UUID

import pytest
from controller_scene import Scene

from metadata.records import FeatureLevelRecord, RegisterBrokerRecord
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.uuids import LOST_DIR, UNASSIGNED_DIR

E = ErrorCode


@pytest.fixture
def scene() -> Scene:
    return Scene().lead()


def test_a_broker_epoch_is_the_offset_of_its_registration(scene):
    offset = scene.end_offset
    reply = scene.register(1, rack="r1")
    assert (reply.error_code, reply.broker_epoch) == (E.none, offset)
    record = scene.records()[-1]
    assert isinstance(record, RegisterBrokerRecord)
    assert (record.fenced, record.rack, record.broker_epoch) == (True, "r1", offset)
    assert record.end_points[0].host == "host1"
    assert record.log_dirs == (UUID(int=1001),)


def test_the_same_incarnation_keeps_epoch_and_flags(scene):
    scene.start_broker(1)
    epoch = scene.epochs[1]
    again = scene.register(1, incarnation=scene.incarnations[1], rack="new")
    assert again.broker_epoch == epoch
    broker = scene.core.image.broker(1)
    assert (broker.fenced, broker.rack) == (False, "new")


def test_another_process_of_the_same_id_waits_for_the_session_to_end(scene):
    scene.start_broker(1)
    first = scene.epochs[1]
    assert scene.register(1).error_code is E.duplicate_broker_registration
    assert scene.epochs[1] == first
    scene.pass_ms(9_001)
    assert scene.register(1).error_code is E.none
    assert scene.epochs[1] > first


def test_a_restart_before_the_fencing_was_due_leaves_no_fenced_leader(scene):
    scene.start_brokers(1, 2)
    scene.create_topic("t", assignments={0: (1, 2)})
    scene.now_ms += 9_001  # the session is over, the tick not yet handled
    scene.heartbeat(2)
    assert scene.register(1).error_code is E.none
    assert (scene.partition("t").leader, scene.partition("t").isr) == (2, (2,))


def test_an_old_epoch_is_stale(scene):
    scene.start_broker(1)
    old = scene.epochs[1]
    scene.pass_ms(9_001)
    scene.register(1)
    assert scene.heartbeat(1, broker_epoch=old).error_code is E.stale_broker_epoch
    assert scene.heartbeat(7).error_code is E.stale_broker_epoch


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"cluster": "other"}, E.inconsistent_cluster_id),
        ({"dirs": ()}, E.invalid_registration),
        ({"dirs": (UUID(int=500), UUID(int=500))}, E.invalid_registration),
        ({"dirs": (LOST_DIR,)}, E.invalid_registration),
        ({"dirs": (UNASSIGNED_DIR,)}, E.invalid_registration),
        ({"dirs": (UUID(int=1002),)}, E.invalid_registration),
        ({"levels": (1, 24)}, E.unsupported_version),
        ({"levels": (26, 30)}, E.unsupported_version),
    ],
)
def test_refused_registrations(scene, how, code):
    scene.register(2)
    reply = scene.register(1, **how)
    assert (reply.error_code, reply.broker_epoch) == (code, -1)
    assert scene.core.image.broker(1) is None


def test_below_level_17_directories_are_not_asked_for():
    scene = Scene(level=14).lead()
    assert scene.register(1, version=1).error_code is E.none
    assert scene.core.image.broker(1).log_dirs == ()


def test_a_broker_must_know_every_finalised_feature():
    scene = Scene()
    scene.bootstrap.append(FeatureLevelRecord(name="metadata.version", feature_level=20))
    scene.lead()
    assert scene.register(1, levels=(1, 19)).error_code is E.unsupported_version
    assert scene.register(1, levels=(20, 20)).error_code is E.none


def test_unfenced_only_once_it_has_read_its_own_registration(scene):
    scene.register(1)
    behind = scene.heartbeat(1, current_metadata_offset=scene.epochs[1] - 1)
    assert (behind.is_fenced, behind.is_caught_up) == (True, False)
    asleep = scene.heartbeat(1, want_fence=True)
    assert (asleep.is_fenced, asleep.is_caught_up) == (True, True)
    ready = scene.heartbeat(1)
    assert (ready.is_fenced, ready.is_caught_up) == (False, True)


def test_a_broker_may_ask_to_be_fenced(scene):
    scene.start_brokers(1, 2)
    scene.create_topic("t", assignments={0: (1, 2)})
    assert scene.heartbeat(1, want_fence=True).is_fenced
    assert scene.core.image.broker(1).fenced
    assert scene.partition("t").leader == 2
    stopped = scene.heartbeat(2, want_fence=True, want_shut_down=True)
    assert stopped.should_shut_down


def test_unregistering(scene):
    scene.start_brokers(1, 2)
    scene.create_topic("t", assignments={0: (1, 2)})
    key = ApiKey.UNREGISTER_BROKER
    assert scene.ask(key, 0, broker_id=1).error_code is E.none
    assert scene.core.image.broker(1) is None
    assert (scene.partition("t").leader, scene.partition("t").isr) == (2, (2,))
    reply = scene.ask(key, 0, broker_id=1)
    assert reply.error_code is E.broker_id_not_registered
    assert "1" in reply.error_message
    assert scene.heartbeat(1).error_code is E.stale_broker_epoch
    scene.pass_ms(20_000)


def test_producer_id_blocks_never_overlap(scene):
    scene.start_brokers(1, 2)
    key = ApiKey.ALLOCATE_PRODUCER_IDS
    starts = []
    for broker in (1, 2, 1):
        reply = scene.ask(key, 0, broker_id=broker, broker_epoch=scene.epochs[broker])
        assert reply.producer_id_len == 1000
        starts.append(reply.producer_id_start)
    scene.fail_over()
    starts.append(scene.ask(key, 0, broker_id=1, broker_epoch=scene.epochs[1]).producer_id_start)
    assert starts == [0, 1000, 2000, 3000]
    stale = scene.ask(key, 0, broker_id=1, broker_epoch=0)
    assert stale.error_code is E.stale_broker_epoch


def register_controller(scene: Scene, high: int = 25):
    key = ApiKey.CONTROLLER_REGISTRATION
    return scene.ask(
        key,
        0,
        controller_id=3000,
        incarnation_id=UUID(int=42),
        zk_migration_ready=False,
        listeners=(
            scene.part(
                key, 0, "Listener", name="CONTROLLER", host="h", port=9093, security_protocol=0
            ),
        ),
        features=(
            scene.part(
                key,
                0,
                "Feature",
                name="metadata.version",
                min_supported_version=7,
                max_supported_version=high,
            ),
        ),
    )


def test_controllers_register(scene):
    assert register_controller(scene).error_code is E.none
    controller = scene.core.image.controllers[3000]
    assert (controller.incarnation_id, controller.endpoints[0].port) == (UUID(int=42), 9093)
    assert register_controller(scene, 24).error_code is E.unsupported_version
    assert register_controller(Scene(level=14).lead()).error_code is E.unsupported_version


def test_after_a_clean_stop_the_next_process_need_not_wait(scene):
    scene.start_brokers(1, 2)
    assert scene.heartbeat(1, want_shut_down=True).should_shut_down
    assert scene.register(1).error_code is E.none
    scene.create_topic("t", assignments={0: (2,)})
    assert not scene.heartbeat(2, want_shut_down=True).should_shut_down
    assert scene.register(2).error_code is E.none


def test_a_broker_that_lost_all_directories_holds_nothing(scene):
    scene.start_brokers(1, 2)
    scene.create_topic("t", assignments={0: (1, 2)})
    scene.heartbeat(1, offline_log_dirs=(UUID(int=1001),))
    assert (scene.partition("t").leader, scene.partition("t").isr) == (2, (2,))
    before = scene.end_offset
    scene.heartbeat(1, offline_log_dirs=(UUID(int=1001),))
    assert scene.end_offset == before
