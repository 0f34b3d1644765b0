"""The rules over live nodes: mirrors against a naive reading, and planted faults."""

import asyncio
import dataclasses
import random
from uuid import UUID

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from metadata.image import EMPTY
from metadata.records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from simulation.checks import Violation
from simulation.checks import media as disks
from simulation.checks.images import ImageChecks
from simulation.checks.logs import LogFacts, LogMirror
from storage.cleaning.dirt import measure
from storage.cleaning.throttle import Throttle
from storage.cleaning.work import Limits, clean
from storage.config import LogConfig
from storage.log import Log
from wire.batch import build_batch, iter_headers
from world.memory import memory_env

T = UUID(int=7)


def new_log(env, directory="/log"):
    env.disk.make_dirs("/")
    return asyncio.run(Log.open(env, directory, LogConfig(segment_bytes=400)))


def batch(log, epoch, value, count=1):
    data = build_batch([(1, None, value, ())] * count, base_offset=log.end_offset)
    log.append_as_leader([bytearray(data)], epoch)


def naive(log):
    """(base, next, epoch, crc) of every batch, read from the files one after the other."""
    found = []
    for segment in log.segments.values():
        data = segment.file.pread(segment.size, 0)
        found += [
            (h.base_offset, h.next_offset, h.leader_epoch, h.crc) for _, h in iter_headers(data)
        ]
    return found


OPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3), st.integers(0, 250)),
        st.tuples(st.just("cut"), st.integers(0, 12)),
        st.tuples(st.just("restart"), st.integers(0, 5)),
        st.tuples(st.just("roll")),
    ),
    max_size=25,
)


@examples(40)
@given(OPS)
def test_a_mirror_has_what_the_files_have(ops):
    env = memory_env()
    log = new_log(env)
    mirror = LogMirror(log, disks.peek)
    epoch = 1
    for op in ops:
        if op[0] == "append":
            batch(log, epoch, bytes(op[2]), op[1])
        elif op[0] == "cut":
            log.truncate_to(max(log.log_start_offset, log.end_offset - op[1]))
            epoch += 1
        elif op[0] == "restart":
            log.truncate_and_restart_at(log.end_offset + op[1])
            epoch += 1
        else:
            log.roll()
        before = [b.id for b in mirror.batches]
        cut, fresh = mirror.update()
        kept = [b.id for b in mirror.batches[: len(mirror.batches) - len(fresh)]]
        assert [b.id for b in mirror.batches] == naive(log)
        # A log that begins anew leaves out what lies before it.
        assert cut or kept == [b for b in before if b[1] > log.log_start_offset]
        for previous, new in fresh:
            index = mirror.batches.index(new)
            assert previous == (mirror.batches[index - 1] if index else None)
        if mirror.batches:
            chance = random.Random(len(ops))
            offset = chance.randint(mirror.batches[0].base, mirror.end)
            ends = [b for b in mirror.batches if b.next <= offset]
            assert mirror.ending_at_or_before(offset) == (ends[-1] if ends else None)
            some = chance.choice(mirror.batches)
            assert mirror.find(some.base) == some
            assert mirror.between(some.base, mirror.end) == [
                b for b in mirror.batches if b.next > some.base
            ]


COMPACTED = LogConfig(segment_bytes=400, cleanup_compact=True, cleanup_delete=False)


def keyed(log, epoch, key, value):
    data = build_batch([(1, b"%d" % key, value, ())], base_offset=log.end_offset)
    log.append_as_leader([bytearray(data)], epoch)


