"""Produce 3-13 (0 is advertised as the minimum, as Kafka does for librdkafka: KAFKA-18659).

acks 0, 1 and all. A request is walked in the receive buffer: header and CRC are checked, and its
batches are staged. At the end of the read event that brought it, what all its requests staged for a
partition goes to the log with one write, offsets and epochs patched in place. Nothing is done per
record unless the topic asks for it (compaction, timestamps, another codec).
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple
from uuid import UUID

from broker.batch_checks import checked_batch
from broker.cluster_view import node
from broker.context import BrokerContext
from broker.replica import Replica
from broker.waits import ProduceWait
from net.handlers import NO_RESPONSE, Api, CloseConnection, Frame, Later, Request
from storage.appending import Appended
from storage.producers import Duplicate
from wire.apis import ApiKey, ErrorCode
from wire.batch import BatchHeader
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


class Staged(NamedTuple):
    """A checked batch on its way into a log, and the place of its outcome."""

    batch: Any
    header: BatchHeader
    job: ProduceJob
    topic: int
    place: int
    append_time_ms: int


class _Wait(NamedTuple):
    """A partition of an acks=all request that is appended and not committed yet."""

    topic: int
    place: int
    replica: Replica
    end_offset: int


def apis(context: BrokerContext) -> list[Api]:
    handler = ProduceHandler(context)
    return [Api(ApiKey.PRODUCE, 3, 13, handler.handle, advertised_min=0)]


class ProduceHandler:
    """Stages the produces of a read event and appends them together at its end."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self._staged: dict[Replica, list[Staged]] = {}
        self._jobs: list[ProduceJob] = []
        self._connection: Any = None
        self._held: dict[asyncio.Task[None], None] = {}
        self._flush = self.flush

    def handle(self, request: Request) -> Any:
        """Answers at once where nothing was staged, else after the append (acks 1) or when the
        high watermark has passed (acks all)."""
        connection = request.connection
        if self._connection is not connection:
            # What a connection left that ended in the middle of its event lies in a buffer that
            # others use by now; nobody was told that it was appended.
            self._staged.clear()
            self._jobs.clear()
            self._connection = connection
        view = walk_produce(request.api_version, request.writable_body, request.max_elements)
        opening = self._opening(view)
        if opening is not None:
            return self._hold(request, opening)
        job = ProduceJob(self.context, request, view)
        job.stage(self._staged, request.client_id == _ADMIN_CLIENT)
        if job.missing:
            if not self._jobs:
                connection.at_read_end(self._flush)
            self._jobs.append(job)
            if view.acks == 0:
                return NO_RESPONSE
            job.later = Later()
            return job.later
        if view.acks == 0:
            refusal = job.refusal()
            if refusal is not None:
                self.flush()
                raise CloseConnection(refusal)
            return NO_RESPONSE
        return job.frame()

    def _opening(self, view: ProduceRequestView) -> asyncio.Event | None:
        """Set when a log is open that the request needs; None where nothing is to be waited for.

        A client knows a new partition's leader as soon as the image does, some milliseconds
        before the leader's log is there: to refuse would cost the client its retry backoff.
        """
        replicas = self.context.replicas
        for name, topic_id, partitions in view.topics:
            for index, _ in partitions:
                event = replicas.opening(name, topic_id, index)
                if event is not None:
                    return event
        return None

    def _hold(self, request: Request, opening: asyncio.Event) -> Later:
        """Handles a copy of the request as soon as the log is open."""
        copy = Request(
            request.header,
            memoryview(bytearray(request.body)),
            0,
            request.connection,
            request.received_ms,
        )
        later = Later()
        # Behind what the connection staged before it, so that its order stays.
        waiting = asyncio.get_running_loop().create_task(self._go_on(copy, opening, later))
        self._held[waiting] = None
        waiting.add_done_callback(self._held.pop)
        return later

    async def _go_on(self, request: Request, opening: asyncio.Event, later: Later) -> None:
        await opening.wait()
        try:
            reply = self.handle(request)
            self.flush()
        except Exception as error:  # noqa: BLE001 - the connection ends with it, as for any handler
            later.fail(error)
            return
        if isinstance(reply, Later):
            reply.bind(later.set)
        else:
            later.set(reply)

    def flush(self) -> None:
        """Appends all that was staged, and answers what needs no more."""
        staged, self._staged = self._staged, {}
        jobs, self._jobs = self._jobs, []
        for replica, batches in staged.items():
            self._append(replica, batches)
        for job in jobs:
            if job.later is not None:
                job.answer()
            else:
                refusal = job.refusal()
                if refusal is not None and self._connection is not None:
                    self._connection.close(refusal)

    def _append(self, replica: Replica, batches: list[Staged]) -> None:
        data = [staged.batch for staged in batches]
        size = sum(map(len, data))
        try:
            info = replica.append_as_leader(data, size, [staged.header for staged in batches])
        except (DiskError, KafkaError) as error:
            code = ErrorCode.kafka_storage_error
            if isinstance(error, KafkaError):
                code = error.code
            else:
                self.context.replicas.disk_failed(replica, error)
            for staged in batches:
                staged.job.refuse(staged, KafkaError(code, "the log refused the batch"))
            return
        self.context.replicas.bytes_in += info.size
        for staged, outcome in zip(batches, info.outcomes, strict=True):
            if isinstance(outcome, KafkaError):
                staged.job.refuse(staged, outcome)
            else:
                staged.job.appended(staged, replica, outcome)


