"""The configurations of a node that concern groups and their offsets, with Kafka 4.4's defaults."""

from __future__ import annotations

from typing import Final

from metadata.configs.definition import (
    INT_MAX,
    SEGMENT_BYTES_MIN,
    ConfigType,
    Row,
    at_least,
    between,
    items_of,
    one_of,
)

T = ConfigType

OFFSETS_ROWS: Final[tuple[Row, ...]] = (
    (
        "offsets.topic.num.partitions",
        T.INT,
        50,
        at_least(1),
        "Partitions of the topic of consumer offsets.",
    ),
    (
        "offsets.topic.replication.factor",
        T.SHORT,
        3,
        at_least(1),
        "Replicas of the topic of consumer offsets.",
    ),
    (
        "offsets.topic.segment.bytes",
        T.INT,
        104_857_600,
        at_least(SEGMENT_BYTES_MIN),
        "Segment size of the topic of consumer offsets.",
    ),
    (
        "offsets.topic.compression.codec",
        T.INT,
        0,
        between(0, 4),
        "Codec of what the coordinator writes: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    ),
    (
        "offsets.load.buffer.size",
        T.INT,
        5_242_880,
        at_least(1),
        "Most bytes read at a time from the topic of consumer offsets when groups are loaded.",
    ),
    (
        "offsets.commit.timeout.ms",
        T.INT,
        5000,
        at_least(1),
        "Longest time until all in-sync replicas have what a group's request changed.",
    ),
    (
        "offset.metadata.max.bytes",
        T.INT,
        4096,
        at_least(0),
        "Longest metadata that may be committed with an offset.",
    ),
    (
        "offsets.retention.minutes",
        T.INT,
        10_080,
        at_least(1),
        "Time for which the offsets of a group without members are kept.",
    ),
    (
        "offsets.retention.check.interval.ms",
        T.LONG,
        600_000,
        at_least(1),
        "Time between two looks for offsets that are too old.",
    ),
)

GROUP_ROWS: Final[tuple[Row, ...]] = (
    (
        "group.initial.rebalance.delay.ms",
        T.INT,
        3000,
        at_least(0),
        "Time for which the first rebalance of an empty group waits for more members.",
    ),
    (
        "group.min.session.timeout.ms",
        T.INT,
        6000,
        None,
        "Shortest session timeout that a member of a classic group may ask for.",
    ),
    (
        "group.max.session.timeout.ms",
        T.INT,
        1_800_000,
        None,
        "Longest session timeout that a member of a classic group may ask for.",
    ),
    ("group.max.size", T.INT, INT_MAX, at_least(1), "Most members of a classic group."),
    (
        "group.consumer.session.timeout.ms",
        T.INT,
        45_000,
        at_least(1),
        "Time without heartbeats after which a consumer group's member is out.",
    ),
    (
        "group.consumer.min.session.timeout.ms",
        T.INT,
        45_000,
        at_least(1),
        "Shortest session timeout of consumer groups.",
    ),
    (
        "group.consumer.max.session.timeout.ms",
        T.INT,
        60_000,
        at_least(1),
        "Longest session timeout of consumer groups.",
    ),
    (
        "group.consumer.heartbeat.interval.ms",
        T.INT,
        5000,
        at_least(1),
        (
            "Time between the heartbeats of a consumer group's member; a second at most "
            "while its partitions are about to move."
        ),
    ),
    (
        "group.consumer.min.heartbeat.interval.ms",
        T.INT,
        5000,
        at_least(1),
        "Shortest time between heartbeats of consumer groups.",
    ),
    (
        "group.consumer.max.heartbeat.interval.ms",
        T.INT,
        15_000,
        at_least(1),
        "Longest time between heartbeats of consumer groups.",
    ),
    ("group.consumer.max.size", T.INT, INT_MAX, at_least(1), "Most members of a consumer group."),
    (
        "group.consumer.assignors",
        T.LIST,
        ("uniform", "range"),
        items_of("uniform", "range"),
        "Assignors of consumer groups; the first is taken where members name none.",
    ),
    (
        "group.consumer.assignment.interval.ms",
        T.INT,
        1000,
        at_least(0),
        "Shortest time between two target assignments of a consumer group (KIP-1263).",
    ),
    (
        "group.consumer.min.assignment.interval.ms",
        T.INT,
        0,
        at_least(0),
        "Least that the assignment interval of a group may be set to.",
    ),
    (
        "group.consumer.max.assignment.interval.ms",
        T.INT,
        15_000,
        at_least(0),
        "Most that the assignment interval of a group may be set to.",
    ),
    (
        "group.consumer.regex.refresh.interval.ms",
        T.INT,
        600_000,
        at_least(10_000),
        "Time after which regular expressions of consumer groups are resolved again in any case.",
    ),
    (
        "group.consumer.migration.policy",
        T.STRING,
        "bidirectional",
        one_of("disabled", "upgrade", "downgrade", "bidirectional"),
        "Which groups may change between the classic and the consumer protocol with members in.",
    ),
)
