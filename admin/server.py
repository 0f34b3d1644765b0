"""The gRPC server around the Admin service, with health and reflection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from admin.service import AdminService
from admin.stubs import admin_pb2, admin_pb2_grpc

SERVICE_NAME: str = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name

_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_OPTIONS = (
    # Two nodes on one port would share its calls instead of failing at start.
    ("grpc.so_reuseport", 0),
    # Clients may ask this often whether we are still there.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5000),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", 4 * 1024 * 1024),
)


@dataclass(frozen=True, slots=True)
class AdminServer:
    """A listening server; `port` is the bound port."""

    port: int
    _server: Any
    _health: Any

    async def set_serving(self, serving: bool) -> None:
        """What the health service says from now on."""
        status = health_pb2.HealthCheckResponse
        value = status.SERVING if serving else status.NOT_SERVING
        for name in ("", SERVICE_NAME):
            await self._health.set(name, value)

    async def close(self, grace_ms: int = 500) -> None:
        """Refuses new calls, gives those at work `grace_ms`, ends the rest and all watches."""
        await self._server.stop(grace_ms / 1000)


async def serve_admin(service: AdminService, host: str, port: int) -> AdminServer:
    """Listens, without TLS, on `host`:`port` (0: any free port) and serves until closed.

    Raises OSError where the address can't be had. Health says NOT_SERVING until told otherwise.
    """
    server = grpc.aio.server(options=_OPTIONS)
    admin_pb2_grpc.add_AdminServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    names = (SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"the admin listener can't have {address}: {error}") from error
    if bound == 0:
        raise OSError(f"the admin listener can't have {address}")
    await server.start()
    opened = AdminServer(bound, server, checks)
    await opened.set_serving(False)
    return opened
