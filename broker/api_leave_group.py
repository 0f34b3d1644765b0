"""LeaveGroup 0-5: members leave a group; from version 3 on several at a time, each with an error
of its own (KIP-345).
"""

from __future__ import annotations

from typing import Any

from broker.group_coordinator import GroupCoordinators
from broker.group_requests import ask
from broker.groups.events import LeaveGroup, Leaving, Left
from net.handlers import Api, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis, response_module

_SEVERAL_FROM = 3


def apis(groups: GroupCoordinators) -> list[Api]:
    return [Api(ApiKey.LEAVE_GROUP, 0, 5, lambda request: _handle(groups, request))]


def _handle(groups: GroupCoordinators, request: Request) -> Any:
    asked = request.entity()
    version = request.api_version
    if version >= _SEVERAL_FROM:
        members = tuple(
            Leaving(one.member_id, one.group_instance_id, getattr(one, "reason", None))
            for one in asked.members
        )
    else:
        members = (Leaving(asked.member_id),)
    return ask(
        groups,
        asked.group_id,
        lambda caller: LeaveGroup(caller, asked.group_id, members),
        lambda outcome: _answer(version, outcome),
    )


def _answer(version: int, outcome: Left | ErrorCode) -> Any:
    left = outcome if isinstance(outcome, Left) else Left(outcome)
    m: Any = response_module(ApiKey.LEAVE_GROUP, version)
    error = left.error
    if version < _SEVERAL_FROM:
        if error is ErrorCode.none and left.members:
            error = left.members[0][1]
        return fill(m.LeaveGroupResponse, throttle_time=millis(0), error_code=error)
    return fill(
        m.LeaveGroupResponse,
        throttle_time=millis(0),
        error_code=error,
        members=tuple(
            m.MemberResponse(
                member_id=member.member_id, group_instance_id=member.instance_id, error_code=code
            )
            for member, code in left.members
        ),
    )
