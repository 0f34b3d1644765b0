"""Ctrl-C, SIGTERM and a closed terminal, for commands that have to undo what they began."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal asked this command to end; its notes say what became of its work."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Interrupts:
    """While it is entered, those signals raise Interrupted, but for what is `held` together."""

    def __init__(self) -> None:
        self._holding = False
        self._waiting: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in _ENDING:
            # Whoever started this command with a signal ignored (nohup, a script's `&`) wants that.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Done whole: a signal that comes meanwhile raises at its end."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
            waiting, self._waiting = self._waiting, None
            if waiting is not None:
                raise Interrupted(waiting)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if not self._holding:
            raise Interrupted(number)
        self._waiting = number
