"""What a topic's configuration means for its partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from broker.config import BrokerConfig
from metadata.configs import topic_values
from metadata.image import MetadataImage
from storage.config import LogConfig

CODEC_OF = {"uncompressed": 0, "none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
KEEP_CODEC = -1


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """`codec` is what batches must be compressed with, KEEP_CODEC for the producer's choice."""

    log: LogConfig = field(default_factory=LogConfig)
    min_isr: int = 1
    codec: int = KEEP_CODEC


def topic_settings(value_of: Callable[[str], Any]) -> TopicSettings:
    """From the effective, parsed values of Kafka's topic configs by name."""
    policies = value_of("cleanup.policy")
    if isinstance(policies, str):
        policies = [part.strip() for part in policies.split(",")]
    compression = value_of("compression.type")
    return TopicSettings(
        log=LogConfig(
            segment_bytes=value_of("segment.bytes"),
            segment_ms=value_of("segment.ms"),
            segment_index_bytes=value_of("segment.index.bytes"),
            index_interval_bytes=value_of("index.interval.bytes"),
            retention_bytes=value_of("retention.bytes"),
            retention_ms=value_of("retention.ms"),
            file_delete_delay_ms=value_of("file.delete.delay.ms"),
            max_message_bytes=value_of("max.message.bytes"),
            preallocate=value_of("preallocate"),
            cleanup_delete="delete" in policies,
            cleanup_compact="compact" in policies,
            min_cleanable_dirty_ratio=value_of("min.cleanable.dirty.ratio"),
            min_compaction_lag_ms=value_of("min.compaction.lag.ms"),
            max_compaction_lag_ms=value_of("max.compaction.lag.ms"),
            delete_retention_ms=value_of("delete.retention.ms"),
            log_append_time=value_of("message.timestamp.type") == "LogAppendTime",
            timestamp_before_max_ms=value_of("message.timestamp.before.max.ms"),
            timestamp_after_max_ms=value_of("message.timestamp.after.max.ms"),
        ),
        min_isr=value_of("min.insync.replicas"),
        codec=CODEC_OF.get(compression, KEEP_CODEC),
    )


def settings_in_image(config: BrokerConfig, image: MetadataImage, topic: str) -> TopicSettings:
    """The settings in force for a topic on this broker."""
    values = topic_values(image, config.given, topic, config.node_id)
    return topic_settings(values.__getitem__)
