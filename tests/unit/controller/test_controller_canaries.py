"""Broken on purpose: the checks that the other tests lean on must notice."""

import pytest
from controller_scene import Scene

from controller import api_broker_registration, core, fencing, partition_changes
from controller.context import Context
from metadata.records import PartitionChangeRecord
from wire.apis import ApiKey


def cluster() -> Scene:
    scene = Scene().lead().start_brokers(1, 2, 3)
    scene.create_topic("t", assignments={0: (1, 2, 3)})
    return scene


def test_fencing_that_forgets_the_partitions(monkeypatch):
    scene = cluster()
    monkeypatch.setattr(fencing, "leave_partitions", lambda context, broker_id: iter(()))
    with pytest.raises(AssertionError, match="leader 1 is fenced"):
        scene.pass_ms(12_000, alive=(2, 3))


def test_a_leader_from_outside_the_isr(monkeypatch):
    scene = cluster()

    def outside(topic_id, index, partition, *_):
        return PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=3, isr=(2,))

    monkeypatch.setattr(partition_changes, "change_partition", outside)
    with pytest.raises(AssertionError, match="leader 3 not in ISR"):
        scene.pass_ms(12_000, alive=(2, 3))


def test_the_last_in_sync_replica_removed(monkeypatch):
    scene = cluster()

    def emptied(topic_id, index, partition, *_):
        return PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=-1, isr=())

    monkeypatch.setattr(partition_changes, "change_partition", emptied)
    with pytest.raises(AssertionError, match="nobody is in sync"):
        scene.pass_ms(12_000, alive=(2, 3))


def test_a_broker_epoch_that_goes_back(monkeypatch):
    scene = cluster()
    scene.pass_ms(12_000, alive=(2, 3))
    real = api_broker_registration.API.handle

    def old_epoch(context: Context, request):
        context.next_offset, kept = 1, context.next_offset
        try:
            return real(context, request)
        finally:
            context.next_offset = kept

    apis = dict(core.APIS)
    key = ApiKey.BROKER_REGISTRATION
    apis[key] = type(apis[key])(key, 0, 4, old_epoch, apis[key].refuse)
    scene.core._apis = apis
    with pytest.raises(AssertionError, match="broker epoch went back"):
        scene.register(1)


def test_an_answer_before_its_commit(monkeypatch):
    scene = cluster()

    def at_once(self, request, reply, admin):
        self._waiting.appendleft(core._Waiting(0, request, reply, 0, False))

    monkeypatch.setattr(core.Controller, "_answer_when_committed", at_once)
    with pytest.raises(AssertionError, match="held back"):
        scene.create_topic("u")


def test_a_standby_that_reads_other_bytes(monkeypatch):
    scene = cluster()
    real = core.encode_record

    def garbled(record, level):
        if isinstance(record, PartitionChangeRecord):
            record = PartitionChangeRecord(partition_id=0, topic_id=record.topic_id, isr=(2,))
        return real(record, level)

    monkeypatch.setattr(core, "encode_record", garbled)
    with pytest.raises(AssertionError, match="topics"):
        scene.pass_ms(12_000, alive=(2, 3))
