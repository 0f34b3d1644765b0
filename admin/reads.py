"""Methods that read: from the committed image, but for the quorum, whose leader alone knows it."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any
from uuid import UUID

from admin.errors import message_of
from admin.ports import ControllerCall
from admin.stubs import admin_pb2 as pb
from metadata.image import (
    BrokerRegistration,
    ControllerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from net.server import FeatureView
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from wire.messages import fill
from wire.uuids import ZERO, to_text

_METADATA_TOPIC = "__cluster_metadata"


def list_topics(image: MetadataImage) -> pb.ListTopicsResponse:
    """All topics by name."""
    topics = [image.topics_by_name[name] for name in sorted(image.topics_by_name)]
    return pb.ListTopicsResponse(
        metadata_offset=image.last_offset,
        topics=[
            pb.TopicListing(
                name=topic.name, topic_id=to_text(topic.id), partitions=len(topic.partitions)
            )
            for topic in topics
        ],
    )


def describe_topics(
    image: MetadataImage, request: pb.DescribeTopicsRequest
) -> pb.DescribeTopicsResponse:
    """The named topics in the order asked for, or all by name."""
    names = list(request.names) or sorted(image.topics_by_name)
    return pb.DescribeTopicsResponse(
        metadata_offset=image.last_offset,
        topics=[_topic(name, image.topic(name)) for name in names],
    )


def _topic(name: str, topic: TopicImage | None) -> pb.TopicDescription:
    if topic is None:
        return pb.TopicDescription(name=name, error=unknown_topic(name))
    return pb.TopicDescription(
        name=name,
        topic_id=to_text(topic.id),
        partitions=[_partition(n, topic.partitions[n]) for n in sorted(topic.partitions)],
    )


def unknown_topic(name: str) -> pb.KafkaError | None:
    """The error of a topic that isn't there."""
    return message_of(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")


def _partition(index: int, partition: PartitionRegistration) -> pb.PartitionDescription:
    return pb.PartitionDescription(
        partition=index,
        replicas=partition.replicas,
        isr=partition.isr,
        removing=partition.removing,
        adding=partition.adding,
        elr=partition.elr,
        last_known_elr=partition.last_known_elr,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        recovery=partition.leader_recovery_state,
        directories=_ids(partition.directories),
    )


def _ids(ids: Iterable[UUID]) -> list[str]:
    return [to_text(one) for one in ids]


def describe_cluster(
    image: MetadataImage, cluster_id: str, active_controller: int | None
) -> pb.DescribeClusterResponse:
    """Registered brokers and controllers, fenced ones too."""
    return pb.DescribeClusterResponse(
        metadata_offset=image.last_offset,
        cluster_id=cluster_id,
        active_controller=-1 if active_controller is None else active_controller,
        brokers=[_broker(image.brokers[n]) for n in sorted(image.brokers)],
        controllers=[_controller(image.controllers[n]) for n in sorted(image.controllers)],
    )


def _endpoints(endpoints: Iterable[Any]) -> list[pb.Endpoint]:
    return [
        pb.Endpoint(
            listener=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol
        )
        for one in endpoints
    ]


def _feature_ranges(features: Iterable[Any]) -> list[pb.FeatureRange]:
    return [
        pb.FeatureRange(
            name=one.name, min_level=one.min_supported_version, max_level=one.max_supported_version
        )
        for one in features
    ]


def _broker(broker: BrokerRegistration) -> pb.BrokerDescription:
    return pb.BrokerDescription(
        id=broker.id,
        epoch=broker.epoch,
        incarnation=to_text(broker.incarnation_id),
        rack=broker.rack or "",
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        endpoints=_endpoints(broker.endpoints),
        features=_feature_ranges(broker.features),
        log_dirs=_ids(broker.log_dirs),
    )


def _controller(controller: ControllerRegistration) -> pb.ControllerDescription:
    return pb.ControllerDescription(
        id=controller.id,
        incarnation=to_text(controller.incarnation_id),
        endpoints=_endpoints(controller.endpoints),
        features=_feature_ranges(controller.features),
    )


def describe_features(image: MetadataImage, view: FeatureView) -> pb.DescribeFeaturesResponse:
    """Every feature that this controller supports or the cluster has finalised."""
    finalized = {**image.features, **view.finalized}  # kraft.version is not the image's
    names = sorted({**view.supported, **finalized})
    features = []
    for name in names:
        low, high = view.supported.get(name, (0, 0))
        features.append(
            pb.FeatureDescription(
                name=name,
                min_supported=low,
                max_supported=high,
                finalized=finalized.get(name, 0),
            )
        )
    return pb.DescribeFeaturesResponse(metadata_offset=image.last_offset, features=features)


async def describe_quorum(call: ControllerCall, timeout_ms: int) -> pb.DescribeQuorumResponse:
    """Kafka's DescribeQuorum, asked of the leader."""

    def build(version: int, module: ModuleType) -> Any:
        partition = fill(module.PartitionData, partition_index=0)
        topic = fill(module.TopicData, topic_name=_METADATA_TOPIC, partitions=(partition,))
        return fill(module.DescribeQuorumRequest, topics=(topic,))

    response = await call(ApiKey.DESCRIBE_QUORUM, build, timeout_ms)
    _raise(response)
    if not response.topics or not response.topics[0].partitions:
        raise KafkaError(ErrorCode.unknown_server_error, "the leader left out its partition")
    found = response.topics[0].partitions[0]
    _raise(found)
    # The leader's own entry is caught up by definition and tells its clock.
    now_ms = max(
        (
            getattr(one, "last_caught_up_timestamp", -1)
            for one in found.current_voters
            if one.replica_id == found.leader_id
        ),
        default=-1,
    )
    return pb.DescribeQuorumResponse(
        leader_id=found.leader_id,
        leader_epoch=found.leader_epoch,
        high_watermark=found.high_watermark,
        voters=[_replica(one, now_ms) for one in found.current_voters],
        observers=[_replica(one, now_ms) for one in found.observers],
    )


def _raise(answer: Any) -> None:
    if answer.error_code != ErrorCode.none:
        raise KafkaError(answer.error_code, getattr(answer, "error_message", None) or "")


def _replica(state: Any, now_ms: int) -> pb.ReplicaState:
    caught_up_ms = getattr(state, "last_caught_up_timestamp", -1)
    known = now_ms >= 0 and caught_up_ms >= 0
    directory = getattr(state, "replica_directory_id", None)
    return pb.ReplicaState(
        id=state.replica_id,
        directory=to_text(ZERO if directory is None else directory),
        end_offset=state.log_end_offset,
        lag_ms=max(now_ms - caught_up_ms, 0) if known else -1,
    )
