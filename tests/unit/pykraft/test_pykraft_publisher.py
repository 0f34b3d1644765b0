"""From committed batches to images and snapshots, with a store that only writes down."""

import asyncio
import dataclasses
from uuid import UUID

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from metadata.records import (
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    TopicRecord,
    decode,
    encode,
)
from metadata.records.types import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from pykraft.publisher import MetadataPublisher
from raft.listener import CommittedBatch, LeaderAndEpoch, SnapshotView
from wire.errors import FatalError
from wire.exits import EXIT_UNREADABLE_LOG, EXIT_UNSUPPORTED_LEVEL
from world.memory import ManualClock, memory_env


class Store:
    """A quorum that keeps what it is to write; `gate` is waited for."""

    def __init__(self):
        self.written = []
        self.gate = None
        self.has_room = True
        self.catching_up = False

    async def write_snapshot(self, offset, epoch, last_timestamp_ms, slices):
        if self.gate is not None:
            await self.gate.wait()
        if not self.has_room:
            return False
        records = [decode(value).record for values in slices for value in values]
        self.written.append((offset, epoch, last_timestamp_ms, records))
        return True


class Scene:
    def __init__(self, snapshot_bytes=1000, snapshot_interval_ms=0):
        self.clock = ManualClock()
        self.fatal = []
        self.store = Store()
        self.publisher = MetadataPublisher(
            memory_env(clock=self.clock),
            snapshot_bytes=snapshot_bytes,
            snapshot_interval_ms=snapshot_interval_ms,
            on_fatal=self.fatal.append,
        )
        self.publisher.store = self.store
        self.end = 0

    def commit(self, *records, size=100, values=None):
        values = [encode(record) for record in records] if values is None else values
        batch = CommittedBatch(
            self.end, self.end + len(values) - 1, 3, 1_000 + self.end, values, [], size
        )
        self.end += len(values)
        self.publisher.on_batch(batch)

    async def settle(self):
        for _ in range(20):
            await asyncio.sleep(0)


def topic(number):
    return TopicRecord(name=f"t{number}", topic_id=UUID(int=1000 + number))


def snapshot(*slices):
    async def give():
        for values in slices:
            yield values

    return SnapshotView(10, 2, 77, give(), None, 0)


def run(story, **settings):
    async def main():
        scene = Scene(**settings)
        await story(scene)
        await scene.publisher.close()

    asyncio.run(main())


def test_subscribers_hear_in_the_order_in_which_they_came():
    async def story(scene):
        heard = []
        scene.publisher.subscribe(image=lambda image, delta: heard.append(("a", image.last_offset)))
        scene.publisher.subscribe(
            image=lambda image, delta: heard.append(("b", image.last_offset)),
            batch=lambda batch: heard.append(("batch", batch.last_offset)),
            leader=lambda leader: heard.append(("leader", leader.epoch)),
        )
        moved = scene.publisher.moved
        scene.commit(topic(1), topic(2))
        scene.publisher.on_leader_change(LeaderAndEpoch(1, 4))
        assert heard == [("a", 1), ("b", 1), ("batch", 1), ("leader", 4)]
        assert moved.is_set()
        assert not scene.publisher.moved.is_set()
        assert scene.publisher.leader == LeaderAndEpoch(1, 4)

    run(story)


def test_a_snapshot_is_written_after_so_many_bytes():
    async def story(scene):
        scene.commit(topic(1), size=999)
        await scene.settle()
        assert scene.store.written == []
        scene.commit(topic(2), size=1)
        await scene.settle()
        ((offset, epoch, timestamp_ms, records),) = scene.store.written
        assert (offset, epoch, timestamp_ms) == (2, 3, 1_001)
        assert {r.name for r in records if isinstance(r, TopicRecord)} == {"t1", "t2"}
        assert scene.publisher.snapshots_written == 1
        scene.commit(topic(3), size=999)
        await scene.settle()
        assert len(scene.store.written) == 1

    run(story)


def test_no_snapshot_is_written_of_a_part_of_what_is_known():
    async def story(scene):
        scene.store.catching_up = True
        scene.commit(topic(1), size=5000)
        await scene.settle()
        assert scene.store.written == []
        scene.store.catching_up = False
        scene.commit(topic(2), size=1)
        await scene.settle()
        assert [offset for offset, *_ in scene.store.written] == [2]

    run(story)


def test_a_snapshot_is_written_after_so_long():
    async def story(scene):
        scene.commit(topic(1))
        scene.clock.advance(59_999)
        scene.commit(topic(2))
        await scene.settle()
        assert scene.store.written == []
        scene.clock.advance(1)
        scene.commit(topic(3))
        await scene.settle()
        assert [written[0] for written in scene.store.written] == [3]

    run(story, snapshot_bytes=10**9, snapshot_interval_ms=60_000)


