"""Admin clients: topics made, deleted, configured and read, at the active controller or through
a broker. Judged by `simulation.models.topics`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from simulation.clients.links import Address, Build, Client, NoAnswer, NotSent, find_active
from simulation.history import Call, History, Outcome
from simulation.models.topics import ABSENT, EXISTS
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis
from wire.uuids import to_text
from world.env import Env

CONFIG = "retention.ms"
_TIMEOUT_MS = 3_000
_NAMES_AT_ONCE = 3
_NAMES_CHANGE_MS = 12_000

# Errors that say how the topic is, and errors that say that nothing was done. Any other leaves
# open whether something was: a controller that lost its office may have appended already.
_SAYS = {
    ErrorCode.topic_already_exists: EXISTS,
    ErrorCode.unknown_topic_or_partition: ABSENT,
}
_NOT_DONE = (
    ErrorCode.invalid_replication_factor,
    ErrorCode.invalid_request,
    ErrorCode.invalid_config,
    ErrorCode.unsupported_version,
)

NewestLed = Callable[[int], int | None]
"""The newest epoch that any controller was elected for, if this one leads it, by its id."""

Read = Callable[[str], Awaitable[tuple[str, str | None] | None]]
"""A linearizable read of a topic: (id, value) or None; raises where nobody can confirm it."""


class AdminClient(Client):
    """Makes calls at random, about `every_ms` apart; without `changes` only reads. `read` asks the
    active controller's door. `newest_led`, where anybody can know, has refusals judged strictly.

    Topic names begin with `prefix`: nobody else may use them, nor have used them before.
    """

    def __init__(
        self,
        env: Env,
        name: str,
        controllers: Mapping[int, Address],
        brokers: Mapping[int, Address],
        history: History,
        read: Read,
        *,
        every_ms: int,
        changes: bool = True,
        newest_led: NewestLed | None = None,
        prefix: str = "topic",
    ) -> None:
        super().__init__(env, name, {**controllers, **brokers}, history)
        self._prefix = prefix
        self._controllers = sorted(controllers)
        self._brokers = sorted(brokers)
        self._read_topic = read
        self._newest_led = newest_led or (lambda node_id: None)
        self._every_ms = every_ms
        self._weights = (4, 2, 4, 3) if changes else (0, 0, 0, 1)
        self._active: int | None = None
        self._values = 0

    async def run(self) -> None:
        """Until it is closed."""
        while not self.stopping:
            await asyncio.sleep(self.chance.uniform(0.2, 1.8) * self._every_ms / 1000)
            if not self.stopping:
                await self.one_call()

    async def one_call(self) -> None:
        """One call of a kind drawn by chance."""
        # Few names at a time, so that clients meet; new ones later, so that histories stay short.
        era = self.now_ms // _NAMES_CHANGE_MS
        name = f"{self._prefix}-{era}-{self.chance.randrange(_NAMES_AT_ONCE)}"
        kind = self.chance.choices(("create", "delete", "alter", "read"), self._weights)[0]
        if kind == "read":
            await self._read(name)
        elif self.chance.random() < 0.3:
            await self._change(kind, name, self.chance.choice(self._brokers), forwarded=True)
        else:
            node_id = await self._find_active()
            if node_id is not None:
                await self._change(kind, name, node_id, forwarded=False)

    async def read_all(self, names: Iterable[str]) -> None:
        """Reads these topics, one after the other."""
        for name in names:
            await self._read(name)

    async def _find_active(self) -> int | None:
        """The active controller as some controller knows it."""
        if self._active is not None:
            return self._active
        self._active = await find_active(self, self._controllers)
        return self._active

    async def _read(self, name: str) -> None:
        call = self.history.invoke(self.name, "read", self.now_ms, name=name)
        try:
            async with asyncio.timeout(_TIMEOUT_MS / 1000):
                found = await self._read_topic(name)
        except (TimeoutError, NotSent, NoAnswer) as error:
            self.history.finish(call, Outcome.FAILED, self.now_ms, str(error))
        else:
            self.history.finish(call, Outcome.OK, self.now_ms, found)

    async def _change(self, kind: str, name: str, node_id: int, *, forwarded: bool) -> None:
        args: dict[str, Any] = {"name": name, "node": node_id}
        if forwarded:
            args["forwarded"] = True
        if kind == "alter":
            self._values += 1
            # Any number does as a config's value, and no two alike.
            args["value"] = str(1_000_000_000 + self._values * 100 + int(self.name[-1]))
        api_key, build = _request(kind, name, args.get("value"), self.chance.choice((1, 2, 3)))
        call = self.history.invoke(self.name, kind, self.now_ms, **args)
        led = self._newest_led(node_id)
        try:
            answer = await self.links.call(node_id, api_key, build, _TIMEOUT_MS)
        except NotSent as error:
            self._active = None
            self.history.finish(call, Outcome.FAILED, self.now_ms, str(error))
        except NoAnswer as error:
            self._active = None
            self.history.finish(call, Outcome.UNKNOWN, self.now_ms, str(error))
        else:
            # Nobody was elected since, so it knew all that was committed when it was asked.
            if led is not None and led == self._newest_led(node_id):
                call.args["newest"] = True
            self._answered(call, answer)

    def _answered(self, call: Call, answer: Any) -> None:
        items = answer.topics if call.kind == "create" else answer.responses
        item = items[0]
        error = item.error_code
        outcome, result = Outcome.UNKNOWN, error.name
        if error is ErrorCode.none:
            outcome = Outcome.OK
            result = None
            if call.kind == "create" and getattr(item, "topic_id", None) is not None:
                result = to_text(item.topic_id)
        elif error in _SAYS:
            outcome, result = Outcome.FAILED, _SAYS[error]
        elif error in _NOT_DONE:
            outcome = Outcome.FAILED
        if error is ErrorCode.not_controller:
            self._active = None
        self.history.finish(call, outcome, self.now_ms, result)


def _request(kind: str, name: str, value: str | None, replicas: int) -> tuple[int, Build]:
    """The Kafka request of a change."""
    if kind == "create":
        return ApiKey.CREATE_TOPICS, create_topic(name, partitions=2, replicas=replicas)
    if kind == "delete":

        def delete(version: int, module: ModuleType) -> Any:
            topic = fill(module.DeleteTopicState, name=name, topic_id=None)
            return fill(module.DeleteTopicsRequest, topics=(topic,), timeout=millis(_TIMEOUT_MS))

        return ApiKey.DELETE_TOPICS, delete

    def alter(version: int, module: ModuleType) -> Any:
        config = fill(module.AlterableConfig, name=CONFIG, config_operation=0, value=value)
        resource = fill(
            module.AlterConfigsResource, resource_type=2, resource_name=name, configs=(config,)
        )
        return fill(
            module.IncrementalAlterConfigsRequest, resources=(resource,), validate_only=False
        )

    return ApiKey.INCREMENTAL_ALTER_CONFIGS, alter


def create_topic(
    name: str, *, partitions: int, replicas: int, configs: Mapping[str, str] | None = None
) -> Build:
    """A CreateTopics request for one topic."""

    def build(version: int, module: ModuleType) -> Any:
        topic = fill(
            module.CreatableTopic,
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=(),
            configs=tuple(
                fill(module.CreatableTopicConfig, name=key, value=value)
                for key, value in sorted((configs or {}).items())
            ),
        )
        return fill(
            module.CreateTopicsRequest,
            topics=(topic,),
            timeout=millis(_TIMEOUT_MS),
            validate_only=False,
        )

    return build
