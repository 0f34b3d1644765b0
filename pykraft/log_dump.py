"""`pykraft log dump`: decodes segments and snapshots of any Kafka log directory.

Records of the metadata log, of snapshots and of `__consumer_offsets` are shown in their schemas'
field names; all other records with key and value as they are. Needs neither pyspark nor numpy.
"""

from __future__ import annotations

import json as jsonlib
import mmap
import os
import re
import sys
from base64 import b64encode
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, TextIO

from metadata import records as metadata_records
from metadata.records import name_of, to_json
from spark_audit.control import control_json
from spark_audit.findings import level_of
from spark_audit.walk import Damage, merge, walk
from wire import group_records
from wire.batch import BatchHeader, Record, decode_records, read_header
from wire.control import decode_control
from wire.errors import BadHeader, DecodeError

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_METADATA = "__cluster_metadata"
_GROUPS = re.compile(r"^__consumer_offsets-\d+$")
_LOG = re.compile(r"\.(log|checkpoint)$")
_CHECKPOINT = re.compile(r"^(\d{20}-\d{10}|bootstrap)\.checkpoint$")


def dump(paths: Sequence[str | os.PathLike[str]], json: bool, out: TextIO) -> int:
    """Writes what the files hold to `out`: JSON lines, or lines for a person.

    A directory stands for all segments and snapshots in it and in its partitions' directories.
    Damage is part of what is written. The exit code is 1 where there is any, or where a path
    can't be read; stderr has one line for each such file, as the lines written can be many. So it
    has for a file of a directory that was deleted after that was listed.
    """
    clean = True
    for path in paths:
        files = _files_of(os.fspath(path))
        if isinstance(files, str):
            print(f"pykraft: {files}", file=sys.stderr)
            clean = False
            continue
        for name, file in files:
            damaged = []
            try:
                for line in dump_file(file, name):
                    out.write((jsonlib.dumps(line) if json else _text(line)) + "\n")
                    if line["kind"] == "damage" and level_of(line["code"]) == "error":
                        damaged.append(line)
            except BrokenPipeError:
                raise
            except FileNotFoundError:
                # A running node deletes what it no longer needs, which is no damage.
                print(f"pykraft: {file}: deleted after it was listed, left out", file=sys.stderr)
                clean = clean and file != os.fspath(path)
            except OSError as error:
                print(f"pykraft: {file}: {error.strerror or error}", file=sys.stderr)
                clean = False
            if damaged:
                print(f"pykraft: {file}: {_damage_text(damaged)}", file=sys.stderr)
                clean = False
    return 0 if clean else 1


def _damage_text(damaged: list[dict[str, Any]]) -> str:
    first = damaged[0]
    times = "once" if len(damaged) == 1 else f"in {len(damaged)} places, first"
    return f"damaged {times} at byte {first['position']}: {first['code']}: {first['detail']}"


def _files_of(path: str) -> list[tuple[str, str]] | str:
    """The files that a path stands for, as (name to show, path); or what is wrong with it."""
    if not os.path.exists(path):
        return f"{path}: no such file or directory"
    if not os.path.isdir(path):
        if not _LOG.search(path):
            return f"{path}: neither a .log nor a .checkpoint file"
        return [(os.path.basename(path), path)]
    found = [(name, os.path.join(path, name)) for name in _dumped_in(path)]
    for folder in sorted(os.listdir(path)):
        inside = os.path.join(path, folder)
        if os.path.isdir(inside):
            names = _dumped_in(inside)
            found += [(f"{folder}/{name}", os.path.join(inside, name)) for name in names]
    return found or f"{path}: no .log or .checkpoint file in it"


def _dumped_in(directory: str) -> list[str]:
    return [name for name in sorted(os.listdir(directory)) if _is_dumped(directory, name)]


def _is_dumped(directory: str, name: str) -> bool:
    if not os.path.isfile(os.path.join(directory, name)):
        return False
    # A broker's own checkpoint files (recovery-point-offset-checkpoint …) have another form.
    return name.endswith(".log") or bool(_CHECKPOINT.match(name))


class Content(Enum):
    """What a file's records are."""

    METADATA = 1
    GROUPS = 2
    OTHER = 3


def _content_of(path: str) -> Content:
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    if path.endswith(".checkpoint") or folder.startswith(_METADATA):
        return Content.METADATA
    return Content.GROUPS if _GROUPS.match(folder) else Content.OTHER


def dump_file(path: str, name: str) -> Iterator[dict[str, Any]]:
    """The lines of one file, as the objects of `log dump --json`, where it is called `name`.

    OSError where the file can't be read.
    """
    content = _content_of(path)
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            positions, damages = walk(data)
            for item in merge(positions, damages):
                if isinstance(item, Damage):
                    yield from _damaged_header(name, data, item)
                    yield _damage_line(name, item.position, item.code, item.detail)
                else:
                    yield from _batch_lines(name, data, item, content)


def _damage_line(file: str, position: int, code: str, detail: str) -> dict[str, Any]:
    return {"kind": "damage", "file": file, "position": position, "code": code, "detail": detail}


