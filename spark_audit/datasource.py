"""`spark.read.format("kraft")`: a metadata log directory as rows, segments and snapshots both.

A query's own schema says which columns are decoded: Spark doesn't push its selection down, so
`spark.read.format("kraft").schema("offset bigint, leader int").load(DIR)` is the cheap way.
Damaged batches are skipped; `option("damage", "fail")` stops at them instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_audit.columns import COLUMNS, DEFAULT_SCHEMA, ChunkColumns
from spark_audit.files import AuditError, Files, Segment, SnapshotFile, open_directory
from spark_audit.rows import chunks
from spark_audit.scan import SLICE_BYTES, cuts
from spark_audit.walk import walk

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


@dataclass
class Piece(InputPartition):
    """What one Spark task reads: (file, start, end) of a directory, small files together."""

    files: Files
    parts: list[tuple[str, int, int]]

    def __init__(self, files: Files, parts: list[tuple[str, int, int]]) -> None:
        super().__init__(0)
        self.files = files
        self.parts = parts


class KraftDataSource(DataSource):
    """Options: `path` (or several to load()), `snapshots` (true, false, or the names of those to
    read, by comma) and `segments` (true), `damage` (skip or fail), `payloads` (the record types, by
    comma, whose payload to decode; all), `slicebytes`."""

    @classmethod
    def name(cls) -> str:
        return "kraft"

    def schema(self) -> str:
        return DEFAULT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return KraftReader(schema, dict(self.options))


class KraftReader(DataSourceReader):
    """Reads whole batches into Arrow, about a hundred thousand records at a time."""

    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        unknown = [field.name for field in schema.fields if field.name not in COLUMNS]
        if unknown:
            raise AuditError(
                f"the kraft source has no column {', '.join(unknown)}; it has {', '.join(COLUMNS)}"
            )
        self._schema = schema
        self._paths = _paths(options)
        self._segments = options.get("segments", "true").lower() in _TRUE
        self._snapshots = options.get("snapshots", "true")
        self._slice_bytes = int(options.get("slicebytes", SLICE_BYTES))
        named = [name.strip() for name in options.get("payloads", "").split(",")]
        self._payloads = frozenset(filter(None, named)) or None
        self._fail = options.get("damage", "skip").lower() == "fail"

    def partitions(self) -> list[Piece]:
        pieces = []
        for path in self._paths:
            directory = open_directory(path)
            listed: list[Segment | SnapshotFile] = [*directory.segments] if self._segments else []
            listed += self._wanted(directory.snapshots)
            parts = []
            for file in listed:
                bounds = cuts(directory.files, file.name, file.size, self._slice_bytes)
                parts += [(file.name, start, end) for start, end in pairwise(bounds)]
            pieces += _together(directory.files, parts, self._slice_bytes)
        return pieces

    def _wanted(self, snapshots: Sequence[SnapshotFile]) -> Sequence[SnapshotFile]:
        if self._snapshots.lower() in (*_TRUE, *_FALSE):
            return snapshots if self._snapshots.lower() in _TRUE else ()
        names = [name.strip() for name in self._snapshots.split(",")]
        found = [snapshot for snapshot in snapshots if snapshot.name in names]
        if len(found) < len(names):
            raise AuditError(
                f"snapshots={self._snapshots}: must be true, false or names of snapshots that are "
                "there, by comma"
            )
        return found

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Piece):  # Spark's stand-in for an empty list of pieces
            return
        arrow = to_arrow_schema(self._schema, timezone="UTC")
        for name, start, end in partition.parts:
            data = partition.files.read(name, start, end)
            positions, damages = walk(data)
            if damages and self._fail:
                first = damages[0]
                where = f"{name} at byte {first.position + start}"
                raise AuditError(f"{partition.files.path}: {where}: {first.code}: {first.detail}")
            for rows in chunks(name, data, positions, start):
                if len(rows):
                    columns = ChunkColumns(rows, self._payloads)
                    arrays = [columns.column(field.name, field.type) for field in arrow]
                    yield pa.RecordBatch.from_arrays(arrays, schema=arrow)


def _paths(options: dict[str, str]) -> list[str]:
    paths: list[str] = json.loads(options["paths"]) if "paths" in options else []
    if options.get("path"):
        paths.append(options["path"])
    if not paths:
        raise AuditError("the kraft source needs the path of a metadata log directory")
    return paths


def _together(files: Files, parts: list[tuple[str, int, int]], slice_bytes: int) -> list[Piece]:
    """Puts small neighbours into one piece, so that fifty small snapshots aren't fifty tasks."""
    pieces: list[Piece] = []
    room = 0
    for part in parts:
        size = part[2] - part[1]
        if not size:
            continue
        if pieces and size <= room:
            pieces[-1].parts.append(part)
            room -= size
        else:
            pieces.append(Piece(files, [part]))
            room = slice_bytes - size
    return pieces
