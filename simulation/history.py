"""What clients did and were told: the record that the models judge.

A call that got no answer, or one that doesn't say whether anything was done, has the outcome
UNKNOWN: it may have been done, may be done later, or never. The order of invocations and
returns is total, because the simulation does one thing at a time: `invoked` and `returned` are
places in that order, the `_ms` fields virtual times.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Outcome(Enum):
    """OK: done, as the answer says. FAILED: for sure not done. UNKNOWN: nobody can say."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Call:
    """One attempt of one client, on the wire once. `result` is what the answer said."""

    number: int
    client: str
    kind: str
    args: dict[str, Any]
    invoked: int
    invoked_ms: int
    returned: int | None = None
    returned_ms: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    result: Any = None

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.args.items())
        end = "" if self.returned_ms is None else f"..{self.returned_ms}"
        return (
            f"#{self.number} {self.client} {self.kind}({given}) {self.invoked_ms}{end}ms "
            f"{self.outcome.value} {self.result!r}"
        )


@dataclass(slots=True)
class History:
    """All calls of a run, in the order in which they began."""

    calls: list[Call] = field(default_factory=list)
    _order: int = 0

    def invoke(self, client: str, kind: str, now_ms: int, **args: Any) -> Call:
        """A call goes out now."""
        self._order += 1
        call = Call(len(self.calls), client, kind, args, self._order, now_ms)
        self.calls.append(call)
        return call

    def finish(self, call: Call, outcome: Outcome, now_ms: int, result: Any = None) -> None:
        """The call's answer, or the client's giving up, comes now; once a call."""
        assert call.returned is None, f"{call} returned already"
        self._order += 1
        call.returned, call.returned_ms = self._order, now_ms
        call.outcome, call.result = outcome, result

    def counts(self) -> dict[str, int]:
        """How many calls of each kind and outcome."""
        found = Counter(f"{call.kind} {call.outcome.value}" for call in self.calls)
        return dict(sorted(found.items()))
