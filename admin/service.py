"""The Admin service: every method of pykraft.admin.v1, and how its failures are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar

import grpc
import structlog

from admin import changes, reads, voters
from admin.configs import describe_configs
from admin.errors import as_kafka_error, status_of, trailer_of
from admin.ports import AdminPorts
from admin.stubs import admin_pb2_grpc
from admin.watch import WatcherStalled, watch
from metadata.image import MetadataImage
from net.errors import NetworkError
from wire.errors import ErrorCode, KafkaError

DEFAULT_TIMEOUT_MS = 30_000
WATCH_STALL_MS = 30_000
_ANSWER_WAY_MS = 250

_Service = TypeVar("_Service", bound="AdminService")
_Method = Callable[[_Service, Any, Any], Awaitable[Any]]


def _answered(method: _Method[_Service]) -> _Method[_Service]:
    """Turns what a method raises into a gRPC status with a KafkaError in its details."""

    @wraps(method)
    async def call(self: _Service, request: Any, context: Any) -> Any:
        try:
            return await method(self, request, context)
        except (KafkaError, NetworkError) as error:
            failure = as_kafka_error(error)
            status = status_of(failure.code)
        except WatcherStalled as error:
            failure = KafkaError(ErrorCode.throttling_quota_exceeded, str(error))
            status = grpc.StatusCode.RESOURCE_EXHAUSTED
        except Exception as error:
            self.log.error("admin_call_failed", method=method.__name__, exc_info=error)
            failure = as_kafka_error(error)
            status = grpc.StatusCode.INTERNAL
        return await context.abort(status, failure.message, trailer_of(failure, status))

    return call


def _not_there(name: str) -> Any:
    """A method of the service that this version doesn't have yet."""

    async def call(self: Any, request: Any, context: Any) -> Any:
        error = KafkaError(
            ErrorCode.unsupported_version, f"{name} is not supported by this version of pykraft"
        )
        status = grpc.StatusCode.UNIMPLEMENTED
        return await context.abort(status, error.message, trailer_of(error, status))

    call.__name__ = name
    return call


class AdminService(admin_pb2_grpc.AdminServicer):
    """Serves one controller's door; `context` is gRPC's, of which `abort`, `time_remaining`,
    `send_initial_metadata` and `write` are used."""

    def __init__(
        self, ports: AdminPorts, *, watch_stall_ms: int = WATCH_STALL_MS, log: Any = None
    ) -> None:
        self.log = structlog.get_logger() if log is None else log
        self._ports = ports
        self._watch_stall_ms = watch_stall_ms

    @_answered
    async def CreateTopics(self, request: Any, context: Any) -> Any:
        timeout_ms = _timeout_ms(request, context)
        return await changes.create_topics(self._ports.controller_call, request, timeout_ms)

    @_answered
    async def DeleteTopics(self, request: Any, context: Any) -> Any:
        timeout_ms = _timeout_ms(request, context)
        return await changes.delete_topics(self._ports.controller_call, request, timeout_ms)

    @_answered
    async def CreatePartitions(self, request: Any, context: Any) -> Any:
        timeout_ms = _timeout_ms(request, context)
        return await changes.create_partitions(self._ports.controller_call, request, timeout_ms)

    @_answered
    async def AlterConfigs(self, request: Any, context: Any) -> Any:
        timeout_ms = _timeout_ms(request, context)
        return await changes.alter_configs(self._ports.controller_call, request, timeout_ms)

    @_answered
    async def ElectLeaders(self, request: Any, context: Any) -> Any:
        timeout_ms = _timeout_ms(request, context)
        return await changes.elect_leaders(self._ports.controller_call, request, timeout_ms)

    @_answered
    async def UpdateFeatures(self, request: Any, context: Any) -> Any:
        timeout_ms = _timeout_ms(request, context)
        return await changes.update_features(self._ports.controller_call, request, timeout_ms)

    @_answered
    async def UnregisterBroker(self, request: Any, context: Any) -> Any:
        timeout_ms = _timeout_ms(request, context)
        return await changes.unregister_broker(self._ports.controller_call, request, timeout_ms)

    @_answered
    async def ListTopics(self, request: Any, context: Any) -> Any:
        return reads.list_topics(await self._image(request, context))

    @_answered
    async def DescribeTopics(self, request: Any, context: Any) -> Any:
        return reads.describe_topics(await self._image(request, context), request)

    @_answered
    async def DescribeConfigs(self, request: Any, context: Any) -> Any:
        image = await self._image(request, context)
        return describe_configs(image, request, self._ports.node_config)

    @_answered
    async def DescribeCluster(self, request: Any, context: Any) -> Any:
        image = await self._image(request, context)
        ports = self._ports
        return reads.describe_cluster(image, ports.cluster_id, ports.active_controller())

    @_answered
    async def DescribeFeatures(self, request: Any, context: Any) -> Any:
        return reads.describe_features(await self._image(request, context), self._ports.features())

    @_answered
    async def DescribeQuorum(self, request: Any, context: Any) -> Any:
        timeout_ms = _timeout_ms(request, context)
        return await reads.describe_quorum(self._ports.controller_call, timeout_ms)

    @_answered
    async def Watch(self, request: Any, context: Any) -> Any:
        await watch(self._ports, request, context, self._watch_stall_ms)

    @_answered
    async def AddVoter(self, request: Any, context: Any) -> Any:
        timeout_ms = _timeout_ms(request, context)
        return await voters.add_voter(self._ports.controller_call, request, timeout_ms)

    @_answered
    async def RemoveVoter(self, request: Any, context: Any) -> Any:
        timeout_ms = _timeout_ms(request, context)
        return await voters.remove_voter(self._ports.controller_call, request, timeout_ms)

    AlterPartitionReassignments = _not_there("AlterPartitionReassignments")
    ListPartitionReassignments = _not_there("ListPartitionReassignments")
    DescribeClientQuotas = _not_there("DescribeClientQuotas")
    AlterClientQuotas = _not_there("AlterClientQuotas")

    async def _image(self, request: Any, context: Any) -> MetadataImage:
        """The committed image, as of now or later where the request is linearizable."""
        if request.linearizable:
            left_s = context.time_remaining()
            # Ends a little before the caller's deadline, so that the reason still gets there.
            wait_s = DEFAULT_TIMEOUT_MS / 1000 if left_s is None else max(left_s - 0.3, 0.05)
            try:
                async with asyncio.timeout(wait_s):
                    await self._ports.confirm_read()
            except TimeoutError:
                raise KafkaError(
                    ErrorCode.request_timed_out,
                    f"no majority of the quorum confirmed the read within {wait_s:.1f} s",
                ) from None
        return self._ports.image()


def _timeout_ms(request: Any, context: Any) -> int:
    """The time that a call has: its own field, or until a little before the call's deadline where
    that is sooner, so that the reason still gets there."""
    timeout_ms: int = request.timeout_ms
    if timeout_ms < 0:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"timeout_ms {timeout_ms}: at least 1, or 0 for {DEFAULT_TIMEOUT_MS}",
        )
    timeout_ms = timeout_ms or DEFAULT_TIMEOUT_MS
    left_s = context.time_remaining()
    if left_s is None:
        return timeout_ms
    left_ms = int(left_s * 1000)
    return max(1, min(timeout_ms, left_ms - min(left_ms // 10, _ANSWER_WAY_MS)))
