"""DeleteGroups 0-2: groups without members go, with their offsets (KIP-229)."""

from __future__ import annotations

from typing import Any

from broker.group_coordinator import GroupCoordinators
from broker.group_requests import bounded, replying
from broker.groups.events import DeleteGroups, GroupsDeleted
from net.handlers import Api, Later, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import millis, response_module

Outcomes = list[tuple[tuple[str, ...], GroupsDeleted | ErrorCode]]


def apis(groups: GroupCoordinators) -> list[Api]:
    return [Api(ApiKey.DELETE_GROUPS, 0, 2, lambda request: _handle(groups, request))]


def _handle(groups: GroupCoordinators, request: Request) -> Any:
    version = request.api_version
    later = Later()
    groups.ask_parted(
        bounded(list(dict.fromkeys(request.entity().groups_names))),
        DeleteGroups,
        replying(later, lambda outcomes: _answer(version, outcomes)),
    )
    return later


def _answer(version: int, outcomes: Outcomes) -> Any:
    m: Any = response_module(ApiKey.DELETE_GROUPS, version)
    results: list[tuple[str, ErrorCode]] = []
    for ids, outcome in outcomes:
        if isinstance(outcome, GroupsDeleted):
            results += outcome.groups
        else:
            results += [(group_id, outcome) for group_id in ids]
    return m.DeleteGroupsResponse(
        throttle_time=millis(0),
        results=tuple(
            m.DeletableGroupResult(group_id=group_id, error_code=error)
            for group_id, error in results
        ),
    )
