"""Incremental fetch sessions (KIP-227): what a client asked for last, and what it was told.

Pure: times come from outside, ids are drawn by `draw`. A session's client names only partitions
that are new or of which it wants something else, and is told only of those that have news. Requests
are numbered by the session epoch: one that was lost or came twice is noticed. The cache is of a
fixed size, and who may push whom out is Kafka's rule (`FetchSessions._make_room`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from sortedcontainers import SortedKeyList

from wire.errors import ErrorCode, KafkaError
from wire.hot import FetchedPartition, FetchedTopic, FetchForgotten, FetchPartition, FetchTopic

NO_SESSION = 0
# Epochs of full requests: the first makes a session, the other ends the one it names.
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_ID = 2**31 - 1
# As in Kafka, where KIP-227's min.incremental.fetch.session.eviction.ms is no setting.
EVICTION_MS = 120_000
# What is remembered of a partition takes some 400 bytes; how many there may be in all sessions.
MOST_PARTITIONS = 500_000

Key = tuple[str | UUID | None, int]
"""A partition: by topic id from version 13 on, by name before."""
_Rank = tuple[bool, int, int]


def next_epoch(epoch: int) -> int:
    """The epoch of the request after one of `epoch`."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _MAX_ID else epoch + 1


class SessionPartition:
    """One partition of a session: what is asked for, and what its client was told last (-1: nothing
    that counts). `found` is the owner's: what it found the partition to be last."""

    __slots__ = ("asked", "found", "high_watermark", "log_start", "name", "topic_id")

    def __init__(self, name: str | None, topic_id: UUID | None, asked: FetchPartition) -> None:
        self.name = name
        self.topic_id = topic_id
        self.asked = asked
        self.found: Any = None
        self.high_watermark = -1
        self.log_start = -1

    def tell(self, answer: FetchedPartition) -> bool:
        """Whether the answer has news for the client, who is told them now."""
        news = (
            answer.records_size > 0
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start
            or answer.preferred_read_replica >= 0
            or answer.error_code != 0
            or answer.diverging_epoch is not None
        )
        # After an error it is told anew when the error is over.
        self.high_watermark = -1 if answer.error_code else answer.high_watermark
        self.log_start = answer.log_start_offset
        return news


class FetchSession:
    """`privileged`: a follower's. `epoch` is that of the request to come. `partitions` are in the
    order in which they get their share of the next answer."""

    __slots__ = (
        "created_ms",
        "epoch",
        "id",
        "partitions",
        "privileged",
        "rank",
        "ripe",
        "used_ms",
        "uses_ids",
    )

    def __init__(self, session_id: int, privileged: bool, uses_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.privileged = privileged
        self.uses_ids = uses_ids
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: dict[Key, SessionPartition] = {}
        # As of the last use: (privileged, size, id), of which the least is pushed out first, and
        # whether it is old enough for anybody to do so.
        self.rank: _Rank = (privileged, 0, session_id)
        self.ripe = False

    def key(self, name: str | None, topic_id: UUID | None, index: int) -> Key:
        return (topic_id if self.uses_ids else name, index)

    def want(self, topics: Iterable[FetchTopic], forgotten: Iterable[FetchForgotten] = ()) -> None:
        """Takes in what a request says: partitions that are wanted (otherwise), or no more."""
        partitions = self.partitions
        for topic in topics:
            for asked in topic.partitions:
                key = self.key(topic.name, topic.topic_id, asked.partition)
                known = partitions.get(key)
                if known is None:
                    partitions[key] = SessionPartition(topic.name, topic.topic_id, asked)
                else:
                    if asked.current_leader_epoch != known.asked.current_leader_epoch:
                        # What was told in the epoch before may not have been taken in.
                        known.high_watermark = -1
                    known.asked = asked
        for gone in forgotten:
            for index in gone.partitions:
                partitions.pop(self.key(gone.name, gone.topic_id, index), None)

    def news(
        self, parts: Sequence[SessionPartition], answers: Sequence[FetchedPartition]
    ) -> list[FetchedTopic]:
        """What of the answers is to be told; the client counts as told. Whoever got records goes to
        the end of the line, so that a small answer does not starve the others."""
        topics: list[FetchedTopic] = []
        told: list[FetchedPartition] = []
        topic: tuple[str | None, UUID | None] | None = None
        for part, answer in zip(parts, answers, strict=True):
            if not part.tell(answer):
                continue
            if topic != (part.name, part.topic_id):
                told = []
                topic = (part.name, part.topic_id)
                topics.append(FetchedTopic(part.name, part.topic_id, told))
            told.append(answer)
            if answer.records_size:
                key = self.key(part.name, part.topic_id, answer.index)
                if self.partitions.get(key) is part:
                    self.partitions[key] = self.partitions.pop(key)
        return topics


class FetchSessions:
    """All sessions of one broker: at most `slots`, with at most `most_partitions` together.

    `draw(low, high)` gives a number in between, both included.
    """

    def __init__(
        self,
        slots: int,
        draw: Callable[[int, int], int],
        *,
        eviction_ms: int = EVICTION_MS,
        most_partitions: int = MOST_PARTITIONS,
    ) -> None:
        self._slots = slots
        self._draw = draw
        self._eviction_ms = eviction_ms
        self._most_partitions = most_partitions
        # By last use: the one that is idle longest comes first.
        self._sessions: dict[int, FetchSession] = {}
        self._evictable_by_privileged: SortedKeyList[FetchSession] = SortedKeyList(key=_rank)
        self._evictable_by_all: SortedKeyList[FetchSession] = SortedKeyList(key=_rank)
        self.partitions = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def create(
        self, topics: Sequence[FetchTopic], *, privileged: bool, uses_ids: bool, now_ms: int
    ) -> FetchSession | None:
        """A session of all that a full request asks for; None where there is no room for it."""
        size = sum(len(topic.partitions) for topic in topics)
        if not self._make_room(privileged, size, now_ms):
            return None
        session_id = self._draw(1, _MAX_ID)
        while session_id in self._sessions:
            session_id = self._draw(1, _MAX_ID)
        session = FetchSession(session_id, privileged, uses_ids, now_ms)
        session.want(topics)
        self._sessions[session_id] = session
        self._count(session, now_ms, new=True)
        return session

    def resume(
        self,
        session_id: int,
        epoch: int,
        topics: Sequence[FetchTopic],
        forgotten: Sequence[FetchForgotten],
        *,
        by_id: bool,
        now_ms: int,
    ) -> FetchSession | None:
        """The session that an incremental request continues, with what it changes; None where it
        leaves nothing of it. Raises KafkaError for the whole request."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(
                ErrorCode.fetch_session_id_not_found, f"there is no fetch session {session_id}"
            )
        if session.epoch != epoch:
            raise KafkaError(
                ErrorCode.invalid_fetch_session_epoch,
                f"fetch session {session_id} is in epoch {session.epoch}, not {epoch}",
            )
        if session.uses_ids != by_id:
            raise KafkaError(
                ErrorCode.fetch_session_topic_id_error,
                f"fetch session {session_id} is of a version that names topics otherwise",
            )
        session.want(topics, forgotten)
        if not session.partitions:
            self.remove(session_id)
            return None
        session.epoch = next_epoch(epoch)
        session.used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        self._count(session, now_ms)
        if self.partitions > self._most_partitions:
            self.remove(session_id)
            raise KafkaError(
                ErrorCode.fetch_session_id_not_found, "the fetch sessions have too many partitions"
            )
        return session

    def remove(self, session_id: int) -> None:
        """Ends a session, if there is one of this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= session.rank[1]
            self._evictable_by_privileged.discard(session)
            self._evictable_by_all.discard(session)

    def _make_room(self, privileged: bool, size: int, now_ms: int) -> bool:
        """Whether there is a place for a session of `size` partitions; one may have to go for it.

        Whoever is idle for longer than `eviction_ms` goes first. Else the least session goes, if
        the new one is more: a follower's is more than a client's, a larger one more than a smaller
        one. Only followers push out what is younger than that time, and clients' only.
        """
        if self.partitions + size > self._most_partitions:
            return False
        if len(self._sessions) < self._slots:
            return True
        idlest = next(iter(self._sessions.values()), None)
        if idlest is None:
            return False
        if now_ms - idlest.used_ms > self._eviction_ms:
            self._evict(idlest)
            return True
        evictable = self._evictable_by_privileged if privileged else self._evictable_by_all
        if not evictable or (privileged, size, 0) < evictable[0].rank:
            return False
        self._evict(evictable[0])
        return True

    def _evict(self, session: FetchSession) -> None:
        self.remove(session.id)
        self.evictions += 1

    def _count(self, session: FetchSession, now_ms: int, *, new: bool = False) -> None:
        """Notes the session's size and whether it may be evicted, both as of this use of it."""
        size = len(session.partitions)
        ripe = now_ms - session.created_ms > self._eviction_ms
        if size == session.rank[1] and ripe == session.ripe and not new:
            return
        self._evictable_by_privileged.discard(session)
        self._evictable_by_all.discard(session)
        self.partitions += size - session.rank[1]
        session.rank, session.ripe = (session.privileged, size, session.id), ripe
        if ripe or not session.privileged:
            self._evictable_by_privileged.add(session)
        if ripe:
            self._evictable_by_all.add(session)


def _rank(session: FetchSession) -> _Rank:
    return session.rank