@examples(40)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(0, 3), st.integers(0, 100)),
            st.tuples(st.just("cut"), st.integers(0, 5)),
            st.tuples(st.just("roll")),
            st.tuples(st.just("clean")),
        ),
        max_size=40,
    )
)
def test_a_mirror_of_a_compacted_log_has_what_was_appended(ops):
    """However it is cleaned; one that begins later has a part of it, and agrees with the first."""

    async def story():
        env = memory_env()
        env.disk.make_dirs("/")
        log = await Log.open(env, "/log", COMPACTED)
        mirror, facts = LogMirror(log, disks.peek), LogFacts("test")
        appended, epoch, least = [], 1, 0
        for op in ops:
            if op[0] == "append":
                keyed(log, epoch, op[1], bytes(op[2]))
                appended.append((log.end_offset - 1, log.end_offset, epoch, 0))
            elif op[0] == "cut":
                # What is clean is committed, and stays.
                end = max(least, log.end_offset - op[1])
                if end < log.end_offset:
                    epoch += 1
                log.truncate_to(end)
                await log.settle()
                appended = [one for one in appended if one[1] <= end]
            elif op[0] == "roll":
                log.roll()
            else:
                dirt = measure(log, log.end_offset, 1_000)
                least = max(least, dirt.end)
                await log.flush(dirt.end)
                await clean(log, dirt, Limits(1 << 20, 0.9, Throttle(1e300)))
            for before, new in mirror.update()[1]:
                facts.appended(1, before, new)
            assert [b.id for b in mirror.batches] == appended
            late = LogMirror(log, disks.peek)
            for before, new in late.update()[1]:
                facts.appended(2, before, new)
            known = [b.id for b in late.batches]
            assert [one for one in appended if one in known] == known
            thin = late.thin_below
            assert [o for o in known if o[1] > thin] == [o for o in appended if o[1] > thin]
        await log.close()

    asyncio.run(story())


class Member:
    """A log with its mirror, told to the common facts as it grows."""

    def __init__(self, facts, node_id):
        self.facts, self.node_id = facts, node_id
        self.log = new_log(memory_env())
        self.mirror = LogMirror(self.log, disks.peek)
        self.mark = 0

    def append(self, epoch, value):
        batch(self.log, epoch, value)
        self.tell()

    def cut(self, offset):
        self.log.truncate_to(offset)
        self.tell()

    def tell(self):
        for before, new in self.mirror.update()[1]:
            self.facts.appended(self.node_id, before, new)

    def lead(self, epoch):
        self.facts.leads(self.node_id, epoch, self.mirror)

    def commit(self, epoch, mark):
        start, self.mark = self.mark, mark
        self.facts.commits(self.node_id, epoch, self.mirror, start, mark)


@pytest.fixture
def members():
    facts = LogFacts("test")
    return Member(facts, 1), Member(facts, 2)


def test_a_sound_history_of_two_logs(members):
    one, two = members
    one.lead(1)
    for value in (b"a", b"b", b"c"):
        one.append(1, value)
    two.append(1, b"a")
    two.append(1, b"b")
    one.commit(1, 2)
    two.lead(2)
    two.append(2, b"d")
    one.cut(2)
    one.append(2, b"d")
    two.commit(2, 3)
    one.commit(2, 3)
    one.lead(3)
    assert one.facts.committed_end == 3


def test_one_leader_an_epoch(members):
    members[0].lead(4)
    members[0].lead(4)
    with pytest.raises(Violation, match="one leader per epoch"):
        members[1].lead(4)


def test_another_record_at_the_same_offset_and_epoch(members):
    members[0].append(1, b"a")
    with pytest.raises(Violation, match="log matching"):
        members[1].append(1, b"b")


def test_another_history_before_the_same_record(members):
    members[0].append(1, b"a")
    members[0].append(3, b"c")
    members[1].append(2, b"b")
    with pytest.raises(Violation, match="log matching"):
        members[1].append(3, b"c")


def test_a_leader_without_what_was_committed(members):
    one, two = members
    one.append(1, b"a")
    one.append(1, b"b")
    two.append(1, b"a")
    one.commit(1, 2)
    with pytest.raises(Violation, match="all that was committed"):
        two.lead(2)


def test_a_late_leader_of_an_old_epoch_may_lack_what_a_later_one_committed(members):
    one, two = members
    one.append(3, b"a")
    one.commit(3, 1)
    two.lead(2)


def test_committed_records_change(members):
    one, two = members
    one.append(1, b"a")
    one.commit(1, 1)
    two.append(2, b"b")
    with pytest.raises(Violation, match="committed never changes"):
        two.commit(2, 1)


def test_a_mark_beyond_the_log(members):
    members[0].append(1, b"a")
    with pytest.raises(Violation, match="within the log"):
        members[0].commit(1, 2)


# Images


def broker(broker_id, **fields):
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=fields.pop("incarnation_id", UUID(int=broker_id)),
        broker_epoch=fields.pop("broker_epoch", broker_id),
        fenced=fields.pop("fenced", False),
    )


def image(*records, offset=0):
    made = EMPTY
    for record in (*map(broker, (1, 2, 3)), *records):
        made = made.apply(record)
    return made.at(offset, 1, 1)


