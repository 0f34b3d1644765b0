"""Formatting log directories: all or none, and only with levels that are supported."""

import asyncio
import random

import pytest

from metadata.features import SUPPORTED
from metadata.records import FeatureLevelRecord
from pykraft.storage_format import (
    BOOTSTRAP_CHECKPOINT,
    BOOTSTRAP_SNAPSHOT,
    META_PROPERTIES,
    bootstrap_records,
    encode_bootstrap,
    format_directories,
    read_bootstrap,
)
from wire import meta_properties
from wire.batch import crc_ok, iter_headers
from wire.errors import ErrorCode, FatalError, KafkaError
from wire.exits import EXIT_BAD_DIRECTORY
from world.env import DiskError
from world.memory import memory_env

LOW, HIGH = SUPPORTED["metadata.version"]


def format_(env, *directories, level=25):
    asyncio.run(
        format_directories(
            env, directories, node_id=7, cluster_id="c1", levels={"metadata.version": level}
        )
    )


def identity(env, directory):
    path = f"{directory}/{META_PROPERTIES}"
    return meta_properties.decode(env.disk.read_bytes(path), path)


def test_every_directory_gets_an_identity_and_bootstrap_records():
    env = memory_env()
    format_(env, "/a", "/b")
    first, second = identity(env, "/a"), identity(env, "/b")
    assert (first.cluster_id, first.node_id) == ("c1", 7)
    assert first.directory_id != second.directory_id
    assert read_bootstrap(env, "/a") == [
        FeatureLevelRecord(name="metadata.version", feature_level=25)
    ]


def test_only_the_metadata_log_gets_an_empty_place():
    env = memory_env()
    asyncio.run(
        format_directories(
            env,
            ["/a", "/b"],
            node_id=7,
            cluster_id="c1",
            levels={"metadata.version": 25},
            metadata_directory="/b",
        )
    )
    places = [env.disk.exists(f"{directory}/__cluster_metadata-0") for directory in ("/a", "/b")]
    assert places == [False, True]


def test_a_formatted_directory_outlives_the_power():
    for seed in range(20):
        env = memory_env()
        format_(env, "/var/lib/a")
        after = memory_env(disk=env.disk.crash(random.Random(seed)))
        assert identity(after, "/var/lib/a").node_id == 7


def test_a_formatted_directory_is_refused_and_nothing_changes():
    env = memory_env()
    format_(env, "/a")
    before = env.disk.read_bytes(f"/a/{META_PROPERTIES}")
    with pytest.raises(KafkaError, match="/a is formatted already"):
        format_(env, "/new", "/a")
    assert env.disk.read_bytes(f"/a/{META_PROPERTIES}") == before
    assert not env.disk.exists("/new")


@pytest.mark.parametrize("refused", ["make_dirs", "replace"])
def test_a_directory_that_cannot_be_written_leaves_none_formatted(monkeypatch, refused):
    """Formatted with a random cluster id, the others would refuse the next try."""
    env = memory_env()
    refuse(env, monkeypatch, refused, lambda path: path.startswith("/bad"))
    with pytest.raises(DiskError, match="/bad") as caught:
        format_(env, "/a", "/bad")
    assert not hasattr(caught.value, "__notes__")
    assert not env.disk.exists(f"/a/{META_PROPERTIES}")
    monkeypatch.undo()
    format_(env, "/a", "/bad")
    assert identity(env, "/a").node_id == 7


def test_who_fails_half_way_is_told_what_to_remove(monkeypatch):
    env = memory_env()
    refuse(env, monkeypatch, "replace", lambda path: path == f"/b/{META_PROPERTIES}")
    with pytest.raises(DiskError) as caught:
        format_(env, "/a", "/b")
    assert caught.value.__notes__ == ["remove /a/meta.properties before another try"]
    monkeypatch.undo()
    env.disk.remove("/a/meta.properties")
    format_(env, "/a", "/b")


