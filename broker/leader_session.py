"""A follower's half of a fetch session (KIP-227): what it has told its leader's broker. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from broker.fetch_sessions import INITIAL_EPOCH, NO_SESSION, next_epoch
from broker.replica import Replica
from wire.apis import ErrorCode
from wire.hot import FetchForgotten, FetchPartition, FetchTopic

Key = tuple[UUID, int]


class Followed:
    """One partition that a fetcher copies. `not_before_ms` holds it back after an error; `asked` is
    what the source knows to be wanted, None where it does not know the partition."""

    __slots__ = ("asked", "backoff_ms", "not_before_ms", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.asked: FetchPartition | None = None
        self.backoff_ms = 0
        self.not_before_ms = 0

    def changed(self, max_bytes: int) -> FetchPartition | None:
        """What is wanted now; None where the source knows."""
        replica, asked = self.replica, self.asked
        core, log = replica.core, replica.log
        if (
            asked is not None
            and asked.fetch_offset == log.end_offset
            and asked.current_leader_epoch == core.leader_epoch
            and asked.last_fetched_epoch == log.last_epoch
            and asked.log_start_offset == log.log_start_offset
        ):
            return None
        self.asked = FetchPartition(
            replica.index,
            log.end_offset,
            max_bytes,
            current_leader_epoch=core.leader_epoch,
            last_fetched_epoch=log.last_epoch,
            log_start_offset=log.log_start_offset,
        )
        return self.asked


class LeaderSession:
    """The session with one broker. `id` and `epoch` are for the next request."""

    __slots__ = ("_known", "epoch", "id")

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self._known: dict[Key, Followed] = {}

    def request(
        self, due: Iterable[Followed], max_bytes: int
    ) -> tuple[list[FetchTopic], list[FetchForgotten]]:
        """What the next request says so that all that is `due`, and nothing else, is fetched."""
        full = self.epoch == INITIAL_EPOCH
        before, self._known = self._known, {}
        topics: dict[UUID, tuple[FetchTopic, list[FetchPartition]]] = {}
        for followed in due:
            replica = followed.replica
            key = (replica.topic_id, replica.index)
            self._known[key] = followed
            if before.pop(key, None) is not followed or full:
                followed.asked = None
            wanted = followed.changed(max_bytes)
            if wanted is not None:
                if replica.topic_id not in topics:
                    named: list[FetchPartition] = []
                    topic = FetchTopic(replica.topic, replica.topic_id, named)
                    topics[replica.topic_id] = topic, named
                topics[replica.topic_id][1].append(wanted)
        forgotten: list[FetchForgotten] = []
        for (topic_id, index), followed in before.items():
            followed.asked = None
            if not full:
                forgotten.append(FetchForgotten(followed.replica.topic, topic_id, [index]))
        return [topic for topic, _ in topics.values()], forgotten

    def asked(self, key: Key) -> Followed | None:
        """The partition, if the last request was about it."""
        return self._known.get(key)

    def answered(self, session_id: int) -> None:
        """The source answered the last request, whole or in part."""
        self.id = session_id
        self.epoch = INITIAL_EPOCH if session_id == NO_SESSION else next_epoch(self.epoch)

    def failed(self, error: ErrorCode | None = None) -> None:
        """There was no answer, or this error: the next request says everything anew, and ends the
        session that may be there still."""
        if error is ErrorCode.fetch_session_id_not_found:
            self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
