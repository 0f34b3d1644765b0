"""Members of groups of the classic protocol. Judged by `simulation.models.groups`.

As real consumers do it: who joined first assigns to all, each reads on from what was committed and
commits what it has read. Now and then one stalls, dies without a word and comes back, or leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from types import ModuleType
from typing import Any, NamedTuple

from simulation.checks import require
from simulation.clients.links import Address, Build, NoAnswer, NotSent
from simulation.clients.records import Consumer
from simulation.history import Call, History, Outcome
from simulation.models.groups import COMMIT, COMMITTED, NOTHING, SYNC, Consumed
from simulation.models.records import Place, Position
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis
from world.env import Env

SESSION_MS = 3_000
REBALANCE_MS = 4_000
_TIMEOUT_MS = 2_000
_ROUND_S = 0.7
_RETRY_S = 0.25
_PROTOCOL = "shuffled"
_ACCIDENTS = 0.03


class View(NamedTuple):
    """What no client can know of a broker: the epoch in which it leads the coordinator's partition
    by all that is committed and by its own image, and the one in which it knows that another does.
    """

    leads: int | None
    another: int | None


class Lost(Exception):
    """The membership is over; whatever was owned is another's now. `forget`: the member id, too."""

    def __init__(self, why: str, *, forget: bool = False) -> None:
        super().__init__(why)
        self.forget = forget


# After these another coordinator has to be found.
_ELSEWHERE = (
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
)
_REJOIN = (
    ErrorCode.rebalance_in_progress,
    ErrorCode.illegal_generation,
    ErrorCode.fenced_member_epoch,
)
_FORGET = (
    ErrorCode.unknown_member_id,
    ErrorCode.fenced_instance_id,
    ErrorCode.unreleased_instance_id,
)
# After these a commit may be done yet: it was appended.
_OPEN = (
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out,
    ErrorCode.unknown_server_error,
)


class GroupMember(Consumer):
    """Consumes a topic as one of a group until it is closed. `calm` ends its accidents, `instance`
    makes it a static member, `committed` are the offsets that it was told are."""

    def __init__(
        self,
        env: Env,
        name: str,
        brokers: Mapping[int, Address],
        history: History,
        topic: str,
        partitions: int,
        consumed: Consumed,
        *,
        instance: str | None,
        view: Callable[[int], View],
    ) -> None:
        super().__init__(env, name, brokers, history, topic, partitions)
        self.group = consumed.group
        self.calm = False
        self.committed: dict[Place, int] = {}
        self._consumed = consumed
        self._instance = instance
        self._view = view
        self._partitions = partitions
        self._coordinator: int | None = None
        self._member_id = ""
        self._generation = -1
        self._is_in = False
        self.positions = []

    async def run(self) -> None:
        """Until it is closed."""
        while not self.stopping:
            try:
                await self._be_a_member()
            except Lost as lost:
                self.positions, self._is_in = [], False
                if lost.forget:
                    self._member_id = ""
            except (NotSent, NoAnswer):
                self._coordinator = None
            await asyncio.sleep(_RETRY_S * self.chance.uniform(0.5, 1.5))

    async def _be_a_member(self) -> None:
        if self._coordinator is None:
            self._coordinator = await self._find()
            if self._coordinator is None:
                return
            if self._is_in:
                # Another coordinator may have taken over: does it know what was committed?
                await self._look()
        if not self._is_in:
            await self._join()
        while not self.stopping:
            if not self.calm and self.chance.random() < _ACCIDENTS:
                await self._accident()
            await self._beat()
            for position in self.positions:
                await self._consume(position)
            if self.positions and self.chance.random() < 0.6:
                await self._commit()
            if self.chance.random() < 0.1:
                await self._look()
            # Who is silent for longer is taken for dead.
            await self.rest(_ROUND_S, 0.4, most=2)

    async def _accident(self) -> None:
        kind = self.chance.choice(("stall", "stall", "die", "leave"))
        if kind == "leave":
            await self._leave()
        await asyncio.sleep(self.chance.uniform(0.3, 1.5 * SESSION_MS / 1000))
        if kind != "stall":
            self._coordinator = None
            raise Lost(kind, forget=True)

    # -- calls -----------------------------------------------------------------------------------

    async def _find(self) -> int | None:
        """The coordinator, as one broker says."""

        def build(version: int, module: ModuleType) -> Any:
            return fill(module.FindCoordinatorRequest, key=self.group, key_type=0)

        node_id = self.chance.choice(sorted(self.links.nodes))
        answer = await self.links.call(
            node_id, ApiKey.FIND_COORDINATOR, build, _TIMEOUT_MS, max_version=3
        )
        return answer.node_id if answer.error_code is ErrorCode.none else None

    async def _call(
        self,
        kind: str,
        api_key: int,
        build: Build,
        error_of: Callable[[Any], ErrorCode],
        *,
        max_version: int,
        timeout_ms: int = _TIMEOUT_MS,
        **args: Any,
    ) -> tuple[Call, Any]:
        """One call to the coordinator and its answer, the call unfinished where it went well."""
        node_id = self._coordinator
        assert node_id is not None
        call = self.history.invoke(
            self.name,
            kind,
            self.now_ms,
            group=self.group,
            node=node_id,
            # A static member that comes back is in its old generation still (KIP-345).
            member=self._instance or self._member_id,
            generation=self._generation,
            **args,
        )
        before = self._view(node_id)
        try:
            answer = await self.links.call(
                node_id, api_key, build, timeout_ms, max_version=max_version
            )
        except (NotSent, NoAnswer) as failure:
            sent = isinstance(failure, NoAnswer)
            outcome = Outcome.UNKNOWN if sent else Outcome.FAILED
            self.history.finish(call, outcome, self.now_ms, str(failure))
            raise
        error = error_of(answer)
        if error is ErrorCode.none:
            after = self._view(node_id)
            # It knew before the call came, and still does: it led at no time in between.
            require(
                before.another is None or before.another != after.another,
                "who isn't the coordinator doesn't answer as if it were",
                f"{call}: node {node_id} knows that another leads, in epoch {before.another}",
            )
            if before.leads is not None and before.leads == after.leads:
                call.args["led"] = True
            return call, answer
        outcome = Outcome.UNKNOWN if error in _OPEN else Outcome.FAILED
        self.history.finish(call, outcome, self.now_ms, error.name)
        self._refused(error)
        return call, None

    def _refused(self, error: ErrorCode) -> None:
        if error in _ELSEWHERE:
            raise NoAnswer(error.name)
        if error in _REJOIN:
            raise Lost(error.name)
        if error in _FORGET:
            raise Lost(error.name, forget=True)

    def _done(self, call: Call, result: Any = None) -> None:
        self.history.finish(call, Outcome.OK, self.now_ms, result)

    async def _join(self) -> None:
        self._generation = -1

        def build(version: int, module: ModuleType) -> Any:
            protocol = fill(module.JoinGroupRequestProtocol, name=_PROTOCOL, metadata=b"")
            return fill(
                module.JoinGroupRequest,
                group_id=self.group,
                session_timeout=millis(SESSION_MS),
                rebalance_timeout=millis(REBALANCE_MS),
                member_id=self._member_id,
                group_instance_id=self._instance,
                protocol_type="simulated",
                protocols=(protocol,),
                reason=None,
            )

        call, answer = await self._call(
            "join group",
            ApiKey.JOIN_GROUP,
            build,
            _joined_or_error,
            max_version=9,
            timeout_ms=REBALANCE_MS + 3_000,
        )
        if answer is None:
            raise Lost("not joined")
        self._member_id = answer.member_id
        if answer.error_code is ErrorCode.member_id_required:
            self._done(call, "member id")
            await self._join()
            return
        self._done(call, answer.generation_id)
        self._generation = answer.generation_id
        members = [one.member_id for one in answer.members]
        assignments = () if answer.skip_assignment else self._assign(members)
        await self._sync(assignments)

    def _assign(self, members: Sequence[str]) -> list[tuple[str, bytes]]:
        """Each partition to a member by chance, as text; nothing of one that doesn't lead."""
        members = sorted(members)
        self.chance.shuffle(members)
        owned: dict[str, list[str]] = {member: [] for member in members}
        for index in range(self._partitions if members else 0):
            owned[members[index % len(members)]].append(str(index))
        return [(member, ",".join(indexes).encode()) for member, indexes in owned.items()]

    async def _sync(self, assignments: Sequence[tuple[str, bytes]]) -> None:
        def build(version: int, module: ModuleType) -> Any:
            return fill(
                module.SyncGroupRequest,
                group_id=self.group,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self._instance,
                protocol_type="simulated",
                protocol_name=_PROTOCOL,
                assignments=tuple(
                    fill(module.SyncGroupRequestAssignment, member_id=member, assignment=owned)
                    for member, owned in assignments
                ),
            )

        call, answer = await self._call(
            SYNC,
            ApiKey.SYNC_GROUP,
            build,
            error_code,
            max_version=5,
            timeout_ms=REBALANCE_MS + 3_000,
        )
        if answer is None:
            raise Lost("not synced")
        text = bytes(answer.assignment).decode()
        places = tuple(Place(self.topic, int(index)) for index in text.split(",") if index)
        self._done(call, places)
        self.positions = []
        await self._begin(places)
        self._is_in = True

    async def _begin(self, places: Sequence[Place]) -> None:
        """Goes on with new places where the group stands."""
        found = await self._fetch_offsets(places) if places else {}
        for place, (offset, epoch) in found.items():
            position = Position(self.name, place, max(0, offset), epoch)
            self._consumed.begins(self.name, place, position.offset)
            self.positions.append(position)

    async def _look(self) -> None:
        """Reads what it has committed, to be judged; a coordinator that still loads can't tell."""
        if not self.positions:
            return
        with suppress(Lost):
            await self._fetch_offsets([position.place for position in self.positions])

    async def _fetch_offsets(self, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
        """What is committed, and the leader epochs."""

        def build(version: int, module: ModuleType) -> Any:
            topic = fill(
                module.OffsetFetchRequestTopic,
                name=self.topic,
                partition_indexes=tuple(place.partition for place in places),
            )
            return fill(
                module.OffsetFetchRequest,
                group_id=self.group,
                topics=(topic,),
                require_stable=self.chance.random() < 0.5,
            )

        call, answer = await self._call(
            COMMITTED, ApiKey.OFFSET_FETCH, build, error_code, max_version=7
        )
        if answer is None:
            raise Lost("offsets not told")
        found = dict.fromkeys(places, (NOTHING, -1))
        for partition in answer.topics[0].partitions:
            if partition.error_code is not ErrorCode.none:
                self.history.finish(call, Outcome.FAILED, self.now_ms, partition.error_code.name)
                raise Lost(partition.error_code.name)
            index, epoch = partition.partition_index, partition.committed_leader_epoch
            found[Place(self.topic, index)] = partition.committed_offset, epoch
            # Who leads an older epoch may not have what was consumed up to there (KIP-320).
            self._leaders.heard_of(index, epoch)
        self._done(call, {place: offset for place, (offset, _) in found.items()})
        return found

    async def _beat(self) -> None:
        def build(version: int, module: ModuleType) -> Any:
            return fill(
                module.HeartbeatRequest,
                group_id=self.group,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self._instance,
            )

        call, answer = await self._call(
            "heartbeat", ApiKey.HEARTBEAT, build, error_code, max_version=4
        )
        if answer is not None:
            self._done(call)

    async def _consume(self, position: Position) -> None:
        before = len(self.seen)
        await self._fetch(position)
        fresh = self.seen[before:]
        self._consumed.add(position.place, [(one.offset, one.value) for one in fresh])

    async def _commit(self) -> None:
        positions = [copy(position) for position in self.positions]
        offsets = {position.place: position.offset for position in positions}

        def build(version: int, module: ModuleType) -> Any:
            topic = fill(
                module.OffsetCommitRequestTopic,
                name=self.topic,
                partitions=tuple(
                    fill(
                        module.OffsetCommitRequestPartition,
                        partition_index=position.place.partition,
                        committed_offset=position.offset,
                        committed_leader_epoch=position.epoch,
                        committed_metadata="",
                    )
                    for position in positions
                ),
            )
            return fill(
                module.OffsetCommitRequest,
                group_id=self.group,
                generation_id_or_member_epoch=self._generation,
                member_id=self._member_id,
                group_instance_id=self._instance,
                retention_time=millis(-1),
                topics=(topic,),
            )

        call, answer = await self._call(
            COMMIT, ApiKey.OFFSET_COMMIT, build, _common_error, max_version=9, offsets=offsets
        )
        if answer is not None:
            self._done(call)
            self.committed.update(offsets)

    async def _leave(self) -> None:
        if self._instance is not None:
            return  # a static member that stops says nothing

        def build(version: int, module: ModuleType) -> Any:
            member = None
            if version >= 3:
                member = fill(
                    module.MemberIdentity,
                    member_id=self._member_id,
                    group_instance_id=None,
                    reason=None,
                )
            return fill(
                module.LeaveGroupRequest,
                group_id=self.group,
                member_id=self._member_id,
                members=(member,),
            )

        call, answer = await self._call(
            "leave group", ApiKey.LEAVE_GROUP, build, error_code, max_version=5
        )
        if answer is not None:
            self._done(call)


def error_code(answer: Any) -> ErrorCode:
    code: ErrorCode = answer.error_code
    return code


def _joined_or_error(answer: Any) -> ErrorCode:
    """To be told one's member id is no refusal."""
    code = error_code(answer)
    return ErrorCode.none if code is ErrorCode.member_id_required else code


def _common_error(answer: Any) -> ErrorCode:
    codes: list[ErrorCode] = [p.error_code for topic in answer.topics for p in topic.partitions]
    if len(dict.fromkeys(codes)) > 1:
        return ErrorCode.unknown_server_error  # some are committed, and some are not
    return codes[0]
