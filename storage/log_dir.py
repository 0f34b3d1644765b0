"""A node's log directory: its identity, its lock, its checkpoints, and the partitions in it.

Laid out as Kafka's (meta.properties as of KIP-858). Runs nothing by itself: the owner calls the
coroutines when they are due (Kafka's periods: high watermarks 5 s, recovery points and log
starts 60 s, deletes when file.delete.delay.ms is over).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from storage import names
from storage.cleaning.dirt import Dirt
from storage.cleaning.work import Limits, LogChanged, Pass, clean
from storage.config import LogConfig
from storage.errors import LogClosed
from storage.leftovers import make_directory
from storage.log import Log
from wire import checkpoints, clean_shutdown, meta_properties
from wire.errors import DamagedFile
from wire.meta_properties import MetaProperties
from world.env import Absent, Env, Lock

TopicPartition = tuple[str, int]

META_PROPERTIES = "meta.properties"
LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"
METADATA_PARTITION = ("__cluster_metadata", 0)
# So many logs are flushed or closed at a time: a file system takes their syncs together.
_AT_ONCE = 8


class LogDirectory:
    """One of a node's `log.dirs`. Made by `LogDirectory.open`.

    `meta`: the content of meta.properties, None if there is none yet. `was_clean`: the last
    stop left the clean shutdown marker; `previous_broker_epoch` is the epoch in it.
    `high_watermarks`: as of the last stop. `damaged`: side files that could not be read; they
    count as absent, and what they held is derived again. `absent`: the recovery points of
    partitions without a directory: a deletion may have been cut short by a crash, or somebody has
    removed it.
    """

    def __init__(self, env: Env, path: str, lock: Lock) -> None:
        self.env = env
        self.path = path
        self.meta: MetaProperties | None = None
        self.was_clean = False
        self.previous_broker_epoch: int | None = None
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.logs: dict[TopicPartition, Log] = {}
        self.damaged: list[DamagedFile] = []
        self.absent: dict[TopicPartition, int] = {}
        self._lock = lock
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._cleaned_offsets: dict[TopicPartition, int] = {}
        self._written_cleaned: dict[TopicPartition, int] = {}
        self._written_points: dict[TopicPartition, int] = {}
        self._doomed: list[tuple[int, str]] = []
        # Partitions that were opened since the start, and whether that came to its end.
        self._opened: dict[TopicPartition, bool] = {}
        self._recovering: dict[TopicPartition, asyncio.Task[Any] | None] = {}
        self._has_marker = False
        self._marker = asyncio.Lock()
        self._writing: dict[str, asyncio.Event] = {}
        # Partitions that aren't here and that the checkpoint files on the disk may still name: a
        # number, for one may be made and taken out again while the files are written.
        self._gone: dict[TopicPartition, int] = {}
        self._gone_count = 0

    @classmethod
    async def open(cls, env: Env, path: str) -> LogDirectory:
        """Lock the directory (made if absent) and read its side files.

        Raises AlreadyLocked, DiskError, or DamagedFile if meta.properties makes no sense.
        """
        await make_directory(env.disk, path)
        directory = cls(env, path, env.disk.lock(f"{path}/{LOCK}"))
        try:
            await directory._load()
        except BaseException:
            directory._lock.release()
            raise
        return directory

    async def _load(self) -> None:
        disk = self.env.disk
        try:
            data = disk.read_bytes(self._file(META_PROPERTIES))
            self.meta = meta_properties.decode(data, self._file(META_PROPERTIES))
        except Absent:
            self.meta = None
        self._recovery_points = self._read_offsets(RECOVERY_POINTS)
        self._written_points = dict(self._recovery_points)
        self._log_starts = self._read_offsets(LOG_STARTS)
        self._cleaned_offsets = self._read_offsets(CLEANED_OFFSETS)
        self._written_cleaned = dict(self._cleaned_offsets)
        self.high_watermarks = self._read_offsets(HIGH_WATERMARKS)
        try:
            marker = disk.read_bytes(self._file(CLEAN_SHUTDOWN))
        except Absent:
            pass
        else:
            self.was_clean = self._has_marker = True
            self.previous_broker_epoch = clean_shutdown.decode(marker)
        now_ms = self.env.clock.now_ms()
        listed = dict.fromkeys(disk.list_dir(self.path))
        for name in listed:
            if names.is_marked_dir(name, "delete"):
                self._doomed.append((now_ms, self._file(name)))
        for key in [key for offsets in self._offsets() for key in offsets]:
            if key != METADATA_PARTITION and names.partition_dir(*key) not in listed:
                if key in self._recovery_points:
                    self.absent[key] = self._recovery_points[key]
                self._forget(key)

    def _offsets(self) -> tuple[dict[TopicPartition, int], ...]:
        return (
            self._recovery_points,
            self._log_starts,
            self._cleaned_offsets,
            self.high_watermarks,
        )

    def _forget(self, key: TopicPartition) -> None:
        """A partition isn't here: what the files say of it is about no later one of its name."""
        self._gone_count += 1
        self._gone[key] = self._gone_count
        for offsets in self._offsets():
            offsets.pop(key, None)

    async def _write_without_gone(self) -> None:
        """Take those that aren't here out of the files, durably."""
        gone = dict(self._gone)
        await self.write_recovery_points()
        await self.write_log_starts()
        await self.write_cleaned_offsets()
        await self.write_high_watermarks(self.high_watermarks)
        for key, number in gone.items():
            if self._gone.get(key) == number:
                del self._gone[key]

    async def _take_marker_off(self) -> None:
        """From the first touch on, a stop without a word is not a clean one; nor is it before this
        is durable. Whoever only looked leaves the directory as clean as it was."""
        async with self._marker:
            if self._has_marker:
                self.env.disk.remove(self._file(CLEAN_SHUTDOWN))
                await self.env.disk.sync_dir(self.path)
                self._has_marker = False

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        path = self._file(name)
        try:
            return checkpoints.decode_offsets(self.env.disk.read_bytes(path), path)
        except Absent:
            return {}
        except DamagedFile as damage:
            self.damaged.append(damage)
            return {}

    async def write_meta(self, meta: MetaProperties) -> None:
        """Write meta.properties, durably."""
        data = meta_properties.encode(meta)
        await self.env.disk.replace(self._file(META_PROPERTIES), data)
        self.meta = meta

    def partitions(self) -> list[TopicPartition]:
        """Partitions that have a directory here, sorted; the metadata log is not one."""
        disk = self.env.disk
        found = [
            parsed
            for name in disk.list_dir(self.path)
            if (parsed := names.parse_partition_dir(name)) is not None
            and parsed != METADATA_PARTITION
            and disk.is_dir(self._file(name))
        ]
        return sorted(found)

    def partition_path(self, topic: str, partition: int) -> str:
        return self._file(names.partition_dir(topic, partition))

    async def open_log(
        self, topic: str, partition: int, config: LogConfig, topic_id: UUID | None = None
    ) -> Log:
        """Open a partition's log, made if absent (then with `topic_id` in its metadata).

        What stray directories or ids mean is for the caller: `log.topic_id` is what the
        directory says, None if it says nothing. Raises DiskError.
        """
        key = (topic, partition)
        assert key not in self.logs, f"{topic}-{partition} is open"
        await self._take_marker_off()
        path = self.partition_path(topic, partition)
        is_new = not self.env.disk.is_dir(path)
        if is_new and key in self._gone:
            await self._write_without_gone()
        clean = self.was_clean and not is_new and key not in self._opened
        self._opened[key] = False
        if not clean and not is_new:
            self._recovering[key] = asyncio.current_task()
        try:
            log = await Log.open(
                self.env,
                path,
                config,
                recovery_point=self._recovery_points.get(key, 0),
                clean=clean,
                log_start_offset=None if is_new else self._log_starts.get(key),
                cleaned_to=0 if is_new else self._cleaned_offsets.get(key, 0),
            )
        finally:
            self._recovering.pop(key, None)
        if log.topic_id is None and topic_id is not None:
            await log.set_topic_id(topic_id)
        log.on_lowered_recovery_point = partial(self._recovery_point_fell, key)
        self._opened[key] = True
        self.logs[key] = log
        return log

    def stop_recovery(self) -> None:
        """Break off what may take long: the tasks that recover a log now are cancelled, and those
        logs are as a crash leaves them."""
        for task in self._recovering.values():
            if task is not None:
                task.cancel()

    async def delete_log(self, topic: str, partition: int, delay_ms: int) -> None:
        """Take a partition out, durably; its files go with `delete_due` after `delay_ms`."""
        target = await self._mark(topic, partition, "delete")
        self._doomed.append((self.env.clock.now_ms() + delay_ms, target))

    async def set_stray(self, topic: str, partition: int) -> str:
        """Set a partition's directory aside as stray, durably; its new path."""
        return await self._mark(topic, partition, "stray")

    async def _mark(self, topic: str, partition: int, mark: str) -> str:
        await self._take_marker_off()
        log = self.logs.pop((topic, partition), None)
        if log is not None:
            await log.close(clean=False)
        token = self.env.ids.uuid().hex
        target = self._file(names.marked_dir(topic, partition, token, mark))
        self.env.disk.rename(self.partition_path(topic, partition), target)
        await self.env.disk.sync_dir(self.path)
        self._forget((topic, partition))
        return target

    async def delete_due(self, now_ms: int) -> int:
        """Remove segments and partition directories whose delay is over; how many."""
        count = 0
        for log in list(self.logs.values()):
            count += await log.delete_due_files(now_ms)
        due = [path for when, path in self._doomed if when <= now_ms]
        self._doomed = [entry for entry in self._doomed if entry[0] > now_ms]
        for path in due:
            await self.env.run_blocking(self.env.disk.remove_tree, path)
        return count + len(due)

    async def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the high watermarks of all partitions here, durably."""
        self.high_watermarks = dict(offsets)
        await self._write_offsets(HIGH_WATERMARKS, lambda: self.high_watermarks)

    async def write_recovery_points(self) -> None:
        """Write what is known to be durable. Partitions not opened yet keep their entry."""

        def points() -> Mapping[TopicPartition, int]:
            merged = self._merged(self._recovery_points, lambda log: log.recovery_point)
            self._written_points = dict(merged)
            return merged

        await self._write_offsets(RECOVERY_POINTS, points)

    async def _recovery_point_fell(self, key: TopicPartition) -> None:
        log = self.logs.get(key)
        if log is None:
            return
        if log.recovery_point < self._written_points.get(key, 0):
            await self.write_recovery_points()
        if log.cleaned_to < self._written_cleaned.get(key, 0):
            await self.write_cleaned_offsets()

    async def write_log_starts(self) -> None:
        """Write the log start of partitions where it isn't simply the first segment's."""
        await self._write_offsets(
            LOG_STARTS, lambda: self._merged(self._log_starts, _explicit_log_start)
        )

    async def write_cleaned_offsets(self) -> None:
        """Write how far partitions have been through the cleaner."""

        def offsets() -> Mapping[TopicPartition, int]:
            merged = self._merged(self._cleaned_offsets, lambda log: log.cleaned_to or None)
            self._written_cleaned = dict(merged)
            return merged

        await self._write_offsets(CLEANED_OFFSETS, offsets)

    async def clean_log(self, topic: str, partition: int, dirt: Dirt, limits: Limits) -> Pass:
        """Do one pass of the cleaner over an open log, and write down how far it is clean.

        Raises as `storage.cleaning.work.clean`; what it did then counts at the next start, too.
        """
        log = self.logs[topic, partition]
        # A record goes because of a newer one: that must not be lost without it. And the holes
        # that cleaning leaves must not be taken for a torn end, which is looked for from the
        # recovery point on.
        truncations = log.truncations
        try:
            await log.flush(dirt.end)
        except LogClosed as error:
            raise LogChanged(str(error)) from error
        if self._written_points.get((topic, partition), 0) < dirt.end:
            await self.write_recovery_points()
        if log.closed or log.truncations != truncations:
            raise LogChanged(f"{log.directory} was closed or truncated")
        done = await clean(log, dirt, limits)
        await self.write_cleaned_offsets()
        return done

    def _merged(
        self, stored: dict[TopicPartition, int], value: Callable[[Log], int | None]
    ) -> dict[TopicPartition, int]:
        for key, log in self.logs.items():
            offset = value(log)
            if offset is None:
                stored.pop(key, None)
            else:
                stored[key] = offset
        return stored

    async def _write_offsets(
        self, name: str, offsets: Callable[[], Mapping[TopicPartition, int]]
    ) -> None:
        """Write what `offsets` says when it's this call's turn: one write of a file at a time."""
        while (before := self._writing.get(name)) is not None:
            await before.wait()
        done = self._writing[name] = asyncio.Event()
        try:
            await self.env.disk.replace(self._file(name), checkpoints.encode_offsets(offsets()))
        finally:
            del self._writing[name]
            done.set()

    async def flush_all(self) -> None:
        """Make every log durable, then write the recovery points and log starts."""
        await _each([log for log in self.logs.values() if not log.is_flushed], _flush)
        await self.write_recovery_points()
        await self.write_log_starts()

    def release(self) -> None:
        """Give the directory up without closing anything: for one in which no log was opened."""
        self._lock.release()

    async def close(self, *, clean: bool = True, broker_epoch: int = -1) -> None:
        """Close all logs. A clean close writes everything, the marker last.

        The marker is left out if a log could not be closed cleanly, then the error is raised; and
        if a partition here is not known to be sound, since its recovery did not come to its end.
        """
        try:
            await _each(list(self.logs.values()), lambda log: log.close(clean))
            if clean:
                await self.write_recovery_points()
                await self.write_log_starts()
                await self.write_cleaned_offsets()
                await self._write_offsets(HIGH_WATERMARKS, lambda: self.high_watermarks)
                if all(self._opened.get(key, self.was_clean) for key in self.partitions()):
                    marker = clean_shutdown.encode(broker_epoch)
                    await self.env.disk.replace(self._file(CLEAN_SHUTDOWN), marker)
        finally:
            self._lock.release()


async def _each(logs: Sequence[Log], work: Callable[[Log], Awaitable[Any]]) -> None:
    """Does `work` with every log, a few at a time. Raises an error when all had their turn."""
    waiting = iter(logs)

    async def take_turns() -> None:
        for log in waiting:
            await work(log)

    tasks = [asyncio.ensure_future(take_turns()) for _ in logs[:_AT_ONCE]]
    try:
        await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        for task in tasks:
            task.cancel()
    for task in tasks:
        task.result()


async def _flush(log: Log) -> None:
    with suppress(LogClosed):  # it was taken out meanwhile
        await log.flush()


def _explicit_log_start(log: Log) -> int | None:
    first: int = log.segments.peekitem(0)[0]
    return log.log_start_offset if log.log_start_offset > first else None
