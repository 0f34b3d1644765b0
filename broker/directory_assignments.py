"""Tells the controller which log directory holds which replica (KIP-858), one request in flight.

Needed where a broker has several directories: the controller leaves the choice to it, and must know
it to see which partitions a failed directory takes away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import structlog

from broker.tasks import OnFatal, spawn
from net.controller_channel import ControllerChannel, ControllerUnreachable
from net.errors import UnsupportedVersion
from wire.apis import ApiKey, ErrorCode

_TIMEOUT_MS = 30_000
_RETRY_S = 1.0
_MOST_AT_ONCE = 2250


class DirectoryAssignments:
    """Collects (topic id, partition) -> directory id and sends what the controller lacks."""

    def __init__(
        self,
        channel: ControllerChannel,
        broker_id: int,
        broker_epoch: Callable[[], int],
        on_fatal: OnFatal,
    ) -> None:
        self._channel = channel
        self._on_fatal = on_fatal
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._waiting: dict[tuple[UUID, int], UUID] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._log = structlog.get_logger("broker.directories").bind(node_id=broker_id)
        self.failed = 0

    def submit(self, topic_id: UUID, partition: int, directory_id: UUID) -> None:
        """The replica lies in that directory."""
        self._waiting[topic_id, partition] = directory_id
        if self._task is None and not self._closed:
            self._task = spawn("directories", self._run, self._on_fatal)

    async def close(self) -> None:
        """Forgets what was not answered."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                keys = list(self._waiting)[:_MOST_AT_ONCE]
                batch = {key: self._waiting.pop(key) for key in keys}
                if not await self._send(batch):
                    self._waiting = {**batch, **self._waiting}
                    self.failed += 1
                    await asyncio.sleep(_RETRY_S)
        finally:
            self._task = None

    async def _send(self, batch: dict[tuple[UUID, int], UUID]) -> bool:
        try:
            answer = await self._channel.request(
                ApiKey.ASSIGN_REPLICAS_TO_DIRS, lambda _, m: self._build(m, batch), _TIMEOUT_MS
            )
        except (ControllerUnreachable, UnsupportedVersion) as error:
            self._log.warning("assignment_failed", reason=str(error))
            return False
        if answer.error_code is not ErrorCode.none:
            self._log.warning("assignment_refused", error=answer.error_code.name)
            return False
        for directory in answer.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    if partition.error_code is not ErrorCode.none:
                        # A partition that is gone, or no longer ours: nothing is left to say.
                        self._log.info(
                            "assignment_of_partition_refused",
                            partition=partition.partition_index,
                            error=partition.error_code.name,
                        )
        return True

    def _build(self, m: Any, batch: dict[tuple[UUID, int], UUID]) -> Any:
        directories: dict[UUID, dict[UUID, list[int]]] = {}
        for (topic_id, partition), directory_id in batch.items():
            directories.setdefault(directory_id, {}).setdefault(topic_id, []).append(partition)
        return m.AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            directories=tuple(
                m.DirectoryData(
                    id_=directory_id,
                    topics=tuple(
                        m.TopicData(
                            topic_id=topic_id,
                            partitions=tuple(m.PartitionData(partition_index=p) for p in found),
                        )
                        for topic_id, found in topics.items()
                    ),
                )
                for directory_id, topics in directories.items()
            ),
        )
