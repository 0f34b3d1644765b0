"""What a heartbeat must look like, whatever the state of its group."""

from __future__ import annotations

from broker.groups.consumer.member import (
    JOINING_EPOCH,
    LEAVING_STATIC_EPOCH,
    SAME_TIMEOUT_MS,
)
from broker.groups.consumer.refusal import Refused
from broker.groups.events import ConsumerGroupHeartbeat
from wire.errors import ErrorCode


def check(request: ConsumerGroupHeartbeat, assignors: tuple[str, ...]) -> None:
    """Refuses a request that is wrong in itself; `assignors` are those that are offered.

    A member that joins without an id is given one here. From version 1 on members bring their own:
    refusing those that don't is the shell's, which knows versions.
    """
    if request.member_epoch not in (JOINING_EPOCH, LEAVING_STATIC_EPOCH):
        _not_empty("the member id", request.member_id)
    _not_empty("the group id", request.group_id)
    _not_empty("the instance id", request.instance_id)
    _not_empty("the rack id", request.rack_id)
    if request.member_epoch == JOINING_EPOCH:
        _check_joining(request)
    elif request.member_epoch == LEAVING_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("member epoch -2 is for static members: an instance id is needed with it")
    elif request.member_epoch < LEAVING_STATIC_EPOCH:
        raise _invalid(f"member epoch {request.member_epoch} means nothing; the least is -2")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise Refused(
            ErrorCode.unsupported_assignor,
            f"no assignor {request.server_assignor!r} here; there is {', '.join(assignors)}",
        )


def _check_joining(request: ConsumerGroupHeartbeat) -> None:
    if request.rebalance_timeout_ms == SAME_TIMEOUT_MS:
        raise _invalid("a member that joins must tell its rebalance timeout")
    if request.owned is None or request.owned:
        raise _invalid("a member that joins must own nothing, and say so by an empty list")
    if request.subscribed_topics is None and request.subscribed_regex is None:
        raise _invalid("a member that joins must subscribe to topics or to a regular expression")


def _not_empty(name: str, value: str | None) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{name} is empty")


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.invalid_request, message)