def refuse(env, monkeypatch, name, is_refused):
    """Have the disk refuse this operation at such paths."""
    real = getattr(env.disk, name)

    def refusing(path, *rest):
        if is_refused(path):
            raise DiskError(path, name, "refused")
        return real(path, *rest)

    monkeypatch.setattr(type(env.disk), name, lambda self, *args: refusing(*args))


@pytest.mark.parametrize("level", [LOW - 1, HIGH + 1, 0, -1])
def test_a_level_outside_the_range_is_refused(level):
    env = memory_env()
    with pytest.raises(KafkaError, match=r"7 \(3.3-IV3\) to 29 \(4.2-IV1\)") as caught:
        format_(env, "/a", level=level)
    assert caught.value.code is ErrorCode.invalid_update_version
    assert not env.disk.exists("/a")


def test_features_that_are_not_there_stay_at_zero():
    assert bootstrap_records({"metadata.version": 25, "share.version": 0}) == bootstrap_records(
        {"metadata.version": 25}
    )
    with pytest.raises(KafkaError, match=r"feature share\.version at level 1: 0 to 0"):
        bootstrap_records({"metadata.version": 25, "share.version": 1})


def test_levels_that_need_each_other(monkeypatch):
    monkeypatch.setitem(SUPPORTED, "some.version", (0, 1))
    monkeypatch.setattr(
        "metadata.features.REQUIRES", {"some.version": {1: ("metadata.version", 26)}}
    )
    made = bootstrap_records({"some.version": 1, "metadata.version": 26})
    assert [(record.name, record.feature_level) for record in made] == [
        ("metadata.version", 26),
        ("some.version", 1),
    ]
    with pytest.raises(KafkaError, match=r"needs metadata.version at 26 \(4.1-IV0\) or higher"):
        bootstrap_records({"some.version": 1, "metadata.version": 25})


def test_the_file_is_three_sound_batches_in_a_row():
    data = encode_bootstrap(bootstrap_records({"metadata.version": 25}), 1_700_000_000_000)
    headers = list(iter_headers(data))
    assert [header.is_control for _, header in headers] == [True, False, True]
    assert [header.base_offset for _, header in headers] == [0, 1, 2]
    assert all(crc_ok(data, position, header.length) for position, header in headers)


def test_records_are_found_in_the_snapshot_that_newer_kafka_formats_with():
    env = memory_env()
    format_(env, "/a")
    data = env.disk.read_bytes(f"/a/{BOOTSTRAP_CHECKPOINT}")
    env.disk.remove(f"/a/{BOOTSTRAP_CHECKPOINT}")
    env.disk.make_dirs("/a/__cluster_metadata-0")
    asyncio.run(env.disk.replace(f"/a/{BOOTSTRAP_SNAPSHOT}", data))
    assert read_bootstrap(env, "/a") == bootstrap_records({"metadata.version": 25})


def test_no_file_means_no_records():
    assert read_bootstrap(memory_env(), "/nowhere") == []


def test_a_damaged_file_is_fatal_and_named():
    env = memory_env()
    format_(env, "/a")
    path = f"/a/{BOOTSTRAP_CHECKPOINT}"
    data = bytearray(env.disk.read_bytes(path))
    _, middle, _ = (position for position, _ in iter_headers(data))
    data[middle + 61 + 6] ^= 0xFF  # inside the one data record
    asyncio.run(env.disk.replace(path, bytes(data)))
    with pytest.raises(FatalError, match=BOOTSTRAP_CHECKPOINT) as caught:
        read_bootstrap(env, "/a")
    assert caught.value.exit_code == EXIT_BAD_DIRECTORY
    data[middle + 16] = 9
    asyncio.run(env.disk.replace(path, bytes(data)))
    with pytest.raises(FatalError, match=f"{path}: byte {middle}: batch of magic 9, only"):
        read_bootstrap(env, "/a")
