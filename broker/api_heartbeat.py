"""Heartbeat 0-4: a member of a classic group is alive, and hears whether to join again."""

from __future__ import annotations

from typing import Any

from broker.group_coordinator import GroupCoordinators
from broker.group_requests import ask
from broker.groups.events import Beaten, Heartbeat
from net.handlers import Api, Request
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis, response_class


def apis(groups: GroupCoordinators) -> list[Api]:
    return [Api(ApiKey.HEARTBEAT, 0, 4, lambda request: _handle(groups, request))]


def _handle(groups: GroupCoordinators, request: Request) -> Any:
    asked = request.entity()
    version = request.api_version

    def make(caller: int) -> Heartbeat:
        return Heartbeat(
            caller,
            asked.group_id,
            asked.generation_id,
            asked.member_id,
            getattr(asked, "group_instance_id", None),
        )

    return ask(groups, asked.group_id, make, lambda outcome: _answer(version, outcome))


def _answer(version: int, outcome: Beaten | ErrorCode) -> Any:
    error = outcome.error if isinstance(outcome, Beaten) else outcome
    return fill(
        response_class(ApiKey.HEARTBEAT, version), throttle_time=millis(0), error_code=error
    )
