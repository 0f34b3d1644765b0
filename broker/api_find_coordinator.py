"""FindCoordinator 0-6: the broker that coordinates a group (KIP-699: several keys from version 4).

The topic of offsets is created when the first group is asked for. Transactions and share groups
have no coordinator here yet; they get Kafka's answer for one that isn't to be had.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from broker.cluster_view import Node, node
from broker.context import BrokerContext
from broker.group_coordinator import GroupCoordinators
from broker.group_partition import LONGEST_TEXT, OFFSETS_TOPIC
from broker.group_requests import bounded
from broker.topic_creation import TopicCreation
from net.handlers import Api, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis, response_module

_BATCHED_FROM = 4
_GROUP = 0
_OTHERS = {1: "transactional id", 2: "share group"}


class _Found(NamedTuple):
    error: ErrorCode
    message: str | None = None
    node: Node | None = None


def apis(context: BrokerContext, groups: GroupCoordinators, creation: TopicCreation) -> list[Api]:
    def handle(request: Request) -> Any:
        return _handle(context, groups, creation, request)

    return [Api(ApiKey.FIND_COORDINATOR, 0, 6, handle)]


def _handle(
    context: BrokerContext, groups: GroupCoordinators, creation: TopicCreation, request: Request
) -> Any:
    asked = request.entity()
    m: Any = response_module(ApiKey.FIND_COORDINATOR, request.api_version)
    key_type = getattr(asked, "key_type", _GROUP)
    listener = request.connection.listener

    def find(key: str) -> _Found:
        if key_type == _GROUP:
            return _of_group(context, groups, creation, key, listener)
        return _of_other(key_type)

    if request.api_version >= _BATCHED_FROM:
        coordinators = tuple(
            fill(m.Coordinator, key=key, **_fields(find(key)))
            for key in bounded(asked.coordinator_keys)
        )
        return m.FindCoordinatorResponse(throttle_time=millis(0), coordinators=coordinators)
    return fill(m.FindCoordinatorResponse, throttle_time=millis(0), **_fields(find(asked.key)))


def _of_group(
    context: BrokerContext,
    groups: GroupCoordinators,
    creation: TopicCreation,
    group_id: str,
    listener: str,
) -> _Found:
    if len(group_id) > LONGEST_TEXT:
        return _Found(ErrorCode.invalid_request, f"a group id has at most {LONGEST_TEXT} bytes")
    topic = context.image.topic(OFFSETS_TOPIC)
    if topic is None:
        if context.caught_up.is_set():
            creation.ask([OFFSETS_TOPIC])
        return _nobody("the topic of offsets is being created")
    partition = topic.partitions.get(groups.partition_of(group_id))
    leader = None if partition is None else node(context.image, partition.leader, listener)
    if leader is None:
        return _nobody("the group's partition of the offsets topic has no leader")
    return _Found(ErrorCode.none, None, leader)


def _of_other(key_type: int) -> _Found:
    kind = _OTHERS.get(key_type)
    if kind is None:
        return _Found(
            ErrorCode.invalid_request,
            f"key type {key_type} is unknown; 0 is a group, 1 a transactional id",
        )
    return _nobody(f"this cluster has no coordinator for a {kind}")


def _nobody(message: str) -> _Found:
    return _Found(ErrorCode.coordinator_not_available, message)


def _fields(found: _Found) -> dict[str, Any]:
    place = found.node
    return {
        "node_id": -1 if place is None else place.id,
        "host": "" if place is None else place.host,
        "port": -1 if place is None else place.port,
        "error_code": found.error,
        "error_message": found.message,
    }
