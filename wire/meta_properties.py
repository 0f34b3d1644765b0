"""`meta.properties`: whose a log directory is (KIP-631, KIP-858)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from wire import properties
from wire.errors import DamagedFile, DecodeError
from wire.numbers import INT32_MAX, whole_number
from wire.uuids import from_text, is_reserved, to_text


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Identity of a directory. `directory_id` is None in files of old releases."""

    cluster_id: str
    node_id: int
    directory_id: UUID | None = None
    version: int = 1


def encode(meta: MetaProperties) -> bytes:
    """The file as KRaft nodes write it (version 1), without the comment that holds the time."""
    assert meta.version == 1, meta.version
    values = {"node.id": str(meta.node_id)}
    if meta.directory_id is not None:
        values["directory.id"] = to_text(meta.directory_id)
    values["version"] = "1"
    values["cluster.id"] = meta.cluster_id
    return properties.dump(values).encode("ascii")


def decode(data: bytes, path: str) -> MetaProperties:
    """The identity; DamagedFile on nonsense or a version other than 1 (0, or none: ZooKeeper's)."""
    try:
        values = properties.parse(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DamagedFile(path, error.start, "not UTF-8") from error
    except DecodeError as error:
        raise DamagedFile(path, 0, str(error)) from error
    if not data.strip():
        raise DamagedFile(path, 0, "the file is empty")
    if "version" not in values:
        reason = "there is no version, which stands for 0, ZooKeeper's; only 1 is supported"
        raise DamagedFile(path, 0, reason)
    version = values["version"].strip()
    if version != "1":
        raise DamagedFile(path, 0, f"version {version!r}, only 1 is supported")
    node_text = values.get("node.id", "").strip()
    node_id = whole_number(node_text, INT32_MAX)
    if node_id is None:
        raise DamagedFile(path, 0, f"node.id is {node_text!r}, not a number from 0 on")
    if "cluster.id" not in values:
        raise DamagedFile(path, 0, "no cluster.id")
    # An opaque string; Kafka takes any, also an empty one.
    cluster_id = values["cluster.id"].strip()
    directory_id = None
    if "directory.id" in values:
        try:
            directory_id = from_text(values["directory.id"].strip())
        except DecodeError as error:
            raise DamagedFile(path, 0, f"directory.id: {error}") from error
        if is_reserved(directory_id):
            raise DamagedFile(path, 0, f"directory.id {to_text(directory_id)} is reserved")
    return MetaProperties(cluster_id, node_id, directory_id)
