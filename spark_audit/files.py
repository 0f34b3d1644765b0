"""Finds the files of a metadata log directory, on a local disk or an object store."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from typing import Any

from wire.numbers import integer

METADATA_DIRECTORY = "__cluster_metadata-0"
_SEGMENT = re.compile(r"^(\d{20})\.log$")
_SNAPSHOT = re.compile(r"^(\d{20})-(\d{10})\.checkpoint$")
LISTINGS = 8  # of a directory whose node deletes files before they are read


class AuditError(Exception):
    """Something the caller asked for that can't be done; the text is one line for a person."""


class Files:
    """Reads one directory; picklable, so that it can travel to a Spark worker."""

    def __init__(self, path: str) -> None:
        self.path = path

    def names(self) -> list[str]:
        """The sorted names of the directory's plain files."""
        with os.scandir(self.path) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())

    def has_directory(self, name: str) -> bool:
        return os.path.isdir(os.path.join(self.path, name))

    def size(self, name: str) -> int:
        return os.path.getsize(os.path.join(self.path, name))

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes start..end of a file; shorter where the file ends earlier."""
        with open(os.path.join(self.path, name), "rb") as file:
            file.seek(start)
            return file.read() if end is None else file.read(end - start)

    def child(self, name: str) -> Files:
        return type(self)(os.path.join(self.path, name))

    def parent(self) -> Files:
        return type(self)(os.path.dirname(os.path.abspath(self.path)))

    @property
    def name(self) -> str:
        return os.path.basename(os.path.abspath(self.path))

    @property
    def local(self) -> bool:
        return True


class StoreFiles(Files):
    """The same over pyarrow's filesystems (s3://, gs://, …); keys come from the environment."""

    def _open(self, name: str = "") -> tuple[Any, str]:
        from pyarrow import fs

        filesystem, base = fs.FileSystem.from_uri(self.path)
        return filesystem, f"{base.rstrip('/')}/{name}" if name else base

    def names(self) -> list[str]:
        from pyarrow import fs

        filesystem, base = self._open()
        infos = filesystem.get_file_info(fs.FileSelector(base))
        return sorted(info.base_name for info in infos if info.type == fs.FileType.File)

    def has_directory(self, name: str) -> bool:
        from pyarrow import fs

        filesystem, path = self._open(name)
        return bool(filesystem.get_file_info(path).type == fs.FileType.Directory)

    def size(self, name: str) -> int:
        filesystem, path = self._open(name)
        size = filesystem.get_file_info(path).size
        if size is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return int(size)

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        filesystem, path = self._open(name)
        with filesystem.open_input_file(path) as file:
            length = (file.size() if end is None else end) - start
            data: bytes = file.read_at(length, start)
            return data

    def child(self, name: str) -> Files:
        address, mark, query = self.path.partition("?")
        return type(self)(f"{address.rstrip('/')}/{name}{mark}{query}")

    def parent(self) -> Files:
        address, mark, query = self.path.partition("?")
        return type(self)(address.rstrip("/").rpartition("/")[0] + mark + query)

    @property
    def name(self) -> str:
        return self.path.partition("?")[0].rstrip("/").rpartition("/")[2]

    @property
    def local(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Segment:
    """One `.log` file."""

    name: str
    base_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One `.checkpoint` file: everything below `end_offset` (exclusive)."""

    name: str
    end_offset: int
    epoch: int
    size: int


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A metadata log's directory as listed once; `path` is as the caller gave it."""

    path: str
    files: Files
    segments: tuple[Segment, ...]
    snapshots: tuple[SnapshotFile, ...]
    side_files: tuple[str, ...]
    properties: dict[str, str]

    @property
    def cluster_id(self) -> str | None:
        return self.properties.get("cluster.id")

    @property
    def node_id(self) -> int | None:
        return integer(self.properties.get("node.id", self.properties.get("broker.id", "")))


def files_at(path: str) -> Files:
    """Picks the reader for a path or URI; file:// is a local path."""
    if path.startswith("file://"):
        from urllib.parse import unquote, urlsplit

        return Files(unquote(urlsplit(path).path))
    if "://" in path:
        return StoreFiles(path)
    return Files(path)


def _listed(files: Files, path: str) -> list[str]:
    if files.local:
        if not os.path.exists(files.path):
            raise AuditError(f"{path}: no such directory")
        if not os.path.isdir(files.path):
            raise AuditError(f"{path}: is a file; a {METADATA_DIRECTORY} directory is needed")
    try:
        return files.names()
    except (OSError, ValueError) as error:
        raise AuditError(f"{path}: can't be listed: {error}") from error


def _is_log(names: list[str]) -> bool:
    return any(_SEGMENT.match(name) or _SNAPSHOT.match(name) for name in names)


def open_directory(path: str) -> LogDirectory:
    """Lists a metadata log directory, given itself or its parent.

    Raises AuditError where the path is missing, is a file, or holds no metadata log.
    """
    gone = None
    for _ in range(LISTINGS):
        try:
            return _opened(path)
        except FileNotFoundError as error:  # deleted after it was listed
            gone = error.filename
    raise deleted_meanwhile(path, gone)


def deleted_meanwhile(path: str, gone: object) -> AuditError:
    """What to say of a directory that can't be read as it was listed."""
    return AuditError(
        f"{path}: files are deleted faster than they can be read: after each of {LISTINGS} listings"
        f" one was gone, {gone} at last; audit a copy of the directory"
    )


def _opened(path: str) -> LogDirectory:
    files = files_at(path)
    names = _listed(files, path)
    if not _is_log(names) and files.has_directory(METADATA_DIRECTORY):
        files = files.child(METADATA_DIRECTORY)
        names = _listed(files, files.path)
    if not _is_log(names):
        raise AuditError(
            f"{path}: no metadata log here: neither NNN.log nor NNN-NNN.checkpoint files,"
            f" nor a {METADATA_DIRECTORY} directory"
        )
    segments, snapshots, others = [], [], []
    for name in names:
        if match := _SEGMENT.match(name):
            segments.append(Segment(name, int(match[1]), files.size(name)))
        elif match := _SNAPSHOT.match(name):
            snapshot = SnapshotFile(name, int(match[1]), int(match[2]), files.size(name))
            snapshots.append(snapshot)
        else:
            others.append(name)
    return LogDirectory(
        path, files, tuple(segments), tuple(snapshots), tuple(others), _properties(files)
    )


def _properties(files: Files) -> dict[str, str]:
    """meta.properties beside the log's directory or above it; {} where there is none."""
    for place in (files, files.parent()):
        try:
            text = place.read("meta.properties").decode("utf-8", "replace")
        except OSError:
            continue
        lines = (line.strip() for line in text.splitlines())
        pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
        # Java's own writer escapes ':' and '=' in values.
        return {key.strip(): value.strip().replace("\\", "") for key, _, value in pairs}
    return {}
