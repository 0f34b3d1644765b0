"""AssignReplicasToDirs: which log directory holds which replica (KIP-858).

Needed where a broker has several directories: the controller leaves the choice to it, and must know
it to see which partitions a failed directory takes away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import structlog

from broker.controller_queue import ControllerQueue, Key, by_topic
from broker.tasks import OnFatal
from net.controller_channel import ControllerChannel
from wire.apis import ApiKey, ErrorCode

_RETRY_MS = 1_000
# So that the controller is through with one request in milliseconds.
_MOST_AT_ONCE = 500


class DirectoryAssignments:
    """(topic id, partition) -> directory id, for the controller."""

    def __init__(
        self,
        channel: ControllerChannel,
        broker_id: int,
        broker_epoch: Callable[[], int],
        on_fatal: OnFatal,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._log = structlog.get_logger("broker.directories").bind(node_id=broker_id)
        queue: ControllerQueue[UUID] = ControllerQueue(
            channel,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
            self._build,
            self._answered,
            on_fatal,
            most=_MOST_AT_ONCE,
            retry_ms=_RETRY_MS,
        )
        self.submit = queue.submit
        self.close = queue.close

    def _answered(self, placed: dict[Key, UUID], response: Any) -> None:
        for directory in response.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    if partition.error_code is not ErrorCode.none:
                        # A partition that is gone, or no longer ours: nothing is left to say.
                        self._log.info(
                            "assignment_of_partition_refused",
                            partition=partition.partition_index,
                            error=partition.error_code.name,
                        )

    def _build(self, version: int, module: Any, placed: dict[Key, UUID]) -> Any:
        per_directory: dict[UUID, dict[Key, UUID]] = {}
        for key, directory_id in placed.items():
            per_directory.setdefault(directory_id, {})[key] = directory_id
        return module.AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            directories=tuple(
                module.DirectoryData(
                    id_=directory_id,
                    topics=tuple(
                        module.TopicData(
                            topic_id=topic_id,
                            partitions=tuple(
                                module.PartitionData(partition_index=index) for index, _ in found
                            ),
                        )
                        for topic_id, found in by_topic(held).items()
                    ),
                )
                for directory_id, held in per_directory.items()
            ),
        )
