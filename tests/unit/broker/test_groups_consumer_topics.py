"""Topics as consumer groups look at them. The hashes are what JVM Kafka 4.4.0 wrote."""

from uuid import UUID

from broker.groups.consumer.topics import Topics
from broker.groups.events import DescribedAssignment, Topic, TopicsKnown

FIRST = UUID("d8cb9cf7-3c9a-4228-9621-a023ac72d6e1")
SECOND = UUID("6c9eeeb1-a3dc-4342-8faf-fa1fdee68b88")
RACKED = UUID("1e9e96aa-a5cd-4645-b293-a8bf943be1e7")


def topics(**known):
    it = Topics()
    it.learn(TopicsKnown(5, known))
    return it


def test_the_hash_of_topics_is_a_jvm_brokers():
    it = topics(t1=Topic(FIRST, 3), t2=Topic(SECOND, 4))
    assert it.metadata_hash(["t1", "t2"]) == 4460351392137516530
    assert it.metadata_hash(["missing", "t1", "t2"]) == 4460351392137516530
    assert it.metadata_hash([]) == 0
    assert it.metadata_hash(["missing"]) == 0


def test_racks_are_part_of_it():
    # The broker's properties had an é, which Java read as two characters.
    it = topics(t1=Topic(RACKED, 3, (("rack-Ã©1",),) * 3))
    assert it.metadata_hash(["t1"]) == -7874755902861344402
    racks = (("b", "a"), ("a",), ())
    first = topics(t1=Topic(RACKED, 3, racks)).metadata_hash(["t1"])
    assert first == topics(t1=Topic(RACKED, 3, (("a", "b"), *racks[1:]))).metadata_hash(["t1"])
    assert first != topics(t1=Topic(RACKED, 3)).metadata_hash(["t1"])


def test_the_hash_follows_what_changes():
    it = topics(t=Topic(FIRST, 3), u=Topic(SECOND, 1))
    before = it.metadata_hash(["t"])
    assert it.version_of_new == 5
    it.learn(TopicsKnown(6, {"t": Topic(FIRST, 4), "u": Topic(SECOND, 1)}, ("t",)))
    assert it.metadata_hash(["t"]) != before
    assert it.version_of_new == 5
    it.learn(TopicsKnown(7, {"t": Topic(RACKED, 3), "u": Topic(SECOND, 1)}, ("t",)))
    assert it.metadata_hash(["t"]) != before
    assert it.version_of_new == 7
    it.learn(TopicsKnown(8, {"u": Topic(SECOND, 1)}, ("t",)))
    assert it.metadata_hash(["t"]) == 0
    assert it.version_of_new == 7
    it.learn(TopicsKnown(9, {"t": Topic(FIRST, 3)}))
    assert it.metadata_hash(["t"]) == before
    assert it.version_of_new == 9


def test_ids_and_names():
    it = topics(t=Topic(FIRST, 3), u=Topic(SECOND, 1))
    assert it.ids(("missing", "t", "u")) == (SECOND, FIRST)
    assert it.partition_counts(["missing", "u"]) == {SECOND: 1}
    assert list(it.described({FIRST: (1, 2), RACKED: (0,)})) == [
        DescribedAssignment(FIRST, "t", (1, 2))
    ]
    assert it.by_id([("t", (1,)), ("missing", (0,))]) == ((FIRST, (1,)),)
