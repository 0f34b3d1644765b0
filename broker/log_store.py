"""The logs of this broker in its log directories: found, made, taken out, written down.

A directory whose disk failed is offline until the broker is started again (KIP-112): nothing in it
is read or written any more, and what lies in the others goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from uuid import UUID

from metadata.image import MetadataImage
from storage.config import LogConfig
from storage.log import Log
from storage.log_dir import LogDirectory
from storage.scan import Damage
from world.env import DiskError, DiskFull

NO_EPOCH = -1


class DirectoryOffline(Exception):
    """A replica lies, or is to lie, in a log directory that has failed."""


class NoRoom(Exception):
    """A log can't be opened or made in the only log directory there is, which is full."""


class StoredLog:
    """An open log and where it is. `high_watermark` is what the last checkpoint said, `damage` what
    was found missing; where it was set aside for that, and another one begun, `aside` is where.
    `absent`: how far a log of this name was synced that should be here, and isn't; or None."""

    __slots__ = (
        "absent",
        "aside",
        "damage",
        "directory",
        "high_watermark",
        "index",
        "log",
        "topic",
    )

    def __init__(
        self,
        directory: LogDirectory,
        topic: str,
        index: int,
        log: Log,
        high_watermark: int,
        damage: Sequence[Damage] = (),
        aside: str | None = None,
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.index = index
        self.log = log
        self.high_watermark = high_watermark
        self.damage = damage
        self.aside = aside
        self.absent: int | None = None

    @property
    def directory_id(self) -> UUID | None:
        """The id of the directory it lies in, None where that has none."""
        return None if self.directory.meta is None else self.directory.meta.directory_id

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.index


class LogStore:
    """The opened log directories of one broker; `close` closes them. `on_failed` is told once of
    each that fails. `unopened` are the paths of those that had failed at start: what lies in them,
    and their ids, nobody knows."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        on_failed: Callable[[LogDirectory, DiskError], None],
        unopened: Sequence[str] = (),
    ) -> None:
        assert directories, "a broker needs a log directory"
        self.directories = list(directories)
        self.unopened = tuple(unopened)
        self._on_failed = on_failed
        self._offline: dict[str, None] = {}  # by path
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
    def online(self) -> list[LogDirectory]:
        """The directories that have not failed."""
        return [d for d in self.directories if d.path not in self._offline]

    def is_online(self, directory: LogDirectory) -> bool:
        return directory.path not in self._offline

    def is_last(self, directory: LogDirectory) -> bool:
        """Whether no other directory is left."""
        return self.online == [directory]

    def fail(self, directory: LogDirectory, error: DiskError) -> None:
        """The disk refused something there: the directory is offline from now on."""
        if self.is_online(directory):
            self._offline[directory.path] = None
            self._on_failed(directory, error)

    @property
    def previous_epoch(self) -> int:
        """The broker epoch of the last clean stop; NO_EPOCH unless all directories agree on it."""
        if self.unopened:
            return NO_EPOCH
        epochs = [d.previous_broker_epoch if d.was_clean else None for d in self.directories]
        first = epochs[0]
        return NO_EPOCH if first is None or any(e != first for e in epochs) else first

    async def open(
        self,
        topic: str,
        topic_id: UUID,
        index: int,
        config: LogConfig,
        directory_id: UUID | None,
        *,
        is_new: bool = False,
        is_spare: Callable[[], bool] = lambda: False,
    ) -> StoredLog:
        """Opens a partition's log where it is, or makes it in the directory that the controller
        chose, or else in the one with the fewest. One of another topic id is set aside as stray.
        `is_new`: it has been assigned to this broker since the start. `is_spare`: whether another
        leads, and nobody counts on this replica. One that lacks records is set aside then, too: it
        would pass for whole as soon as it reached the end, and what it lacks would be gone for all
        once it leads.

        Raises DirectoryOffline where that directory has failed, or fails now, or where the log may
        lie in one that could not be opened at start; NoRoom where it is full and there is no other.
        """
        directory = self._holding(topic, index, directory_id)
        if directory is None and (is_new or not self.unopened or self._with_id(directory_id)):
            directory = self._with_id(directory_id) or self._emptiest()
        if directory is None or not self.is_online(directory):
            raise DirectoryOffline(f"the log directory of {topic}-{index} is offline")
        self._opening[directory.path] = self._opening.get(directory.path, 0) + 1
        try:
            stored = await self._open_in(directory, topic, topic_id, index, config, is_spare)
        except DiskError as error:
            if isinstance(error, DiskFull) and self.is_last(directory):
                raise NoRoom(str(error)) from error
            self.fail(directory, error)
            raise DirectoryOffline(str(error)) from error
        finally:
            self._opening[directory.path] -= 1
        absent = directory.absent.pop((topic, index), None)
        stored.absent = None if is_new else absent
        return stored

    async def _open_in(
        self,
        directory: LogDirectory,
        topic: str,
        topic_id: UUID,
        index: int,
        config: LogConfig,
        is_spare: Callable[[], bool],
    ) -> StoredLog:
        log = await directory.open_log(topic, index, config, topic_id)
        aside: str | None = None
        damage: tuple[Damage, ...] = ()
        if log.topic_id == topic_id:
            damage = tuple(log.recovery.all_damage)
        # One that only ends too early will get the rest.
        has_hole = any(one.offset < log.end_offset for one in damage)
        if log.topic_id != topic_id or (has_hole and is_spare()):
            aside = await directory.set_stray(topic, index)
            log = await directory.open_log(topic, index, config, topic_id)
        mark = directory.high_watermarks.get((topic, index), 0)
        return StoredLog(directory, topic, index, log, mark, damage, aside if damage else None)

    async def delete(self, stored: StoredLog) -> None:
        """Takes a log out; its files go after file.delete.delay.ms."""
        delay_ms = stored.log.config.file_delete_delay_ms
        directory = stored.directory
        if self.is_online(directory):
            try:
                await directory.delete_log(stored.topic, stored.index, delay_ms)
            except DiskError as error:
                self.fail(directory, error)

    async def set_strays_aside(self, image: MetadataImage, broker_id: int) -> list[str]:
        """Sets partitions aside that the image has no place for here, and what is left of those
        that were made anew in another directory; their new paths.

        To be called when all that it has a place for is open.
        """
        moved: list[str] = []

        async def look(directory: LogDirectory) -> None:
            for topic, index in directory.partitions():
                if (topic, index) in directory.logs:
                    continue
                partition = image.partition(topic, index)
                twice = any((topic, index) in other.logs for other in self.directories)
                if twice or partition is None or broker_id not in partition.replicas:
                    moved.append(await directory.set_stray(topic, index))

        await self._in_each(look)
        return moved

    async def write_high_watermarks(self, marks: Mapping[StoredLog, int]) -> None:
        """Writes the high watermarks; logs that are not open yet keep theirs."""

        async def write(directory: LogDirectory) -> None:
            kept = {k: v for k, v in directory.high_watermarks.items() if k not in directory.logs}
            now = {s.key: mark for s, mark in marks.items() if s.directory is directory}
            marks_here = {**kept, **now}
            if marks_here != directory.high_watermarks:
                await directory.write_high_watermarks(marks_here)

        await self._in_each(write)

    async def flush(self) -> None:
        """Makes all logs durable and writes recovery points and log starts."""
        await self._in_each(LogDirectory.flush_all)

    async def delete_due(self, now_ms: int) -> None:
        """Removes files whose delay is over."""

        async def delete(directory: LogDirectory) -> None:
            await directory.delete_due(now_ms)

        await self._in_each(delete)

    async def _in_each(self, work: Callable[[LogDirectory], Awaitable[None]]) -> None:
        """Does `work` in every directory that is online. One that fails at it is offline then; a
        full one is only told of when the others had their turn (DiskFull)."""
        full: DiskFull | None = None
        for directory in self.online:
            try:
                await work(directory)
            except DiskFull as error:
                full = error
            except DiskError as error:
                self.fail(directory, error)
        if full is not None:
            raise full

    def stop_recovery(self) -> None:
        """Breaks off the opening of logs that are recovered, which may take long; their tasks are
        cancelled."""
        for directory in self.directories:
            directory.stop_recovery()

    async def close(self, broker_epoch: int) -> None:
        """Closes all logs cleanly and leaves the clean shutdown marker with this epoch, but in
        directories that are offline; without one (NO_EPOCH: never registered) the logs are as the
        last clean stop left them, if there was one. A directory that fails at it is offline, too,
        and not marked as clean."""
        if broker_epoch == NO_EPOCH:
            broker_epoch = self.previous_epoch
        for directory in self.directories:
            try:
                online = self.is_online(directory)
                await directory.close(clean=online, broker_epoch=broker_epoch)
            except DiskError as error:
                self.fail(directory, error)

    def sizes(self, directory: LogDirectory) -> Iterable[tuple[str, int, int]]:
        """(topic, partition, bytes) of the open logs of a directory, in order."""
        return [(t, i, directory.logs[t, i].size) for t, i in sorted(directory.logs)]

    def _holding(self, topic: str, index: int, directory_id: UUID | None) -> LogDirectory | None:
        """The directory with the partition's log: of several the one that the controller knows.
        (One that had failed has come back, and the replica was made anew meanwhile.)"""
        holding = [
            directory
            for directory in self.directories
            if directory.env.disk.is_dir(directory.partition_path(topic, index))
        ]
        known = self._with_id(directory_id)
        return known if known in holding else next(iter(holding), None)

    def _with_id(self, directory_id: UUID | None) -> LogDirectory | None:
        for directory in self.directories:
            if directory.meta is not None and directory.meta.directory_id == directory_id:
                return directory
        return None

    def _emptiest(self) -> LogDirectory | None:
        return min(
            self.online, key=lambda d: len(d.logs) + self._opening.get(d.path, 0), default=None
        )
