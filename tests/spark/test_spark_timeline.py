"""The events of made logs: every kind, what is asked for alone, and what damage leaves."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from audit_logs import START_MS, LogWriter

from metadata.records import (
    AccessControlEntryRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    QuotaEntity,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from spark_audit.timeline import timeline
from wire.batch import build_batch
from wire.control import (
    Endpoint,
    Voter,
    encode_kraft_version,
    encode_snapshot_footer,
    encode_snapshot_header,
    encode_voters,
)
from wire.uuids import to_text

pytestmark = [pytest.mark.spark, pytest.mark.ci]

ORDERS = UUID(int=900)


def told(spark: Any, path: Path) -> list[tuple[Any, ...]]:
    """The events as (offset, event, subject, before, after)."""
    return [
        (row.offset, row.event, row.name or row.topic, row.before, row.after)
        for row in timeline(spark, str(path)).collect()
    ]


def voter(number: int, directory: int, port: int = 9093) -> Voter:
    endpoints = (Endpoint("CONTROLLER", f"host{number}", port),)
    return Voter(number, UUID(int=directory), endpoints, 0, 1)


def described(number: int, directory: int, port: int = 9093) -> str:
    return f"directory {to_text(UUID(int=directory))}, CONTROLLER://host{number}:{port}"


def test_changes_of_the_quorum(spark: Any, tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.leader_change(1, 1)
    log.control(encode_kraft_version(1), encode_voters([voter(1, 1), voter(2, 2)]))
    log.batch(NoOpRecord())
    log.control(encode_voters([voter(1, 1, port=9999), voter(2, 77)]))
    log.control(encode_kraft_version(1), encode_voters([voter(1, 1, port=9999), voter(2, 77)]))
    log.control(encode_voters([voter(2, 77)]))
    log.leader_change(2, 2)
    assert told(spark, tmp_path) == [
        (0, "quorum-leader", None, None, "1"),
        (1, "feature-level", "kraft.version", None, "1"),
        (2, "voter-added", "voter 1", None, described(1, 1)),
        (2, "voter-added", "voter 2", None, described(2, 2)),
        (4, "voter-added", "voter 2", None, described(2, 77)),
        (4, "voter-endpoints", "voter 1", "CONTROLLER://host1:9093", "CONTROLLER://host1:9999"),
        (4, "voter-removed", "voter 2", described(2, 2), None),
        (7, "voter-removed", "voter 1", described(1, 1, 9999), None),
        (8, "quorum-leader", None, "1", "2"),
    ]


def test_the_voters_of_the_snapshot_before_the_log_were_there(spark: Any, tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    head, foot = encode_snapshot_header(START_MS), encode_snapshot_footer()
    stated = [head, encode_kraft_version(1), encode_voters([voter(1, 1)]), foot]
    snapshot = build_batch([(START_MS, *pair, ()) for pair in stated], control=True)
    (log.directory / f"{0:020d}-{0:010d}.checkpoint").write_bytes(snapshot)
    log.control(encode_kraft_version(1), encode_voters([voter(1, 1)]))
    log.control(encode_voters([voter(1, 1), voter(2, 2)]))
    assert told(spark, tmp_path) == [(2, "voter-added", "voter 2", None, described(2, 2))]


def acl(number: int, **changed: Any) -> AccessControlEntryRecord:
    fields = {
        "resource_type": 2, "resource_name": "orders", "pattern_type": 3, "host": "*",
        "principal": "User:alice", "operation": 3, "permission_type": 3,
    }  # fmt: skip
    return AccessControlEntryRecord(id=UUID(int=number), **(fields | changed))


def quota(value: float, *, remove: bool = False) -> ClientQuotaRecord:
    user = QuotaEntity(entity_type="user", entity_name="alice")
    client = QuotaEntity(entity_type="client-id", entity_name=None)
    return ClientQuotaRecord(
        entity=(user, client), key="consumer_byte_rate", value=value, remove=remove
    )


def test_settings_are_set_and_removed(spark: Any, tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.batch(
        acl(5),
        acl(6, resource_type=99, operation=-3, pattern_type=4, permission_type=2),
        RemoveAccessControlEntryRecord(id=UUID(int=5)),
        RemoveAccessControlEntryRecord(id=UUID(int=7)),
        quota(5.0),
        quota(7.5),
        quota(0.0, remove=True),
        UserScramCredentialRecord(
            name="al", mechanism=1, salt=b"sa", stored_key=b"st", server_key=b"se", iterations=4096
        ),
        RemoveUserScramCredentialRecord(name="al", mechanism=1),
        DelegationTokenRecord(
            owner="User:a", requester="User:b", issue_timestamp=1, max_timestamp=2,
            expiration_timestamp=3, token_id="token",
        ),
        RemoveDelegationTokenRecord(token_id="token"),
        ZkMigrationStateRecord(zk_migration_state=0),
        ZkMigrationStateRecord(zk_migration_state=3),
        ClearElrRecord(topic_name="orders"),
    )  # fmt: skip
    may = "allow read on topic orders from host *"
    rate = "client-id:(default),user:alice consumer_byte_rate"
    assert told(spark, tmp_path) == [
        (0, "acl-added", "User:alice", None, may),
        (1, "acl-added", "User:alice", None, "deny -3 on 99 orders (prefixed) from host *"),
        (2, "acl-removed", "User:alice", may, None),
        (3, "acl-removed", to_text(UUID(int=7)), None, None),
        (4, "quota-set", rate, None, "5.0"),
        (5, "quota-set", rate, "5.0", "7.5"),
        (6, "quota-removed", rate, "7.5", None),
        (7, "scram-set", "al SCRAM-SHA-256", None, "4096 iterations"),
        (8, "scram-removed", "al SCRAM-SHA-256", "4096 iterations", None),
        (9, "token-set", "token", None, "owner User:a, expires 3"),
        (10, "token-removed", "token", "owner User:a, expires 3", None),
        (12, "zk-migration", None, "none", "post-migration"),
        (13, "elr-cleared", "orders", None, None),
    ]


def change(**fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=ORDERS, **fields)


def life_of_orders(log: LogWriter) -> None:
    """One topic from its creation to its end, beside another, each record a millisecond."""
    other = UUID(int=901)
    for record in (
        TopicRecord(name="orders", topic_id=ORDERS),
        PartitionRecord(
            partition_id=0, topic_id=ORDERS, replicas=(1, 2), isr=(1, 2), leader=1,
            leader_epoch=0, partition_epoch=0,
        ),
        TopicRecord(name="other", topic_id=other),
        PartitionRecord(
            partition_id=0, topic_id=other, replicas=(1,), isr=(1,), leader=1, leader_epoch=0,
            partition_epoch=0,
        ),
        change(replicas=(1, 2, 3), adding_replicas=(3,), removing_replicas=(1,)),
        change(adding_replicas=(3, 4)),
        change(replicas=(2, 3), isr=(2, 3), leader=2, adding_replicas=(), removing_replicas=()),
        change(isr=(2,), eligible_leader_replicas=(3,)),
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5"),
        ConfigRecord(resource_type=2, resource_name="other", name="retention.ms", value="5"),
        ConfigRecord(resource_type=4, resource_name="", name="a.b", value="5"),
        RemoveTopicRecord(topic_id=ORDERS),
    ):  # fmt: skip
        log.batch(record)


def test_reassignments_and_eligible_leaders(spark: Any, tmp_path: Path) -> None:
    life_of_orders(LogWriter(tmp_path))
    found = [one for one in told(spark, tmp_path) if 4 <= one[0] <= 7]
    assert found == [
        (4, "reassignment-started", "orders", "[1,2]", "adding [3], removing [1]"),
        (5, "reassignment-changed", "orders", "[1,2,3]", "adding [3,4], removing [1]"),
        (6, "isr-change", "orders", "[1,2]", "[2,3]"),
        (6, "leader-change", "orders", "1", "2"),
        (6, "reassignment-ended", "orders", "[1,2,3]", "[2,3]"),
        (7, "elr-change", "orders", "[]", "[3]"),
        (7, "isr-shrink", "orders", "[2,3]", "[2]"),
    ]


def test_the_events_of_topics_and_of_a_stretch_of_time(
    commands: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    life_of_orders(LogWriter(tmp_path))

    def offsets(*words: str) -> list[int]:
        assert commands("timeline", tmp_path, "--json", *words) == 0
        events = json.loads(capsys.readouterr().out)["events"]
        return sorted({event["offset"] for event in events})

    assert offsets("--topic", "orders") == [0, 1, 4, 5, 6, 7, 8, 11]
    assert offsets("--topic", "orders", "--topic", "other") == [*range(10), 11]
    since, until = str(START_MS + 9), "2023-11-14T22:13:20.011Z"
    assert offsets("--since", since, "--until", until) == [8, 9, 10]
    assert offsets("--topic", "orders", "--since", since) == [8, 11]
    assert commands("timeline", tmp_path, "--topic", "odrers") == 0
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1
    assert captured.err == f"{tmp_path}: no event of a topic 'odrers'\n"
    assert commands("timeline", tmp_path) == 0
    table = capsys.readouterr().out
    assert "topic:orders retention.ms " in table
    assert "broker:(default) a.b " in table


def test_damage_is_told_and_makes_no_events(
    commands: Any, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands("timeline", corpus / "d03", "--json") == 1
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["complete"] is False
    assert document["missing"][0].startswith("offsets 1 to 4, before 00000000000000000000.log at")
    assert document["findings"][0]["code"] == "crc-mismatch"
    assert (document["start_offset"], document["end_offset"]) == (0, 2280)
    assert max(event["offset"] for event in document["events"]) == 2278
    assert captured.err.startswith(f"{corpus / 'd03'}: INCOMPLETE, missing: offsets 1 to 4, ")
    assert captured.err.count("\n") == 1
    assert commands("timeline", corpus / "d06", "--json") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    document = json.loads(captured.out)
    assert document["complete"] is True
    assert document["missing"] == []


def test_the_same_batch_twice_happened_once(spark: Any, tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    life_of_orders(log)
    once = told(spark, tmp_path)
    data = log.segment.read_bytes()
    begin, end = log.positions[8], log.positions[9]
    log.segment.write_bytes(data[:end] + data[begin:end] + data[end:])
    assert told(spark, tmp_path) == once


def test_another_topics_log_is_refused(
    commands: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    batch = build_batch([(5, None, b"{}", ())])
    (folder / f"{0:020d}.log").write_bytes(batch)
    for command in ("verify", "state", "timeline"):
        assert commands(command, folder) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(f"pykraft: {folder}: no metadata log: of its 1 records not ")
        assert captured.err.count("\n") == 1
