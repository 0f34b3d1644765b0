"""How each request is told that it failed as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.groups import events as e
from broker.groups.group import DEAD
from wire.errors import ErrorCode

# What an append's failure is to a client: whether it should try again here, or look for another
# coordinator, or neither.
_OF_APPEND = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
    ErrorCode.invalid_fetch_size: ErrorCode.unknown_server_error,
}
_TOO_LARGE = frozenset({ErrorCode.message_too_large, ErrorCode.record_list_too_large})


def append_error(error: ErrorCode) -> ErrorCode:
    """What a client is told when the append that its request needs failed with `error`."""
    return _OF_APPEND.get(error, error)


def failed_append(request: e.Request, error: ErrorCode) -> object:
    """The answer to a request whose append failed with `error`."""
    if error in _TOO_LARGE and isinstance(request, e.OffsetCommit | e.TxnOffsetCommit):
        return refusal(request, ErrorCode.invalid_commit_offset_size)
    told = append_error(error)
    if told is ErrorCode.coordinator_not_available and isinstance(request, e.OffsetFetch):
        # Consumers before 3.9 don't know that error here.
        told = ErrorCode.not_coordinator
    return refusal(request, told)


def refusal(request: e.Request, error: ErrorCode) -> object:
    """The answer to a request that failed as a whole."""
    return _REFUSALS[type(request)](request, error)


def _described(request: e.DescribeGroups, error: ErrorCode) -> object:
    return e.GroupsDescribed(
        tuple(e.DescribedGroup(error, group_id, DEAD) for group_id in request.group_ids)
    )


_REFUSALS: dict[type, Callable[[Any, ErrorCode], object]] = {
    e.JoinGroup: lambda request, error: e.Joined(error, request.member_id),
    e.SyncGroup: lambda request, error: e.Synced(error),
    e.Heartbeat: lambda request, error: e.Beaten(error),
    e.LeaveGroup: lambda request, error: e.Left(error),
    e.OffsetCommit: lambda request, error: e.OffsetsCommitted((error,) * len(request.offsets)),
    e.TxnOffsetCommit: lambda request, error: e.OffsetsCommitted((error,) * len(request.offsets)),
    e.OffsetFetch: lambda request, error: e.OffsetsFetched(error),
    e.OffsetDelete: lambda request, error: e.OffsetsDeleted(error),
    e.ListGroups: lambda request, error: e.GroupsListed(error),
    e.DescribeGroups: _described,
    e.DeleteGroups: lambda request, error: e.GroupsDeleted(
        tuple((group_id, error) for group_id in request.group_ids)
    ),
    e.ConsumerGroupHeartbeat: lambda request, error: e.ConsumerBeaten(error),
    e.ConsumerGroupDescribe: lambda request, error: e.ConsumerGroupsDescribed(
        tuple(e.DescribedConsumerGroup(error, group_id) for group_id in request.group_ids)
    ),
}
