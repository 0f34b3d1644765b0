"""Producers with every number of acks, and consumers. Judged by `simulation.models.records`.

As real clients do it: one request in flight, retries with a pause after asking who leads, a
sequence of its own for every partition of an idempotent producer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from net.errors import NetworkError
from simulation.checks import Violation, require
from simulation.clients.links import Address, Client, Leaders, NoAnswer, NotSent
from simulation.history import Call, History, Outcome
from simulation.models.records import ALL, Place, Position, Seen, Sent
from wire.apis import ApiKey, ErrorCode
from wire.batch import build_batch, decode_records, iter_headers
from wire.messages import encode_body, fill, millis, request_module
from wire.records import RecordTuple
from world.env import Env

_PRODUCE_TIMEOUT_MS = 2_000
_RETRY_S = 0.15
_POLL_S = 0.4
# What an idempotent producer must never be told while nothing acknowledged was lost. With one
# request in flight its last batch is always among those remembered: it gets its offset again.
_BROKEN = (
    ErrorCode.out_of_order_sequence_number,
    ErrorCode.invalid_producer_epoch,
    ErrorCode.unknown_producer_id,
    ErrorCode.duplicate_sequence_number,
)
# After these nothing was appended; NOT_LEADER_OR_FOLLOWER may come after an append as well.
_REFUSED = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.not_enough_replicas,
)


IsLeader = Callable[[int, Place], bool]


class Producer(Client):
    """Sends numbered records to the partitions of a topic in turn, one at a time.

    With `idempotent` it repeats each until it is acknowledged; without, each is sent once.
    `is_leader` tells what no client can know: whether a node is a partition's leader in truth.
    """

    def __init__(
        self,
        env: Env,
        name: str,
        brokers: Mapping[int, Address],
        history: History,
        topic: str,
        partitions: int,
        *,
        acks: int,
        idempotent: bool,
        every_ms: int,
        is_leader: IsLeader,
    ) -> None:
        super().__init__(env, name, brokers, history)
        self._is_leader = is_leader
        assert acks == ALL or not idempotent, "idempotence needs acks=all"
        self.topic, self.partitions = topic, partitions
        self.acks, self.idempotent = acks, idempotent
        self.sent: list[Sent] = []
        self._every_ms = every_ms
        self._leaders = Leaders(self, topic)
        self._producer: tuple[int, int] | None = None
        self._sequences = [0] * partitions

    async def run(self) -> None:
        """Until it is closed."""
        await asyncio.gather(*[self._lane(index) for index in range(self.partitions)])

    async def send_to(self, node_id: int, index: int) -> None:
        """One record for a partition, sent once, to a broker of the caller's choice, whoever leads.
        Not for an idempotent producer."""
        assert not self.idempotent, "one that isn't acknowledged would be repeated elsewhere"
        self._leaders.leader[index] = node_id
        await self._send(index)

    async def _lane(self, index: int) -> None:
        """One partition's records: while they wait, the others' go on."""
        pause_s = self._every_ms * self.partitions / 1000
        while not self.stopping:
            await self.rest(pause_s, 0.8)
            if not self.stopping and (not self.idempotent or await self._has_id()):
                await self._send(index)

    async def _has_id(self) -> bool:
        """Whether there is a producer id; asks for one."""
        if self._producer is not None:
            return True

        def build(version: int, module: ModuleType) -> Any:
            return fill(
                module.InitProducerIdRequest,
                transactional_id=None,
                transaction_timeout=millis(60_000),
            )

        node_id = self.chance.choice(sorted(self.links.nodes))
        call = self.history.invoke(self.name, "init producer", self.now_ms, node=node_id)
        try:
            answer = await self.links.call(node_id, ApiKey.INIT_PRODUCER_ID, build, 3_000)
        except (NotSent, NoAnswer) as error:
            self.history.finish(call, Outcome.UNKNOWN, self.now_ms, str(error))
            return False
        if answer.error_code is not ErrorCode.none:
            self.history.finish(call, Outcome.UNKNOWN, self.now_ms, answer.error_code.name)
            return False
        given = (answer.producer_id, answer.producer_epoch)
        self.history.finish(call, Outcome.OK, self.now_ms, given)
        # Another partition's task may have asked too: what it began to send keeps its id.
        self._producer = self._producer or given
        return True

    def _next(self, index: int) -> Sent:
        """The next record for a partition."""
        number = len(self.sent)
        place = Place(self.topic, index)
        value = f"{self.name}/{number}".encode()
        return Sent(self.name, number, value, place, self.acks, self.idempotent, connection=None)

    def _content(self, record: Sent) -> RecordTuple:
        """What of it is on the wire."""
        return self.env.clock.wall_ms(), None, record.value, ()

    async def _send(self, index: int) -> None:
        record = self._next(index)
        self.sent.append(record)
        done = await self._try(record)
        while self.idempotent and not done and not self.stopping:
            await asyncio.sleep(_RETRY_S * self.chance.uniform(0.5, 1.5))
            done = await self._try(record)
        if record.outcome is Outcome.OK:
            self._sequences[index] += 1

    async def _try(self, record: Sent) -> bool:
        """One attempt; whether the record needs no other."""
        leader = self._leaders.leader.pop(record.place.partition, None)
        if leader is None:
            try:
                await self._leaders.ask()
            except (NotSent, NoAnswer):
                return False
            leader = self._leaders.leader.get(record.place.partition)
            if leader is None:
                return False
        call = self.history.invoke(
            self.name, "produce", self.now_ms, value=record.value.decode(), node=leader
        )
        try:
            answer = await self._produce(record, leader)
        except NotSent as error:
            self.history.finish(call, Outcome.FAILED, self.now_ms, str(error))
            return False
        except NoAnswer as error:
            self.history.finish(call, Outcome.UNKNOWN, self.now_ms, str(error))
            return not self.idempotent
        self._leaders.leader[record.place.partition] = leader
        if answer is None:
            self.history.finish(call, Outcome.UNKNOWN, self.now_ms)
            return True
        return self._answered(call, record, answer)

    async def _produce(self, record: Sent, leader: int) -> Any:
        """The partition's answer; None for acks=0."""
        connection = await self.links.connection(leader, _PRODUCE_TIMEOUT_MS)
        record.connection = self.links.number(connection)
        producer_id, producer_epoch = self._producer or (-1, -1)
        batch = build_batch(
            [self._content(record)],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=self._sequences[record.place.partition] if self.idempotent else -1,
        )

        def build(version: int, module: ModuleType) -> Any:
            partition = fill(
                module.PartitionProduceData, index=record.place.partition, records=batch
            )
            topic = fill(module.TopicProduceData, name=self.topic, partition_data=(partition,))
            return fill(
                module.ProduceRequest,
                transactional_id=None,
                acks=self.acks,
                timeout=millis(_PRODUCE_TIMEOUT_MS),
                topic_data=(topic,),
            )

        if self.acks == 0:
            version = connection.version(ApiKey.PRODUCE, 12)
            body = encode_body(build(version, request_module(ApiKey.PRODUCE, version)))
            # Its future only ever fails, with the connection.
            connection.send_raw(ApiKey.PRODUCE, version, body).add_done_callback(_looked_at)
            return None
        limit_ms = _PRODUCE_TIMEOUT_MS + 1_000
        try:
            answer = await connection.call(ApiKey.PRODUCE, build, limit_ms, max_version=12)
        except NetworkError as error:
            raise NoAnswer(str(error)) from error
        return answer.responses[0].partition_responses[0]

    def _answered(self, call: Call, record: Sent, answer: Any) -> bool:
        error = answer.error_code
        if error in _BROKEN and self._is_leader(call.args["node"], record.place):
            # One that leads no more, and doesn't know it yet, may miss what came since: as with
            # Kafka's. The producer goes on asking, so what is lost in truth comes up again.
            raise Violation("an idempotent producer's sequence is never lost", f"{call} {error!r}")
        if error is ErrorCode.none:
            record.outcome = Outcome.OK
            record.offset = answer.base_offset
            self.history.finish(call, Outcome.OK, self.now_ms, answer.base_offset)
            return True
        self._leaders.leader.pop(record.place.partition, None)
        outcome = Outcome.FAILED if error in _REFUSED else Outcome.UNKNOWN
        if not self.idempotent:
            record.outcome = outcome
        self.history.finish(call, outcome, self.now_ms, error.name)
        return not self.idempotent


