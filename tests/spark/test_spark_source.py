"""The `kraft` source in Spark: every record a row, with the columns that a query asks for."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from audit_logs import LogWriter
from metadata_samples import History

from metadata.image import EMPTY
from metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode,
    name_of,
    to_json,
)
from spark_audit.columns import COLUMNS
from wire.batch import decode_records, iter_headers
from wire.uuids import to_text

pytestmark = [pytest.mark.spark, pytest.mark.ci]

SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


def load(spark: Any, path: Path, schema: str = SCHEMA, **options: Any) -> list[Any]:
    rows: list[Any] = (
        spark.read.format("kraft").options(**options).schema(schema).load(str(path)).collect()
    )
    return rows


def test_real_logs_have_their_records(spark: Any, corpus: Path) -> None:
    for name in ("c01/n1", "c06", "c07", "c10", "c17", "d03", "d10"):
        folder, _, node = name.partition("/")
        expected = json.loads((corpus / folder / "expected.json").read_text())["nodes"][node or "."]
        rows = load(
            spark, corpus / name, "source string, record_type string, record_version int",
            slicebytes=200_000 if name == "c10" else 32 << 20,
        )  # fmt: skip
        counts: dict[str, int] = {}
        snapshots: dict[str, int] = {}
        for row in rows:
            if row.source.endswith(".log"):
                key = f"{row.record_type}:{row.record_version}"
                counts[key] = counts.get(key, 0) + 1
            else:
                snapshots[row.source] = snapshots.get(row.source, 0) + 1
        assert counts == expected["counts"]
        assert snapshots == {one["file"]: one["records"] for one in expected["snapshots"]}


def test_columns_are_what_the_records_say(spark: Any, tmp_path: Path) -> None:
    log, made = LogWriter(tmp_path), History(3)
    log.leader_change(2, 4)
    for number in range(60):
        log.batch(*made.take(5), NoOpRecord(), codec=number % 5)
    log.values([b"\x01\x63\x00x", b"\x01\x02\x00\xff"])
    rows = load(spark, tmp_path)
    data = log.segment.read_bytes()
    expected = [
        (position, header, record)
        for position, header in iter_headers(data)
        for record in decode_records(data, position, header)
    ]
    assert len(rows) == len(expected)
    for row, (position, header, record) in zip(rows, expected, strict=True):
        assert (row.offset, row.epoch, row.timestamp) == (
            record.offset, header.leader_epoch, record.timestamp,
        )  # fmt: skip
        assert (row.source, row.position) == (log.segment.name, position)
        if header.is_control:
            assert (row.record_type, row.api_key, row.leader) == ("LeaderChangeMessage", None, 2)
            continue
        if record.value == b"\x01\x02\x00\xff":
            assert row.payload is None
            continue
        decoded = decode(record.value)
        assert (row.record_type, row.record_version, row.api_key) == (
            name_of(decoded.api_key), decoded.version, decoded.api_key,
        )  # fmt: skip
        assert json.loads(row.payload) == to_json(decoded.record, decoded.version)
        check_typed(row, decoded.record)


def check_typed(row: Any, record: Any) -> None:
    """Each typed column has the field of its name, or nothing."""
    for column, field in (
        ("partition", "partition_id"), ("isr", "isr"), ("replicas", "replicas"),
        ("removing", "removing_replicas"), ("adding", "adding_replicas"),
        ("elr", "eligible_leader_replicas"),
        ("leader", "leader"), ("leader_epoch", "leader_epoch"), ("topic_id", "topic_id"),
        ("partition_epoch", "partition_epoch"), ("resource_type", "resource_type"),
        ("resource_name", "resource_name"), ("config_value", "value"),
        ("feature_level", "feature_level"),
    ):  # fmt: skip
        value = getattr(record, field, None)
        if field == "topic_id" and value is not None:
            value = to_text(value)
        if isinstance(value, tuple):
            value = list(value)
        if field == "leader" and value == -2:
            value = None
        if column == "config_value" and type(record).__name__ != "ConfigRecord":
            value = None
        assert getattr(row, column) == value, (column, record)
    name = type(record).__name__
    assert row.topic == (record.name if name == "TopicRecord" else None)
    if name == "BrokerRegistrationChangeRecord":
        assert row.fenced == {0: None, 1: True, -1: False}[record.fenced]
        assert row.broker_id == record.broker_id


def test_only_the_payloads_that_are_asked_for_are_decoded(spark: Any, tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.leader_change(1, 1)
    log.batch(NoOpRecord(), FeatureLevelRecord(name="x", feature_level=1))
    log.values([b"\x01\x63\x00x", b"\x01\x02\x00\xff"])
    for names, expected in (
        ("FeatureLevelRecord, LeaderChangeMessage", [0, 2]),
        ("FeatureLevelRecord", [2]),
        ("RegisterBrokerRecord", []),  # one that can't be decoded
    ):
        rows = load(spark, tmp_path, "offset bigint, payload string", payloads=names)
        assert len(rows) == 5
        assert [row.offset for row in rows if row.payload is not None] == expected


def test_the_changes_of_a_topic_as_the_docs_join_them(spark: Any, tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "audit.md"
    example = page.read_text().partition("```python\n")[2].partition("```")[0]
    assert "'orders'" in example
    log = LogWriter(tmp_path)
    orders, other = UUID(int=5), UUID(int=6)
    log.batch(
        TopicRecord(name="orders", topic_id=orders),
        PartitionRecord(partition_id=0, topic_id=orders, replicas=(1,), isr=(1,), leader=1),
        TopicRecord(name="other", topic_id=other),
        PartitionRecord(partition_id=0, topic_id=other, replicas=(1,), isr=(1,), leader=1),
        PartitionChangeRecord(partition_id=0, topic_id=orders, leader=2),
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5"),
        ConfigRecord(resource_type=2, resource_name="other", name="retention.ms", value="5"),
        RemoveTopicRecord(topic_id=orders),
    )
    names = {"spark": spark, "DIR": str(tmp_path)}
    exec(example, names)
    found: Any = names["changes"]
    assert [row.offset for row in found.collect()] == [0, 1, 4, 5, 7]


def test_timestamps_may_be_asked_for_as_such(spark: Any, tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.batch(NoOpRecord())
    (row,) = load(spark, tmp_path, "timestamp timestamp, offset int")
    assert round(row.timestamp.timestamp() * 1000) == log.time_ms


def test_the_default_schema_has_no_payload(spark: Any, tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.batch(NoOpRecord(), FeatureLevelRecord(name="x", feature_level=1))
    frame = spark.read.format("kraft").load(str(tmp_path))
    assert set(frame.columns) == set(COLUMNS) - {"payload"}
    assert frame.count() == 2
    frame.createOrReplaceTempView("records")
    found = spark.sql("SELECT offset FROM records WHERE feature_name = 'x'").collect()
    assert [row.offset for row in found] == [1]


def test_several_directories_and_options(spark: Any, tmp_path: Path) -> None:
    logs = [LogWriter(tmp_path / name) for name in "ab"]
    for log in logs:
        log.batch(FeatureLevelRecord(name="x", feature_level=1))
        log.snapshot(EMPTY.apply(FeatureLevelRecord(name="x", feature_level=1)))
    read = spark.read.format("kraft").schema("source string")
    assert read.load([str(tmp_path / "a"), str(tmp_path / "b")]).count() == 8
    assert len(load(spark, tmp_path / "a", snapshots="false")) == 1
    assert len(load(spark, tmp_path / "a", segments="false")) == 3


def test_of_many_snapshots_the_named_ones_are_read(spark: Any, tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    names = []
    for level in (1, 2, 3):
        log.batch(FeatureLevelRecord(name="x", feature_level=level))
        log.snapshot(EMPTY.apply(FeatureLevelRecord(name="x", feature_level=level)))
        names = sorted(path.name for path in tmp_path.rglob("*.checkpoint"))
    rows = load(spark, tmp_path, "source string", segments="false", snapshots=names[1])
    assert {row.source for row in rows} == {names[1]}
    both = f"{names[0]}, {names[2]}"
    rows = load(spark, tmp_path, "source string", segments="false", snapshots=both)
    assert {row.source for row in rows} == {names[0], names[2]}
    with pytest.raises(Exception, match="snapshots=ture: must be true, false or names"):
        load(spark, tmp_path, "source string", snapshots="ture")


def test_empty_and_damaged_logs(spark: Any, tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    assert load(spark, tmp_path) == []
    log.batch(NoOpRecord())
    log.raw(b"\x07" * 90)
    log.batch(NoOpRecord())
    assert [row.offset for row in load(spark, tmp_path)] == [0, 1]
    with pytest.raises(Exception, match="at byte 72: bad-magic"):
        load(spark, tmp_path, damage="fail")


def test_refusals_are_clear(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no such directory"):
        load(spark, tmp_path / "nope")
    with pytest.raises(Exception, match="no metadata log here"):
        load(spark, tmp_path)
    LogWriter(tmp_path)
    with pytest.raises(Exception, match="has no column wrong"):
        load(spark, tmp_path, "offset bigint, wrong int")
    with pytest.raises(Exception, match="needs the path"):
        spark.read.format("kraft").load().collect()
