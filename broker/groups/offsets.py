"""Offsets: committed, told, deleted, and dropped when nobody needs them any more.

Retention is KIP-211's: an offset is dropped when the retention has passed since its group became
empty, or since its commit if the group never had members or doesn't use the topic any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import cast

from broker.groups import events as e
from broker.groups.classic import Rebalances
from broker.groups.classic_group import ClassicGroup
from broker.groups.context import Context, stored, tombstones
from broker.groups.effects import Producer, StoredRecord
from broker.groups.group import Group
from broker.groups.offset_store import OffsetKey, OffsetStore
from broker.groups.refusals import append_error, refusal
from broker.groups.timers import Timer
from wire.errors import ErrorCode
from wire.group_records import (
    NO_TIMESTAMP,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_value,
    encode_key,
    encode_value,
)
from wire.uuids import ZERO

# Records in one batch of tombstones that time or a deleted topic brings: some 100 kB.
_BATCH = 1_000
# Groups and offsets looked at in one go for what has expired: some 5 ms. Then others' turn.
_SLICE = 5_000
_PAUSE_MS = 5


def decoded(value: bytes) -> OffsetCommitValue:
    """A stored value as an object."""
    return cast(OffsetCommitValue, decode_value(OffsetCommitKey, value))


class Offsets:
    """Requests for offsets. `group` is what has the request's group id, of any type."""

    def __init__(self, context: Context, rebalances: Rebalances) -> None:
        self._context = context
        self._rebalances = rebalances
        self.store = OffsetStore(context.speculation)
        self._expiry = Timer(self._look_for_expired)
        # Groups that the look under way has yet to see, the next one last.
        self._unseen: list[str] = []

    # -- commits ---------------------------------------------------------------------------------

    def commit(self, request: e.OffsetCommit, group: Group | None) -> None:
        """A member's commit is a sign of life, too."""
        error = ErrorCode.none
        if group is not None:
            error = group.check_commit(request)
        elif request.generation >= 0:
            error = ErrorCode.group_id_not_found
        if error is not ErrorCode.none:
            self._context.answer(request, refusal(request, error))
            return
        if isinstance(group, ClassicGroup):
            self._rebalances.keep_alive(group, request.member_id)
        expires_ms = NO_TIMESTAMP
        if request.retention_ms is not None:
            expires_ms = self._context.wall_ms + request.retention_ms
        self._store(request, group, expires_ms, None)

    def commit_in_transaction(self, request: e.TxnOffsetCommit, group: Group | None) -> None:
        """As a commit, but it counts when the transaction does (KIP-447)."""
        error = ErrorCode.none
        if not request.group_id:
            error = ErrorCode.invalid_group_id
        elif group is not None:
            error = group.check_commit(request)
            if error is ErrorCode.stale_member_epoch:
                error = ErrorCode.illegal_generation
        elif request.generation >= 0:
            error = ErrorCode.illegal_generation
        if error is not ErrorCode.none:
            self._context.answer(request, refusal(request, error))
            return
        producer = Producer(request.producer_id, request.producer_epoch)
        self._store(request, group, NO_TIMESTAMP, producer)

    def _store(
        self,
        request: e.OffsetCommit | e.TxnOffsetCommit,
        group: Group | None,
        expires_ms: int,
        producer: Producer | None,
    ) -> None:
        context = self._context
        producer_id = None if producer is None else producer.producer_id
        errors, records, made = [], [], None
        for one in request.offsets:
            if self._is_too_long(one.metadata):
                errors.append(ErrorCode.offset_metadata_too_large)
                continue
            errors.append(ErrorCode.none)
            key = OffsetKey(request.group_id, one.topic, one.partition)
            topic_id = ZERO if one.topic_id is None else one.topic_id
            value = encode_value(
                OffsetCommitValue(
                    one.offset,
                    one.leader_epoch,
                    one.metadata,
                    context.wall_ms,
                    expires_ms,
                    topic_id,
                )
            )
            self.store.put(key, value, producer_id, live=True)
            records.append(StoredRecord(encode_key(OffsetCommitKey(*key)), value))
        if records:
            if group is None:
                # Maybe nobody joins it: its offsets are all that there is of it.
                made = ClassicGroup(request.group_id)
                context.groups.set(request.group_id, made)
            context.append(records, producer)
            if made is not None:
                context.when_settled(lambda: None, partial(self._never_was, made))
        context.answer(request, e.OffsetsCommitted(tuple(errors)))

    def _never_was(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Members may have come to a group whose first offsets could not be stored."""
        self._rebalances.disband(group, append_error(error))

    def _is_too_long(self, metadata: str) -> bool:
        limit = self._context.settings.offset_metadata_max_bytes
        # Java counts UTF-16 units, whatever the setting is called.
        return 2 * len(metadata) > limit and len(metadata.encode("utf-16-le")) > 2 * limit

    def end_transaction(self, event: e.TransactionEnded) -> None:
        """A marker is in the log."""
        self.store.end_transaction(event.producer_id, event.committed, live=True)
        self._context.speculation.appended_outside(event.log_end)

    # -- fetches ---------------------------------------------------------------------------------

    def fetch(self, request: e.OffsetFetch) -> None:
        """What is committed. With `require_stable`, what will be: the answer waits for it."""
        context = self._context
        stable = request.require_stable
        groups, group_id = context.groups, request.group_id
        group = groups.get(group_id) if stable else groups.committed(group_id)
        error = ErrorCode.none if group is None else group.check_fetch(request)
        if error is not ErrorCode.none:
            answer = e.OffsetsFetched(error)
        elif request.topics is None:
            answer = self._all_of(request, group)
        else:
            answer = e.OffsetsFetched(
                error,
                tuple(
                    (
                        topic,
                        tuple(
                            self._fetched(request, group, OffsetKey(group_id, topic, p))
                            for p in partitions
                        ),
                    )
                    for topic, partitions in request.topics
                ),
            )
        if stable:
            context.answer(request, answer)
        else:
            context.answer_now(request.caller, answer)

    def _all_of(self, request: e.OffsetFetch, group: Group | None) -> e.OffsetsFetched:
        if group is None:
            return e.OffsetsFetched(ErrorCode.none)
        group_id, store = request.group_id, self.store
        stable = request.require_stable
        topics = store.topics(group_id) if stable else store.committed_topics(group_id)
        return e.OffsetsFetched(
            ErrorCode.none,
            tuple(
                (
                    topic,
                    tuple(
                        self._fetched(request, group, OffsetKey(group_id, topic, p))
                        for p in partitions
                    ),
                )
                for topic, partitions in topics.items()
            ),
        )

    def _fetched(
        self, request: e.OffsetFetch, group: Group | None, key: OffsetKey
    ) -> e.FetchedOffset:
        store = self.store
        if request.require_stable and store.is_unstable(key):
            return e.FetchedOffset(key.partition, error=ErrorCode.unstable_offset_commit)
        raw = store.get(key) if request.require_stable else store.committed(key)
        if raw is None or group is None or self._is_of_gone_topic(key.topic, raw):
            return e.FetchedOffset(key.partition)
        value = decoded(raw)
        return e.FetchedOffset(key.partition, value.offset, value.leader_epoch, value.metadata)

    # -- deletion --------------------------------------------------------------------------------

    def delete(self, request: e.OffsetDelete, group: Group | None) -> None:
        """Single offsets, unless a member uses their topic (KIP-496)."""
        context = self._context
        if not request.group_id:
            error = ErrorCode.invalid_group_id
        elif group is None:
            error = ErrorCode.group_id_not_found
        else:
            error = group.check_offset_delete()
        if error is not ErrorCode.none or group is None:
            context.answer(request, e.OffsetsDeleted(error))
            return
        topics: list[tuple[str, tuple[tuple[int, ErrorCode], ...]]] = []
        records: list[StoredRecord] = []
        for topic, partitions in request.topics:
            if group.is_subscribed(topic):
                error = ErrorCode.group_subscribed_to_topic
                topics.append((topic, tuple((p, error) for p in partitions)))
                continue
            topics.append((topic, tuple((p, ErrorCode.none) for p in partitions)))
            keys = (OffsetKey(request.group_id, topic, p) for p in partitions)
            records += self._removed(k for k in keys if self._is_there(k))
        if records:
            context.append(records)
        context.answer(request, e.OffsetsDeleted(ErrorCode.none, tuple(topics)))

    def _is_there(self, key: OffsetKey) -> bool:
        return self.store.get(key) is not None or self.store.is_unstable(key)

    def _removed(self, keys: Iterable[OffsetKey]) -> list[StoredRecord]:
        records = []
        for key in keys:
            self.store.remove(key, live=True)
            records.append(stored(OffsetCommitKey(*key), None))
        return records

    def remove_all(self, group_id: str) -> list[StoredRecord]:
        """A group's offsets are removed; the records for the append that says so."""
        return self._removed(self.store.keys(group_id))

    def topics_deleted(self, topics: Iterable[str]) -> None:
        """Offsets of topics that are gone go, too: a later topic of that name is another."""
        self._drop([key for topic in topics for key in self.store.keys_of_topic(topic)])

    def _drop(self, keys: list[OffsetKey]) -> None:
        for start in range(0, len(keys), _BATCH):
            self._context.append(self._removed(keys[start : start + _BATCH]))

    def _is_of_gone_topic(self, name: str, raw: bytes) -> bool:
        """Whether an offset was committed for a topic that there is no more, though maybe another
        one of its name. Older coordinators stored no topic ids: there the name decides."""
        topics = self._context.topics
        if topics is None:
            return False
        topic = topics.get(name)
        if topic is None:
            return True
        # An id stands in the value as it is: to find the right one takes no decoding.
        return topic.topic_id.bytes not in raw and decoded(raw).topic_id != ZERO

    # -- loading ---------------------------------------------------------------------------------

    def loaded(self) -> None:
        """From here on offsets expire. Those of topics that were deleted while the last coordinator
        could not write that down any more go now."""
        self._drop(
            [
                OffsetKey(group_id, topic, partition)
                for group_id, topic, partitions in self.store.all_topics()
                for partition, value in partitions.items()
                if self._is_of_gone_topic(topic, value)
            ]
        )
        self._look_again_in(self._context.settings.offsets_retention_check_interval_ms)

    # -- retention -------------------------------------------------------------------------------

    def _look_again_in(self, ms: int) -> None:
        self._context.timers.set(self._expiry, self._context.now_ms + ms)

    def _look_for_expired(self) -> None:
        """Drop what has expired, and groups that are empty and have no offsets left."""
        context = self._context
        if not self._unseen:
            self._unseen = [group_id for group_id, _ in context.groups.items()]
            self._unseen.reverse()
        seen, records = 0, list[StoredRecord]()
        while self._unseen and seen < _SLICE:
            group_id = self._unseen.pop()
            group = context.groups.get(group_id)
            if group is None:
                continue
            keys = self.store.keys(group_id)
            seen += 1 + len(keys)
            expired = [key for key in keys if self._has_expired(key, group)]
            for start in range(0, len(expired), _BATCH):
                records += self._removed(expired[start : start + _BATCH])
                if len(records) >= _BATCH:
                    context.append(records)
                    records = []
            if len(expired) == len(keys) and group.is_empty:
                records += tombstones(group)
                context.groups.set(group_id, None)
        if records:
            context.append(records)
        interval_ms = context.settings.offsets_retention_check_interval_ms
        self._look_again_in(_PAUSE_MS if self._unseen else interval_ms)

    def _has_expired(self, key: OffsetKey, group: Group) -> bool:
        raw = self.store.get(key)
        if raw is None or self.store.is_unstable(key):
            return False
        if self._is_of_gone_topic(key.topic, raw):
            return True  # its deletion could not be written when it was due
        if group.is_subscribed(key.topic):
            return False
        value = decoded(raw)
        base_ms = group.retention_base_ms(value.commit_timestamp)
        if base_ms is None:
            return False
        wall_ms = self._context.wall_ms
        if value.expire_timestamp != NO_TIMESTAMP:
            return wall_ms >= value.expire_timestamp
        return wall_ms - base_ms >= self._context.settings.offsets_retention_ms
