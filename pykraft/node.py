"""One node: the rooms put together for its roles, brought up and taken down in the right order.

Nothing here knows whether the world is real: `Node` runs on an `Env` and the event loop it is
started on, in a process (`pykraft.server`) as in a simulation. The gRPC and HTTP doors stay
outside (`pykraft.doors`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from broker.broker import Broker
from controller.config import ControllerConfig
from controller.registration import ControllerRegistrar
from controller.shell import ControllerShell
from metadata.delta import ImageDelta
from metadata.features import SUPPORTED
from metadata.image import MetadataImage
from net.controller_channel import ControllerChannel, Endpoint
from net.handlers import HandlerTable
from net.server import FeatureView, ListenerConfig, Server, serve
from pykraft import directories, storage_format
from pykraft.initial_voters import others_than
from pykraft.node_config import Listener, NodeConfig
from pykraft.publisher import MetadataPublisher
from raft.config import RaftConfig
from raft.listener import CommittedBatch, LeaderAndEpoch
from raft.node import NotLeader, RaftNode
from raft.peers import KRAFT_VERSION
from raft.voters import MAX_KRAFT_VERSION
from wire.errors import ErrorCode, FatalError, KafkaError
from world.env import Env

# What nodes tell of themselves: the level of kraft.version is the quorum's own record, not one of
# the metadata's.
_SUPPORTED = {**SUPPORTED, KRAFT_VERSION: (0, MAX_KRAFT_VERSION)}


class Node:
    """One node of a cluster, as its configuration says. `start`, then `stop`; not again.

    `failure` is why it can't go on, None while it can; `ready` whether it serves.
    """

    def __init__(self, env: Env, config: NodeConfig) -> None:
        self.env = env
        self.config = config
        self.failure: FatalError | None = None
        # Of each listener, whatever max.connections allows: what the process can hold open.
        self.connections_max = 2**31 - 1
        self.servers: dict[str, Server] = {}
        self.cluster_id = ""
        self.controller: ControllerShell | None = None
        self.broker: Broker | None = None
        self._registrar: ControllerRegistrar | None = None
        self._directories: directories.NodeDirectories | None = None
        self._failed = asyncio.Event()
        self._ready = asyncio.Event()
        # Set, and replaced by a fresh one, whenever why it isn't ready, or that it is, has changed.
        self.state_moved = asyncio.Event()
        self._not_ready_for: str | None = ""
        self._watchers: list[asyncio.Task[None]] = []
        self._log = structlog.get_logger("node")
        static = config.static
        self.publisher = MetadataPublisher(
            env,
            snapshot_bytes=static["metadata.log.max.record.bytes.between.snapshots"],
            snapshot_interval_ms=static["metadata.log.max.snapshot.interval.ms"],
            on_fatal=self.fail,
        )
        self.raft: RaftNode | None = None
        self.active_controller = ControllerChannel(
            env, self._controller_endpoint, f"node-{config.node_id}-to-controller"
        )

    # -- what others ask --------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self.publisher.image

    @property
    def ready(self) -> bool:
        """Whether this node can serve in every role it has."""
        return self.failure is None and self.why_not_ready() is None

    def why_not_ready(self) -> str | None:
        """What the node is waiting for; None when it serves."""
        if self.failure is not None:
            return self.failure.reason
        raft = self.raft
        if raft is None or not self.servers:
            return "starting"
        if self.controller is not None and not raft.in_touch:
            reason = "no leader of the controller quorum answers"
            if raft.status().get("damaged"):
                reason = (
                    f"part of its metadata log is lost, and {reason} that would give it back; it "
                    "doesn't vote until then"
                )
            no_voters = self._voters_unknown(raft)
            return f"{reason}: {no_voters}" if no_voters else reason
        if self.controller is not None and not raft.is_current:
            return "the metadata log is not replayed as far as it was committed"
        if self.image.last_offset < 0:
            return "the metadata log is not replayed yet"
        if self.broker is not None and not self.broker.running:
            if self.broker.state == "running":
                return "fenced by the controller"
            return f"the broker is in state {self.broker.state}"
        return None

    def _voters_unknown(self, raft: RaftNode) -> str:
        """Says so, and what helps, where a controller knows no voters, and so votes for nobody;
        else nothing."""
        if raft.voters:
            return ""
        told = "neither its metadata log nor controller.quorum.voters names any voters"
        others = ", ".join(map(str, others_than(self.config)))
        if raft.end_offset > 0 and raft.kraft_version == 0:
            # No log of such a quorum names any: they were in the settings once.
            return (
                f"{told}; while kraft.version is 0, every controller's settings have to (`pykraft "
                "features upgrade --feature kraft.version=1` comes before they name "
                "controller.quorum.bootstrap.servers in their place)"
            )
        if others:
            return f"{told}, so it asks controller.quorum.bootstrap.servers for them: {others}"
        return (
            f"{told}, and controller.quorum.bootstrap.servers no other controller to ask: name "
            "those of its quorum there, or format its directory anew with --standalone to begin one"
        )

    def state(self) -> str:
        """starting, fenced or ready; for status."""
        if self.ready:
            return "ready"
        broker = self.broker
        if broker is not None and broker.state == "running" and broker.lifecycle.fenced:
            return "fenced"
        return "starting"

    def features(self) -> FeatureView:
        """What ApiVersions says of features."""
        image = self.image
        finalized = dict(image.features)
        if image.kraft_version:
            finalized[KRAFT_VERSION] = image.kraft_version
        return FeatureView(dict(_SUPPORTED), dict(sorted(finalized.items())), image.last_offset)

    def addresses(self) -> dict[str, str]:
        """Where the Kafka listeners are bound, by name."""
        return {
            name: f"{server.config.host}:{server.port}" for name, server in self.servers.items()
        }

    def summary(self) -> str:
        """One line for people."""
        places = ", ".join(f"{name} {place}" for name, place in self.addresses().items())
        return f"node {self.config.node_id} ({', '.join(self.config.roles)}): {places}"

    async def failed(self) -> None:
        """Returns when the node can't go on."""
        await self._failed.wait()

    async def wait_ready(self) -> None:
        """Returns when the node is ready for the first time."""
        await self._ready.wait()

    def fail(self, error: FatalError) -> None:
        """What only a stop can answer; the first reason counts."""
        if self.failure is None:
            self.failure = error
            self._log.critical("can't_go_on", reason=error.reason)
            self._failed.set()
            if self.broker is not None:
                # No time to ask for leaders elsewhere, and without raft nobody hears the answer.
                self.broker.lifecycle.hurry()

    async def confirm_read(self) -> int:
        """Returns once the image holds all that was committed anywhere before the call.

        KafkaError NOT_CONTROLLER where this node isn't the active controller.
        """
        assert self.raft is not None
        if self.controller is None or not self.controller.active:
            raise KafkaError(
                ErrorCode.not_controller, "only the active controller serves linearizable reads"
            )
        try:
            offset = await self.raft.confirm_leadership()
        except NotLeader as error:
            raise KafkaError(ErrorCode.not_controller, str(error)) from error
        while self.raft.applied_offset < offset:  # a long batch is on its way into the image
            await self.publisher.moved.wait()
        return offset

    # -- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens the directories, loads the metadata, listens and joins; doesn't wait for ready.

        Raises FatalError or KafkaError where it can't start, OSError where an address is taken.
        """
        opened = await directories.open_all(self.env, self.config)
        self._directories = opened
        for path, reason in opened.failed.items():
            self._log.error("log_directory_failed", path=path, reason=reason)
        self.cluster_id = opened.cluster_id
        raft = self.raft = RaftNode(
            self.env,
            self._raft_config(opened),
            self.config.metadata_log_dir,
            self.publisher,
            on_fatal=self.fail,
        )
        self.publisher.store = raft
        if self.config.is_controller:
            self._make_controller(raft)
        if self.config.is_broker:
            self._make_broker(opened)
        self.publisher.subscribe(image=self._on_image, leader=self._on_leader)
        await raft.start()
        no_voters = self._voters_unknown(raft) if self.config.is_controller else ""
        # With an empty log and others to ask it is a new one, and all is as it should be.
        if no_voters and (raft.end_offset > 0 or not others_than(self.config)):
            self._log.warning("no_voters_known", reason=no_voters)
        if self.config.controller_listener is not None:
            assert self.controller is not None
            table = HandlerTable([*raft.apis(), *self.controller.apis()])
            await self._listen(self.config.controller_listener, table)
        # The quorum has its member already; clients and operators are to see no empty cluster.
        await raft.wait_loaded()
        if self.failure is not None:
            raise self.failure
        if self._registrar is not None:
            self._registrar.start()
        self._watch(self._current(raft), "current")
        if self.broker is not None:
            table = self.broker.apis()
            for listener in self.config.broker_listeners:
                await self._listen(listener, table)
            await self.broker.start(
                [
                    (one.name, one.advertised.host, self._port(one), one.protocol)
                    for one in self.config.broker_listeners
                ]
            )
            self._watch(self._broker_running(), "running")
        self._look_whether_ready()

    async def start_unless(self, stop: asyncio.Event) -> bool:
        """As `start`, but given up as soon as `stop` is set: opening and loading may take long.
        False if it was; what had been opened by then is closed by `self.stop`, as ever."""
        starting = asyncio.ensure_future(self.start())
        told = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((starting, told), return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            if not starting.done():
                self._log.info("start_given_up", while_waiting_for=self.why_not_ready())
                starting.cancel()
                await asyncio.wait([starting])
        if starting.cancelled():
            return False
        starting.result()
        return True

    async def stop(self) -> None:
        """A controlled shutdown: leaderships are moved, everything is written down."""
        for task in self._watchers:
            task.cancel()
        if self._watchers:
            await asyncio.wait(self._watchers)
        if self.broker is not None:
            await self.broker.stop(self.config.static["pykraft.shutdown.timeout.ms"])
        if self._registrar is not None:
            await self._registrar.close()
        for listener in self.config.broker_listeners:
            await self._close_server(listener.name)
        if self.controller is not None:
            self.controller.stop()
        await self.publisher.close()
        if self.raft is not None:
            await self.raft.stop()
        for name in list(self.servers):
            await self._close_server(name)
        self.active_controller.close()
        if self._directories is not None:
            self._directories.release(taken_by_broker=self.broker is not None)

    # -- making the parts -------------------------------------------------------------------

    def _raft_config(self, opened: directories.NodeDirectories) -> RaftConfig:
        static, config = self.config.static, self.config
        own = config.controller_listener
        return RaftConfig(
            node_id=config.node_id,
            directory_id=opened.metadata_directory_id,
            cluster_id=opened.cluster_id,
            voters={id_: (place.host, place.port) for id_, place in config.voters.items()},
            bootstrap=tuple((place.host, place.port) for place in config.bootstrap),
            auto_join=static["controller.quorum.auto.join.enable"],
            listener_name=config.controller_listener_name,
            observer=not config.is_controller,
            advertised=None if own is None else (own.advertised.host, own.advertised.port),
            election_timeout_ms=static["controller.quorum.election.timeout.ms"],
            fetch_timeout_ms=static["controller.quorum.fetch.timeout.ms"],
            election_backoff_max_ms=static["controller.quorum.election.backoff.max.ms"],
            request_timeout_ms=static["controller.quorum.request.timeout.ms"],
            retry_backoff_ms=static["controller.quorum.retry.backoff.ms"],
            segment_bytes=static["metadata.log.segment.bytes"],
            segment_ms=static["metadata.log.segment.ms"],
            retention_bytes=static["metadata.max.retention.bytes"],
            retention_ms=static["metadata.max.retention.ms"],
        )

    def _make_controller(self, raft: RaftNode) -> None:
        static, config = self.config.static, self.config
        settings = ControllerConfig(
            node_id=config.node_id,
            cluster_id=self.cluster_id,
            static_voters=tuple(config.voters),
            session_timeout_ms=static["broker.session.timeout.ms"],
            max_idle_interval_ms=static["metadata.max.idle.interval.ms"],
            auto_leader_rebalance=static["auto.leader.rebalance.enable"],
            leader_imbalance_check_interval_ms=1000
            * static["leader.imbalance.check.interval.seconds"],
            num_partitions=static["num.partitions"],
            default_replication_factor=static["default.replication.factor"],
            delete_topic_enable=static["delete.topic.enable"],
            static=static.given,
        )
        controller = self.controller = ControllerShell(
            self.env,
            raft,
            settings,
            bootstrap=storage_format.read_bootstrap(self.env, config.metadata_log_dir),
            listener=config.controller_listener_name,
            on_fatal=self.fail,
            quorum_apis=raft.forwarded_apis(),
        )
        listener = config.controller_listener
        assert listener is not None
        self._registrar = ControllerRegistrar(
            self.env,
            config.node_id,
            self.env.ids.uuid(),
            (
                (
                    listener.name,
                    listener.advertised.host,
                    listener.advertised.port,
                    listener.protocol,
                ),
            ),
            _SUPPORTED,
            self.active_controller.request,
        )

        def on_image(image: MetadataImage, delta: ImageDelta) -> None:
            controller.on_image(image, in_transaction=self.publisher.in_transaction)

        def on_batch(batch: CommittedBatch) -> None:
            controller.on_committed(batch.last_offset + 1)

        def on_leader(leader: LeaderAndEpoch) -> None:
            controller.on_leader_change(leader.leader_id, leader.epoch)

        self.publisher.subscribe(image=on_image, batch=on_batch, leader=on_leader)

    def _make_broker(self, opened: directories.NodeDirectories) -> None:
        broker = self.broker = Broker(
            self.env,
            self.config.static,
            opened.log_directories,
            self.cluster_id,
            self._controller_endpoint,
            inter_broker_listener=self.config.inter_broker_listener or "PLAINTEXT",
            features=_SUPPORTED,
            failed_directories=[path for path in self.config.log_dirs if path in opened.failed],
            on_fatal=self.fail,
        )
        self.publisher.subscribe(image=broker.on_image)

    async def _listen(self, listener: Listener, table: HandlerTable) -> None:
        static = self.config.static
        self.servers[listener.name] = await serve(
            self.env,
            ListenerConfig(
                listener.name,
                listener.bind.host,
                listener.bind.port,
                max_request_bytes=static["socket.request.max.bytes"],
                max_connections=min(static["max.connections"], self.connections_max),
                idle_ms=static["connections.max.idle.ms"],
                backlog=max(static["socket.listen.backlog.size"], 128),
                log_requests=static["pykraft.log.level"] == "debug",
            ),
            table,
            self.features,
            on_fatal=self.fail,
        )

    async def _close_server(self, name: str) -> None:
        server = self.servers.pop(name, None)
        if server is not None:
            await server.close()

    def _port(self, listener: Listener) -> int:
        """The port to advertise: the bound one where a free one was asked for."""
        return listener.advertised.port or self.servers[listener.name].port

    # -- what happens -----------------------------------------------------------------------

    def _controller_endpoint(self) -> Endpoint | None:
        return None if self.raft is None else self.raft.leader_endpoint()

    def _on_image(self, image: MetadataImage, delta: ImageDelta) -> None:
        if self._registrar is not None:
            self._registrar.on_image(image)
        self._look_whether_ready()

    def _on_leader(self, leader: LeaderAndEpoch) -> None:
        self.active_controller.endpoint_changed()
        if self.broker is not None:
            self.broker.controller_changed()
        self._look_whether_ready()

    def _watch(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._watchers.append(asyncio.get_running_loop().create_task(work, name=name))

    async def _current(self, raft: RaftNode) -> None:
        """What a leader tells to be committed may have been handed on already, and what a snapshot
        holds counts after its image: none need follow."""
        await raft.committed_told.wait()
        while not raft.is_current:
            await self.publisher.moved.wait()
        self._look_whether_ready()

    async def _broker_running(self) -> None:
        assert self.broker is not None
        await self.broker.wait_running()
        self._look_whether_ready()

    def _look_whether_ready(self) -> None:
        reason = self.why_not_ready()
        if reason == self._not_ready_for:
            return
        self._not_ready_for = reason
        moved, self.state_moved = self.state_moved, asyncio.Event()
        moved.set()
        if not self._ready.is_set() and self.ready:
            self._ready.set()
