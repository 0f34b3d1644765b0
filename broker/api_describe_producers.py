"""DescribeProducers 0: the producers that the leader of a partition knows (KIP-664)."""

from __future__ import annotations

from typing import Any

from broker.context import BrokerContext
from broker.replica import Replica
from net.handlers import Api, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import millis, response_module

# Each partition is answered with all producers that it has.
_MAX_ELEMENTS = 1000


def apis(context: BrokerContext) -> list[Api]:
    return [
        Api(
            ApiKey.DESCRIBE_PRODUCERS,
            0,
            0,
            lambda request: _handle(context, request),
            max_elements=_MAX_ELEMENTS,
        )
    ]


def _handle(context: BrokerContext, request: Request) -> Any:
    asked = request.entity()
    m: Any = response_module(ApiKey.DESCRIBE_PRODUCERS, 0)
    return m.DescribeProducersResponse(
        throttle_time=millis(0),
        topics=tuple(
            m.TopicResponse(
                name=topic.name,
                partitions=tuple(
                    _partition(context, m, topic.name, index) for index in topic.partition_indexes
                ),
            )
            for topic in asked.topics
        ),
    )


def _partition(context: BrokerContext, m: Any, topic: str, index: int) -> Any:
    replica = context.replicas.find(topic, None, index)
    error = ErrorCode.none
    producers: tuple[Any, ...] = ()
    if not isinstance(replica, Replica):
        error = replica
    elif not replica.core.is_leader:
        error = ErrorCode.not_leader_or_follower
    else:
        producers = tuple(
            m.ProducerState(
                producer_id=p.producer_id,
                producer_epoch=p.epoch,
                last_sequence=p.last_sequence,
                last_timestamp=p.last_timestamp_ms,
                coordinator_epoch=p.coordinator_epoch,
                current_txn_start_offset=p.open_since,
            )
            for p in replica.log.producers
        )
    return m.PartitionResponse(
        partition_index=index,
        error_code=error,
        error_message=None if error is ErrorCode.none else error.name.replace("_", " "),
        active_producers=producers,
    )
