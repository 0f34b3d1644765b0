"""Figures of several runs: their spread, and how two sides compare."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

HIGHER, LOWER = "higher", "lower"
# A ratio this near 1 is neither won nor lost on a machine whose runs differ by more.
EVEN = 0.03


@dataclass(frozen=True, slots=True)
class Spread:
    """The values of the runs of one side, in the order they were taken."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)


@dataclass(frozen=True, slots=True)
class Result:
    """One figure: ours, and the peer's (its runs) or a limit (one number) where there is one.

    `cpu_s` and `peer_cpu_s` are the servers' CPU seconds of a run.
    """

    name: str
    unit: str
    better: str
    ours: Spread
    peer: str | None = None
    theirs: Spread | None = None
    cpu_s: Spread | None = None
    peer_cpu_s: Spread | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours over the peer's, medians; None without a peer or with a peer's zero."""
        if self.theirs is None or self.theirs.median == 0:
            return None
        return self.ours.median / self.theirs.median

    @property
    def verdict(self) -> str:
        """won, lost or even; empty without a peer."""
        if self.ratio is None:
            return ""
        if abs(self.ratio - 1) <= EVEN:
            return "even"
        return "won" if (self.ratio > 1) == (self.better == HIGHER) else "lost"

    def document(self, common: dict[str, Any]) -> dict[str, Any]:
        """The entry of the JSON list; `common` is added to each."""
        return {
            "name": self.name,
            "unit": self.unit,
            "value": self.ours.median,
            "peer": self.peer,
            "peer_value": self.theirs.median if self.theirs else None,
            "ratio": self.ratio,
            "cpu_s": self.cpu_s.median if self.cpu_s else None,
            "runs": len(self.ours.values),
            "better": self.better,
            "verdict": self.verdict,
            "values": list(self.ours.values),
            "peer_values": list(self.theirs.values) if self.theirs else None,
            "peer_cpu_s": self.peer_cpu_s.median if self.peer_cpu_s else None,
            "note": self.note,
            **common,
        }


def spread(values: Sequence[float]) -> Spread:
    """A spread of at least one value."""
    if not values:
        raise ValueError("no runs, no spread")
    return Spread(tuple(values))


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the values don't exceed (nearest rank)."""
    if not values or not 0 < percent <= 100:
        raise ValueError(f"percentile {percent} of {len(values)} values")
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[int(rank) - 1]


def number(value: float) -> str:
    """Three digits that matter, no exponent."""
    magnitude = abs(value)
    if magnitude >= 100:
        return f"{value:,.0f}"
    if magnitude >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if magnitude >= 1 or value == 0 else f"{value:.3f}"


def range_text(one: Spread | None) -> str:
    """`median (min–max)`, the median alone of a single value, a dash of none."""
    if one is None:
        return "–"
    if len(one.values) == 1:
        return number(one.median)
    return f"{number(one.median)} ({number(one.low)}–{number(one.high)})"
