"""A small controller behind a real listener, and brokers in this process: for the room's tests.

The controller decides just enough: registration, heartbeats, ISR changes, topics. What it commits
reaches every broker's image in the next turn of the loop.
"""

import asyncio
import contextlib
import dataclasses
from uuid import UUID, uuid4

from broker.broker import Broker
from metadata.configs import StaticConfig
from metadata.image import EMPTY
from metadata.records import types as t
from net.client import Connection
from net.controller_channel import Endpoint
from net.handlers import Api, HandlerTable
from net.server import ListenerConfig, serve
from storage.log_dir import LogDirectory
from wire.apis import ApiKey, ErrorCode
from wire.messages import (
    decode_request,
    decode_request_header,
    encode_response,
    fill,
    millis,
    response_module,
)
from wire.meta_properties import MetaProperties
from world.real import real_env

CLUSTER_ID = "kraftkraftkraftkraftkr"
LISTENER = "PLAINTEXT"


UNASSIGNED_DIRECTORY = UUID(int=1)


class FakeController:
    def __init__(self, env):
        self.env = env
        self.image = EMPTY
        self.offset = 0
        self.brokers = {}
        self.next_producer_id = 1000
        self.server = None
        self.refuse_next = []
        self.refuse_heartbeats = None  # an error
        self.beats = []
        self.seen = []
        self.active = True
        # Stands in for what the envelope's request gets: (header, entity) -> response entity.
        self.forwarded = None
        self.assigned = []
        self.history = []

    async def start(self):
        handlers = {
            ApiKey.BROKER_REGISTRATION: (0, 4, self.registration),
            ApiKey.BROKER_HEARTBEAT: (0, 1, self.heartbeat),
            ApiKey.ALTER_PARTITION: (2, 3, self.alter_partition),
            ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0, self.allocate_producer_ids),
            ApiKey.DESCRIBE_QUORUM: (0, 2, self.describe_quorum),
            ApiKey.ENVELOPE: (0, 0, self.envelope),
            ApiKey.ASSIGN_REPLICAS_TO_DIRS: (0, 0, self.assign_replicas_to_dirs),
        }
        table = HandlerTable(
            Api(key, low, high, lambda r, h=handle: self._answer(r, h))
            for key, (low, high, handle) in handlers.items()
        )
        self.server = await serve(self.env, ListenerConfig("CONTROLLER", "127.0.0.1", 0), table)

    def endpoint(self):
        return Endpoint(100, "127.0.0.1", self.server.port, 1) if self.active else None

    def _answer(self, request, handle):
        self.seen.append(request.api_key)
        return handle(request.entity(), response_module(request.api_key, request.api_version))

    # -- committing --

    def commit(self, *records):
        for record in records:
            self.image = self.image.apply(record)
            self.offset += 1
        self.image = self.image.at(self.offset, 1, 0)
        self.history.append(self.image)
        for broker in self.brokers.values():
            asyncio.get_running_loop().call_soon(broker.on_image, self.image)

    def create_topic(
        self, name, partitions=1, replicas=(1,), configs=None, directory=UNASSIGNED_DIRECTORY
    ):
        topic_id = uuid4()
        records = [t.TopicRecord(name=name, topic_id=topic_id)]
        records += [
            t.ConfigRecord(resource_type=2, resource_name=name, name=k, value=v)
            for k, v in (configs or {}).items()
        ]
        records += self._partitions(topic_id, range(partitions), replicas, directory)
        self.commit(*records)
        return topic_id

    def add_partitions(self, name, count, replicas=(1,)):
        topic = self.image.topic(name)
        more = range(len(topic.partitions), count)
        self.commit(*self._partitions(topic.id, more, replicas, UNASSIGNED_DIRECTORY))

    def _partitions(self, topic_id, indexes, replicas, directory):
        records = []
        for index in indexes:
            shift = index % len(replicas)
            placed = (*replicas[shift:], *replicas[:shift])
            alive = [r for r in placed if not self.image.broker(r).fenced]
            records.append(
                t.PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=placed,
                    isr=tuple(alive),
                    leader=alive[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=(directory,) * len(placed),
                )
            )
        return records

    def delete_topic(self, name):
        self.commit(t.RemoveTopicRecord(topic_id=self.image.topic(name).id))

    def set_leader(self, topic, index, leader, isr=None):
        found = self.image.topic(topic)
        self.commit(
            t.PartitionChangeRecord(partition_id=index, topic_id=found.id, leader=leader, isr=isr)
        )

    def fence(self, broker_id):
        """As a controller does when a session ends."""
        records = []
        for topic, index in self.image.partitions_of_broker(broker_id):
            partition = topic.partitions[index]
            isr = tuple(r for r in partition.isr if r != broker_id)
            if not isr:
                isr, leader = partition.isr, -1
            else:
                leader = isr[0] if partition.leader == broker_id else -2
            records.append(
                t.PartitionChangeRecord(
                    partition_id=index, topic_id=topic.id, leader=leader, isr=isr
                )
            )
        epoch = self.image.broker(broker_id).epoch
        records.append(
            t.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=1)
        )
        self.commit(*records)

    def unfence(self, broker_id):
        records = [
            t.BrokerRegistrationChangeRecord(
                broker_id=broker_id, broker_epoch=self.image.broker(broker_id).epoch, fenced=-1
            )
        ]
        for topic, index in self.image.partitions_of_broker(broker_id):
            partition = topic.partitions[index]
            if partition.leader == -1 and broker_id in partition.isr:
                records.append(
                    t.PartitionChangeRecord(partition_id=index, topic_id=topic.id, leader=broker_id)
                )
        self.commit(*records)

    # -- APIs --

    def registration(self, asked, m):
        self.commit(
            t.RegisterBrokerRecord(
                broker_id=asked.broker_id,
                incarnation_id=asked.incarnation_id,
                broker_epoch=self.offset + 1,
                end_points=tuple(
                    t.Endpoint(name=e.name, host=e.host, port=e.port) for e in asked.listeners
                ),
                rack=asked.rack,
                log_dirs=tuple(asked.log_dirs),
            )
        )
        return m.BrokerRegistrationResponse(
            throttle_time=millis(0), error_code=ErrorCode.none, broker_epoch=self.offset
        )

    def heartbeat(self, asked, m):
        self.beats.append(asked)
        broker = self.image.broker(asked.broker_id)
        error = ErrorCode.none
        caught_up = stop = False
        if self.refuse_heartbeats is not None:
            error = self.refuse_heartbeats
        elif broker is None or broker.epoch != asked.broker_epoch:
            error = ErrorCode.stale_broker_epoch
        else:
            caught_up = asked.current_metadata_offset >= broker.epoch
            if asked.want_shut_down:
                stop = True
                if not broker.fenced:
                    self.fence(asked.broker_id)
            elif broker.fenced and not asked.want_fence and caught_up:
                self.unfence(asked.broker_id)
        fenced = error is not ErrorCode.none or self.image.broker(asked.broker_id).fenced
        return m.BrokerHeartbeatResponse(
            throttle_time=millis(0),
            error_code=error,
            is_caught_up=caught_up,
            is_fenced=fenced,
            should_shut_down=stop,
        )

    def alter_partition(self, asked, m):
        topics = []
        for topic in asked.topics:
            partitions = [
                self._alter(topic.topic_id, p, asked.broker_id, m) for p in topic.partitions
            ]
            topics.append(m.TopicData(topic_id=topic.topic_id, partitions=tuple(partitions)))
        return m.AlterPartitionResponse(
            throttle_time=millis(0), error_code=ErrorCode.none, topics=tuple(topics)
        )

    def _alter(self, topic_id, p, sender, m):
        now = self.image.partition(topic_id, p.partition_index)
        error = ErrorCode.none
        if self.refuse_next:
            error = self.refuse_next.pop(0)
        elif now is None:
            error = ErrorCode.unknown_topic_id
        elif p.leader_epoch != now.leader_epoch or now.leader != sender:
            error = ErrorCode.fenced_leader_epoch
        elif p.partition_epoch != now.partition_epoch:
            error = ErrorCode.invalid_update_version
        else:
            isr = tuple(s.broker_id for s in p.new_isr_with_epochs)
            for s in p.new_isr_with_epochs:
                broker = self.image.broker(s.broker_id)
                if broker.fenced or s.broker_epoch not in (-1, broker.epoch):
                    error = ErrorCode.ineligible_replica
            if error is ErrorCode.none:
                self.commit(
                    t.PartitionChangeRecord(
                        partition_id=p.partition_index, topic_id=topic_id, isr=isr
                    )
                )
                now = self.image.partition(topic_id, p.partition_index)
        return m.PartitionData(
            partition_index=p.partition_index,
            error_code=error,
            leader_id=now.leader if now else -1,
            leader_epoch=now.leader_epoch if now else -1,
            isr=now.isr if now else (),
            partition_epoch=now.partition_epoch if now else -1,
        )

    def describe_quorum(self, asked, m):
        voter = fill(
            m.ReplicaState,
            replica_id=100,
            replica_directory_id=UUID(int=5 << 64),
            log_end_offset=9,
        )
        partition = fill(
            m.PartitionData,
            partition_index=asked.topics[0].partitions[0].partition_index,
            error_code=ErrorCode.none,
            error_message="fine",
            leader_id=100,
            leader_epoch=7,
            high_watermark=8,
            current_voters=(voter,),
            observers=(),
        )
        topic = m.TopicData(topic_name=asked.topics[0].topic_name, partitions=(partition,))
        return fill(
            m.DescribeQuorumResponse,
            error_code=ErrorCode.none,
            error_message=None,
            topics=(topic,),
            nodes=(),
        )

    def assign_replicas_to_dirs(self, asked, m):
        self.assigned += [
            (directory.id_, topic.topic_id, p.partition_index)
            for directory in asked.directories
            for topic in directory.topics
            for p in topic.partitions
        ]
        return m.AssignReplicasToDirsResponse(
            throttle_time=millis(0), error_code=ErrorCode.none, directories=()
        )

    def allocate_producer_ids(self, asked, m):
        start = self.next_producer_id
        self.next_producer_id += 10
        return m.AllocateProducerIdsResponse(
            throttle_time=millis(0),
            error_code=ErrorCode.none,
            producer_id_start=start,
            producer_id_len=10,
        )

    def envelope(self, asked, m):
        frame = bytes(asked.request_data)
        header, offset = decode_request_header(frame)
        entity = decode_request(header, frame, offset)
        inner = response_module(header.api_key, header.api_version)
        if self.forwarded is not None:
            response = self.forwarded(header, entity)
            data = encode_response(
                header.api_key, header.api_version, header.correlation_id, response
            )
            return m.EnvelopeResponse(response_data=data[4:], error_code=ErrorCode.none)
        assert header.api_key == ApiKey.CREATE_TOPICS, header
        results = []
        alive = [b for b in sorted(self.image.brokers) if not self.image.brokers[b].fenced]
        for topic in entity.topics:
            error = ErrorCode.none
            if self.image.topic(topic.name) is not None:
                error = ErrorCode.topic_already_exists
            else:
                factor = max(1, topic.replication_factor)
                self.create_topic(topic.name, max(1, topic.num_partitions), tuple(alive[:factor]))
            results.append(
                fill(
                    inner.CreatableTopicResult,
                    name=topic.name,
                    topic_id=None,
                    error_code=error,
                    error_message=None,
                    configs=(),
                )
            )
        response = inner.CreateTopicsResponse(throttle_time=millis(0), topics=tuple(results))
        data = encode_response(header.api_key, header.api_version, header.correlation_id, response)
        return m.EnvelopeResponse(response_data=data[4:], error_code=ErrorCode.none)


