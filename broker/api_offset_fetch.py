"""OffsetFetch 1-10: what groups have committed.

One group with an error for each partition in version 1, with one of its own from version 2 on,
when all of its topics may be asked for, too; several groups from version 8 on (KIP-709). Topics are
named by name up to version 9, by id in version 10 (KIP-848).
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from broker.context import BrokerContext
from broker.group_coordinator import Gather, GroupCoordinators
from broker.group_requests import bounded, replying
from broker.groups.events import FetchedOffset, OffsetFetch, OffsetsFetched
from net.handlers import Api, Later, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis, response_module

_GROUP_ERROR_FROM = 2
_SEVERAL_FROM = 8
_IDS_FROM = 10

Topics = tuple[tuple[str, tuple[int, ...]], ...]


class _Asked(NamedTuple):
    """One group of a request; `topics` None is all. `unknown` are topics of which nobody knows a
    name."""

    group_id: str
    topics: Topics | None
    member_id: str | None
    member_epoch: int
    unknown: tuple[tuple[UUID | None, tuple[int, ...]], ...] = ()


def apis(context: BrokerContext, groups: GroupCoordinators) -> list[Api]:
    return [Api(ApiKey.OFFSET_FETCH, 1, 10, lambda request: _handle(context, groups, request))]


def _handle(context: BrokerContext, groups: GroupCoordinators, request: Request) -> Any:
    entity = request.entity()
    version = request.api_version
    asked = _asked(context, entity, version)
    bounded([group.group_id for group in asked])
    stable = getattr(entity, "require_stable", False)
    later = Later()
    done = replying(later, lambda outcomes: _answer(context, version, asked, outcomes))
    gather = Gather(len(asked), done)
    for place, group in enumerate(asked):

        def make(caller: int, group: _Asked = group) -> OffsetFetch:
            return OffsetFetch(
                caller,
                group.group_id,
                group.topics,
                group.member_id,
                group.member_epoch,
                require_stable=stable,
            )

        groups.ask(group.group_id, make, gather.taker(place))
    return later


def _asked(context: BrokerContext, entity: Any, version: int) -> list[_Asked]:
    if version < _SEVERAL_FROM:
        return [_Asked(entity.group_id, _by_name(entity.topics), None, -1)]
    found = []
    for group in entity.groups:
        topics, unknown = None, []
        if version < _IDS_FROM or group.topics is None:
            topics = _by_name(group.topics)
        else:
            known = []
            for topic in group.topics:
                named = None
                if topic.topic_id is not None:
                    named = context.image.topic_by_id(topic.topic_id)
                if named is None:
                    unknown.append((topic.topic_id, topic.partition_indexes))
                else:
                    known.append((named.name, topic.partition_indexes))
            topics = tuple(known)
        member_id = getattr(group, "member_id", None)
        member_epoch = getattr(group, "member_epoch", -1)
        found.append(_Asked(group.group_id, topics, member_id, member_epoch, tuple(unknown)))
    return found


def _by_name(topics: Any) -> Topics | None:
    if topics is None:
        return None
    return tuple((topic.name, topic.partition_indexes) for topic in topics)


def _answer(context: BrokerContext, version: int, asked: list[_Asked], outcomes: list[Any]) -> Any:
    m: Any = response_module(ApiKey.OFFSET_FETCH, version)
    fetched = [
        outcome if isinstance(outcome, OffsetsFetched) else OffsetsFetched(outcome)
        for outcome in outcomes
    ]
    if version < _SEVERAL_FROM:
        [group], [found] = asked, fetched
        if version < _GROUP_ERROR_FROM and found.error is not ErrorCode.none:
            found = _in_each_partition(group, found.error)
        return fill(
            m.OffsetFetchResponse,
            throttle_time=millis(0),
            topics=tuple(
                _topic(m, "OffsetFetchResponseTopic", partitions, name=name)
                for name, partitions in found.topics
            ),
            error_code=found.error,
        )
    return m.OffsetFetchResponse(
        throttle_time=millis(0),
        groups=tuple(
            m.OffsetFetchResponseGroup(
                group_id=group.group_id,
                topics=_topics(context, m, version, group, found),
                error_code=found.error,
            )
            for group, found in zip(asked, fetched, strict=True)
        ),
    )


def _topics(
    context: BrokerContext, m: Any, version: int, group: _Asked, found: OffsetsFetched
) -> tuple[Any, ...]:
    kind = "OffsetFetchResponseTopics"
    if found.error is not ErrorCode.none:
        return ()
    if version < _IDS_FROM:
        return tuple(_topic(m, kind, partitions, name=name) for name, partitions in found.topics)
    topics = []
    for name, partitions in found.topics:
        known = context.image.topic(name)
        # A topic that has gone meanwhile has no id to be told by.
        if known is not None:
            topics.append(_topic(m, kind, partitions, topic_id=known.id))
    for topic_id, indexes in group.unknown:
        partitions = tuple(
            FetchedOffset(index, error=ErrorCode.unknown_topic_id) for index in indexes
        )
        topics.append(_topic(m, kind, partitions, topic_id=topic_id))
    return tuple(topics)


def _topic(m: Any, kind: str, partitions: tuple[FetchedOffset, ...], **named: Any) -> Any:
    # The nested classes have a plural name where there are several groups.
    partition_class = getattr(m, kind.replace("Topic", "Partition"))
    return getattr(m, kind)(
        **named,
        partitions=tuple(
            fill(
                partition_class,
                partition_index=partition.partition,
                committed_offset=partition.offset,
                committed_leader_epoch=partition.leader_epoch,
                metadata=partition.metadata,
                error_code=partition.error,
            )
            for partition in partitions
        ),
    )


def _in_each_partition(group: _Asked, error: ErrorCode) -> OffsetsFetched:
    return OffsetsFetched(
        ErrorCode.none,
        tuple(
            (name, tuple(FetchedOffset(index, error=error) for index in indexes))
            for name, indexes in group.topics or ()
        ),
    )
