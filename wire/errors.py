"""The typed errors of the project; each room raises these or subclasses of them."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

__all__ = ["DamagedFile", "DecodeError", "ErrorCode", "FatalError", "KafkaError"]


class KafkaError(Exception):
    """An expected failure that its caller is told: Kafka's error code and one clear sentence."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        self.code = code
        self.message = message or code.name.replace("_", " ")
        super().__init__(f"{code.name.upper()}: {self.message}")


class DecodeError(ValueError):
    """Bytes that are not what they claim to be; the text says what was wrong and where."""


class BadHeader(DecodeError):
    """A batch header that can't be true. `reason` is without the byte `position`, which counts from
    the start of a buffer, for those who know where in a file that is."""

    def __init__(self, position: int, reason: str) -> None:
        self.position = position
        self.reason = reason
        super().__init__(f"byte {position}: {reason}")


class FatalError(Exception):
    """Nothing but a stop is left. The process ends with `exit_code` after logging `reason`."""

    def __init__(self, exit_code: int, reason: str) -> None:
        self.exit_code = exit_code
        self.reason = reason
        super().__init__(reason)


class DamagedFile(Exception):
    """A file whose content makes no sense, at byte `position` (0 where only the whole is known)."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        self.path = path
        self.position = position
        self.reason = reason
        super().__init__(f"{path}: byte {position}: {reason}")
