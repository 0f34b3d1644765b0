"""Errors on their way through the door: Kafka's codes as gRPC statuses, and back.

A failed call carries the same trailer as every service that follows gRPC's richer error model:
`grpc-status-details-bin`, a google.rpc.Status, here with one KafkaError as its detail. The two
messages of that model are not worth a dependency: `StatusDetails` has the same bytes.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError as ProtobufDecodeError

from admin.stubs import admin_pb2 as pb
from net.errors import NetworkError, RequestTimedOut, UnsupportedVersion
from wire.errors import ErrorCode, KafkaError

DETAILS_KEY: Final = "grpc-status-details-bin"
_NOT_CONNECTED: Final = re.compile(
    r"^failed to connect to all addresses; last error: [A-Z_]+: (?:ipv[46]:)?"
)

_STATUS_CODES: Final[dict[ErrorCode, grpc.StatusCode]] = {
    code: status
    for status, codes in {
        grpc.StatusCode.INVALID_ARGUMENT: (
            ErrorCode.invalid_request,
            ErrorCode.invalid_config,
            ErrorCode.invalid_topic_exception,
            ErrorCode.invalid_partitions,
            ErrorCode.invalid_replication_factor,
            ErrorCode.invalid_replica_assignment,
            ErrorCode.invalid_update_version,
            ErrorCode.policy_violation,
        ),
        grpc.StatusCode.NOT_FOUND: (
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.unknown_topic_id,
            ErrorCode.resource_not_found,
            ErrorCode.broker_id_not_registered,
        ),
        grpc.StatusCode.ALREADY_EXISTS: (ErrorCode.topic_already_exists,),
        grpc.StatusCode.PERMISSION_DENIED: (
            ErrorCode.cluster_authorization_failed,
            ErrorCode.topic_authorization_failed,
        ),
        grpc.StatusCode.UNAVAILABLE: (
            ErrorCode.not_controller,
            ErrorCode.not_leader_or_follower,
            ErrorCode.leader_not_available,
            ErrorCode.broker_not_available,
            ErrorCode.network_exception,
        ),
        grpc.StatusCode.DEADLINE_EXCEEDED: (ErrorCode.request_timed_out,),
        grpc.StatusCode.UNIMPLEMENTED: (ErrorCode.unsupported_version,),
        grpc.StatusCode.OUT_OF_RANGE: (ErrorCode.offset_out_of_range,),
        grpc.StatusCode.RESOURCE_EXHAUSTED: (ErrorCode.throttling_quota_exceeded,),
        grpc.StatusCode.INTERNAL: (ErrorCode.unknown_server_error,),
    }.items()
    for code in codes
}

# What a status says where it carries no KafkaError: it came from gRPC itself.
_WITHOUT_DETAILS: Final[dict[grpc.StatusCode, ErrorCode]] = {
    grpc.StatusCode.UNAVAILABLE: ErrorCode.network_exception,
    grpc.StatusCode.DEADLINE_EXCEEDED: ErrorCode.request_timed_out,
    grpc.StatusCode.UNIMPLEMENTED: ErrorCode.unsupported_version,
    grpc.StatusCode.INVALID_ARGUMENT: ErrorCode.invalid_request,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ErrorCode.throttling_quota_exceeded,
    grpc.StatusCode.PERMISSION_DENIED: ErrorCode.cluster_authorization_failed,
}


def status_of(code: ErrorCode) -> grpc.StatusCode:
    """The gRPC status of a call that fails with a Kafka error."""
    return _STATUS_CODES.get(code, grpc.StatusCode.FAILED_PRECONDITION)


def message_of(code: ErrorCode, text: str | None = None) -> pb.KafkaError | None:
    """An item's error as a message; None for no error."""
    if code == ErrorCode.none:
        return None
    name = code.name.upper()
    return pb.KafkaError(
        code=int(code), name=name, message=text or name.replace("_", " ").capitalize()
    )


def as_kafka_error(error: Exception) -> KafkaError:
    """Any failure of a call as the Kafka error that the caller is told."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, RequestTimedOut):
        return KafkaError(ErrorCode.request_timed_out, str(error))
    if isinstance(error, UnsupportedVersion):
        return KafkaError(ErrorCode.unsupported_version, str(error))
    if isinstance(error, NetworkError):
        return KafkaError(ErrorCode.network_exception, f"the active controller: {error}")
    return KafkaError(ErrorCode.unknown_server_error, f"{type(error).__name__}: {error}")


def trailer_of(error: KafkaError, status: grpc.StatusCode) -> tuple[tuple[str, bytes], ...]:
    """The trailing metadata of a call that fails with `error`."""
    details = pb.StatusDetails(code=status.value[0], message=error.message)
    details.details.add().Pack(
        pb.KafkaError(code=int(error.code), name=error.code.name.upper(), message=error.message)
    )
    return ((DETAILS_KEY, details.SerializeToString()),)


def from_message(message: pb.KafkaError) -> KafkaError:
    """An item's error as the exception; a code that nobody knows becomes UNKNOWN_SERVER_ERROR."""
    try:
        code = ErrorCode(message.code)
    except ValueError:
        return KafkaError(
            ErrorCode.unknown_server_error, f"{message.name or message.code}: {message.message}"
        )
    return KafkaError(code, message.message)


def says_why(error: Any) -> bool:
    """Whether the service itself says why a call failed, not gRPC in its place."""
    return any(key == DETAILS_KEY for key, _ in error.trailing_metadata() or ())


def was_sent(error: Any) -> bool:
    """Whether a failed call may have reached the service."""
    return _NOT_CONNECTED.match(error.details() or "") is None


def from_rpc_error(error: Any) -> KafkaError:
    """A failed call, as the gRPC client raises it, as the exception."""
    for key, value in error.trailing_metadata() or ():
        if key != DETAILS_KEY:
            continue
        details, found = pb.StatusDetails(), pb.KafkaError()
        try:
            details.ParseFromString(value)
            if details.details and details.details[0].Unpack(found):
                return from_message(found)
        except ProtobufDecodeError:
            break
    status = error.code()
    code = _WITHOUT_DETAILS.get(status, ErrorCode.unknown_server_error)
    # gRPC writes an address as a URL, and before it what our own sentence says.
    said = unquote(_NOT_CONNECTED.sub("", error.details() or ""))
    return KafkaError(code, said or status.name)
