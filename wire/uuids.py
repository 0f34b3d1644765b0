"""Kafka's text form of UUIDs and the reserved values."""

from __future__ import annotations

import base64
import binascii
from contextlib import suppress
from uuid import UUID

from wire.errors import DecodeError

ZERO = UUID(int=0)
METADATA_TOPIC_ID = UUID(int=1)
# Directory ids (KIP-858): where a replica's directory is not (yet) a real one.
MIGRATING_DIR = UUID(int=0)
UNASSIGNED_DIR = UUID(int=1)
LOST_DIR = UUID(int=2)

_RESERVED_BELOW = 100


def to_text(value: UUID) -> str:
    """22 characters: URL-safe base64 of the 16 bytes without padding."""
    return base64.urlsafe_b64encode(value.bytes)[:22].decode("ascii")


def from_text(text: str) -> UUID:
    """The UUID of its text form, padding allowed as in Kafka; DecodeError on anything else."""
    raw = b""
    if "+" not in text and "/" not in text:
        with suppress(binascii.Error, ValueError):
            raw = base64.b64decode(text.rstrip("=") + "==", altchars=b"-_", validate=True)
    if len(raw) != 16:
        raise DecodeError(
            f"not a Kafka UUID (16 bytes as 22 characters of A-Z, a-z, 0-9, - and _): {text!r}"
        )
    return UUID(bytes=raw)


def is_reserved(value: UUID) -> bool:
    """Whether the id is one of the first hundred, which Kafka never draws at random."""
    return value.int < _RESERVED_BELOW
