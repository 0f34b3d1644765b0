"""The settings a broker acts on, by Kafka's names."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class StaticValues(Protocol):
    """A node's parsed property file: `metadata.configs.StaticConfig`.

    `given` has the file's texts, `[name]` the parsed value in force by file and defaults.
    """

    given: dict[str, str]

    def __getitem__(self, name: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Field `a_b_c` is Kafka's property `a.b.c`; times are milliseconds, sizes bytes.

    `given` has the texts of the node's file, from which topics take their defaults.
    """

    node_id: int
    broker_rack: str | None = None
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 1 << 20
    replica_fetch_response_max_bytes: int = 10 << 20
    replica_fetch_backoff_ms: int = 1_000
    replica_socket_timeout_ms: int = 30_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    broker_heartbeat_interval_ms: int = 2_000
    broker_session_timeout_ms: int = 9_000
    initial_broker_registration_timeout_ms: int = 60_000
    request_timeout_ms: int = 30_000
    fetch_max_bytes: int = 55 << 20
    max_incremental_fetch_session_cache_slots: int = 1_000
    replica_selector_class: str | None = None
    auto_create_topics_enable: bool = True
    num_partitions: int = 1
    default_replication_factor: int = 1
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_retention_check_interval_ms: int = 300_000
    log_cleaner_enable: bool = True
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 128 << 20
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_io_max_bytes_per_second: float = sys.float_info.max
    log_dir_failure_timeout_ms: int = 30_000
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 100 << 20
    offsets_topic_compression_codec: int = 0
    offsets_load_buffer_size: int = 5 << 20
    offsets_commit_timeout_ms: int = 5_000
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_min_isr: int = 2
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def rack_aware_reads(self) -> bool:
        """Whether consumers are sent to the closest replica (KIP-392)."""
        return self.replica_selector_class == RACK_AWARE

    @classmethod
    def from_static(cls, static: StaticValues) -> BrokerConfig:
        """From a parsed file; a name that it does not define keeps the default here."""
        known: dict[str, Any] = {}
        for f in fields(cls):
            if f.name == "given":
                continue
            try:
                value = static[f.name.replace("_", ".")]
            except KeyError:
                continue
            if value is not None:
                known[f.name] = value
        return cls(**known, given=dict(static.given))
