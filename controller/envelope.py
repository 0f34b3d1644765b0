"""Envelope 0 (KIP-590): a client's request that a broker forwards, with who sent it.

The embedded bytes are a whole request without its size; so is the answer. Errors of the
envelope itself tell the broker, not the client: NOT_CONTROLLER makes it look for the new one.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from typing import Any

from kio.schema.default_principal_data.v0.data import DefaultPrincipalData

from controller.api import ControllerApi
from controller.apis import APIS
from controller.events import Principal
from net.handlers import Api, HandlerTable, Request
from wire.apis import ApiKey
from wire.errors import DecodeError, ErrorCode, KafkaError
from wire.messages import (
    RequestHeader,
    decode_body,
    decode_request,
    decode_request_header,
    encode_body,
    encode_response,
    fill,
    response_class,
)

_PRINCIPAL_VERSION = struct.Struct(">h")
_SIZE_BYTES = 4


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """The client's request as the broker received it."""

    header: RequestHeader
    entity: Any
    principal: Principal
    api: ControllerApi


def unwrap(envelope: Any) -> Unwrapped:
    """The request inside. Raises KafkaError with the envelope's own error code."""
    principal = _principal(envelope.request_principal, envelope.client_host_address)
    frame = memoryview(envelope.request_data)
    try:
        header, offset = decode_request_header(frame)
    except DecodeError as error:
        raise KafkaError(ErrorCode.invalid_request, f"forwarded request: {error}") from error
    api = APIS.get(header.api_key)
    if api is None or not api.forwardable:
        raise KafkaError(ErrorCode.invalid_request, f"API key {header.api_key} can't be forwarded")
    if not api.min_version <= header.api_version <= api.max_version:
        raise KafkaError(
            ErrorCode.unsupported_version,
            f"version {header.api_version} of API key {header.api_key} was forwarded, versions "
            f"{api.min_version} to {api.max_version} are served",
        )
    try:
        entity = decode_request(header, frame, offset, api.max_elements)
    except DecodeError as error:
        raise KafkaError(ErrorCode.invalid_request, f"forwarded request: {error}") from error
    return Unwrapped(header, entity, principal, api)


def for_quorum(envelope: Any, outer: Request, apis: HandlerTable) -> tuple[Api, Request] | None:
    """The request inside with its handler, if it is one that the quorum serves itself; None if it
    is another one, or makes no sense."""
    frame = memoryview(envelope.request_data)
    try:
        header, offset = decode_request_header(frame)
    except DecodeError:
        return None
    api = apis.lookup(header.api_key)
    if api is None or not api.min_version <= header.api_version <= api.max_version:
        return None
    return api, Request(
        header, frame, offset, outer.connection, outer.received_ms, api.max_elements
    )


def wrap(header: RequestHeader, entity: Any) -> Any:
    """The envelope's answer around the client's."""
    frame = encode_response(header.api_key, header.api_version, header.correlation_id, entity)
    return fill(
        response_class(ApiKey.ENVELOPE, 0),
        response_data=frame[_SIZE_BYTES:],
        error_code=ErrorCode.none,
    )


def failed(code: ErrorCode) -> Any:
    """The envelope's answer when there is none for the client."""
    return fill(response_class(ApiKey.ENVELOPE, 0), response_data=None, error_code=code)


def encode_principal(principal: Principal) -> bytes:
    """The form in which brokers pass a principal on: version, then DefaultPrincipalData."""
    entity = DefaultPrincipalData(
        type_=principal.kind, name=principal.name, token_authenticated=False
    )
    return _PRINCIPAL_VERSION.pack(0) + encode_body(entity)


def _principal(data: bytes | None, address: bytes) -> Principal:
    host = _host(address)
    if data is None:
        return Principal(host=host)
    try:
        (version,) = _PRINCIPAL_VERSION.unpack_from(data)
        if version != 0:
            raise DecodeError(f"version {version}, only 0 is known")
        entity = decode_body(DefaultPrincipalData, bytes(data[_PRINCIPAL_VERSION.size :]))
    except (DecodeError, struct.error) as error:
        raise KafkaError(
            ErrorCode.principal_deserialization_failure, f"forwarded principal: {error}"
        ) from error
    return Principal(entity.type_, entity.name, host)


def _host(address: bytes) -> str:
    try:
        return str(ipaddress.ip_address(bytes(address)))
    except ValueError as error:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"client address of {len(address)} bytes: 4 or 16 are allowed",
        ) from error
