"""Changes of the quorum's voters: Kafka's AddRaftVoter and RemoveRaftVoter (KIP-853)."""

from __future__ import annotations

from types import ModuleType
from typing import Any
from uuid import UUID

from admin.ports import ControllerCall
from admin.stubs import admin_pb2 as pb
from wire.apis import ApiKey
from wire.errors import DecodeError, ErrorCode, KafkaError
from wire.messages import fill, millis
from wire.uuids import from_text


async def add_voter(
    call: ControllerCall, request: pb.AddVoterRequest, timeout_ms: int
) -> pb.AddVoterResponse:
    """Kafka's AddRaftVoter, answered once it is committed."""
    directory_id = _directory(request.directory)
    for end in request.endpoints:
        if not 0 < end.port < 65536:
            raise KafkaError(
                ErrorCode.invalid_request, f"port {end.port} of {end.listener}: 1 to 65535"
            )

    def build(version: int, module: ModuleType) -> Any:
        return fill(
            module.AddRaftVoterRequest,
            cluster_id=None,
            timeout=millis(timeout_ms),
            voter_id=request.id,
            voter_directory_id=directory_id,
            listeners=tuple(
                module.Listener(name=end.listener, host=end.host, port=end.port)
                for end in request.endpoints
            ),
            ack_when_committed=True,
        )

    _raise(await call(ApiKey.ADD_RAFT_VOTER, build, timeout_ms))
    return pb.AddVoterResponse()


async def remove_voter(
    call: ControllerCall, request: pb.RemoveVoterRequest, timeout_ms: int
) -> pb.RemoveVoterResponse:
    """Kafka's RemoveRaftVoter, answered once it is committed."""
    directory_id = _directory(request.directory)

    def build(version: int, module: ModuleType) -> Any:
        return fill(
            module.RemoveRaftVoterRequest,
            cluster_id=None,
            voter_id=request.id,
            voter_directory_id=directory_id,
        )

    _raise(await call(ApiKey.REMOVE_RAFT_VOTER, build, timeout_ms))
    return pb.RemoveVoterResponse()


def _directory(text: str) -> UUID:
    try:
        return from_text(text)
    except DecodeError as error:
        raise KafkaError(ErrorCode.invalid_request, f"directory {text!r}: {error}") from error


def _raise(answer: Any) -> None:
    if answer.error_code != ErrorCode.none:
        raise KafkaError(answer.error_code, answer.error_message or "")
