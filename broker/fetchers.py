"""Copies from leaders: one loop per source broker, one Fetch in flight that covers all partitions.

The round trip is the batching clock: what was appended while a fetch was on its way joins the next,
and the fetch offset is the acknowledgement. In a fetch session (KIP-227) neither side repeats what
the other knows. Logs that parted are cut at the epoch where they still
agree (KIP-101, truncation on fetch KIP-595): the leader answers with the diverging epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

import structlog

from broker.config import BrokerConfig
from broker.leader_session import Followed, LeaderSession
from broker.partition import NO_LEADER, Role
from broker.replica import Replica
from broker.tasks import OnFatal, spawn
from net.client import Connection
from net.errors import NetworkError
from wire.apis import ApiKey, ErrorCode
from wire.errors import DamagedFile, DecodeError, KafkaError
from wire.hot import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    decode_fetch_response,
    encode_fetch_request,
)
from world.env import DiskError, Env

Address = Callable[[int], tuple[str, int] | None]
Key = tuple[UUID, int]

# Array elements and tagged fields of an answer: all partitions that a request can name.
_MAX_ANSWERED = 300_000
_FIRST_VERSION_BY_ID = 13
_SESSION_ERRORS = (
    ErrorCode.fetch_session_id_not_found,
    ErrorCode.invalid_fetch_session_epoch,
    ErrorCode.fetch_session_topic_id_error,
)
_FIRST_BACKOFF_MS = 50
_EARLIEST, _LATEST = -2, -1


class Fetchers:
    """The fetch loops of one broker, made and ended as partitions change their leaders.

    `address` says where a broker's inter-broker listener is; `broker_epoch` is our own epoch.
    `disk_failed` is told when the disk refused what a leader sent.
    """

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        address: Address,
        broker_epoch: Callable[[], int],
        disk_failed: Callable[[Replica, Exception], None],
        on_fatal: OnFatal,
    ) -> None:
        self.env = env
        self.on_fatal = on_fatal
        self.config = config
        self.address = address
        self.broker_epoch = broker_epoch
        self.disk_failed = disk_failed
        self._by_source: dict[int, Fetcher] = {}
        self._source_of: dict[Key, int] = {}
        self._ending: dict[asyncio.Task[None], None] = {}
        self.bytes_in = 0

    def follow(self, replica: Replica) -> None:
        """Copies the partition from its leader; from nobody where we lead, or can't write."""
        self.forget(replica)
        core = replica.core
        if replica.failed or core.role is not Role.FOLLOWER or core.leader == NO_LEADER:
            return
        fetcher = self._by_source.get(core.leader)
        if fetcher is None:
            fetcher = self._by_source[core.leader] = Fetcher(self, core.leader)
        self._source_of[replica.topic_id, replica.index] = core.leader
        fetcher.add(replica)

    def forget(self, replica: Replica) -> None:
        """Copies the partition no more."""
        source = self._source_of.pop((replica.topic_id, replica.index), None)
        if source is None:
            return
        fetcher = self._by_source[source]
        fetcher.remove((replica.topic_id, replica.index))
        if fetcher.idle:
            del self._by_source[source]
            self._ending[fetcher.task] = None
            fetcher.task.add_done_callback(self._ending.pop)
            fetcher.stop()

    async def close(self) -> None:
        """Ends all loops."""
        fetchers = list(self._by_source.values())
        self._by_source.clear()
        self._source_of.clear()
        for fetcher in fetchers:
            fetcher.stop()
        tasks = [*(f.task for f in fetchers), *self._ending]
        if tasks:
            await asyncio.wait(tasks)


