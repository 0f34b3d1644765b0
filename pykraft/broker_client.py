"""Asks the brokers of any Kafka cluster, each where it listens: what tools need for their answers.

Requests go to one broker that is known, to the leaders of partitions or to a group's coordinator.
What may be asked again is, until the time is over; errors are KafkaError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType, TracebackType
from typing import Any, NamedTuple, Self

from net.client import Connection
from net.errors import (
    ConnectFailed,
    ConnectionLost,
    NetworkError,
    RequestTimedOut,
    UnsupportedVersion,
)
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from wire.messages import fill
from world.env import Env

EARLIEST, LATEST = -2, -1
"""Timestamps that ask for a log's start and its end."""

_CLIENT = "pykraft"
_PAUSE_S = 0.1
# Newer versions name topics by id, or ask for several groups at once.
_METADATA_MAX, _LIST_OFFSETS_MAX, _FIND_COORDINATOR_MAX = 9, 7, 3
_AGAIN = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.leader_not_available,
    ErrorCode.not_leader_or_follower,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.unknown_leader_epoch,
    ErrorCode.offset_not_available,
)

Build = Callable[[ModuleType], Any]
Place = tuple[str, int]


class NobodyAnswers(NetworkError):
    """None of the addresses that were given leads to a broker."""


class Broker(NamedTuple):
    """Where one listens for clients."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class BrokerClient:
    """An async context manager over connections to brokers, made when they are needed.

    `bootstrap` are addresses, of which one has to answer (NobodyAnswers), `timeout_ms` is the time
    for everything that is asked together.
    """

    def __init__(self, env: Env, bootstrap: Sequence[tuple[str, int]], timeout_ms: int) -> None:
        self._env = env
        self._bootstrap = bootstrap
        self._deadline_ms = env.clock.now_ms() + timeout_ms
        self._timeout_ms = timeout_ms
        self._open: dict[tuple[str, int], Connection] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for connection in self._open.values():
            connection.close()

    async def ask(self, broker: Broker, api: int, build: Build, most: int | None = None) -> Any:
        """A broker's answer, in a version up to `most`. NetworkError; KafkaError once it's late."""
        connection = await self._connection(broker.host, broker.port, self._left_ms())
        return await connection.call(api, lambda _, m: build(m), self._left_ms(), max_version=most)

    async def brokers(self) -> list[Broker]:
        """Those that clients are told of, by id."""
        answer = await self._metadata(())
        return sorted(Broker(one.node_id, one.host, one.port) for one in answer.brokers)

    async def partitions(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """The partitions of those of these topics that are there."""
        answer = await self._metadata(tuple(topics))
        return {
            one.name: sorted(part.partition_index for part in one.partitions)
            for one in answer.topics
            if one.error_code is ErrorCode.none
        }

    async def coordinator(self, group_id: str) -> Broker:
        """Which broker has the group."""

        async def find() -> tuple[ErrorCode, Any]:
            answer = await self._ask_any(
                ApiKey.FIND_COORDINATOR,
                lambda m: fill(m.FindCoordinatorRequest, key=group_id, key_type=0),
                _FIND_COORDINATOR_MAX,
            )
            return answer.error_code, answer

        answer = await self.until_answered(f"the coordinator of {group_id}", find)
        return Broker(answer.node_id, answer.host, answer.port)

    async def leaders(self, topics: Iterable[str]) -> dict[Place, Broker | None]:
        """Who leads each partition of those of these topics that are there; None for nobody."""
        answer = await self._metadata(tuple(topics))
        by_id = {one.node_id: Broker(one.node_id, one.host, one.port) for one in answer.brokers}
        return {
            (topic.name, part.partition_index): by_id.get(part.leader_id)
            for topic in answer.topics
            for part in topic.partitions
        }

    async def offsets(self, places: Mapping[Place, int], *, wait: bool = True) -> dict[Place, int]:
        """The first offset whose record is not older than a timestamp (ms, or EARLIEST, LATEST),
        by partition; -1 where there is none such. Partitions that aren't there are left out, and
        without `wait` those that nobody leads now."""
        found: dict[Place, int] = {}

        async def look() -> tuple[ErrorCode, None]:
            missing = {place: at for place, at in places.items() if place not in found}
            asked: dict[Broker, dict[Place, int]] = {}
            error = ErrorCode.none
            for place, leader in (await self.leaders({topic for topic, _ in missing})).items():
                if place not in missing:
                    continue
                if leader is None:
                    error = ErrorCode.leader_not_available if wait else error
                else:
                    asked.setdefault(leader, {})[place] = missing[place]
            for broker, own in asked.items():
                for place, (code, offset) in (await self.list_offsets(broker, own)).items():
                    if code is ErrorCode.none:
                        found[place] = offset
                    elif code is not ErrorCode.unknown_topic_or_partition:
                        error = code
            return error, None

        await self.until_answered("offsets of partitions", look)
        return found

    async def list_offsets(
        self, broker: Broker, places: Mapping[Place, int]
    ) -> dict[Place, tuple[ErrorCode, int]]:
        """What that broker says, asked once: an error, or the offset for a timestamp."""

        def build(m: ModuleType) -> Any:
            topics: dict[str, list[Any]] = {}
            for (topic, index), at in places.items():
                one = fill(m.ListOffsetsPartition, partition_index=index, timestamp=at)
                topics.setdefault(topic, []).append(one)
            return fill(
                m.ListOffsetsRequest,
                replica_id=-1,
                isolation_level=0,
                topics=tuple(
                    fill(m.ListOffsetsTopic, name=name, partitions=tuple(own))
                    for name, own in topics.items()
                ),
            )

        answer = await self.ask(broker, ApiKey.LIST_OFFSETS, build, _LIST_OFFSETS_MAX)
        return {
            (topic.name, part.partition_index): (part.error_code, part.offset)
            for topic in answer.topics
            for part in topic.partitions
        }

    async def until_answered(
        self, what: str, ask: Callable[[], Any], again: Sequence[ErrorCode] = _AGAIN
    ) -> Any:
        """The value of `ask`, which gives an error code and a value, once its code is NONE.

        It is asked again after a code of `again` or without an answer, until the time is over.
        Raises KafkaError, REQUEST_TIMED_OUT then, and NobodyAnswers without waiting.
        """
        while True:
            try:
                error, value = await ask()
            except (ConnectFailed, ConnectionLost, RequestTimedOut) as lost:
                error, value, reason = None, None, str(lost)
            if error is ErrorCode.none:
                return value
            if error is not None:
                if error not in again:
                    raise KafkaError(error, what)
                reason = error.name.upper()
            if self._left_ms() <= _PAUSE_S * 1000:
                raise KafkaError(
                    ErrorCode.request_timed_out,
                    f"{what}: no answer within {self._timeout_ms / 1000:g} s; last: {reason}",
                )
            await asyncio.sleep(_PAUSE_S)

    async def _metadata(self, topics: tuple[str, ...]) -> Any:
        """Of these topics, and all brokers."""

        def build(m: ModuleType) -> Any:
            return fill(
                m.MetadataRequest,
                topics=tuple(fill(m.MetadataRequestTopic, name=topic) for topic in topics),
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )

        return await self._ask_any(ApiKey.METADATA, build, _METADATA_MAX)

    async def _ask_any(self, api: int, build: Build, most: int) -> Any:
        """The answer of the first address of `bootstrap` that gives one."""
        reasons = []
        for number, (host, port) in enumerate(self._bootstrap):
            # One that is silent leaves the others their share.
            limit_ms = max(1, self._left_ms() // (len(self._bootstrap) - number))
            try:
                connection = await self._connection(host, port, limit_ms)
                return await connection.call(api, lambda _, m: build(m), limit_ms, max_version=most)
            except UnsupportedVersion as error:
                reasons.append(f"{host}:{port}: {_why_not(connection, api, error)}")
            except NetworkError as error:
                reasons.append(str(error))
        raise NobodyAnswers("; ".join(reasons))

    async def _connection(self, host: str, port: int, limit_ms: int) -> Connection:
        known = self._open.get((host, port))
        if known is not None and not known.closed:
            return known
        made = await Connection.connect(
            self._env, host, port, client_id=_CLIENT, timeout_ms=limit_ms
        )
        self._open[host, port] = made
        return made

    def _left_ms(self) -> int:
        return max(1, self._deadline_ms - self._env.clock.now_ms())


def _why_not(connection: Connection, api: int, error: UnsupportedVersion) -> str:
    """Why one that speaks Kafka's protocol gives no answer: it may be another listener."""
    if connection.offers(api) is not None:
        return str(error)
    if connection.offers(ApiKey.VOTE) is not None:
        return "this is a controller's listener, not a broker's"
    return "this is no broker's listener"
