"""Audits of made logs: replay against snapshots, in parts and whole, and what must be found."""

import json
import random
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from audit_logs import START_MS, LogWriter
from metadata_samples import History

from metadata.image import EMPTY
from metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from metadata.state import state_json
from spark_audit import history
from spark_audit.files import open_directory
from spark_audit.replay import Limit
from spark_audit.session import in_process
from spark_audit.state import is_complete, parse_time, state_at
from spark_audit.verify import DirectoryAudit, audit_directory, verify
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


def audit(parent: Path, limit: Limit | None = None, **options: Any) -> DirectoryAudit:
    return audit_directory(open_directory(str(parent)), in_process, limit=limit, **options)


def codes(found: DirectoryAudit) -> list[str]:
    return sorted(finding.code for finding in found.findings)


def long_history(parent: Path, seed: int, steps: int = 60) -> tuple[LogWriter, list[Any]]:
    """A log with segments, elections and snapshots; returns the image at every offset too."""
    rng = random.Random(seed)
    log, made = LogWriter(parent), History(seed)
    images = [EMPTY]
    image = EMPTY
    log.leader_change(1, 1)
    images.append(image)
    for step in range(steps):
        records = [*made.take(rng.randrange(1, 6)), *[NoOpRecord()] * rng.randrange(3)]
        log.batch(*records)
        for record in records:
            image = image.apply(record)
            images.append(image)
        if rng.random() < 0.1:
            log.leader_change(rng.randrange(3), log.epoch + 1)
            images.append(image)
        if step % 9 == 4:
            log.snapshot(image)
        if step % 11 == 10:
            log.roll()
    return log, images


