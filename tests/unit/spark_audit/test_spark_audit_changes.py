"""Partition changes applied a run at a time leave what they leave one by one."""

import random
from pathlib import Path
from uuid import UUID

import pytest
from audit_logs import LogWriter

from metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from spark_audit import changes, replay
from spark_audit.files import open_directory
from spark_audit.session import in_process
from spark_audit.verify import DirectoryAudit, audit_directory, directory_json

TOPICS = [UUID(int=2**100 + n) for n in range(3)]


def opening(rng: random.Random, oddly: bool) -> list[Record]:
    made: list[Record] = []
    for number, topic in enumerate(TOPICS):
        made.append(TopicRecord(name=f"t{number}", topic_id=topic))
        for partition in range(2):
            replicas = tuple(rng.sample((1, 2, 3, 4), rng.randrange(2, 4)))
            directories = (UUID(int=1000),) * (len(replicas) - oddly * rng.randrange(2))
            made.append(
                PartitionRecord(
                    partition_id=partition, topic_id=topic, replicas=replicas, isr=replicas,
                    leader=replicas[0], leader_epoch=3, partition_epoch=5,
                    directories=directories if rng.random() < 0.5 else (),
                )
            )  # fmt: skip
    return made


def change(
    rng: random.Random, replicas: dict[tuple[UUID, int], tuple[int, ...]], odd: float
) -> Record:
    """A change of leader, ISR or both, mostly one that a controller would write."""
    topic, partition = rng.choice(list(replicas))
    members = replicas[topic, partition]
    isr = tuple(rng.sample(members, rng.randrange(1, len(members) + 1)))
    leader = rng.choice(isr)
    if rng.random() < odd:
        leader, isr = rng.choice((-1, 9, members[0])), rng.choice(((), (7,), members, (1, 2, 3, 4)))
        partition = rng.choice((partition, 5))
    both = PartitionChangeRecord(partition_id=partition, topic_id=topic, isr=isr, leader=leader)
    if rng.random() < odd * 3:
        return PartitionChangeRecord(
            partition_id=partition, topic_id=topic, isr=rng.choice((None, isr)),
            leader=rng.choice((-2, leader)), leader_recovery_state=rng.choice((-1, 1)),
        )  # fmt: skip
    return both


def assigned(records: list[Record]) -> dict[tuple[UUID, int], tuple[int, ...]]:
    return {
        (one.topic_id, one.partition_id): one.replicas
        for one in records
        if isinstance(one, PartitionRecord)
    }


def write(parent: Path, seed: int, odd: float) -> None:
    rng = random.Random(seed)
    log = LogWriter(parent)
    begun = opening(rng, odd > 0)
    log.batch(*begun)
    replicas = assigned(begun)
    for _ in range(60):
        records = [change(rng, replicas, odd) for _ in range(rng.randrange(1, 12))]
        others: list[Record] = [
            NoOpRecord(),
            ConfigRecord(resource_type=2, resource_name="t1", name="a", value=str(rng.random())),
            BrokerRegistrationChangeRecord(broker_id=8, broker_epoch=1, fenced=1),
        ]
        records.insert(rng.randrange(len(records) + 1), rng.choice(others))
        if rng.random() < 0.05:
            again = opening(rng, odd > 0)[:3]
            records += [RemoveTopicRecord(topic_id=TOPICS[0]), *again]
            replicas |= assigned(again)
        log.batch(*records)


def audit(parent: Path, monkeypatch: pytest.MonkeyPatch, fewest: int) -> DirectoryAudit:
    for module in (changes, replay):
        monkeypatch.setattr(module, "FEWEST", fewest)
    return audit_directory(open_directory(str(parent)), in_process)


@pytest.mark.parametrize("odd", [0.0, 0.002, 0.1])
@pytest.mark.parametrize("seed", range(8))
def test_runs_leave_what_single_changes_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, odd: float
) -> None:
    write(tmp_path, seed, odd)
    applied = []
    original = changes.apply_changes

    def spy(*arguments: object) -> object:
        applied.append(original(*arguments))  # type: ignore[arg-type]
        return applied[-1]

    monkeypatch.setattr(replay, "apply_changes", spy)
    one_by_one = audit(tmp_path, monkeypatch, 10**9)
    assert not applied
    in_runs = audit(tmp_path, monkeypatch, 1)
    assert in_runs.state == one_by_one.state
    assert directory_json(in_runs) == directory_json(one_by_one)
    assert in_runs.outcome.image.topics == one_by_one.outcome.image.topics
    assert in_runs.outcome.last_offset == one_by_one.outcome.last_offset
    if not odd:
        assert applied
        assert None not in applied
    elif odd == 0.1:
        assert None in applied