class Consumer(Client):
    """Reads every partition of a topic from its start, each in a task of its own."""

    def __init__(
        self,
        env: Env,
        name: str,
        brokers: Mapping[int, Address],
        history: History,
        topic: str,
        partitions: int,
    ) -> None:
        super().__init__(env, name, brokers, history)
        self.topic = topic
        self.seen: list[Seen] = []
        self.positions = [Position(name, Place(topic, i)) for i in range(partitions)]
        self._leaders = Leaders(self, topic)

    async def run(self) -> None:
        """Until it is closed."""
        await asyncio.gather(*[self._follow(position) for position in self.positions])

    async def read_to_end(self) -> dict[Place, list[tuple[int, bytes]]]:
        """All records below the high watermarks, by partition. Returns when it has them."""
        await asyncio.gather(*[self._follow(position, once=True) for position in self.positions])
        found: dict[Place, list[tuple[int, bytes]]] = {p.place: [] for p in self.positions}
        for record in self.seen:
            found[record.place].append((record.offset, record.value))
        return found

    async def _follow(self, position: Position, *, once: bool = False) -> None:
        while not self.stopping:
            mark = await self._fetch(position)
            if mark is None:
                await asyncio.sleep(_RETRY_S * self.chance.uniform(0.5, 1.5))
            elif once and position.offset >= mark:
                return
            elif not once:
                await self.rest(_POLL_S, 0.5)

    async def _fetch(self, position: Position) -> int | None:
        """One fetch; the high watermark that it told, None where it failed."""
        index = position.place.partition
        leader = self._leaders.leader.pop(index, None)
        try:
            if leader is None:
                await self._leaders.ask()
                leader = self._leaders.leader.pop(index, None)
                if leader is None:
                    return None
        except (NotSent, NoAnswer):
            return None
        call = self.history.invoke(
            self.name, "fetch", self.now_ms, place=str(position.place), offset=position.offset
        )
        try:
            answer = await self.links.call(
                leader, ApiKey.FETCH, self._request(position), 3_000, max_version=12
            )
        except (NotSent, NoAnswer) as error:
            self.history.finish(call, Outcome.FAILED, self.now_ms, str(error))
            return None
        partition = answer.responses[0].partitions[0]
        code = partition.error_code
        if code is not ErrorCode.none:
            self.history.finish(call, Outcome.FAILED, self.now_ms, code.name)
            require(
                code is not ErrorCode.offset_out_of_range,
                "a consumer's position never leaves the log",
                f"{call} at node {leader}",
            )
            return None
        self._leaders.leader[index] = leader
        mark: int = partition.high_watermark
        self._take(position, bytes(partition.records or b""), mark)
        self.history.finish(call, Outcome.OK, self.now_ms, (position.offset, mark))
        return mark

    def _take(self, position: Position, data: bytes, mark: int) -> None:
        """The batches of one answer."""
        records = []
        for at, header in iter_headers(data):
            records += [(r.offset, r.value or b"") for r in decode_records(data, at, header)]
            position.epoch = header.leader_epoch
        self.seen += position.take(records, mark)

    def _request(self, position: Position) -> Any:
        epoch = self._leaders.epochs.get(position.place.partition, -1)

        def build(version: int, module: ModuleType) -> Any:
            partition = fill(
                module.FetchPartition,
                partition=position.place.partition,
                current_leader_epoch=epoch,
                fetch_offset=position.offset,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=1 << 20,
            )
            topic = fill(module.FetchTopic, topic=position.place.topic, partitions=(partition,))
            return fill(
                module.FetchRequest,
                replica_id=-1,
                max_wait=millis(300),
                min_bytes=1,
                max_bytes=1 << 20,
                isolation_level=0,
                session_id=0,
                session_epoch=-1,
                topics=(topic,),
                forgotten_topics_data=(),
                rack_id="",
            )

        return build


def _looked_at(answer: asyncio.Future[memoryview]) -> None:
    if not answer.cancelled():
        answer.exception()