TOPIC = TopicRecord(name="t", topic_id=T)
PARTITION = PartitionRecord(
    partition_id=0, topic_id=T, replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=0,
    partition_epoch=0,
)  # fmt: skip


def partition_change(**fields):
    return PartitionChangeRecord(partition_id=0, topic_id=T, **fields)


@pytest.fixture
def checks():
    return ImageChecks(lambda: 100)


def test_sound_images(checks):
    for node_id in (1, 2):
        life = object()
        checks.look(node_id, life, image(TOPIC, PARTITION, offset=1))
        moved = partition_change(leader=2, isr=(2,))
        checks.look(node_id, life, image(TOPIC, PARTITION, moved, offset=2))
    assert checks.counts["partition leader changes"] == 1
    assert checks.counts["ISR changes"] == 1


def test_two_images_of_one_offset(checks):
    checks.look(1, 0, image(TOPIC, PARTITION, offset=1))
    config = ConfigRecord(resource_type=2, resource_name="t", name="a", value="b")
    with pytest.raises(Violation, match="same prefix, same image"):
        checks.look(2, 0, image(TOPIC, PARTITION, config, offset=1))


def test_an_image_that_is_not_committed():
    with pytest.raises(Violation, match="only committed"):
        ImageChecks(lambda: 5).look(1, 0, image(offset=5))


def test_an_image_that_goes_back(checks):
    life = object()
    checks.look(1, life, image(offset=7))
    with pytest.raises(Violation, match="never goes back"):
        checks.look(1, life, image(offset=6))
    checks.look(1, object(), image(offset=6))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"isr": (1, 4)}, "ISR within the replicas"),
        ({"isr": (2,)}, "the leader is in sync"),
        ({"leader": 3, "isr": (3,)}, "leaders come from the ISR"),
        ({"leader": 3, "isr": (3,), "leader_recovery_state": 1}, "leaders come from the ISR"),
        ({"isr": (1,), "eligible_leader_replicas": (1,)}, "eligible leader replicas"),
        ({"isr": (1,), "eligible_leader_replicas": (5,)}, "eligible leader replicas"),
    ],
)
def test_steps_that_may_not_be(checks, change, rule):
    checks.look(1, 0, image(TOPIC, PARTITION, offset=1))
    with pytest.raises(Violation, match=rule):
        checks.look(1, 0, image(TOPIC, PARTITION, partition_change(**change), offset=2))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (broker(1, broker_epoch=9, fenced=True), "a fenced broker leads nothing"),
        (broker(3, broker_epoch=2), "a broker's epoch rises with every life"),
        (broker(3, incarnation_id=UUID(int=9)), "a broker's epoch rises with every life"),
        (
            ProducerIdsRecord(broker_id=1, next_producer_id=500),
            "blocks of producer ids are given once",
        ),
    ],
)
def test_changes_of_the_cluster_that_may_not_be(checks, change, rule):
    ids = ProducerIdsRecord(broker_id=1, next_producer_id=1_000)
    checks.look(1, 0, image(TOPIC, PARTITION, ids, offset=1))
    with pytest.raises(Violation, match=rule):
        checks.look(1, 0, image(TOPIC, PARTITION, ids, change, offset=2))


def test_a_leader_that_is_fenced_already(checks):
    fenced = broker(2, broker_epoch=9, fenced=True)
    checks.look(1, 0, image(TOPIC, PARTITION, fenced, offset=1))
    with pytest.raises(Violation, match="a fenced broker leads nothing"):
        checks.look(
            1, 0, image(TOPIC, PARTITION, fenced, partition_change(leader=2, isr=(2,)), offset=2)
        )


def test_brokers_that_come_again(checks):
    checks.look(1, 0, image(TOPIC, PARTITION, offset=1))
    again = broker(3, broker_epoch=8, incarnation_id=UUID(int=9), fenced=True)
    checks.look(1, 0, image(TOPIC, PARTITION, again, offset=2))
    checks.look(1, 0, image(TOPIC, PARTITION, dataclasses.replace(again, fenced=False), offset=3))


def test_an_unclean_election_where_it_is_allowed_and_marked(checks):
    allowed = ConfigRecord(
        resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true"
    )
    checks.look(1, 0, image(TOPIC, allowed, PARTITION, offset=1))
    unclean = partition_change(leader=3, isr=(3,), leader_recovery_state=1)
    checks.look(1, 0, image(TOPIC, allowed, PARTITION, unclean, offset=2))
    assert checks.counts["unclean elections"] == 1
