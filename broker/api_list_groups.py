"""ListGroups 0-5: the groups that this broker coordinates; by state from version 4 on (KIP-518),
by type from version 5 on (KIP-848).
"""

from __future__ import annotations

from typing import Any

from broker.group_coordinator import GroupCoordinators
from broker.group_requests import replying
from broker.groups.events import GroupsListed, ListedGroup, ListGroups
from net.handlers import Api, Later, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis, response_module

_NOT_OURS = (ErrorCode.none, ErrorCode.not_coordinator)


def apis(groups: GroupCoordinators) -> list[Api]:
    return [Api(ApiKey.LIST_GROUPS, 0, 5, lambda request: _handle(groups, request))]


def _handle(groups: GroupCoordinators, request: Request) -> Any:
    asked = request.entity()
    version = request.api_version
    states = getattr(asked, "states_filter", ())
    types = getattr(asked, "types_filter", ())
    later = Later()
    groups.ask_all(
        lambda caller: ListGroups(caller, states, types),
        replying(later, lambda outcomes: _answer(version, outcomes)),
    )
    return later


def _answer(version: int, outcomes: list[GroupsListed | ErrorCode]) -> Any:
    """One partition that can't tell now leaves the whole unknown; one that has gone to another
    broker meanwhile is told there."""
    error = ErrorCode.none
    found: list[ListedGroup] = []
    for outcome in outcomes:
        listed = outcome if isinstance(outcome, GroupsListed) else GroupsListed(outcome)
        if listed.error not in _NOT_OURS:
            error = listed.error
        found += listed.groups
    m: Any = response_module(ApiKey.LIST_GROUPS, version)
    return fill(
        m.ListGroupsResponse,
        throttle_time=millis(0),
        error_code=error,
        groups=tuple(
            fill(
                m.ListedGroup,
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.type,
            )
            for group in (found if error is ErrorCode.none else ())
        ),
    )
