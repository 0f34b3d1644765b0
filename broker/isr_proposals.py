"""Sends ISR proposals to the controller: all partitions in one AlterPartition, one in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import structlog

from broker.partition_events import AlterPartitionAnswered, ProposeIsr
from broker.tasks import OnFatal, spawn
from net.controller_channel import ControllerChannel, ControllerUnreachable
from net.errors import UnsupportedVersion
from wire.apis import ApiKey, ErrorCode

Answer = Callable[[UUID, int, AlterPartitionAnswered], None]

_TIMEOUT_MS = 30_000
_RETRY_S = 0.05


class IsrProposals:
    """Collects proposals while one request is in flight and sends the rest together after it.

    `answer(topic_id, partition, event)` is called for each proposal that was answered. A later
    proposal of the same partition replaces one that has not left yet.
    """

    def __init__(
        self,
        channel: ControllerChannel,
        broker_id: int,
        broker_epoch: Callable[[], int],
        answer: Answer,
        on_fatal: OnFatal,
    ) -> None:
        self._channel = channel
        self._on_fatal = on_fatal
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._answer = answer
        self._waiting: dict[tuple[UUID, int], ProposeIsr] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._log = structlog.get_logger("broker.isr").bind(node_id=broker_id)
        self.sent = 0
        self.failed = 0

    def submit(self, topic_id: UUID, partition: int, proposal: ProposeIsr) -> None:
        """Takes a proposal; it leaves in this turn of the loop or after the one in flight."""
        self._waiting[topic_id, partition] = proposal
        if self._task is None and not self._closed:
            self._task = spawn("isr-proposals", self._run, self._on_fatal)

    async def close(self) -> None:
        """Forgets what was not answered."""
        self._closed = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, {}
                if not await self._send(batch):
                    # Newer proposals win over those that come back.
                    self._waiting = {**batch, **self._waiting}
                    self.failed += 1
                    await asyncio.sleep(_RETRY_S)
        finally:
            self._task = None

    async def _send(self, batch: dict[tuple[UUID, int], ProposeIsr]) -> bool:
        """False if the whole request came to nothing and must be repeated."""
        by_topic: dict[UUID, list[tuple[int, ProposeIsr]]] = {}
        for (topic_id, partition), proposal in batch.items():
            by_topic.setdefault(topic_id, []).append((partition, proposal))
        self.sent += 1
        try:
            response = await self._channel.request(
                ApiKey.ALTER_PARTITION, lambda v, m: self._build(v, m, by_topic), _TIMEOUT_MS
            )
        except (ControllerUnreachable, UnsupportedVersion) as error:
            self._log.warning("alter_partition_failed", reason=str(error))
            return False
        if response.error_code is not ErrorCode.none:
            self._log.warning("alter_partition_refused", error=response.error_code.name)
            return False
        answered = {}
        for topic in response.topics:
            for p in topic.partitions:
                answered[topic.topic_id, p.partition_index] = p
        for (topic_id, partition), proposal in batch.items():
            result = answered.get((topic_id, partition))
            if result is None:
                event = AlterPartitionAnswered(proposal.token, ErrorCode.unknown_server_error)
            else:
                event = AlterPartitionAnswered(
                    proposal.token,
                    result.error_code,
                    tuple(result.isr),
                    result.leader_epoch,
                    result.partition_epoch,
                )
            self._answer(topic_id, partition, event)
        return True

    def _build(
        self, version: int, module: Any, by_topic: dict[UUID, list[tuple[int, ProposeIsr]]]
    ) -> Any:
        topics = []
        for topic_id, proposals in by_topic.items():
            partitions = []
            for partition, p in proposals:
                members: dict[str, Any] = (
                    {
                        "new_isr_with_epochs": tuple(
                            module.BrokerState(broker_id=b, broker_epoch=e) for b, e in p.isr
                        )
                    }
                    if version >= 3
                    else {"new_isr": tuple(b for b, _ in p.isr)}
                )
                partitions.append(
                    module.PartitionData(
                        partition_index=partition,
                        leader_epoch=p.leader_epoch,
                        # An unclean leader counts as recovered from its first proposal on.
                        leader_recovery_state=0,
                        partition_epoch=p.partition_epoch,
                        **members,
                    )
                )
            topics.append(module.TopicData(topic_id=topic_id, partitions=tuple(partitions)))
        return module.AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=tuple(topics)
        )
