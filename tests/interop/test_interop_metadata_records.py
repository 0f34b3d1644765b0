"""Metadata records and replay against JVM Kafka: its bytes, its versions, its image."""

import random
import struct
from pathlib import Path

import kafka_jvm
import pytest
from metadata_samples import History, random_entity

from metadata.configs import NODE, TOPIC
from metadata.features import level_name
from metadata.image import EMPTY, MetadataImage
from metadata.records import (
    RECORD_TYPES,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    decode,
    encode,
    encode_at,
    version_for,
)
from metadata.snapshot import values_of
from metadata.state import state_json

pytestmark = pytest.mark.interop

# The newest release adds versions (cordoned directories) that the default one lacks.
NEWER = "4.3.1"
VERSIONS = [pytest.param(kafka_jvm.DEFAULT_VERSION, marks=pytest.mark.ci), NEWER]


def java(arguments: list[str], version: str) -> str:
    path = kafka_jvm.compiled("MetadataRecords", version)
    return kafka_jvm.run_java("MetadataRecords", arguments, path)


def java_replay(arguments: list[str]) -> str:
    path = kafka_jvm.compiled("MetadataReplay")
    return kafka_jvm.run_java("MetadataReplay", arguments, path)


def write_values(path: Path, values: list[bytes]) -> None:
    path.write_bytes(b"".join(struct.pack(">i", len(value)) + value for value in values))


def read_values(path: Path) -> list[bytes]:
    data, position, found = path.read_bytes(), 0, []
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        found.append(data[position + 4 : position + 4 + size])
        position += 4 + size
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_every_type_and_version_is_known(version: str) -> None:
    ours = {cls.API_KEY: cls for cls in RECORD_TYPES}
    lines = [line.split() for line in java(["types"], version).splitlines()]
    assert len(lines) == len(ours)
    for number, name, low, high in lines:
        cls = ours[int(number)]
        assert (cls.NAME, int(low)) == (name, 0)
        assert int(high) <= cls.MAX_VERSION
        if version == NEWER:
            assert int(high) == cls.MAX_VERSION


@pytest.mark.parametrize("version", VERSIONS)
def test_levels_and_the_versions_they_write(version: str) -> None:
    kinds = (RegisterBrokerRecord, PartitionRecord, PartitionChangeRecord)
    for line in java(["levels"], version).splitlines():
        level, name, *written = line.split()
        assert level_name(int(level)) == name
        assert [version_for(kind, int(level)) for kind in kinds] == [int(v) for v in written]


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_survive_the_jvm_unchanged(version: str, tmp_path: Path) -> None:
    newest = {
        int(line.split()[0]): int(line.split()[3]) for line in java(["types"], version).splitlines()
    }
    rng = random.Random(7)
    values = []
    for cls in RECORD_TYPES:
        for record_version in range(newest[cls.API_KEY] + 1):
            for _ in range(25):
                record = random_entity(cls, record_version, rng)
                values.append(encode(record, record_version))
                assert decode(values[-1]).record == record
    write_values(tmp_path / "in", values)
    java(["roundtrip", str(tmp_path / "in"), str(tmp_path / "out")], version)
    assert read_values(tmp_path / "out") == values


def state_of(values: list[bytes]) -> dict:
    image: MetadataImage = EMPTY
    for value in values:
        image = image.apply(decode(value).record)
    return state_json(image)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.ci) for seed in range(1, 5))]
)
def test_the_jvm_replays_to_the_same_image(seed: int, tmp_path: Path) -> None:
    history = History(seed)
    records = history.take(2000)
    values = [encode_at(record, 25) for record in records]
    write_values(tmp_path / "in", values)
    java_replay(["replay", str(tmp_path / "in"), str(tmp_path / "out"), "25"])
    written = read_values(tmp_path / "out")
    assert state_of(written) == state_of(values)
    # And the other way: the records that we write for the image, replayed there.
    write_values(tmp_path / "ours", list(values_of(history.image)))
    java_replay(["replay", str(tmp_path / "ours"), str(tmp_path / "back"), "25"])
    assert state_of(read_values(tmp_path / "back")) == state_of(values)


def test_topic_configs_are_kafkas() -> None:
    theirs = {}
    for line in java_replay(["configs"]).splitlines():
        name, kind, default, synonyms = line.split("|")
        theirs[name] = (kind, default, tuple(synonyms.split(",")) if synonyms else ())
    ours = {
        name: (d.type.name, d.default_text, tuple(s.name for s in d.synonyms))
        for name, d in TOPIC.items()
    }
    assert ours == theirs


# Where we differ on purpose: loopback unless configured, and CONTROLLER known as plaintext.
OWN_DEFAULTS = {"listeners", "listener.security.protocol.map"}
# What a later release than the one asked here has, or has another default for.
LATER = {
    "controller.quorum.auto.join.enable",
    "group.consumer.assignment.interval.ms",
    "group.consumer.max.assignment.interval.ms",
    "group.consumer.min.assignment.interval.ms",
    "group.coordinator.background.threads",
    "group.coordinator.cached.buffer.max.bytes",
}
DEFAULTS_LATER = {"group.coordinator.append.linger.ms"}


def test_node_configs_are_kafkas() -> None:
    theirs = {}
    for line in java_replay(["nodeconfigs"]).splitlines():
        name, kind, default = line.split("|")
        theirs[name] = (kind, None if default == "null" else default)
    for name, definition in NODE.items():
        if name.startswith("pykraft."):
            assert name not in theirs
            continue
        if name in LATER and name not in theirs:
            continue
        kind, default = theirs[name]
        assert definition.type.name == kind, name
        ours = "required" if definition.required else definition.default_text
        assert ours == default or name in OWN_DEFAULTS | DEFAULTS_LATER, name
