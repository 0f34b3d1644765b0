"""What acts for the groups' core: loading, appends, time, leadership, and a core that breaks."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

from broker_fakes import cluster, until

from broker.group_coordinator import GroupCoordinators
from broker.group_partition import OFFSETS_TOPIC
from broker.group_topics import TopicsView
from broker.groups.effects import Answer, Append, StoredRecord
from broker.groups.events import (
    Appended,
    AppendFailed,
    Committed,
    GroupsConfigured,
    Heartbeat,
    Loaded,
    Resigned,
    Tick,
    Topic,
    TopicsDeleted,
    TopicsKnown,
)
from broker.groups.settings import GroupOverrides
from metadata.image import EMPTY
from metadata.records import types as t
from wire.apis import ErrorCode
from wire.batch import build_batch, decode_records, iter_headers, read_header
from wire.control import encode_end_txn_marker


class Core:
    """Notes what it is told, and does what the test has put into `next`: effects, or an error."""

    def __init__(self):
        self.told = []
        self.replayed = []
        self.next = []
        self.deadline = None
        self.loading = True
        self.waits = False

    def handle(self, event, now_ms, wall_ms):
        self.told.append(event)
        if isinstance(event, Loaded):
            self.loading = False
        if isinstance(event, Tick):
            self.deadline = None
        if self.next:
            effects = self.next.pop(0)
            if isinstance(effects, Exception):
                raise effects
            return effects
        if isinstance(event, Heartbeat) and not self.waits:
            said = "loading" if self.loading else "fine"
            return [Answer(event.caller, said)]
        return []

    def next_deadline_ms(self):
        return self.deadline

    def replay(self, *item):
        self.replayed.append(item)

    def end_transaction(self, *item):
        self.replayed.append(item)

    def of(self, kind):
        return [event for event in self.told if isinstance(event, kind)]


class Groups:
    """The groups of broker `id`, with cores of ours; told of images right after the broker."""

    def __init__(self, c, id=1, **config):
        self.c = c
        self.broker = c.brokers[id]
        self.cores = []
        self.broken = []
        self.shell = GroupCoordinators(
            c.env, replace(self.broker.config, **config), self.broker.replicas, self.make_core
        )
        c.controller.brokers[f"groups-{id}"] = self.shell
        self.shell.on_image(c.controller.image)

    def make_core(self):
        core = Core()
        if self.broken:
            core.next = [self.broken.pop(0)]
        self.cores.append(core)
        return core

    async def loaded(self):
        await until(lambda: all(p.loaded for p in self.shell.partitions))

    def ask(self, group="g", **kwargs):
        answers = []
        self.shell.ask(group, lambda n: Heartbeat(n, group, 1, "m", None), answers.append, **kwargs)
        return answers

    def close(self):
        self.c.controller.brokers = {
            key: b for key, b in self.c.controller.brokers.items() if b is not self.shell
        }
        self.shell.close()


@asynccontextmanager
async def groups(path, partitions=1, brokers=(1,), configs=None, **properties):
    async with cluster(path, brokers, **properties) as c:
        c.controller.create_topic(OFFSETS_TOPIC, partitions, brokers, configs)
        await until(lambda: all(len(b.replicas) == partitions for b in c.brokers.values()))
        made = Groups(c)
        try:
            await made.loaded()
            yield made
        finally:
            made.close()


def record(key, value=b"v"):
    return StoredRecord(key, value)


def stored(broker, index=0):
    log = broker.replicas.find(OFFSETS_TOPIC, None, index).log
    found = log.read(log.log_start_offset, 1 << 20)
    data = found.file.pread(found.length, found.position) if found else b""
    return [
        [(r.offset, r.key, r.value) for r in decode_records(data, position, header)]
        for position, header in iter_headers(data)
    ]


def test_what_is_appended_in_one_turn_is_one_batch_and_told_in_order(tmp_path):
    async def main():
        async with groups(tmp_path) as g:
            [core] = g.cores
            first = Append(1, (record(b"a"), record(b"b", None)))
            core.next = [[first], [Append(2, (record(b"c"),))]]
            assert g.ask() == g.ask() == []
            await until(lambda: core.of(Committed)[-1:] == [Committed(3)])
            assert core.of(Appended) == [Appended(1, 2), Appended(2, 3)]
            assert stored(g.broker) == [[(0, b"a", b"v"), (1, b"b", None), (2, b"c", b"v")]]
            [seen] = [n for n, e in enumerate(core.told) if e == Appended(2, 3)]
            assert core.told.index(Committed(3)) > seen

    asyncio.run(main())


def test_compression_is_as_configured(tmp_path):
    async def main():
        async with groups(tmp_path, offsets_topic_compression_codec=3) as g:
            g.cores[0].next = [[Append(1, (record(b"a", b"v" * 1000),))]]
            g.ask()
            replica = g.broker.replicas.find(OFFSETS_TOPIC, None, 0)
            await until(lambda: replica.log.end_offset == 1)
            assert replica.log.batch_header_at(0).codec == 3
            assert stored(g.broker) == [[(0, b"a", b"v" * 1000)]]

    asyncio.run(main())


def test_batches_stay_below_the_limit_and_one_append_is_never_parted(tmp_path):
    async def main():
        limits = {"max.message.bytes": "1000"}
        async with groups(tmp_path, configs=limits) as g:
            [core] = g.cores
            core.next = [
                [
                    Append(1, (record(b"a", b"1" * 400),)),
                    Append(2, (record(b"b", b"2" * 400),)),
                    Append(3, (record(b"c", b"3" * 400), record(b"d", b"4" * 400))),
                    Append(4, (record(b"e", b"5" * 990), record(b"f", b"6" * 990))),
                    Append(5, (record(b"g"),)),
                ]
            ]
            g.ask()
            await until(lambda: core.of(AppendFailed))
            assert [[key for _, key, _ in batch] for batch in stored(g.broker)] == [
                [b"a", b"b"],
                [b"c", b"d"],
            ]
            assert core.of(Appended) == [Appended(1, 1), Appended(2, 2), Appended(3, 4)]
            # The one after it is undone with it.
            assert core.of(AppendFailed) == [AppendFailed(4, ErrorCode.message_too_large)]
            assert g.shell.counters.append_failures == 1

    asyncio.run(main())


def test_appends_wait_for_the_in_sync_replicas_and_need_enough_of_them(tmp_path):
    async def main():
        configs = {"min.insync.replicas": "2"}
        async with groups(tmp_path, brokers=(1, 2), configs=configs) as g:
            [core] = g.cores
            core.next = [[Append(1, (record(b"a"),))]]
            g.ask()
            await until(lambda: core.of(Committed)[-1:] == [Committed(1)])
            await g.c.kill_broker(2)
            g.c.controller.fence(2)
            replica = g.broker.replicas.find(OFFSETS_TOPIC, None, 0)
            await until(lambda: replica.core.isr == (1,))
            core.next = [[Append(2, (record(b"b"),))]]
            g.ask()
            await until(lambda: core.of(AppendFailed))
            assert core.of(AppendFailed) == [AppendFailed(2, ErrorCode.not_enough_replicas)]
            assert stored(g.broker) == [[(0, b"a", b"v")]]

    asyncio.run(main())


def test_a_log_is_loaded_in_order_with_its_transactions(tmp_path):
    async def main():
        async with cluster(tmp_path, offsets_load_buffer_size=200) as c:
            c.controller.create_topic(OFFSETS_TOPIC)
            await until(lambda: len(c.brokers[1].replicas) == 1)
            replica = c.brokers[1].replicas.find(OFFSETS_TOPIC, None, 0)
            for n in range(300):
                data = build_batch([(1, b"k%d" % n, b"v%d" % n, ()), (1, b"x%d" % n, None, ())])
                replica.append_as_leader([bytearray(data)], len(data), [read_header(data)])
            written = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
            in_doubt = build_batch([(1, b"t", b"1", ())], base_sequence=0, **written)
            key, value = encode_end_txn_marker(True, 0)
            marker = build_batch([(1, key, value, ())], control=True, **written)
            for data in (in_doubt, marker):
                replica.log.append_as_leader([bytearray(data)], 0)
            g = Groups(c)
            assert g.ask() == ["loading"]
            assert g.cores[0].replayed == []
            await g.loaded()
            expected = []
            for n in range(300):
                expected.append((2 * n, b"k%d" % n, b"v%d" % n, -1))
                expected.append((2 * n + 1, b"x%d" % n, None, -1))
            assert g.cores[0].replayed == [*expected, (600, b"t", b"1", 7), (7, True)]
            assert g.ask() == ["fine"]
            told = [type(event) for event in g.cores[0].told]
            assert told == [TopicsKnown, Heartbeat, Loaded, Committed, Heartbeat]
            g.close()

    asyncio.run(main())


def test_a_log_that_is_not_sound_is_tried_again_and_nobody_else_suffers(tmp_path):
    async def main():
        async with groups(tmp_path, 2) as g:
            replica = g.broker.replicas.find(OFFSETS_TOPIC, None, 0)
            g.cores[0].next = [[Append(1, (record(b"a"),))]]
            group = next(str(n) for n in range(99) if g.shell.partition_of(str(n)) == 0)
            g.ask(group)
            await until(lambda: replica.log.end_offset == 1)
            position = replica.log.active.file.size() - 3
            sound = replica.log.active.file.pread(1, position)
            replica.log.active.file.pwrite(b"X", position)
            again = Groups(g.c)
            broken, other = again.shell.partitions
            await until(lambda: again.shell.counters.load_failures >= 2 and other.loaded)
            assert not broken.loaded
            assert again.ask(group) == ["loading"]
            replica.log.active.file.pwrite(sound, position)
            await until(lambda: broken.loaded)
            assert again.cores[-1].replayed == [(0, b"a", b"v", -1)]
            again.close()

    asyncio.run(main())


def test_a_core_that_raises_is_loaded_anew_and_takes_no_other_with_it(tmp_path, capsys):
    async def main():
        async with groups(tmp_path, 2) as g:
            broken, other = g.shell.partitions
            ids = {g.shell.partition_of(str(n)): str(n) for n in range(99)}
            g.cores[0].next = [[Append(1, (record(b"a"),))]]
            g.ask(ids[0])
            await until(lambda: g.cores[0].of(Committed)[-1:] == [Committed(1)])
            g.cores[0].waits = g.cores[1].waits = True
            waiting, unharmed = g.ask(ids[0]), g.ask(ids[1])
            g.cores[0].next = [RuntimeError("a bug")]
            assert g.ask(ids[0]) == [ErrorCode.unknown_server_error]
            assert waiting == [ErrorCode.not_coordinator]
            assert unharmed == []
            assert g.shell.counters.crashes == 1
            assert g.ask(ids[0]) == ["loading"]
            await until(lambda: broken.loaded)
            assert g.cores[2].replayed == [(0, b"a", b"v", -1)]
            assert g.ask(ids[0]) == ["fine"]
            assert other.loaded
            assert (g.shell.counters.crashes, len(g.cores)) == (1, 3)

    asyncio.run(main())
    assert "group_coordinator_crashed" in capsys.readouterr().out


def test_deadlines_and_limits(tmp_path):
    async def main():
        async with groups(tmp_path, offsets_commit_timeout_ms=50) as g:
            [core] = g.cores
            core.waits = True
            limited, patient = g.ask(), g.ask(waits=True)
            core.deadline = g.c.env.clock.now_ms() + 30
            g.ask()
            await until(lambda: core.of(Tick))
            await until(lambda: limited)
            assert limited == [ErrorCode.coordinator_not_available]
            assert patient == []
            core.next = [[Answer(event.caller, "late") for event in core.of(Heartbeat)]]
            g.ask()
            assert (limited, patient) == ([ErrorCode.coordinator_not_available], ["late"])

    asyncio.run(main())


def test_leadership_goes_and_comes_back(tmp_path):
    async def main():
        async with groups(tmp_path, brokers=(1, 2)) as g:
            other = Groups(g.c, 2)
            assert other.ask() == [ErrorCode.not_coordinator]
            [core] = g.cores
            core.next = [[Append(1, (record(b"a"),))]]
            g.ask()
            await until(lambda: core.of(Committed)[-1:] == [Committed(1)])
            core.waits = True
            waiting = g.ask(waits=True)
            g.c.controller.set_leader(OFFSETS_TOPIC, 0, 2)
            await until(lambda: core.of(Resigned) and len(other.cores) == 1)
            assert waiting == [ErrorCode.not_coordinator]
            assert g.ask() == [ErrorCode.not_coordinator]
            await other.loaded()
            assert other.cores[0].replayed == [(0, b"a", b"v", -1)]
            assert other.ask() == ["fine"]
            # The same leader in the next epoch goes on; in a later one somebody else may have led.
            g.c.controller.set_leader(OFFSETS_TOPIC, 0, 2)
            await until(lambda: other.shell.partitions[0].leader_epoch == 2)
            assert len(other.cores) == 1
            image = g.c.controller.image
            for leader in (1, 2):
                topic_id = image.topic(OFFSETS_TOPIC).id
                image = image.apply(
                    t.PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=leader)
                )
            g.c.brokers[2].on_image(image)
            other.shell.on_image(image)
            assert len(other.cores) == 2
            await other.loaded()
            other.close()
            assert other.ask() == [ErrorCode.coordinator_not_available]

    asyncio.run(main())


def test_topics_are_told(tmp_path):
    async def main():
        async with groups(tmp_path, broker_rack="r1") as g:
            [core] = g.cores
            topic_id = g.c.controller.create_topic("t", 2)
            await until(lambda: "t" in core.of(TopicsKnown)[-1].topics)
            known = core.of(TopicsKnown)[-1].topics
            assert known["t"] == Topic(topic_id, 2, (("r1",), ("r1",)))
            assert known.get("u") is None
            assert list(known) == [OFFSETS_TOPIC, "t"]
            g.c.controller.delete_topic("t")
            await until(lambda: core.of(TopicsDeleted))
            assert core.told[-1] == TopicsDeleted(("t",))
            assert "t" not in core.of(TopicsKnown)[-1].topics

    asyncio.run(main())


def test_what_is_set_for_groups_is_told(tmp_path):
    async def main():
        async with groups(tmp_path) as g:
            [core] = g.cores

            def config(name, value, kind=32):
                record = t.ConfigRecord(
                    resource_type=kind, resource_name="g", name=name, value=value
                )
                g.c.controller.commit(record)

            config("consumer.session.timeout.ms", "50000")
            await until(lambda: core.of(GroupsConfigured))
            expected = GroupsConfigured({"g": GroupOverrides(session_timeout_ms=50_000)})
            assert core.told[-1] == expected
            # Of topics, or unknown here.
            config("retention.ms", "1", kind=2)
            config("share.session.timeout.ms", "50000")
            again = Groups(g.c)
            await again.loaded()
            kinds = [type(one) for one in again.cores[0].told]
            assert kinds.index(GroupsConfigured) < kinds.index(Loaded)
            assert again.cores[0].of(GroupsConfigured) == [expected]
            config("consumer.session.timeout.ms", None)
            await until(lambda: len(again.cores[0].of(GroupsConfigured)) > 1)
            assert again.cores[0].of(GroupsConfigured) == [expected, GroupsConfigured({})]
            again.close()

    asyncio.run(main())


def test_topics_that_go_while_groups_are_loaded(tmp_path):
    async def main():
        async with groups(tmp_path) as g:
            g.c.controller.create_topic("t")
            again = Groups(g.c)
            await until(lambda: "t" in again.cores[0].of(TopicsKnown)[-1].topics)
            g.c.controller.delete_topic("t")
            await again.loaded()
            await until(lambda: again.cores[0].of(TopicsDeleted))
            kinds = [type(e) for e in again.cores[0].told if not isinstance(e, TopicsKnown)]
            assert kinds.index(Loaded) < kinds.index(TopicsDeleted)
            again.close()

    asyncio.run(main())


def test_a_group_belongs_to_the_partition_that_java_says(tmp_path):
    async def main():
        async with groups(tmp_path, 50) as g:
            # "polygenelubricants" has the hash -2^31, which has no absolute value.
            assert g.shell.partition_of("polygenelubricants") == 0
            assert g.shell.partition_of("quickstart-events-consumer") == 6

    asyncio.run(main())


def test_groups_move_to_new_partitions_only_with_a_new_start(tmp_path, capsys):
    """Kafka counts them when a broker starts; a topic that is another has its own number."""

    async def main():
        async with groups(tmp_path, 2) as g:
            names = [str(n) for n in range(99)]
            before = [g.shell.partition_of(name) for name in names]
            g.c.controller.add_partitions(OFFSETS_TOPIC, 7)
            await until(lambda: len(g.shell.partitions) == 7)
            await g.loaded()
            assert [g.shell.partition_of(name) for name in names] == before
            assert all(g.ask(name) == ["fine"] for name in names)
            again = Groups(g.c)
            assert {again.shell.partition_of(name) for name in names} == set(range(7))
            g.c.controller.delete_topic(OFFSETS_TOPIC)
            await until(lambda: not again.shell.partitions)
            g.c.controller.create_topic(OFFSETS_TOPIC, 3)
            await until(lambda: len(again.shell.partitions) == 3)
            assert {again.shell.partition_of(name) for name in names} == set(range(3))
            again.close()

    asyncio.run(main())
    assert "offsets_topic_has_grown" in capsys.readouterr().out


def test_a_view_of_nothing():
    view = TopicsView(EMPTY)
    assert len(view) == 0
    assert "t" not in view


def test_what_is_loaded_is_committed_before_it_is_told(tmp_path):
    async def main():
        configs = {"min.insync.replicas": "2"}
        async with groups(
            tmp_path, brokers=(1, 2), configs=configs, offsets_commit_timeout_ms=300
        ) as g:
            [core] = g.cores
            core.next = [[Append(1, (record(b"a"),))]]
            g.ask()
            await until(lambda: core.of(Committed)[-1:] == [Committed(1)])
            replica = g.broker.replicas.find(OFFSETS_TOPIC, None, 0)
            await g.c.kill_broker(2)
            g.c.controller.fence(2)
            await until(lambda: replica.core.isr == (1,))
            data = build_batch([(1, b"b", b"v", ())])
            replica.append_as_leader([bytearray(data)], len(data), [read_header(data)])
            began_ms = g.c.env.clock.now_ms()
            again = Groups(g.c)
            # Nobody can commit it now; what is there can be read all the same.
            await again.loaded()
            assert len(again.cores[0].replayed) == 2
            assert g.c.env.clock.now_ms() - began_ms >= 300
            assert again.cores[0].of(Committed)[-1:] == [Committed(1)]
            third = Groups(g.c, offsets_commit_timeout_ms=60_000)
            await until(lambda: len(third.cores[0].replayed) == 2)
            assert third.ask() == ["loading"]
            await g.c.start_broker(2)
            await third.loaded()
            assert third.cores[0].of(Committed) == [Committed(2)]
            for more in (again, third):
                more.close()

    asyncio.run(main())


def test_no_core_sees_a_text_that_no_record_holds(tmp_path):
    async def main():
        async with groups(tmp_path) as g:
            for text, answer in (("x" * 32_001, ErrorCode.invalid_request), ("é" * 16_000, "fine")):
                answers = []
                make = lambda n, text=text: Heartbeat(n, "g", 1, text, None)  # noqa: E731
                g.shell.ask("g", make, answers.append)
                assert answers == [answer]
            assert g.ask("é" * 16_001) == [ErrorCode.invalid_request]
            assert g.ask("x" * 32_001) == [ErrorCode.invalid_request]
            assert g.ask("x" * 10_000_000) == [ErrorCode.invalid_request]
            assert len(g.cores[0].of(Heartbeat)) == 1

    asyncio.run(main())
