"""A controller core with a log beneath it, for tests that read as stories.

The scene plays the shell: it keeps the appended batches, commits on request (or at once), and
checks after every event what must always hold.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any, Self
from uuid import UUID

from controller.config import ControllerConfig
from controller.core import Controller
from controller.events import (
    ApiRequest,
    AppendRecords,
    BecameLeader,
    Committed,
    LostLeadership,
    Reply,
    Tick,
)
from controller.invariants import check_step
from metadata.features import ELIGIBLE_LEADER_REPLICAS
from metadata.image import METADATA_VERSION
from metadata.loader import ImageLoader
from metadata.records import FeatureLevelRecord, decode
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages import (
    decode_body,
    decode_response,
    encode_body,
    encode_response,
    fill,
    request_class,
    request_module,
)


def over_the_wire(key: int, version: int, entity: Any) -> Any:
    """A response entity after a round trip through its bytes, which must change nothing."""
    frame = encode_response(key, version, 1, entity)
    again = decode_response(key, version, memoryview(frame)[4:])[1]
    assert type(entity) is not type(again) or entity == again
    return again


class Requests:
    """Requests of brokers and clients, whoever the controller is that `ask` asks."""

    cluster = "a-cluster"
    # What brokers say that they have read of the metadata log.
    metadata_offset = 1 << 40

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.incarnations: dict[int, UUID] = {}
        self.epochs: dict[int, int] = {}

    def ask(self, key: int, version: int, **fields: Any) -> Any:
        """The answer to one request."""
        raise NotImplementedError

    def uuid(self) -> UUID:
        return UUID(int=self.chance.getrandbits(128) | 1 << 120)

    def part(self, key: int, version: int, kind: str, /, **fields: Any) -> Any:
        return fill(getattr(request_module(key, version), kind), **fields)

    # Brokers.

    def register(
        self,
        broker: int,
        *,
        version: int = 4,
        rack: str | None = None,
        incarnation: UUID | None = None,
        dirs: tuple[UUID, ...] | None = None,
        cluster: str | None = None,
        levels: tuple[int, int] = (1, 25),
        previous_epoch: int = -1,
    ) -> Any:
        key = ApiKey.BROKER_REGISTRATION
        incarnation = incarnation or self.uuid()
        if dirs is None:
            dirs = (UUID(int=1000 + broker),)
        reply = self.ask(
            key,
            version,
            broker_id=broker,
            cluster_id=cluster or self.cluster,
            incarnation_id=incarnation,
            listeners=(
                self.part(
                    key,
                    version,
                    "Listener",
                    name="PLAINTEXT",
                    host=f"host{broker}",
                    port=9092,
                    security_protocol=0,
                ),
            ),
            features=tuple(
                self.part(
                    key,
                    version,
                    "Feature",
                    name=name,
                    min_supported_version=low,
                    max_supported_version=high,
                )
                for name, (low, high) in (
                    (METADATA_VERSION, levels),
                    (ELIGIBLE_LEADER_REPLICAS, (0, 1)),
                )
            ),
            rack=rack,
            is_migrating_zk_broker=False,
            log_dirs=dirs,
            previous_broker_epoch=previous_epoch,
        )
        if reply.error_code is ErrorCode.none:
            self.incarnations[broker] = incarnation
            self.epochs[broker] = reply.broker_epoch
        return reply

    def heartbeat(self, broker: int, *, version: int = 1, **changes: Any) -> Any:
        fields: dict[str, Any] = {
            "broker_id": broker,
            "broker_epoch": self.epochs.get(broker, -1),
            "current_metadata_offset": self.metadata_offset,
            "want_fence": False,
            "want_shut_down": False,
            "offline_log_dirs": (),
        }
        return self.ask(ApiKey.BROKER_HEARTBEAT, version, **(fields | changes))

    def start_broker(self, broker: int, **how: Any) -> None:
        assert self.register(broker, **how).error_code is ErrorCode.none
        assert not self.heartbeat(broker).is_fenced

    def start_brokers(self, *brokers: int, **how: Any) -> Self:
        for broker in brokers:
            self.start_broker(broker, **how)
        return self

    def stop_broker(self, broker: int) -> None:
        """It asks to be fenced and to go at once, so that it has no session any more."""
        assert self.heartbeat(broker, want_fence=True, want_shut_down=True).should_shut_down

    def unregister(self, broker: int) -> Any:
        return self.ask(ApiKey.UNREGISTER_BROKER, 0, broker_id=broker)

    # Topics.

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        factor: int = 1,
        *,
        version: int = 7,
        assignments: dict[int, tuple[int, ...]] | None = None,
        configs: dict[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> Any:
        """The one topic's result."""
        topic = self.new_topic(
            name, partitions, factor, version=version, assignments=assignments, configs=configs
        )
        reply = self.ask(
            ApiKey.CREATE_TOPICS,
            version,
            topics=(topic,),
            timeout=timedelta(seconds=5),
            validate_only=validate_only,
        )
        (result,) = reply.topics
        return result

    def new_topic(
        self,
        name: str,
        partitions: int = 1,
        factor: int = 1,
        *,
        version: int = 7,
        assignments: dict[int, tuple[int, ...]] | None = None,
        configs: dict[str, str | None] | None = None,
    ) -> Any:
        key = ApiKey.CREATE_TOPICS
        if assignments is not None:
            partitions, factor = -1, -1
        return self.part(
            key,
            version,
            "CreatableTopic",
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            assignments=tuple(
                self.part(
                    key,
                    version,
                    "CreatableReplicaAssignment",
                    partition_index=index,
                    broker_ids=brokers,
                )
                for index, brokers in (assignments or {}).items()
            ),
            configs=tuple(
                self.part(key, version, "CreatableTopicConfig", name=k, value=v)
                for k, v in (configs or {}).items()
            ),
        )

    # Partitions.

    def alter_isr(
        self, topic_id: UUID, index: int, leader: int, epochs: tuple[int, int], isr: tuple[int, ...]
    ) -> Any:
        """The leader reports its ISR; `epochs` are the partition's (leader epoch, partition
        epoch). The one partition's answer."""
        key = ApiKey.ALTER_PARTITION
        entry = self.part(
            key,
            3,
            "PartitionData",
            partition_index=index,
            leader_epoch=epochs[0],
            new_isr_with_epochs=tuple(
                self.part(key, 3, "BrokerState", broker_id=b, broker_epoch=self.epochs[b])
                for b in isr
            ),
            leader_recovery_state=0,
            partition_epoch=epochs[1],
        )
        reply = self.ask(
            key,
            3,
            broker_id=leader,
            broker_epoch=self.epochs[leader],
            topics=(self.part(key, 3, "TopicData", topic_id=topic_id, partitions=(entry,)),),
        )
        assert reply.error_code is ErrorCode.none
        return reply.topics[0].partitions[0]

    def elect(self, topic: str, index: int, *, unclean: bool) -> Any:
        """The error of the one partition's election."""
        key = ApiKey.ELECT_LEADERS
        reply = self.ask(
            key,
            2,
            election_type=int(unclean),
            topic_partitions=(
                self.part(key, 2, "TopicPartitions", topic=topic, partitions=(index,)),
            ),
            timeout=timedelta(seconds=5),
        )
        return reply.replica_election_results[0].partition_result[0].error_code

    def set_config(self, kind: int, resource: str, name: str, value: str | None) -> ErrorCode:
        """One incremental change (None removes the config); its error."""
        key = ApiKey.INCREMENTAL_ALTER_CONFIGS
        change = self.part(
            key,
            1,
            "AlterableConfig",
            name=name,
            config_operation=0 if value is not None else 1,
            value=value,
        )
        reply = self.ask(
            key,
            1,
            resources=(
                self.part(
                    key,
                    1,
                    "AlterConfigsResource",
                    resource_type=kind,
                    resource_name=resource,
                    configs=(change,),
                ),
            ),
            validate_only=False,
        )
        return ErrorCode(reply.responses[0].error_code)


