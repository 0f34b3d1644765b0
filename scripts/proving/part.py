"""What a part of the long tier is given, and what it gives back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Failed(Exception):
    """A claim does not hold; the text says which, and how to see it again."""


@dataclass(frozen=True)
class Task:
    """`deadline` is of time.monotonic(); `say` shows what is going on."""

    deadline: float
    scratch: Path
    say: Callable[[str], None]
    seeds: range | None = None

    @property
    def left_s(self) -> float:
        return self.deadline - time.monotonic()


@dataclass
class Outcome:
    """How a part went. `verdict` is passed, failed or skipped; `figures` are counts and times."""

    part: str
    verdict: str = "passed"
    figures: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def fail(self, text: str) -> None:
        self.verdict = "failed"
        self.failures.append(text)
