"""BrokerHeartbeat 0-2 (KIP-631): fenced, unfenced, shutting down.

Version 1 adds failed log directories, version 2 cordoned ones, which only metadata.version
beyond ours records; they are accepted and not kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any
from uuid import UUID

from controller import fencing
from controller.api import ControllerApi, answer
from controller.cluster import check_broker_epoch, leads_any
from controller.context import Context, Operation, Result, Steps
from controller.events import ApiRequest
from controller.heartbeats import BrokerState
from metadata.features import DIRECTORY_ASSIGNMENT
from metadata.image import BrokerRegistration
from wire.apis import ApiKey
from wire.errors import ErrorCode


def _handle(context: Context, request: ApiRequest) -> Result | Operation:
    entity = request.entity
    broker_id = int(entity.broker_id)
    broker = check_broker_epoch(context.image, broker_id, entity.broker_epoch)
    heartbeats = context.heartbeats
    registered_at = context.registration_offsets.get(broker_id, broker.epoch)
    caught_up = entity.current_metadata_offset >= registered_at
    current, following = heartbeats.next_state(
        broker_id,
        want_fence=entity.want_fence,
        want_shut_down=entity.want_shut_down,
        caught_up=caught_up,
        leads_any=lambda: leads_any(context.image, broker_id),
    )
    under_way = broker_id in context.transitions
    if under_way:
        following = current  # what it asks for is looked at again with its next heartbeat
    heartbeats.touch(
        broker_id,
        context.now_ms,
        fenced=following.fenced,
        metadata_offset=entity.current_metadata_offset,
    )
    if following is BrokerState.SHUTDOWN_NOW:
        # It says goodbye, so its successor need not wait for the session to end.
        heartbeats.end_session(broker_id)
    reply = answer(
        request,
        error_code=ErrorCode.none,
        is_caught_up=caught_up,
        is_fenced=following.fenced,
        should_shut_down=following is BrokerState.SHUTDOWN_NOW,
    )
    offline = _failed_directories(context, broker, entity)
    parts = list(_parts(context, broker, current, following, offline))
    if under_way or not parts:
        return Result((), reply)

    def finish(end_offset: int) -> Any:
        if following is BrokerState.CONTROLLED_SHUTDOWN:
            heartbeats.set_controlled_shutdown_offset(broker_id, end_offset - 1)
        return reply

    out = following.fenced or len(offline) == len(broker.log_dirs) > 0
    return Operation(chain(*parts), finish, broker=broker_id, out=out)


def _failed_directories(
    context: Context, broker: BrokerRegistration, entity: Any
) -> tuple[UUID, ...]:
    """Those that the broker says are offline and its registration still counts as online."""
    if context.metadata_version < DIRECTORY_ASSIGNMENT:
        return ()
    told = getattr(entity, "offline_log_dirs", ())
    return tuple(directory for directory in broker.log_dirs if directory in told)


def _parts(
    context: Context,
    broker: BrokerRegistration,
    current: BrokerState,
    following: BrokerState,
    offline: Sequence[UUID],
) -> Iterator[Steps]:
    """What the heartbeat changes, in order; mostly nothing."""
    if following is not current:
        if following is BrokerState.UNFENCED:
            yield fencing.unfence(context, broker)
        elif following is BrokerState.CONTROLLED_SHUTDOWN:
            yield fencing.begin_controlled_shutdown(context, broker)
        elif not broker.fenced:
            yield fencing.fence(context, broker)
    if offline:
        yield fencing.lose_directories(context, broker.id, offline)


def _refuse(request: ApiRequest, code: ErrorCode, message: str) -> Any:
    return answer(
        request, error_code=code, is_caught_up=False, is_fenced=True, should_shut_down=False
    )


API = ControllerApi(ApiKey.BROKER_HEARTBEAT, 0, 2, _handle, _refuse, admin=False, forwardable=False)
