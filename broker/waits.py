"""Requests that wait on partitions: acks=all produces and parked fetches.

Nothing here plans anything again at each append. A produce stands in its partitions' queues, which
are in offset order, and is done when each has passed. A fetch is a count of bytes still short; when
that is used up it is looked at once, at the end of the loop's turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from wire.apis import ErrorCode

_MAX_MARKS = 4096


class ProduceWait:
    """One acks=all produce: `finish(errors)` is called once, errors by slot number.

    A slot is one partition of the request that was appended and waits for its high watermark.
    """

    __slots__ = ("_errors", "_finish", "_missing", "_timer")

    def __init__(
        self, slots: int, timeout_ms: int, finish: Callable[[list[ErrorCode]], None]
    ) -> None:
        self._errors = [ErrorCode.request_timed_out] * slots
        self._missing = slots
        self._finish = finish
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._give_up)

    def settle(self, slot: int, error: ErrorCode) -> None:
        """One partition's outcome; without effect once the request was answered."""
        if self._missing == 0:
            return
        self._errors[slot] = error
        self._missing -= 1
        if self._missing == 0:
            self._timer.cancel()
            self._finish(self._errors)

    def _give_up(self) -> None:
        if self._missing:
            self._missing = 0
            self._finish(self._errors)


class ProduceQueue:
    """The produces that wait on one partition, by the end offset they need committed."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, ProduceWait, int]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, end_offset: int, wait: ProduceWait, slot: int) -> None:
        """Offsets are added in ascending order, as they are appended."""
        self._waiting.append((end_offset, wait, slot))

    def committed(self, high_watermark: int, error: ErrorCode) -> None:
        """Settles with `error` (usually none) what ends at or below the mark."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            _, wait, slot = waiting.popleft()
            wait.settle(slot, error)

    def fail(self, error: ErrorCode) -> None:
        """Settles everything with an error."""
        waiting, self._waiting = self._waiting, deque()
        for _, wait, slot in waiting:
            wait.settle(slot, error)


class WakeQueue:
    """Makes each call once at the end of the loop's turn, however often it was asked for."""

    def __init__(self) -> None:
        self._due: dict[Callable[[], None], None] = {}

    def add(self, call: Callable[[], None]) -> None:
        if not self._due:
            asyncio.get_running_loop().call_soon(self._run)
        self._due[call] = None

    def _run(self) -> None:
        due, self._due = self._due, {}
        for call in due:
            call()


def _nothing() -> None:
    """In place of a call that is not to be made any more."""


class ParkedFetch:
    """A fetch that waits for `short` more bytes, an event that concerns it, or its time.

    `look` is called when one of these came: it answers, or says by `stay(short)` how much is
    missing still. After the time is over `look` must answer. `touched` says that something has
    changed since `look` last took it back; where that is `urgent` it is looked at for any of it.
    """

    __slots__ = ("_lists", "_look", "_queue", "_timer", "expired", "short", "touched", "urgent")

    def __init__(
        self,
        queue: WakeQueue,
        short: int,
        wait_ms: int,
        look: Callable[[], None],
        *,
        urgent: bool = False,
    ) -> None:
        self.short = short
        self.expired = False
        self.touched = False
        self.urgent = urgent
        self._queue = queue
        self._look = look
        self._lists: list[dict[ParkedFetch, None]] = []
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(wait_ms, 0) / 1000, self._expire)

    def join(self, waiters: dict[ParkedFetch, None]) -> None:
        """Stands in a partition's list from now on."""
        waiters[self] = None
        self._lists.append(waiters)

    def gained(self, count: int) -> None:
        """`count` bytes became readable in one of its partitions."""
        self.touched = True
        self.short -= count
        if self.short <= 0:
            self._queue.add(self._look)

    def wake(self) -> None:
        """Something else happened that it must be told."""
        self.touched = True
        self._queue.add(self._look)

    def touch(self) -> None:
        """An offset moved that it is told with its answer."""
        self.touched = True
        if self.urgent:
            self._queue.add(self._look)

    def stay(self, short: int) -> None:
        """Goes on waiting for `short` bytes."""
        self.short = short

    def leave(self) -> None:
        """It was answered, or nobody wants the answer any more."""
        self._timer.cancel()
        # What looks refers to us: without this the collector would have to find the two.
        self._look = _nothing
        for waiters in self._lists:
            waiters.pop(self, None)
        self._lists = []

    @property
    def left(self) -> bool:
        """Whether it stands in no list (any more)."""
        return not self._lists

    def _expire(self) -> None:
        self.expired = True
        self._queue.add(self._look)


class UncommittedBytes:
    """How many bytes become visible when the high watermark passes an offset."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque()

    def appended(self, end_offset: int, count: int) -> None:
        """`count` bytes were appended, up to `end_offset`, and are not committed yet."""
        marks = self._marks
        if len(marks) >= _MAX_MARKS:
            # A mark that stands still must not cost memory: the last two become one.
            count += marks.pop()[1]
        marks.append((end_offset, count))

    def committed(self, high_watermark: int) -> int:
        """The bytes below the mark that were not below it before (at least 1)."""
        marks = self._marks
        count = 0
        while marks and marks[0][0] <= high_watermark:
            count += marks.popleft()[1]
        return count or 1

    def clear(self) -> None:
        self._marks.clear()
