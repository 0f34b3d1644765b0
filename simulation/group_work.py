"""Groups in a run: members at work, what only the world knows of coordinators, the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from broker.group_partition import OFFSETS_TOPIC
from metadata.image import MetadataImage, PartitionRegistration
from simulation.checks.watcher import Watcher
from simulation.clients.groups import GroupMember, View
from simulation.clients.links import Address, Links, NoAnswer, NotSent
from simulation.clients.newer_groups import NewerMember
from simulation.history import History, Outcome
from simulation.models import groups
from simulation.models.groups import Consumed
from simulation.models.records import Place
from simulation.run import Simulation
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill

MEMBERS = 3
GROUP = "readers"
# Of the partitions of the offsets topic there is one.
_COORDINATED = 0
_SHORT_SEGMENTS = {"segment.ms": "4000", "min.cleanable.dirty.ratio": "0.1"}


class GroupWork:
    """The members of one group that consumes a topic, by the consumer protocol if it is `newer`."""

    def __init__(
        self,
        simulation: Simulation,
        watcher: Watcher,
        brokers: Mapping[int, Address],
        history: History,
        topic: str,
        partitions: int,
        *,
        newer: bool,
    ) -> None:
        self._kind = NewerMember if newer else GroupMember
        self._simulation = simulation
        self._watcher = watcher
        self._brokers = brokers
        self._history = history
        self._places = [Place(topic, index) for index in range(partitions)]
        self.consumed = Consumed(GROUP)
        self.members = [self._member(number, topic, partitions) for number in range(MEMBERS)]

    def _member(self, number: int, topic: str, partitions: int) -> GroupMember:
        name = f"member{number}"
        _, env = self._simulation.client_env(name)
        return self._kind(
            env,
            name,
            self._brokers,
            self._history,
            topic,
            partitions,
            self.consumed,
            instance="first" if number == 0 else None,
            view=self._view,
        )

    async def set_up(self, name: str) -> None:
        """Has the offsets topic made, as whoever asks for a coordinator first does, and its
        segments short: coordinators load from a log that was cleaned."""
        _, env = self._simulation.client_env(name)
        links = Links(env, name, self._brokers)

        def find(version: int, module: ModuleType) -> Any:
            return fill(module.FindCoordinatorRequest, key=GROUP, key_type=0)

        def shorten(version: int, module: ModuleType) -> Any:
            configs = tuple(
                fill(module.AlterableConfig, name=key, config_operation=0, value=value)
                for key, value in _SHORT_SEGMENTS.items()
            )
            resource = fill(
                module.AlterConfigsResource,
                resource_type=2,
                resource_name=OFFSETS_TOPIC,
                configs=configs,
            )
            return fill(
                module.IncrementalAlterConfigsRequest, resources=(resource,), validate_only=False
            )

        for api_key, build in (
            (ApiKey.FIND_COORDINATOR, find),
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, shorten),
        ):
            while True:
                node_id = env.chance.choice(sorted(self._brokers))
                try:
                    answer = await links.call(node_id, api_key, build, 3_000, max_version=3)
                except (NotSent, NoAnswer):
                    await asyncio.sleep(0.1)
                    continue
                told = answer.responses[0] if api_key != ApiKey.FIND_COORDINATOR else answer
                if told.error_code is ErrorCode.none:
                    break
                await asyncio.sleep(0.1)
        links.close()

    def _view(self, node_id: int) -> View:
        node = self._simulation.node(node_id)
        if node is None:
            return View(None, None)
        own, newest = _coordinated(node.image), _coordinated(self._watcher.images.newest)
        if own is None or newest is None:
            return View(None, None)
        if own.leader != node_id:
            return View(None, own.leader_epoch)
        known = (own.leader, own.leader_epoch) == (newest.leader, newest.leader_epoch)
        return View(own.leader_epoch if known else None, None)

    # -- the end -------------------------------------------------------------------------------

    def be_calm(self) -> None:
        """No member has an accident any more."""
        for member in self.members:
            member.calm = True

    def missing(self, ends: Mapping[Place, int]) -> str | None:
        """What the group has not consumed and committed of logs with these ends."""
        for place in self._places:
            committed = max(member.committed.get(place, 0) for member in self.members)
            consumed = self.consumed.upto.get(place, 0)
            if min(committed, consumed) < ends[place]:
                return (
                    f"{place} ends at {ends[place]}, {GROUP} has consumed up to {consumed} and "
                    f"committed up to {committed}"
                )
        return None

    def _generations(self) -> int:
        """In how many generations somebody was told what it owns."""
        told = [
            call
            for call in self._history.calls
            if call.kind == groups.SYNC and call.outcome is Outcome.OK and call.result
        ]
        return len(dict.fromkeys(call.args["generation"] for call in told))

    def judge(self, final: Mapping[Place, Sequence[tuple[int, bytes]]]) -> None:
        """Violation unless all that members were told fits together."""
        self._simulation.world.count("generations of groups", self._generations())
        groups.judge(self._history, GROUP)
        groups.judge_consumed(self.consumed, final, self._places)


def _coordinated(image: MetadataImage | None) -> PartitionRegistration | None:
    return None if image is None else image.partition(OFFSETS_TOPIC, _COORDINATED)
