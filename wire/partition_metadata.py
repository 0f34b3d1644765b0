"""`partition.metadata`: the topic id of a partition directory (KIP-516)."""

from __future__ import annotations

from uuid import UUID

from wire.errors import DamagedFile, DecodeError
from wire.uuids import ZERO, from_text, to_text


def encode(topic_id: UUID) -> bytes:
    """The file's two lines, without a newline at the end, as Kafka writes them."""
    return f"version: 0\ntopic_id: {to_text(topic_id)}".encode("ascii")


def decode(data: bytes, path: str) -> UUID:
    """The topic id; DamagedFile on nonsense, another version or the zero id."""
    try:
        lines = data.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise DamagedFile(path, error.start, "not ASCII") from error
    pairs = [line.split(":") for line in lines]
    if len(pairs) != 2 or any(len(pair) != 2 for pair in pairs):
        raise DamagedFile(path, 0, "not the two lines of version and topic_id")
    (version_key, version), (id_key, id_text) = pairs
    if version_key.strip() != "version" or id_key.strip() != "topic_id":
        raise DamagedFile(path, 0, "not the two lines of version and topic_id")
    if version.strip() != "0":
        raise DamagedFile(path, 0, f"version {version.strip()!r}, only 0 is supported")
    try:
        topic_id = from_text(id_text.strip())
    except DecodeError as error:
        raise DamagedFile(path, len(lines[0]) + 1, str(error)) from error
    if topic_id == ZERO:
        raise DamagedFile(path, len(lines[0]) + 1, "the topic id is zero")
    return topic_id
