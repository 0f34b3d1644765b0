"""The logs of this broker in its log directories: found, made, taken out, written down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from metadata.image import MetadataImage
from storage.config import LogConfig
from storage.log import Log
from storage.log_dir import LogDirectory

NO_EPOCH = -1


class StoredLog:
    """An open log and where it is. `high_watermark` is what the last checkpoint said."""

    __slots__ = ("directory", "high_watermark", "index", "log", "topic")

    def __init__(
        self, directory: LogDirectory, topic: str, index: int, log: Log, high_watermark: int
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.index = index
        self.log = log
        self.high_watermark = high_watermark

    @property
    def directory_id(self) -> UUID | None:
        """The id of the directory it lies in, None where that has none."""
        return None if self.directory.meta is None else self.directory.meta.directory_id

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.index


class LogStore:
    """The opened log directories of one broker; `close` closes them."""

    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        assert directories, "a broker needs a log directory"
        self.directories = list(directories)
        # Logs being opened by directory path: they count when the next one is placed.
        self._opening: dict[str, int] = {}

    @property
    def directory_ids(self) -> tuple[UUID, ...]:
        """The ids in the directories' meta.properties."""
        return tuple(
            d.meta.directory_id
            for d in self.directories
            if d.meta is not None and d.meta.directory_id is not None
        )

    @property
    def previous_epoch(self) -> int:
        """The broker epoch of the last clean stop; NO_EPOCH unless all directories agree on it."""
        epochs = [d.previous_broker_epoch if d.was_clean else None for d in self.directories]
        first = epochs[0]
        return NO_EPOCH if first is None or any(e != first for e in epochs) else first

    async def open(
        self, topic: str, topic_id: UUID, index: int, config: LogConfig, directory_id: UUID | None
    ) -> StoredLog:
        """Opens a partition's log where it is, or makes it in the directory that the controller
        chose, or else in the one with the fewest. One of another topic id is set aside as stray.

        Raises DiskError.
        """
        directory = self._holding(topic, index) or self._chosen(directory_id)
        self._opening[directory.path] = self._opening.get(directory.path, 0) + 1
        try:
            return await self._open_in(directory, topic, topic_id, index, config)
        finally:
            self._opening[directory.path] -= 1

    async def _open_in(
        self, directory: LogDirectory, topic: str, topic_id: UUID, index: int, config: LogConfig
    ) -> StoredLog:
        log = await directory.open_log(topic, index, config, topic_id)
        if log.topic_id != topic_id:
            await directory.set_stray(topic, index)
            log = await directory.open_log(topic, index, config, topic_id)
        mark = directory.high_watermarks.get((topic, index), 0)
        return StoredLog(directory, topic, index, log, mark)

    async def delete(self, stored: StoredLog) -> None:
        """Takes a log out; its files go after file.delete.delay.ms."""
        delay_ms = stored.log.config.file_delete_delay_ms
        await stored.directory.delete_log(stored.topic, stored.index, delay_ms)

    async def set_strays_aside(self, image: MetadataImage, broker_id: int) -> list[str]:
        """Sets partitions aside that the image has no place for here; their new paths.

        To be called when all that it has a place for is open.
        """
        moved = []
        for directory in self.directories:
            for topic, index in directory.partitions():
                if (topic, index) in directory.logs:
                    continue
                partition = image.partition(topic, index)
                if partition is None or broker_id not in partition.replicas:
                    moved.append(await directory.set_stray(topic, index))
        return moved

    async def write_high_watermarks(self, marks: Mapping[StoredLog, int]) -> None:
        """Writes the high watermarks; logs that are not open yet keep theirs."""
        for directory in self.directories:
            kept = {k: v for k, v in directory.high_watermarks.items() if k not in directory.logs}
            now = {s.key: mark for s, mark in marks.items() if s.directory is directory}
            marks_here = {**kept, **now}
            if marks_here != directory.high_watermarks:
                await directory.write_high_watermarks(marks_here)

    async def flush(self) -> None:
        """Makes all logs durable and writes recovery points and log starts."""
        for directory in self.directories:
            await directory.flush_all()

    async def delete_due(self, now_ms: int) -> None:
        """Removes files whose delay is over."""
        for directory in self.directories:
            await directory.delete_due(now_ms)

    async def close(self, broker_epoch: int) -> None:
        """Closes all logs cleanly and leaves the clean shutdown marker with this epoch."""
        for directory in self.directories:
            await directory.close(broker_epoch=broker_epoch)

    def sizes(self, directory: LogDirectory) -> Iterable[tuple[str, int, int]]:
        """(topic, partition, bytes) of the open logs of a directory, in order."""
        return [(t, i, directory.logs[t, i].size) for t, i in sorted(directory.logs)]

    def _holding(self, topic: str, index: int) -> LogDirectory | None:
        for directory in self.directories:
            if directory.env.disk.is_dir(directory.partition_path(topic, index)):
                return directory
        return None

    def _chosen(self, directory_id: UUID | None) -> LogDirectory:
        for directory in self.directories:
            if directory.meta is not None and directory.meta.directory_id == directory_id:
                return directory
        return min(self.directories, key=lambda d: len(d.logs) + self._opening.get(d.path, 0))
