"""What can go wrong in a log, typed. Disk errors are those of world.env, damage on the disk is
`wire.errors.DamagedFile`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from wire.errors import ErrorCode, KafkaError
from world.env import DiskError, DiskFull


class OffsetOutOfRange(KafkaError):
    """The offset asked for is before the log's start or after its end."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(
            ErrorCode.offset_out_of_range, f"offset {offset} is outside of {start} to {end}"
        )
        self.offset = offset
        self.start = start
        self.end = end


class CorruptBatch(KafkaError):
    """Bytes handed to the log are no sound batches; nothing was appended."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.corrupt_message, message)


class OutOfOrderOffsets(KafkaError):
    """Batches of a leader don't continue this log; nothing was appended."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.unknown_server_error, message)


class LogClosed(KafkaError):
    """The log was closed while it was made durable: its partition was taken out, most likely. What
    its files said then is no word of the disk."""

    def __init__(self, directory: str) -> None:
        super().__init__(ErrorCode.kafka_storage_error, f"{directory} was closed")


class LogIsDamaged(KafkaError):
    """The log was opened with damage before its synced offset and must be truncated first."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.kafka_storage_error, message)


@contextmanager
def full_is_failed() -> Iterator[None]:
    """Without room now, the log isn't whole: its directory has failed then."""
    try:
        yield
    except DiskFull as error:
        raise DiskError(error.path, error.operation, error.reason) from error
