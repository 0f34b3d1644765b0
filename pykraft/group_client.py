"""Consumer groups of any Kafka cluster as their operators see them: listed, described with what
they have yet to read, their offsets set anew, deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from net.errors import UnsupportedVersion
from pykraft.broker_client import EARLIEST, LATEST, Broker, BrokerClient, Build, Place
from wire.apis import ApiKey
from wire.consumer_protocol import read_assignment
from wire.errors import DecodeError, ErrorCode, KafkaError
from wire.messages import fill

# Later versions ask for several groups at once, or name topics by id.
_OFFSET_FETCH_MAX, _OFFSET_COMMIT_MAX = 7, 8
_NO_GENERATION = -1
_CONSUMER = "consumer"
_DEAD = "Dead"


class Listed(NamedTuple):
    """A group in a list; `type` is empty where a broker is too old to tell."""

    group: str
    type: str
    protocol: str
    state: str
    coordinator: int


class Member(NamedTuple):
    """One member and what is assigned to it, partitions by topic. None where that can't be read."""

    id: str
    instance: str | None
    client: str
    host: str
    assigned: dict[str, tuple[int, ...]] | None


class Position(NamedTuple):
    """One partition: how far the group has committed, where the log ends, who reads it. None for
    what there is not."""

    topic: str
    partition: int
    offset: int | None
    end: int | None
    member: str | None

    @property
    def lag(self) -> int | None:
        """Records that the group has yet to read."""
        return None if self.offset is None or self.end is None else max(0, self.end - self.offset)


class Aim(NamedTuple):
    """Where a group is to begin in a partition: `offset`. It has committed `before`, or nothing."""

    topic: str
    partition: int
    before: int | None
    offset: int


class Described(NamedTuple):
    """One group."""

    group: str
    type: str
    state: str
    assignor: str
    coordinator: Broker
    members: list[Member]
    positions: list[Position]


