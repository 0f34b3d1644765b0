"""The settings of group coordination, by Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from broker.config import StaticValues

MINUTE_MS = 60_000


class GroupOverrides(NamedTuple):
    """What is set for one consumer group in place of the broker's; None where nothing is."""

    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    assignment_interval_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Field `a_b_c` is Kafka's property `a.b.c`; times are milliseconds unless named otherwise."""

    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = (1 << 31) - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_size: int = (1 << 31) - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_max_assignment_interval_ms: int = 15_000
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600_000

    @classmethod
    def from_static(cls, static: StaticValues) -> GroupSettings:
        """From a parsed file; a name that it does not define keeps the default here."""
        known: dict[str, Any] = {}
        for f in fields(cls):
            try:
                value = static[f.name.replace("_", ".")]
            except KeyError:
                continue
            if value is not None:
                known[f.name] = value
        return cls(**known)

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * MINUTE_MS
