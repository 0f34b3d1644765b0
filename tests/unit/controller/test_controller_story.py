"""The life of a cluster as its controller sees it."""

from controller_scene import Scene

from metadata.records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from wire.errors import ErrorCode


def test_an_empty_log_begins_with_the_bootstrap_records_in_a_transaction() -> None:
    scene = Scene().lead()
    assert [type(r) for r in scene.records()] == [
        BeginTransactionRecord,
        FeatureLevelRecord,
        EndTransactionRecord,
    ]
    assert scene.core.image.metadata_version == 25


def test_a_broker_dies_and_others_lead() -> None:
    scene = Scene().lead().start_brokers(1, 2, 3)
    created = scene.create_topic("orders", assignments={0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
    assert created.error_code is ErrorCode.none
    assert [scene.partition("orders", i).leader for i in range(3)] == [1, 2, 3]

    scene.pass_ms(12_000, alive=(2, 3))

    assert scene.core.image.broker(1).fenced
    first = scene.partition("orders", 0)
    assert (first.leader, first.leader_epoch, first.isr) == (2, 1, (2, 3))
    second = scene.partition("orders", 1)
    assert (second.leader, second.leader_epoch, second.isr) == (2, 0, (2, 3))
