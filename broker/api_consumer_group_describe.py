"""ConsumerGroupDescribe 0-1: consumer groups with their members, what each has and what it is to
have (KIP-848); from version 1 on with the protocol that a member speaks (KIP-1099).
"""

from __future__ import annotations

from typing import Any

from broker.context import BrokerContext
from broker.group_coordinator import GroupCoordinators
from broker.group_requests import (
    ALL_GROUP_OPERATIONS,
    NOT_ASKED,
    bounded,
    replying,
    speaks_consumer_protocol,
)
from broker.groups.events import (
    ConsumerGroupDescribe,
    ConsumerGroupsDescribed,
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
)
from net.handlers import Api, Later, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis, response_module

Outcomes = list[tuple[tuple[str, ...], ConsumerGroupsDescribed | ErrorCode]]


def apis(context: BrokerContext, groups: GroupCoordinators) -> list[Api]:
    def handle(request: Request) -> Any:
        return _handle(context, groups, request)

    return [Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, handle)]


def _handle(context: BrokerContext, groups: GroupCoordinators, request: Request) -> Any:
    asked = request.entity()
    version = request.api_version
    operations = ALL_GROUP_OPERATIONS if asked.include_authorized_operations else NOT_ASKED
    if not speaks_consumer_protocol(context.image):
        refused: Outcomes = [(tuple(asked.group_ids), ErrorCode.unsupported_version)]
        return _answer(version, operations, refused)
    named = [group_id for group_id in bounded(asked.group_ids) if group_id]
    nameless: Outcomes = [(("",), ErrorCode.invalid_group_id)] * (len(asked.group_ids) - len(named))
    later = Later()
    groups.ask_parted(
        named,
        ConsumerGroupDescribe,
        replying(later, lambda outcomes: _answer(version, operations, nameless + outcomes)),
    )
    return later


def _answer(version: int, operations: int, outcomes: Outcomes) -> Any:
    m: Any = response_module(ApiKey.CONSUMER_GROUP_DESCRIBE, version)
    described: list[DescribedConsumerGroup] = []
    for ids, outcome in outcomes:
        if isinstance(outcome, ConsumerGroupsDescribed):
            described += outcome.groups
        else:
            described += [DescribedConsumerGroup(outcome, group_id) for group_id in ids]
    return m.ConsumerGroupDescribeResponse(
        throttle_time=millis(0),
        groups=tuple(_group(m, operations, group) for group in described),
    )


def _group(m: Any, operations: int, group: DescribedConsumerGroup) -> Any:
    return m.DescribedGroup(
        error_code=group.error,
        error_message=group.message,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=tuple(_member(m, member) for member in group.members),
        authorized_operations=operations if group.error is ErrorCode.none else NOT_ASKED,
    )


def _member(m: Any, member: DescribedConsumer) -> Any:
    return fill(
        m.Member,
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_topics,
        subscribed_topic_regex=member.subscribed_regex,
        assignment=_assignment(m, member.assignment),
        target_assignment=_assignment(m, member.target),
        member_type=member.type,
    )


def _assignment(m: Any, partitions: tuple[DescribedAssignment, ...]) -> Any:
    return m.Assignment(
        topic_partitions=tuple(
            m.TopicPartitions(
                topic_id=one.topic_id, topic_name=one.topic, partitions=one.partitions
            )
            for one in partitions
        )
    )
