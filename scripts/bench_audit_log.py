"""Writes a large, sound metadata log for benchmarks of the audit.

    .venv/bin/python scripts/bench_audit_log.py DIR [--records 5000000]

Brokers and topics first, then rounds of what a busy cluster writes: leaders and ISRs that change,
configs, fencing, and the no-op records of idle seconds. A round's batches are encoded once and
written again and again at new offsets, so that millions of records take seconds.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    Endpoint,
    Feature,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
    encode_at,
)
from wire.batch import build_batch, patch_offsets
from wire.control import encode_leader_change

BROKERS = (1, 2, 3, 4, 5, 6)
PARTITIONS_PER_TOPIC = 50
SEGMENT_BYTES = 128 << 20
START_MS = 1_700_000_000_000
LEVEL = 25  # of metadata.version: 4.0-IV3


def generate(directory: Path, records: int, partitions: int = 20_000, seed: int = 1) -> int:
    """Writes about `records` records (whole batches); returns how many they are."""
    rng = random.Random(seed)
    log = directory / "__cluster_metadata-0"
    log.mkdir(parents=True)
    (directory / "meta.properties").write_text(
        "version=1\ncluster.id=BenchClusterAAAAAAAAAA\nnode.id=1\n"
    )
    topics = [UUID(int=rng.getrandbits(128)) for _ in range(partitions // PARTITIONS_PER_TOPIC)]
    opening = list(_opening_batches(rng, topics))
    rounds = [_batch(some) for some in _round(rng, topics)]
    written = position = 0
    file = (log / f"{0:020d}.log").open("wb")
    try:
        for batch in _forever(opening, rounds):
            if written >= records:
                break
            if position > SEGMENT_BYTES:
                file.close()
                file = (log / f"{written:020d}.log").open("wb")
                position = 0
            patch_offsets(batch, 0, written, 1)
            file.write(batch)
            position += len(batch)
            written += int.from_bytes(batch[57:61], "big")
    finally:
        file.close()
    return written


def generate_opening(directory: Path, partitions: int, seed: int = 1) -> int:
    """Writes a log of brokers, topics and partitions and no more; how many records it holds."""
    rng = random.Random(seed)
    log = directory / "__cluster_metadata-0"
    log.mkdir(parents=True)
    topics = [UUID(int=rng.getrandbits(128)) for _ in range(partitions // PARTITIONS_PER_TOPIC)]
    written = 0
    with (log / f"{0:020d}.log").open("wb") as file:
        for batch in _opening_batches(rng, topics):
            patch_offsets(batch, 0, written, 1)
            file.write(batch)
            written += int.from_bytes(batch[57:61], "big")
    return written


def _opening_batches(rng: random.Random, topics: list[UUID]) -> Iterator[bytearray]:
    yield bytearray(_leader_change())
    for some in _in_batches(_opening(rng, topics), 100):
        yield _batch(some)


def _forever(opening: list[bytearray], rounds: list[bytearray]) -> Iterator[bytearray]:
    yield from opening
    while True:
        yield from rounds


def _leader_change() -> bytes:
    key, value = encode_leader_change(1, [1, 2, 3], [1, 2])
    return build_batch([(START_MS, key, value, ())], control=True)


def _batch(records: list[Record]) -> bytearray:
    values = [(START_MS, None, encode_at(record, LEVEL), ()) for record in records]
    return bytearray(build_batch(values))


def _in_batches(records: Iterator[Record], size: int) -> Iterator[list[Record]]:
    batch: list[Record] = []
    for record in records:
        batch.append(record)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _replicas(number: int) -> tuple[int, int, int]:
    first = number % len(BROKERS)
    three = [BROKERS[(first + step) % len(BROKERS)] for step in range(3)]
    return three[0], three[1], three[2]


def _directory(broker: int) -> UUID:
    return UUID(int=1000 + broker)


def _opening(rng: random.Random, topics: list[UUID]) -> Iterator[Record]:
    yield FeatureLevelRecord(name="metadata.version", feature_level=LEVEL)
    for broker in BROKERS:
        yield RegisterBrokerRecord(
            broker_id=broker,
            incarnation_id=UUID(int=rng.getrandbits(128)),
            broker_epoch=broker,
            end_points=(Endpoint(name="PLAINTEXT", host="127.0.0.1", port=9, security_protocol=0),),
            features=(
                Feature(name="metadata.version", min_supported_version=1, max_supported_version=27),
            ),
            log_dirs=(_directory(broker),),
            fenced=False,
        )
    for number, topic in enumerate(topics):
        yield TopicRecord(name=f"topic-{number:05d}", topic_id=topic)
        for partition in range(PARTITIONS_PER_TOPIC):
            replicas = _replicas(number + partition)
            yield PartitionRecord(
                partition_id=partition,
                topic_id=topic,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=tuple(_directory(broker) for broker in replicas),
            )


def _round(rng: random.Random, topics: list[UUID]) -> Iterator[list[Record]]:
    """Every partition loses a replica, moves its leader, and gets both back."""
    for number, topic in enumerate(topics):
        for step in range(3):
            changes: list[Record] = []
            for partition in range(PARTITIONS_PER_TOPIC):
                replicas = _replicas(number + partition)
                leader = (-2, replicas[1], replicas[0])[step]
                isr = (replicas[:2], replicas[1:], replicas)[step]
                changes.append(
                    PartitionChangeRecord(
                        partition_id=partition, topic_id=topic, isr=isr, leader=leader
                    )
                )
            yield changes
            for _ in range(rng.randrange(12)):
                yield [NoOpRecord()]
        broker = BROKERS[number % len(BROKERS)]
        for fenced in (1, -1):
            yield [
                BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=broker, fenced=fenced)
            ]
        yield [
            ConfigRecord(
                resource_type=2, resource_name=f"topic-{number:05d}", name="retention.ms",
                value=str(rng.randrange(10**6)),
            )
        ]  # fmt: skip


def main() -> int:
    """Writes the log that the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--records", type=int, default=5_000_000)
    args = parser.parse_args()
    if args.directory.exists() and any(args.directory.iterdir()):
        print(f"error: {args.directory} is not empty", file=sys.stderr)
        return 1
    print(generate(args.directory, args.records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
