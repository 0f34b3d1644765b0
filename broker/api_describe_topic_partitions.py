"""DescribeTopicPartitions 0: topics in name order, page by page, with ELR fields (KIP-966)."""

from __future__ import annotations

from typing import Any

from broker.cluster_view import ALL_TOPIC_OPERATIONS, is_internal, view_partition
from broker.context import BrokerContext
from metadata.image import TopicImage
from metadata.topic_names import is_topic_name
from net.handlers import Api, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import millis, response_module

# max.request.partition.size.limit's default in Kafka.
_LIMIT = 2000


def apis(context: BrokerContext) -> list[Api]:
    return [Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, lambda r: _handle(context, r))]


def _handle(context: BrokerContext, request: Request) -> Any:
    asked = request.entity()
    m: Any = response_module(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
    image = context.image
    names = sorted({topic.name for topic in asked.topics} or image.topics_by_name)
    from_name, from_partition = "", 0
    if asked.cursor is not None:
        from_name, from_partition = asked.cursor.topic_name, asked.cursor.partition_index
        names = [name for name in names if name >= from_name]
    most = _LIMIT
    left = min(asked.response_partition_limit, most) if asked.response_partition_limit > 0 else most
    topics = []
    cursor = None
    for name in names:
        if left <= 0:
            cursor = m.Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topic(name)
        if topic is None:
            if asked.topics:
                topics.append(_missing(m, name))
            continue
        first = from_partition if name == from_name else 0
        indexes = [i for i in sorted(topic.partitions) if i >= first]
        shown = indexes[:left]
        left -= len(shown)
        topics.append(_topic(context, m, topic, shown, request.connection.listener))
        if len(shown) < len(indexes):
            cursor = m.Cursor(topic_name=name, partition_index=indexes[len(shown)])
            break
    return m.DescribeTopicPartitionsResponse(
        throttle_time=millis(0), topics=tuple(topics), next_cursor=cursor
    )


def _missing(m: Any, name: str) -> Any:
    return m.DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.unknown_topic_or_partition
        if is_topic_name(name)
        else ErrorCode.invalid_topic_exception,
        name=name,
        topic_id=None,
        is_internal=is_internal(name),
        partitions=(),
    )


def _topic(
    context: BrokerContext, m: Any, topic: TopicImage, indexes: list[int], listener: str
) -> Any:
    partitions = []
    for index in indexes:
        partition = topic.partitions[index]
        view = view_partition(context.image, partition, listener, name_listener=True)
        partitions.append(
            m.DescribeTopicPartitionsResponsePartition(
                error_code=view.error,
                partition_index=index,
                leader_id=view.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                eligible_leader_replicas=partition.elr,
                last_known_elr=partition.last_known_elr,
                offline_replicas=view.offline,
            )
        )
    return m.DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=tuple(partitions),
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )
