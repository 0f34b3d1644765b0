"""AlterPartition: the leader's proposals of who is in sync (KIP-497, KIP-903)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from broker.controller_queue import ControllerQueue, Key, by_topic
from broker.partition_events import AlterPartitionAnswered, ProposeIsr
from broker.tasks import OnFatal
from net.controller_channel import ControllerChannel
from wire.apis import ApiKey, ErrorCode

Answer = Callable[[UUID, int, AlterPartitionAnswered], None]

_RETRY_MS = 50
# So that the controller is through with one request in milliseconds.
_MOST_AT_ONCE = 500


class IsrProposals:
    """Proposals for the controller; `answer(topic_id, partition, event)` is called for each that
    was answered."""

    def __init__(
        self,
        channel: ControllerChannel,
        broker_id: int,
        broker_epoch: Callable[[], int],
        answer: Answer,
        on_fatal: OnFatal,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._answer = answer
        queue: ControllerQueue[ProposeIsr] = ControllerQueue(
            channel,
            ApiKey.ALTER_PARTITION,
            self._build,
            self._answered,
            on_fatal,
            most=_MOST_AT_ONCE,
            retry_ms=_RETRY_MS,
        )
        self.submit = queue.submit
        self.close = queue.close

    def _answered(self, proposals: dict[Key, ProposeIsr], response: Any) -> None:
        results = {
            (topic.topic_id, p.partition_index): p
            for topic in response.topics
            for p in topic.partitions
        }
        for (topic_id, partition), proposal in proposals.items():
            result = results.get((topic_id, partition))
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

    def _build(self, version: int, module: Any, proposals: dict[Key, ProposeIsr]) -> Any:
        topics = tuple(
            module.TopicData(
                topic_id=topic_id,
                partitions=tuple(
                    _partition(version, module, index, proposal) for index, proposal in found
                ),
            )
            for topic_id, found in by_topic(proposals).items()
        )
        return module.AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=topics
        )


def _partition(version: int, module: Any, index: int, proposal: ProposeIsr) -> Any:
    members: dict[str, Any]
    if version >= 3:
        members = {
            "new_isr_with_epochs": tuple(
                module.BrokerState(broker_id=b, broker_epoch=e) for b, e in proposal.isr
            )
        }
    else:
        members = {"new_isr": tuple(b for b, _ in proposal.isr)}
    return module.PartitionData(
        partition_index=index,
        leader_epoch=proposal.leader_epoch,
        # An unclean leader counts as recovered from its first proposal on.
        leader_recovery_state=0,
        partition_epoch=proposal.partition_epoch,
        **members,
    )
