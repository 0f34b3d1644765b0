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
    what the source knows to be wanted, None where it does not know the partition; `round` is the
    last request of a session that was about it."""

    __slots__ = ("asked", "backoff_ms", "not_before_ms", "replica", "round")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.asked: FetchPartition | None = None
        self.round = 0
        self.backoff_ms = 0
        self.not_before_ms = 0

    def changed(self, max_bytes: int) -> bool:
        """Takes down what is wanted now; whether the source has to be told."""
        replica, asked = self.replica, self.asked
        core, log = replica.core, replica.log
        if (
            asked is not None
            and asked.fetch_offset == log.end_offset
            and asked.current_leader_epoch == core.leader_epoch
            and asked.last_fetched_epoch == log.last_epoch
            and asked.log_start_offset == log.log_start_offset
        ):
            return False
        self.asked = FetchPartition(
            replica.index,
            log.end_offset,
            max_bytes,
            current_leader_epoch=core.leader_epoch,
            last_fetched_epoch=log.last_epoch,
            log_start_offset=log.log_start_offset,
        )
        return True


class LeaderSession:
    """The session with one broker. `id` and `epoch` are for the next request."""

    __slots__ = ("_known", "_round", "epoch", "id")

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self._known: list[Followed] = []
        self._round = 1

    def request(
        self, due: Iterable[Followed], max_bytes: int
    ) -> tuple[list[FetchTopic], list[FetchForgotten]]:
        """What the next request says so that all that is `due`, and nothing else, is fetched."""
        full = self.epoch == INITIAL_EPOCH
        last, self._round = self._round, self._round + 1
        before, self._known = self._known, list(due)
        changed: dict[Key, Followed] = {}
        for followed in self._known:
            if full or followed.round != last:
                followed.asked = None
            followed.round = self._round
            if followed.changed(max_bytes):
                changed[followed.replica.topic_id, followed.replica.index] = followed
        forgotten: list[FetchForgotten] = []
        for followed in before:
            if followed.round != self._round:
                followed.asked = None
                replica = followed.replica
                # Whoever has taken its place is named, and goes on with what the source knows.
                if not full and (replica.topic_id, replica.index) not in changed:
                    gone = FetchForgotten(replica.topic, replica.topic_id, [replica.index])
                    forgotten.append(gone)
        return _by_topic(changed.values()), forgotten

    def asked(self, followed: Followed) -> FetchPartition | None:
        """What the last request asked for, if it was about the partition."""
        return followed.asked if followed.round == self._round else None

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


def _by_topic(changed: Iterable[Followed]) -> list[FetchTopic]:
    topics: dict[UUID, list[FetchPartition]] = {}
    named: list[FetchTopic] = []
    for followed in changed:
        replica, wanted = followed.replica, followed.asked
        assert wanted is not None, replica
        if replica.topic_id not in topics:
            partitions = topics[replica.topic_id] = []
            named.append(FetchTopic(replica.topic, replica.topic_id, partitions))
        topics[replica.topic_id].append(wanted)
    return named