class Fetcher:
    """The loop that copies from one broker."""

    def __init__(self, owner: Fetchers, source: int) -> None:
        self._owner = owner
        self._env = owner.env
        self._source = source
        self._partitions: dict[Key, Followed] = {}
        self._changed = asyncio.Event()
        self._connection: Connection | None = None
        self._session = LeaderSession()
        self._waiting_idle = False
        self._log = structlog.get_logger("broker.fetcher").bind(
            node_id=owner.config.node_id, source=source
        )
        self.fetches = 0
        self.task = spawn(f"fetch-{source}", self._run, owner.on_fatal)

    @property
    def idle(self) -> bool:
        return not self._partitions

    def add(self, replica: Replica) -> None:
        self._partitions[replica.topic_id, replica.index] = Followed(replica)
        self._changed.set()
        if self._waiting_idle and self._connection is not None:
            # The fetch in flight may be parked for half a second at the leader, and answers leave
            # in order: a new connection lets the new partition start at once.
            self._connection.close()

    def remove(self, key: Key) -> None:
        self._partitions.pop(key, None)

    def stop(self) -> None:
        self.task.cancel()

    async def _run(self) -> None:
        backoff_ms = 0
        try:
            while True:
                due = await self._due()
                try:
                    await self._fetch(due)
                    backoff_ms = 0
                except NetworkError as error:
                    self._drop()
                    if self._changed.is_set():
                        continue
                    backoff_ms = min(
                        max(_FIRST_BACKOFF_MS, 2 * backoff_ms),
                        self._owner.config.replica_fetch_backoff_ms,
                    )
                    self._log.info("fetch_failed", reason=str(error))
                    await self._pause(backoff_ms * (0.8 + 0.4 * self._env.chance.random()))
                except DecodeError as error:
                    self._drop()
                    self._log.warning("fetch_malformed", reason=str(error))
                    await self._pause(self._owner.config.replica_fetch_backoff_ms)
        finally:
            self._drop()

    async def _due(self) -> list[Followed]:
        """The partitions to ask for now; waits until there is one."""
        while True:
            self._changed.clear()
            now_ms = self._env.clock.now_ms()
            due = [f for f in self._partitions.values() if f.not_before_ms <= now_ms]
            if due:
                return due
            soonest_ms = min((f.not_before_ms for f in self._partitions.values()), default=None)
            if soonest_ms is None:
                await self._changed.wait()
            else:
                await self._pause(soonest_ms - now_ms)

    async def _pause(self, pause_ms: float) -> None:
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            return

    def _drop(self) -> None:
        self._session.failed()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _connected(self) -> Connection:
        connection = self._connection
        if connection is None or connection.closed:
            address = self._owner.address(self._source)
            if address is None:
                raise NetworkError(f"broker {self._source} has no known address")
            connection = await Connection.connect(
                self._env,
                *address,
                client_id=f"broker-{self._owner.config.node_id}-fetcher",
                timeout_ms=self._owner.config.replica_socket_timeout_ms,
            )
            self._connection = connection
        return connection

    async def _fetch(self, due: list[Followed]) -> None:
        connection = await self._connected()
        version = connection.version(ApiKey.FETCH, 18)
        config = self._owner.config
        session = self._session
        topics, forgotten = session.request(due, config.replica_fetch_max_bytes)
        request = FetchRequest(
            config.replica_fetch_wait_max_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            topics,
            replica_id=config.node_id,
            replica_epoch=self._owner.broker_epoch(),
            session_id=session.id,
            session_epoch=session.epoch,
            forgotten=forgotten,
        )
        self.fetches += 1
        self._waiting_idle = True
        try:
            body = await connection.send_raw(
                ApiKey.FETCH,
                version,
                encode_fetch_request(version, request),
                config.replica_socket_timeout_ms,
            )
        finally:
            self._waiting_idle = False
        response = decode_fetch_response(version, body, _MAX_ANSWERED)
        if response.error_code:
            session.failed(ErrorCode(response.error_code))
            if response.error_code in _SESSION_ERRORS:
                return
            raise NetworkError(f"broker {self._source} answered {response.error_code}")
        session.answered(response.session_id)
        names: dict[str | None, UUID] = {}
        if version < _FIRST_VERSION_BY_ID:
            names = {f.replica.topic: f.replica.topic_id for f in due}
        for answered in response.topics:
            topic_id = names.get(answered.name) if names else answered.topic_id
            for partition in answered.partitions:
                followed = None
                if topic_id is not None:
                    followed = self._partitions.get((topic_id, partition.index))
                asked = None if followed is None else session.asked(followed)
                if followed is not None and asked is not None:
                    await self._take(followed, asked, partition, connection)

    async def _take(
        self,
        followed: Followed,
        asked: FetchPartition,
        answer: FetchedPartition,
        connection: Connection,
    ) -> None:
        """One partition of an answer. What the partition became meanwhile decides."""
        replica = followed.replica
        key = (replica.topic_id, replica.index)
        if (
            self._partitions.get(key) is not followed
            or replica.core.leader_epoch != asked.current_leader_epoch
            or replica.core.role is not Role.FOLLOWER
            or replica.log.end_offset != asked.fetch_offset
        ):
            return
        try:
            if answer.error_code == ErrorCode.none:
                await self._copy(followed, answer)
            elif answer.error_code == ErrorCode.offset_out_of_range:
                await self._find_start(followed, connection)
            else:
                self._refused(followed, ErrorCode(answer.error_code))
        except (KafkaError, DiskError, DamagedFile) as error:
            self._back_off(followed)
            self._owner.disk_failed(replica, error)

    async def _copy(self, followed: Followed, answer: FetchedPartition) -> None:
        replica = followed.replica
        truncations = replica.log.truncations
        if answer.diverging_epoch is not None:
            offset = agreed_offset(replica, *answer.diverging_epoch)
            self._log.info("truncated", topic=replica.topic, partition=replica.index, offset=offset)
            replica.truncate(offset)
            await replica.log.settle()
            return
        if answer.records_size:
            self._owner.bytes_in += answer.records_size
            replica.append_as_follower(answer.records[0])
            # To the end of the line, so that a full answer does not starve the others.
            key = (replica.topic_id, replica.index)
            self._partitions[key] = self._partitions.pop(key)
        replica.leader_told(answer.high_watermark, answer.log_start_offset)
        followed.backoff_ms = 0
        if replica.log.truncations != truncations:  # an empty log that begins within a batch
            await replica.log.settle()

    def _back_off(self, followed: Followed) -> None:
        most_ms = self._owner.config.replica_fetch_backoff_ms
        followed.backoff_ms = min(max(_FIRST_BACKOFF_MS, 2 * followed.backoff_ms), most_ms)
        followed.not_before_ms = self._env.clock.now_ms() + followed.backoff_ms

    def _refused(self, followed: Followed, error: ErrorCode) -> None:
        replica = followed.replica
        self._back_off(followed)
        self._log.info(
            "partition_refused", topic=replica.topic, partition=replica.index, error=error.name
        )

    async def _find_start(self, followed: Followed, connection: Connection) -> None:
        """Our end is outside of the leader's log: cut, or begin anew where its log begins."""
        replica = followed.replica
        epoch = replica.core.leader_epoch
        end = await self._leader_offset(replica, connection, _LATEST)
        start = await self._leader_offset(replica, connection, _EARLIEST)
        core, log = replica.core, replica.log
        key = (replica.topic_id, replica.index)
        if self._partitions.get(key) is not followed:
            return  # another log may be in its place by now
        if core.leader_epoch != epoch or core.role is not Role.FOLLOWER:
            return  # what the old leader has says nothing about the new one's log
        named = {"topic": replica.topic, "partition": replica.index}
        if end is not None and log.log_start_offset <= end < log.end_offset:
            self._log.info("truncated", offset=end, **named)
            replica.truncate(end)
        elif (
            end is not None
            and start is not None
            and (end < log.log_start_offset or start > log.end_offset)
        ):
            # Nothing of ours is in the leader's log.
            self._log.info("restarted", offset=start, **named)
            replica.restart_at(start)
        else:
            # Nothing to mend on our side: asking again at once would only repeat the answer.
            self._back_off(followed)
            return
        await log.settle()

    async def _leader_offset(
        self, replica: Replica, connection: Connection, timestamp: int
    ) -> int | None:
        """The leader's earliest or latest offset as it tells a replica; None if it refuses."""
        epoch = replica.core.leader_epoch
        answer = await connection.call(
            ApiKey.LIST_OFFSETS,
            lambda version, m: m.ListOffsetsRequest(
                replica_id=self._owner.config.node_id,
                isolation_level=0,
                topics=(
                    m.ListOffsetsTopic(
                        name=replica.topic,
                        partitions=(
                            m.ListOffsetsPartition(
                                partition_index=replica.index,
                                current_leader_epoch=epoch,
                                timestamp=timestamp,
                            ),
                        ),
                    ),
                ),
            ),
            self._owner.config.replica_socket_timeout_ms,
            max_version=9,
        )
        result = answer.topics[0].partitions[0]
        if result.error_code is not ErrorCode.none:
            return None
        offset: int = result.offset
        return offset


def agreed_offset(replica: Replica, epoch: int, end_offset: int) -> int:
    """Where a follower cuts its log when the leader names (epoch, end offset) (KIP-279)."""
    log = replica.log
    if end_offset < 0:
        offset = replica.core.high_watermark
    elif epoch < 0:
        offset = min(end_offset, log.end_offset)
    else:
        own_epoch, own_end = log.end_offset_for_epoch(epoch)
        if own_epoch < 0:
            offset = min(end_offset, log.end_offset)
        elif own_epoch != epoch:
            offset = min(own_end, log.end_offset)
        else:
            offset = min(own_end, end_offset, log.end_offset)
    return max(offset, log.log_start_offset)
