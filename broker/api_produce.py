"""Produce 3-13 (0 is advertised as the minimum, as Kafka does for librdkafka: KAFKA-18659).

acks 0, 1 and all. The request is walked in the receive buffer: header and CRC are checked, offset
and epoch patched in place, and the batch goes to the log with one write. Nothing is done per record
unless the topic asks for it (compaction, timestamps, another codec).
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from broker.batch_checks import checked_batch
from broker.cluster_view import is_internal, node
from broker.context import BrokerContext
from broker.replica import Replica
from broker.waits import ProduceWait
from net.handlers import NO_RESPONSE, Api, CloseConnection, Frame, Later, Request
from storage.producers import Duplicate
from wire.apis import ApiKey, ErrorCode
from wire.errors import KafkaError
from wire.hot import (
    NodeEndpoint,
    ProducedPartition,
    ProducedTopic,
    ProduceRequestView,
    encode_produce_response,
    walk_produce,
)
from world.env import DiskError

ALL = -1
_ADMIN_CLIENT = "__admin_client"


class _Wait(NamedTuple):
    """A partition of an acks=all request that is appended and not committed yet."""

    topic: int
    partition: int
    replica: Replica
    end_offset: int


def apis(context: BrokerContext) -> list[Api]:
    return [Api(ApiKey.PRODUCE, 3, 13, lambda request: handle(context, request), advertised_min=0)]


def handle(context: BrokerContext, request: Request) -> Any:
    """Appends; answers at once, or with acks=all when the high watermark has passed."""
    view = walk_produce(request.api_version, request.writable_body)
    job = ProduceJob(context, request, view)
    job.append()
    if view.acks == 0:
        job.close_if_refused()
        return NO_RESPONSE
    if job.waits:
        return job.wait()
    return job.frame()


class ProduceJob:
    """One produce request until it is answered."""

    __slots__ = (
        "_context",
        "_correlation_id",
        "_endpoints",
        "_internal_allowed",
        "_later",
        "_listener",
        "_version",
        "_view",
        "results",
        "waits",
    )

    def __init__(self, context: BrokerContext, request: Request, view: ProduceRequestView) -> None:
        self._context = context
        self._view = view
        self._version = request.api_version
        self._correlation_id = request.correlation_id
        self._listener = request.connection.listener
        self._internal_allowed = request.client_id == _ADMIN_CLIENT
        self._endpoints: dict[int, NodeEndpoint] = {}
        self._later: Later | None = None
        self.results: list[tuple[str | None, UUID | None, list[ProducedPartition]]] = []
        self.waits: list[_Wait] = []

    def append(self) -> None:
        """Appends what can be; `results` has every partition's outcome so far."""
        view = self._view
        refusal = None
        if view.acks not in (0, 1, ALL):
            refusal = KafkaError(
                ErrorCode.invalid_required_acks, f"acks is {view.acks}; it must be 0, 1 or -1"
            )
        for name, topic_id, partitions in view.topics:
            outcomes: list[ProducedPartition] = []
            self.results.append((name, topic_id, outcomes))
            for index, records in partitions:
                try:
                    if refusal is not None:
                        raise refusal
                    outcome = self._append(name, topic_id, index, records)
                except KafkaError as error:
                    outcome = self._refused(name, topic_id, index, error)
                outcomes.append(outcome)

    def _append(
        self, name: str | None, topic_id: UUID | None, index: int, records: Any
    ) -> ProducedPartition:
        context = self._context
        replica = context.replicas.find(name, topic_id, index)
        if not isinstance(replica, Replica):
            raise KafkaError(replica)
        core = replica.core
        if is_internal(replica.topic) and not self._internal_allowed:
            raise KafkaError(
                ErrorCode.invalid_topic_exception, f"{replica.topic} is written by brokers only"
            )
        if replica.failed:
            raise KafkaError(ErrorCode.kafka_storage_error)
        if not core.is_leader:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        acks = self._view.acks
        if acks == ALL and core.under_min_isr:
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"{len(core.isr)} replicas are in sync, {core.effective_min_isr} are required",
            )
        wall_ms = context.env.clock.wall_ms()
        batch, append_time_ms = checked_batch(records, replica.settings, wall_ms, self._version)
        try:
            info = replica.append_as_leader([batch], len(batch))
        except DiskError as error:
            context.replicas.disk_failed(replica, error)
            raise KafkaError(ErrorCode.kafka_storage_error, "the disk refused the write") from error
        context.replicas.bytes_in += info.size
        outcome = info.outcomes[0]
        if isinstance(outcome, KafkaError):
            raise outcome
        if isinstance(outcome, Duplicate):
            base, end = outcome.first_offset, outcome.last_offset + 1
            if append_time_ms >= 0:
                append_time_ms = outcome.timestamp_ms
        else:
            base, end = outcome.base_offset, outcome.last_offset + 1
        if acks == ALL:
            if end > core.high_watermark:
                place = len(self.results) - 1, len(self.results[-1][2])
                self.waits.append(_Wait(*place, replica, end))
            elif len(core.maximal_isr) < core.effective_min_isr:
                raise KafkaError(ErrorCode.not_enough_replicas_after_append)
        return ProducedPartition(index, 0, base, append_time_ms, replica.log.log_start_offset)

    def _refused(
        self, name: str | None, topic_id: UUID | None, index: int, error: KafkaError
    ) -> ProducedPartition:
        hint = None
        if error.code is ErrorCode.not_leader_or_follower:
            hint = self._leader_hint(name, topic_id, index)
        return ProducedPartition(
            index,
            error.code,
            record_errors=getattr(error, "record_errors", ()),
            error_message=error.message,
            current_leader=hint,
        )

    def _leader_hint(
        self, name: str | None, topic_id: UUID | None, index: int
    ) -> tuple[int, int] | None:
        image = self._context.image
        key = name if name is not None else topic_id
        partition = None if key is None else image.partition(key, index)
        if partition is None or partition.leader < 0:
            return None
        found = node(image, partition.leader, self._listener)
        if found is not None:
            self._endpoints[found.id] = NodeEndpoint(found.id, found.host, found.port, found.rack)
        return partition.leader, partition.leader_epoch

    # -- answering -----------------------------------------------------------------------------

    def close_if_refused(self) -> None:
        """acks=0 has no answer: an error is told by closing the connection, as Kafka does."""
        for name, topic_id, outcomes in self.results:
            for outcome in outcomes:
                if outcome.error_code:
                    topic = name if name is not None else topic_id
                    raise CloseConnection(
                        f"produce with acks=0 to {topic}-{outcome.index} was refused: "
                        f"{ErrorCode(outcome.error_code).name}"
                    )

    def frame(self) -> Frame:
        """The answer as things stand."""
        topics = [ProducedTopic(*result) for result in self.results]
        return Frame(
            [
                encode_produce_response(
                    self._version,
                    self._correlation_id,
                    topics,
                    node_endpoints=tuple(self._endpoints.values()),
                )
            ]
        )

    def wait(self) -> Later:
        """Answers when every appended partition is committed, or the time is over."""
        self._later = Later()
        wait = ProduceWait(len(self.waits), self._view.timeout_ms, self._committed)
        for slot, (_, _, replica, end_offset) in enumerate(self.waits):
            replica.produces.add(end_offset, wait, slot)
        return self._later

    def _committed(self, errors: list[ErrorCode]) -> None:
        for (topic, partition, _, _), error in zip(self.waits, errors, strict=True):
            if error is not ErrorCode.none:
                name, topic_id, outcomes = self.results[topic]
                outcomes[partition] = self._refused(
                    name, topic_id, outcomes[partition].index, KafkaError(error)
                )
        assert self._later is not None
        self._later.set(self.frame())
