"""Fetch 4-18, for consumers and for followers, with long poll.

Whole batches go from the page cache to the socket: the answer holds ranges of segment files. A
fetch that finds less than its minimum is parked as a count of bytes still short. Sessions (KIP-227)
are not kept: every answer says session 0, so every client sends full requests.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from broker.batch_checks import ZSTD
from broker.cluster_view import node
from broker.context import BrokerContext
from broker.replica import Replica
from broker.waits import ParkedFetch
from net.handlers import Api, FileRange, Frame, Later, Request
from storage.errors import OffsetOutOfRange
from wire.apis import ApiKey, ErrorCode
from wire.errors import DamagedFile, DecodeError, KafkaError
from wire.hot import (
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    NodeEndpoint,
    decode_fetch_request,
    encode_fetch_response,
)
from world.env import DiskError

_READ_COMMITTED = 1
# However long a client is ready to wait: an empty answer is always allowed, and a connection with
# so many waiting fetches that its reading is paused is not seen to be gone before one is answered.
_LONGEST_WAIT_MS = 60_000
_ZSTD_SINCE = 10
# A follower names each partition with up to two tagged fields, in every fetch.
_MAX_ELEMENTS = 50_000
_HINTED = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)


def apis(context: BrokerContext) -> list[Api]:
    return [
        Api(
            ApiKey.FETCH,
            4,
            18,
            lambda request: handle(context, request),
            max_elements=_MAX_ELEMENTS,
        )
    ]


def handle(context: BrokerContext, request: Request) -> Any:
    """A Frame where the answer is due now, else a Later."""
    version = request.api_version
    asked = decode_fetch_request(version, request.body, request.max_elements)
    if asked.session_id != 0 and asked.session_epoch > 0:
        parts = encode_fetch_response(
            version,
            request.correlation_id,
            (),
            error_code=ErrorCode.fetch_session_id_not_found,
        )
        return Frame(parts)
    job = FetchJob(context, request, asked)
    job.plan(first=True)
    if job.due or job.full or job.size >= job.least or asked.max_wait_ms <= 0:
        return job.frame()
    return job.park()


class FetchJob:
    """One fetch until it is answered. `size` and `due` are what the last `plan` found; `least` is
    what is worth an answer, never more than one can hold; `full` says that there is more than it
    holds: the rest of a segment, or the batches that fit. Waiting would add nothing to those."""

    __slots__ = (
        "_asked",
        "_connection",
        "_context",
        "_correlation_id",
        "_endpoints",
        "_later",
        "_left",
        "_listener",
        "_most",
        "_parked",
        "_starts",
        "_topics",
        "_version",
        "due",
        "full",
        "least",
        "size",
    )

    def __init__(self, context: BrokerContext, request: Request, asked: FetchRequest) -> None:
        self._context = context
        self._asked = asked
        self._version = request.api_version
        self._correlation_id = request.correlation_id
        self._connection = request.connection
        self._listener = request.connection.listener
        self._topics: list[FetchedTopic] = []
        self._endpoints: dict[int, NodeEndpoint] = {}
        self._most = min(asked.max_bytes, context.config.fetch_max_bytes)
        self.least = min(asked.min_bytes, self._most)
        self._left = 0
        # The log starts that this answer tells, added up: a change of one is news for a follower.
        self._starts = 0
        self._later: Later | None = None
        self._parked: ParkedFetch | None = None
        self.size = 0
        # Whether something in the answer must not wait: an error, a divergence.
        self.due = False
        self.full = False

    # -- planning ------------------------------------------------------------------------------

    def plan(self, *, first: bool) -> None:
        """Reads what is there. Only the `first` plan counts as the follower's word."""
        asked = self._asked
        told = self._starts
        self.size = 0
        self._starts = 0
        self.due = not asked.topics
        self.full = False
        self._left = self._most
        self._topics = [
            FetchedTopic(
                topic.name,
                topic.topic_id,
                [
                    self._partition(topic.name, topic.topic_id, partition, first)
                    for partition in topic.partitions
                ],
            )
            for topic in asked.topics
        ]
        if not first and asked.replica_id >= 0 and self._starts != told:
            self.due = True

    def _partition(
        self, name: str | None, topic_id: UUID | None, asked: FetchPartition, first: bool
    ) -> FetchedPartition:
        replica = self._context.replicas.find(name, topic_id, asked.partition)
        if not isinstance(replica, Replica):
            return self._refuse(asked, replica, None)
        error = self._check(replica, asked)
        if error is not ErrorCode.none:
            return self._refuse(asked, error, replica)
        try:
            return self._read(replica, asked, first)
        except OffsetOutOfRange as refused:
            return self._refuse(asked, refused.code, replica)
        except (KafkaError, DiskError, DamagedFile, DecodeError) as problem:
            self._context.replicas.read_failed(replica.topic, replica.index, problem)
            return self._refuse(asked, ErrorCode.kafka_storage_error, replica)

    def _check(self, replica: Replica, asked: FetchPartition) -> ErrorCode:
        core = replica.core
        if replica.failed:
            return ErrorCode.kafka_storage_error
        if replica.settings.codec == ZSTD and self._version < _ZSTD_SINCE:
            return ErrorCode.unsupported_compression_type
        error = core.check_epoch(asked.current_leader_epoch, leader_only=True)
        if error is ErrorCode.none and self._asked.replica_id >= 0:
            error = core.check_follower(
                self._asked.replica_id, self._asked.replica_epoch, asked.current_leader_epoch
            )
        return error

    def _read(self, replica: Replica, asked: FetchPartition, first: bool) -> FetchedPartition:
        core, log = replica.core, replica.log
        offset = asked.fetch_offset
        follower = self._asked.replica_id >= 0
        if asked.last_fetched_epoch >= 0:
            diverging = self._divergence(replica, asked)
            if diverging is not None:
                self.due = True
                return FetchedPartition(
                    asked.partition,
                    0,
                    core.high_watermark,
                    core.high_watermark,
                    log.log_start_offset,
                    diverging_epoch=diverging,
                )
        if not log.log_start_offset <= offset <= log.end_offset:
            raise OffsetOutOfRange(offset, log.log_start_offset, log.end_offset)
        if follower and first:
            replica.follower_fetched(
                self._asked.replica_id, self._asked.replica_epoch, offset, asked.log_start_offset
            )
        self._starts += log.log_start_offset
        stable = core.high_watermark
        committed_only = self._asked.isolation_level == _READ_COMMITTED and not follower
        if committed_only:
            stable = replica.last_stable_offset()
        upto = log.end_offset if follower else stable
        records: tuple[Any, ...] = ()
        size = 0
        if offset < upto and self._left <= 0 < self.size:
            self.full = True
        elif offset < upto:
            found = log.read(
                offset,
                max(0, min(asked.max_bytes, self._left)),
                upto=upto,
                min_one=self.size == 0,
            )
            if found is None or found.next_offset < upto:
                self.full = True
            if found is not None and found.length:
                size = found.length
                records = (FileRange(found.file, found.position, size),)
                self.size += size
                self._left -= size
        return FetchedPartition(
            asked.partition,
            0,
            core.high_watermark,
            stable,
            log.log_start_offset,
            () if committed_only else None,
            records=records,
            records_size=size,
        )

    def _divergence(self, replica: Replica, asked: FetchPartition) -> tuple[int, int] | None:
        """(epoch, end offset) up to which the logs agree, None where they do up to the fetch."""
        epoch, end = replica.log.end_offset_for_epoch(asked.last_fetched_epoch)
        if epoch < 0 or end < 0:
            raise OffsetOutOfRange(
                asked.fetch_offset, replica.log.log_start_offset, replica.log.end_offset
            )
        if asked.fetch_offset < replica.log.log_start_offset:
            return None
        if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
            return epoch, end
        return None

    def _refuse(
        self, asked: FetchPartition, error: ErrorCode, replica: Replica | None
    ) -> FetchedPartition:
        self.due = True
        hint = None
        if error in _HINTED and replica is not None:
            hint = replica.leader_hint
            if hint is not None:
                self._name_node(hint[0])
        return FetchedPartition(asked.partition, error, current_leader=hint)

    def _name_node(self, node_id: int) -> None:
        found = node(self._context.image, node_id, self._listener)
        if found is not None:
            self._endpoints[node_id] = NodeEndpoint(node_id, found.host, found.port, found.rack)

    # -- answering -----------------------------------------------------------------------------

    def frame(self) -> Frame:
        """The answer as planned last."""
        self._context.replicas.bytes_out += self.size
        return Frame(
            encode_fetch_response(
                self._version,
                self._correlation_id,
                self._topics,
                node_endpoints=tuple(self._endpoints.values()),
            )
        )

    def park(self) -> Later:
        """Waits until there is enough, something happened, or the time is over."""
        asked = self._asked
        replicas = self._context.replicas
        wait_ms = min(asked.max_wait_ms, _LONGEST_WAIT_MS)
        parked = ParkedFetch(replicas.wakes, self.least - self.size, wait_ms, self._look)
        for topic in asked.topics:
            for partition in topic.partitions:
                replica = replicas.find(topic.name, topic.topic_id, partition.partition)
                if isinstance(replica, Replica):
                    parked.join(replica.followers if asked.replica_id >= 0 else replica.consumers)
        self._parked = parked
        self._later = Later()
        self._later.on_dropped = parked.leave
        return self._later

    def _look(self) -> None:
        parked, later = self._parked, self._later
        assert parked is not None
        assert later is not None
        if later.done:
            return
        if self._connection.closed:
            parked.leave()
            later.set(Frame([]))
            return
        self.plan(first=False)
        if parked.expired or self.due or self.full or self.size >= self.least:
            parked.leave()
            later.set(self.frame())
        else:
            parked.stay(self.least - self.size)
