"""The settings of one partition's log, by Kafka's names and with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass

DAY_MS = 86_400_000
MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Topic configuration as far as the log needs it.

    Sizes in bytes, times in milliseconds; -1 in a retention setting is "without limit".
    `contiguous` refuses gaps between batches and epochs that go back (the metadata log);
    other logs may have gaps, as compaction leaves them.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    preallocate: bool = False
    cleanup_delete: bool = True
    cleanup_compact: bool = False
    log_append_time: bool = False
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3_600_000
    producer_expiration_ms: int = DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_INT64
    delete_retention_ms: int = DAY_MS
    contiguous: bool = False

    @property
    def longest_segment_ms(self) -> int:
        """How long a segment may be appended to: what is to be compacted in time must not stay in
        the active one, which the cleaner never touches."""
        if self.cleanup_compact and self.max_compaction_lag_ms > 0:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms
