"""Members of groups of the consumer protocol (KIP-848): the coordinator assigns, a member gives up
what is no longer its own before anybody else gets it. Judged by `simulation.models.groups`, its
epoch being the generation."""

from __future__ import annotations

from types import ModuleType
from typing import Any
from uuid import UUID

from simulation.clients.groups import REBALANCE_MS, GroupMember, Lost, error_code
from simulation.models.groups import SYNC
from simulation.models.records import Place
from wire.apis import ApiKey
from wire.messages import fill, millis
from wire.uuids import to_text

_JOINS, _LEAVES, _LEAVES_FOR_A_WHILE = 0, -1, -2


class NewerMember(GroupMember):
    """A member that says in its heartbeats what it owns, and hears there what it is to own."""

    _topic_id: UUID | None = None
    # What it was told to own, and what it said last that it owns.
    _own: tuple[Place, ...] = ()
    _told: tuple[Place, ...] = ()
    # Whether to say everything: the coordinator answers with everything, too.
    _full = True

    async def _join(self) -> None:
        if not self._member_id:
            self._member_id = to_text(UUID(int=self.chance.getrandbits(128)))
        self._generation, self._own, self._full = _JOINS, (), True
        self.positions = []
        await self._beat()
        if self._generation == _JOINS:
            raise Lost("not joined")
        self._is_in = True

    async def _beat(self) -> None:
        joins = self._generation == _JOINS
        owned, full = self._own, self._full
        self._full = True  # unless it is answered
        call, answer = await self._call(
            SYNC,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            lambda version, module: self._heartbeat(module, owned, full=full),
            error_code,
            max_version=1,
        )
        if answer is None:
            if joins:
                raise Lost("not joined")
            return
        self._told, self._full = owned, False
        self._generation = answer.member_epoch
        call.args["generation"] = answer.member_epoch
        places: list[Place] = []
        if answer.assignment is not None:
            for topic in answer.assignment.topic_partitions:
                self._topic_id = topic.topic_id
                places += [Place(self.topic, index) for index in topic.partitions]
            self._own = tuple(places)
        self._done(call, tuple(places))
        await self._reconcile()

    async def _reconcile(self) -> None:
        """Commits and gives up what is not its own any more, then begins with what is new."""
        try:
            if any(position.place not in self._own for position in self.positions):
                await self._commit()
        finally:
            self.positions = [one for one in self.positions if one.place in self._own]
        known = [position.place for position in self.positions]
        await self._begin([place for place in self._own if place not in known])

    def _heartbeat(self, module: ModuleType, owned: tuple[Place, ...], *, full: bool) -> Any:
        mine: tuple[Any, ...] | None = None
        if full or owned != self._told:
            indexes = tuple(place.partition for place in owned)
            mine = ()
            if indexes:
                mine = (fill(module.TopicPartitions, topic_id=self._topic_id, partitions=indexes),)
        return fill(
            module.ConsumerGroupHeartbeatRequest,
            group_id=self.group,
            member_id=self._member_id,
            member_epoch=self._generation,
            instance_id=self._instance,
            rack_id=None,
            rebalance_timeout=millis(REBALANCE_MS if full else -1),
            subscribed_topic_names=(self.topic,) if full else None,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=mine,
        )

    async def _leave(self) -> None:
        self._generation = _LEAVES if self._instance is None else _LEAVES_FOR_A_WHILE
        call, answer = await self._call(
            "leave group",
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            lambda version, module: self._heartbeat(module, self._told, full=False),
            error_code,
            max_version=1,
        )
        if answer is not None:
            self._done(call)