class ProduceJob:
    """One produce request until it is answered. `missing` counts batches not appended yet."""

    __slots__ = (
        "_acks",
        "_context",
        "_correlation_id",
        "_endpoints",
        "_listener",
        "_timeout_ms",
        "_version",
        "_view",
        "_waits",
        "later",
        "missing",
        "results",
    )

    def __init__(self, context: BrokerContext, request: Request, view: ProduceRequestView) -> None:
        self._context = context
        self._view: ProduceRequestView | None = view
        self._acks = view.acks
        self._timeout_ms = view.timeout_ms
        self._version = request.api_version
        self._correlation_id = request.correlation_id
        self._listener = request.connection.listener
        self._endpoints: dict[int, NodeEndpoint] = {}
        self._waits: list[_Wait] = []
        self.later: Later | None = None
        self.missing = 0
        self.results: list[tuple[str | None, UUID | None, list[ProducedPartition]]] = []

    # -- before the append ---------------------------------------------------------------------

    def stage(self, staged: dict[Replica, list[Staged]], internal_allowed: bool) -> None:
        """Checks every batch; what may be appended is added to `staged`."""
        view, self._view = self._view, None
        assert view is not None
        refusal = None
        if view.acks not in (0, 1, ALL):
            refusal = KafkaError(
                ErrorCode.invalid_required_acks, f"acks is {view.acks}; it must be 0, 1 or -1"
            )
        wall_ms = self._context.env.clock.wall_ms()
        find = self._context.replicas.find
        for name, topic_id, partitions in view.topics:
            outcomes: list[ProducedPartition] = []
            self.results.append((name, topic_id, outcomes))
            for index, records in partitions:
                try:
                    if refusal is not None:
                        raise refusal
                    replica = find(name, topic_id, index)
                    if not isinstance(replica, Replica):
                        raise KafkaError(replica)
                    self._check(replica, internal_allowed)
                    batch, header, append_time_ms = checked_batch(
                        records, replica.settings, wall_ms, self._version
                    )
                except KafkaError as error:
                    outcomes.append(self._refused(name, topic_id, index, error))
                    continue
                place = Staged(
                    batch, header, self, len(self.results) - 1, len(outcomes), append_time_ms
                )
                batches = staged.get(replica)
                if batches is None:
                    staged[replica] = [place]
                else:
                    batches.append(place)
                self.missing += 1
                outcomes.append(ProducedPartition(index))

    def _check(self, replica: Replica, internal_allowed: bool) -> None:
        core = replica.core
        if replica.internal and not internal_allowed:
            raise KafkaError(
                ErrorCode.invalid_topic_exception, f"{replica.topic} is written by brokers only"
            )
        if replica.failed:
            raise KafkaError(ErrorCode.kafka_storage_error)
        if not core.is_leader:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        if self._acks == ALL and core.under_min_isr:
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"{len(core.isr)} replicas are in sync, {core.effective_min_isr} are required",
            )

    # -- after it ------------------------------------------------------------------------------

    def appended(self, staged: Staged, replica: Replica, outcome: Appended | Duplicate) -> None:
        """The batch is in the log; with acks=all it may have to wait for the others."""
        self.missing -= 1
        append_time_ms = staged.append_time_ms
        if isinstance(outcome, Duplicate):
            base, end = outcome.first_offset, outcome.last_offset + 1
            if append_time_ms >= 0:
                append_time_ms = outcome.timestamp_ms
        else:
            base, end = outcome.base_offset, outcome.last_offset + 1
        outcomes = self.results[staged.topic][2]
        outcomes[staged.place] = ProducedPartition(
            outcomes[staged.place].index, 0, base, append_time_ms, replica.log.log_start_offset
        )
        if self._acks == ALL:
            core = replica.core
            if end > core.high_watermark:
                self._waits.append(_Wait(staged.topic, staged.place, replica, end))
            elif len(core.maximal_isr) < core.effective_min_isr:
                self._fail(
                    staged.topic,
                    staged.place,
                    KafkaError(ErrorCode.not_enough_replicas_after_append),
                )

    def refuse(self, staged: Staged, error: KafkaError) -> None:
        """The batch was not appended."""
        self.missing -= 1
        self._fail(staged.topic, staged.place, error)

    def _fail(self, topic: int, place: int, error: KafkaError) -> None:
        name, topic_id, outcomes = self.results[topic]
        outcomes[place] = self._refused(name, topic_id, outcomes[place].index, error)

    def answer(self) -> None:
        """Answers now, or when every appended partition is committed or the time is over."""
        assert self.later is not None
        if not self._waits:
            self.later.set(self.frame())
            return
        wait = ProduceWait(len(self._waits), self._timeout_ms, self._committed)
        for slot, (_, _, replica, end_offset) in enumerate(self._waits):
            replica.produces.add(end_offset, wait, slot)

    def _committed(self, errors: list[ErrorCode]) -> None:
        for (topic, place, _, _), error in zip(self._waits, errors, strict=True):
            if error is not ErrorCode.none:
                self._fail(topic, place, KafkaError(error))
        assert self.later is not None
        self.later.set(self.frame())

    # -- answers -------------------------------------------------------------------------------

    def refusal(self) -> str | None:
        """Why an acks=0 request ends its connection, as Kafka does: it has no other answer."""
        for name, topic_id, outcomes in self.results:
            for outcome in outcomes:
                if outcome.error_code:
                    topic = name if name is not None else topic_id
                    return (
                        f"produce with acks=0 to {topic}-{outcome.index} was refused: "
                        f"{ErrorCode(outcome.error_code).name}"
                    )
        return None

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
