"""One broker: its parts put together, brought up, and taken down in the right order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from uuid import UUID

import structlog

from broker import (
    api_consumer_group_describe,
    api_consumer_group_heartbeat,
    api_delete_groups,
    api_delete_records,
    api_describe_cluster,
    api_describe_configs,
    api_describe_groups,
    api_describe_log_dirs,
    api_describe_producers,
    api_describe_topic_partitions,
    api_fetch,
    api_find_coordinator,
    api_forwarded,
    api_heartbeat,
    api_init_producer_id,
    api_join_group,
    api_leave_group,
    api_list_groups,
    api_list_offsets,
    api_metadata,
    api_offset_commit,
    api_offset_delete,
    api_offset_fetch,
    api_offset_for_leader_epoch,
    api_produce,
    api_sync_group,
)
from broker.cleaner import Cleaner
from broker.config import BrokerConfig, StaticValues
from broker.context import BrokerContext
from broker.directory_assignments import DirectoryAssignments
from broker.fetchers import Fetchers
from broker.group_coordinator import GroupCoordinators
from broker.groups.coordinator import GroupCoordinator
from broker.groups.regexes import compile_regex
from broker.groups.settings import GroupSettings
from broker.isr_proposals import IsrProposals
from broker.lifecycle import BrokerLifecycle, Identity, State
from broker.log_store import LogStore
from broker.producer_ids import ProducerIds
from broker.replica import Replica
from broker.replica_manager import ReplicaManager
from broker.tasks import Work, spawn
from broker.topic_creation import TopicCreation
from broker.topic_settings import settings_in_image
from metadata.delta import ImageDelta
from metadata.image import MetadataImage
from net.controller_channel import ControllerChannel, Endpoint
from net.handlers import Api, HandlerTable
from storage.log_dir import LogDirectory
from wire.errors import FatalError
from wire.exits import EXIT_LOG_DIRECTORY_FAILED
from world.env import DiskError, DiskFull, Env

_DELETE_CHECK_MS = 30_000
# A broker that never served leads nothing: the controller is told that it goes, if it answers.
_FAREWELL_MS = 500

Listener = tuple[str, str, int, int]
"""(name, advertised host, advertised port, security protocol) of one listener."""


class Broker:
    """A broker on `directories`, which are open and which it closes in `stop`.

    `config` is the node's parsed file (metadata.configs.StaticConfig). `controller_endpoint` says
    who the active controller is (id, host, port), None while that is unknown; call
    `controller_changed` when its answer changes. `features` are the levels supported, by name.
    `failed_directories` are the paths of others that could not be opened. `on_fatal` gets the error
    that ends the broker. Nothing runs before `start`.
    """

    def __init__(
        self,
        env: Env,
        config: StaticValues,
        directories: Sequence[LogDirectory],
        cluster_id: str,
        controller_endpoint: Callable[[], Endpoint | None],
        *,
        inter_broker_listener: str = "PLAINTEXT",
        features: Mapping[str, tuple[int, int]] | None = None,
        failed_directories: Sequence[str] = (),
        on_fatal: Callable[[FatalError], None],
    ) -> None:
        self.env = env
        self.config = BrokerConfig.from_static(config)
        self.store = LogStore(directories, self._directory_failed, failed_directories)
        self._inter_broker_listener = inter_broker_listener
        self._features = features or {}
        self._on_fatal = on_fatal
        self._tasks: list[asyncio.Task[None]] = []
        self._log = structlog.get_logger("broker").bind(node_id=self.config.node_id)
        self._channels = [
            ControllerChannel(env, controller_endpoint, f"broker-{self.config.node_id}-{purpose}")
            for purpose in ("heartbeat", "to-controller", "forwarding")
        ]
        heartbeat, requests, forwarding = self._channels
        self.lifecycle = BrokerLifecycle(
            env, self.config, heartbeat, lambda: self.context.image.last_offset, on_fatal
        )
        self.fetchers = Fetchers(
            env,
            self.config,
            self._address,
            self._epoch,
            lambda replica, error: self.replicas.disk_failed(replica, error),
            on_fatal,
        )
        self.replicas = ReplicaManager(
            env,
            self.config,
            self.store,
            lambda image, topic: settings_in_image(self.config, image, topic),
            on_propose=lambda r, proposal: self.isr.submit(r.topic_id, r.index, proposal),
            on_follow=self.fetchers.follow,
            on_forget=self.fetchers.forget,
            on_placed=lambda r, directory: self._placed(r, directory),
            on_fatal=on_fatal,
        )
        self.cleaner = Cleaner(env, self.config, self.replicas)
        node_id = self.config.node_id
        self.isr = IsrProposals(
            requests, node_id, self._epoch, self.replicas.alter_partition_answered, on_fatal
        )
        self.directories = DirectoryAssignments(requests, node_id, self._epoch, on_fatal)
        self.producer_ids = ProducerIds(requests, node_id, self._epoch)
        self.context = BrokerContext(
            env,
            self.config,
            cluster_id,
            self.lifecycle,
            self.replicas,
            forwarding,
            self.producer_ids,
        )
        self.creation = TopicCreation(self.context, on_fatal)
        self.groups = self._group_coordinators(GroupSettings.from_static(config))

    # -- what the node asks --------------------------------------------------------------------

    def apis(self) -> HandlerTable:
        """The handlers of the client listeners."""
        context = self.context
        apis: list[Api] = []
        for api in (
            api_produce,
            api_fetch,
            api_list_offsets,
            api_offset_for_leader_epoch,
            api_delete_records,
            api_init_producer_id,
            api_describe_configs,
            api_describe_log_dirs,
            api_describe_producers,
            api_describe_cluster,
            api_describe_topic_partitions,
            api_forwarded,
        ):
            apis += api.apis(context)
        apis += api_metadata.apis(context, self.creation)
        apis += api_find_coordinator.apis(context, self.groups, self.creation)
        for group_api in (
            api_join_group,
            api_sync_group,
            api_heartbeat,
            api_leave_group,
            api_list_groups,
            api_describe_groups,
            api_delete_groups,
        ):
            apis += group_api.apis(self.groups)
        for topic_api in (
            api_offset_commit,
            api_offset_fetch,
            api_offset_delete,
            api_consumer_group_heartbeat,
            api_consumer_group_describe,
        ):
            apis += topic_api.apis(context, self.groups)
        return HandlerTable(apis)

    @property
    def running(self) -> bool:
        """Whether the controller counts this broker in."""
        return self.lifecycle.state is State.RUNNING and not self.lifecycle.fenced

    @property
    def state(self) -> str:
        """starting, recovery, running, controlled-shutdown or stopped; for people."""
        return self.lifecycle.state.value

    @property
    def under_replicated(self) -> int:
        return self.replicas.under_replicated

    @property
    def offline(self) -> int:
        return self.replicas.offline

    @property
    def uncleanable(self) -> int:
        """Compacted logs here that the cleaner leaves alone, since they make no sense."""
        return self.cleaner.uncleanable

    @property
    def bytes_in(self) -> int:
        """Bytes that clients produced here."""
        return self.replicas.bytes_in

    @property
    def bytes_out(self) -> int:
        """Bytes of records that were fetched here."""
        return self.replicas.bytes_out

    # -- what the node tells -------------------------------------------------------------------

    def on_image(self, image: MetadataImage, delta: ImageDelta | None = None) -> None:
        """The committed metadata is this now."""
        self.context.image = image
        self.lifecycle.on_image(image)
        if self.context.caught_up.is_set():
            self.replicas.on_image(image, delta)
            self.groups.on_image(image, delta)
        else:
            self.replicas.on_past_image(image)

    def controller_changed(self) -> None:
        """The active controller may be another one."""
        for channel in self._channels:
            channel.endpoint_changed()

    # -- life ----------------------------------------------------------------------------------

    async def start(self, listeners: Sequence[Listener]) -> None:
        """Registers these listeners, and begins to beat; `wait_running` tells the rest."""
        self.lifecycle.start(
            Identity(
                cluster_id=self.context.cluster_id,
                incarnation_id=self.env.ids.uuid(),
                listeners=tuple(listeners),
                directories=self.store.directory_ids,
                previous_epoch=self.store.previous_epoch,
                features=self._features,
            )
        )
        config = self.config
        self._spawn("come-up", self._come_up)
        self._every("isr-check", config.replica_lag_time_max_ms // 2, self._check_isr)
        self._every(
            "high-watermarks",
            config.replica_high_watermark_checkpoint_interval_ms,
            self.replicas.checkpoint_high_watermarks,
        )
        self._every("flush", config.log_flush_offset_checkpoint_interval_ms, self.replicas.flush)
        self._every("retention", config.log_retention_check_interval_ms, self._retention)
        if config.log_cleaner_enable:
            self._spawn("log-cleaner", self.cleaner.run)
        self._every("late-deletes", _DELETE_CHECK_MS, self.replicas.delete_due_files)
        self._every(
            "producer-expiry", config.producer_id_expiration_check_interval_ms, self._expire
        )

    async def wait_running(self) -> None:
        """Until the broker is caught up, its logs are recovered and it is unfenced."""
        await self.lifecycle.wait_unfenced()

    async def stop(self, timeout_ms: int = 10_000) -> None:
        """Moves our leaderships away (at most `timeout_ms`), then leaves everything clean.

        The listeners must be open until this returns and be closed afterwards.
        """
        self._log.info("stopping", leaders=self.replicas.leaders)
        if self.lifecycle.state is not State.RUNNING:
            timeout_ms = min(timeout_ms, _FAREWELL_MS)
        moved = await self.lifecycle.controlled_shutdown(timeout_ms)
        if not moved and self.lifecycle.epoch >= 0:
            self._log.warning("controlled_shutdown_not_confirmed", timeout_ms=timeout_ms)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self.groups.close()
        await self.creation.close()
        await self.fetchers.close()
        await self.isr.close()
        await self.directories.close()
        await self.producer_ids.close()
        await self.replicas.close()
        await self.lifecycle.close()
        try:
            await self.store.close(self.lifecycle.epoch)
        finally:
            # Last, for the listeners are open still: what clients ask the controller is passed on.
            for channel in self._channels:
                channel.close()

    # -- inside --------------------------------------------------------------------------------

    async def _come_up(self) -> None:
        await self.lifecycle.wait_caught_up()
        # Not earlier: images of the past know topics that are gone, and would have the directories
        # of newer ones with the same names set aside.
        self.context.caught_up.set()
        self.replicas.on_image(self.context.image)
        self.groups.on_image(self.context.image)
        await self.replicas.settled()
        for name in await self.store.set_strays_aside(self.context.image, self.config.node_id):
            self._log.warning("stray_partition", directory=name)
        self.lifecycle.ready()

    async def _check_isr(self) -> None:
        self.replicas.tick()

    async def _retention(self) -> None:
        count = self.replicas.delete_retired_segments()
        if count:
            self._log.info("segments_retired", count=count)

    async def _expire(self) -> None:
        self.replicas.expire_producers()

    def _group_coordinators(self, settings: GroupSettings) -> GroupCoordinators:
        def make_core() -> GroupCoordinator:
            return GroupCoordinator(settings, self.env.ids.uuid, compile_regex)

        return GroupCoordinators(self.env, self.config, self.replicas, make_core)

    def _epoch(self) -> int:
        return self.lifecycle.epoch

    def _address(self, broker_id: int) -> tuple[str, int] | None:
        broker = self.context.image.broker(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._inter_broker_listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _placed(self, replica: Replica, directory_id: UUID) -> None:
        # With one directory the controller needs no word: a replica can be nowhere else.
        if len(self.store.directories) + len(self.store.unopened) > 1:
            self.directories.submit(replica.topic_id, replica.index, directory_id)

    def _directory_failed(self, directory: LogDirectory, error: DiskError) -> None:
        self.replicas.directory_failed(directory, error)
        meta = directory.meta
        if self.store.online and meta is not None and meta.directory_id is not None:
            self.lifecycle.directory_failed(meta.directory_id)

    def _every(self, name: str, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(max(interval_ms, 1) / 1000)
                try:
                    await work()
                except DiskFull as error:
                    # Like an append that doesn't fit: next time there may be room.
                    self._log.error("disk_full", task=name, reason=str(error))
                except DiskError as error:
                    raise FatalError(EXIT_LOG_DIRECTORY_FAILED, f"{name}: {error}") from error

        self._spawn(name, repeat)

    def _spawn(self, name: str, work: Work) -> None:
        self._tasks.append(spawn(name, work, self._on_fatal))
