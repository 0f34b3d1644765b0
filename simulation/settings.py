"""The settings of a seed's cluster: short times, small logs, so that much happens."""

from __future__ import annotations

import random

from metadata.features import ELIGIBLE_LEADER_REPLICAS
from simulation.cluster import Quorum

MIN_ISR = 2


def draws(seed: int) -> random.Random:
    """The source of what is drawn for a seed's cluster before it comes up."""
    return random.Random(f"{seed}/settings")


def properties(seed: int, brokers: int) -> dict[str, str]:
    """Properties of every node."""
    chance = draws(seed)
    return {
        "min.insync.replicas": str(MIN_ISR),
        "replica.lag.time.max.ms": chance.choice(("1500", "4000")),
        "leader.imbalance.check.interval.seconds": chance.choice(("5", "60")),
        "controller.quorum.fetch.timeout.ms": chance.choice(("1000", "2000")),
        "controller.quorum.election.timeout.ms": "1000",
        "metadata.log.max.record.bytes.between.snapshots": chance.choice(
            ("2000", "10000", "20971520")
        ),
        "metadata.log.segment.ms": chance.choice(("8000", "604800000")),
        "metadata.max.retention.bytes": chance.choice(("4000", "104857600")),
        "metadata.max.idle.interval.ms": "1000",
        "log.segment.bytes": "1048576",
        "auto.create.topics.enable": "false",
        **upkeep_properties(seed),
        **cleaner_properties(seed),
        **group_properties(seed, brokers),
    }


def upkeep_properties(seed: int) -> dict[str, str]:
    """How often a seed's brokers write down how far their logs are: in some so often that it meets
    everything else that is done to a log."""
    chance = random.Random(f"{seed}/upkeep")
    return {
        "log.flush.offset.checkpoint.interval.ms": chance.choice(("300", "60000")),
        "replica.high.watermark.checkpoint.interval.ms": chance.choice(("300", "5000")),
    }


def cleaner_properties(seed: int) -> dict[str, str]:
    """Settings of a seed's log cleaners: passes soon, in some seeds so slow that much comes in
    between."""
    chance = random.Random(f"{seed}/cleaner")
    found = {"log.cleaner.backoff.ms": chance.choice(("1000", "3000"))}
    rate = chance.choice((None, None, "20000"))
    return found if rate is None else {**found, "log.cleaner.io.max.bytes.per.second": rate}


def group_properties(seed: int, brokers: int) -> dict[str, str]:
    """Settings of a seed's group coordinators: one partition, loaded in slices in some seeds."""
    chance = random.Random(f"{seed}/groups")
    return {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": str(min(3, brokers)),
        "offsets.load.buffer.size": chance.choice(("1000", "5242880")),
        "group.min.session.timeout.ms": "1000",
        "group.initial.rebalance.delay.ms": chance.choice(("0", "500")),
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "3000",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.heartbeat.interval.ms": "700",
        "group.consumer.assignment.interval.ms": chance.choice(("0", "1000")),
    }


def pace(seed: int) -> int:
    """How many usual pauses a seed's data clients rest between calls: more faults
    a call, and more seeds an hour, in most; load in some."""
    return random.Random(f"{seed}/pace").choice((1, 3, 3, 3))


def quorum(seed: int) -> Quorum:
    """How the quorum begins where it is large enough to change: with voters that may change in two
    thirds of the seeds."""
    if draws(seed).random() >= 0.67:
        return Quorum.STATIC
    chance = random.Random(f"{seed}/quorum")
    return chance.choice((Quorum.INITIAL, Quorum.INITIAL, Quorum.ADDED, Quorum.JOINING))


def newer_protocol(seed: int) -> bool:
    """Whether the seed's group speaks the consumer protocol (KIP-848), not the classic one."""
    return random.Random(f"{seed}/protocol").random() < 0.5


def compaction(seed: int) -> dict[str, str]:
    """The configs of a seed's compacted topic: short segments, and tombstones that go soon."""
    chance = random.Random(f"{seed}/compaction")
    return {
        "cleanup.policy": "compact",
        "segment.ms": chance.choice(("2000", "5000")),
        "delete.retention.ms": chance.choice(("2000", "12000", "86400000")),
        "min.cleanable.dirty.ratio": chance.choice(("0.01", "0.3")),
        "min.compaction.lag.ms": chance.choice(("0", "0", "3000")),
    }


def levels(seed: int) -> dict[str, int]:
    """Feature levels of a seed: eligible leader replicas in most."""
    return {ELIGIBLE_LEADER_REPLICAS: int(random.Random(f"{seed}/levels").random() < 0.7)}
