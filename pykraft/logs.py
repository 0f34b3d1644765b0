"""JSON logs: one object a line, on standard error, with the node's id in each."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import structlog

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class LogSink:
    """Where log lines go: to `write`, which takes bytes and says how many it took.

    A line that can't be written is lost, and nothing else: the disk under the log is often the one
    that is full, and a node that could not say so must still step aside. The next line that can be
    written is preceded by one that says how many were lost.
    """

    def __init__(self, write: Callable[[bytes], int]) -> None:
        self._write_some = write
        self._lost = 0
        self._cut = False  # the last line was written in part

    def write(self, text: str) -> None:
        """Take one or more whole lines."""
        if self._lost:
            told = f'{{"event": "log_lines_lost", "count": {self._lost}, "level": "warning"}}\n'
            if not self._put(told.encode()):
                self._lost += 1
                return
            self._lost = 0
        if not self._put(text.encode(errors="replace")):
            self._lost += 1

    def _put(self, data: bytes) -> bool:
        if self._cut:
            data = b"\n" + data
        done = 0
        try:
            while done < len(data):
                done += self._write_some(data[done:])
        except OSError:
            self._cut = self._cut or done > 0
            return False
        self._cut = False
        return True

    def flush(self) -> None:
        """Nothing is held back."""


def configure_logs(node_id: int, level: str) -> None:
    """Sends every room's log lines to standard error as JSON; `level` is one of `LEVELS`."""
    fd = sys.stderr.fileno()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=LogSink(lambda data: os.write(fd, data))),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(node_id=node_id)
