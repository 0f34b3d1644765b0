"""What a listener counts; the process's metrics read it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Plain numbers since the listener opened, but for `connections`, which are open now, and
    `blocked`, those of them whose peers take nothing at the moment."""

    connections: int = 0
    blocked: int = 0
    accepted: int = 0
    refused: int = 0
    idle_closed: int = 0
    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    malformed: int = 0
    handler_errors: int = 0
