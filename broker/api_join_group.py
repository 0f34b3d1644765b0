"""JoinGroup 0-9: a member of a classic group joins; answered when all that are waited for have.

From version 4 on a member without id must come again with the one it is given (KIP-394). Up to
version 6 a protocol name is never null.
"""

from __future__ import annotations

from typing import Any

from broker.group_coordinator import GroupCoordinators
from broker.group_requests import ask, client_of, milliseconds
from broker.groups.events import Joined, JoinGroup, Protocol
from net.handlers import Api, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis, response_module

_KNOWN_MEMBER_ID_FROM = 4
_NULLABLE_NAMES_FROM = 7
_SKIPS_ASSIGNMENT_FROM = 9


def apis(groups: GroupCoordinators) -> list[Api]:
    return [Api(ApiKey.JOIN_GROUP, 0, 9, lambda request: _handle(groups, request))]


def _handle(groups: GroupCoordinators, request: Request) -> Any:
    asked = request.entity()
    version = request.api_version
    client_id, client_host = client_of(request)
    session_timeout_ms = milliseconds(asked.session_timeout)
    rebalance_timeout_ms = session_timeout_ms
    if version >= 1:
        rebalance_timeout_ms = milliseconds(asked.rebalance_timeout)

    def make(caller: int) -> JoinGroup:
        return JoinGroup(
            caller,
            asked.group_id,
            asked.member_id,
            getattr(asked, "group_instance_id", None),
            client_id,
            client_host,
            session_timeout_ms,
            rebalance_timeout_ms,
            asked.protocol_type,
            tuple(Protocol(protocol.name, protocol.metadata) for protocol in asked.protocols),
            require_known_member_id=version >= _KNOWN_MEMBER_ID_FROM,
            may_skip_assignment=version >= _SKIPS_ASSIGNMENT_FROM,
            reason=getattr(asked, "reason", None),
        )

    return ask(
        groups,
        asked.group_id,
        make,
        lambda outcome: _answer(version, outcome),
        waits=True,
    )


def _answer(version: int, outcome: Joined | ErrorCode) -> Any:
    joined = outcome if isinstance(outcome, Joined) else Joined(outcome)
    name = joined.protocol_name or None
    m: Any = response_module(ApiKey.JOIN_GROUP, version)
    return fill(
        m.JoinGroupResponse,
        throttle_time=millis(0),
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=name if version >= _NULLABLE_NAMES_FROM else name or "",
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            fill(
                m.JoinGroupResponseMember,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in joined.members
        ),
    )
