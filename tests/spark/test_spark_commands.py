"""The audit commands on a real Spark session, and as processes."""

import collections
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from audit_logs import LogWriter, Node
from metadata_samples import History

from metadata.records import NoOpRecord
from spark_audit import coverage, history, scan
from spark_audit.files import open_directory
from spark_audit.session import in_process, on_spark, one_line
from spark_audit.timeline import timeline
from spark_audit.verify import audit_directory

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
EVENTS = {
    "fence": "broker-fenced",
    "unfence": "broker-unfenced",
    "controlledShutdown": "broker-shutting-down",
    "featureLevel": "feature-level",
    "leaderChange": "leader-change",
    "leaderSameBump": "leader-epoch-bump",
    "isrShrink": "isr-shrink",
    "isrExpand": "isr-expand",
}


def test_verify(commands: Any, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [corpus / "c01" / f"n{n}" for n in (1, 2, 3)]
    assert commands("verify", *nodes, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["sound"] is True
    assert [entry["node_id"] for entry in document["directories"]] == [1, 2, 3]
    assert len(document["between"]) == 3
    assert commands("verify", corpus / "d02", "--json") == 1
    assert json.loads(capsys.readouterr().out)["sound"] is False
    assert commands("verify", corpus / "d02") == 1
    assert "crc-mismatch: 00000000000000000000.log at byte 78474" in capsys.readouterr().out


def test_state(commands: Any, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, code in (("c07", 0), ("c13", 1), ("c17", 0), ("d03", 1)):
        expected = json.loads((corpus / name / "expected.json").read_text())["nodes"]["."]
        assert commands("state", corpus / name, "--json") == code
        document = json.loads(capsys.readouterr().out)
        assert document["state"] == expected["state"]
        assert document["digest"] == expected["digest"]
        assert document["complete"] is (code == 0)
    assert commands("state", corpus / "c14", "--at-offset", "0", "--json") == 0
    assert json.loads(capsys.readouterr().out)["last_offset"] is None
    assert commands("state", corpus / "c14", "--at-time", "2025-04-17T12:23:00Z", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["last_timestamp"] <= 1744892580000
    assert 0 < document["last_offset"] < 20
    assert commands("state", corpus / "c14") == 0
    assert "up to offset 2279" in capsys.readouterr().err
    assert commands("state", corpus / "c14", "--at-time", "2001-01-01") == 0
    assert "no record up to there" in capsys.readouterr().err


@pytest.mark.ci
def test_timeline_counts_what_the_corpus_counts(spark: Any, corpus: Path) -> None:
    # Not c07: its record of events begins at a snapshot in the middle of the log.
    for folder in (corpus / name for name in ("c01", "c02", "c05", "c13", "c16")):
        nodes = json.loads((folder / "expected.json").read_text())["nodes"]
        node, expected = next(iter(nodes.items()))
        rows = timeline(spark, str(folder / node)).select("event").toArrow().to_pydict()
        seen = collections.Counter(rows["event"])
        for theirs, ours in EVENTS.items():
            assert seen[ours] == expected["events"].get(theirs, 0), (folder.name, ours)
        assert seen["quorum-leader"] == expected["counts"].get("LeaderChangeMessage:0", 0)


@pytest.mark.ci
def test_timeline_of_a_log_without_its_beginning(spark: Any, corpus: Path) -> None:
    rows = timeline(spark, str(corpus / "c07")).collect()
    assert min(row.offset for row in rows) >= 32026
    changes = [row for row in rows if row.event == "leader-change"]
    assert changes
    assert all(row.topic for row in changes)
    assert all(row.before != row.after for row in changes)


@pytest.mark.ci
def test_timeline_formats(
    commands: Any, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow.parquet as pq

    assert commands("timeline", corpus / "c16", "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    kinds = {event["event"] for event in document["events"]}
    assert {"topic-created", "topic-deleted", "config-set", "isr-shrink"} <= kinds
    assert commands("timeline", corpus / "c16") == 0
    text = capsys.readouterr().out
    registered = [line for line in text.splitlines() if "controller-registered" in line]
    assert registered
    assert all(re.search(r"controller-registered +controller \d+$", line) for line in registered)
    assert text.splitlines()[0].split() == ["OFFSET", "TIME", "(UTC)", "EVENT", "SUBJECT", "CHANGE"]
    out = tmp_path / "events"
    assert commands("timeline", corpus / "c16", "--format", "parquet", "--out", out) == 0
    assert pq.read_table(out).num_rows == len(document["events"])
    assert commands("timeline", corpus / "c16", "--format", "parquet", "--out", out) == 1
    captured = capsys.readouterr()
    assert "already exists" in captured.err
    assert captured.err.count("\n") == 1
    assert commands("timeline", corpus / "c13", "--out", tmp_path / "empty") == 1
    assert "INCOMPLETE, missing: every record" in capsys.readouterr().err
    assert commands("timeline", corpus / "c16", "--out", tmp_path / "no" / "such") == 1


def test_spark_finds_what_one_process_finds(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, made = LogWriter(tmp_path), History(8)
    for number in range(60):
        log.batch(*made.take(4), NoOpRecord())
        if number % 9 == 8:
            log.snapshot(made.image)
        if number % 20 == 19:
            log.roll()
    monkeypatch.setattr(history, "STRETCH_BYTES", 500)
    here = audit_directory(open_directory(str(tmp_path)), in_process, slice_bytes=1_000)
    there = audit_directory(open_directory(str(tmp_path)), on_spark(spark), slice_bytes=1_000)
    assert there.findings == here.findings
    assert there.digest == here.digest
    assert len(there.outcome.compared) == 6


@pytest.mark.parametrize(
    ("room", "words"),
    [("spark_audit.verify.scan_log", ["verify"]), ("spark_audit.timeline.coverage", ["timeline"]),
     ("spark_audit.timeline.coverage", ["timeline", "--format", "parquet", "--out"])],
)  # fmt: skip
def test_a_log_that_is_trimmed_meanwhile(
    commands: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    room: str,
    words: list[str],
) -> None:
    """Before verify has read it, or between timeline's two listings of it."""
    node, out = Node(tmp_path), tmp_path / "events"
    real = {"scan_log": scan.scan_log, "coverage": coverage.coverage}[room.rpartition(".")[2]]

    def trimming(*args: Any) -> Any:
        if room.endswith("scan_log") and not node.trims:
            node.trim()
        found = real(*args)
        if not node.trims:
            node.trim()
        return found

    monkeypatch.setattr(room, trimming)
    given = [words[0], tmp_path, *words[1:]]
    assert commands(*given, *([out] if "--out" in words else ["--json"])) == 0
    assert node.trims == 1
    if "--out" in words:
        assert out.is_dir()
        return
    document = json.loads(capsys.readouterr().out)
    whole = document if "events" in document else document["directories"][0]
    first = min(path.name for path in node.log.directory.glob("*.log"))
    assert (whole["start_offset"], whole["end_offset"]) == (int(first[:20]), node.log.offset)


def test_what_a_worker_raised_is_told(spark: Any) -> None:
    with pytest.raises(Exception, match="Python worker") as told:
        on_spark(spark)(int, ["twelve"])
    line = one_line(told.value)
    assert line.endswith("ValueError: invalid literal for int() with base 10: 'twelve'")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.ci
def test_spark_submit(corpus: Path, spark: Any) -> None:
    import pyspark

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    done = subprocess.run(
        [str(submit), "--master", "local[2]", str(ROOT / "scripts" / "audit.py"), "verify",
         str(corpus / "d01"), "--json"],
        capture_output=True, text=True, timeout=600,
        env={**environment(), "PYSPARK_PYTHON": sys.executable,
             "PYSPARK_DRIVER_PYTHON": sys.executable},
        check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["directories"][0]["findings"][0]["code"] == "truncated-tail"


@pytest.mark.ci
def test_the_script_alone(corpus: Path) -> None:
    done = subprocess.run(
        [sys.executable, f"{ROOT}/scripts/audit.py", "state", str(corpus / "c05"), "--json"],
        capture_output=True, text=True, timeout=600, check=False,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["last_offset"] == 6
    assert done.stderr == ""