def _damaged_header(file: str, data: mmap.mmap, damage: Damage) -> Iterator[dict[str, Any]]:
    """The batch whose CRC is wrong, as far as its header can still be believed."""
    if damage.code != "crc-mismatch":
        return
    try:
        header = read_header(data, damage.position)
    except DecodeError:
        return
    yield _batch_line(file, damage.position, header, crc_ok=False)


def _batch_lines(
    file: str, data: mmap.mmap, position: int, content: Content
) -> Iterator[dict[str, Any]]:
    size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
    batch = data[position : position + size]
    try:
        header = read_header(batch)
    except BadHeader as error:
        yield _damage_line(file, position, "bad-records", error.reason)
        return
    yield _batch_line(file, position, header)
    # Compaction takes records out of batches, but never from the metadata log.
    if content is Content.METADATA and header.count != header.last_offset_delta + 1:
        detail = f"{header.count} records, last delta {header.last_offset_delta}"
        yield _damage_line(file, position, "count-mismatch", detail)
    try:
        records = decode_records(batch, 0, header)
    except DecodeError as error:
        yield _damage_line(file, position, "bad-records", str(error))
        return
    for record in records:
        line = _record_line(file, header, record)
        try:
            _decode_into(line, header, record, content)
        except DecodeError as error:
            yield line
            detail = f"offset {record.offset}: {error}"
            yield _damage_line(file, position, "undecodable", detail)
            continue
        yield line


def _batch_line(
    file: str, position: int, header: BatchHeader, crc_ok: bool = True
) -> dict[str, Any]:
    return {
        "kind": "batch",
        "file": file,
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "epoch": header.leader_epoch,
        "crc_ok": crc_ok,
        "codec": CODECS.get(header.codec, str(header.codec)),
        "control": header.is_control,
        "transactional": header.is_transactional,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "records": header.count,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "bytes": header.length,
    }


def _base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode("ascii")


def _record_line(file: str, header: BatchHeader, record: Record) -> dict[str, Any]:
    return {
        "kind": "record",
        "file": file,
        "offset": record.offset,
        "epoch": header.leader_epoch,
        "timestamp": record.timestamp,
        "type": None,
        "version": None,
        "data": None,
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [[name, _base64(value)] for name, value in record.headers],
    }


def _decode_into(
    line: dict[str, Any], header: BatchHeader, record: Record, content: Content
) -> None:
    """Fills in type, version and data where the record's type is known; DecodeError."""
    if header.is_control:
        control = decode_control(record.key, record.value)
        line["type"], line["version"] = control.name, control.version
        if control.entity is None:
            return
        line["data"] = control_json(control.entity)
    elif content is Content.METADATA:
        if record.value is None:
            raise DecodeError("a metadata record without a value")
        decoded = metadata_records.decode(record.value)
        line["type"], line["version"] = name_of(decoded.api_key), decoded.version
        if isinstance(decoded.record, metadata_records.UnknownRecord):
            return
        line["data"] = to_json(decoded.record, decoded.version)
    elif content is Content.GROUPS:
        _decode_group(line, record)
        if line["data"] is None:
            return
    else:
        return
    line["key"] = line["value"] = None


def _decode_group(line: dict[str, Any], record: Record) -> None:
    """The same of a record of `__consumer_offsets`; a tombstone has no version."""
    if record.key is None:
        raise DecodeError("a group's record without a key")
    key, value = group_records.decode(record.key, record.value)
    if isinstance(key, group_records.UnknownKey):
        line["type"] = f"Unknown{key.version}"
        return
    line["type"] = key.NAME
    line["data"] = {"key": group_records.to_json(key), "value": None}
    if value is not None and record.value is not None:
        line["version"] = int.from_bytes(record.value[:2], "big")
        line["data"]["value"] = group_records.to_json(value, line["version"])


def _text(line: dict[str, Any]) -> str:
    """One line for a person."""
    if line["kind"] == "damage":
        return (
            f"{line['file']}: DAMAGE at byte {line['position']}: {line['code']}: {line['detail']}"
        )
    if line["kind"] == "batch":
        marks = [name for name in ("control", "transactional") if line[name]]
        producer = ""
        if line["producer_id"] >= 0:
            producer = (
                f" producer {line['producer_id']}/{line['producer_epoch']}"
                f" sequence {line['base_sequence']}"
            )
        return (
            f"{line['file']}: batch at byte {line['position']}: offsets {line['base_offset']} to"
            f" {line['last_offset']}, epoch {line['epoch']}, {line['records']} records,"
            f" {line['bytes']} bytes, {line['codec']}, time {line['max_timestamp']}"
            f"{''.join(f', {mark}' for mark in marks)}{producer}"
        )
    head = f"  {line['offset']} (epoch {line['epoch']}, time {line['timestamp']})"
    version = "" if line["version"] is None else f" v{line['version']}"
    kind = "" if line["type"] is None else f" {line['type']}{version}"
    if kind and line["data"] is not None:
        return f"{head}{kind} {jsonlib.dumps(line['data'])}"
    return f"{head}{kind} key {line['key']} value {line['value']}"
