"""Audits of a directory whose node goes on: retention deletes what was just listed."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from audit_logs import Node

from metadata.state import state_json
from pykraft.log_dump import dump
from spark_audit import files, session
from spark_audit.files import LISTINGS, AuditError, Files
from spark_audit.replay import Limit
from spark_audit.session import in_process, one_line
from spark_audit.state import state_at
from spark_audit.verify import verify


def before_reads_of(
    monkeypatch: pytest.MonkeyPatch, suffix: str, act: Callable[[], None], at: int, times: int
) -> None:
    """Does it before the `at`th read of such a file and those after it, `times` times."""
    read = Files.read
    seen = 0

    def reading(self: Files, name: str, *bounds: Any) -> bytes:
        nonlocal seen
        if name.endswith(suffix):
            seen += 1
            if at <= seen < at + times:
                act()
        return read(self, name, *bounds)

    monkeypatch.setattr(Files, "read", reading)


# By the number of the read: the scan, the replay, and the comparison with the other log.
@pytest.mark.parametrize(
    ("suffix", "at"),
    [(".checkpoint", 1), (".checkpoint", 4), (".log", 1), (".log", 5), (".log", 9)],
)
def test_verify_of_a_log_that_is_trimmed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, at: int
) -> None:
    node, other = Node(tmp_path / "n1"), Node(tmp_path / "n2")
    before_reads_of(monkeypatch, suffix, node.trim, at, times=1)
    said: list[str] = []
    paths = [str(tmp_path / name) for name in ("n1", "n2")]
    document = verify(paths, in_process, progress=said.append)
    assert node.trims == 1
    assert any("was deleted meanwhile; beginning anew" in line for line in said)
    assert document["sound"] is True
    mine, theirs = document["directories"]
    assert mine["start_offset"] > theirs["start_offset"] == 0
    assert [one["file"] for one in mine["snapshots"]] == sorted(
        path.name for path in node.log.directory.glob("*.checkpoint")
    )
    (between,) = document["between"]
    assert (between["diverged"], between["common_end_offset"]) == (False, other.log.offset)


def test_state_of_a_log_that_is_trimmed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path)
    before_reads_of(monkeypatch, ".log", node.trim, at=2, times=3)
    document = state_at(str(tmp_path), in_process, Limit())
    assert node.trims == 3
    assert document["complete"] is True
    assert document["last_offset"] == node.log.offset - 1
    assert document["state"] == state_json(node.image)


def test_a_log_that_is_always_trimmed_first_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path)
    before_reads_of(monkeypatch, ".checkpoint", node.trim, at=1, times=1000)
    with pytest.raises(AuditError, match=r"deleted faster .* 8 listings one was gone, 0") as told:
        verify([str(tmp_path)], in_process)
    assert str(told.value).startswith(f"{tmp_path}: ")
    assert LISTINGS == 8 <= node.trims


def test_what_goes_wrong_otherwise_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Node(tmp_path)
    tries = []

    def fail() -> None:
        tries.append(1)
        raise PermissionError(13, "Permission denied")

    before_reads_of(monkeypatch, ".checkpoint", fail, at=1, times=1000)
    with pytest.raises(PermissionError):
        verify([str(tmp_path)], in_process)
    assert len(tries) == 1


def test_a_file_that_goes_before_its_size_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path)
    size = Files.size
    trims = 2

    def asked(self: Files, name: str) -> int:
        nonlocal trims
        if trims:
            trims -= 1
            node.trim()
        return size(self, name)

    monkeypatch.setattr(Files, "size", asked)
    found = files.open_directory(str(tmp_path))
    assert {s.name for s in found.segments} == {p.name for p in node.log.directory.glob("*.log")}
    trims = 1000
    with pytest.raises(AuditError, match="deleted faster than they can be read"):
        files.open_directory(str(tmp_path))


def test_log_dump_leaves_out_what_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = Node(tmp_path)
    oldest, *later = sorted(node.log.directory.glob("*.checkpoint"))

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            if oldest.exists():
                oldest.rename(f"{oldest}.deleted")
            return super().write(text)

    out = Out()
    assert dump([tmp_path], True, out) == 0
    assert capsys.readouterr().err == f"pykraft: {oldest}: deleted after it was listed, left out\n"
    shown = {json.loads(line)["file"].partition("/")[2] for line in out.getvalue().splitlines()}
    assert oldest.name not in shown
    assert {path.name for path in later} <= shown


WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/a/worker.py", line 4, in main
    process()
KeyError: 'first'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/a/scan.py", line 7, in scan_slice
    data = read()
           ^^^^^^
OSError: [Errno 5] Input/output error: '/d/0.log'
{after}"""


@pytest.mark.parametrize("after", ["", "\n\tat org.apache.spark.Job.run(Job.scala:7)\n"])
def test_what_a_worker_raised_is_told(after: str) -> None:
    assert session.one_line(RuntimeError(WORKER.replace("{after}", after))) == (
        "An exception was thrown from the Python worker:"
        " OSError: [Errno 5] Input/output error: '/d/0.log'"
    )
    head, _, rest = WORKER.partition("\n")
    joined = f"[PYTHON_DATA_SOURCE_ERROR] Failed: {rest}".replace("{after}", " SQLSTATE: 38000")
    told = one_line(RuntimeError(joined))
    assert (
        told
        == "[PYTHON_DATA_SOURCE_ERROR] Failed: OSError: [Errno 5] Input/output error: '/d/0.log'"
    )
    assert one_line(RuntimeError(f"{head}\nTraceback (most recent call last):")) == head
    assert one_line(RuntimeError("[X] not found\n at y")) == "[X] not found"


def test_an_object_that_went_has_no_size(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"abc")
    store = files.StoreFiles(tmp_path.as_uri())
    assert store.size("0.log") == 3
    with pytest.raises(FileNotFoundError):
        store.size("1.log")
