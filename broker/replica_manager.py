"""All replicas of this broker: made, led, followed and deleted as the image says.

A replica that is open learns of a new image at once. One that has to be opened first does so in a
task of its own and then takes the image of that moment, so a late opening never brings back an old
assignment (and the core ignores epochs that it has passed).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from broker.config import BrokerConfig
from broker.directory_work import DirectoryWork
from broker.log_store import DirectoryOffline, LogStore, NoRoom, StoredLog
from broker.partition import NO_LEADER, PartitionCore
from broker.partition_events import (
    AlterPartitionAnswered,
    Assigned,
    EligibleBrokers,
    MinIsr,
    ProposeIsr,
    Tick,
)
from broker.replica import Replica
from broker.tasks import OnFatal
from broker.topic_settings import TopicSettings
from broker.waits import WakeQueue
from metadata.delta import ImageDelta
from metadata.image import (
    BROKER_RESOURCE,
    EMPTY,
    TOPIC_RESOURCE,
    MetadataImage,
    PartitionRegistration,
)
from storage.log_dir import LogDirectory
from wire.apis import ErrorCode
from wire.errors import FatalError
from wire.exits import EXIT_LOG_DIRECTORY_FAILED
from world.env import DiskError, DiskFull, Env

Key = tuple[UUID, int]
Settings = Callable[[MetadataImage, str], TopicSettings]


class ReplicaManager:
    """See the module's text.

    `settings` gives a topic's effective configuration in an image. `on_propose` sends an ISR
    proposal, `on_follow` makes the fetchers follow a replica's present leader, `on_forget` makes
    them drop it. `on_placed` tells the controller a replica's directory that it does not know.
    `on_fatal` is told what ends the broker. Counters and gauges are attributes.
    """

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        store: LogStore,
        settings: Settings,
        *,
        on_propose: Callable[[Replica, ProposeIsr], None],
        on_follow: Callable[[Replica], None],
        on_forget: Callable[[Replica], None],
        on_placed: Callable[[Replica, UUID], None],
        on_fatal: OnFatal,
    ) -> None:
        self.env = env
        self.config = config
        self.store = store
        self.image: MetadataImage = EMPTY
        self._served: MetadataImage = EMPTY
        self.wakes = WakeQueue()
        self._settings_in = settings
        self._settings_of: dict[str, TopicSettings] = {}
        self._on_propose = on_propose
        self._on_follow = on_follow
        self._on_forget = on_forget
        self._on_placed = on_placed
        self._on_fatal = on_fatal
        self._by_name: dict[tuple[str, int], Replica] = {}
        self._by_id: dict[Key, Replica] = {}
        # Being opened; an event once somebody waits for that.
        self._opening: dict[Key, asyncio.Event | None] = {}
        # To be opened when the disk isn't full any more, and whether they are new here.
        self._without_room: dict[Key, bool] = {}
        self._unreachable: dict[Key, None] = {}  # their logs are in directories that failed
        self._work = DirectoryWork(config.node_id, on_fatal)
        self._eligible: dict[int, int] = {}
        self._closed = False
        self._log = structlog.get_logger("broker.replicas").bind(node_id=config.node_id)
        self.read_errors = 0
        self.bytes_in = 0
        self.bytes_out = 0

    # -- what handlers ask ---------------------------------------------------------------------

    def __iter__(self) -> Any:
        """The replicas by topic and partition."""
        return iter([self._by_name[key] for key in sorted(self._by_name)])

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, topic: str | None, topic_id: UUID | None, index: int) -> Replica | ErrorCode:
        """The replica by topic name or, where that is None, by id; or why there is none."""
        if topic is not None:
            replica = self._by_name.get((topic, index))
            if replica is not None:
                return replica
            known = self.image.topic(topic)
            if known is None or index not in known.partitions:
                return ErrorCode.unknown_topic_or_partition
            return self._why_none(known.id, index)
        if topic_id is None:
            return ErrorCode.unknown_topic_id
        replica = self._by_id.get((topic_id, index))
        if replica is not None:
            return replica
        found = self.image.topic_by_id(topic_id)
        if found is None:
            return ErrorCode.unknown_topic_id
        if index not in found.partitions:
            return ErrorCode.unknown_topic_or_partition
        return self._why_none(topic_id, index)

    def _why_none(self, topic_id: UUID, index: int) -> ErrorCode:
        if (topic_id, index) in self._unreachable:
            return ErrorCode.kafka_storage_error
        return ErrorCode.not_leader_or_follower

    def opening(self, topic: str | None, topic_id: UUID | None, index: int) -> asyncio.Event | None:
        """Set when the replica is open; None unless we lead it and it is being opened now."""
        if not self._opening:
            return None
        found = self.image.topic(topic) if topic is not None else None
        if topic_id is not None:
            found = self.image.topic_by_id(topic_id)
        if found is None:
            return None
        partition = found.partitions.get(index)
        if partition is None or partition.leader != self.config.node_id:
            return None
        key = (found.id, index)
        if key not in self._opening:
            return None
        event = self._opening[key]
        if event is None:
            event = self._opening[key] = asyncio.Event()
        return event

    @property
    def under_replicated(self) -> int:
        """Partitions led here whose ISR lacks a replica."""
        return sum(r.core.under_replicated for r in self._by_name.values())

    @property
    def under_min_isr(self) -> int:
        """Partitions led here with an ISR below min.insync.replicas."""
        return sum(r.core.is_leader and r.core.under_min_isr for r in self._by_name.values())

    @property
    def offline(self) -> int:
        """Replicas whose disk failed."""
        return len(self._unreachable) + sum(r.failed for r in self._by_name.values())

    @property
    def leaders(self) -> int:
        return sum(r.core.is_leader for r in self._by_name.values())

    # -- the image -----------------------------------------------------------------------------

    def on_image(self, image: MetadataImage, delta: ImageDelta | None = None) -> None:
        """The committed image is this now; `delta` is what changed, None where that isn't known."""
        before, self.image = self._served, image
        self._served = image
        if delta is None or delta.full:
            self._take_over(before, image)
            return
        if delta.configs_changed or delta.topics_deleted:
            self._settings_of.clear()
        if delta.brokers_changed:
            self._brokers_changed()
        for topic_id in delta.topics_deleted:
            for replica in [r for r in self._by_id.values() if r.topic_id == topic_id]:
                self._remove(replica, ErrorCode.unknown_topic_or_partition)
            for key in [key for key in self._unreachable if key[0] == topic_id]:
                del self._unreachable[key]
        # Before the partitions: with too low a min.insync.replicas, a leader that is told of a
        # smaller ISR would commit what those who left don't have, and they may yet lead (KIP-966).
        if delta.configs_changed:
            self._configs_changed(delta)
        for topic_id, indexes in delta.topics_changed.items():
            topic = image.topic_by_id(topic_id)
            if topic is None:
                continue
            for index in indexes:
                partition = topic.partitions.get(index)
                if partition is not None:
                    is_new = self._is_new(before, topic_id, index)
                    self._partition_changed(topic.name, topic_id, index, partition, is_new)

    def _is_new(self, before: MetadataImage, topic_id: UUID, index: int) -> bool:
        """Whether the partition was not ours in the image before, so that no log of it can lie in a
        directory that failed. (Without one, who cares.)"""
        if not self.store.unopened or before is EMPTY:
            return False
        partition = before.partition(topic_id, index)
        return partition is None or self.config.node_id not in partition.replicas

    def _take_over(self, before: MetadataImage, image: MetadataImage) -> None:
        """Takes what concerns this broker from an image about which nothing else is known: what it
        hosts now, and what it is to host. The others' partitions aren't looked at."""
        self._settings_of.clear()
        self._brokers_changed()
        if image.configs is not before.configs:
            self._settings_changed(list(self._by_id.values()))
        for topic_id, index in list(self._by_id):
            replica = self._by_id[topic_id, index]
            topic = image.topic_by_id(topic_id)
            partition = None if topic is None else topic.partitions.get(index)
            if partition is None:
                self._remove(replica, ErrorCode.unknown_topic_or_partition)
            elif partition != before.partition(topic_id, index):
                self._partition_changed(replica.topic, topic_id, index, partition, is_new=False)
        for key in [key for key in self._unreachable if not self._hosts(key)]:
            del self._unreachable[key]
        for topic, index in image.partitions_of_broker(self.config.node_id):
            if (topic.id, index) not in self._by_id:
                partition = topic.partitions[index]
                is_new = self._is_new(before, topic.id, index)
                self._partition_changed(topic.name, topic.id, index, partition, is_new)

    def _hosts(self, key: Key) -> bool:
        partition = self.image.partition(*key)
        return partition is not None and self.config.node_id in partition.replicas

    def on_past_image(self, image: MetadataImage) -> None:
        """An image from before this node has caught up: it names topics, but nothing is done."""
        self.image = image

    async def settled(self) -> None:
        """Until every replica that the images so far want is open, and every other is gone."""
        await self._work.settled()

    def _brokers_changed(self) -> None:
        brokers = self.image.brokers
        eligible = {b: brokers[b].epoch for b in sorted(brokers) if brokers[b].active}
        if eligible == self._eligible:
            return
        self._eligible = eligible
        event = EligibleBrokers(eligible)
        for replica in list(self._by_id.values()):
            replica.tell(event)

    def _partition_changed(
        self,
        topic: str,
        topic_id: UUID,
        index: int,
        partition: PartitionRegistration,
        is_new: bool,
    ) -> None:
        replica = self._by_id.get((topic_id, index))
        if self.config.node_id in partition.replicas:
            if replica is not None:
                replica.tell(_assigned(partition))
            elif (topic_id, index) not in self._opening:
                self._opening[topic_id, index] = None
                work = partial(self._open, topic, topic_id, index, is_new)
                self._work.add(f"{topic}-{index}", work)
        elif replica is not None:
            self._remove(replica, ErrorCode.not_leader_or_follower)
        else:
            self._unreachable.pop((topic_id, index), None)

    def _settings(self, topic: str) -> TopicSettings:
        found = self._settings_of.get(topic)
        if found is None:
            found = self._settings_of[topic] = self._settings_in(self.image, topic)
        return found

    def _configs_changed(self, delta: ImageDelta) -> None:
        topics = [name for kind, name in delta.configs_changed if kind == TOPIC_RESOURCE]
        everything = any(kind == BROKER_RESOURCE for kind, _ in delta.configs_changed)
        self._settings_changed([r for r in self._by_id.values() if everything or r.topic in topics])

    def _settings_changed(self, replicas: list[Replica]) -> None:
        for replica in replicas:
            settings = self._settings(replica.topic)
            if settings != replica.settings:
                replica.settings = settings
                replica.log.config = settings.log
                replica.tell(MinIsr(settings.min_isr))

    # -- opening and removing ------------------------------------------------------------------

    async def _open(self, topic: str, topic_id: UUID, index: int, is_new: bool) -> None:
        key = (topic_id, index)
        try:
            partition = self.image.partition(topic_id, index)
            if partition is not None and not self._is_closed():
                await self._open_as(topic, topic_id, index, partition, is_new)
            self._unreachable.pop(key, None)
        except NoRoom as error:
            self._log.error("no_room_for_replica", topic=topic, partition=index, reason=str(error))
            self._without_room[key] = is_new
        except DirectoryOffline:
            if self._hosts(key):
                self._unreachable[key] = None
            raise
        finally:
            event = self._opening.pop(key)
            if event is not None:
                event.set()

    async def _open_as(
        self,
        topic: str,
        topic_id: UUID,
        index: int,
        before: PartitionRegistration,
        is_new: bool,
    ) -> None:
        stored = await self.store.open(
            topic,
            topic_id,
            index,
            self._settings(topic).log,
            before.directory_of(self.config.node_id),
            is_new=is_new,
            is_spare=partial(self._is_spare, topic_id, index),
        )
        if self._is_closed():
            return
        partition = self.image.partition(topic_id, index)
        if partition is None or self.config.node_id not in partition.replicas:
            await self.store.delete(stored)
            # It may have been assigned to us again while its directory went away.
            partition = self.image.partition(topic_id, index)
            if partition is not None and self.config.node_id in partition.replicas:
                await self._open_as(topic, topic_id, index, partition, is_new)
            return
        self._add(topic, topic_id, index, stored, partition)

    def _is_spare(self, topic_id: UUID, index: int) -> bool:
        """Whether another broker leads the partition, and nobody would have this one lead it."""
        partition = self.image.partition(topic_id, index)
        if partition is None:
            return False
        node_id = self.config.node_id
        leads = partition.leader not in (NO_LEADER, node_id)
        return leads and node_id not in (*partition.isr, *partition.elr)

    def _is_closed(self) -> bool:
        return self._closed

    def _add(
        self,
        topic: str,
        topic_id: UUID,
        index: int,
        stored: StoredLog,
        partition: PartitionRegistration,
    ) -> None:
        log = stored.log
        named = {"topic": topic, "partition": index}
        for damage in stored.damage:
            self._log.error(
                "log_damaged",
                path=damage.path,
                position=damage.position,
                offset=damage.offset,
                reason=damage.reason,
                **named,
            )
        if stored.aside is not None:
            self._log.warning("log_begins_anew", kept=stored.aside, **named)
        if stored.absent is not None:
            self._log.warning("log_absent", recovery_point=stored.absent, **named)
        settings = self._settings(topic)
        log.config = settings.log
        core = PartitionCore(
            self.config.node_id,
            lag_max_ms=self.config.replica_lag_time_max_ms,
            min_isr=settings.min_isr,
            log_start=log.log_start_offset,
            log_end=log.end_offset,
            high_watermark=stored.high_watermark,
        )
        replica = Replica(
            topic,
            topic_id,
            index,
            stored,
            core,
            settings,
            self.env.clock,
            self._on_propose,
            self._on_follow,
        )
        self._by_name[topic, index] = replica
        self._by_id[topic_id, index] = replica
        placed = stored.directory_id
        if placed is not None and placed != partition.directory_of(self.config.node_id):
            self._on_placed(replica, placed)
        replica.tell(EligibleBrokers(self._eligible))
        replica.tell(_assigned(partition))

    def _remove(self, replica: Replica, error: ErrorCode) -> None:
        replica.removed = True
        del self._by_id[replica.topic_id, replica.index]
        if self._by_name.get((replica.topic, replica.index)) is replica:
            del self._by_name[replica.topic, replica.index]
        self._on_forget(replica)
        replica.closed(error)
        self._log.info("replica_removed", topic=replica.topic, partition=replica.index)
        self._work.add(replica.name, partial(self.store.delete, replica.stored))

    # -- what the controller and time bring ----------------------------------------------------

    def alter_partition_answered(
        self, topic_id: UUID, index: int, event: AlterPartitionAnswered
    ) -> None:
        """The controller answered an ISR proposal."""
        replica = self._by_id.get((topic_id, index))
        if replica is not None:
            replica.tell(event)

    def tick(self) -> None:
        """Looks for replicas that lag, and tries again to open what a full disk had no room for; to
        be called every half replica.lag.time.max.ms."""
        for replica in list(self._by_id.values()):
            # Followers can't fetch from a failed one, which doesn't make them laggards.
            if not replica.failed:
                replica.tell(Tick())
        waiting, self._without_room = self._without_room, {}
        for (topic_id, index), is_new in waiting.items():
            topic = self.image.topic_by_id(topic_id)
            partition = None if topic is None else topic.partitions.get(index)
            if topic is not None and partition is not None:
                self._partition_changed(topic.name, topic_id, index, partition, is_new)

    def delete_retired_segments(self) -> int:
        """Applies retention to every log; how many segments went."""
        wall_ms = self.env.clock.wall_ms()
        count = 0
        for replica in self:
            if replica.failed:
                continue
            try:
                count += replica.log.delete_retired_segments(wall_ms, replica.core.high_watermark)
            except DiskError as error:
                self.disk_failed(replica, error)
                continue
            replica.log_start_moved()
        return count

    def expire_producers(self) -> int:
        """Forgets producers that wrote nothing for producer.id.expiration.ms; how many."""
        wall_ms = self.env.clock.wall_ms()
        limit_ms = self.config.producer_id_expiration_ms
        return sum(r.log.producers.expire(wall_ms, limit_ms) for r in self)

    async def delete_due_files(self) -> None:
        """Removes the files of segments that went long enough ago."""
        await self.store.delete_due(self.env.clock.now_ms())

    async def checkpoint_high_watermarks(self) -> None:
        await self.store.write_high_watermarks(
            {r.stored: r.core.high_watermark for r in self if not r.failed}
        )

    async def flush(self) -> None:
        """Makes all logs durable and notes how far they are."""
        await self.store.flush()

    def read_failed(self, topic: str, index: int, error: Exception) -> None:
        """The log could not be read where it should be; the client is told a storage error."""
        self.read_errors += 1
        self._log.error("read_failed", topic=topic, partition=index, reason=str(error))

    def disk_failed(self, replica: Replica, error: Exception) -> None:
        """The log refused a change. If the disk did, its directory goes offline; but a full one is
        kept where there is no other, since it may have room again. One that was taken out meanwhile
        says nothing of the disk."""
        if replica.log.closed:
            return
        self._log.error(
            "write_failed", topic=replica.topic, partition=replica.index, reason=str(error)
        )
        directory = replica.stored.directory
        if isinstance(error, DiskFull) and self.store.is_last(directory):
            return
        if isinstance(error, DiskError):
            self.store.fail(directory, error)

    def directory_failed(self, directory: LogDirectory, error: DiskError) -> None:
        """A log directory is offline: its replicas answer KAFKA_STORAGE_ERROR from now on."""
        self._log.error("log_directory_failed", path=directory.path, reason=str(error))
        for replica in self:
            if replica.stored.directory is directory and not replica.failed:
                replica.failed = True
                self._on_forget(replica)
                replica.closed(ErrorCode.kafka_storage_error)
        if not self.store.online:
            self._on_fatal(
                FatalError(EXIT_LOG_DIRECTORY_FAILED, f"no log directory is left: {error}")
            )

    async def close(self) -> None:
        """Ends waiting requests and openings, and writes the high watermarks down."""
        self._closed = True
        self.store.stop_recovery()
        # The image goes on to change. A log that is being closed must not be deleted meanwhile: the
        # next start finds what isn't ours any more.
        await self._work.close()
        for replica in self:
            self._on_forget(replica)
            replica.closed(ErrorCode.not_leader_or_follower)
        await self.checkpoint_high_watermarks()


def _assigned(partition: PartitionRegistration) -> Assigned:
    return Assigned(
        partition.replicas,
        partition.isr,
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.leader_recovery_state != 0,
    )
