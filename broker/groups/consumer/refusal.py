"""What a request of the consumer protocol is refused with."""

from __future__ import annotations

from typing import Final

from wire.errors import ErrorCode

REJOIN: Final = "the member must give up all its partitions and join again"


class Refused(Exception):
    """The request changes nothing and is answered with this error."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
