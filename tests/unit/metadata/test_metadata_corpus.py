"""The image against real metadata logs: every state and digest recorded for the corpus."""

import json
import os
from functools import cache
from pathlib import Path

import pytest

from metadata.image import EMPTY, MetadataImage
from metadata.records import UnknownRecord, decode, name_of, to_json
from metadata.records import types as t
from metadata.snapshot import records_of
from metadata.soundness import check
from metadata.state import digest, state_json
from wire.batch import crc_ok, decode_records, read_header
from wire.control import decode_control
from wire.errors import DecodeError

ROOT = Path(__file__).resolve().parents[3]
CORPUS = Path(os.environ.get("PYKRAFT_CORPUS", ROOT.parent / "shared" / "corpus"))


def nodes() -> list:
    if not CORPUS.is_dir():
        return [
            pytest.param(None, ".", id="none", marks=pytest.mark.skip(f"no corpus at {CORPUS}"))
        ]
    found = []
    for file in sorted(CORPUS.glob("*/expected.json")):
        expected = json.loads(file.read_text())
        found.extend(
            pytest.param(file.parent, name, id=f"{file.parent.name}-{name}")
            for name in expected["nodes"]
        )
    return found


def batches(data: bytes):
    """Whole batches that are sound; anything else is skipped to the next place that makes one."""
    position = 0
    while position + 61 <= len(data):
        try:
            header = read_header(data, position)
            whole = header.length >= 61 and position + header.length <= len(data)
            if not whole or not crc_ok(data, position, header.length):
                raise DecodeError("not a batch")
            records = decode_records(data, position, header)
        except DecodeError:
            position += 1
            continue
        yield header, records
        position += header.length


class Walk:
    """A plain replay with transactions: what the audit does, as simply as it can be said."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY
        self.open: MetadataImage | None = None
        self.codes: list[str] = []
        self.counts: dict[str, int] = {}

    def count(self, name: str, version: int) -> None:
        self.counts[f"{name}:{version}"] = self.counts.get(f"{name}:{version}", 0) + 1

    def batch(self, header, records, applied: bool = True) -> None:
        for record in records:
            if header.is_control:
                control = decode_control(record.key, record.value)
                self.count(control.name, control.version)
                if applied:
                    self.image = self.image.apply_control(control.type, control.entity)
                continue
            decoded = decode(record.value)
            self.count(name_of(decoded.api_key), decoded.version)
            if applied:
                self.step(decoded.record)

    def step(self, record) -> None:
        if isinstance(record, t.BeginTransactionRecord):
            self.open = self.image
        elif isinstance(record, t.EndTransactionRecord):
            if self.open is not None:
                self.image = self.open
            self.open = None
        elif isinstance(record, t.AbortTransactionRecord):
            self.open = None
        else:
            at = self.image if self.open is None else self.open
            self.codes.extend(code for code, _ in check(at, record))
            at = at.apply(record)
            if self.open is None:
                self.image = at
            else:
                self.open = at


def load_snapshot(path: Path) -> MetadataImage:
    walk = Walk()
    for header, records in batches(path.read_bytes()):
        walk.batch(header, records)
    return walk.image


@cache
def replay(directory: Path) -> Walk:
    snapshots = sorted(directory.glob("*-*.checkpoint"))
    found = [
        item for path in sorted(directory.glob("*.log")) for item in batches(path.read_bytes())
    ]
    walk = Walk()
    if not found:
        if snapshots:
            walk.image = load_snapshot(snapshots[-1])
        return walk
    first = found[0][0].base_offset
    resume = -1
    if first > 0:
        ends = [(int(path.name.split("-")[0]), path) for path in snapshots]
        usable = [(end, path) for end, path in ends if end >= first]
        if usable:
            resume, path = usable[0]
            walk.image = load_snapshot(path)
    position = resume
    for header, records in found:
        # What lies below the replay's position (a batch written twice, or one behind an altered
        # offset) is counted and not applied again.
        walk.batch(header, records, applied=header.base_offset >= position)
        position = max(position, header.next_offset)
    return walk


@pytest.mark.parametrize("folder, name", nodes())
def test_state_and_digest(folder: Path, name: str) -> None:
    expected = json.loads((folder / "expected.json").read_text())["nodes"][name]
    directory = folder if name == "." else folder / name
    walk = replay(next(directory.rglob("__cluster_metadata-0")))
    state = state_json(walk.image)
    for part in expected["state"]:
        assert state[part] == expected["state"][part], part
    assert set(state) == set(expected["state"])
    assert digest(state) == expected["digest"]
    assert walk.counts == expected["counts"]
    replayed = {"unknown-broker", "unknown-partition", "unknown-record"}
    assert set(walk.codes) == replayed & {f["code"] for f in expected["findings"]}


@pytest.mark.parametrize("folder, name", nodes())
def test_image_written_as_records_gives_the_same_image(folder: Path, name: str) -> None:
    directory = folder if name == "." else folder / name
    image = replay(next(directory.rglob("__cluster_metadata-0"))).image
    again = EMPTY
    for record, version in records_of(image):
        assert not isinstance(record, UnknownRecord)
        to_json(record, version)
        again = again.apply(record)
    assert state_json(again) == state_json(image._replace(kraft_version=None, voters=None))
