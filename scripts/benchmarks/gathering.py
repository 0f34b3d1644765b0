"""Members of one group that all come at once: `gathering.py '{"bootstrap": …, "group": …,
"topic": …, "partitions": P, "members": M, "protocol": "classic" or "consumer", "timeout_s": S}'`.

Each has a connection of its own and does what a consumer does for its membership, by Kafka's
default times; nobody fetches records. Prints the seconds from the first join until each partition
has one owner and every member its share, and the processor seconds that the members took
themselves; stays in the group until its input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from struct import Struct
from types import ModuleType
from typing import Any
from uuid import UUID

from net.client import Connection
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis
from wire.uuids import to_text
from world.env import Env
from world.real import real_env

SESSION_MS, REBALANCE_MS, BEAT_S = 45_000, 300_000, 3.0
CALL_MS, RETRY_S = 30_000, 0.1
ASSIGNOR = "range"
_LEAVES = -1
_HEAD, _LENGTH, _INT = Struct(">hi"), Struct(">h"), Struct(">i")
_AGAIN = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)


class Refused(Exception):
    """A member can't go on: the coordinator gave this error."""


class Gathering:
    """What all members of one run share. `settled` is set once everybody has a fair share."""

    def __init__(self, env: Env, job: dict[str, Any], topic_id: UUID, begun: float) -> None:
        self.env, self.job, self.topic_id, self.begun = env, job, topic_id, begun
        self.owned: dict[int, frozenset[int]] = {}
        self.settled = asyncio.Event()
        self.seconds = 0.0

    def own(self, member: int, partitions: frozenset[int]) -> None:
        """That member owns these partitions, and no others."""
        self.owned[member] = partitions
        count, members = self.job["partitions"], self.job["members"]
        shares = [len(owned) for owned in self.owned.values()]
        fair = (count // members, -(-count // members))
        if (
            not self.settled.is_set()
            and len(shares) == members
            and all(fair[0] <= share <= fair[1] for share in shares)
            and sum(shares) == count == len(frozenset().union(*self.owned.values()))
        ):
            self.seconds = time.monotonic() - self.begun
            self.settled.set()


class Member:
    """The protocol's part of a consumer. `run` returns when the membership is cancelled."""

    def __init__(self, gathering: Gathering, index: int, connection: Connection) -> None:
        self._all = gathering
        self._index = index
        self._connection = connection
        self._group: str = gathering.job["group"]
        self._topic: str = gathering.job["topic"]
        self._member_id = ""
        self._epoch = -1

    async def run(self) -> None:
        raise NotImplementedError

    async def leave(self) -> None:
        raise NotImplementedError

    async def _ask(self, api: int, build: Callable[[ModuleType], Any], limit_ms: int) -> Any:
        """The answer of a coordinator that serves the group."""
        while True:
            answer = await self._connection.call(api, lambda _, m: build(m), limit_ms)
            if answer.error_code not in _AGAIN:
                return answer
            await asyncio.sleep(RETRY_S)


class ClassicMember(Member):
    """Joins, assigns if it leads, beats, and joins again when told that the group rebalances."""

    async def run(self) -> None:
        while True:
            self._all.own(self._index, frozenset())
            goes_on = await self._join()
            while goes_on:
                await asyncio.sleep(BEAT_S)
                goes_on = await self._beats()

    async def _join(self) -> bool:
        subscription = _HEAD.pack(0, 1) + _text(self._topic) + _INT.pack(-1)

        def join(m: ModuleType) -> Any:
            protocol = fill(m.JoinGroupRequestProtocol, name=ASSIGNOR, metadata=subscription)
            return fill(
                m.JoinGroupRequest,
                group_id=self._group,
                session_timeout=millis(SESSION_MS),
                rebalance_timeout=millis(REBALANCE_MS),
                member_id=self._member_id,
                group_instance_id=None,
                protocol_type="consumer",
                protocols=(protocol,),
                reason=None,
            )

        joined = await self._ask(ApiKey.JOIN_GROUP, join, REBALANCE_MS)
        if joined.error_code is ErrorCode.member_id_required:
            self._member_id = joined.member_id
            return False
        if not self._goes_on(joined.error_code):
            return False
        self._epoch = joined.generation_id
        ids = [one.member_id for one in joined.members]
        return await self._sync(self._assigned(ids))

    def _assigned(self, ids: list[str]) -> dict[str, bytes]:
        """Assignments by member id; none of a member that doesn't lead."""
        count = self._all.job["partitions"]
        assignments = {}
        for place, member_id in enumerate(ids):
            own = range(place, count, len(ids))
            packed = _INT.pack(len(own)) + b"".join(map(_INT.pack, own))
            assignments[member_id] = _HEAD.pack(0, 1) + _text(self._topic) + packed + _INT.pack(-1)
        return assignments

    async def _sync(self, assignments: dict[str, bytes]) -> bool:
        def sync(m: ModuleType) -> Any:
            return fill(
                m.SyncGroupRequest,
                group_id=self._group,
                generation_id=self._epoch,
                member_id=self._member_id,
                group_instance_id=None,
                protocol_type="consumer",
                protocol_name=ASSIGNOR,
                assignments=tuple(
                    fill(m.SyncGroupRequestAssignment, member_id=member_id, assignment=own)
                    for member_id, own in assignments.items()
                ),
            )

        synced = await self._ask(ApiKey.SYNC_GROUP, sync, REBALANCE_MS)
        if not self._goes_on(synced.error_code):
            return False
        assignment = bytes(synced.assignment)
        begin = _HEAD.size + _LENGTH.size + len(self._topic) + _INT.size
        own = (place[0] for place in _INT.iter_unpack(assignment[begin : -_INT.size]))
        self._all.own(self._index, frozenset(own))
        return True

    async def _beats(self) -> bool:
        def beat(m: ModuleType) -> Any:
            return fill(
                m.HeartbeatRequest,
                group_id=self._group,
                generation_id=self._epoch,
                member_id=self._member_id,
                group_instance_id=None,
            )

        beaten = await self._ask(ApiKey.HEARTBEAT, beat, CALL_MS)
        return self._goes_on(beaten.error_code)

    def _goes_on(self, error: ErrorCode) -> bool:
        """Whether all is well, or else the group has to be joined again. Raises Refused."""
        if error is ErrorCode.unknown_member_id:
            self._member_id = ""
        elif error not in (
            ErrorCode.none,
            ErrorCode.rebalance_in_progress,
            ErrorCode.illegal_generation,
        ):
            raise Refused(error.name)
        return error is ErrorCode.none

    async def leave(self) -> None:
        def leave(m: ModuleType) -> Any:
            one = fill(
                m.MemberIdentity, member_id=self._member_id, group_instance_id=None, reason=None
            )
            return fill(m.LeaveGroupRequest, group_id=self._group, members=(one,))

        await self._ask(ApiKey.LEAVE_GROUP, leave, CALL_MS)


class ConsumerMember(Member):
    """Says in its heartbeats what it owns; takes and gives up at once what it is told to (KIP-848).
    What it then owns it says at once, too, as consumers do."""

    async def run(self) -> None:
        self._member_id = to_text(self._all.env.ids.uuid())
        self._epoch = 0
        own: frozenset[int] = frozenset()
        tell = True
        self._all.own(self._index, own)
        while True:
            beaten = await self._beat(own if tell else None)
            if beaten.error_code is not ErrorCode.none:
                raise Refused(f"{beaten.error_code.name}: {beaten.error_message}")
            self._epoch = beaten.member_epoch
            tell = False
            if beaten.assignment is not None:
                topics = beaten.assignment.topic_partitions
                told = frozenset(p for topic in topics for p in topic.partitions)
                tell, own = told != own, told
                self._all.own(self._index, own)
            if not tell:
                await asyncio.sleep(beaten.heartbeat_interval.total_seconds())

    async def _beat(self, owned: frozenset[int] | None) -> Any:
        joins = self._epoch == 0

        def beat(m: ModuleType) -> Any:
            mine: tuple[Any, ...] | None = None
            if owned is not None:
                one = fill(
                    m.TopicPartitions, topic_id=self._all.topic_id, partitions=tuple(sorted(owned))
                )
                mine = (one,) if owned else ()
            return fill(
                m.ConsumerGroupHeartbeatRequest,
                group_id=self._group,
                member_id=self._member_id,
                member_epoch=self._epoch,
                instance_id=None,
                rack_id=None,
                rebalance_timeout=millis(REBALANCE_MS if joins else -1),
                subscribed_topic_names=(self._topic,) if joins else None,
                subscribed_topic_regex=None,
                server_assignor=None,
                topic_partitions=mine,
            )

        return await self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, beat, CALL_MS)

    async def leave(self) -> None:
        self._epoch = _LEAVES
        await self._beat(None)


