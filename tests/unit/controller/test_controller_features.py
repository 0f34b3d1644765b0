"""UpdateFeatures: what may rise and fall, who has a say, and what is written from then on."""

from datetime import timedelta
from uuid import UUID

import pytest
from controller_scene import Scene

from metadata.features import SUPPORTED
from metadata.records import (
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    decode,
)
from metadata.records import types as t
from metadata.snapshot import records_of
from wire.apis import ApiKey
from wire.errors import ErrorCode

E = ErrorCode
KEY = ApiKey.UPDATE_FEATURES
UPGRADE, SAFE, UNSAFE = 1, 2, 3
LOW, HIGH = SUPPORTED["metadata.version"]


def update(scene, *updates, version=2, validate_only=False, timeout=timedelta(seconds=5)):
    """Updates are (feature, level, upgrade type)."""
    return scene.ask(
        KEY,
        version,
        feature_updates=tuple(
            scene.part(
                KEY,
                version,
                "FeatureUpdateKey",
                feature=name,
                max_version_level=level,
                allow_downgrade=kind != UPGRADE,
                upgrade_type=kind,
            )
            for name, level, kind in updates
        ),
        timeout=timeout,
        validate_only=validate_only,
    )


def metadata(scene, level, kind=UPGRADE, **rest):
    return update(scene, ("metadata.version", level, kind), **rest)


@pytest.fixture
def scene():
    return Scene().lead().start_brokers(1, 2, levels=(LOW, HIGH))


def register_controller(scene, node_id, high=HIGH):
    key = ApiKey.CONTROLLER_REGISTRATION
    reply = scene.ask(
        key,
        0,
        controller_id=node_id,
        incarnation_id=UUID(int=node_id),
        zk_migration_ready=False,
        listeners=(),
        features=(
            scene.part(
                key,
                0,
                "Feature",
                name="metadata.version",
                min_supported_version=LOW,
                max_supported_version=high,
            ),
        ),
    )
    assert reply.error_code is E.none


@pytest.mark.parametrize("version", range(3))
def test_up_and_down_in_every_version(scene, version):
    up = metadata(scene, HIGH, version=version)
    assert (up.error_code, up.error_message) == (E.none, None)
    assert scene.core.image.metadata_version == scene.loader.image.metadata_version == HIGH
    down = metadata(scene, 25, SAFE, version=version)
    assert down.error_code is E.none
    assert scene.core.image.metadata_version == 25
    if version < 2:
        assert [(r.feature, r.error_code, r.error_message) for r in up.results] == [
            ("metadata.version", E.none, None)
        ]


@pytest.mark.parametrize("version", [1, 2])
def test_a_trial_changes_nothing(scene, version):
    assert metadata(scene, HIGH, version=version, validate_only=True).error_code is E.none
    refused = metadata(scene, HIGH + 1, version=version, validate_only=True)
    assert refused.error_code is E.invalid_update_version
    assert scene.core.image.metadata_version == 25


def test_the_answer_waits_for_the_commit():
    scene = Scene().lead()
    scene.auto_commit = False
    token = scene.send(
        KEY,
        2,
        feature_updates=(
            scene.part(
                KEY, 2, "FeatureUpdateKey", feature="metadata.version", max_version_level=HIGH
            ),
        ),
    )
    assert token not in scene.replies
    assert scene.loader.image.metadata_version == 25, "a feature is finalised at its commit"
    scene.commit()
    assert scene.answer(token).error_code is E.none
    assert scene.loader.image.metadata_version == HIGH


@pytest.mark.parametrize("kind", [UPGRADE, SAFE, UNSAFE])
def test_the_same_level_again_needs_no_record(scene, kind):
    before = scene.end_offset
    assert metadata(scene, 25, kind).error_code is E.none
    assert scene.end_offset == before


