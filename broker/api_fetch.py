"""Fetch 4-18, for consumers and for followers, with long poll.

Whole batches go from the page cache to the socket: the answer holds ranges of segment files. A
fetch that finds less than its minimum is parked as a count of bytes still short. A request in a
session (KIP-227) names what has changed of it, and its answer what is new. From version 11 on
consumers read from followers, too, and a leader may tell them to (KIP-392).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import ref

from broker.batch_checks import ZSTD
from broker.cluster_view import node
from broker.context import BrokerContext
from broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    SessionPartition,
)
from broker.partition import Role
from broker.replica import Replica
from broker.replica_selection import closest_replica
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
from wire.hot.fetch_request import NO_HIGH_WATERMARK
from world.env import DiskError

_READ_COMMITTED = 1
# However long a client is ready to wait: an empty answer is always allowed, and a connection with
# so many waiting fetches that its reading is paused is not seen to be gone before one is answered.
_LONGEST_WAIT_MS = 60_000
_ZSTD_SINCE = 10
_STORAGE_ERROR_SINCE = 6
_SESSIONS_SINCE = 7
_RACKS_SINCE = 11
_IDS_SINCE = 13
_HINTS_SINCE = 16
# A follower names each partition with up to two tagged fields, in every fetch: enough for 50,000
# that two brokers share.
_MAX_ELEMENTS = 150_000
_NOBODY = -1
_HINTED = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)

# Past the constructor, which would take the fields one by one: this runs for every partition.
_new_tuple = tuple.__new__


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
    session: FetchSession | None = None
    if asked.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        try:
            session = context.fetch_sessions.resume(
                asked.session_id,
                asked.session_epoch,
                asked.topics,
                asked.forgotten,
                by_id=version >= _IDS_SINCE,
                now_ms=context.env.clock.now_ms(),
            )
        except KafkaError as refused:
            return Frame(
                encode_fetch_response(version, request.correlation_id, (), error_code=refused.code)
            )
    elif asked.session_id != NO_SESSION:
        context.fetch_sessions.remove(asked.session_id)
    job = FetchJob(context, request, asked, session)
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
        "_committed_only",
        "_connection",
        "_context",
        "_correlation_id",
        "_endpoints",
        "_epoch",
        "_follower",
        "_later",
        "_leader_only",
        "_left",
        "_listener",
        "_most",
        "_parked",
        "_parts",
        "_prompt",
        "_rack",
        "_session",
        "_told",
        "_topics",
        "_version",
        "due",
        "full",
        "least",
        "size",
    )

    def __init__(
        self,
        context: BrokerContext,
        request: Request,
        asked: FetchRequest,
        session: FetchSession | None,
    ) -> None:
        self._context = context
        self._asked = asked
        self._version = request.api_version
        self._correlation_id = request.correlation_id
        self._connection = request.connection
        self._listener = request.connection.listener
        self._session = session
        self._epoch = 0 if session is None else session.epoch
        self._parts: list[SessionPartition] = []
        if session is not None:
            self._parts = list(session.partitions.values())
        self._topics: list[FetchedTopic] = []
        self._endpoints: dict[int, NodeEndpoint] = {}
        self._most = min(asked.max_bytes, context.config.fetch_max_bytes)
        self.least = min(asked.min_bytes, self._most)
        self._left = 0
        self._follower = follower = asked.replica_id >= 0
        self._committed_only = not follower and asked.isolation_level == _READ_COMMITTED
        rack_aware = context.config.rack_aware_reads
        self._leader_only = follower or self._version < _RACKS_SINCE
        # Where consumers read from followers, these are told of the high watermark at once.
        self._prompt = follower and rack_aware
        self._rack = "" if follower or not rack_aware else asked.rack_id
        # The log starts that this answer tells, added up, and the high watermarks where they are
        # urgent: a change of one is news for a follower.
        self._told = 0
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
        told = self._told
        self.size = 0
        self._told = 0
        self.due = False
        self.full = False
        self._left = self._most
        look, find = self._partition, self._context.replicas.find
        if self._session is not None:
            answers = [look(self._found(part), part.asked, first) for part in self._parts]
            self._topics = [FetchedTopic(None, None, answers)]
        else:
            self.due = not asked.topics
            self._topics = [
                FetchedTopic(
                    topic.name,
                    topic.topic_id,
                    [
                        look(find(topic.name, topic.topic_id, p.partition), p, first)
                        for p in topic.partitions
                    ],
                )
                for topic in asked.topics
            ]
        if self._follower and self._told != told and not first:
            self.due = True
        if self._prompt and first and self._has_new_marks():
            self.due = True

    def _has_new_marks(self) -> bool:
        """Whether the follower lacks a high watermark, as far as it is known what it knows."""
        answers = (answer for topic in self._topics for answer in topic.partitions)
        for (asked, told), answer in zip(self._wanted(), answers, strict=True):
            known = told if asked.high_watermark == NO_HIGH_WATERMARK else asked.high_watermark
            if 0 <= known < answer.high_watermark:
                return True
        return False

    def _wanted(self) -> Iterator[tuple[FetchPartition, int]]:
        """What is asked for, in the order of the answers, and the high watermark told last."""
        for part in self._parts:
            yield part.asked, part.high_watermark
        if self._session is None:
            for topic in self._asked.topics:
                for partition in topic.partitions:
                    yield partition, -1

    def _found(self, part: SessionPartition) -> Replica | ErrorCode:
        found: Replica | None = part.found and part.found()
        if found is not None and not found.removed:
            return found
        anew = self._context.replicas.find(part.name, part.topic_id, part.asked.partition)
        # A session that nobody uses any more holds no log that is gone.
        part.found = ref(anew) if isinstance(anew, Replica) else None
        return anew

    def _partition(
        self, replica: Replica | ErrorCode, asked: FetchPartition, first: bool
    ) -> FetchedPartition:
        if not isinstance(replica, Replica):
            return self._refuse(asked, replica, None)
        core, epoch = replica.core, asked.current_leader_epoch
        if (
            self._follower
            or replica.failed
            or (epoch != core.leader_epoch and epoch >= 0)
            or (self._leader_only and core.role is not Role.LEADER)
            or self._version < _ZSTD_SINCE
        ):
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
        error = core.check_epoch(asked.current_leader_epoch, leader_only=self._leader_only)
        if error is ErrorCode.none and self._follower:
            error = core.check_follower(
                self._asked.replica_id, self._asked.replica_epoch, asked.current_leader_epoch
            )
        return error

    def _read(self, replica: Replica, asked: FetchPartition, first: bool) -> FetchedPartition:
        core, log = replica.core, replica.log
        offset, last_epoch, end = asked.fetch_offset, asked.last_fetched_epoch, log.end_offset
        if self._rack and core.is_leader:
            closest = closest_replica(core, self._rack, offset, self._rack_of)
            if closest is not None:
                self.due = True
                return self._empty(replica, asked, preferred_read_replica=closest)
        if last_epoch >= 0 and (last_epoch != log.epochs.latest or offset > end):
            diverging = self._divergence(replica, asked)
            if diverging is not None:
                self.due = True
                return self._empty(replica, asked, diverging_epoch=diverging)
        if not log.log_start_offset <= offset <= end:
            raise OffsetOutOfRange(offset, log.log_start_offset, end)
        if self._follower:
            if first:
                request = self._asked
                replica.follower_fetched(
                    request.replica_id, request.replica_epoch, offset, asked.log_start_offset
                )
            self._told += log.log_start_offset
            if self._prompt:
                self._told += core.high_watermark
        mark, stable = core.high_watermark, replica.last_stable_offset()
        upto = end if self._follower else stable if self._committed_only else mark
        records: tuple[Any, ...] = ()
        aborted: list[tuple[int, int]] | None = [] if self._committed_only else None
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
                if self._committed_only:
                    aborted = log.aborted_transactions(offset, found.next_offset)
        return _new_tuple(
            FetchedPartition,
            (
                asked.partition, 0, mark, stable, log.log_start_offset, aborted, _NOBODY,
                records, size, None, None, None,
            ),
        )  # fmt: skip

    def _empty(self, replica: Replica, asked: FetchPartition, **why: Any) -> FetchedPartition:
        return FetchedPartition(
            asked.partition,
            0,
            replica.core.high_watermark,
            replica.last_stable_offset(),
            replica.log.log_start_offset,
            **why,
        )

    def _rack_of(self, broker_id: int) -> str | None:
        found = node(self._context.image, broker_id, self._listener)
        return None if found is None else found.rack

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
        if error in _HINTED and replica is not None and self._version >= _HINTS_SINCE:
            hint = replica.leader_hint
            if hint is not None:
                self._name_node(hint[0])
        if error is ErrorCode.kafka_storage_error and self._version < _STORAGE_ERROR_SINCE:
            error = ErrorCode.not_leader_or_follower
        return FetchedPartition(asked.partition, error, current_leader=hint)

    def _name_node(self, node_id: int) -> None:
        found = node(self._context.image, node_id, self._listener)
        if found is not None:
            self._endpoints[node_id] = NodeEndpoint(node_id, found.host, found.port, found.rack)

    # -- answering -----------------------------------------------------------------------------

    def frame(self) -> Frame:
        """The answer as planned last."""
        error, session_id, topics = ErrorCode.none, NO_SESSION, self._topics
        session = self._session
        if session is None:
            if self._asked.session_epoch == INITIAL_EPOCH and self._version >= _SESSIONS_SINCE:
                session_id = self._begin_session()
        elif session.epoch != self._epoch:
            # The client has asked again meanwhile, and waits for that answer alone.
            error, session_id, topics = ErrorCode.invalid_fetch_session_epoch, session.id, []
        else:
            session_id, topics = session.id, session.news(self._parts, topics[0].partitions)
        if error is ErrorCode.none:
            self._context.replicas.bytes_out += self.size
        return Frame(
            encode_fetch_response(
                self._version,
                self._correlation_id,
                topics,
                error_code=error,
                session_id=session_id,
                node_endpoints=tuple(self._endpoints.values()),
            )
        )

    def _begin_session(self) -> int:
        """Remembers what was asked for and is answered now; the id by which it will be known."""
        session = self._context.fetch_sessions.create(
            self._asked.topics,
            privileged=self._follower,
            uses_ids=self._version >= _IDS_SINCE,
            now_ms=self._context.env.clock.now_ms(),
        )
        if session is None:
            return NO_SESSION
        for topic in self._topics:
            for answer in topic.partitions:
                key = session.key(topic.name, topic.topic_id, answer.index)
                session.partitions[key].tell(answer)
        return session.id

    def park(self) -> Later:
        """Waits until there is enough, something happened, or the time is over."""
        replicas = self._context.replicas
        wait_ms = min(self._asked.max_wait_ms, _LONGEST_WAIT_MS)
        short = self.least - self.size
        parked = ParkedFetch(replicas.wakes, short, wait_ms, self._look, urgent=self._prompt)
        for replica in self._replicas():
            if isinstance(replica, Replica):
                parked.join(replica.followers if self._follower else replica.consumers)
        self._parked = parked
        self._later = Later()
        self._later.on_dropped = parked.leave
        return self._later

    def _replicas(self) -> Iterator[Replica | ErrorCode]:
        for part in self._parts:
            yield self._found(part)
        if self._session is None:
            find = self._context.replicas.find
            for topic in self._asked.topics:
                for partition in topic.partitions:
                    yield find(topic.name, topic.topic_id, partition.partition)

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
        if self.size or parked.touched:
            parked.touched = False
            self.plan(first=False)
        if parked.expired or self.due or self.full or self.size >= self.least:
            parked.leave()
            later.set(self.frame())
        else:
            parked.stay(self.least - self.size)
