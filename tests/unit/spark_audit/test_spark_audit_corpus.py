"""Every directory of the corpus of real logs: what an audit must find in it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from spark_audit.files import open_directory
from spark_audit.replay import Limit
from spark_audit.session import in_process
from spark_audit.state import is_complete
from spark_audit.verify import audit_directory, directory_json, verify

CORPUS = Path(
    os.environ.get(
        "PYKRAFT_CORPUS", Path(__file__).resolve().parents[3].parent / "shared" / "corpus"
    )
)
EXPECTED = sorted(CORPUS.glob("*/expected.json"))
CASES = [
    pytest.param(path.parent, node, id=f"{path.parent.name}-{node}")
    for path in EXPECTED
    for node in json.loads(path.read_text())["nodes"]
]
# What these say is up to a decoder.
OWN_WORDS = frozenset(["bad-records", "quorum-state-unreadable"])
INCOMPLETE = frozenset(["c13", "d01", "d02", "d03", "d04", "d05", "d09", "d13"])


def test_there_is_a_corpus(corpus: Path) -> None:
    assert len(CASES) >= 38


def finding(code: str, level: str, file: str, position: Any, detail: str) -> tuple[Any, ...]:
    return code, level, file, position or 0, None if code in OWN_WORDS else detail


@pytest.mark.parametrize(("directory", "node"), CASES)
@pytest.mark.parametrize("slice_bytes", [32 << 20, 20_000])
def test_audit_of_a_real_log(directory: Path, node: str, slice_bytes: int) -> None:
    expected = json.loads((directory / "expected.json").read_text())["nodes"][node]
    opened = open_directory(str(directory / node))
    audit = audit_directory(opened, in_process, slice_bytes=slice_bytes)
    entry = directory_json(audit)
    seen = {
        "records": entry["records"],
        "batches": entry["batches"],
        "segments": entry["segments"],
        "counts": entry["counts"],
        "startOffset": entry["start_offset"],
        "endOffset": entry["end_offset"],
        "lastEpoch": entry["last_epoch"],
        "digest": entry["state_digest"],
        "lastTimestamp": audit.scan.last_timestamp,
        "state": audit.state,
    }
    assert seen == {name: expected[name] for name in seen}
    assert sorted(
        (one["file"], one["records"], one["compared"], one["differences"])
        for one in entry["snapshots"]
    ) == sorted(
        (one["file"], one["records"], one["compared"], one.get("count", 0))
        for one in expected["snapshots"]
    )
    mine = sorted(
        finding(f["code"], f["level"], f["file"], f["position"], f["detail"])
        for f in entry["findings"]
    )
    theirs = sorted(
        finding(f["code"], f["level"], f["file"], f.get("pos"), f["detail"])
        for f in expected["findings"]
    )
    assert mine == theirs
    assert is_complete(audit, Limit()) == (directory.name not in INCOMPLETE)


@pytest.mark.parametrize("name", ["c01", "c02", "c03", "c04"])
def test_nodes_of_a_cluster_agree(corpus: Path, name: str) -> None:
    quorum = json.loads((corpus / name / "expected.json").read_text())["quorum"]
    document = verify([str(corpus / name / f"n{n}") for n in (1, 2, 3)], in_process)
    assert document["sound"]
    ends = quorum["endOffsets"]
    common = [entry["common_end_offset"] for entry in document["between"]]
    assert common == [min(ends[0], ends[1]), min(ends[0], ends[2]), min(ends[1], ends[2])]
    assert not any(entry["diverged"] for entry in document["between"])


def test_unrelated_logs_are_told_apart(corpus: Path) -> None:
    document = verify([str(corpus / "c11"), str(corpus / "c14")], in_process)
    assert document["sound"]
    assert document["between"][0]["detail"].startswith("not compared")