def test_one_snapshot_at_a_time_and_of_the_image_at_its_offset():
    async def story(scene):
        scene.store.gate = asyncio.Event()
        scene.commit(topic(1), size=1000)
        await scene.settle()
        scene.commit(topic(2), size=5000)
        scene.commit(topic(3), size=5000)
        scene.store.gate.set()
        await scene.settle()
        ((offset, *_, records),) = scene.store.written
        assert offset == 1
        assert [r.name for r in records if isinstance(r, TopicRecord)] == ["t1"]
        scene.commit(topic(4), size=1)
        await scene.settle()
        assert [written[0] for written in scene.store.written] == [1, 4]

    run(story)


def test_no_snapshot_inside_a_metadata_transaction():
    async def story(scene):
        scene.commit(BeginTransactionRecord(name="x"), topic(1), size=5000)
        await scene.settle()
        assert scene.publisher.in_transaction
        assert scene.store.written == []
        scene.commit(EndTransactionRecord(), size=1)
        await scene.settle()
        assert [written[0] for written in scene.store.written] == [3]

    run(story)


def test_a_snapshot_that_was_lost_is_followed_by_another_as_soon_as_one_may_be_written():
    async def story(scene):
        scene.commit(BeginTransactionRecord(name="x"), topic(1))
        scene.publisher.on_snapshot_lost()
        await scene.settle()
        assert scene.store.written == [], "not inside a transaction"
        scene.commit(EndTransactionRecord())
        await scene.settle()
        assert [written[0] for written in scene.store.written] == [3]
        scene.commit(topic(2))
        await scene.settle()
        assert len(scene.store.written) == 1
        scene.publisher.on_snapshot_lost()
        await scene.settle()
        assert [written[0] for written in scene.store.written] == [3, 4]

    run(story, snapshot_bytes=10**9)


def test_a_disk_without_room_for_a_snapshot_costs_that_snapshot_only():
    async def story(scene):
        scene.store.has_room = False
        scene.commit(topic(1), size=1000)
        await scene.settle()
        scene.store.has_room = True
        assert scene.fatal == []
        assert scene.publisher.snapshots_written == 0
        scene.commit(topic(2), size=1000)
        await scene.settle()
        assert [written[0] for written in scene.store.written] == [2]

    run(story)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ([encode(FeatureLevelRecord(name="metadata.version", feature_level=99))],
         EXIT_UNSUPPORTED_LEVEL),
        ([b"\xff\xff\xff"], EXIT_UNREADABLE_LOG),
    ],
)  # fmt: skip
def test_what_we_cannot_apply_stops_the_node_and_is_not_shown(values, code):
    async def story(scene):
        heard = []
        scene.publisher.subscribe(image=lambda *a: heard.append(a), batch=heard.append)
        scene.commit(values=values)
        assert [error.exit_code for error in scene.fatal] == [code]
        # Nor is anything after it, however soon the node stops: it would lack a batch.
        scene.commit(topic(1), size=10**6)
        await scene.settle()
        assert heard == scene.store.written == []

    run(story)


def test_a_snapshot_replaces_everything():
    async def story(scene):
        scene.commit(topic(1), size=999)
        await scene.publisher.on_snapshot(snapshot([encode(topic(5))]))
        image = scene.publisher.image
        assert list(image.topics_by_name) == ["t5"]
        assert (image.last_offset, image.last_epoch, image.last_timestamp_ms) == (9, 2, 77)
        # The bytes before it don't count any more.
        scene.end = 10
        scene.commit(topic(6), size=10)
        await scene.settle()
        assert scene.store.written == []

    run(story)


def test_closing_ends_a_snapshot_under_way():
    async def story(scene):
        scene.store.gate = asyncio.Event()
        scene.commit(topic(1), size=1000)
        await scene.settle()

    run(story)


def test_a_snapshot_is_loaded_while_others_have_their_turn():
    async def story(scene):
        settled = []
        env = dataclasses.replace(memory_env(), settle_memory=lambda: settled.append(1))
        scene.publisher._env = env
        turns = []

        async def others():
            while True:
                turns.append(len(scene.publisher.image.topics_by_name))
                await asyncio.sleep(0)

        task = asyncio.ensure_future(others())
        slices = [[encode(topic(n)) for n in range(at, at + 1500)] for at in range(0, 9_000, 1500)]
        await scene.publisher.on_snapshot(snapshot(*slices))
        task.cancel()
        # Whatever the size of a batch in the file, few records are applied at once; and until all
        # are there, the image is the one before.
        assert len(turns) >= 9_000 / 128
        assert set(turns[:-1]) == {0}
        assert len(scene.publisher.image.topics_by_name) == 9_000
        # What stands for long is taken out of the collector's sight, little at a time: the
        # collector looks at all of it once, and everything waits for that.
        assert 5 <= len(settled) <= 9
        settled.clear()
        # So are partitions of the log, but not what leaves the image as large as it was.
        scene.commit(
            *(PartitionRecord(partition_id=n, topic_id=topic(1).topic_id) for n in range(5_000))
        )
        assert len(settled) == 1
        for _ in range(3):
            scene.commit(*[NoOpRecord()] * 5_000)
        assert len(settled) == 1

    run(story)


def long_batch(scene, *records):
    values = [encode(record) for record in records]
    return CommittedBatch(scene.end, scene.end + len(values) - 1, 3, 99, values, [], 100)


