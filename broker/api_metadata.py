"""Metadata 0-13: brokers, topics, partitions; topics are created on first use if so configured.

Encoded answers are kept per (version, listener, question) until topics or brokers change.
v0: an empty list means all topics, and replicas that are down are left out. v10 and 11 tell topic
ids but must not be asked by id. What differs from Kafka: `controller_id` is the asked broker itself
where Kafka draws one at random.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from broker.cluster_view import (
    ALL_CLUSTER_OPERATIONS,
    ALL_TOPIC_OPERATIONS,
    NOT_ASKED,
    controller_for_clients,
    is_internal,
    node,
    nodes,
    view_partition,
)
from broker.context import BrokerContext
from broker.topic_creation import TopicCreation
from metadata.image import MetadataImage, PartitionRegistration, TopicImage
from metadata.topic_names import is_topic_name
from net.handlers import Api, Frame, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import encode_body, fill, millis, response_header, response_module

_SIZE = Struct(">i")
_MAX_CACHED = 64


def apis(context: BrokerContext, creation: TopicCreation) -> list[Api]:
    handler = MetadataHandler(context, creation)
    return [Api(ApiKey.METADATA, 0, 13, handler.handle)]


class MetadataHandler:
    """Answers Metadata from the image."""

    def __init__(self, context: BrokerContext, creation: TopicCreation) -> None:
        self._context = context
        self._creation = creation
        self._cached: dict[Any, bytes] = {}
        self._cached_for: tuple[Any, Any] = (None, None)
        self.cache_hits = 0

    def handle(self, request: Request) -> Any:
        if not self._context.caught_up.is_set():
            kept = memoryview(bytes(request.body))
            copy = Request(
                request.header,
                kept,
                0,
                request.connection,
                request.received_ms,
                request.max_elements,
            )
            return self._when_caught_up(copy)
        version, listener = request.api_version, request.connection.listener
        image = self._context.image
        if self._cached_for[0] is not image.topics or self._cached_for[1] is not image.brokers:
            self._cached.clear()
            self._cached_for = (image.topics, image.brokers)
        question = (version, listener, bytes(request.body))
        body = self._cached.get(question)
        if body is None:
            response, missing = _Answer(self._context, version, listener).to(request.entity())
            body = encode_body(response)
            if missing:
                self._creation.ask(missing)
            elif len(self._cached) < _MAX_CACHED:
                self._cached[question] = body
        else:
            self.cache_hits += 1
        head = response_header(ApiKey.METADATA, version, request.correlation_id)
        return Frame([_SIZE.pack(len(head) + len(body)) + head, body])

    async def _when_caught_up(self, request: Request) -> Any:
        """A broker that starts has no answer yet; a client asks its other brokers meanwhile."""
        await self._context.caught_up.wait()
        return self.handle(request)


class _Answer:
    """One answer under construction."""

    def __init__(self, context: BrokerContext, version: int, listener: str) -> None:
        self.context = context
        self.image: MetadataImage = context.image
        self.version = version
        self.listener = listener
        self.module: Any = response_module(ApiKey.METADATA, version)
        self.operations = NOT_ASKED
        self.missing: list[str] = []

    def to(self, request: Any) -> tuple[Any, list[str]]:
        """The response, and the topics that shall be created."""
        if getattr(request, "include_topic_authorized_operations", False):
            self.operations = ALL_TOPIC_OPERATIONS
        may_create = (
            getattr(request, "allow_auto_topic_creation", True)
            and self.context.config.auto_create_topics_enable
        )
        if request.topics is None or (self.version == 0 and not request.topics):
            names = sorted(self.image.topics_by_name)
            topics = [self.topic(self.image.topics_by_name[name]) for name in names]
        else:
            # Asked for twice is answered once, as by Kafka: an answer is longer than a question.
            topics = [self.asked(asked, may_create) for asked in dict.fromkeys(request.topics)]
        alive = nodes(self.image, self.listener)
        cluster_operations = NOT_ASKED
        if getattr(request, "include_cluster_authorized_operations", False):
            cluster_operations = ALL_CLUSTER_OPERATIONS
        m = self.module
        response = fill(
            m.MetadataResponse,
            throttle_time=millis(0),
            brokers=tuple(
                fill(m.MetadataResponseBroker, node_id=n.id, host=n.host, port=n.port, rack=n.rack)
                for n in alive
            ),
            cluster_id=self.context.cluster_id,
            controller_id=controller_for_clients(alive, self.context.broker_id),
            topics=tuple(topics),
            cluster_authorized_operations=cluster_operations,
            error_code=ErrorCode.none,
        )
        return response, self.missing

    def asked(self, asked: Any, may_create: bool) -> Any:
        topic_id = getattr(asked, "topic_id", None)
        name = asked.name
        if self.version < 12 and (topic_id is not None or name is None):
            return self.no_topic(ErrorCode.invalid_request, name or "", topic_id)
        if name is None or topic_id is not None:
            found = self.image.topic_by_id(topic_id) if topic_id is not None else None
            if found is None:
                return self.no_topic(ErrorCode.unknown_topic_id, None, topic_id)
            return self.topic(found)
        found = self.image.topic(name)
        if found is not None:
            return self.topic(found)
        if not is_topic_name(name):
            return self.no_topic(ErrorCode.invalid_topic_exception, name)
        if may_create and name not in self.missing:
            self.missing.append(name)
        return self.no_topic(ErrorCode.unknown_topic_or_partition, name)

    def no_topic(self, error: ErrorCode, name: str | None, topic_id: Any = None) -> Any:
        return fill(
            self.module.MetadataResponseTopic,
            error_code=error,
            name=name,
            topic_id=topic_id,
            is_internal=name is not None and is_internal(name),
            partitions=(),
            topic_authorized_operations=NOT_ASKED,
        )

    def topic(self, topic: TopicImage) -> Any:
        return fill(
            self.module.MetadataResponseTopic,
            error_code=ErrorCode.none,
            name=topic.name,
            topic_id=topic.id,
            is_internal=is_internal(topic.name),
            partitions=tuple(
                self.partition(index, topic.partitions[index]) for index in sorted(topic.partitions)
            ),
            topic_authorized_operations=self.operations,
        )

    def partition(self, index: int, partition: PartitionRegistration) -> Any:
        view = view_partition(self.image, partition, self.listener, name_listener=self.version >= 6)
        replicas, isr, error = partition.replicas, partition.isr, view.error
        if self.version == 0:
            replicas = tuple(r for r in replicas if node(self.image, r, self.listener))
            isr = tuple(r for r in isr if node(self.image, r, self.listener))
            if error is ErrorCode.none and (replicas != partition.replicas or isr != partition.isr):
                error = ErrorCode.replica_not_available
        return fill(
            self.module.MetadataResponsePartition,
            error_code=error,
            partition_index=index,
            leader_id=view.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=view.offline,
        )
