"""Deadlines that are mostly put off again: sessions, rebalances.

A heartbeat only writes a number into its timer. The heap keeps the timer where it was and finds out
when that time has come, so that putting off is O(1) and the rest O(log n), whatever the number of
timers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Timer:
    """One deadline, in ms of the monotonic clock, and what happens then. See `Timers`."""

    __slots__ = ("action", "deadline_ms", "queued_ms")

    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action
        # None while it is not set.
        self.deadline_ms: int | None = None
        # When the heap looks at it, None if it has no valid entry there.
        self.queued_ms: int | None = None

    def cancel(self) -> None:
        self.deadline_ms = None


class Timers:
    """All timers of one coordinator. Equal deadlines end in the order in which they were queued."""

    __slots__ = ("_heap", "_queued")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._queued = 0

    def set(self, timer: Timer, deadline_ms: int) -> None:
        """Let the timer end at that time and at no other."""
        timer.deadline_ms = deadline_ms
        if timer.queued_ms is None or deadline_ms < timer.queued_ms:
            self._queue(timer, deadline_ms)

    def _queue(self, timer: Timer, at_ms: int) -> None:
        timer.queued_ms = at_ms
        self._queued += 1
        heapq.heappush(self._heap, (at_ms, self._queued, timer))

    def next_ms(self) -> int | None:
        """No timer ends before this; None if none ever does. Never too late, maybe too early."""
        return self._heap[0][0] if self._heap else None

    def run(self, now_ms: int) -> None:
        """Let end whatever has to; actions may set and cancel timers."""
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, timer = heapq.heappop(self._heap)
            if at_ms != timer.queued_ms:
                continue  # queued again for an earlier time, which has passed
            timer.queued_ms = None
            if timer.deadline_ms is None:
                continue
            if timer.deadline_ms > now_ms:
                self._queue(timer, timer.deadline_ms)
                continue
            timer.deadline_ms = None
            timer.action()