class GroupClient:
    """`brokers` is an open client. Errors are KafkaError, or NetworkError where nobody answers."""

    def __init__(self, brokers: BrokerClient) -> None:
        self._brokers = brokers

    async def all(self) -> list[Listed]:
        """All groups, by name. Every broker has to answer: it alone knows those it coordinates."""
        found: list[Listed] = []
        brokers = await self._brokers.until_answered("the brokers", self._all_brokers)
        for broker in brokers:

            async def ask(broker: Broker = broker) -> tuple[ErrorCode, Any]:
                answer = await self._brokers.ask(
                    broker,
                    ApiKey.LIST_GROUPS,
                    lambda m: fill(m.ListGroupsRequest, states_filter=(), types_filter=()),
                )
                return answer.error_code, answer

            answer = await self._brokers.until_answered(f"groups of broker {broker.id}", ask)
            found += [
                Listed(
                    one.group_id,
                    getattr(one, "group_type", "").lower(),
                    one.protocol_type,
                    getattr(one, "group_state", ""),
                    broker.id,
                )
                for one in answer.groups
            ]
        return sorted(found)

    async def describe(self, group: str) -> Described:
        """One group. KafkaError GROUP_ID_NOT_FOUND where there is none."""
        kind, state, assignor, members = await self._members(group)
        committed = await self._committed(group)
        owners = {
            (topic, index): member.id
            for member in members
            for topic, own in (member.assigned or {}).items()
            for index in own
        }
        if state == _DEAD and not committed:
            raise _no_group(group)
        places = sorted({*committed, *owners})
        ends = await self._brokers.offsets(dict.fromkeys(places, LATEST), wait=False)
        coordinator = await self._brokers.coordinator(group)
        positions = [
            Position(*place, committed.get(place), ends.get(place), owners.get(place))
            for place in places
        ]
        return Described(group, kind, state, assignor, coordinator, members, positions)

    async def delete(self, group: str) -> None:
        """Forgets a group without members, and its offsets."""
        if not group:
            # Brokers look for one of that name, as some clients of old committed without a name.
            raise _nameless(group)

        async def ask() -> tuple[ErrorCode, None]:
            answer = await self._ask(
                group,
                ApiKey.DELETE_GROUPS,
                lambda m: fill(m.DeleteGroupsRequest, groups_names=(group,)),
            )
            [result] = answer.results
            if result.error_code is ErrorCode.non_empty_group:
                raise _has_members(group)
            if result.error_code is ErrorCode.group_id_not_found:
                raise _no_group(group)
            return result.error_code, None

        await self._until(group, f"group {group}", ask)

    async def aim(
        self, group: str, topics: Mapping[str, Sequence[int] | None], to: int, *, exact: bool
    ) -> list[Aim]:
        """Where a group without members would begin; nothing is changed. `to` is a timestamp (ms,
        or EARLIEST, LATEST), or with `exact` an offset. Partitions None are all of the topic's; no
        topics are those whose offsets the group has committed."""
        _, state, _, members = await self._members(group)
        if members:
            raise _has_members(group)
        committed = await self._committed(group)
        places = await self._places(topics) if topics else sorted(committed)
        if not places:
            raise _nothing_committed(group, state)
        asked = {} if exact or to in (EARLIEST, LATEST) else dict.fromkeys(places, to)
        found_at = await self._brokers.offsets(asked) if asked else {}
        starts = await self._brokers.offsets(dict.fromkeys(places, EARLIEST))
        ends = await self._brokers.offsets(dict.fromkeys(places, LATEST))
        aims, outside = [], []
        for place in places:
            topic, index = place
            if place not in starts or place not in ends:
                if topics:
                    raise KafkaError(
                        ErrorCode.unknown_topic_or_partition, f"{topic}-{index} is gone"
                    )
                continue  # its offsets went with it
            start, end = starts[place], ends[place]
            if exact:
                offset = to
            elif to == EARLIEST:
                offset = start
            else:
                # No record is that young: what comes next is.
                at = found_at.get(place, -1)
                offset = end if at < 0 else max(at, start)
            if exact and not start <= offset <= end:
                outside.append(f"{topic}-{index} has offsets from {start} to {end}")
            aims.append(Aim(topic, index, committed.get(place), offset))
        if outside:
            raise KafkaError(
                ErrorCode.offset_out_of_range, f"{', '.join(outside)}: {to} is not among them"
            )
        if not aims:
            raise _nothing_committed(group, state)
        return aims

    async def commit(self, group: str, aims: Iterable[Aim]) -> None:
        """Has a group without members begin there."""
        by_topic: dict[str, list[Aim]] = {}
        for aim in aims:
            by_topic.setdefault(aim.topic, []).append(aim)

        def build(m: ModuleType) -> Any:
            topics = tuple(
                fill(
                    m.OffsetCommitRequestTopic,
                    name=topic,
                    partitions=tuple(
                        fill(
                            m.OffsetCommitRequestPartition,
                            partition_index=one.partition,
                            committed_offset=one.offset,
                            committed_metadata="",
                        )
                        for one in own
                    ),
                )
                for topic, own in by_topic.items()
            )
            return fill(
                m.OffsetCommitRequest,
                group_id=group,
                generation_id_or_member_epoch=_NO_GENERATION,
                member_id="",
                group_instance_id=None,
                topics=topics,
            )

        async def ask() -> tuple[ErrorCode, None]:
            answer = await self._ask(group, ApiKey.OFFSET_COMMIT, build, _OFFSET_COMMIT_MAX)
            codes = [part.error_code for topic in answer.topics for part in topic.partitions]
            error = next((code for code in codes if code is not ErrorCode.none), ErrorCode.none)
            if error is ErrorCode.unknown_member_id:
                raise _has_members(group)
            return error, None

        await self._until(group, f"group {group}", ask)

    # -- inside --------------------------------------------------------------------------------

    async def _ask(self, group: str, api: int, build: Build, most: int | None = None) -> Any:
        """What the group's coordinator answers, which may be another one each time."""
        return await self._brokers.ask(await self._brokers.coordinator(group), api, build, most)

    async def _until(
        self, group: str, what: str, ask: Callable[[], Awaitable[tuple[ErrorCode, Any]]]
    ) -> Any:
        """As the brokers' `until_answered`; of an empty name, which they refuse, it says why."""
        try:
            return await self._brokers.until_answered(what, ask)
        except KafkaError as error:
            if group or error.code is not ErrorCode.invalid_group_id:
                raise
            raise _nameless(group) from None

    async def _all_brokers(self) -> tuple[ErrorCode, list[Broker]]:
        return ErrorCode.none, await self._brokers.brokers()

    async def _places(self, topics: Mapping[str, Sequence[int] | None]) -> list[Place]:
        """The partitions that are meant. KafkaError where one isn't there."""
        there = await self._brokers.partitions(topics)
        places: list[Place] = []
        for topic, asked in topics.items():
            if topic not in there:
                raise KafkaError(
                    ErrorCode.unknown_topic_or_partition, f"no topic is called {topic}"
                )
            for index in there[topic] if asked is None else asked:
                if index not in there[topic]:
                    raise KafkaError(
                        ErrorCode.unknown_topic_or_partition,
                        f"{topic} has {len(there[topic])} partitions, none is {index}",
                    )
                places.append((topic, index))
        return sorted(places)

    async def _members(self, group: str) -> tuple[str, str, str, list[Member]]:
        """Type, state, assignor and members."""
        try:
            answer = await self._described(
                group, ApiKey.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribeRequest"
            )
        except (UnsupportedVersion, KafkaError) as error:
            # Whoever doesn't know the newer protocol, or has no such group of it.
            if isinstance(error, KafkaError) and error.code not in (
                ErrorCode.group_id_not_found,
                ErrorCode.unsupported_version,
            ):
                raise
        else:
            return _CONSUMER, answer.group_state, answer.assignor_name, _members(answer)
        try:
            answer = await self._described(group, ApiKey.DESCRIBE_GROUPS, "DescribeGroupsRequest")
        except KafkaError as error:
            if error.code is not ErrorCode.group_id_not_found:
                raise
            return "", _DEAD, "", []
        return "classic", answer.group_state, answer.protocol_data, _classic_members(answer)

    async def _described(self, group: str, api: int, request: str) -> Any:
        def build(m: ModuleType) -> Any:
            named = {"groups": (group,), "group_ids": (group,)}
            return fill(getattr(m, request), include_authorized_operations=False, **named)

        async def ask() -> tuple[ErrorCode, Any]:
            answer = await self._ask(group, api, build)
            [described] = answer.groups
            return described.error_code, described

        return await self._until(group, f"group {group}", ask)

    async def _committed(self, group: str) -> dict[Place, int]:
        async def ask() -> tuple[ErrorCode, Any]:
            answer = await self._ask(
                group,
                ApiKey.OFFSET_FETCH,
                lambda m: fill(m.OffsetFetchRequest, group_id=group, topics=None),
                _OFFSET_FETCH_MAX,
            )
            return answer.error_code, answer

        answer = await self._until(group, f"offsets of group {group}", ask)
        return {
            (topic.name, part.partition_index): part.committed_offset
            for topic in answer.topics
            for part in topic.partitions
            if part.committed_offset >= 0
        }