def test_a_long_batch_is_applied_while_others_have_their_turn_and_seen_as_a_whole():
    partitions = [
        PartitionRecord(partition_id=n, topic_id=topic(1).topic_id, replicas=(1,), isr=(1,))
        for n in range(9_999)
    ]

    async def story(scene):
        scene.commit(topic(7))
        told, turns = [], []
        scene.publisher.subscribe(image=lambda image, delta: told.append(delta))

        async def others():
            while True:
                turns.append(scene.publisher.image)
                await asyncio.sleep(0)

        task = asyncio.ensure_future(others())
        batch = long_batch(scene, topic(1), *partitions)
        before = scene.publisher.image
        await scene.publisher.prepare(batch)
        task.cancel()
        assert len(turns) >= 10_000 / 128
        assert all(image is before for image in turns)
        assert told == []
        scene.publisher.on_batch(batch)
        (delta,) = told
        image = scene.publisher.image
        assert (image.last_offset, image.last_epoch, image.last_timestamp_ms) == (10_000, 3, 99)
        assert list(delta.topics_changed[topic(1).topic_id]) == list(range(9_999))
        at_once = Scene()
        at_once.commit(topic(7))
        at_once.publisher.on_batch(batch)
        assert at_once.publisher.image == image

    run(story, snapshot_bytes=10**9)


def test_a_long_batch_may_end_a_metadata_transaction_and_begin_another():
    async def story(scene):
        scene.commit(BeginTransactionRecord(name="x"), topic(1))
        batch = long_batch(
            scene, topic(2), EndTransactionRecord(), BeginTransactionRecord(name="y"), topic(3)
        )
        await scene.publisher.prepare(batch)
        assert scene.publisher.in_transaction
        assert list(scene.publisher.image.topics_by_name) == []
        scene.publisher.on_batch(batch)
        assert scene.publisher.in_transaction
        assert sorted(scene.publisher.image.topics_by_name) == ["t1", "t2"]
        scene.end += 4
        scene.commit(EndTransactionRecord())
        assert sorted(scene.publisher.image.topics_by_name) == ["t1", "t2", "t3"]

    run(story)


def test_a_snapshot_takes_the_place_of_a_long_batch_that_was_being_prepared():
    async def story(scene):
        scene.commit(topic(1))
        records = [BeginTransactionRecord(name="x"), *(topic(n) for n in range(2, 3_000))]
        task = asyncio.ensure_future(scene.publisher.prepare(long_batch(scene, *records)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await scene.publisher.on_snapshot(snapshot([encode(topic(5))]))
        assert not scene.publisher.in_transaction
        assert list(scene.publisher.image.topics_by_name) == ["t5"]
        scene.end = 10
        scene.commit(topic(6))
        assert sorted(scene.publisher.image.topics_by_name) == ["t5", "t6"]

    run(story)


def test_a_long_batch_that_we_cannot_apply_is_not_shown():
    async def story(scene):
        scene.commit(topic(1))
        batch = CommittedBatch(1, 2, 3, 99, [encode(topic(2)), b"\xff\xff\xff"], [], 100)
        with pytest.raises(FatalError) as refused:
            await scene.publisher.prepare(batch)
        assert refused.value.exit_code == EXIT_UNREADABLE_LOG
        assert list(scene.publisher.image.topics_by_name) == ["t1"]

    run(story)


@pytest.mark.parametrize("values", [[b"\xff\xff\xff"], [encode(FeatureLevelRecord(
    name="metadata.version", feature_level=99))]])  # fmt: skip
def test_a_snapshot_that_we_cannot_apply_is_not_shown(values):
    async def story(scene):
        scene.commit(topic(1))
        with pytest.raises(FatalError):
            await scene.publisher.on_snapshot(snapshot([encode(topic(2))], values))
        assert list(scene.publisher.image.topics_by_name) == ["t1"]

    run(story)


@examples(80)
@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["", "begin", "end", "abort"]))))
def test_a_snapshot_ends_where_a_batch_ends_and_no_transaction_is_open(batches):
    async def story(scene):
        may_end, is_open = {}, False
        held, pending = 0, 0
        for count, marker in batches:
            records = [topic(scene.end + i) for i in range(count)]
            at = count // 2
            if marker == "begin" and not is_open:
                records.insert(at, BeginTransactionRecord(name="x"))
                held, pending, is_open = held + at, count - at, True
            elif marker in ("end", "abort") and is_open:
                last = EndTransactionRecord() if marker == "end" else AbortTransactionRecord()
                records.insert(at, last)
                held += pending + at if marker == "end" else 0
                held, is_open = held + count - at, False
            elif is_open:
                pending += count
            else:
                held += count
            scene.commit(*records)
            if not is_open:
                may_end[scene.end] = held
            await scene.settle()
        for offset, _, _, records in scene.store.written:
            found = [r for r in records if isinstance(r, TopicRecord)]
            assert len(found) == may_end[offset]
        assert len(scene.store.written) == len(may_end)

    run(story, snapshot_bytes=1)
