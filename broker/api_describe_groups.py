"""DescribeGroups 0-6: classic groups with their members.

A group that isn't there is `Dead`; from version 6 on with GROUP_ID_NOT_FOUND (KIP-1043), before
without an error.
"""

from __future__ import annotations

from typing import Any

from broker.group_coordinator import GroupCoordinators
from broker.group_requests import ALL_GROUP_OPERATIONS, NOT_ASKED, bounded, replying
from broker.groups.events import DescribedGroup, DescribeGroups, GroupsDescribed
from net.handlers import Api, Later, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis, response_module

_NOT_FOUND_FROM = 6

Outcomes = list[tuple[tuple[str, ...], GroupsDescribed | ErrorCode]]


def apis(groups: GroupCoordinators) -> list[Api]:
    return [Api(ApiKey.DESCRIBE_GROUPS, 0, 6, lambda request: _handle(groups, request))]


def _handle(groups: GroupCoordinators, request: Request) -> Any:
    asked = request.entity()
    version = request.api_version
    operations = NOT_ASKED
    if getattr(asked, "include_authorized_operations", False):
        operations = ALL_GROUP_OPERATIONS
    later = Later()
    groups.ask_parted(
        bounded(asked.groups),
        DescribeGroups,
        replying(later, lambda outcomes: _answer(version, operations, outcomes)),
    )
    return later


def _answer(version: int, operations: int, outcomes: Outcomes) -> Any:
    m: Any = response_module(ApiKey.DESCRIBE_GROUPS, version)
    described: list[Any] = []
    for ids, outcome in outcomes:
        if isinstance(outcome, GroupsDescribed):
            described += [_group(m, version, operations, group) for group in outcome.groups]
        else:
            described += [
                _group(m, version, operations, DescribedGroup(outcome, group_id, ""))
                for group_id in ids
            ]
    return fill(m.DescribeGroupsResponse, throttle_time=millis(0), groups=tuple(described))


def _group(m: Any, version: int, operations: int, group: DescribedGroup) -> Any:
    error = group.error
    if error is ErrorCode.group_id_not_found and version < _NOT_FOUND_FROM:
        error = ErrorCode.none
    return fill(
        m.DescribedGroup,
        error_code=error,
        error_message=group.message,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=tuple(
            fill(
                m.DescribedGroupMember,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ),
        authorized_operations=operations if error is ErrorCode.none else NOT_ASKED,
    )