@pytest.mark.parametrize(
    ("level", "kind", "said"),
    [
        (24, UPGRADE, "downgrade, not an upgrade"),
        (26, SAFE, "an upgrade, not a downgrade"),
        (26, UNSAFE, "an upgrade, not a downgrade"),
        (HIGH + 1, UPGRADE, "controller 3000 supports levels 7 (3.3-IV3) to 29 (4.2-IV1)"),
        (LOW - 1, SAFE, "controller 3000 supports levels 7 (3.3-IV3)"),
        (0, SAFE, "controller 3000 supports levels 7"),
        (-1, SAFE, "controller 3000 supports levels 7"),
        (22, SAFE, "might lose metadata; from 25 (4.0-IV3) it can go down to 23 (4.0-IV1)"),
        (22, UNSAFE, "unsafe downgrades are not supported; from 25 (4.0-IV3) it can go down to 23"),
        (7, SAFE, "it can go down to 23 (4.0-IV1)"),
        (26, 0, "upgrade type 0 is none of 1 (upgrade)"),
        (26, 4, "upgrade type 4"),
    ],
)
def test_refusals_name_the_level_and_what_is_allowed(scene, level, kind, said):
    before = scene.end_offset
    refused = metadata(scene, level, kind)
    assert refused.error_code is E.invalid_update_version
    assert "metadata.version can't be set to" in refused.error_message
    assert str(level) in refused.error_message
    assert said in refused.error_message
    assert scene.end_offset == before


def test_a_downgrade_is_allowed_down_to_the_last_change_of_metadata(scene):
    assert metadata(scene, 23, SAFE).error_code is E.none
    assert metadata(scene, HIGH).error_code is E.none
    assert metadata(scene, 23, UNSAFE).error_code is E.none


@pytest.mark.parametrize("version", range(3))
def test_all_or_nothing(scene, version, monkeypatch):
    monkeypatch.setitem(SUPPORTED, "some.version", (0, 2))
    before = scene.end_offset
    refused = update(
        scene, ("metadata.version", 26, UPGRADE), ("some.version", 1, UPGRADE), version=version
    )
    assert refused.error_code is E.invalid_update_version
    assert "some.version can't be set to 1: broker 1 does not support" in refused.error_message
    assert scene.end_offset == before
    assert not getattr(refused, "results", ())
    removed = update(
        scene, ("metadata.version", 26, UPGRADE), ("some.version", 0, SAFE), version=version
    )
    assert removed.error_code is E.none


def test_a_feature_named_twice(scene):
    refused = update(scene, ("metadata.version", 26, UPGRADE), ("metadata.version", 27, UPGRADE))
    assert refused.error_code is E.invalid_request
    assert "metadata.version is named more than once" in refused.error_message


def test_a_feature_that_nobody_knows(scene):
    refused = update(scene, ("no.such.version", 0, SAFE))
    assert refused.error_code is E.invalid_update_version
    assert "the features there are: " in refused.error_message
    assert "metadata.version" in refused.error_message


def test_all_features_that_are_missing_are_named_and_the_levels_that_there_are(scene):
    """As Kafka's tool asks for a release: whoever reads it sees at once what can be had."""
    refused = update(
        scene,
        ("share.version", 1, UPGRADE),
        ("metadata.version", 26, UPGRADE),
        ("transaction.version", 2, UPGRADE),
    )
    assert refused.error_code is E.invalid_update_version
    assert refused.error_message == (
        "share.version can't be set to 1: this version has no share.version, transaction.version; "
        "the features there are: eligible.leader.replicas.version 0 to 1, group.version 0 to 1, "
        "kraft.version 0 to 1, metadata.version 7 (3.3-IV3) to 29 (4.2-IV1)"
    )


def test_another_feature_rises_and_is_removed(monkeypatch):
    monkeypatch.setitem(SUPPORTED, "some.version", (0, 2))
    scene = Scene().lead()
    assert update(scene, ("some.version", 2, UPGRADE)).error_code is E.none
    assert scene.loader.image.features["some.version"] == 2
    assert update(scene, ("some.version", 0, UPGRADE)).error_code is E.invalid_update_version
    assert update(scene, ("some.version", 0, SAFE)).error_code is E.none
    assert "some.version" not in scene.loader.image.features