def _text(value: str) -> bytes:
    data = value.encode()
    return _LENGTH.pack(len(data)) + data


async def coordinator(connection: Connection, group: str) -> tuple[str, int]:
    """The address of the group's coordinator, once there is one."""
    while True:
        answer = await connection.call(
            ApiKey.FIND_COORDINATOR,
            lambda _, m: fill(m.FindCoordinatorRequest, key=group, key_type=0),
            CALL_MS,
            max_version=3,
        )
        if answer.error_code is ErrorCode.none:
            return answer.host, answer.port
        await asyncio.sleep(RETRY_S)


async def topic_id(connection: Connection, topic: str) -> UUID:
    """The id of a topic that is there."""
    answer = await connection.call(
        ApiKey.METADATA,
        lambda _, m: fill(
            m.MetadataRequest,
            topics=(fill(m.MetadataRequestTopic, name=topic, topic_id=None),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        ),
        CALL_MS,
    )
    found: UUID = answer.topics[0].topic_id
    return found


async def gather(job: dict[str, Any]) -> None:
    """One run."""
    env = real_env()
    host, port = job["bootstrap"].split(",")[0].rsplit(":", 1)

    async def connect(name: str, at: tuple[str, int]) -> Connection:
        return await Connection.connect(env, *at, client_id=name, timeout_ms=CALL_MS)

    first = await connect("gathering", (host, int(port)))
    place = await coordinator(first, job["group"])
    known = await topic_id(first, job["topic"])
    connections = [await connect(f"member-{n}", place) for n in range(job["members"])]
    gathering = Gathering(env, job, known, time.monotonic())
    kind = ClassicMember if job["protocol"] == "classic" else ConsumerMember
    members = [kind(gathering, n, connection) for n, connection in enumerate(connections)]
    used = time.process_time()
    async with asyncio.timeout(job["timeout_s"]):
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(member.run()) for member in members]
            await gathering.settled.wait()
            figures = {"settle": gathering.seconds, "client_cpu": time.process_time() - used}
            print(json.dumps(figures), flush=True)
            await asyncio.to_thread(sys.stdin.read)
            for task in running:
                task.cancel()
    for member in members:
        await member.leave()


if __name__ == "__main__":
    asyncio.run(gather(json.loads(sys.argv[1])))
