"""State that runs ahead of the log, and the answers that wait for the log.

A change is made in `Versioned` maps and bound to the append that stores it. Until the high
watermark passes that append, the map knows the value before, too: it is what readers of committed
state see, and what comes back when the append fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Versioned(Generic[K, V]):
    """A map with its newest and its committed state. Values are never None and, once set, are
    changed only where the log has no part in it."""

    __slots__ = ("_before", "_newest", "_speculation")

    def __init__(self, speculation: Speculation) -> None:
        self._newest: dict[K, V] = {}
        # By key, the values before each uncommitted change, oldest first.
        self._before: dict[K, deque[V | None]] = {}
        self._speculation = speculation

    def get(self, key: K) -> V | None:
        """The newest value."""
        return self._newest.get(key)

    def committed(self, key: K) -> V | None:
        """The value at the high watermark."""
        before = self._before.get(key)
        return self.get(key) if before is None else before[0]

    def set(self, key: K, value: V | None) -> None:
        """Change the newest value, None to remove it; bound to the next append."""
        before = self._before.get(key)
        if before is None:
            before = self._before[key] = deque()
        before.append(self.get(key))
        self.load(key, value)
        self._speculation.touched.append((self, key))

    def load(self, key: K, value: V | None) -> None:
        """Change a value that is in the log already: newest and committed are the same."""
        if value is None:
            self._newest.pop(key, None)
        else:
            self._newest[key] = value

    def commit(self, key: K) -> None:
        """The oldest uncommitted change of the key is committed."""
        before = self._before[key]
        before.popleft()
        if not before:
            del self._before[key]

    def roll_back(self, key: K) -> None:
        """The newest change of the key never was."""
        before = self._before[key]
        self.load(key, before.pop())
        if not before:
            del self._before[key]

    def items(self) -> Iterator[tuple[K, V]]:
        """The newest state, in a fixed order."""
        return iter(self._newest.items())

    def committed_items(self) -> Iterator[tuple[K, V]]:
        """The committed state, in a fixed order."""
        for key, value in self._newest.items():
            if key not in self._before:
                yield key, value
        for key, before in self._before.items():
            if before[0] is not None:
                yield key, before[0]

    def is_committed(self, key: K) -> bool:
        """Whether no change of the value is under way."""
        return key not in self._before

    def uncommitted_keys(self) -> Iterator[K]:
        """Keys whose newest and committed values may differ."""
        return iter(self._before)

    def __len__(self) -> int:
        return len(self._newest)


class Outcome:
    """What waits for one append. `done` takes no argument, `failed` the error."""

    __slots__ = ("done", "failed")

    def __init__(self, done: Callable[[], None], failed: Callable[[Any], None]) -> None:
        self.done = done
        self.failed = failed


class _Entry:
    """An uncommitted append. `log_end` is None until the shell has told it."""

    __slots__ = ("log_end", "outcomes", "token", "touched")

    def __init__(
        self, token: int, log_end: int | None, touched: list[tuple[Versioned[Any, Any], Any]]
    ) -> None:
        self.token = token
        self.log_end = log_end
        self.touched = touched
        self.outcomes: list[Outcome] = []


class Speculation:
    """The uncommitted appends, oldest first."""

    __slots__ = ("_entries", "_tokens", "_untold", "high_watermark", "touched")

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()
        # Those whose place in the log is not known yet, by token.
        self._untold: dict[int, _Entry] = {}
        self._tokens = 0
        self.high_watermark = 0
        # What was changed since the last append and belongs to the next.
        self.touched: list[tuple[Versioned[Any, Any], Any]] = []

    @property
    def is_empty(self) -> bool:
        """Whether all that was appended is committed."""
        return not self._entries

    def append(self) -> int:
        """All changes that are not bound yet belong to an append of this token."""
        self._tokens += 1
        self._untold[self._tokens] = self._bind(None)
        return self._tokens

    def appended_outside(self, log_end: int) -> None:
        """The changes belong to what others appended; it is in the log, which ends at `log_end`."""
        self._bind(log_end)
        self._settle()

    def _bind(self, log_end: int | None) -> _Entry:
        entry = _Entry(self._tokens, log_end, self.touched)
        self._entries.append(entry)
        self.touched = []
        return entry

    def wait(self, outcome: Outcome) -> None:
        """Hear of the newest append's outcome; there must be an uncommitted one."""
        self._entries[-1].outcomes.append(outcome)

    def appended(self, token: int, log_end: int) -> None:
        """The append of `token` ends at `log_end`."""
        self._untold.pop(token).log_end = log_end
        self._settle()

    def committed(self, high_watermark: int) -> None:
        """Everything below is committed; a lower one than before says nothing."""
        self.high_watermark = max(self.high_watermark, high_watermark)
        self._settle()

    def _settle(self) -> None:
        while self._entries:
            entry = self._entries[0]
            if entry.log_end is None or entry.log_end > self.high_watermark:
                return
            self._entries.popleft()
            for versioned, key in entry.touched:
                versioned.commit(key)
            for outcome in entry.outcomes:
                outcome.done()

    def failed(self, token: int, error: Any) -> None:
        """This append and all later ones are not in the log: as if they had never been. Whoever
        waits hears of the newest first, and so undoes its own change before those below it."""
        undone: list[_Entry] = []
        while self._entries and self._entries[-1].token >= token:
            undone.append(self._entries.pop())
            self._untold.pop(undone[-1].token, None)
        for entry in undone:
            for versioned, key in reversed(entry.touched):
                versioned.roll_back(key)
        for entry in undone:
            for outcome in reversed(entry.outcomes):
                outcome.failed(error)

    def abandon(self, error: Any) -> None:
        """Nothing will be known of any append any more; state stays as it is."""
        entries, self._entries = self._entries, deque()
        self._untold.clear()
        for entry in entries:
            for outcome in entry.outcomes:
                outcome.failed(error)
