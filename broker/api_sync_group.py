"""SyncGroup 0-5: a member asks for its assignment, which the leader brings with its own.

From version 5 on the protocol's type and name have to be told (KIP-559).
"""

from __future__ import annotations

from typing import Any

from broker.group_coordinator import GroupCoordinators
from broker.group_requests import ask
from broker.groups.events import Synced, SyncGroup
from net.handlers import Api, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis, response_module

_NAMES_FROM = 5


def apis(groups: GroupCoordinators) -> list[Api]:
    return [Api(ApiKey.SYNC_GROUP, 0, 5, lambda request: _handle(groups, request))]


def _handle(groups: GroupCoordinators, request: Request) -> Any:
    asked = request.entity()
    version = request.api_version
    protocol_type = getattr(asked, "protocol_type", None)
    protocol_name = getattr(asked, "protocol_name", None)
    if version >= _NAMES_FROM and (protocol_type is None or protocol_name is None):
        return _answer(version, ErrorCode.inconsistent_group_protocol)

    def make(caller: int) -> SyncGroup:
        return SyncGroup(
            caller,
            asked.group_id,
            asked.generation_id,
            asked.member_id,
            getattr(asked, "group_instance_id", None),
            protocol_type,
            protocol_name,
            tuple((one.member_id, one.assignment) for one in asked.assignments),
        )

    return ask(groups, asked.group_id, make, lambda outcome: _answer(version, outcome), waits=True)


def _answer(version: int, outcome: Synced | ErrorCode) -> Any:
    synced = outcome if isinstance(outcome, Synced) else Synced(outcome)
    m: Any = response_module(ApiKey.SYNC_GROUP, version)
    return fill(
        m.SyncGroupResponse,
        throttle_time=millis(0),
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )
