"""The settings of the controller core, in Kafka's terms, with Kafka's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """`static` is the node's own properties file: the level between dynamic configs and defaults
    when a topic's effective config is asked for. Zero turns a periodic task off."""

    node_id: int
    cluster_id: str
    # Of a static quorum: the controllers that must have registered before a feature changes.
    static_voters: tuple[int, ...] = ()
    session_timeout_ms: int = 9_000
    max_idle_interval_ms: int = 500
    auto_leader_rebalance: bool = True
    leader_imbalance_check_interval_ms: int = 300_000
    unclean_election_check_interval_ms: int = 300_000
    num_partitions: int = 1
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    static: Mapping[str, str] = field(default_factory=dict)
    request_timeout_ms: int = 30_000
    # Admin requests that wait for their commit; more are told to come back. Brokers' own
    # requests (heartbeats, registrations, ISR changes) are never refused for this reason.
    max_pending_admin: int = 1_000
    max_records_per_batch: int = 10_000
    # Below the 8 MiB that a batch of the metadata log may have, headers and all.
    max_batch_bytes: int = 7 << 20
    max_elections_per_round: int = 1_000