def _nameless(group: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_group_id, f"group {group!r}: must not be empty")


def _no_group(group: str) -> KafkaError:
    return KafkaError(ErrorCode.group_id_not_found, f"no group is called {group!r}")


def _nothing_committed(group: str, state: str) -> KafkaError:
    """Where a group is to begin in what it has read, and that is nothing."""
    if state == _DEAD:
        return KafkaError(
            ErrorCode.group_id_not_found,
            f"no group is called {group!r}: name the topics that a new one is to read",
        )
    return KafkaError(
        ErrorCode.invalid_request,
        f"{group} has no committed offsets (those of a deleted topic go with it): name the topics "
        "that it is to read",
    )


def _has_members(group: str) -> KafkaError:
    return KafkaError(ErrorCode.non_empty_group, f"{group} has members: end them first")


def _members(group: Any) -> list[Member]:
    return [
        Member(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            {
                topic.topic_name: tuple(sorted(topic.partitions))
                for topic in one.assignment.topic_partitions
            },
        )
        for one in group.members
    ]


def _classic_members(group: Any) -> list[Member]:
    """Other protocols than consumers' (Connect's) have assignments of their own."""
    members = []
    for one in group.members:
        assigned = None
        if group.protocol_type == _CONSUMER:
            try:
                assigned = read_assignment(bytes(one.member_assignment)).partitions
            except DecodeError:
                assigned = None
        members.append(
            Member(
                one.member_id,
                getattr(one, "group_instance_id", None),
                one.client_id,
                one.client_host,
                assigned,
            )
        )
    return members
