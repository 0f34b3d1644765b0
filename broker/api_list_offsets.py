"""ListOffsets 1-11: offsets by time and the special ones (KIP-79, KIP-734, KIP-405, KIP-1005).

-1 latest (a consumer sees the high watermark, a replica the log end), -2 earliest, -3 the record of
the greatest timestamp, -4 earliest local, -5 latest tiered, -6 earliest pending upload. There is no
tiered storage: -4 is the earliest, -5 and -6 answer offset -1 with no error, as Kafka does.
"""

from __future__ import annotations

from typing import Any

from broker.context import BrokerContext
from broker.replica import Replica
from net.handlers import Api, Request
from wire.apis import ApiKey, ErrorCode
from wire.errors import DamagedFile, DecodeError, KafkaError
from wire.messages import fill, millis, response_module
from world.env import DiskError

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_ANY_REPLICA = -2
_READ_COMMITTED = 1

# (timestamp, offset, leader epoch)
Found = tuple[int, int, int]
_NOT_FOUND: Found = (-1, -1, -1)


def apis(context: BrokerContext) -> list[Api]:
    return [Api(ApiKey.LIST_OFFSETS, 1, 11, lambda request: _handle(context, request))]


def _handle(context: BrokerContext, request: Request) -> Any:
    asked = request.entity()
    version = request.api_version
    m: Any = response_module(ApiKey.LIST_OFFSETS, version)
    topics = []
    for topic in asked.topics:
        seen: dict[int, int] = {}
        for partition in topic.partitions:
            seen[partition.partition_index] = seen.get(partition.partition_index, 0) + 1
        partitions = []
        for partition in topic.partitions:
            error, found = ErrorCode.none, _NOT_FOUND
            if seen[partition.partition_index] > 1:
                error = ErrorCode.invalid_request
            else:
                try:
                    found = _find(context, asked, topic.name, partition, version)
                except KafkaError as refused:
                    error = refused.code
                except (DiskError, DamagedFile, DecodeError) as problem:
                    context.replicas.read_failed(topic.name, partition.partition_index, problem)
                    error = ErrorCode.kafka_storage_error
            partitions.append(
                fill(
                    m.ListOffsetsPartitionResponse,
                    partition_index=partition.partition_index,
                    error_code=error,
                    timestamp=found[0],
                    offset=found[1],
                    leader_epoch=found[2],
                )
            )
        topics.append(m.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions)))
    return fill(m.ListOffsetsResponse, throttle_time=millis(0), topics=tuple(topics))


def _find(context: BrokerContext, request: Any, topic: str, asked: Any, version: int) -> Found:
    replica_id = request.replica_id
    timestamp = asked.timestamp
    if timestamp < 0 and version < _SINCE.get(timestamp, 0):
        raise KafkaError(
            ErrorCode.unsupported_version, f"timestamp {timestamp} needs a later version"
        )
    if timestamp < EARLIEST_PENDING_UPLOAD:
        raise KafkaError(ErrorCode.unsupported_version, f"timestamp {timestamp} has no meaning")
    replica = context.replicas.find(topic, None, asked.partition_index)
    if not isinstance(replica, Replica):
        raise KafkaError(replica)
    if replica.failed:
        raise KafkaError(ErrorCode.kafka_storage_error)
    core, log = replica.core, replica.log
    error = core.check_epoch(
        getattr(asked, "current_leader_epoch", -1), leader_only=replica_id != _ANY_REPLICA
    )
    if error is not ErrorCode.none:
        raise KafkaError(error)
    consumer = replica_id < 0
    limit = core.high_watermark if consumer else log.end_offset
    if consumer and getattr(request, "isolation_level", 0) == _READ_COMMITTED:
        limit = replica.last_stable_offset()
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return -1, start, _epoch_at(replica, start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOT_FOUND
    if consumer and not core.has_new_epoch_hw:
        # A new leader's mark may lie behind what consumers were told by the one before.
        raise KafkaError(
            ErrorCode.offset_not_available if version >= 5 else ErrorCode.leader_not_available
        )
    if timestamp == LATEST:
        return -1, limit, core.leader_epoch
    return _by_time(replica, timestamp, limit)


def _by_time(replica: Replica, timestamp: int, limit: int) -> Found:
    log = replica.log
    if timestamp == MAX_TIMESTAMP:
        found = log.max_timestamp_offset()
    else:
        found = log.offset_for_timestamp(timestamp)
    if found is None or found[0] >= limit:
        return _NOT_FOUND
    offset, stamp, epoch = found
    return stamp, offset, epoch


def _epoch_at(replica: Replica, offset: int) -> int:
    return replica.log.epochs.epoch_at(offset)