class Cluster:
    """A fake controller and any number of brokers under one directory."""

    def __init__(self, path):
        self.path = path
        self.env = real_env(1)
        self.controller = FakeController(self.env)
        self.brokers = {}
        self.servers = {}
        self.fatal = []
        # Disks in memory by broker id; a broker without one uses the real disk.
        self.media = {}

    async def start_broker(self, broker_id, *, wait=True, directories=1, failed=(), **properties):
        """`failed`: the numbers of directories that can't be opened."""
        env = self.env
        if broker_id in self.media:
            env = dataclasses.replace(env, disk=self.media[broker_id].mount())
        opened, unopened = [], []
        for number in range(directories):
            suffix = f"-{number}" if number else ""
            path = f"{self.path}/broker-{broker_id}{suffix}"
            if number in failed:
                unopened.append(path)
                continue
            directory = await LogDirectory.open(env, path)
            if directory.meta is None:
                meta = MetaProperties(CLUSTER_ID, broker_id, self.env.ids.uuid())
                await directory.write_meta(meta)
            opened.append(directory)
        given = {
            "node.id": str(broker_id),
            "process.roles": "broker",
            "broker.heartbeat.interval.ms": "50",
            "replica.lag.time.max.ms": "1500",
            "log.segment.bytes": "1048576",
        }
        given.update({k.replace("_", "."): str(v) for k, v in properties.items()})
        broker = Broker(
            env,
            StaticConfig(given),
            opened,
            CLUSTER_ID,
            self.controller.endpoint,
            failed_directories=unopened,
            on_fatal=self.fatal.append,
        )
        server = await serve(env, ListenerConfig(LISTENER, "127.0.0.1", 0), broker.apis())
        self.brokers[broker_id] = broker
        self.servers[broker_id] = server
        self.controller.brokers[broker_id] = broker
        # A node that starts replays the metadata log: it sees every image of the past.
        for image in self.controller.history:
            broker.on_image(image)
        await broker.start([(LISTENER, "127.0.0.1", server.port, 0)])
        if wait:
            await broker.wait_running()
        return broker

    async def stop_broker(self, broker_id):
        broker = self.brokers.pop(broker_id)
        await broker.stop()
        self.controller.brokers.pop(broker_id)
        await self.servers.pop(broker_id).close()

    async def kill_broker(self, broker_id):
        """Ends a broker without a word, as far as that goes inside one process."""
        broker = self.brokers.pop(broker_id)
        self.controller.brokers.pop(broker_id)
        await self.servers.pop(broker_id).close()
        await broker.lifecycle.close()
        for task in broker._tasks:
            task.cancel()
        await broker.fetchers.close()
        await broker.isr.close()
        for directory in broker.store.directories:
            await directory.close(clean=False)

    async def lose_power(self, broker_id, chance):
        """As `kill_broker`, and what was not synced is gone or torn."""
        broker = self.brokers.pop(broker_id)
        self.controller.brokers.pop(broker_id)
        server = self.servers.pop(broker_id)
        tasks = [broker.lifecycle._task, *broker._tasks]
        for task in tasks:
            task.cancel()
        await broker.fetchers.close()
        await broker.isr.close()
        await asyncio.wait(tasks)
        await server.close()
        self.media[broker_id].lose_power(chance)

    async def connect(self, broker_id):
        return await Connection.connect(
            self.env, "127.0.0.1", self.servers[broker_id].port, client_id="test", timeout_ms=5000
        )

    @property
    def bootstrap(self):
        return ",".join(f"127.0.0.1:{s.port}" for s in self.servers.values())


@contextlib.asynccontextmanager
async def cluster(path, brokers=(1,), **properties):
    made = Cluster(path)
    await made.controller.start()
    try:
        for broker_id in brokers:
            await made.start_broker(broker_id, **properties)
        yield made
        assert not made.fatal, made.fatal
    finally:
        for broker_id in list(made.brokers):
            await made.stop_broker(broker_id)
        await made.controller.server.close()


async def until(condition, timeout_s=10.0):
    """Turns the loop until the condition holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.005)
