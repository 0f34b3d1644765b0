"""Where each leader epoch of a log begins (KIP-101, KIP-279). Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

UNDEFINED = (-1, -1)


class LeaderEpochs:
    """Pairs of (epoch, first offset), both strictly rising.

    `dirty` is set by every change, for the owner to write the file and clear it.
    """

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start in entries:
            self.assign(epoch, start)
        self.dirty = False

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        """The newest epoch; -1 if there is none."""
        return self._epochs[-1] if self._epochs else -1

    @property
    def earliest(self) -> tuple[int, int] | None:
        return (self._epochs[0], self._starts[0]) if self._epochs else None

    def assign(self, epoch: int, start: int) -> None:
        """Epoch `epoch` begins at `start`; what contradicts that is dropped."""
        assert epoch >= 0, epoch
        assert start >= 0, start
        if self._epochs and epoch == self._epochs[-1] and start >= self._starts[-1]:
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start)
        self.dirty = True

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`; -1 if it is before all that is known."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else -1

    def start_of(self, epoch: int) -> int | None:
        """The first offset of exactly this epoch."""
        index = bisect_right(self._epochs, epoch) - 1
        if index >= 0 and self._epochs[index] == epoch:
            return self._starts[index]
        return None

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(largest epoch not above `epoch`, its exclusive end); (-1, -1) if not known.

        An epoch older than all known gives (epoch, start of the oldest known).
        """
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED
        if epoch == self._epochs[-1]:
            return epoch, log_end
        index = bisect_right(self._epochs, epoch)
        if index == 0:
            return epoch, self._starts[0]
        return self._epochs[index - 1], self._starts[index]

    def truncate_from_end(self, offset: int) -> None:
        """Forget what begins at or after `offset`."""
        while self._starts and self._starts[-1] >= offset:
            self._epochs.pop()
            self._starts.pop()
            self.dirty = True

    def truncate_from_start(self, offset: int) -> None:
        """The log now begins at `offset`: keep the epoch of that place, starting there."""
        index = bisect_right(self._starts, offset) - 1
        if index < 0 or (index == 0 and self._starts[0] == offset):
            return
        del self._epochs[:index]
        del self._starts[:index]
        self._starts[0] = offset
        self.dirty = True

    def clear(self) -> None:
        self.dirty = self.dirty or bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()
