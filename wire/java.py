"""What must equal Java: its hash of strings."""

from __future__ import annotations

import struct
from collections.abc import Iterable


def java_string_hash(text: str) -> int:
    """`String.hashCode()`: over UTF-16 units, as a signed 32-bit number."""
    units: Iterable[int]
    if text.isascii():
        units = text.encode()
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        units = struct.unpack(f">{len(raw) // 2}H", raw)
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
