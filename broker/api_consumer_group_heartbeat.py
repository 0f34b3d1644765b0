"""ConsumerGroupHeartbeat 0-1: all that a member of a consumer group says and hears (KIP-848).

From version 1 on a member makes its own id (KIP-1082). Where group.version is not finalised at 1,
this and ConsumerGroupDescribe are refused.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from broker.context import BrokerContext
from broker.group_coordinator import GroupCoordinators
from broker.group_requests import ask, client_of, milliseconds, speaks_consumer_protocol
from broker.groups.events import ConsumerBeaten, ConsumerGroupHeartbeat, TopicPartitions
from net.handlers import Api, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis, response_module

_OWN_MEMBER_ID_FROM = 1
_NO_TOPIC = UUID(int=0)


def apis(context: BrokerContext, groups: GroupCoordinators) -> list[Api]:
    def handle(request: Request) -> Any:
        return _handle(context, groups, request)

    return [Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, handle)]


def _handle(context: BrokerContext, groups: GroupCoordinators, request: Request) -> Any:
    asked = request.entity()
    version = request.api_version
    if not speaks_consumer_protocol(context.image):
        return _answer(version, ErrorCode.unsupported_version)
    if version >= _OWN_MEMBER_ID_FROM and not asked.member_id:
        refusal = ConsumerBeaten(ErrorCode.invalid_request, "MemberId can't be empty.")
        return _answer(version, refusal)
    client_id, client_host = client_of(request)
    owned = asked.topic_partitions

    def make(caller: int) -> ConsumerGroupHeartbeat:
        return ConsumerGroupHeartbeat(
            caller,
            asked.group_id,
            asked.member_id,
            asked.member_epoch,
            asked.instance_id,
            asked.rack_id,
            client_id,
            client_host,
            milliseconds(asked.rebalance_timeout),
            asked.subscribed_topic_names,
            getattr(asked, "subscribed_topic_regex", None),
            asked.server_assignor,
            None if owned is None else tuple(_owned(one) for one in owned),
        )

    return ask(groups, asked.group_id, make, lambda outcome: _answer(version, outcome))


def _owned(one: Any) -> TopicPartitions:
    return TopicPartitions(one.topic_id or _NO_TOPIC, one.partitions)


def _answer(version: int, outcome: ConsumerBeaten | ErrorCode) -> Any:
    beaten = outcome if isinstance(outcome, ConsumerBeaten) else ConsumerBeaten(outcome)
    m: Any = response_module(ApiKey.CONSUMER_GROUP_HEARTBEAT, version)
    assignment = None
    if beaten.assignment is not None:
        assignment = m.Assignment(
            topic_partitions=tuple(
                m.TopicPartitions(topic_id=one.topic_id, partitions=one.partitions)
                for one in beaten.assignment
            )
        )
    return fill(
        m.ConsumerGroupHeartbeatResponse,
        throttle_time=millis(0),
        error_code=beaten.error,
        error_message=beaten.message,
        member_id=beaten.member_id,
        member_epoch=beaten.member_epoch,
        heartbeat_interval=millis(beaten.heartbeat_interval_ms),
        assignment=assignment,
    )