@pytest.mark.parametrize("seed", range(3))
def test_any_way_of_cutting_gives_the_same_audit(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, images = long_history(tmp_path, seed)
    whole = audit(tmp_path)
    assert whole.state == state_json(images[-1])
    assert not [f for f in whole.findings if f.level == "error"]
    assert all(one.differences == [] for one in whole.outcome.compared)
    assert len(whole.outcome.compared) == len(whole.snapshots) > 3
    monkeypatch.setattr(history, "STRETCH_BYTES", 500)
    for slice_bytes in (200, 1_000):
        parts = audit(tmp_path, slice_bytes=slice_bytes)
        assert parts.state == whole.state
        assert parts.findings == whole.findings
        assert [(c.file, c.differences) for c in parts.outcome.compared] == [
            (c.file, c.differences) for c in whole.outcome.compared
        ]
        assert parts.outcome.last_offset == whole.outcome.last_offset


def test_stretches_are_really_replayed_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_history(tmp_path, 3)
    monkeypatch.setattr(history, "STRETCH_BYTES", 500)
    tasks = []

    def run(function: Any, some: Any) -> Any:
        tasks.append((function.__name__, len(some)))
        return in_process(function, some)

    found = audit_directory(open_directory(str(tmp_path)), run, slice_bytes=500)
    replays = [count for name, count in tasks if name == "replay"]
    assert replays[0] > 2
    assert len(replays) == 1
    assert found.outcome.compared


def test_a_wrong_snapshot_is_named_and_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, images = long_history(tmp_path, 4)
    wrong = images[-1].apply(FeatureLevelRecord(name="metadata.version", feature_level=11))
    log.snapshot(wrong)
    log.batch(TopicRecord(name="last", topic_id=UUID(int=77)))
    monkeypatch.setattr(history, "STRETCH_BYTES", 1)
    found = audit(tmp_path, slice_bytes=500)
    (mismatch,) = [f for f in found.findings if f.level == "error"]
    assert mismatch.code == "snapshot-mismatch"
    assert "/features/metadata.version: 25 != 11" in mismatch.detail
    assert found.state["features"]["metadata.version"] == 25


@pytest.mark.parametrize("seed", [1, 2])
def test_state_at_every_offset_and_time(tmp_path: Path, seed: int) -> None:
    log, images = long_history(tmp_path, seed, steps=8)
    for offset in range(log.offset + 1):
        found = audit(tmp_path, Limit(offset=offset))
        assert found.state == state_json(images[offset]), offset
        assert is_complete(found, Limit(offset=offset))
        assert found.outcome.last_offset == (offset - 1 if offset else None)
    found = audit(tmp_path, Limit(offset=10**9))
    assert found.state == state_json(images[-1])
    for limit in (Limit(timestamp=0), Limit(timestamp=START_MS)):
        found = audit(tmp_path, limit)
        assert found.state == state_json(EMPTY)
        assert is_complete(found, limit)
    found = audit(tmp_path, Limit(timestamp=log.time_ms))
    assert found.state == state_json(images[-1])
    found = audit(tmp_path, Limit(timestamp=START_MS + 2))
    assert found.outcome.last_timestamp == START_MS + 2


def test_clocks_that_go_back_leave_no_hole(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.batch(FeatureLevelRecord(name="a", feature_level=1))
    log.time_ms += 1_000
    log.leader_change(1, 2)
    log.time_ms -= 900
    log.batch(FeatureLevelRecord(name="b", feature_level=1))
    limit = Limit(timestamp=log.time_ms)
    found = audit(tmp_path, limit)
    assert found.state["features"] == {"a": 1, "b": 1}
    assert found.outcome.last_offset == 2
    assert is_complete(found, limit)


def test_a_quorum_that_states_its_voters(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    voters = [Voter(n, UUID(int=500 + n), (Endpoint("C", "h", 1),), 0, 1) for n in (2, 1)]
    first = [encode_snapshot_header(0), encode_kraft_version(1), encode_voters(voters)]
    data = build_batch([(0, *pair, ()) for pair in first], control=True, leader_epoch=0)
    data += build_batch(
        [(0, *encode_snapshot_footer(), ())], control=True, leader_epoch=0, base_offset=3
    )
    (log.directory / f"{0:020d}-{0:010d}.checkpoint").write_bytes(data)
    log.leader_change(1, 1)
    found = audit(tmp_path)
    assert codes(found) == []
    assert found.state["kraftVersion"] == 1
    assert found.state["voters"] == [[n, to_text(UUID(int=500 + n))] for n in (1, 2)]
    key, value = encode_voters(voters[:1])
    log.raw(build_batch([(1, key, value, ())], base_offset=1, leader_epoch=1, control=True), 1)
    assert audit(tmp_path).state["voters"] == [[2, to_text(UUID(int=502))]]


def test_a_log_without_its_beginning(tmp_path: Path) -> None:
    log, images = long_history(tmp_path, 5)
    segments = sorted(log.directory.glob("*.log"))
    segments[0].unlink()
    first = int(segments[1].stem)
    found = audit(tmp_path)
    assert found.state == state_json(images[-1])
    assert "resumed-from-snapshot" in codes(found)
    assert found.outcome.from_snapshot is not None
    assert int(found.outcome.from_snapshot[:20]) >= first
    early = Limit(offset=int(found.outcome.from_snapshot[:20]) - 1)
    found = audit(tmp_path, early)
    assert not is_complete(found, early)


def test_a_hole_that_a_snapshot_covers(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.batch(FeatureLevelRecord(name="metadata.version", feature_level=20))
    image = EMPTY.apply(FeatureLevelRecord(name="metadata.version", feature_level=25))
    log.offset = 5
    log.batch(FeatureLevelRecord(name="metadata.version", feature_level=21))  # passed over
    log.snapshot(image)
    log.batch(FeatureLevelRecord(name="x", feature_level=1))
    found = audit(tmp_path)
    assert codes(found) == ["offset-gap", "resumed-from-snapshot"]
    assert found.state["features"] == {"metadata.version": 25, "x": 1}
    assert is_complete(found, Limit())


def test_a_snapshot_ahead_of_the_log_is_the_state(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.batch(FeatureLevelRecord(name="metadata.version", feature_level=20))
    log.offset = 50
    log.snapshot(EMPTY.apply(FeatureLevelRecord(name="metadata.version", feature_level=25)))
    found = audit(tmp_path)
    assert found.state["features"] == {"metadata.version": 25}
    assert found.outcome.last_offset == 49
    assert codes(found) == ["snapshot-not-compared"]


def test_segments_must_follow_each_other(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.batch(NoOpRecord())
    log.offset = 3
    log.roll()
    log.batch(NoOpRecord())
    assert codes(audit(tmp_path)) == ["hole", "segment-gap"]


def test_metadata_transactions(tmp_path: Path) -> None:
    def level(number: int) -> FeatureLevelRecord:
        return FeatureLevelRecord(name="metadata.version", feature_level=number)

    log = LogWriter(tmp_path)
    log.batch(EndTransactionRecord())
    log.batch(BeginTransactionRecord(), level(20), EndTransactionRecord())
    log.batch(BeginTransactionRecord(), level(21), BeginTransactionRecord())
    log.batch(AbortTransactionRecord(reason="because"))
    assert audit(tmp_path).state["features"] == {"metadata.version": 20}
    log.batch(BeginTransactionRecord(), level(22))
    found = audit(tmp_path)
    assert found.state["features"] == {"metadata.version": 20}
    assert codes(found) == [
        "aborted-transaction", "nested-transaction", "no-transaction", "open-transaction",
    ]  # fmt: skip


def test_odd_records(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.batch(ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000))
    log.batch(ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=500))
    log.values([b"\x01\x63\x00"])
    log.values([b"\x01\x02\x00\xff", None, b"\x09"])
    log.values([b"\x01\x14\x00\x00"], key=b"k")
    log.values([b"\x01\x05\x02" + bytes(20) + b"\x01\x00\x05\xff\xff\xff\xff\x0f"])
    found = audit(tmp_path)
    assert codes(found) == [
        "producer-id-regression", *["undecodable"] * 4, "unexpected-key", "unknown-record",
    ]  # fmt: skip
    assert not is_complete(found, Limit())


def test_compressed_batches_are_read(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    for codec in (1, 2, 3, 4):
        log.batch(FeatureLevelRecord(name=f"f{codec}", feature_level=codec), codec=codec)
    found = audit(tmp_path)
    assert found.state["features"] == {f"f{codec}": codec for codec in (1, 2, 3, 4)}
    assert codes(found) == []


def test_snapshot_against_the_log_at_its_end(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.batch(FeatureLevelRecord(name="metadata.version", feature_level=20))
    path = log.snapshot(
        EMPTY.apply(FeatureLevelRecord(name="metadata.version", feature_level=20)), time_ms=5
    )
    path.rename(path.with_name(path.name.replace("-0000000001", "-0000000002")))
    assert codes(audit(tmp_path)) == ["snapshot-epoch", "snapshot-epoch", "snapshot-timestamp"]


def test_side_files(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.leader_change(1, 3)
    log.leader_change(1, 5)
    epochs, quorum = log.directory / "leader-epoch-checkpoint", log.directory / "quorum-state"
    epochs.write_text("0\n2\n3 0\n5 1\n")
    quorum.write_text(json.dumps({"leaderId": 1, "leaderEpoch": 5, "data_version": 0}))
    assert codes(audit(tmp_path)) == []
    epochs.write_text("0\n3\n3 0\n4 1\n5 7\n")
    quorum.write_text(json.dumps({"leaderId": 1, "leaderEpoch": 4, "data_version": 0}))
    assert codes(audit(tmp_path)) == [
        "epoch-file-extra", "epoch-file-mismatch", "quorum-state-behind",
    ]  # fmt: skip
    for text in ("0\n1\n3 0\n5 1\n", "1\n2\n3 0\n5 1\n", "0\n2\n3 0\n5\n", "\0\0\0", "0\nx\n"):
        epochs.write_text(text)
        for state in ("{", "[]", "{}", '{"leaderEpoch": "x"}', "\0"):
            quorum.write_text(state)
            assert codes(audit(tmp_path)) == ["epoch-file-format", "quorum-state-unreadable"]


def nodes(tmp_path: Path) -> list[LogWriter]:
    logs = [LogWriter(tmp_path / name) for name in ("a", "b")]
    for log in logs:
        log.leader_change(1, 1)
        for _ in range(3):
            log.batch(NoOpRecord(), NoOpRecord())
    return logs


def between(tmp_path: Path) -> tuple[bool, dict[str, Any]]:
    document = verify([str(tmp_path / "a"), str(tmp_path / "b")], in_process)
    return document["sound"], document["between"][0]


def test_a_longer_log_agrees(tmp_path: Path) -> None:
    a, _ = nodes(tmp_path)
    a.batch(NoOpRecord())
    sound, entry = between(tmp_path)
    assert sound
    assert entry["common_end_offset"] == 7
    assert entry["common_end_epoch"] == 1
    assert entry["detail"] == "a has 1 offsets more"


def test_an_uncommitted_tail_is_no_divergence(tmp_path: Path) -> None:
    a, b = nodes(tmp_path)
    a.batch(NoOpRecord())
    b.leader_change(2, 2)
    sound, entry = between(tmp_path)
    assert sound
    assert not entry["diverged"]
    assert entry["common_end_offset"] == 7
    assert "epochs 1 and 2 from offset 7" in entry["detail"]


@pytest.mark.parametrize("kind", ["content", "boundary", "later"])
def test_divergence_is_an_error(tmp_path: Path, kind: str) -> None:
    a, b = nodes(tmp_path)
    if kind == "content":
        a.batch(FeatureLevelRecord(name="x", feature_level=1))
        b.batch(FeatureLevelRecord(name="x", feature_level=2))
    elif kind == "boundary":
        a.batch(NoOpRecord(), NoOpRecord())
        b.batch(NoOpRecord())
        b.batch(NoOpRecord())
    else:
        a.batch(NoOpRecord())
        b.leader_change(2, 2)
        for log in (a, b):
            log.leader_change(3, 3)
    sound, entry = between(tmp_path)
    assert not sound
    assert entry["diverged"]
    assert entry["common_end_offset"] in (7, 8)


def test_state_document(tmp_path: Path) -> None:
    log, images = long_history(tmp_path, 9)
    document = state_at(str(log.directory), in_process, Limit())
    assert document["cluster_id"] == "Some-Cluster-Id-000000"
    assert document["last_offset"] == log.offset - 1
    assert document["last_epoch"] == log.epoch
    assert document["last_timestamp"] == log.time_ms
    assert document["from_snapshot"] is None
    assert document["complete"] is True
    assert document["state"] == state_json(images[-1])


@pytest.mark.parametrize(
    ("text", "ms"),
    [("0", 0), ("1700000000123", 1_700_000_000_123), ("2023-11-14T22:13:20Z", 1_700_000_000_000),
     ("2023-11-14T22:13:20.123", 1_700_000_000_123),
     ("2023-11-15T00:13:20+02:00", 1_700_000_000_000)],
)  # fmt: skip
def test_times(text: str, ms: int) -> None:
    assert parse_time(text) == ms


def test_a_bad_time() -> None:
    with pytest.raises(ValueError, match="yesterday"):
        parse_time("yesterday")
