"""Each finding that replay can make, and none on sound histories."""

from uuid import UUID

import pytest
from metadata_samples import History

from metadata.image import EMPTY
from metadata.records import decode
from metadata.records import types as t
from metadata.soundness import check, check_transaction

TOPIC = UUID(int=500)
PARTITION = t.PartitionRecord(
    partition_id=0,
    topic_id=TOPIC,
    replicas=(1, 2),
    isr=(1, 2),
    leader=1,
    leader_epoch=5,
    partition_epoch=7,
)
IMAGE = EMPTY
for _record in (
    t.RegisterBrokerRecord(broker_id=1, broker_epoch=10),
    t.TopicRecord(name="t", topic_id=TOPIC),
    PARTITION,
    t.ProducerIdsRecord(broker_id=1, next_producer_id=2000),
):
    IMAGE = IMAGE.apply(_record)


def partition(**values):
    known = {"partition_id": 0, "topic_id": TOPIC, "replicas": (1, 2), "isr": (1,), "leader": 1}
    known |= {"leader_epoch": 5, "partition_epoch": 7}
    return t.PartitionRecord(**(known | values))


def change(**values):
    return t.PartitionChangeRecord(**({"partition_id": 0, "topic_id": TOPIC} | values))


@pytest.mark.parametrize(
    "record, code",
    [
        (t.FenceBrokerRecord(id=9, epoch=1), "unknown-broker"),
        (t.UnregisterBrokerRecord(broker_id=9, broker_epoch=1), "unknown-broker"),
        (
            t.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9),
            "broker-epoch-mismatch",
        ),
        (t.RegisterBrokerRecord(broker_id=1, broker_epoch=9), "broker-epoch-regression"),
        (t.TopicRecord(name="t", topic_id=UUID(int=1)), "duplicate-topic"),
        (t.TopicRecord(name="u", topic_id=TOPIC), "duplicate-topic"),
        (partition(topic_id=UUID(int=9)), "unknown-topic"),
        (t.RemoveTopicRecord(topic_id=UUID(int=9)), "unknown-topic"),
        (t.ClearElrRecord(topic_name="x"), "unknown-topic"),
        (change(topic_id=UUID(int=9)), "unknown-partition"),
        (change(partition_id=9), "unknown-partition"),
        (partition(leader_epoch=4), "leader-epoch-regression"),
        (partition(partition_epoch=6), "partition-epoch-regression"),
        (partition(isr=(1, 3)), "isr-outside-replicas"),
        (change(isr=(1, 3)), "isr-outside-replicas"),
        (change(leader=2, isr=(1,)), "leader-outside-isr"),
        (partition(directories=(UUID(int=1000),)), "directory-count"),
        (t.ProducerIdsRecord(broker_id=1, next_producer_id=1000), "producer-id-regression"),
        (t.RemoveAccessControlEntryRecord(id=UUID(int=9)), "unknown-acl"),
        (decode(b"\x01\x63\x00").record, "unknown-record"),
    ],
)
def test_finding(record, code) -> None:
    (found,) = check(IMAGE, record)
    assert found[0] == code
    assert found[1]


@pytest.mark.parametrize(
    "inside, record, code",
    [
        (True, t.BeginTransactionRecord(), "nested-transaction"),
        (False, t.EndTransactionRecord(), "no-transaction"),
        (False, t.AbortTransactionRecord(), "no-transaction"),
        (True, t.AbortTransactionRecord(reason="why"), "aborted-transaction"),
        (False, t.BeginTransactionRecord(), None),
        (True, t.EndTransactionRecord(), None),
        (True, t.NoOpRecord(), None),
    ],
)
def test_transaction_finding(inside, record, code) -> None:
    assert [found[0] for found in check_transaction(inside, record)] == ([code] if code else [])


def test_sound_histories_have_no_unknowns() -> None:
    history, image = History(1), EMPTY
    for record in history.take(1500):
        codes = {code for code, _ in check(image, record)}
        # The samples do not promise a leader within the ISR.
        assert codes <= {"leader-outside-isr", "isr-outside-replicas"}
        image = image.apply(record)
