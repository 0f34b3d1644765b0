"""The operator: takes controllers out of the quorum and puts them back (KIP-853)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any
from uuid import UUID

from simulation.clients.links import Address, Build, Client, NoAnswer, NotSent, find_active
from simulation.history import History, Outcome
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis
from world.env import Env

_TIMEOUT_MS = 4_000
_PAUSE_S = 0.3
_GIVE_UP_MS = 12_000


class Change:
    """One controller out and in again. With `new_disk` it comes back as another voter."""

    def __init__(self, node_id: int, down_ms: int, *, new_disk: bool) -> None:
        self.node_id, self.down_ms, self.new_disk = node_id, down_ms, new_disk


class Addition:
    """One controller in, that hasn't been before."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id


class Operator(Client):
    """Makes one change after the other. `directory_of` tells a running controller's directory id
    (None while that isn't known), `replace_disk` gives one a new disk. `done` counts changes;
    `idle` is true while every controller is a voter for all that the operator knows."""

    def __init__(
        self,
        env: Env,
        name: str,
        controllers: Mapping[int, Address],
        history: History,
        cluster_id: str,
        directory_of: Callable[[int], UUID | None],
        replace_disk: Callable[[int], None],
    ) -> None:
        super().__init__(env, name, controllers, history)
        self.done = 0
        self.idle = True
        self._cluster_id = cluster_id
        self._directory_of = directory_of
        self._replace_disk = replace_disk
        self._wanted: deque[Change | Addition] = deque()
        self._woken = asyncio.Event()

    def ask(self, change: Change | Addition) -> None:
        """Have a change made, after those asked for before."""
        self.idle = False
        self._wanted.append(change)
        self._woken.set()

    async def run(self) -> None:
        """Until it is closed."""
        while not self.stopping:
            await self._woken.wait()
            self._woken.clear()
            while self._wanted:
                change = self._wanted.popleft()
                gone = isinstance(change, Addition) or await self._remove(change)
                await self._add(change.node_id)
                self.done += gone
            self.idle = True

    async def _remove(self, change: Change) -> bool:
        """Whether it left the quorum in time; it stays away for a while."""
        directory = await self._known_directory(change.node_id)
        gone = await self._repeat(
            "remove voter",
            ApiKey.REMOVE_RAFT_VOTER,
            self._removal(change.node_id, directory),
            (ErrorCode.none, ErrorCode.voter_not_found),
            self.now_ms + _GIVE_UP_MS,
            change.node_id,
        )
        if gone and change.new_disk:
            self._replace_disk(change.node_id)
        await asyncio.sleep(change.down_ms / 1000)
        return gone

    async def _add(self, node_id: int) -> None:
        """Again and again until it is a voter, or everything is over."""
        directory = await self._known_directory(node_id)
        await self._repeat(
            "add voter",
            ApiKey.ADD_RAFT_VOTER,
            self._addition(node_id, directory),
            (ErrorCode.none, ErrorCode.duplicate_voter),
            None,
            node_id,
        )

    async def _known_directory(self, node_id: int) -> UUID:
        while True:
            found = self._directory_of(node_id)
            if found is not None:
                return found
            await asyncio.sleep(_PAUSE_S)

    async def _repeat(
        self,
        kind: str,
        api_key: int,
        build: Build,
        enough: tuple[ErrorCode, ...],
        until_ms: int | None,
        node_id: int,
    ) -> bool:
        """Asks whoever is active until an answer is good enough; False where time was up."""
        while until_ms is None or self.now_ms < until_ms:
            active = await find_active(self, sorted(self.links.nodes))
            if active is not None:
                call = self.history.invoke(self.name, kind, self.now_ms, voter=node_id, node=active)
                try:
                    answer = await self.links.call(active, api_key, build, _TIMEOUT_MS + 1_000)
                except (NotSent, NoAnswer) as error:
                    self.history.finish(call, Outcome.UNKNOWN, self.now_ms, str(error))
                else:
                    good = answer.error_code in enough
                    outcome = Outcome.OK if good else Outcome.UNKNOWN
                    self.history.finish(call, outcome, self.now_ms, answer.error_code.name)
                    if good:
                        return True
            await asyncio.sleep(_PAUSE_S * self.chance.uniform(0.5, 1.5))
        return False

    def _removal(self, node_id: int, directory: UUID) -> Build:
        def build(version: int, module: ModuleType) -> Any:
            return fill(
                module.RemoveRaftVoterRequest,
                cluster_id=self._cluster_id,
                voter_id=node_id,
                voter_directory_id=directory,
            )

        return build

    def _addition(self, node_id: int, directory: UUID) -> Build:
        host, port = self.links.nodes[node_id]

        def build(version: int, module: ModuleType) -> Any:
            listener = fill(module.Listener, name="CONTROLLER", host=host, port=port)
            return fill(
                module.AddRaftVoterRequest,
                cluster_id=self._cluster_id,
                timeout=millis(_TIMEOUT_MS),
                voter_id=node_id,
                voter_directory_id=directory,
                listeners=(listener,),
                ack_when_committed=True,
            )

        return build
