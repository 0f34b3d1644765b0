"""What is not Kafka's protocol: the gRPC door of controllers, and metrics, health, readiness.

Both stay outside `Node`: they only translate and show, and gRPC has an engine of its own that no
simulation can drive.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from broker.group_partition import GroupCounters, GroupPartition
from pykraft.http import Answer, serve_http
from pykraft.metrics import CONTENT_TYPE, NodeMetrics
from pykraft.node import Node
from pykraft.node_config import Address
from pykraft.watch import MetadataWatch

if TYPE_CHECKING:
    from admin.server import AdminServer


_LOOK_EVERY_S = 1.0
# The door of a controller that is cut off says so, and its client goes to another's: longer than
# most elections, and little of the time that a caller has.
_REACH_MS = 3_000


@asynccontextmanager
async def open_doors(node: Node) -> AsyncIterator[dict[str, Address]]:
    """Serves the doors of a started node until the block ends. OSError where a port is taken.

    Gives where they are bound: `metrics`, and a controller's `admin`.
    """
    metrics = node_metrics(node)
    place = node.config.metrics
    http = await serve_http(
        place.host,
        place.port,
        {
            "/metrics": lambda: Answer(200, CONTENT_TYPE, metrics.exposition()),
            "/healthz": lambda: _healthz(node),
            "/readyz": lambda: _readyz(node),
        },
    )
    bound = {"metrics": Address(place.host, http.sockets[0].getsockname()[1])}
    try:
        if node.config.admin is None:
            yield bound
        else:
            async with _admin_door(node) as admin:
                yield {"admin": admin, **bound}
    finally:
        http.close()


@asynccontextmanager
async def _admin_door(node: Node) -> AsyncIterator[Address]:
    # Only controllers pay for importing gRPC.
    from admin.ports import AdminPorts
    from admin.server import serve_admin
    from admin.service import AdminService

    raft = node.raft
    place = node.config.admin
    assert raft is not None
    assert place is not None
    watch = MetadataWatch(raft, node.publisher)
    ports = AdminPorts(
        cluster_id=node.cluster_id,
        image=lambda: node.image,
        controller_call=partial(node.active_controller.request, reach_ms=_REACH_MS),
        confirm_read=node.confirm_read,
        features=node.features,
        active_controller=lambda: raft.leader().leader_id,
        watch=watch,
        node_config=node.config.static.given,
    )
    server = await serve_admin(AdminService(ports), place.host, place.port)
    follower = asyncio.get_running_loop().create_task(
        _follow_readiness(node, server), name="health"
    )
    try:
        yield Address(place.host, server.port)
    finally:
        follower.cancel()
        await asyncio.wait([follower])
        await server.close()


async def _follow_readiness(node: Node, server: AdminServer) -> None:
    """Tells the gRPC health service whenever readiness changes."""
    said: bool | None = None
    while True:
        moved = node.state_moved
        if node.ready != said:
            said = node.ready
            await server.set_serving(said)
        # A leader that no longer answers moves nothing: hence the look once in a while.
        try:
            async with asyncio.timeout(_LOOK_EVERY_S):
                await moved.wait()
        except TimeoutError:
            continue


def _healthz(node: Node) -> Answer:
    body = {"healthy": node.failure is None}
    if node.failure is not None:
        body["reason"] = node.failure.reason  # type: ignore[assignment]
    return _json(200 if node.failure is None else 503, body)


def _readyz(node: Node) -> Answer:
    reason = node.why_not_ready()
    raft = node.raft
    body = {
        "node_id": node.config.node_id,
        "state": node.state(),
        "reason": reason,
        "active_controller": node.controller is not None and node.controller.active,
        "leader_id": None if raft is None else raft.leader().leader_id,
        "epoch": None if raft is None else raft.leader().epoch,
        "metadata_offset": node.image.last_offset,
    }
    return _json(200 if reason is None else 503, body)


def _json(status: int, body: object) -> Answer:
    return Answer(status, "application/json", json.dumps(body).encode() + b"\n")


def node_metrics(node: Node) -> NodeMetrics:
    """The readings of a node, by the names in docs/operations.md."""
    metrics = NodeMetrics()
    raft, controller, broker = node.raft, node.controller, node.broker
    assert raft is not None
    metrics.gauge("pykraft_raft_epoch", "Epoch of the quorum.", lambda: raft.leader().epoch)
    metrics.gauge(
        "pykraft_raft_high_watermark",
        "All metadata offsets below are committed, as far as this node knows.",
        lambda: raft.high_watermark,
    )
    metrics.gauge(
        "pykraft_raft_end_offset", "End of this node's metadata log.", lambda: raft.end_offset
    )
    metrics.gauge(
        "pykraft_metadata_offset",
        "Last metadata offset applied to the image.",
        lambda: node.image.last_offset,
    )
    metrics.gauge(
        "pykraft_active_controller",
        "1 where this node is the active controller.",
        lambda: int(controller is not None and controller.active),
    )
    metrics.gauge(
        "pykraft_fenced_brokers",
        "Registered brokers that are fenced.",
        lambda: sum(broker.fenced for broker in node.image.brokers.values()),
    )
    metrics.gauge(
        "pykraft_offline_partitions",
        "Partitions of the cluster without a leader.",
        lambda: sum(len(held) for held in node.image.topics.leaderless.values()),
    )
    metrics.gauge(
        "pykraft_under_min_isr_partitions",
        "Partitions led here with fewer in sync than min.insync.replicas.",
        lambda: 0 if broker is None else broker.replicas.under_min_isr,
    )
    metrics.gauge(
        "pykraft_failed_replicas",
        "Replicas here whose disk failed.",
        lambda: 0 if broker is None else broker.offline,
    )
    metrics.gauge(
        "pykraft_uncleanable_partitions",
        "Compacted replicas here that can't be cleaned, since something in their log is damaged.",
        lambda: 0 if broker is None else broker.uncleanable,
    )
    metrics.gauge(
        "pykraft_under_replicated_partitions",
        "Partitions led here whose ISR is smaller than their replica list.",
        lambda: 0 if broker is None else broker.under_replicated,
    )
    metrics.counter(
        "pykraft_bytes_in_total",
        "Bytes of record batches that clients produced here.",
        lambda: 0 if broker is None else broker.bytes_in,
    )
    metrics.counter(
        "pykraft_bytes_out_total",
        "Bytes of record batches fetched from here.",
        lambda: 0 if broker is None else broker.bytes_out,
    )
    _fetch_readings(node, metrics)
    _group_readings(node, metrics)
    _connection_readings(node, metrics)
    return metrics


def _fetch_readings(node: Node, metrics: NodeMetrics) -> None:
    sessions = None if node.broker is None else node.broker.context.fetch_sessions
    metrics.gauge(
        "pykraft_fetch_sessions",
        "Incremental fetch sessions remembered here.",
        lambda: 0 if sessions is None else len(sessions),
    )
    metrics.gauge(
        "pykraft_fetch_session_partitions",
        "Partitions in all of these sessions.",
        lambda: 0 if sessions is None else sessions.partitions,
    )
    metrics.counter(
        "pykraft_fetch_session_evictions_total",
        "Sessions that had to make room for others.",
        lambda: 0 if sessions is None else sessions.evictions,
    )


def _group_readings(node: Node, metrics: NodeMetrics) -> None:
    broker = node.broker
    counters = GroupCounters() if broker is None else broker.groups.counters

    def partitions() -> list[GroupPartition]:
        return [] if broker is None else broker.groups.partitions

    metrics.gauge(
        "pykraft_group_partitions",
        "Partitions of __consumer_offsets whose groups are coordinated here.",
        lambda: len(partitions()),
    )
    metrics.gauge(
        "pykraft_group_partitions_loading",
        "Those of them whose groups can't be served yet.",
        lambda: sum(not partition.loaded for partition in partitions()),
    )
    metrics.counter(
        "pykraft_group_load_failures_total",
        "Times that groups could not be loaded; that is tried again.",
        lambda: counters.load_failures,
    )
    metrics.counter(
        "pykraft_group_appends_total",
        "Batches that group coordinators have written here.",
        lambda: counters.appends,
    )
    metrics.counter(
        "pykraft_group_append_failures_total",
        "Batches that they could not write.",
        lambda: counters.append_failures,
    )
    metrics.counter(
        "pykraft_group_crashes_total",
        "Group coordinators that failed by a fault of ours, and were loaded anew.",
        lambda: counters.crashes,
    )


def _connection_readings(node: Node, metrics: NodeMetrics) -> None:
    def total(name: str) -> int:
        return sum(getattr(server.counters, name) for server in node.servers.values())

    metrics.gauge(
        "pykraft_connections", "Open connections on Kafka listeners.", lambda: total("connections")
    )
    metrics.counter(
        "pykraft_malformed_requests_total",
        "Connections closed because of bytes that are no request.",
        lambda: total("malformed"),
    )
    metrics.counter(
        "pykraft_handler_errors_total",
        "Requests that failed by a fault of ours.",
        lambda: total("handler_errors"),
    )
