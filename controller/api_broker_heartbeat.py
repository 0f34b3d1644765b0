"""BrokerHeartbeat 0-2 (KIP-631): fenced, unfenced, shutting down.

Version 1 adds failed log directories, version 2 cordoned ones, which only metadata.version
beyond ours records; they are accepted and not kept.
"""

from __future__ import annotations

from typing import Any

from controller import fencing
from controller.api import ControllerApi, answer
from controller.cluster import check_broker_epoch, leads_any
from controller.context import Context, Result
from controller.events import ApiRequest
from controller.heartbeats import BrokerState
from metadata.features import DIRECTORY_ASSIGNMENT
from metadata.records import Record
from wire.apis import ApiKey
from wire.errors import ErrorCode


def _handle(context: Context, request: ApiRequest) -> Result:
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
    records: list[Record] = []
    if following is not current:
        if following is BrokerState.UNFENCED:
            records = fencing.unfence(context, broker)
        elif following is BrokerState.CONTROLLED_SHUTDOWN:
            records = fencing.begin_controlled_shutdown(context, broker)
        elif not broker.fenced:
            records = fencing.fence(context, broker)
    heartbeats.touch(
        broker_id,
        context.now_ms,
        fenced=following.fenced,
        metadata_offset=entity.current_metadata_offset,
    )
    if following is BrokerState.SHUTDOWN_NOW:
        # It says goodbye, so its successor need not wait for the session to end.
        heartbeats.end_session(broker_id)
    offline = [d for d in getattr(entity, "offline_log_dirs", ()) if d is not None]
    if offline and context.metadata_version >= DIRECTORY_ASSIGNMENT:
        # The broker's other copies may have just changed hands above: look at what is left.
        records += _directories_lost(context, records, broker_id, offline)

    def appended(end_offset: int) -> None:
        if following is BrokerState.CONTROLLED_SHUTDOWN:
            heartbeats.set_controlled_shutdown_offset(broker_id, end_offset - 1)

    reply = answer(
        request,
        error_code=ErrorCode.none,
        is_caught_up=caught_up,
        is_fenced=following.fenced,
        should_shut_down=following is BrokerState.SHUTDOWN_NOW,
    )
    return Result(records, reply, atomic=False, appended=appended)


def _directories_lost(
    context: Context, before: list[Record], broker_id: int, offline: list[Any]
) -> list[Record]:
    draft = context.draft()
    for record in before:
        draft.image = draft.image.apply(record)
    broker = draft.image.broker(broker_id)
    assert broker is not None
    return fencing.lose_directories(draft, broker, offline)


def _refuse(request: ApiRequest, code: ErrorCode, message: str) -> Any:
    return answer(
        request, error_code=code, is_caught_up=False, is_fenced=True, should_shut_down=False
    )


API = ControllerApi(ApiKey.BROKER_HEARTBEAT, 0, 2, _handle, _refuse, admin=False, forwardable=False)
