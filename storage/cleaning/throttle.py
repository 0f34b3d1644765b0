"""Keeping the cleaner's reads and writes below a rate. Pure."""

from __future__ import annotations


class Throttle:
    """At most `bytes_per_s` over time, all passes together."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_ms = bytes_per_s / 1000
        self._paid_until_ms = 0.0

    def pause_ms(self, count: int, now_ms: int) -> float:
        """How long to wait after `count` bytes more were read or written."""
        begun = max(self._paid_until_ms, float(now_ms))
        self._paid_until_ms = begun + count / self._bytes_per_ms
        return self._paid_until_ms - now_ms
