"""`log dump`: every batch and record once, in the fixed JSON, damage in its place."""

import io
import json
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from audit_logs import LogWriter

from metadata.image import EMPTY
from metadata.records import ConfigRecord, FeatureLevelRecord, NoOpRecord
from pykraft.log_dump import dump
from wire import group_records
from wire.batch import build_batch
from wire.control import encode_end_txn_marker

LOG = "__cluster_metadata-0"


def lines(*paths: object, code: int = 0) -> list[dict[str, Any]]:
    out = io.StringIO()
    assert dump(paths, True, out) == code  # type: ignore[arg-type]
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_metadata_records_in_kafkas_names(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.leader_change(2, 5)
    log.batch(ConfigRecord(resource_type=2, resource_name="t", name="a", value=None), NoOpRecord())
    log.values([b"\x01\x63\x00abc"])
    found = lines(log.segment)
    assert [line["kind"] for line in found] == [
        "batch", "record", "batch", "record", "record", "batch", "record",
    ]  # fmt: skip
    assert found[0] == {
        "kind": "batch", "file": log.segment.name, "position": 0, "base_offset": 0,
        "last_offset": 0, "epoch": 5, "crc_ok": True, "codec": "none", "control": True,
        "transactional": False, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1,
        "records": 1, "base_timestamp": log.time_ms - 2, "max_timestamp": log.time_ms - 2,
        "bytes": log.positions[1],
    }  # fmt: skip
    assert found[1]["type"] == "LeaderChangeMessage"
    assert found[1]["data"]["LeaderId"] == 2
    assert found[3] == {
        "kind": "record", "file": log.segment.name, "offset": 1, "epoch": 5,
        "timestamp": log.time_ms - 1, "type": "ConfigRecord", "version": 0,
        "data": {"ResourceType": 2, "ResourceName": "t", "Name": "a", "Value": None},
        "key": None, "value": None, "headers": [],
    }  # fmt: skip
    assert (found[4]["type"], found[4]["data"]) == ("NoOpRecord", {})
    assert (found[6]["type"], found[6]["version"], found[6]["data"]) == ("Unknown99", 0, None)
    assert b64decode(found[6]["value"]) == b"\x01\x63\x00abc"


def test_a_directory_is_all_its_segments_and_snapshots(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.batch(FeatureLevelRecord(name="metadata.version", feature_level=25))
    log.snapshot(EMPTY.apply(FeatureLevelRecord(name="metadata.version", feature_level=25)))
    log.roll()
    log.batch(NoOpRecord())
    (log.directory / "leader-epoch-checkpoint").write_text("0\n0\n")
    for path, prefix in ((log.directory, ""), (tmp_path, "__cluster_metadata-0/")):
        found = lines(path)
        files = list(dict.fromkeys(line["file"] for line in found))
        assert files == sorted(prefix + p.name for p in log.directory.iterdir() if p.suffix)
        types = [line["type"] for line in found if line["kind"] == "record"]
        assert types == [
            "FeatureLevelRecord", "SnapshotHeaderRecord", "FeatureLevelRecord",
            "SnapshotFooterRecord", "NoOpRecord",
        ]  # fmt: skip


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_plain_records_are_kept_as_they_are(tmp_path: Path, codec: str) -> None:
    number = ["none", "gzip", "snappy", "lz4", "zstd"].index(codec)
    folder = tmp_path / "topic-0"
    folder.mkdir()
    path = folder / "00000000000000000000.log"
    records = [(5, b"k", b"v", (("h", None), ("g", b"x"))), (6, None, None, ())]
    key, value = encode_end_txn_marker(True, 3)
    path.write_bytes(
        build_batch(records, codec=number, producer_id=9, producer_epoch=1, base_sequence=4,
                    transactional=True)
        + build_batch([(7, key, value, ())], base_offset=2, producer_id=9, producer_epoch=1,
                      transactional=True, control=True)
    )  # fmt: skip
    found = lines(path)
    assert found[0]["codec"] == codec
    assert (found[0]["producer_id"], found[0]["base_sequence"]) == (9, 4)
    assert found[0]["transactional"] is True
    first, second = found[1:3]
    assert (first["type"], first["data"], first["key"], first["value"]) == (
        None,
        None,
        "aw==",
        "dg==",
    )
    assert first["headers"] == [["h", None], ["g", "eA=="]]
    assert (second["key"], second["value"], second["timestamp"]) == (None, None, 6)
    assert found[4]["type"] == "EndTxnMarker"


def test_damage_is_told_in_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = LogWriter(tmp_path)
    for _ in range(3):
        log.batch(NoOpRecord())
    log.values([b"\x01\x02\x00\xff"])
    data = bytearray(log.segment.read_bytes())
    data[log.positions[1] + 64] ^= 1
    log.segment.write_bytes(bytes(data) + b"tail")
    found = lines(log.segment, code=1)
    told = capsys.readouterr().err
    assert told.startswith(f"pykraft: {log.segment}: damaged in 3 places, first at byte ")
    assert told.count("\n") == 1
    damage = [(line["code"], line["position"]) for line in found if line["kind"] == "damage"]
    assert damage == [
        ("crc-mismatch", log.positions[1]), ("undecodable", log.positions[3]),
        ("truncated-tail", len(data)),
    ]  # fmt: skip
    assert [line["crc_ok"] for line in found if line["kind"] == "batch"] == [
        True,
        False,
        True,
        True,
    ]
    assert [line["offset"] for line in found if line["kind"] == "record"] == [0, 2, 3]


def test_records_of_groups_in_kafkas_names(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-7"
    folder.mkdir()
    key = group_records.OffsetCommitKey("billing", "orders", 3)
    value = group_records.OffsetCommitValue(41, 2, "m", 9)
    key_bytes = group_records.encode_key(key)
    records = [
        (5, key_bytes, group_records.encode_value(value), ()),
        (6, key_bytes, None, ()),
        (7, b"\x00\x0bof a share group", b"v", ()),
        (8, key_bytes, b"\x00\x09", ()),
    ]
    (folder / "00000000000000000000.log").write_bytes(build_batch(records))
    _, commit, gone, unknown, broken, damage = lines(folder, code=1)
    names = {"group": "billing", "topic": "orders", "partition": 3}
    assert (commit["type"], commit["version"], commit["key"]) == ("OffsetCommit", 4, None)
    assert commit["data"] == {
        "key": names,
        "value": {"offset": 41, "leaderEpoch": 2, "metadata": "m", "commitTimestamp": 9},
    }
    assert (gone["type"], gone["version"]) == ("OffsetCommit", None)
    assert gone["data"] == {"key": names, "value": None}
    assert (unknown["type"], unknown["data"]) == ("Unknown11", None)
    assert b64decode(unknown["value"]) == b"v"
    assert b64decode(broken["key"]) == key_bytes
    assert (damage["code"], "offset 3: " in damage["detail"]) == ("undecodable", True)
    out = io.StringIO()
    assert dump([folder], False, out) == 1
    assert "  1 (epoch -1, time 6) OffsetCommit {" in out.getvalue()


def test_bad_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.txt").write_bytes(b"")
    (tmp_path / "00000000000000000000.log").touch()
    (tmp_path / "empty").mkdir()
    for name in ("nope", "x.txt", "empty"):
        out = io.StringIO()
        assert (
            dump([str(tmp_path / name), str(tmp_path / "00000000000000000000.log")], True, out) == 1
        )
        assert out.getvalue() == ""
        assert capsys.readouterr().err.count("\n") == 1


def test_text_for_a_person(corpus: Path) -> None:
    out = io.StringIO()
    assert dump([str(corpus / name / LOG) for name in ("d10", "d02")], False, out) == 1
    text = out.getvalue()
    assert "batch at byte 0: offsets 0 to 0, epoch 1, 1 records" in text
    assert "Unknown99 v0 key None value " in text
    assert "DAMAGE at byte 78474: crc-mismatch" in text


def test_dump_counts_what_the_corpus_counts(corpus: Path) -> None:
    for name in ("c05", "c09", "c12", "c16", "d02", "d03", "d09"):
        expected = json.loads((corpus / name / "expected.json").read_text())["nodes"]["."]
        dumped = lines(corpus / name, code=int(name.startswith("d")))
        found = [line for line in dumped if line["file"].endswith(".log")]
        counts: dict[str, int] = {}
        for line in found:
            if line["kind"] == "record":
                key = f"{line['type']}:{line['version']}"
                counts[key] = counts.get(key, 0) + 1
        assert counts == expected["counts"]
        assert (
            sum(line["kind"] == "batch" and line["crc_ok"] for line in found)
            == (expected["batches"])
        )


def test_it_needs_neither_numpy_nor_spark() -> None:
    code = (
        "import sys, pykraft.log_dump\n"
        "print([m for m in ('numpy', 'pyspark', 'pyarrow', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
