"""What an audit finds: one code, its level, and where it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_ERRORS = (
    "truncated-tail zero-tail bad-length bad-magic bad-records undecodable crc-mismatch "
    "offset-gap segment-gap epoch-regression snapshot-mismatch snapshot-unframed diverged"
)
_INFOS = (
    "epoch-file-extra epoch-file-behind snapshot-timestamp snapshot-not-compared "
    "resumed-from-snapshot aborted-transaction"
)
_LEVELS = dict.fromkeys(_ERRORS.split(), "error") | dict.fromkeys(_INFOS.split(), "info")

# Errors that mean bytes of the log could not be read as records.
UNREADABLE = frozenset(
    [
        *("truncated-tail", "zero-tail", "bad-length", "bad-magic"),
        *("bad-records", "undecodable", "crc-mismatch"),
    ]
)


def level_of(code: str) -> str:
    """error, warn or info; every code that is neither error nor info is a warning."""
    return _LEVELS.get(code, "warn")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found. `position` is the byte where the batch starts; times in milliseconds."""

    code: str
    file: str
    detail: str
    position: int | None = None
    offset: int | None = None
    epoch: int | None = None
    timestamp: int | None = None

    @property
    def level(self) -> str:
        return level_of(self.code)

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "level": self.level,
            "file": self.file,
            "position": self.position,
            "offset": self.offset,
            "epoch": self.epoch,
            "timestamp": self.timestamp,
            "detail": self.detail,
        }


class Tally:
    """Findings of a replay, summed by code: how often, and the first with its offset."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[int, int | None, int | None, str]] = {}
        self._times: dict[str, int] = {}

    def add(
        self, code: str, offset: int, detail: str, epoch: int | None, timestamp: int | None
    ) -> None:
        self._times[code] = self._times.get(code, 0) + 1
        self._first.setdefault(code, (offset, epoch, timestamp, detail))

    def merge(self, other: Tally) -> None:
        """Adds what a replay of a later stretch of the log found."""
        for code, times in other._times.items():
            self._times[code] = self._times.get(code, 0) + times
            self._first.setdefault(code, other._first[code])

    def times(self, code: str) -> int:
        return self._times.get(code, 0)

    def findings(self) -> list[Finding]:
        """One finding a code, in the order of their first offsets."""
        found = []
        for code in sorted(self._first, key=lambda code: (self._first[code][0], code)):
            offset, epoch, timestamp, detail = self._first[code]
            text = f"{self._times[code]} times, first at offset {offset}: {detail}"
            found.append(Finding(code, "replay", text, None, offset, epoch, timestamp))
        return found


def has_errors(findings: Iterable[Finding]) -> bool:
    return any(finding.level == "error" for finding in findings)