class Scene(Requests):
    def __init__(
        self,
        *,
        level: int = 25,
        elr: bool = False,
        seed: int = 1,
        auto_commit: bool = True,
        **config: Any,
    ):
        super().__init__(seed)
        self.config = ControllerConfig(node_id=3000, cluster_id=self.cluster, **config)
        self.core = Controller(self.config, self.chance, self.uuid)
        self.auto_commit = auto_commit
        self.now_ms = 1_000
        self.bootstrap = [FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)]
        if elr:
            self.bootstrap.append(
                FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS, feature_level=1)
            )
        self.log: list[tuple[int, int, tuple[bytes, ...]]] = []  # base offset, epoch, values
        self.end_offset = 1  # offset 0 is the quorum's LeaderChange
        self.committed_to = 1
        self.loader = ImageLoader()
        self.replies: dict[int, Reply] = {}
        self.logged: list[str] = []
        self.epoch = 1
        self._token = 0
        self._asked: dict[int, tuple[int, int]] = {}

    @property
    def metadata_offset(self) -> int:  # type: ignore[override]
        return self.committed_to - 1

    # Events.

    def handle(self, event: Any) -> list[Any]:
        before = self.core.image
        if isinstance(event, ApiRequest):
            self._asked[event.token] = (event.api_key, event.api_version)
        effects = self.core.handle(event, self.now_ms)
        for effect in effects:
            if isinstance(effect, AppendRecords):
                assert effect.base_offset == self.end_offset
                assert effect.epoch == self.epoch
                self.log.append((self.end_offset, self.epoch, effect.values))
                self.end_offset += len(effect.values)
            elif isinstance(effect, Reply):
                assert effect.token not in self.replies, "answered twice"
                self.replies[effect.token] = effect
        self.core.check_invariants()
        if self.core.active and not isinstance(event, BecameLeader):
            check_step(before, self.core.image)
        if self.auto_commit and self.committed_to < self.end_offset:
            effects += self.commit()
        return effects

    def lead(self) -> Scene:
        self.handle(
            BecameLeader(
                self.epoch,
                self.loader.image,
                self.end_offset,
                self.bootstrap,
                self.loader.in_transaction,
            )
        )
        return self

    def commit(self, upto: int | None = None) -> list[Any]:
        upto = self.end_offset if upto is None else upto
        for base, epoch, values in self.log:
            if self.committed_to <= base < upto:
                self.loader.on_batch(base, epoch, 0, values)
        self.committed_to = upto
        effects = self.handle(Committed(upto)) if self.core.active else []
        if self.core.active and upto == self.end_offset and not self.loader.in_transaction:
            self.check_standby_agrees()
        return effects

    def check_standby_agrees(self) -> None:
        """A standby that decoded the same bytes has the same image."""
        mine, theirs = self.core.image, self.loader.image
        for field in ("topics", "brokers", "controllers", "features", "configs"):
            assert getattr(mine, field) == getattr(theirs, field), field
        assert mine.next_producer_id == theirs.next_producer_id

    def fail_over(self, *, same: bool = False) -> Scene:
        """Another controller takes over, or the `same` again: what was not committed is gone."""
        self.handle(LostLeadership())
        self.log = [entry for entry in self.log if entry[0] < self.committed_to]
        self.end_offset = self.committed_to + 1  # its LeaderChange
        self.committed_to = self.end_offset
        self.epoch += 1
        if not same:
            self.core = Controller(self.config, self.chance, self.uuid)
        return self.lead()

    def pass_ms(
        self, duration_ms: int, *, alive: tuple[int, ...] = (), every_ms: int = 500
    ) -> None:
        """Time passes with every tick on its due moment; `alive` brokers send heartbeats."""
        end = self.now_ms + duration_ms
        beat = self.now_ms + every_ms
        while True:
            due = self.core.next_deadline_ms()
            moments = [end, beat] if alive else [end]
            if due is not None:
                moments.append(max(due, self.now_ms))
            self.now_ms = min(moments)
            if due is not None and due <= self.now_ms:
                self.handle(Tick())
            if alive and beat <= self.now_ms:
                for broker in alive:
                    self.heartbeat(broker)
                beat += every_ms
            if self.now_ms >= end:
                return

    # Requests.

    def send(self, key: int, version: int, **fields: Any) -> int:
        """The request's token. It goes over the wire form, as a real one does."""
        entity = fill(request_class(key, version), **fields)
        entity = decode_body(type(entity), encode_body(entity))
        self._token += 1
        self.handle(ApiRequest(self._token, key, version, entity))
        return self._token

    def answer(self, token: int) -> Any:
        """The answer, after a round trip through its bytes."""
        key, version = self._asked[token]
        return over_the_wire(key, version, self.replies[token].entity)

    def ask(self, key: int, version: int, **fields: Any) -> Any:
        token = self.send(key, version, **fields)
        self.finish()
        return self.answer(token)

    def finish(self) -> None:
        """Until no operation has steps left."""
        while self.core.under_way:
            self.handle(Tick())

    # The image and the log.

    def partition(self, topic: str, index: int = 0) -> Any:
        found = self.core.image.partition(topic, index)
        assert found is not None
        return found

    def records(self) -> list[Any]:
        """All appended records, decoded."""
        return [decode(value).record for _, _, values in self.log for value in values]