def test_a_level_may_need_another_feature(monkeypatch):
    monkeypatch.setitem(SUPPORTED, "some.version", (0, 2))
    monkeypatch.setattr(
        "metadata.features.REQUIRES", {"some.version": {2: ("metadata.version", 27)}}
    )
    scene = Scene().lead()
    assert update(scene, ("some.version", 1, UPGRADE)).error_code is E.none
    refused = update(scene, ("some.version", 2, UPGRADE))
    assert refused.error_code is E.invalid_update_version
    assert "needs metadata.version at 27 (4.1-IV1) or higher" in refused.error_message
    both = update(scene, ("some.version", 2, UPGRADE), ("metadata.version", 27, UPGRADE))
    assert both.error_code is E.none


def test_every_registered_broker_has_a_say():
    scene = Scene().lead().start_brokers(1, levels=(LOW, HIGH))
    scene.register(2, levels=(LOW, 25))  # and stays fenced
    refused = metadata(scene, 26)
    assert refused.error_code is E.invalid_update_version
    assert "broker 2 supports levels 7 (3.3-IV3) to 25 (4.0-IV3)" in refused.error_message


def test_every_registered_controller_has_a_say():
    scene = Scene(static_voters=(3000, 3001)).lead()
    refused = metadata(scene, 26)
    assert refused.error_code is E.invalid_update_version
    assert "controller 3001 has not registered" in refused.error_message
    register_controller(scene, 3001, 25)
    assert "controller 3001 supports levels 7 (3.3-IV3) to 25" in metadata(scene, 26).error_message
    register_controller(scene, 3001)
    assert metadata(scene, 26).error_code is E.none


def test_where_controllers_dont_register_their_ranges_are_not_known():
    scene = Scene(level=14, static_voters=(3000, 3001)).lead()
    assert metadata(scene, 15).error_code is E.none


def versions_after(scene, kind):
    """The versions in which the log holds this record type, in order."""
    decoded = [decode(value) for _, _, values in scene.log for value in values]
    return [one.version for one in decoded if isinstance(one.record, kind)]


def test_later_records_are_of_the_newer_versions_and_snapshots_too():
    scene = Scene(level=16).lead().start_brokers(1, levels=(LOW, HIGH))
    scene.create_topic("old")
    assert metadata(scene, 23).error_code is E.none
    scene.create_topic("new")
    scene.start_broker(2, levels=(LOW, HIGH))
    assert versions_after(scene, PartitionRecord) == [0, 2]
    assert versions_after(scene, RegisterBrokerRecord) == [2, 3]
    assert versions_after(scene, FeatureLevelRecord) == [0, 0]
    written = {type(record): version for record, version in records_of(scene.loader.image)}
    assert (written[t.PartitionRecord], written[t.RegisterBrokerRecord]) == (2, 3)


def test_a_broker_registers_its_directories_once_the_level_has_them():
    scene = Scene(level=16).lead().start_brokers(1, levels=(LOW, HIGH))
    before = scene.core.image.broker(1)
    assert before.log_dirs == ()
    assert metadata(scene, 17).error_code is E.none
    again = scene.register(
        1, levels=(LOW, HIGH), incarnation=scene.incarnations[1], dirs=(UUID(int=1001),)
    )
    after = scene.core.image.broker(1)
    assert (again.error_code, again.broker_epoch) == (E.none, before.epoch)
    assert (after.log_dirs, after.fenced) == ((UUID(int=1001),), False)


def test_a_new_leader_goes_on_at_the_committed_level(scene):
    metadata(scene, HIGH)
    scene.fail_over()
    assert scene.core.image.metadata_version == HIGH
    assert metadata(scene, 25, SAFE).error_code is E.none
