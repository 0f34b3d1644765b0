"""What must equal Java: its hash of strings."""

from __future__ import annotations

import struct


def java_string_hash(text: str) -> int:
    """`String.hashCode()`: over UTF-16 units, as a signed 32-bit number."""
    raw = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", raw):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
